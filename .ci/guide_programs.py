"""Runs the first programs of the guides as they are printed, on a host that allows 60 pages in ten seconds.

    python .ci/guide_programs.py rust|python|scrapy...

Each fetches 200 pages of a host on loopback, which counts what it refuses: at most three of them. Only the address and the
number of pages are changed. `python` and `scrapy` need the installed package.
"""

from __future__ import annotations

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parent.parent
GUIDES = ROOT / "docs" / "guides"
PAGES, ALLOWED, WINDOW, REFUSED_MOST = 200, 60, 10.0, 3
ARTICLE = "<p>" + "The ferry leaves at noon and comes back in the evening, when the wind allows it. " * 8 + "</p>"


class Host:
    """A host with windows of ten seconds from its first request on. Refused requests count in their window."""

    def __init__(self) -> None:
        self.delivered = self.refused = 0
        self._lock, self._begun, self._window = threading.Lock(), 0.0, (0, 0)
        host = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                left = 0.0 if self.path in ("/robots.txt", "/favicon.ico") else host.admit()
                page = f"<!DOCTYPE html><html><head><title>{self.path}</title></head><body>{ARTICLE}</body></html>".encode()
                body = b"<h1>Too many requests</h1>" if left else page
                self.send_response(429 if left else 404 if self.path == "/robots.txt" else 200)
                if left:
                    self.send_header("Retry-After", str(int(left) + 1))
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/"

    def admit(self) -> float:
        """Returns 0, or the seconds until the next window."""
        with self._lock:
            now = time.monotonic()
            self._begun = self._begun or now
            number = int((now - self._begun) / WINDOW)
            count = self._window[1] + 1 if self._window[0] == number else 1
            self._window = (number, count)
            if count <= ALLOWED:
                self.delivered += 1
                return 0.0
            self.refused += 1
            return self._begun + (number + 1) * WINDOW - now

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def excerpt(guide: str, language: str, marker: str) -> str:
    """Returns the program of a guide that contains `marker`."""
    blocks = re.findall(rf"```{language}\n(.*?)```", (GUIDES / guide).read_text(), re.DOTALL)
    return next(block for block in blocks if marker in block)


def changed(code: str, *changes: tuple[str, str]) -> str:
    for before, after in changes:
        if before not in code:
            sys.exit(f"the guide has no {before!r} any more")
        code = code.replace(before, after)
    return code


def rust(url: str, folder: pathlib.Path) -> list[str]:
    code = excerpt("rust.md", "rust,no_run", "tokio::main")
    code = changed(code, ("https://example.org/", url), ("0..10", f"0..{PAGES}"))
    (folder / "src").mkdir()
    (folder / "src" / "main.rs").write_text(code)
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "guide"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n[dependencies]\n'
        f'fetchwise = {{ path = "{ROOT}", features = ["journal", "detect"] }}\n'
        'reqwest = { version = "0.13", default-features = false }\n'
        'tokio = { version = "1", features = ["macros", "rt-multi-thread", "time"] }\nurl = "2"\n'
    )
    # The same versions as in the workspace.
    shutil.copy(ROOT / "Cargo.lock", folder / "Cargo.lock")
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")) / "examples"
    build = ["cargo", "build", "--manifest-path", str(folder / "Cargo.toml"), "--target-dir", str(target)]
    subprocess.run(build, check=True)
    return [str(target / "debug" / "guide")]


def python(url: str, folder: pathlib.Path) -> list[str]:
    code = excerpt("python.md", "python", "asyncio.run")
    all_pages = f'async def every() -> None:\n    await asyncio.gather(*(main(f"{url}{{n}}") for n in range({PAGES})))\n\n'
    code = changed(code, ('asyncio.run(main("https://example.org/"))', all_pages + "asyncio.run(every())"))
    (folder / "program.py").write_text(code)
    return [sys.executable, "program.py"]


def scrapy(url: str, folder: pathlib.Path) -> list[str]:
    settings = excerpt("python.md", "python", "fetchwise.scrapy.Addon")
    (folder / "settings.py").write_text(settings)
    (folder / "program.py").write_text(
        "import scrapy\nfrom scrapy.crawler import CrawlerProcess\nfrom scrapy.settings import Settings\n\n\n"
        "class Spider(scrapy.Spider):\n    name = 'guide'\n"
        f"    start_urls = [f'{url}{{n}}' for n in range({PAGES})]\n\n    def parse(self, response):\n        pass\n\n\n"
        "settings = Settings({'LOG_LEVEL': 'ERROR', 'TELNETCONSOLE_ENABLED': False})\nsettings.setmodule('settings')\n"
        "process = CrawlerProcess(settings)\nprocess.crawl(Spider)\nprocess.start()\n"
    )
    return [sys.executable, "program.py"]


def main() -> None:
    made = {"rust": rust, "python": python, "scrapy": scrapy}
    for name in sys.argv[1:]:
        host = Host()
        with tempfile.TemporaryDirectory() as folder:
            command = made[name](host.url, pathlib.Path(folder))
            begun = time.monotonic()
            done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=900, check=False)
            took = time.monotonic() - begun
        host.close()
        print(f"{name}: {host.delivered} pages delivered, {host.refused} refused, {took:.0f} s", flush=True)
        if done.returncode != 0:
            sys.exit(f"{name} failed: {done.stdout}{done.stderr}")
        if host.refused > REFUSED_MOST or host.delivered < PAGES * 9 // 10:
            sys.exit(f"{name}: this is more than {REFUSED_MOST} refused, or pages are missing: {done.stdout[-2000:]}")


if __name__ == "__main__":
    main()
