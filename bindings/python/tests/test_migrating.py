"""Scrapy before and after, with the settings of docs/guides/migrating.md."""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import pytest
from conftest import HERE
from origin import Origin
from test_scrapy import CHROMIUM, CRAWL

pytest.importorskip("scrapy_playwright")

PAGE = HERE.parent.parent.parent / "docs" / "guides" / "migrating.md"
SECTIONS = ("static", "app", "block")
EACH = 3


def blocks() -> dict[str, str]:
    """Returns the blocks of Python on the page, by the comment at the beginning of each."""
    found = re.findall(r"```python\n# ([^\n]*)\n(.*?)```", PAGE.read_text(), re.S)
    assert [name for name, _ in found] == ["settings.py, before", "middlewares.py", "settings.py, after"]
    return dict(found)


def crawl(which: str, folder: pathlib.Path) -> tuple[Origin, list[Any]]:
    text = blocks()
    (folder / "middlewares.py").write_text(text["middlewares.py"])
    settings: dict[str, Any] = {}
    exec(text[f"settings.py, {which}"], {}, settings)
    # Settings of the test itself.
    settings |= {
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        # The site is on this machine.
        "FETCHWISE_PACE": False,
        "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": CHROMIUM, "args": ["--no-sandbox"]},
    }
    with Origin() as origin:
        paths = [f"/{section}/{n}" for n in range(EACH) for section in SECTIONS]
        given = json.dumps([origin.url, settings, paths])
        environment = os.environ | {"PYTHONPATH": str(folder)}
        command = [sys.executable, "-c", CRAWL, given]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False, cwd=folder, env=environment)
        assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
        seen, _ = json.loads(done.stdout.splitlines()[-1])
        return origin, seen


def test_scrapy_with_rotating_middlewares(tmp_path: pathlib.Path) -> None:
    before, _ = crawl("before", tmp_path)
    # Each blocked page is requested five times, and no application is rendered.
    assert before.requests("block") == 5 * EACH and before.renders() == 0
    after, seen = crawl("after", tmp_path)
    delivered = {url.removeprefix(after.url) for url, status, meta in seen if status == 200 and meta["end"] == "delivered"}
    assert len(delivered) == 3 * EACH, seen
    assert after.requests("block", "plain") <= EACH
    assert after.requests() < before.requests()
    assert (tmp_path / "fetchwise-data").is_dir()
