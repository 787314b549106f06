"""Two hundred tasks with one selector: pages by httpx, aiohttp or curl_cffi, as fetchwise chooses.

    python examples/fetch_loop.py https://example.org/ https://example.org/about ...
"""

from __future__ import annotations

import argparse
import asyncio
from collections import Counter
from typing import Any

import aiohttp
import curl_cffi.requests
import httpx

import fetchwise

TASKS = 200


class Crawl:
    """Fetchers of three kinds behind one selector."""

    def __init__(self, data_dir: str | None, pace: bool) -> None:
        stealth = fetchwise.Fetcher("stealth_http", kind="plain", cost=2)
        plain = [fetchwise.Fetcher(name, kind="plain") for name in ("direct_access", "aiohttp")]
        self.selector = fetchwise.Selector(fetchers=[*plain, stealth], journal=data_dir, pace=pace)
        self.ends: Counter[str] = Counter()

    async def run(self, urls: list[str]) -> None:
        queue: asyncio.Queue[str] = asyncio.Queue()
        for url in urls:
            queue.put_nowait(url)
        limits = httpx.Limits(max_connections=TASKS)
        async with (
            httpx.AsyncClient(follow_redirects=True, limits=limits) as by_httpx,
            aiohttp.ClientSession() as by_aiohttp,
            curl_cffi.requests.AsyncSession(impersonate="chrome", max_clients=TASKS) as by_curl,
        ):

            async def direct(url: str, step: fetchwise.FetchStep) -> Any:
                return await by_httpx.get(url, timeout=step.deadline)

            async def other(url: str, step: fetchwise.FetchStep) -> Any:
                async with by_aiohttp.get(url) as response:
                    return response.status, response.headers, await response.read()

            async def stealth(url: str, step: fetchwise.FetchStep) -> Any:
                return await by_curl.get(url, timeout=step.deadline)

            fetchers = {"direct_access": direct, "aiohttp": other, "stealth_http": stealth}

            async def work() -> None:
                while not queue.empty():
                    url = queue.get_nowait()
                    async with self.selector.fetch(url, fetchers) as visited:
                        self.ends[f"{visited.end.kind} by {visited.end.fetcher}"] += 1

            await asyncio.gather(*(work() for _ in range(TASKS)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--data-dir", help="where what is learned is kept")
    parser.add_argument("--no-pace", action="store_true", help="at full speed, for sites of your own")
    args = parser.parse_args()
    crawl = Crawl(args.data_dir, pace=not args.no_pace)
    asyncio.run(crawl.run(args.urls))
    crawl.selector.close()
    for end, count in crawl.ends.most_common():
        print(f"{count:6} {end}")


if __name__ == "__main__":
    main()
