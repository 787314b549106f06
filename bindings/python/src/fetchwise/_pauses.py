"""Pauses for frameworks that own the loop, such as Scrapy: may this URL be asked for now, by whom, and what came of it?

Each URL that was let in is a visit under the hood, kept until ``ended`` has heard how it went on: links, hosts, trials, paces and single
flight are the library's.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from ._fetching import ready
from ._fetchwise import FetchResult, Decision, End, Selector, Step, Verdict, Visit


@dataclass(frozen=True)
class Admission:
    """Whether a URL may be asked for now. Truthy when it may.

    ``fetcher`` is who shall do it, ``decision`` why, ``deadline`` how many seconds it has. When it has to wait, ``seconds`` says how long,
    and ``reason`` what for; ``end`` is there when the visit has ended, delivered, failed or paused.

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

    ``admit(key)`` before each request, ``ended(key, outcome)`` after it: the attempt is recorded then, and the answer says whether another
    fetcher is to be asked, or how the URL ended. ``forget(key)`` when it will not be asked for after all. At most ``limit`` URLs are
    kept; beyond that the oldest are forgotten, which gives back what they held.

    >>> pauses = fetchwise.Pauses(fetchwise.Selector(fetchers=["direct_access", "playwright"]))
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
        self._visits: OrderedDict[str, tuple[Visit, Step | None]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._visits)

    def admit(self, url: str, *, key: str | None = None, prefer: str | None = None, **knowing: Any) -> Admission:
        """Whether ``url`` may be asked for now. Asked again while its request is out, it says the same again."""
        key = key or url
        visit, step = self._visits.get(key, (None, None))
        if visit is None:
            visit = self.selector.visit(url, fetchers=self._fetchers, prefer=prefer, **knowing)
        if step is not None and not step.wait:
            return self._admission(step)
        return self._next(key, visit)

    async def admitted(
        self, url: str, *, key: str | None = None, prefer: str | None = None, patience: float = 60.0, **knowing: Any
    ) -> Admission:
        """As ``admit``, waiting for probes, trials and paces: for ``patience`` seconds at a time at most."""
        until = time.monotonic() + patience
        while True:
            admission = self.admit(url, key=key, prefer=prefer, **knowing)
            left = until - time.monotonic()
            if admission or admission.end is not None or left <= 0:
                return admission
            _, step = self._visits[key or url]
            assert step is not None
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
        """What came of the request: it is recorded, and the next admission is returned. ``retry_after`` and ``duration`` are seconds."""
        key = key or url
        known = self._visits.get(key)
        if known is None or known[1] is None or known[1].wait:
            raise KeyError(f"no request for {key} was admitted")
        visit, step = known
        assert step is not None
        if retry_after is not None and isinstance(outcome, str):
            outcome = FetchResult(outcome, retry_after=retry_after)
        visit.report(step, outcome, duration=duration)
        return self._next(key, visit)

    def forget(self, url: str, *, key: str | None = None) -> None:
        """The URL will not be asked for after all: what it held is given back."""
        known = self._visits.pop(key or url, None)
        if known is not None:
            known[0].close()

    def host_pause(self, url: str) -> float:
        """How many seconds the host of ``url`` is paused for; 0 when it is not."""
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
    def _admission(step: Step) -> Admission:
        if step.wait:
            return Admission(seconds=step.seconds, reason=step.reason)
        return Admission(fetcher=step.fetcher, url=step.url, deadline=step.deadline, decision=step.decision)


Pauses.__module__ = Admission.__module__ = "fetchwise"
