"""A host of the lab: software on its own address, its links, and what a good page has.

Owns: addresses, and the interface that each kind of host fills in. Invariants: a page is good if it has all of the texts that its link expects;
the first and the second run start the software afresh. Must not know: who crawls.
"""

import dataclasses
import html
import os
import pathlib
import random
import re

from meter import Meter
from software import Missing, Program, Software

PORT = 18800
#: What a refusal is, unless a host says something else.
REFUSALS = frozenset((401, 403, 429, 500, 502, 503, 504))


@dataclasses.dataclass(frozen=True)
class Link:
    url: str
    #: Texts that the page has once it is complete, without markup.
    expected: tuple[str, ...]


class Host:
    #: `guard`, `app` or `proxy`.
    kind = "guard"
    name = ""
    #: What is set up, in a few words.
    rule = ""
    #: The best constant rate, in pages per second, where the limit is a rate.
    best: float | None = None
    #: Whether any client passes the guard, so that a page costs little more than a request.
    is_passable = True
    #: Whether a refusal is a closed connection, or silence.
    drops = False
    #: Whether `--quick` has this host.
    quick = False
    #: Links of a run, and the time after which a run is ended, in seconds.
    count = 120
    seconds = 240.0
    #: The end that every link has to have instead of a page; for hosts that give none.
    expected_error: str | None = None
    #: Packages.
    debian: tuple[str, ...] = ()
    node: tuple[str, ...] = ()
    python: tuple[str, ...] = ()

    def __init__(self, number: int, software: Software):
        self.address, self.behind, self.origin = (f"127.0.{100 + number}.{last}" for last in (1, 2, 3))
        self.software, self.place = software, software.place / "hosts" / self.name
        self.programs: list[Program] = []
        self.meter: Meter | None = None

    @property
    def base(self) -> str:
        return f"http://{self.address}:{PORT}"

    def install(self):
        """Gets the software, or raises `Missing`."""
        self.place.mkdir(parents=True, exist_ok=True)
        if self.debian:
            self.software.debian(list(self.debian))
        if self.node:
            self.node_folder = self.software.node(self.name, list(self.node))
        if self.python:
            self.python_folder = self.software.python(self.name, list(self.python))

    def set_up(self):
        """Starts the programs; the last one listens on `self.behind`."""
        raise NotImplementedError

    def links(self, part: int) -> list[Link]:
        """Returns the links of the first (0) or second (1) run."""
        raise NotImplementedError

    def config(self) -> str:
        """The crawler's settings, as fetchwise reads them; defaults unless a host says something else."""
        return ""

    def start(self):
        try:
            self.set_up()
            self.meter = Meter(self.address, PORT, (self.behind, PORT))
        except OSError as error:
            raise Missing(str(error)) from error

    def stop(self):
        if self.meter:
            self.meter.stop()
            self.meter = None
        for program in reversed(self.programs):
            program.stop()
        self.programs = []

    def run(self, name: str, command: list, address: str | None = None, env=None):
        """Starts a program, and waits until it listens, on `behind` unless another address is given."""
        program = Program(name, command, self.place, env or self.software.environment())
        self.programs.append(program)
        program.wait_for(address or self.behind, PORT)

    def write(self, name: str, text: str) -> pathlib.Path:
        path = self.place / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


@dataclasses.dataclass(frozen=True)
class Article:
    slug: str
    title: str
    paragraphs: list[str]
    #: Words of the first paragraph.
    words: str


class Documentation:
    """The pages behind guards: the documentation of Python, as Debian ships it."""

    PACKAGE = "python3-doc"

    def __init__(self, software: Software):
        self.root = software.file("usr/share/doc/python3.*/html")
        pages = {}
        for path in sorted(self.root.rglob("*.html")):
            text = path.read_text(errors="replace")
            title = re.search(r"<title>(.*?)</title>", text, re.S)
            if title and len(text) > 8000 and "genindex" not in path.name and path.name != "search.html":
                pages.setdefault(" ".join(html.unescape(title[1]).split()), path.relative_to(self.root).as_posix())
        self.pages = sorted((path, title) for title, path in pages.items())
        random.Random(1).shuffle(self.pages)

    def articles(self, count: int) -> list["Article"]:
        """Returns the first pages as plain text, for applications that have texts of their own."""
        found = []
        for path, title in self.pages:
            text = (self.root / path).read_text(errors="replace").split('role="main"')[-1]
            plain = [" ".join(html.unescape(re.sub(r"<[^>]*>", "", part)).split()) for part in re.findall(r"<p>(.*?)</p>", text, re.S)]
            paragraphs = [part for part in plain if len(part) > 120 and part.isascii()][:5]
            # Applications change quotes and dashes, so a page is known by words alone.
            words = re.search(r"(?:[A-Za-z]+ ){5}[A-Za-z]+", paragraphs[0]) if len(paragraphs) >= 2 else None
            name = title.split(" — Python")[0]
            if words and name.isascii() and len(found) < count:
                found.append(Article(f"article-{len(found)}", name, paragraphs, words[0]))
        return found

    def size(self, count: int) -> float:
        """Returns the mean size of the pages of the first run."""
        return sum((self.root / path).stat().st_size for path, _ in self.pages[:count]) / count


class Guard(Host):
    """A guard in front of static pages."""

    debian = (Documentation.PACKAGE, "nginx-light")

    def install(self):
        super().install()
        self.documentation = Documentation(self.software)

    def links(self, part):
        pages = self.documentation.pages[part * self.count : (part + 1) * self.count]
        return [Link(f"{self.base}/{path}", (title,)) for path, title in pages]

    def serve_origin(self):
        """Serves the pages without a limit on the address behind a proxy."""
        nginx(self, "origin", server=f"listen {self.origin}:{PORT}; root {self.documentation.root};", address=self.origin)


class App(Host):
    """An application that shows articles, one at each address."""

    kind, count, seconds = "app", 60, 240.0
    debian = (Documentation.PACKAGE,)
    #: The path of an article, with `{slug}` and `{number}`.
    path = "/{slug}"

    def install(self):
        super().install()
        self.articles = Documentation(self.software).articles(self.count)
        self.build()

    def build(self):
        """Makes what the programs serve."""

    def links(self, part):
        """Returns the same links for both runs: an application has no limit that would know them again."""
        paths = [self.path.format(slug=article.slug, number=number) for number, article in enumerate(self.articles)]
        return [Link(self.base + path, (article.words,)) for path, article in zip(paths, self.articles)]


def nginx(host: Host, name: str, server: str, http: str = "", address: str | None = None):
    """Starts an nginx whose files are all in the host's folder."""
    folder = host.place / f"{name}-files"
    folder.mkdir(parents=True, exist_ok=True)
    temporary = " ".join(f"{kind}_temp_path {folder}/{kind};" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    types = "types { text/html html; text/css css; text/javascript js; image/svg+xml svg; image/png png; }"
    path = host.write(
        f"{name}.conf",
        f"""
        daemon off; worker_processes 1; pid {folder}/pid; error_log {folder}/error.log;
        {"user root;" if is_root() else ""}
        events {{ worker_connections 512; }}
        http {{
            access_log off; {temporary} {types} default_type application/octet-stream;
            {http}
            server {{ {server} }}
        }}
        """,
    )
    host.run(name, [host.software.program("nginx"), "-e", folder / "start.log", "-p", folder, "-c", path], address)


def is_root() -> bool:
    return os.getuid() == 0
