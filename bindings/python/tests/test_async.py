"""asyncio: waits are awaited, and a cancelled visit releases everything."""

from __future__ import annotations

import asyncio
import pathlib
from typing import Any

import pytest

import fetchwise

PAGE = b"<html><body><p>" + b"The ferry leaves at noon. " * 20 + b"</p></body></html>"
SHELL = b"<html><body><div id=root></div><script src=/app.js></script></body></html>"
HTML = {"Content-Type": "text/html"}


def run(work: Any) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_acknowledgements_are_awaited(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        with fetchwise.Journal(tmp_path) as journal:
            selector = fetchwise.Selector(journal=journal)
            for n in range(200):
                selector.record(fetchwise.Attempt(f"https://example.org/{n}", "playwright").delivered())
                if n % 20 == 0:
                    await journal.settled_async()
                    assert journal.metrics()["written_seq"] >= n + 1
            await asyncio.gather(*(journal.flush_async() for _ in range(50)))
            metrics = journal.metrics()
            assert metrics["durable_seq"] >= 200 and metrics["queued_records"] == 0
            taken = await journal.snapshot_async()
            assert taken["covers_seq"] == 200

    run(main())


def test_cancelled_flushes_lose_nothing(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        loop_errors: list[Any] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: loop_errors.append(context))
        with fetchwise.Journal(tmp_path) as journal:
            selector = fetchwise.Selector(journal=journal)
            for n in range(500):
                selector.record(fetchwise.Attempt(f"https://example.org/{n}", "playwright").delivered())
                future = journal.flush_async()
                future.cancel()
                if n % 50 == 0:
                    await asyncio.sleep(0.002)
                    with pytest.raises(asyncio.CancelledError):
                        await future
            await journal.flush_async()
            assert journal.verify()["attempts"] == 500
        await asyncio.sleep(0.01)
        assert loop_errors == []

    run(main())


def test_a_closed_loop_is_not_an_error(tmp_path: pathlib.Path) -> None:
    with fetchwise.Journal(tmp_path) as journal:
        selector = fetchwise.Selector(journal=journal)

        async def leave() -> None:
            selector.record(fetchwise.Attempt("https://example.org/", "playwright").delivered())
            journal.flush_async()

        for _ in range(50):
            run(leave())
        journal.flush()
        assert journal.metrics()["durable_seq"] >= 50


def test_a_closed_journal_raises(tmp_path: pathlib.Path) -> None:
    async def main() -> None:
        journal = fetchwise.Journal(tmp_path)
        journal.close()
        with pytest.raises(fetchwise.LogError, match="closed"):
            await journal.flush_async()

    run(main())
    with pytest.raises(RuntimeError, match="event loop"):
        fetchwise.Journal(tmp_path).flush_async()


def test_a_fetch_is_driven_to_its_end() -> None:
    asked: list[str] = []

    async def direct(url: str, step: fetchwise.FetchStep) -> Any:
        asked.append("direct")
        return 200, HTML, SHELL

    async def browser(url: str, step: fetchwise.FetchStep) -> Any:
        asked.append("browser")
        return 200, HTML, PAGE

    async def main() -> None:
        selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
        async with selector.fetch(
            "https://example.org/app", {"direct_access": direct, "playwright": browser}
        ) as visited:
            assert visited.end.is_delivered and visited.end.fetcher == "playwright" and visited.end.requests == 2
            assert visited.response[2] is PAGE
        # The next fetch uses the evidence of the first.
        async with selector.fetch(
            "https://example.org/app2", {"direct_access": direct, "playwright": browser}
        ) as visited:
            assert visited.end.requests == 1

    run(main())
    assert asked == ["direct", "browser", "browser"]


def test_exceptions_are_outcomes() -> None:
    async def broken(url: str, step: fetchwise.FetchStep) -> Any:
        raise ConnectionResetError("reset")

    async def slow(url: str, step: fetchwise.FetchStep) -> Any:
        await asyncio.sleep(0)
        raise TimeoutError

    async def main() -> None:
        selector = fetchwise.Selector(fetchers=["direct_access"], pace=False)
        async with selector.fetch("https://example.org/", {"direct_access": broken}) as visited:
            assert visited.end.error_type == "network_error" and visited.end.requests == 2
        async with selector.fetch("https://example.net/", {"direct_access": slow}) as visited:
            assert visited.end.error_type == "timeout"

    run(main())


def test_cancelling_gives_the_probe_to_the_next() -> None:
    """The first visit of a cold host probes, and the others wait for it. If it is cancelled, one of them probes instead
    at once.
    """
    under_way = 0

    async def main() -> None:
        nonlocal under_way
        selector = fetchwise.Selector(fetchers=["direct_access"], pace=False)
        started, leave = asyncio.Event(), asyncio.Event()

        async def hanging(url: str, step: fetchwise.FetchStep) -> Any:
            started.set()
            await leave.wait()

        async def answering(url: str, step: fetchwise.FetchStep) -> Any:
            nonlocal under_way
            under_way += 1
            assert under_way == 1 or not step.is_probe
            await asyncio.sleep(0.01)
            under_way -= 1
            return 200, HTML, PAGE

        async def visit(number: int, fetch: Any) -> Any:
            async with selector.fetch(f"https://example.org/{number}", {"direct_access": fetch}) as visited:
                return visited.end

        first = asyncio.create_task(visit(0, hanging))
        await started.wait()
        followers = [asyncio.create_task(visit(n, answering)) for n in range(1, 20)]
        await asyncio.sleep(0.05)
        assert not any(follower.done() for follower in followers), "they wait for the probe"
        first.cancel()
        # One after the other they would wait for three seconds each.
        ends = await asyncio.wait_for(asyncio.gather(*followers), 40)
        assert all(end.is_delivered for end in ends)
        with pytest.raises(asyncio.CancelledError):
            await first
        attempts = selector.masses("domain", "example.org", "direct_access")["attempts"]
        assert attempts == 19, "what was cancelled is not recorded"

    run(main())
