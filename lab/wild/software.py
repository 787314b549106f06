"""Other people's software: where it comes from, and the programs that were started.

Owns: `target/wild`, and every process of the lab. Invariants: packages are unpacked into `target/wild` and never installed, so no service of
the system starts or changes; a process is ended by its own id. Must not know: what a program serves.
"""

import atexit
import contextlib
import glob
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import time

#: What packages of the lab depend on, and none of its hosts uses: mail, and the set-up of the system's databases.
UNWANTED = re.compile(r"^(exim4|bsd-mailx|liblockfile|dbconfig|default-mta|mailutils)")
#: The time that a program has to listen, in seconds. The machine may be busy.
PATIENCE = 90


class Missing(Exception):
    """Software that cannot be had here; its hosts are skipped."""


class Software:
    """The folder with the unpacked packages: `debian/`, `node/NAME/`, `python/NAME/`."""

    def __init__(self, place: pathlib.Path):
        self.place = place
        self.debian_root = place / "debian"
        self.debian_root.mkdir(parents=True, exist_ok=True)

    def debian(self, packages: list[str]):
        """Unpacks packages that the system lacks, and what they depend on."""
        marks = self.place / "debian-have.txt"
        have = set(marks.read_text().split()) if marks.exists() else set()
        if set(packages) <= have:
            return
        if not shutil.which("apt-get"):
            raise Missing("no apt-get")
        names = [name for name in self.lacking(packages) if name not in have and not UNWANTED.match(name)]
        if names:
            archives = self.place / "archives"
            archives.mkdir(exist_ok=True)
            run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", "download", *names], cwd=archives)
            for archive in archives.glob("*.deb"):
                unpack(archive, self.debian_root)
                archive.unlink()
        marks.write_text("\n".join(sorted(have | set(packages) | set(names))) + "\n")

    @staticmethod
    def lacking(packages: list[str]) -> list[str]:
        """Returns what apt-get would install; nothing is installed. Upgrades are left out."""
        command = ["apt-get", "install", "-s", "--no-install-recommends", *packages]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            sudo = [] if os.getuid() == 0 else ["sudo", "-n"]
            run([*sudo, "apt-get", "-q", "update"])
            asked = subprocess.run(command, capture_output=True, text=True, check=False)
        if asked.returncode != 0:
            raise Missing(asked.stderr.strip().splitlines()[-1])
        return re.findall(r"^Inst (\S+) \(", asked.stdout, re.M)

    def node(self, name: str, packages: list[str]) -> pathlib.Path:
        """Installs packages of npm, and returns their folder."""
        folder, wanted = self.place / "node" / name, "\n".join(packages)
        mark = folder / "installed.txt"
        if not mark.exists() or mark.read_text() != wanted:
            if not shutil.which("npm"):
                raise Missing("no npm")
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "package.json").write_text('{"name": "wild", "private": true}\n')
            environment = {**os.environ, "PLAYWRIGHT_SKIP_BROWSER_DOWNLOAD": "1"}
            run(["npm", "install", "--silent", "--no-audit", "--no-fund", *packages], cwd=folder, env=environment)
            mark.write_text(wanted)
        return folder

    def python(self, name: str, packages: list[str]) -> pathlib.Path:
        """Installs packages of PyPI into an environment of their own, and returns its folder of programs."""
        folder, wanted = self.place / "python" / name, "\n".join(packages)
        mark = folder / "installed.txt"
        if not mark.exists() or mark.read_text() != wanted:
            run([sys.executable, "-m", "venv", folder])
            run([folder / "bin/pip", "install", "--quiet", "--disable-pip-version-check", *packages])
            mark.write_text(wanted)
        return folder / "bin"

    def program(self, name: str) -> str:
        """Returns the path of a program: the unpacked one, or else the system's."""
        for folder in ("usr/sbin", "usr/bin"):
            if (self.debian_root / folder / name).exists():
                return str(self.debian_root / folder / name)
        if path := shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin:/usr/local/sbin"):
            return path
        raise Missing(f"no {name}")

    def file(self, path: str) -> pathlib.Path:
        """Returns a file or folder of a package, such as `usr/share/dokuwiki`."""
        for root in (self.debian_root, pathlib.Path("/")):
            if found := glob.glob(str(root / path)):
                return pathlib.Path(sorted(found)[-1])
        raise Missing(f"no /{path}")

    def environment(self) -> dict[str, str]:
        """Returns variables with which unpacked programs find their libraries."""
        libraries = [*glob.glob(str(self.debian_root / "usr/lib/*-linux-gnu")), *glob.glob(str(self.debian_root / "lib/*-linux-gnu"))]
        # Some libraries of a program are in its own folder.
        libraries += glob.glob(str(self.debian_root / "usr/lib/*-linux-gnu/varnish"))
        return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}


def unpack(archive: pathlib.Path, root: pathlib.Path):
    """Unpacks a Debian package. Where two packages have the same path, the first one stays: tar's complaints about that are no failure."""
    tar = ["tar", "-x", "--skip-old-files", "--no-same-owner", "-C", str(root)]
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", str(archive)], stdout=subprocess.PIPE) as reader:
        subprocess.run(tar, stdin=reader.stdout, capture_output=True, check=False)
    if reader.returncode != 0:
        raise Missing(f"{archive.name} cannot be unpacked")


def run(command: list, cwd=None, env=None, seconds: float = 1800, stdin: str | None = None) -> str:
    """Runs a command of a set-up, and returns its output. Whatever fails makes the software missing."""
    command = [str(word) for word in command]
    try:
        ended = subprocess.run(command, cwd=cwd, env=env, timeout=seconds, check=False, capture_output=True, text=True, input=stdin or "")
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from error
    if ended.returncode != 0:
        said = (ended.stderr.strip() or ended.stdout.strip() or "nothing").splitlines()[-3:]
        raise Missing(f"{os.path.basename(command[0])} ended with {ended.returncode}: {' / '.join(said)}")
    return ended.stdout


class Program:
    """A running program in its own session, with its messages in a file."""

    running: list["Program"] = []

    def __init__(self, name: str, command: list, place: pathlib.Path, env=None):
        place.mkdir(parents=True, exist_ok=True)
        self.name, self.messages = name, place / f"{name}.log"
        with self.messages.open("w") as file:
            words = [str(word) for word in command]
            try:
                self.process = subprocess.Popen(words, cwd=place, env=env, stdin=subprocess.DEVNULL, stdout=file, stderr=file, start_new_session=True)
            except OSError as error:
                raise Missing(f"{name}: {error}") from error
        Program.running.append(self)

    def wait_for(self, address: str, port: int):
        """Waits until the program listens."""

        def listens() -> bool:
            with contextlib.suppress(OSError), socket.create_connection((address, port), timeout=5):
                return True
            return False

        self.wait_until(listens)

    def wait_until(self, is_ready):
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise Missing(f"{self.name} ended with {self.process.returncode}: {self.messages.read_text(errors='replace')[-600:].strip()}")
            if is_ready():
                return
            time.sleep(0.1)
        raise Missing(f"{self.name} is not ready after {PATIENCE} s")

    def stop(self, seconds: float = 10):
        """Ends the program and its children, which are in its process group."""
        if self not in Program.running:
            return
        Program.running.remove(self)
        for sign in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, sign)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)


@atexit.register
def stop_all():
    for program in list(Program.running):
        program.stop(2)
