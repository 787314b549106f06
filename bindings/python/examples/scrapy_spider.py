"""A Scrapy spider, before and after fetchwise: prints what each costs, counted by the site.

    python examples/scrapy_spider.py --chromium /usr/bin/chromium

The same spider runs three times: with Scrapy's own downloader, with a browser for every page, and with fetchwise, first
without and then with its evidence. The site is on loopback: articles, an application, and a section behind a challenge.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import scrapy
from scrapy.crawler import CrawlerProcess

PAGES = 20
COMMON = {
    "LOG_LEVEL": "ERROR",
    "ROBOTSTXT_OBEY": False,
    "TELNETCONSOLE_ENABLED": False,
    "CONCURRENT_REQUESTS_PER_DOMAIN": 4,
    "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
    "RETRY_TIMES": 1,
}
FETCHWISE = {
    "ADDONS": {"fetchwise.scrapy.Addon": 500},
    # The site is on this machine, and the other crawls keep no pace either.
    "FETCHWISE_PACE": False,
}


class Titles(scrapy.Spider):
    """Yields the title of every page."""

    name = "titles"

    def __init__(self, origin: str, browser: bool = False) -> None:
        super().__init__()
        self.origin, self.browser = origin, browser

    async def start(self):
        for number in range(PAGES):
            for section in ("static", "app", "block"):
                meta = {"playwright": True} if self.browser else {}
                yield scrapy.Request(f"{self.origin}/{section}/{number}", meta=meta)

    def parse(self, response):
        title = response.css("h1.title::text").get()
        if title:
            yield {"url": response.url, "title": title}


def crawl(how: str, origin: str, data: str, chromium: str, out: str) -> None:
    """Runs one crawl in a separate process, because Scrapy's reactor starts only once."""
    settings = dict(COMMON, FEEDS={out: {"format": "jsonlines"}})
    settings["PLAYWRIGHT_LAUNCH_OPTIONS"] = {"executable_path": chromium, "args": ["--no-sandbox"]}
    if how == "browser":
        handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
        settings["DOWNLOAD_HANDLERS"] = {"http": handler, "https": handler}
    if how == "fetchwise":
        settings |= FETCHWISE | {"FETCHWISE_DATA_DIR": data}
    process = CrawlerProcess(settings)
    process.crawl(Titles, origin=origin, browser=how == "browser")
    process.start()


def measure(how: str, data: str, chromium: str) -> dict[str, int]:
    """Returns the cost of a crawl, as counted by the site."""
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
    from origin import Origin

    with Origin() as origin, tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/pages.jsonl"
        command = [sys.executable, __file__, "--crawl", how, origin.url, data, chromium, out]
        subprocess.run(command, check=True, timeout=300)
        found = pathlib.Path(out)
        pages = [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []
        return {
            "requests": origin.requests(),
            "renders": origin.renders(),
            "blocked": origin.requests("block", "plain"),
            "pages": len({page["url"] for page in pages}),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser's program")
    parser.add_argument("--json", action="store_true", help="print an object for programs")
    parser.add_argument("--crawl", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.crawl:
        crawl(*args.crawl)
        return
    with tempfile.TemporaryDirectory() as data:
        rows = {"Scrapy alone": measure("plain", data, args.chromium)}
        rows["a browser for all"] = measure("browser", data, args.chromium)
        rows["fetchwise, from nothing"] = measure("fetchwise", data, args.chromium)
        rows["fetchwise, again"] = measure("fetchwise", data, args.chromium)
    if args.json:
        print(json.dumps(rows))
        return
    print("| spider | requests | renders | blocked | pages |\n|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['requests']} | {row['renders']} | {row['blocked']} | {row['pages']} of {3 * PAGES} |")


if __name__ == "__main__":
    main()
