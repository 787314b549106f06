"""The Scrapy integration: a downloader middleware that chooses the fetcher and judges the response, and a download
handler that uses the chosen fetcher.

Settings of a project::

    ADDONS = {"fetchwise.scrapy.Addon": 500}
    FETCHWISE_DATA_DIR = "fetchwise-data"      # evidence; without it, it lasts until the crawl ends

===========================  ==========================================================================================
``FETCHWISE_FETCHERS``       names and download handlers. Default, if scrapy-playwright is installed:
                             ``{"direct_access": None, "playwright":
                             "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"}``.
                             None is Scrapy's own handler; ``"stealth_http": "fetchwise.scrapy.CurlHandler"`` is curl_cffi
``FETCHWISE_CONFIG``         a TOML file in the program's format
``FETCHWISE_PACE``           False turns off the learned pace of each host, for AutoThrottle or sites of your own.
                             Default: True, or the mode in ``FETCHWISE_CONFIG``
``FETCHWISE_IDENTITY``       a TOML file with ``[identity]``. Scrapy's own handler then signs each https request (Web Bot
                             Auth); give ``USER_AGENT`` the product token
``FETCHWISE_RULES``          a file of custom detection rules
``FETCHWISE_MAX_WAIT``       the longest pause in seconds after which a URL is retried; others are dropped. Default: 0
``FETCHWISE_PASS_FAILURES``  True passes pages without content (blocks, shells, empty ones) to callbacks if no fetcher did
                             better; ``response.meta["fetchwise"]`` says what they are. Default: False
``FETCHWISE_CLOSE_TIMEOUT``  the seconds that open requests of a browser and of other foreign handlers get once the crawl
                             closes, by a signal or by itself. Default: 10
===========================  ==========================================================================================

The add-on puts ``Middleware`` at 585 into ``DOWNLOADER_MIDDLEWARES``, and ``Handler`` for http and https into
``DOWNLOAD_HANDLERS``. A project may set both itself.

The middleware ignores a request with ``meta={"fetchwise": False}``, and ``meta={"fetchwise_prefer": "playwright"}`` names
the first fetcher. It stands at 585: it reads what ``HttpCompressionMiddleware`` (590) has unpacked, and acts before
``RetryMiddleware`` (550), which has nothing left to retry. Redirects, cookies, robots.txt and AutoThrottle stay Scrapy's.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections.abc import Coroutine
from importlib.util import find_spec
from typing import Any, TypeVar
from urllib.parse import urlsplit

from scrapy import Request, signals
from scrapy.crawler import Crawler
from scrapy.exceptions import DontCloseSpider, IgnoreRequest
from scrapy.http import Headers, Response
from scrapy.responsetypes import responsetypes
from scrapy.settings import BaseSettings
from scrapy.utils.misc import build_from_crawler, load_object

from . import Admission, FetchResult, Detector, End, Pauses, Selector, Signer, error_kind

logger: logging.Logger = logging.getLogger(__name__)

_PLAYWRIGHT = "scrapy_playwright.handler.ScrapyPlaywrightDownloadHandler"
_OWN = "scrapy.core.downloader.handlers.http11.HTTP11DownloadHandler"
_CLOSE_TIMEOUT = 10.0
# Seconds after its deadline at which a request is given up whose handler keeps no time limit itself.
_GRACE = 30.0

_T = TypeVar("_T")


def fetchers_of(crawler: Crawler) -> dict[str, str | None]:
    """Returns the fetchers of a project and their handlers; None is Scrapy's own handler."""
    named = crawler.settings.getdict("FETCHWISE_FETCHERS")
    if named:
        return dict(named)
    fetchers: dict[str, str | None] = {"direct_access": None}
    if find_spec("scrapy_playwright") is not None:
        fetchers["playwright"] = _PLAYWRIGHT
    return fetchers


class Addon:
    """Turns fetchwise on: ``ADDONS = {"fetchwise.scrapy.Addon": 500}``."""

    def update_settings(self, settings: BaseSettings) -> None:
        """Adds the middleware and the download handler to the settings of a project."""
        settings.setdefault_in_component_priority_dict("DOWNLOADER_MIDDLEWARES", Middleware, 585)
        handlers = settings.getdict("DOWNLOAD_HANDLERS")
        for scheme in ("http", "https"):
            before = handlers.get(scheme)
            if before not in (None, _OWN, _PLAYWRIGHT, Handler, f"{__name__}.Handler"):
                logger.warning(
                    "fetchwise.scrapy.Handler takes the place of %s for %s: name it in FETCHWISE_FETCHERS", before, scheme
                )
            handlers[scheme] = f"{__name__}.Handler"
        settings.set("DOWNLOAD_HANDLERS", handlers, settings.getpriority("DOWNLOAD_HANDLERS") or 0)


class _Closing:
    """Notices that the crawl closes, and gives up what would hold that up.

    Scrapy closes a crawl once its open requests have ended, and has no signal before that. A browser that a signal to
    the process group has ended along with Scrapy never answers them, and a held host lets them wait for minutes.
    """

    _STEP = 0.2

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        given = crawler.settings.get("FETCHWISE_CLOSE_TIMEOUT")
        self.timeout: float = _CLOSE_TIMEOUT if given is None else float(given)
        self._noticed: asyncio.Event | None = None
        self._watching: asyncio.Task[None] | None = None

    @classmethod
    def of(cls, crawler: Crawler) -> _Closing:
        """Returns the one of a crawl, which the middleware and the handlers share."""
        closing: _Closing = crawler.__dict__.setdefault("_fetchwise_closing", cls(crawler))
        return closing

    def _is_closing(self) -> bool:
        slot = getattr(self._crawler.engine, "_slot", None)
        return not self._crawler.crawling or getattr(slot, "closing", None) is not None

    async def _watch(self, noticed: asyncio.Event) -> None:
        while not self._is_closing():
            await asyncio.sleep(self._STEP)
        noticed.set()

    async def begun(self) -> None:
        """Returns once the crawl closes."""
        if self._noticed is None:
            self._noticed = asyncio.Event()
            self._watching = asyncio.ensure_future(self._watch(self._noticed))
        await self._noticed.wait()

    async def _given_up(self, after: float) -> None:
        await self.begun()
        await asyncio.sleep(after)

    async def unless_begun(self, work: Coroutine[Any, Any, _T], *, after: float, at_most: float | None = None) -> _T:
        """Returns the result of ``work``, or raises: ``IgnoreRequest`` ``after`` seconds into the closing of the crawl, and
        ``TimeoutError`` after ``at_most`` seconds. It does not wait for the end of ``work`` then, which may never come.
        """
        task = asyncio.ensure_future(work)
        given_up = asyncio.ensure_future(self._given_up(after))
        try:
            await asyncio.wait({task, given_up}, timeout=at_most, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if given_up.done():
                raise IgnoreRequest("the crawl closes")
            raise TimeoutError(f"no response within {at_most:.0f} s")
        finally:
            given_up.cancel()
            if not task.done():
                task.add_done_callback(_forget_result)
                task.cancel()

    def stop(self) -> None:
        """Ends the watch."""
        if self._watching is not None:
            self._watching.cancel()


def _forget_result(task: asyncio.Task[Any]) -> None:
    """Reads the error of a task that nobody waits for, which asyncio would report otherwise."""
    if not task.cancelled():
        task.exception()


class Middleware:
    """Chooses the fetcher of each request, judges the response, and moves on to the next fetcher if it is not content.
    """

    def __init__(self, crawler: Crawler) -> None:
        settings = crawler.settings
        self.crawler = crawler
        config = settings.get("FETCHWISE_CONFIG")
        names = list(fetchers_of(crawler))
        self.selector: Selector = Selector(
            fetchers=None if config else names,
            config=config,
            journal=settings.get("FETCHWISE_DATA_DIR"),
            pace=None if settings.get("FETCHWISE_PACE") is None else settings.getbool("FETCHWISE_PACE"),
        )
        self.detector: Detector = Detector(rules=settings.get("FETCHWISE_RULES"))
        self.pauses: Pauses = Pauses(self.selector, fetchers=names)
        self._max_wait = settings.getfloat("FETCHWISE_MAX_WAIT")
        self._pass_failures = settings.getbool("FETCHWISE_PASS_FAILURES")
        self._tokens = itertools.count()
        self._later: set[asyncio.Task[None]] = set()
        self._closing = _Closing.of(crawler)
        crawler.signals.connect(self._idle, signals.spider_idle)
        crawler.signals.connect(self._closed, signals.spider_closed)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Middleware:
        return cls(crawler)

    async def process_request(self, request: Request) -> None:
        """Waits for the request's turn and sets its fetcher; drops the request if its link or host is paused."""
        meta = request.meta
        if meta.get("fetchwise") is False or not request.url.startswith(("http://", "https://")):
            return
        if urlsplit(request.url).path == "/robots.txt":
            return
        token = meta.setdefault("fetchwise_visit", f"{id(self):x}-{next(self._tokens)}")
        try:
            admission = await self._closing.unless_begun(
                self._admitted(request.url, token, meta.get("fetchwise_prefer")), after=0
            )
        except IgnoreRequest:
            meta.pop("fetchwise_visit", None)
            self.pauses.forget(request.url, key=token)
            raise
        if admission.end is not None:
            self._refuse(request, admission.end)
        self._assign(meta, admission)

    async def _admitted(self, url: str, token: str, prefer: str | None) -> Admission:
        """Waits until the request may be made, or until its visit has ended."""
        admission = await self.pauses.admitted(url, key=token, prefer=prefer)
        while not admission and admission.end is None:
            admission = await self.pauses.admitted(url, key=token)
        return admission

    def process_response(self, request: Request, response: Response) -> Request | Response:
        """Judges the response. Returns the response if it is content, else the request again for the next fetcher."""
        token = request.meta.get("fetchwise_visit")
        if token is None or request.meta.get("fetchwise_fetcher") is None:
            return response
        if "cached" in response.flags:
            self.pauses.forget(request.url, key=token)
            return response
        if any(flag in response.flags for flag in ("partial", "dataloss")):
            answer = FetchResult("truncated", status=response.status)
        else:
            answer = self.detector.judge(response.status, response.headers, response.body, url=response.url)
        admission = self._ended(request, token, answer)
        if admission.end is None:
            return self._again(request, admission)
        self._finish(request, admission.end, answer)
        if not admission.end and 200 <= response.status < 300 and not self._pass_failures:
            raise IgnoreRequest(f"no content: {answer.message}")
        return response

    def process_exception(self, request: Request, exception: Exception) -> Request | None:
        """Attributes the failure, and retries with the same or the next fetcher if that may help."""
        token = request.meta.get("fetchwise_visit")
        if token is None or request.meta.get("fetchwise_fetcher") is None:
            return None
        if isinstance(exception, IgnoreRequest):
            self.pauses.forget(request.url, key=token)
            return None
        answer = FetchResult(error_kind(exception), message=f"{type(exception).__name__}: {exception}"[:500])
        admission = self._ended(request, token, answer)
        if admission.end is None:
            return self._again(request, admission)
        self._finish(request, admission.end, answer)
        return None

    def _ended(self, request: Request, token: str, answer: FetchResult) -> Admission:
        fetcher = request.meta.pop("fetchwise_fetcher")
        started = request.meta.pop("fetchwise_started", None)
        duration = None if started is None else time.monotonic() - started
        self._count(f"requests/{fetcher}")
        self._count(f"outcome/{answer.outcome}")
        if answer.is_blocked:
            self._count("blocked")
        return self.pauses.ended(request.url, answer, key=token, duration=duration)

    def _assign(self, meta: dict[str, Any], admission: Admission) -> None:
        meta["fetchwise_fetcher"] = admission.fetcher
        meta["fetchwise_started"] = time.monotonic()
        meta["download_timeout"] = admission.deadline
        # The visit does its own retries.
        meta["dont_retry"] = True
        if admission.decision is not None:
            self._count(f"decision/{admission.decision.source}")

    @staticmethod
    def _again(request: Request, admission: Admission) -> Request:
        changed: dict[str, Any] = {"dont_filter": True}
        if admission.url is not None and admission.url != request.url:
            changed["url"] = admission.url
        changed_request: Request = request.replace(**changed)
        return changed_request

    def _finish(self, request: Request, end: End, answer: FetchResult) -> None:
        request.meta.pop("fetchwise_visit", None)
        self._count(f"end/{end.kind}")
        request.meta["fetchwise"] = {
            "end": end.kind,
            "fetcher": end.fetcher,
            "source": end.source,
            "requests": end.requests,
            "outcome": answer.outcome,
            "vendor": answer.vendor,
            "error_type": end.error_type,
            "paused_until": end.paused_until,
        }

    def _refuse(self, request: Request, end: End) -> None:
        """Nothing may be requested now: retry later, or drop the request."""
        request.meta.pop("fetchwise_visit", None)
        self._count(f"end/{end.kind}")
        seconds = max(0.0, (end.paused_until or 0.0) - time.time())
        if end.kind in ("paused", "paced") and 0 < seconds <= self._max_wait:
            self._count("delayed")
            task = asyncio.ensure_future(self._come_back(request.replace(dont_filter=True), seconds))
            self._later.add(task)
            task.add_done_callback(self._later.discard)
            raise IgnoreRequest(f"paused: retry in {seconds:.1f} s")
        self._count(f"dropped/{end.paused or end.kind}")
        raise IgnoreRequest(f"{end.kind}: {end.message or end.paused}")

    async def _come_back(self, request: Request, seconds: float) -> None:
        await asyncio.sleep(seconds)
        engine = self.crawler.engine
        if engine is not None and engine.spider is not None:
            engine.crawl(request)

    def _idle(self) -> None:
        if self._later:
            raise DontCloseSpider

    def _closed(self) -> None:
        for task in self._later:
            task.cancel()
        self._closing.stop()
        self.selector.close()

    def _count(self, what: str) -> None:
        if self.crawler.stats is not None:
            self.crawler.stats.inc_value(f"fetchwise/{what}")


class Handler:
    """A download handler that makes the request with the fetcher in ``request.meta["fetchwise_fetcher"]``; without one,
    with Scrapy's own handler.
    """

    lazy = False

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._paths = fetchers_of(crawler)
        self._made: dict[str, Any] = {}
        self._closing = _Closing.of(crawler)
        identity = crawler.settings.get("FETCHWISE_IDENTITY")
        self._signer = Signer(config=identity) if identity else None
        if _PLAYWRIGHT in self._paths.values():
            # The handler starts with the engine, or not at all. It starts a browser only on demand.
            self._handler(_PLAYWRIGHT)

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> Handler:
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        """Makes the request."""
        name = request.meta.get("fetchwise_fetcher")
        path = self._paths.get(name) if name else None
        if path == _PLAYWRIGHT:
            request.meta["playwright"] = True
        elif name:
            request.meta.pop("playwright", None)
        elif request.meta.get("playwright"):
            path = _PLAYWRIGHT
        path = path or _OWN
        if path != _OWN:
            deadline = request.meta.get("download_timeout") or self._crawler.settings.getfloat("DOWNLOAD_TIMEOUT")
            response: Response = await self._closing.unless_begun(
                self._handler(path).download_request(request), after=self._closing.timeout, at_most=deadline + _GRACE
            )
            return response
        if self._signer is None:
            response = await self._handler(path).download_request(request)
            return response
        response = await self._handler(path).download_request(self._signed(self._signer, request))
        self._signer.observe(request.url, [name.decode("latin-1") for name in response.headers])
        return response

    @staticmethod
    def _signed(signer: Signer, request: Request) -> Request:
        """Returns the request with a signature. Scrapy's own request stays without one, because the request that follows
        a redirect copies its headers.
        """
        signed = request.copy()
        for name, value in signer.headers(request.url, request.method).items():
            signed.headers[name] = value
        return signed

    def _handler(self, path: str) -> Any:
        # Scrapy has one handler for http and one for https. They share expensive objects, especially the browser.
        made: dict[str, Any] = self._crawler.__dict__.setdefault("_fetchwise_handlers", {})
        if path not in made:
            made[path] = build_from_crawler(load_object(path), self._crawler)
        self._made[path] = made[path]
        return made[path]

    async def close(self) -> None:
        """Closes the handlers that were used."""
        made: dict[str, Any] = self._crawler.__dict__.get("_fetchwise_handlers", {})
        for path in list(self._made):
            handler = made.pop(path, None)
            if handler is not None:
                await self._end(path, handler)
        self._made.clear()


    async def _end(self, path: str, handler: Any) -> None:
        """Closes a handler, unless that takes too long: a browser that is gone never answers."""
        task = asyncio.ensure_future(handler.close())
        await asyncio.wait({task}, timeout=self._closing.timeout)
        if task.done():
            task.result()
            return
        logger.warning("%s does not close within %g s: left as it is", path, self._closing.timeout)
        task.add_done_callback(_forget_result)
        task.cancel()


class CurlHandler:
    """A download handler with curl_cffi, which makes the TLS handshake of a browser (``FETCHWISE_IMPERSONATE``,
    ``"chrome"``).
    """

    lazy = True

    def __init__(self, crawler: Crawler) -> None:
        from curl_cffi.requests import AsyncSession

        self._session: AsyncSession[Any] = AsyncSession(impersonate=crawler.settings.get("FETCHWISE_IMPERSONATE", "chrome"))

    @classmethod
    def from_crawler(cls, crawler: Crawler) -> CurlHandler:
        return cls(crawler)

    async def download_request(self, request: Request) -> Response:
        """Makes the request."""
        # Headers that curl sends by itself belong to the impersonated browser.
        own = {b"User-Agent", b"Accept", b"Accept-Encoding", b"Accept-Language"}
        headers = [(name, value) for name, values in request.headers.items() if name not in own for value in values]
        answer = await self._session.request(
            request.method,  # type: ignore[arg-type]
            request.url,
            data=request.body or None,
            headers={name.decode(): value.decode("latin-1") for name, value in headers},
            timeout=request.meta.get("download_timeout") or 180,
            allow_redirects=False,
            proxy=request.meta.get("proxy"),
        )
        # The body is decoded already.
        decoded = ("content-encoding", "content-length")
        kept = Headers([(name, value) for name, value in answer.headers.multi_items() if name.lower() not in decoded])
        kind = responsetypes.from_args(headers=kept, url=request.url, body=answer.content)
        return kind(url=request.url, status=answer.status_code, headers=kept, body=answer.content)

    async def close(self) -> None:
        """Closes connections."""
        await self._session.close()
