"""fetchwise learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned.

The selector, the detector and the log of the Rust library, in this process. A whole crawl of one URL::

    import fetchwise

    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], journal="fetchwise-data")
    detector = fetchwise.Detector()
    visit = selector.visit("https://example.org/")
    while step := visit.next():
        if isinstance(step, fetchwise.WaitStep):
            step.block()
            continue
        try:
            response = clients[step.fetcher].get(step.url, timeout=step.deadline)
        except Exception as error:
            visit.report(step, error)
        else:
            visit.report(step, detector.judge(response.status_code, response.headers, response.content))
    print(visit.end)

A visit keeps a pace: a new host gets two requests per second, then as many as its responses allow. ``pace=False`` turns
it off.

The integrations ``fetchwise.scrapy``, ``fetchwise.crawlee``, ``fetchwise.httpx`` and ``fetchwise.playwright_fetcher``
import their frameworks on import.
"""

from __future__ import annotations

from ._errors import ConfigError, Error, ForkedError, LockedError, LogError, UrlError
from ._fetchwise import (
    Attempt,
    Decision,
    Detector,
    End,
    Explanation,
    Fetcher,
    FetchResult,
    FetchStep,
    GiveUp,
    Journal,
    NoViableFetcher,
    Paused,
    Selector,
    Signer,
    Step,
    Take,
    Verdict,
    Visit,
    WaitStep,
    __version__,
    export_attempts,
    import_attempts,
)

# The same as typing's constant. Importing typing would take half of the time of this import.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fetching import Fetching
    from ._outcomes import ErrorKind, error_kind
    from ._pauses import Admission, Pauses

__all__ = [
    "Admission",
    "Attempt",
    "ConfigError",
    "Decision",
    "Detector",
    "End",
    "Error",
    "ErrorKind",
    "Explanation",
    "Fetcher",
    "FetchResult",
    "FetchStep",
    "Fetching",
    "ForkedError",
    "GiveUp",
    "Journal",
    "LockedError",
    "LogError",
    "NoViableFetcher",
    "Paused",
    "Pauses",
    "Selector",
    "Signer",
    "Step",
    "Take",
    "UrlError",
    "Verdict",
    "Visit",
    "WaitStep",
    "__version__",
    "error_kind",
    "export_attempts",
    "import_attempts",
]

# Names that need asyncio, ssl or dataclasses of the standard library are imported on first use.
_LATER = {
    "Admission": "_pauses",
    "ErrorKind": "_outcomes",
    "Fetching": "_fetching",
    "Pauses": "_pauses",
    "error_kind": "_outcomes",
}


if not TYPE_CHECKING:
    # With this function, a type checker would accept any name.
    def __getattr__(name: str) -> Any:
        module = _LATER.get(name)
        if module is None:
            raise AttributeError(f"module 'fetchwise' has no attribute {name!r}")
        from importlib import import_module

        value = getattr(import_module("." + module, __name__), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(__all__))
