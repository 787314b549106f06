"""Pauses for frameworks that own the loop, such as Scrapy: whether a URL may be requested now, by which fetcher, and
with which result.

Each admitted URL is a visit, kept until ``ended`` receives its result. Links, hosts, trials, paces and single flight
are the library's.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ._fetching import ready
from ._fetchwise import Decision, End, FetchResult, FetchStep, Selector, Verdict, Visit, WaitStep


@dataclass(frozen=True)
class Admission:
    """The answer to whether a URL may be requested now. Truthy if it may.

    ``fetcher`` is the fetcher to use, ``decision`` the reason, and ``deadline`` its time limit in seconds. If the URL
    has to wait, ``seconds`` is the time and ``reason`` the cause. ``end`` is set when the visit has ended: delivered,
    failed or paused.

    >>> fetchwise.Pauses(fetchwise.Selector()).admit("https://example.org/").fetcher
    'direct_access'
    """

    fetcher: str | None = None
    url: str | None = None
    deadline: float | None = None
    decision: Decision | None = None
    seconds: float = 0.0
    reason: str | None = None
    end: End | None = None

    def __bool__(self) -> bool:
        return self.fetcher is not None


class Pauses:
    """Link states, host pauses and paces for a framework that owns the loop.

    Call ``admit(key)`` before each request and ``ended(key, outcome)`` after it. ``ended`` records the attempt, and
    returns the next fetcher or the end of the URL. Call ``forget(key)`` when the request will not be made. At most
    ``limit`` URLs are kept; beyond that the oldest are forgotten, which releases what they hold.

    >>> selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    >>> pauses = fetchwise.Pauses(selector)
    >>> pauses.admit("https://example.org/app").fetcher
    'direct_access'
    >>> pauses.ended("https://example.org/app", fetchwise.ErrorKind.WRONG_TOOL).fetcher
    'playwright'
    >>> pauses.ended("https://example.org/app", "content").end.kind
    'delivered'
    """

    def __init__(self, selector: Selector, *, fetchers: list[str] | None = None, limit: int = 100_000) -> None:
        self.selector = selector
        self._fetchers = fetchers
        self._limit = limit
        self._visits: OrderedDict[str, tuple[Visit, FetchStep | WaitStep | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._visits)

    def admit(self, url: str, *, key: str | None = None, prefer: str | None = None, **knowing: Any) -> Admission:
        """Returns whether ``url`` may be requested now. Returns the same admission again while its request is in
        progress.
        """
        key = key or url
        visit, step = self._visits.get(key, (None, None))
        if visit is None:
            visit = self.selector.visit(url, fetchers=self._fetchers, prefer=prefer, **knowing)
        if isinstance(step, FetchStep):
            return self._admission(step)
        return self._next(key, visit)

    async def admitted(
        self, url: str, *, key: str | None = None, prefer: str | None = None, patience: float = 60.0, **knowing: Any
    ) -> Admission:
        """Does the same as ``admit``, and waits for probes, trials and paces, for at most ``patience`` seconds at a
        time.
        """
        until = time.monotonic() + patience
        while True:
            admission = self.admit(url, key=key, prefer=prefer, **knowing)
            left = until - time.monotonic()
            if admission or admission.end is not None or left <= 0:
                return admission
            _, step = self._visits[key or url]
            assert isinstance(step, WaitStep)
            await ready(step, at_most=left)

    def ended(
        self,
        url: str,
        outcome: FetchResult | Verdict | str | BaseException,
        retry_after: float | None = None,
        *,
        key: str | None = None,
        duration: float | None = None,
    ) -> Admission:
        """Records the result of the request and returns the next admission. ``retry_after`` and ``duration`` are in
        seconds.
        """
        key = key or url
        known = self._visits.get(key)
        visit, step = known or (None, None)
        if visit is None or not isinstance(step, FetchStep):
            raise KeyError(f"no admitted request for {key}")
        if retry_after is not None and isinstance(outcome, str):
            outcome = FetchResult(outcome, retry_after=retry_after)
        visit.report(step, outcome, duration=duration)
        return self._next(key, visit)

    def forget(self, url: str, *, key: str | None = None) -> None:
        """Releases everything that the URL holds, because its request will not be made."""
        known = self._visits.pop(key or url, None)
        if known is not None:
            known[0].close()

    def host_pause(self, url: str) -> float:
        """Returns the seconds for which the host of ``url`` is still paused; 0 when it is not."""
        until = self.selector.host_pause(url)
        return 0.0 if until is None else max(0.0, until - time.time())

    def _next(self, key: str, visit: Visit) -> Admission:
        step = visit.next()
        if step is None:
            self._visits.pop(key, None)
            return Admission(end=visit.end)
        self._visits[key] = (visit, step)
        while len(self._visits) > self._limit:
            oldest, (other, _) = next(iter(self._visits.items()))
            other.close()
            del self._visits[oldest]
        return self._admission(step)

    @staticmethod
    def _admission(step: FetchStep | WaitStep) -> Admission:
        if isinstance(step, WaitStep):
            return Admission(seconds=step.seconds, reason=step.reason)
        return Admission(fetcher=step.fetcher, url=step.url, deadline=step.deadline, decision=step.decision)


Pauses.__module__ = Admission.__module__ = "fetchwise"
