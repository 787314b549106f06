"""Crawlee for Python on the testbed: its adaptive crawler, set up as in its guide."""

import asyncio
import glob
import json
import logging
import os
import threading

from crawlee.crawlers import AdaptivePlaywrightCrawler, AdaptivePlaywrightCrawlingContext

from hand_in import Pages, links


def hand_in_all() -> None:
    """Submits all pages from the crawler's storage."""
    pages = Pages()
    for path in glob.glob(os.path.join(os.environ["CRAWLEE_STORAGE_DIR"], "datasets", "*", "[0-9]*.json")):
        with open(path) as file:
            try:
                item = json.load(file)
            except ValueError:
                # The file is incomplete.
                continue
        pages.add(item["url"], item["text"])
    pages.close()


def time_is_up() -> None:
    """Sometimes it waits after all is done, and does not stop on request; the pages so far count."""
    hand_in_all()
    os._exit(0)


async def main() -> None:
    crawler = AdaptivePlaywrightCrawler.with_beautifulsoup_static_parser(
        playwright_crawler_specific_kwargs={
            "browser_launch_options": {"executable_path": os.environ["CHROMIUM"], "args": ["--no-sandbox"]},
        },
        configure_logging=False,
    )

    @crawler.router.default_handler
    async def handle(context: AdaptivePlaywrightCrawlingContext) -> None:
        await context.push_data({"url": context.request.url, "text": str(context.parsed_content)})

    logging.disable(logging.WARNING)
    await crawler.run(links())


late = threading.Timer(int(os.environ["SECONDS"]), time_is_up)
late.daemon = True
late.start()
asyncio.run(main())
late.cancel()
hand_in_all()
