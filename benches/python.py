"""The overhead of calls between Python and Rust, compared with Rust's own time for the same work, and with Crawlee's
predictor.

    maturin build --release --features bench --manifest-path python/Cargo.toml --out python/target/bench
    pip install python/target/bench/*.whl
    python benches/python.py [--json]

Only the wheel of the feature `bench` has the Rust loops for the comparison. Each figure is the best of several rounds,
because other programs on the machine only add time.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

import fetchwise
from fetchwise import _fetchwise as rust

ROUNDS = 7
URL = "https://www.example.org/articles/2026/11/the-ferry.html?ref=front"


def best(work: Callable[[], float], least: bool = True) -> float:
    figures = [work() for _ in range(ROUNDS)]
    return min(figures) if least else max(figures)


def each(call: Callable[[], Any], times: int) -> float:
    """Returns the nanoseconds of one call."""

    def once() -> float:
        begun = time.perf_counter_ns()
        for _ in range(times):
            call()
        return (time.perf_counter_ns() - begun) / times

    empty = best(lambda: _empty(times))
    return best(once) - empty


def _empty(times: int) -> float:
    call = int
    begun = time.perf_counter_ns()
    for _ in range(times):
        pass
    del call
    return (time.perf_counter_ns() - begun) / times


def learned() -> fetchwise.Selector:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright", "playwright_stealth"])
    for n in range(2000):
        attempt = fetchwise.Attempt(f"https://www.example{n % 50}.org/articles/{n}.html", "playwright")
        selector.record(attempt.delivered() if n % 7 else attempt.failed("blocked_403"))
    for n in range(20):
        selector.record(fetchwise.Attempt(f"https://www.example.org/articles/{n}.html", "direct_access").delivered())
    return selector


def page(size: int) -> bytes:
    """Returns an article of this size in bytes, half of it markup."""
    line = b'<div class="row"><p id="p%d">The ferry leaves at <a href="/noon">noon</a> and comes back in the evening.</p></div>\n'
    body, n = b"<!DOCTYPE html><html><head><title>The ferry</title></head><body>", 0
    while len(body) < size:
        body, n = body + line % n, n + 1
    return body


def classify(detector: fetchwise.Detector, body: bytes, times: int, threads: int) -> tuple[float, float]:
    """Returns bytes per second, in Rust and through Python. Their rounds alternate, so a busy machine slows both."""
    headers = [("content-type", "text/html")]

    def work() -> None:
        for _ in range(times):
            detector.classify(body, headers=headers)

    def once() -> float:
        all_threads = [threading.Thread(target=work) for _ in range(threads)]
        begun = time.perf_counter()
        for thread in all_threads:
            thread.start()
        for thread in all_threads:
            thread.join()
        return len(body) * times * threads / (time.perf_counter() - begun)

    of_rust, ours = 0.0, 0.0
    for _ in range(3 * ROUNDS):
        of_rust = max(of_rust, rust._bench_classify(detector, body, times, threads))
        ours = max(ours, once())
    return of_rust, ours


def import_ms() -> float:
    """Returns the milliseconds that the import adds to an interpreter's start."""
    code = "import time; begun = time.perf_counter(); import fetchwise; print((time.perf_counter() - begun) * 1000)"

    def once() -> float:
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        return float(done.stdout)

    return best(once)


def crawlee_ns() -> float | None:
    """Returns the nanoseconds of one prediction of Crawlee's predictor, with the same number of known pages of the
    host.
    """
    try:
        import asyncio

        from crawlee import Request
        from crawlee.crawlers._adaptive_playwright._rendering_type_predictor import DefaultRenderingTypePredictor
    except ImportError:
        return None
    predictor = DefaultRenderingTypePredictor()
    asyncio.run(predictor.initialize())
    for n in range(20):
        predictor.store_result(Request.from_url(f"https://www.example.org/articles/{n}.html"), "static")
    request = Request.from_url(URL)
    return each(lambda: predictor.predict(request), 200)


def wheel_mb() -> float | None:
    wheels = sorted((pathlib.Path(__file__).parent.parent / "bindings" / "python" / "dist").glob("*.whl"))
    return wheels[-1].stat().st_size / 1e6 if wheels else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if not hasattr(rust, "_bench_select"):
        sys.exit("this wheel has no loops to compare with: build it with --features bench, as the head of this file says")
    selector, detector = learned(), fetchwise.Detector()
    attempt = fetchwise.Attempt(URL, "direct_access").delivered()
    rows: list[tuple[str, float | None, str, str, bool | None]] = []

    def row(name: str, value: float | None, unit: str, target: str = "", met: bool | None = None) -> None:
        rows.append((name, value, unit, target, met))

    select_rust = best(lambda: rust._bench_select(selector, URL, 100_000))
    select = each(lambda: selector.select(URL), 100_000)
    row("select in Rust", select_rust, "ns")
    row("select(str)", select, "ns")
    row("select beyond Rust's", select - select_rust, "ns", "at most 1500", select - select_rust <= 1500)
    row("record in Rust", best(lambda: rust._bench_record(selector, attempt, 50_000)), "ns")
    record = each(lambda: selector.record(fetchwise.Attempt(URL, "direct_access", duration_ms=3).delivered()), 50_000)
    row("record, constructor included", record, "ns", "at most 3000", record <= 3000)
    # Enough pages per thread, so that starting the thread does not dominate.
    for size, times in ((20_000, 2000), (1 << 20, 60)):
        body = page(size)
        for threads in (1, 8):
            of_rust, ours = classify(detector, body, times, threads)
            name = f"classify {size} bytes, {threads} thread{'s' * (threads > 1)}"
            row(f"{name}, Rust", of_rust / 1e9, "GB/s")
            row(f"{name}, Python", ours / 1e9, "GB/s", "at least 95 % of Rust's", ours >= 0.95 * of_rust)
            row(f"{name}, share", 100 * ours / of_rust, "%")
    import_time = import_ms()
    row("import fetchwise", import_time, "ms", "under 30", import_time < 30)
    wheel = wheel_mb()
    row("the wheel", wheel, "MB", "under 6", None if wheel is None else wheel < 6)
    row("one prediction of Crawlee's predictor", crawlee_ns(), "ns")
    if args.json:
        print(json.dumps({name: value for name, value, *_ in rows}))
        return
    print(f"Python {sys.version.split()[0]}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}\n")
    for name, value, unit, target, met in rows:
        verdict = "" if met is None else ("met" if met else "MISSED")
        shown = "not at hand" if value is None else f"{value:.1f}" if value < 1000 else f"{value:.0f}"
        print(f"{name:44} {shown:>12} {unit:5} {target:24} {verdict}")


if __name__ == "__main__":
    main()
