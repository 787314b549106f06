"""Scrapy with AutoThrottle, set up by `scrapy startproject`, on a list of links. Writes its pages as JSON lines."""

import json
import os
import threading

import scrapy
from scrapy.crawler import CrawlerProcess


class ListSpider(scrapy.Spider):
    name = "list"
    pages = open(os.environ["PAGES"], "w")  # noqa: SIM115

    async def start(self):
        with open(os.environ["LINKS"]) as links:
            for url in links.read().split():
                yield scrapy.Request(url)

    def parse(self, response):
        first = response.meta.get("redirect_urls", [response.request.url])[0]
        self.pages.write(json.dumps({"url": first, "text": response.text if hasattr(response, "text") else ""}) + "\n")
        self.pages.flush()


late = threading.Timer(int(os.environ["SECONDS"]), lambda: os._exit(0))
late.daemon = True
late.start()
process = CrawlerProcess({"ROBOTSTXT_OBEY": True, "AUTOTHROTTLE_ENABLED": True, "LOG_LEVEL": "ERROR", "TELNETCONSOLE_ENABLED": False})
process.crawl(ListSpider)
process.start()
late.cancel()
