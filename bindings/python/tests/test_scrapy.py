"""Scrapy with the middleware and the handler, a real browser, and a site that counts."""

from __future__ import annotations

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
from typing import Any

import pytest
from conftest import HERE
from origin import Origin

pytest.importorskip("scrapy")

CHROMIUM = os.environ.get("FETCHWISE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"
EXAMPLE = HERE.parent / "examples" / "scrapy_spider.py"

CRAWL = """
import json, sys, scrapy
from scrapy.crawler import CrawlerProcess
origin, settings, paths = json.loads(sys.argv[1])
seen, stats = [], {}
class Spider(scrapy.Spider):
    name = "spider"
    async def start(self):
        for path in paths:
            yield scrapy.Request(origin + path, callback=self.parse, errback=self.failed)
    def parse(self, response):
        seen.append([response.url, response.status, response.meta.get("fetchwise")])
    def failed(self, failure):
        seen.append([failure.request.url, repr(failure.value), failure.request.meta.get("fetchwise")])
    def closed(self, reason):
        stats.update(self.crawler.stats.get_stats())
process = CrawlerProcess(settings)
process.crawl(Spider)
process.start()
print(json.dumps([seen, {k: v for k, v in stats.items() if "fetchwise" in k or "retry" in k}], default=str))
"""


def crawl(origin: Origin, *paths: str, **settings: Any) -> tuple[list[Any], dict[str, Any]]:
    settings = {
        "LOG_LEVEL": "ERROR",
        "TELNETCONSOLE_ENABLED": False,
        "ROBOTSTXT_OBEY": True,
        "CONCURRENT_REQUESTS_PER_DOMAIN": 1,
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "FETCHWISE_FETCHERS": {"direct_access": None},
        "ADDONS": {"fetchwise.scrapy.Addon": 500},
        **settings,
    }
    given = json.dumps([origin.url, settings, paths])
    done = subprocess.run(
        [sys.executable, "-c", CRAWL, given], capture_output=True, text=True, timeout=120, check=False, cwd=HERE
    )
    assert done.returncode == 0 and "Traceback" not in done.stderr, done.stderr
    seen, stats = json.loads(done.stdout.splitlines()[-1])
    return seen, stats


def test_before_and_after() -> None:
    done = subprocess.run(
        [sys.executable, str(EXAMPLE), "--json", "--chromium", CHROMIUM],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    plain, browser, first, again = json.loads(done.stdout).values()
    assert plain["pages"] == 20 and plain["blocked"] == 20
    assert browser["pages"] == 60 and browser["renders"] == 60
    for row in (first, again):
        # Every page comes, at two thirds of the renders: no article went to the browser.
        assert row["pages"] == 60 and row["renders"] <= 44
        # The challenge was not requested again and again.
        assert row["blocked"] <= 8
    # The evidence survives the process.
    assert again["requests"] < first["requests"]
    assert again["blocked"] <= first["blocked"] and again["blocked"] <= 3


def test_failures_are_attributed_once() -> None:
    with Origin() as origin:
        seen, stats = crawl(origin, "/gone/1", "/error/1", "/moved", "/static/1")
        ends = {url.removeprefix(origin.url): meta and meta["end"] for url, _, meta in seen}
        assert ends == {"/gone/1": "failed", "/error/1": "delivered", "/static/moved": "delivered", "/static/1": "delivered"}
        # The visit retries once, Scrapy's own middleware never.
        assert origin.requests("error") == 2 and origin.requests("gone") == 1
        assert not [name for name in stats if name.startswith("retry/")]
        assert stats["fetchwise/end/delivered"] == 3 and stats["fetchwise/end/failed"] == 1


def test_a_rate_limit_holds_the_host() -> None:
    with Origin() as origin:
        seen, stats = crawl(origin, *(f"/limited/{n}" for n in range(10)))
        assert len(seen) == 10
        # The first response asks for a pause of an hour, and no further request follows.
        assert origin.requests("limited") == 1
        assert stats["fetchwise/dropped/host"] == 9 and stats["fetchwise/blocked"] == 1


def test_pages_without_content_reach_callbacks_only_on_request() -> None:
    with Origin() as origin:
        seen, _ = crawl(origin, "/app/1")
        assert "IgnoreRequest" in seen[0][1] and seen[0][2]["outcome"] == "shell"
        seen, _ = crawl(origin, "/app/1", FETCHWISE_PASS_FAILURES=True)
        assert seen[0][1] == 200 and seen[0][2]["error_type"] == "wrong_tool"


def test_a_pace_is_kept_and_curl_is_a_handler(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("curl_cffi")
    with Origin() as origin:
        seen, stats = crawl(
            origin,
            *(f"/static/{n}" for n in range(6)),
            FETCHWISE_DATA_DIR=str(tmp_path),
            FETCHWISE_FETCHERS={"stealth_http": "fetchwise.scrapy.CurlHandler"},
            CONCURRENT_REQUESTS_PER_DOMAIN=8,
        )
        assert [meta["fetcher"] for _, _, meta in seen] == ["stealth_http"] * 6
        assert stats["fetchwise/requests/stealth_http"] == 6 and origin.requests("static") == 6


def test_an_addon_is_the_two_settings_and_leaves_those_of_a_project() -> None:
    from scrapy.settings import Settings

    from fetchwise.scrapy import Addon, Middleware

    settings = Settings()
    Addon().update_settings(settings)
    assert settings.getdict("DOWNLOADER_MIDDLEWARES") == {Middleware: 585}
    handlers = {"http": "fetchwise.scrapy.Handler", "https": "fetchwise.scrapy.Handler"}
    assert settings.getdict("DOWNLOAD_HANDLERS") == handlers
    # Other handlers of a project stay, and so does the place that it gave the middleware.
    other = {"https": "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler", "ftp": "mine.Handler"}
    settings = Settings({"DOWNLOADER_MIDDLEWARES": {"fetchwise.scrapy.Middleware": 570}, "DOWNLOAD_HANDLERS": other})
    Addon().update_settings(settings)
    assert settings.getdict("DOWNLOADER_MIDDLEWARES") == {"fetchwise.scrapy.Middleware": 570}
    assert settings.getdict("DOWNLOAD_HANDLERS") == {**handlers, "ftp": "mine.Handler"}


def test_a_project_may_set_middleware_and_handler_itself() -> None:
    handlers = {"http": "fetchwise.scrapy.Handler", "https": "fetchwise.scrapy.Handler"}
    with Origin() as origin:
        settings = {"ADDONS": {}, "DOWNLOADER_MIDDLEWARES": {"fetchwise.scrapy.Middleware": 585}, "DOWNLOAD_HANDLERS": handlers}
        seen, stats = crawl(origin, "/static/1", **settings)
        assert seen[0][2]["end"] == "delivered" and stats["fetchwise/end/delivered"] == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_process_group_ends_a_crawl_with_open_requests(number: int) -> None:
    """The browser never gets an answer, and the signal ends it along with Scrapy. A host that asked for patience holds
    other requests.
    """
    pytest.importorskip("scrapy_playwright")
    with Origin() as origin:
        settings = {
            "LOG_LEVEL": "INFO",
            "TELNETCONSOLE_ENABLED": False,
            "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
            "ADDONS": {"fetchwise.scrapy.Addon": 500},
            "FETCHWISE_CLOSE_TIMEOUT": 0.5,
            # Without limits of their own, no request of a browser ends by itself.
            "PLAYWRIGHT_DEFAULT_NAVIGATION_TIMEOUT": 0,
            "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": CHROMIUM, "args": ["--no-sandbox"]},
        }
        slow = origin.url.replace("127.0.0.1", "localhost")
        paths = [f"{origin.url}/hanging/{n}" for n in range(4)] + [f"{slow}/patience/{n}" for n in range(4)]
        given = json.dumps(["", settings, paths])
        process = subprocess.Popen(
            [sys.executable, "-c", CRAWL, given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=HERE, start_new_session=True
        )
        try:
            while not (origin.requests("hanging", "browser") and origin.requests("patience")):
                assert process.poll() is None, process.communicate()
                time.sleep(0.05)
            os.killpg(process.pid, number)
            out, err = process.communicate(timeout=120)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
        assert process.returncode == 0 and "Spider closed (shutdown)" in err, err
        _, stats = json.loads(out.splitlines()[-1])
        # Nobody is to blame for a request that was given up: nothing is recorded.
        assert "fetchwise/requests/playwright" not in stats, stats
