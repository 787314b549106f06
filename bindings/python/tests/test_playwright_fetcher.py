"""The fetcher with the JSON lines of docs/guides/command-fetcher.md: alone, and driven by the program."""

from __future__ import annotations

import base64
import importlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import types
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import HERE, Program
from origin import Origin

pytest.importorskip("playwright")

CHROMIUM = os.environ.get("FETCHWISE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
COMMAND = [sys.executable, "-m", "fetchwise.playwright_fetcher", "--executable-path", CHROMIUM, "--no-sandbox"]


class Child:
    def __init__(self, folder: pathlib.Path) -> None:
        environment = dict(os.environ, FETCHWISE_SCRATCH=str(folder))
        self.folder = folder
        self.process = subprocess.Popen(
            COMMAND, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment, cwd=HERE
        )

    def send(self, **fields: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"v": 1, **fields}) + "\n")
        self.process.stdin.flush()

    def ask(self, number: int, url: str, **fields: Any) -> None:
        limits = {"deadline_ms": 20_000, "max_body": 1 << 28, "max_headers": 65_536, "max_redirects": 10}
        self.send(id=number, url=url, **{**limits, **fields})

    def answer(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())


@pytest.fixture
def child(tmp_path: pathlib.Path) -> Iterator[Child]:
    child = Child(tmp_path)
    yield child
    assert child.process.stdin is not None and child.process.stdout is not None
    child.process.stdin.close()
    # The fetcher ends when its input ends.
    assert child.process.wait(timeout=20) == 0
    child.process.stdout.close()


def test_pages_errors_and_limits(child: Child) -> None:
    with Origin() as origin:
        child.ask(1, f"{origin.url}/app/1")
        page = child.answer()
        assert page["id"] == 1 and page["status"] == 200 and "Title of /app/1" in page["body"]
        child.ask(2, f"{origin.url}/gone/1")
        assert child.answer()["status"] == 404
        child.ask(3, "http://127.0.0.1:1/")
        assert child.answer()["error"]["kind"] == "network_error"
        child.ask(4, "http://no-such-name.invalid/")
        assert child.answer()["error"]["kind"] == "dns_error"
        child.ask(5, f"{origin.url}/static/1", max_body=100)
        assert child.answer()["error"]["kind"] == "too_large"
        child.ask(6, f"{origin.url}/moved", max_redirects=0)
        assert child.answer()["error"]["kind"] == "redirect_loop"
        child.ask(7, f"{origin.url}/moved")
        moved = child.answer()
        assert moved["final_url"] == f"{origin.url}/static/moved"
        # The result for a file is the file, not the browser's page for it.
        child.ask(8, f"{origin.url}/file.pdf")
        assert (child.folder / child.answer()["body_path"]).read_bytes().startswith(b"%PDF")
        # Several requests at a time, in any order.
        for number in range(10, 16):
            child.ask(number, f"{origin.url}/static/{number}")
        assert {child.answer()["id"] for _ in range(6)} == set(range(10, 16))


def test_a_cancelled_request_gets_no_response(child: Child) -> None:
    with Origin() as origin:
        child.ask(1, f"{origin.url}/app/1")
        child.send(cancel=1)
        child.ask(2, f"{origin.url}/static/2")
        numbers = [child.answer()["id"]]
        # The first request may be done before its cancellation is read.
        assert numbers == [2] or [numbers[0], child.answer()["id"]] == [1, 2]


def test_the_program_drives_it(program: Program, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "fetchwise.toml"
    argv = json.dumps(COMMAND)
    config.write_text(
        f"[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'playwright'\ncommand = {argv}\n"
        "class = 'rendering'\n[network]\nallow = ['127.0.0.0/8']\n"
    )
    with Origin() as origin:
        urls = [f"{origin.url}/app/{n}" for n in range(4)]
        out = program.run(
            "--config", str(config), "--json", "fetch", "--out", str(tmp_path / "pages"), *urls, data=tmp_path / "data"
        )
        lines = [json.loads(line) for line in out.splitlines()]
        by = {line["url"].removeprefix(origin.url): line.get("fetcher") for line in lines if "url" in line}
        assert all(by[f"/app/{n}"] == "playwright" for n in range(4)), out
        assert origin.requests("app", "browser") == 4
        # The result of the plain request on the first page was enough.
        assert 1 <= origin.requests("app", "plain") <= 2
        pages = [pathlib.Path(line["file"]).read_text() for line in lines if line.get("file")]
        assert len(pages) == 4 and all("Title of /app/" in page for page in pages), out


def test_camoufox_with_a_stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Firefox is in no registry. The test checks that its API is used as documented."""
    import asyncio

    from fetchwise import playwright_fetcher

    used: dict[str, Any] = {}

    class AsyncCamoufox:
        def __init__(self, **options: Any) -> None:
            used.update(options)

        async def __aenter__(self) -> str:
            return "browser"

        async def __aexit__(self, *_: object) -> None:
            used["closed"] = True

    stand_in = types.ModuleType("camoufox.async_api")
    stand_in.AsyncCamoufox = AsyncCamoufox  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "camoufox", types.ModuleType("camoufox"))
    monkeypatch.setitem(sys.modules, "camoufox.async_api", stand_in)

    async def main() -> None:
        async with playwright_fetcher.browser_of(playwright_fetcher.arguments(["--engine", "camoufox"])) as browser:
            assert browser == "browser"

    asyncio.run(main())
    assert used == {"headless": True, "closed": True}


def test_bodies_follow_the_protocol(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = importlib.import_module("fetchwise.playwright_fetcher").place
    assert place("ä".encode(), True) == {"body": "ä"}
    assert base64.b64decode(place(b"\xff\x00", False)["body_base64"]) == b"\xff\x00"
    monkeypatch.setenv("FETCHWISE_SCRATCH", str(tmp_path))
    large = b"x" * (2 << 20)
    assert (tmp_path / place(large, True)["body_path"]).read_bytes() == large
