"""A fetcher for the program ``fetchwise``: Playwright behind the JSON lines of ``docs/guides/command-fetcher.md``.

In a config of the program::

    [[fetcher]]
    name = "playwright"
    command = ["python3", "-m", "fetchwise.playwright_fetcher", "--executable-path", "/usr/bin/chromium"]

It opens one browser, and a separate context for each request. patchright has the same API as Playwright; camoufox is a
modified Firefox, which ``python -m camoufox fetch`` installs.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import functools
import importlib
import json
import os
import pathlib
import signal
import sys
import tempfile
from collections.abc import AsyncIterator
from typing import Any

from . import error_kind

# Longer bodies are passed in a file: text in a line costs memory on both sides.
INLINE_MAX = 1 << 20
# The time for which a page may continue to load resources, in milliseconds.
QUIET_MS = 1500.0


class Failure(Exception):
    """A request without a response, and fetchwise's name for the reason."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m fetchwise.playwright_fetcher", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--engine", choices=["playwright", "patchright", "camoufox"], default="playwright")
    browser = parser.add_mutually_exclusive_group()
    browser.add_argument("--channel", help="use an installed browser: chrome, msedge, chromium")
    browser.add_argument("--executable-path", help="the browser's program")
    parser.add_argument("--no-sandbox", action="store_true", help="for containers and for root, where Chromium needs it")
    return parser.parse_args(argv)


@contextlib.asynccontextmanager
async def browser_of(options: argparse.Namespace) -> AsyncIterator[Any]:
    """Opens the browser that the options name."""
    launch: dict[str, Any] = {"headless": True, "handle_sigint": False, "handle_sigterm": False}
    if options.executable_path:
        launch["executable_path"] = options.executable_path
    if options.engine == "camoufox":
        camoufox = importlib.import_module("camoufox.async_api")
        async with camoufox.AsyncCamoufox(headless=True) as browser:
            yield browser
        return
    if options.channel:
        launch["channel"] = options.channel
    if options.no_sandbox:
        launch["args"] = ["--no-sandbox"]
    engine = importlib.import_module(f"{options.engine}.async_api")
    async with engine.async_playwright() as playwright:
        browser = await playwright.chromium.launch(**launch)
        try:
            yield browser
        finally:
            await browser.close()


async def fetch(browser: Any, request: dict[str, Any]) -> dict[str, Any]:
    """Fetches one page and returns the fields of the response line."""
    deadline_ms = float(request["deadline_ms"])
    context = await browser.new_context()
    try:
        page = await context.new_page()
        response = await page.goto(request["url"], timeout=deadline_ms, wait_until="load")
        if response is None:
            raise Failure("network_error", "the browser has no response")
        with contextlib.suppress(Exception):
            await page.wait_for_load_state("networkidle", timeout=min(QUIET_MS, deadline_ms))
        hops, request_of = 0, response.request.redirected_from
        while request_of is not None:
            hops, request_of = hops + 1, request_of.redirected_from
        if hops > request["max_redirects"]:
            raise Failure("redirect_loop", f"{hops} redirects")
        headers = [(h["name"], h["value"]) for h in await response.headers_array()]
        kind = next((value for name, value in headers if name.lower() == "content-type"), "")
        is_page = not kind or "html" in kind or "xml" in kind
        if is_page:
            body = (await page.content()).encode("utf-8", "replace")
            # The document's text is UTF-8 now, whatever its encoding was.
            headers = [(n, "text/html; charset=utf-8" if n.lower() == "content-type" else v) for n, v in headers]
        else:
            # The browser has only its viewer's page. This requests the file again, with the same cookies.
            file = await context.request.get(page.url, timeout=deadline_ms, max_redirects=0)
            body = await file.body()
        if len(body) > request["max_body"]:
            raise Failure("too_large", f"{len(body)} bytes")
        if sum(len(name) + len(value) for name, value in headers) > request["max_headers"]:
            raise Failure("too_large", "the headers are too long")
        lines = [(name, line) for name, value in headers for line in value.split("\n")]
        return {"status": response.status, "headers": lines, "final_url": page.url.split("#")[0], **place(body, is_page)}
    finally:
        with contextlib.suppress(Exception):
            await context.close()


def place(body: bytes, is_text: bool) -> dict[str, str]:
    """Returns the body as fields of the line if it is short, else in a file."""
    scratch = os.environ.get("FETCHWISE_SCRATCH")
    if len(body) > INLINE_MAX and scratch:
        with tempfile.NamedTemporaryFile(dir=scratch, delete=False) as file:
            file.write(body)
        return {"body_path": pathlib.Path(file.name).name}
    if is_text:
        return {"body": body.decode("utf-8", "replace")}
    return {"body_base64": base64.b64encode(body).decode("ascii")}


def say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


async def answer(browser: Any, request: dict[str, Any]) -> None:
    """Responds to one request, in any case."""
    number = request["id"]
    try:
        say({"id": number, **await asyncio.wait_for(fetch(browser, request), request["deadline_ms"] / 1000)})
    except Failure as failure:
        say({"id": number, "error": {"kind": failure.kind, "message": str(failure)}})
    except asyncio.CancelledError:
        raise
    except Exception as error:
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        say({"id": number, "error": {"kind": error_kind(error).value, "message": message[:500]}})


async def lines() -> AsyncIterator[bytes]:
    """Yields the lines of standard input."""
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.buffer.readline):
        yield line


async def serve(options: argparse.Namespace) -> None:
    """Responds to requests until standard input ends."""
    under_way: dict[int, asyncio.Task[None]] = {}

    def forget(number: int, _: asyncio.Task[None]) -> None:
        under_way.pop(number, None)

    async with browser_of(options) as browser:
        async for line in lines():
            try:
                request = json.loads(line)
            except ValueError:
                print("invalid request: the line is not JSON", file=sys.stderr)
                continue
            if "cancel" in request:
                task = under_way.get(request["cancel"])
                if task is not None:
                    task.cancel()
                continue
            task = asyncio.ensure_future(answer(browser, request))
            under_way[request["id"]] = task
            task.add_done_callback(functools.partial(forget, request["id"]))
        for task in list(under_way.values()):
            task.cancel()
        await asyncio.gather(*under_way.values(), return_exceptions=True)


def main() -> None:
    """Runs the command."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    asyncio.run(serve(arguments()))


if __name__ == "__main__":
    main()
