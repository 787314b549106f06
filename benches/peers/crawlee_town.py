"""Crawlee for Python on the town: its adaptive crawler, as its guide has it."""

import asyncio
import contextlib
import logging
import os

from crawlee.crawlers import AdaptivePlaywrightCrawler, AdaptivePlaywrightCrawlingContext

from hand_in import Pages, links


async def main() -> None:
    pages = Pages()
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
    # Now and then it waits on when all is done; what it has by then counts.
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(crawler.run(links()), int(os.environ["SECONDS"]))
    data = await crawler.get_data()
    for item in data.items:
        pages.add(item["url"], item["text"])
    pages.close()


asyncio.run(main())
