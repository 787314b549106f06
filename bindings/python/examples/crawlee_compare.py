"""Crawlee's adaptive crawler with its own predictor and with fetchwise's: prints what each costs, counted by the site.

    python examples/crawlee_compare.py --chromium /usr/bin/chromium

Each crawls the same pages twice, in two processes: from nothing, and after a restart. The site is on loopback: half articles, half an
application. A page is wrong when the request handler found no title on it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import pathlib
import subprocess
import sys
import tempfile

PAGES = 30


def crawlees_own():
    """Returns Crawlee's predictor, which stores its evidence in its key-value store."""
    from crawlee.crawlers._adaptive_playwright._rendering_type_predictor import DefaultRenderingTypePredictor

    return DefaultRenderingTypePredictor(persistence_enabled=True)


async def crawl(ours: bool, origin: str, folder: str, chromium: str, round_: int) -> tuple[int, int]:
    """Runs one crawl and returns the number of right and of wrong pages."""
    os.environ["CRAWLEE_STORAGE_DIR"] = f"{folder}/crawlee"
    os.environ["CRAWLEE_PURGE_ON_START"] = "0"
    from crawlee.crawlers import AdaptivePlaywrightCrawler, AdaptivePlaywrightCrawlingContext

    import fetchwise.crawlee

    right: set[str] = set()
    wrong: set[str] = set()
    predictor = fetchwise.crawlee.Predictor(data_dir=f"{folder}/fetchwise") if ours else crawlees_own()
    crawler = AdaptivePlaywrightCrawler.with_beautifulsoup_static_parser(
        rendering_type_predictor=predictor,
        playwright_crawler_specific_kwargs={
            "headless": True,
            "browser_launch_options": {"executable_path": chromium, "args": ["--no-sandbox"]},
        },
        max_request_retries=1,
        configure_logging=False,
    )
    if isinstance(predictor, fetchwise.crawlee.Predictor):
        predictor.attach(crawler)

    @crawler.router.default_handler
    async def handler(context: AdaptivePlaywrightCrawlingContext) -> None:
        try:
            title = await context.query_selector_one("h1.title", timeout=__import__("datetime").timedelta(seconds=3))
        except Exception:
            title = None
        await context.push_data({"url": context.request.url, "title": title.get_text() if title else None})

    paths = [f"/{kind}/{round_}-{n}" for n in range(PAGES // 2) for kind in ("static", "app")]
    await crawler.run([origin + path for path in paths])
    data = await crawler.get_data()
    for item in data.items:
        if f"/{round_}-" in item["url"]:
            (right if item["title"] else wrong).add(item["url"])
    if isinstance(predictor, fetchwise.crawlee.Predictor):
        predictor.close()
    return len(right), len(wrong - right)


def measure(ours: bool, folder: str, chromium: str, round_: int) -> dict[str, int]:
    sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "tests"))
    from origin import Origin

    with Origin() as origin:
        command = [sys.executable, __file__, "--crawl", str(int(ours)), origin.url, folder, chromium, str(round_)]
        done = subprocess.run(command, check=True, timeout=400, stdout=subprocess.PIPE, text=True)
        right, wrong = json.loads(done.stdout.splitlines()[-1])
        return {
            "requests": origin.requests(),
            "renders": origin.renders(),
            "twice": origin.requests() - PAGES,
            "pages": right,
            "wrong": wrong,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser's program")
    parser.add_argument("--json", action="store_true", help="print an object for programs")
    parser.add_argument("--crawl", nargs=5, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.crawl:
        ours, origin, folder, chromium, round_ = args.crawl
        print(json.dumps(asyncio.run(crawl(ours == "1", origin, folder, chromium, int(round_)))))
        return
    rows = {}
    for name, ours in (("Crawlee's predictor", False), ("fetchwise's", True)):
        with tempfile.TemporaryDirectory() as folder:
            rows[f"{name}, from nothing"] = measure(ours, folder, args.chromium, 1)
            rows[f"{name}, after a restart"] = measure(ours, folder, args.chromium, 2)
    if args.json:
        print(json.dumps(rows))
        return
    print("| predictor | requests | renders | fetched twice | pages | wrong pages |\n|---|---|---|---|---|---|")
    for name, row in rows.items():
        print(f"| {name} | {row['requests']} | {row['renders']} | {row['twice']} | {row['pages']} of {PAGES} | {row['wrong']} |")


if __name__ == "__main__":
    main()
