"""Many threads, one selector: all sums are exact, and long work does not wait for the interpreter's lock."""

from __future__ import annotations

import pathlib
import threading

import fetchwise

THREADS = 8
EACH = 100_000


def run(work: object, threads: int = THREADS) -> None:
    failed: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            work(number)  # type: ignore[operator]
        except BaseException as error:
            failed.append(error)

    all_threads = [threading.Thread(target=guarded, args=(number,)) for number in range(threads)]
    for thread in all_threads:
        thread.start()
    for thread in all_threads:
        thread.join()
    assert failed == []


def test_records_add_up(tmp_path: pathlib.Path) -> None:
    with fetchwise.Journal(tmp_path) as journal:
        selector = fetchwise.Selector(journal=journal)
        ended = fetchwise.Attempt("https://example.org/a", "playwright").delivered()
        failed = fetchwise.Attempt("https://example.org/a", "playwright").failed("server_error")

        def work(number: int) -> None:
            attempt = ended if number % 2 else failed
            for _ in range(EACH):
                selector.record(attempt)
                if number == 0:
                    selector.select("https://example.org/b")

        run(work)
        masses = selector.masses("domain", "example.org", "playwright", at=ended.attempted_at)
        assert masses["attempts"] == THREADS * EACH
        assert abs(masses["total"] - THREADS * EACH) < 1e-3 * THREADS * EACH
        assert abs(masses["success"] * 2 - masses["total"]) < 1e-6 * masses["total"]
        journal.settled()
        assert journal.metrics()["appended"] == THREADS * EACH
        assert journal.verify() == {"sound": True, "attempts": THREADS * EACH}


def test_bodies_are_read_in_parallel() -> None:
    detector = fetchwise.Detector()
    page = b"<html><body><p>" + b"The ferry leaves at noon. " * 4000 + b"</p></body></html>"
    block_page = b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>"

    def work(number: int) -> None:
        for _ in range(200):
            assert detector.classify(page).is_content
            assert detector.classify(block_page, status=403).vendor == "cloudflare"
            if number == 0:
                assert detector.explain(block_page)["matches"]

    run(work)


def test_a_waiting_step_lets_other_threads_run() -> None:
    """Two visits of a cold host: one probes, the other waits for its verdict in another thread."""
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    first = selector.visit("https://example.org/1")
    probe = first.next()
    assert probe is not None and probe.is_probe
    followed: list[str] = []

    def follow(_: int) -> None:
        second = selector.visit("https://example.org/2")
        while step := second.next():
            if step.wait:
                followed.append(str(step.reason))
                step.block(20)
            else:
                assert step.decision is not None
                followed.append(step.decision.rule)
                second.report(step, "content")

    thread = threading.Thread(target=follow, args=(0,))
    thread.start()
    while not followed:
        pass
    first.report(probe, "content")
    thread.join(timeout=10)
    assert not thread.is_alive(), "the verdict has not woken it"
    assert followed == ["probe", "shared_probe"]
