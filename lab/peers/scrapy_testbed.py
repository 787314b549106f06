"""Scrapy on the testbed, set up by `scrapy startproject`: `plain`, or `playwright` for every page."""

import os
import sys
import threading

import scrapy
from scrapy.crawler import CrawlerProcess

from hand_in import Pages, links

WITH_BROWSER = sys.argv[1:] == ["playwright"]


class TestbedSpider(scrapy.Spider):
    name = "testbed"
    pages = Pages()

    async def start(self):
        for url in links():
            yield scrapy.Request(url, meta={"playwright": True} if WITH_BROWSER else {})

    def parse(self, response):
        first = response.meta.get("redirect_urls", [response.request.url])[0]
        self.pages.add(first, response.text if hasattr(response, "text") else "")

    def closed(self, reason):
        self.pages.close()


settings = {"ROBOTSTXT_OBEY": True, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False}
if WITH_BROWSER:
    handler = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
    settings |= {
        "DOWNLOAD_HANDLERS": {"http": handler, "https": handler},
        "TWISTED_REACTOR": "twisted.internet.asyncioreactor.AsyncioSelectorReactor",
        "PLAYWRIGHT_LAUNCH_OPTIONS": {"executable_path": os.environ["CHROMIUM"], "args": ["--no-sandbox"]},
    }


def time_is_up() -> None:
    """Ends a crawl that waits for pages of the browser which never come. The pages so far count."""
    TestbedSpider.pages.close()
    os._exit(0)


late = threading.Timer(int(os.environ["SECONDS"]), time_is_up)
late.daemon = True
late.start()
process = CrawlerProcess(settings)
process.crawl(TestbedSpider)
process.start()
late.cancel()
