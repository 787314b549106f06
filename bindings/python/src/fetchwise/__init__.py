"""fetchwise learns which fetcher works for which URL, and keeps a crawler from getting its IP address banned.

The selector, the detector and the log of the Rust library, in this process. A whole crawl of one URL::

    import fetchwise

    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], journal="fetchwise-data")
    detector = fetchwise.Detector()
    visit = selector.visit("https://example.org/")
    while step := visit.next():
        if step.wait:
            step.block()
            continue
        try:
            response = clients[step.fetcher].get(step.url, timeout=step.deadline)
        except Exception as error:
            visit.report(step, error)
        else:
            visit.report(step, detector.judge(response.status_code, response.headers, response.content))
    print(visit.end)

Integrations are in ``fetchwise.scrapy``, ``fetchwise.crawlee``, ``fetchwise.httpx`` and ``fetchwise.playwright_fetcher``, and import their
frameworks when they are imported.
"""

from __future__ import annotations

from ._errors import ConfigError, Error, ForkedError, LockedError, LogError, UrlError
from ._fetchwise import (
    FetchResult,
    Attempt,
    Decision,
    Detector,
    End,
    Explanation,
    Fetcher,
    Journal,
    Selector,
    Step,
    Verdict,
    Visit,
    __version__,
    export_attempts,
    import_attempts,
)

# As typing's, without importing it: that would take half of the time that importing this takes.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from ._fetching import Fetching
    from ._outcomes import ErrorKind, error_kind
    from ._pauses import Admission, Pauses

__all__ = [
    "Admission",
    "FetchResult",
    "Attempt",
    "ConfigError",
    "Decision",
    "Detector",
    "End",
    "Error",
    "ErrorKind",
    "Explanation",
    "Fetcher",
    "Fetching",
    "ForkedError",
    "Journal",
    "LockedError",
    "LogError",
    "Pauses",
    "Selector",
    "Step",
    "UrlError",
    "Verdict",
    "Visit",
    "__version__",
    "error_kind",
    "export_attempts",
    "import_attempts",
]

# What needs asyncio, ssl or dataclasses of the standard library is imported when it is first asked for.
_LATER = {
    "Admission": "_pauses",
    "ErrorKind": "_outcomes",
    "Fetching": "_fetching",
    "Pauses": "_pauses",
    "error_kind": "_outcomes",
}


if not TYPE_CHECKING:
    # A type checker would take any name for one that is there.
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
