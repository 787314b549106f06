"""The loop that drives a visit with coroutines.

Must not know: what to do next; the visit decides.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any

from ._fetchwise import Detector, End, FetchResult, FetchStep, Selector, Visit, WaitStep

Fetch = Callable[[str, FetchStep], Awaitable[Any]]

_DETECTORS: list[Detector] = []


def _shared_detector() -> Detector:
    if not _DETECTORS:
        _DETECTORS.append(Detector())
    return _DETECTORS[0]


async def ready(step: WaitStep, *, at_most: float | None = None) -> None:
    """Returns when the event that the step waits for happens, or when the step is due, and after at most ``at_most``
    seconds.
    """
    seconds = step.seconds if at_most is None else min(step.seconds, at_most)
    notified = step._notified()
    try:
        await asyncio.wait_for(notified, seconds)
    except asyncio.TimeoutError:
        pass


def parts(response: Any) -> tuple[int, Any, Any]:
    """Returns the status, headers and decoded body of a client's response: a triple, or an object of httpx, curl_cffi,
    requests or Scrapy.
    """
    if isinstance(response, tuple):
        status, headers, body = response
        return status, headers, body
    status = getattr(response, "status_code", None)
    if status is None:
        status = response.status
    body = getattr(response, "content", None)
    if not isinstance(body, (bytes, bytearray, memoryview)):
        body = response.body
    return status, response.headers, body


def final_url(response: Any) -> str | None:
    """Returns the URL after redirects that a client's response names, if it names one."""
    try:
        url = getattr(response, "url", None)
    except RuntimeError:
        # httpx knows no URL of a response that was made without a request.
        return None
    return None if url is None else str(url)


class Fetching:
    """A visit driven by coroutine functions: ``async with selector.fetch(url, fetchers) as visited``.

    ``fetchers`` maps names to ``async def fetch(url, step)``, which returns a response (of httpx or curl_cffi, or
    ``(status, headers, body)``) or raises. Entering the context makes the requests. Afterwards ``end`` is the end of
    the visit, and ``response`` the return value of the last fetcher. Cancelling or leaving the context releases
    everything that the visit holds.

    >>> async def get(url, step):
    ...     return 200, {"content-type": "text/html"}, b"<p>" + b"The ferry leaves at noon. " * 20
    >>> async def main():
    ...     selector = fetchwise.Selector(fetchers=["direct_access"])
    ...     async with selector.fetch("https://example.org/", {"direct_access": get}) as visited:
    ...         return visited.end.kind, visited.response[0]
    >>> import asyncio; asyncio.run(main())
    ('delivered', 200)
    """

    def __init__(
        self,
        selector: Selector,
        url: str,
        fetchers: Mapping[str, Fetch],
        *,
        detector: Detector | None = None,
        prefer: str | None = None,
        link: str | None = None,
        heuristics: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    ) -> None:
        self.visit: Visit = selector.visit(
            url, fetchers=list(fetchers), prefer=prefer, link=link, heuristics=heuristics
        )
        self.response: Any = None
        self.answer: FetchResult | None = None
        self._fetchers = fetchers
        self._detector = detector or _shared_detector()

    @property
    def end(self) -> End:
        """The end of the visit."""
        end = self.visit.end
        if end is None:
            raise RuntimeError("the visit has not ended: enter it with async with")
        return end

    async def __aenter__(self) -> Fetching:
        try:
            while step := self.visit.next():
                if isinstance(step, WaitStep):
                    await ready(step)
                else:
                    await self._fetch(step)
        except BaseException:
            self.visit.close()
            raise
        return self

    async def _fetch(self, step: FetchStep) -> None:
        started = time.monotonic()
        self.response = None
        try:
            self.response = await asyncio.wait_for(self._fetchers[step.fetcher](step.url, step), step.deadline)
        except asyncio.CancelledError:
            raise
        except Exception as error:
            self.answer = None
            self.visit.report(step, error, duration=time.monotonic() - started)
            return
        status, headers, body = parts(self.response)
        self.answer = self._detector.judge(
            status, headers, body, url=step.url, final_url=final_url(self.response)
        )
        self.visit.report(step, self.answer, duration=time.monotonic() - started)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.visit.close()


Fetching.__module__ = "fetchwise"
