"""Crawlee for Python on the town: its adaptive crawler, as its guide has it."""

import asyncio
import glob
import json
import logging
import os
import threading

from crawlee.crawlers import AdaptivePlaywrightCrawler, AdaptivePlaywrightCrawlingContext

from hand_in import Pages, links


def hand_in_all() -> None:
    """All that the crawler has kept, from where it keeps it."""
    pages = Pages()
    for path in glob.glob(os.path.join(os.environ["CRAWLEE_STORAGE_DIR"], "datasets", "*", "[0-9]*.json")):
        with open(path) as file:
            try:
                item = json.load(file)
            except ValueError:
                # It was being written.
                continue
        pages.add(item["url"], item["text"])
    pages.close()


def time_is_up() -> None:
    """Now and then it waits on when all is done, and does not end when it is told to; what it has by then counts."""
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
