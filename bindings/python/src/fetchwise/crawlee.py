"""Crawlee for Python: the adaptive crawler decides by what fetchwise has learned, which survives the process.

::

    predictor = fetchwise.crawlee.Predictor(data_dir="fetchwise-data")
    crawler = AdaptivePlaywrightCrawler.with_beautifulsoup_static_parser(rendering_type_predictor=predictor)
    predictor.attach(crawler)

``attach`` adds a hook after navigation, which judges what came: a shell or a wall that came without a browser never reaches the request
handler, and the browser is asked instead, in the same try. Nothing is fetched twice only to compare.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from crawlee.crawlers import RenderingType, RenderingTypePrediction, RenderingTypePredictor

from . import Attempt, Decision, Detector, Selector, Verdict, error_kind

if TYPE_CHECKING:
    from crawlee import Request
    from crawlee.crawlers import AdaptivePlaywrightCrawler

# How long a page that shows nothing yet may take until it does, in milliseconds.
SETTLE_MS = 5000


class NoContent(Exception):
    """What came without a browser is no content: Crawlee asks the browser then."""


class Predictor(RenderingTypePredictor):
    """A ``RenderingTypePredictor`` that asks a selector.

    ``static`` and ``browser`` are the names that Crawlee's two ways of fetching are recorded under. With ``data_dir``, what is learned is
    kept there; or hand it a selector of your own.
    """

    def __init__(
        self,
        selector: Selector | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        detector: Detector | None = None,
        static: str = "direct_access",
        browser: str = "playwright",
    ) -> None:
        super().__init__()
        self._owns = selector is None
        self.selector: Selector = selector or Selector(fetchers=[static, browser], journal=data_dir)
        self.detector: Detector = detector or Detector()
        self.static: str = static
        self.browser: str = browser
        # What was decided for a request that is under way, and when: for the record of what came of it.
        self._under_way: dict[str, tuple[Decision, float]] = {}

    def predict(self, request: Request) -> RenderingTypePrediction:
        """Which way to fetch first. It never asks for both: an exploration is one request without a browser, and is judged."""
        decision = self.selector.select(request.url, link=request.unique_key)
        if not decision:
            # Crawlee has no word for "not now"; what it does then is its own.
            decision = self.selector.select(request.url, wanted=self.browser, link=request.unique_key)
        self._under_way[request.unique_key] = decision, time.time()
        kind: RenderingType = "static" if decision.fetcher == self.static else "client only"
        return RenderingTypePrediction(rendering_type=kind, detection_probability_recommendation=0.0)

    def store_result(self, request: Request, rendering_type: RenderingType) -> None:
        """Crawlee calls it after a double fetch only, for which this predictor never asks; somebody else's counts, too."""
        static = Attempt(request.url, self.static)
        content = rendering_type == "static"
        self.selector.record(static.delivered() if content else static.failed("wrong_tool"))
        if not content:
            self.selector.record(Attempt(request.url, self.browser).delivered())

    def attach(self, crawler: AdaptivePlaywrightCrawler[Any, Any, Any]) -> None:
        """Has the crawler judge what came, before its request handler sees it."""
        crawler.post_navigation_hook(self._navigated)
        self._error_handler = getattr(crawler, "_failed_request_handler", None)
        crawler.failed_request_handler(self._failed)

    async def _navigated(self, context: Any) -> None:
        page = getattr(context, "_page", None)
        status = context.http_response.status_code
        headers = dict(context.http_response.headers)
        if page is None:
            verdict = self.detector.classify(
                await context.http_response.read(), url=context.request.url, status=status, headers=headers
            )
            self._record(context.request, self.static, verdict)
            if verdict.outcome != "content" and verdict.error_for(self.static) != "not_found":
                raise NoContent(verdict.reason)
            return
        verdict = await self._settled(page, context.request.url, status, headers)
        self._record(context.request, self.browser, verdict)

    async def _settled(self, page: Any, url: str, status: int, headers: dict[str, str]) -> Verdict:
        """The verdict on a page, once its scripts have had time to fill it."""
        from playwright.async_api import Error

        until = time.monotonic() + SETTLE_MS / 1000
        while True:
            body = (await page.content()).encode()
            # It is text now, whatever it was encoded as on its way.
            kept = {name: value for name, value in headers.items() if name.lower() != "content-type"}
            verdict = self.detector.classify(body, url=url, status=status, headers=kept)
            left = until - time.monotonic()
            if left <= 0 or not (verdict.is_shell or verdict.is_empty):
                return verdict
            try:
                await page.wait_for_timeout(min(100.0, left * 1000))
            except Error:
                return verdict

    def _record(self, request: Request, fetcher: str, verdict: Verdict) -> None:
        now = time.time()
        decision, started = self._under_way.pop(request.unique_key, (None, now))
        if decision is None or decision.fetcher != fetcher:
            # The browser was asked because the plain request had brought nothing.
            hint = None if decision is None and fetcher == self.static else "empty"
            decision = self.selector.select(request.url, wanted=fetcher, hint=hint, link=request.unique_key)  # type: ignore[arg-type]
            if not decision:
                return
        spent = max(0, int((now - started) * 1000))
        attempt = Attempt.from_response(
            decision, url=request.url, verdict=verdict, duration_ms=spent, at=started, link=request.unique_key
        )
        self.selector.record(attempt)

    async def _failed(self, context: Any, error: Exception) -> None:
        """After its last try: what no hook has seen."""
        known = self._under_way.pop(context.request.unique_key, None)
        if known is None or isinstance(error, NoContent):
            return
        decision, started = known
        fetcher = decision.fetcher or self.static
        status = getattr(error, "status_code", None)
        spent = max(0, int((time.time() - started) * 1000))
        attempt = Attempt(context.request.url, fetcher, status=status, duration_ms=spent, at=started)
        if isinstance(status, int):
            verdict = self.detector.classify(b"", url=context.request.url, status=status)
            kind = verdict.error_for(fetcher) or "empty_content"
        else:
            kind = error_kind(error)
        self.selector.record(attempt.failed(kind))

    async def clear(self) -> None:
        """Crawlee calls it when a crawl ends: what was learned is written down."""
        await super().clear()
        journal = self.selector.journal
        if journal is not None:
            await journal.flush_async()

    def close(self) -> None:
        """Closes the selector's journal, if it was opened here."""
        if self._owns:
            self.selector.close()
