"""The Crawlee integration for Python: the adaptive crawler decides by the evidence of fetchwise, which survives the
process.

::

    predictor = fetchwise.crawlee.Predictor(data_dir="fetchwise-data")
    crawler = AdaptivePlaywrightCrawler.with_beautifulsoup_static_parser(rendering_type_predictor=predictor)
    predictor.attach(crawler)

``attach`` adds a hook after navigation, which judges the response. A shell or a block that came without a browser never
reaches the request handler: the browser fetches the page instead, in the same try. Nothing is fetched twice only for
comparison.

``signing_client`` returns an HTTP client for Crawlee that signs each https request (Web Bot Auth), redirects included::

    crawler = HttpCrawler(http_client=fetchwise.crawlee.signing_client(fetchwise.Signer(config="fetchwise.toml")))
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from crawlee.crawlers import RenderingType, RenderingTypePrediction, RenderingTypePredictor

from . import Attempt, Decision, Detector, Selector, Signer, Verdict, error_kind

if TYPE_CHECKING:
    from crawlee import Request
    from crawlee.crawlers import AdaptivePlaywrightCrawler
    from crawlee.http_clients import HttpxHttpClient

# The time within which a page that is still empty has to show something, in milliseconds.
SETTLE_MS = 5000


def signing_client(signer: Signer, **options: Any) -> HttpxHttpClient:
    """Returns an ``HttpxHttpClient`` whose https requests are signed, redirects and repetitions included.

    ``options`` are those of ``HttpxHttpClient``. Its headers are not those of a browser: a signed crawler says what it
    is. Give the product token in ``headers={"User-Agent": ...}`` of the requests.
    """
    from crawlee.http_clients import HttpxHttpClient

    async def sign(request: Any) -> None:
        # A request that follows a redirect has the headers of the one before.
        for name in ("Signature", "Signature-Agent", "Signature-Input"):
            request.headers.pop(name, None)
        request.headers.update(signer.headers(request.url, request.method))

    async def observe(response: Any) -> None:
        signer.observe(response.request.url, list(response.headers))

    options.setdefault("header_generator", None)
    return HttpxHttpClient(event_hooks={"request": [sign], "response": [observe]}, **options)


class NoContent(Exception):
    """The response without a browser is not content. Crawlee then uses the browser."""


class Predictor(RenderingTypePredictor):
    """A ``RenderingTypePredictor`` backed by a selector.

    ``static`` and ``browser`` are the fetcher names of Crawlee's two ways of fetching. ``data_dir`` is the directory
    for the evidence; alternatively pass a selector.
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
        # The decision of each request in progress, and its start as a date and by a clock that nobody sets.
        self._under_way: dict[str, tuple[Decision, float, float]] = {}

    def predict(self, request: Request) -> RenderingTypePrediction:
        """Returns the first way of fetching, never both: an exploration is one request without a browser, and is
        judged.
        """
        decision = self.selector.select(request.url, link=request.unique_key)
        if not decision:
            # Crawlee cannot express "not now"; it then proceeds by its own rules.
            decision = self.selector.select(request.url, prefer=self.browser, link=request.unique_key)
        self._under_way[request.unique_key] = decision, time.time(), time.monotonic()
        kind: RenderingType = "static" if decision.fetcher == self.static else "client only"
        return RenderingTypePrediction(rendering_type=kind, detection_probability_recommendation=0.0)

    def store_result(self, request: Request, rendering_type: RenderingType) -> None:
        """Crawlee calls this only after a double fetch, which this predictor never requests. Those of others count,
        too.
        """
        static = Attempt(request.url, self.static)
        content = rendering_type == "static"
        self.selector.record(static.delivered() if content else static.failed("wrong_tool"))
        if not content:
            self.selector.record(Attempt(request.url, self.browser).delivered())

    def attach(self, crawler: AdaptivePlaywrightCrawler[Any, Any, Any]) -> None:
        """Makes the crawler judge responses before its request handler sees them."""
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
        """Returns the verdict on a page, after its scripts had time to fill it."""
        from playwright.async_api import Error

        until = time.monotonic() + SETTLE_MS / 1000
        while True:
            body = (await page.content()).encode()
            # The body is text now, whatever its encoding was.
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
        now = time.monotonic()
        decision, at, started = self._under_way.pop(request.unique_key, (None, time.time(), now))
        if decision is None or decision.fetcher != fetcher:
            # The browser was used because the plain request had delivered nothing.
            hint = None if decision is None and fetcher == self.static else "empty"
            decision = self.selector.select(request.url, prefer=fetcher, hint=hint, link=request.unique_key)  # type: ignore[arg-type]
            if not decision:
                return
        spent = max(0, int((now - started) * 1000))
        attempt = Attempt.from_response(
            decision, url=request.url, verdict=verdict, duration_ms=spent, at=at, link=request.unique_key
        )
        self.selector.record(attempt)

    async def _failed(self, context: Any, error: Exception) -> None:
        """Runs after the last try, for failures that no hook sees."""
        known = self._under_way.pop(context.request.unique_key, None)
        if known is None or isinstance(error, NoContent):
            return
        decision, at, started = known
        fetcher = decision.fetcher or self.static
        status = getattr(error, "status_code", None)
        spent = max(0, int((time.monotonic() - started) * 1000))
        attempt = Attempt(context.request.url, fetcher, status=status, duration_ms=spent, at=at)
        if isinstance(status, int):
            verdict = self.detector.classify(b"", url=context.request.url, status=status)
            kind = verdict.error_for(fetcher) or "empty_content"
        else:
            kind = error_kind(error)
        self.selector.record(attempt.failed(kind))

    async def clear(self) -> None:
        """Crawlee calls this when a crawl ends: it writes what was learned."""
        await super().clear()
        journal = self.selector.journal
        if journal is not None:
            await journal.flush_async()

    def close(self) -> None:
        """Closes the selector's journal if it was opened here."""
        if self._owns:
            self.selector.close()
