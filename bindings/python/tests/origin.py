"""A web site on loopback that counts requests by path and client.

Paths: ``/static/N`` articles, ``/app/N`` a page that a script fills, ``/block/N`` an article for browsers and a challenge for others,
``/limited/N`` 429 with Retry-After, ``/error/N`` 503 that comes once, ``/gone/N`` 404, ``/hanging/N`` a page
that a script fills, and no response for browsers, ``/patience/N`` 429 with Retry-After of 100 s, ``/file.pdf``, ``/moved`` a redirect, ``/links`` a page of links.
"""

from __future__ import annotations

import threading
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

ARTICLE = "<p>" + "The ferry leaves at noon and comes back in the evening, when the wind allows it. " * 8 + "</p>"
SHELL = """<!DOCTYPE html><html><head><title>App</title></head><body><div id="root"></div>
<script src="/app.js?PATH"></script></body></html>"""
SCRIPT = 'document.getElementById("root").innerHTML = "<h1 class=title>Title of " + location.pathname + "</h1>" + ' + repr(ARTICLE)
BLOCK_PAGE = "<html><head><title>Just a moment...</title></head><body><script>window._cf_chl_opt={}</script></body></html>"


class Origin:
    """Serves until it is closed. ``count`` holds (kind of path, "browser" or "plain") for every requested page."""

    def __init__(self, apps: bool = True) -> None:
        self.count: Counter[tuple[str, str]] = Counter()
        self.asked: list[str] = []
        self._lock = threading.Lock()
        self._failed: set[str] = set()
        self.links: list[str] = []
        self._closing = threading.Event()
        origin = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                origin.serve(self)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Origin:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def requests(self, kind: str | None = None, by: str | None = None) -> int:
        """Returns the number of requested pages, without scripts, icons and robots.txt."""
        return sum(
            n
            for (path, who), n in self.count.items()
            if path not in ("app.js", "seen.js", "favicon.ico", "robots.txt")
            and (kind is None or path == kind)
            and (by is None or who == by)
        )

    def renders(self) -> int:
        """Returns the number of pages whose scripts were requested: by a browser, whatever it calls itself."""
        return sum(n for (path, _), n in self.count.items() if path in ("app.js", "seen.js"))

    def serve(self, handler: Any) -> None:
        path = handler.path.split("?")[0]
        kind = path.strip("/").split("/")[0] or "index"
        # Only browsers send the purpose of a request.
        who = "browser" if handler.headers.get("Sec-Fetch-Mode") or "Headless" in handler.headers.get("User-Agent", "") else "plain"
        with self._lock:
            self.count[kind, who] += 1
            self.asked.append(f"{who} {path}")
            failed_before = path in self._failed
            self._failed.add(path)
        status, content_type, extra = 200, "text/html; charset=utf-8", []
        title = f"<h1 class=title>Title of {path}</h1>"
        seen = f"<script src=/seen.js?{path}></script>"
        page = f"<!DOCTYPE html><html><head><title>{path}</title></head><body>{title}{ARTICLE}{seen}</body></html>"
        if kind == "hanging" and who == "browser":
            self._closing.wait()
            return
        if kind in ("app", "hanging"):
            page = SHELL.replace("PATH", path)
        elif kind == "app.js":
            page, content_type = SCRIPT, "text/javascript"
        elif kind == "seen.js":
            page, content_type = "", "text/javascript"
        elif kind == "block" and who == "plain":
            status, page = 403, BLOCK_PAGE
        elif kind == "limited":
            status, page, extra = 429, "<h1>Too many requests</h1>", [("Retry-After", "3600")]
        elif kind == "patience":
            status, page, extra = 429, "<h1>Too many requests</h1>", [("Retry-After", "100")]
        elif kind == "error" and not failed_before:
            status, page = 503, "<h1>Service unavailable</h1>"
        elif kind in ("gone", "favicon.ico", "robots.txt"):
            status, page = 404, "<h1>Not found</h1>"
        elif kind == "moved":
            status, page, extra = 302, "", [("Location", "/static/moved")]
        elif kind == "links":
            page = page.replace("</body>", "".join(f"<a href={link}>.</a>" for link in self.links) + "</body>")
        body = page.encode()
        if kind == "file.pdf":
            content_type, body = "application/pdf", b"%PDF-1.4\n" + b"0" * 2_000_000
        handler.send_response(status)
        for name, value in [("Content-Type", content_type), ("Content-Length", str(len(body))), ("Cache-Control", "no-store"), *extra]:
            handler.send_header(name, value)
        handler.end_headers()
        handler.wfile.write(body)
