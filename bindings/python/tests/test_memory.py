"""A million calls leave nothing behind: no reference, no Python memory, no memory of Rust."""

from __future__ import annotations

import gc
import pathlib
import sys
import tracemalloc

import fetchwise

CALLS = 1_000_000
PAGE = b"<html><body><p>" + b"The ferry leaves at noon. " * 20 + b"</p></body></html>"


def resident() -> int:
    """Returns the resident memory of this process, in bytes."""
    pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def test_a_million_calls_leave_nothing_behind() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    detector = fetchwise.Detector()
    url = "https://example.org/" + "a" * 20
    name = selector.fetchers[0].name
    attempt = fetchwise.Attempt(url, "playwright").delivered()
    headers = {"Content-Type": "text/html"}

    def calls(count: int) -> None:
        for n in range(count):
            decision = selector.select(url, hint="empty")
            assert decision.fetcher is not None
            if n % 4 == 0:
                selector.record(attempt)
                verdict = detector.classify(PAGE, url=url, headers=headers)
                made = fetchwise.Attempt.from_response(decision, url=url, verdict=verdict, duration_ms=3)
                selector.record(made)
            if n % 16 == 0:
                visit = selector.visit(url)
                step = visit.next()
                if step is not None and not step.wait:
                    visit.report(step, "content")
                visit.next()
                try:
                    selector.select("nonsense")
                except fetchwise.UrlError:
                    pass

    calls(CALLS // 10)
    gc.collect()
    fetcher = selector.select(url).fetcher
    counts = [sys.getrefcount(thing) for thing in (url, PAGE, name, fetcher, attempt, headers, None)][:-1]
    before = resident()
    tracemalloc.start()
    calls(CALLS)
    gc.collect()
    current, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    again = [sys.getrefcount(thing) for thing in (url, PAGE, name, fetcher, attempt, headers, None)][:-1]
    assert again == counts
    assert current < 200_000, f"{current} bytes of Python's are left"
    # One byte per call would be a megabyte.
    assert resident() - before < 24 << 20, f"{(resident() - before) >> 20} MiB more"
