"""The httpx integration: a transport that judges and records every response, and one that signs every request. Neither
chooses the fetcher.

>>> import httpx, fetchwise.httpx  # doctest: +SKIP
>>> selector = fetchwise.Selector(journal="fetchwise-data")  # doctest: +SKIP
>>> client = httpx.AsyncClient(transport=fetchwise.httpx.Transport(selector))  # doctest: +SKIP

Signed requests (Web Bot Auth), recorded too:

>>> signer = fetchwise.Signer(config="fetchwise.toml")  # doctest: +SKIP
>>> signing = fetchwise.httpx.SigningTransport(signer)  # doctest: +SKIP
>>> client = httpx.AsyncClient(transport=fetchwise.httpx.Transport(selector, signing))  # doctest: +SKIP
"""

from __future__ import annotations

import time

import httpx

from . import Attempt, Detector, Selector, Signer, error_kind

REDIRECTS = {301, 302, 303, 307, 308}
SIGNATURE = ("Signature", "Signature-Agent", "Signature-Input")


class Transport(httpx.AsyncBaseTransport):
    """Wraps a transport (default: ``httpx.AsyncHTTPTransport()``), and records one attempt of ``fetcher`` for each
    response or failure.

    The body is read before the response is returned, so that it can be judged. Redirects are not recorded; their
    targets are.
    """

    def __init__(
        self,
        selector: Selector,
        transport: httpx.AsyncBaseTransport | None = None,
        *,
        detector: Detector | None = None,
        fetcher: str = "direct_access",
    ) -> None:
        self.selector = selector
        self.detector: Detector = detector or Detector()
        self.fetcher = fetcher
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Passes the request on, and records the result."""
        url, started, at = str(request.url), time.monotonic(), time.time()
        decision = self.selector.select(url, prefer=self.fetcher)
        try:
            response = await self._transport.handle_async_request(request)
            await response.aread()
        except httpx.TransportError as error:
            spent = int((time.monotonic() - started) * 1000)
            attempt = Attempt(url, self.fetcher, duration_ms=spent, at=at, source=decision.source, rule=decision.rule)
            self.selector.record(attempt.failed(error_kind(error)))
            raise
        if response.status_code not in REDIRECTS:
            verdict = self.detector.classify(
                response.content, url=url, status=response.status_code, headers=response.headers
            )
            if decision:
                spent = int((time.monotonic() - started) * 1000)
                self.selector.record(
                    Attempt.from_response(decision, url=url, verdict=verdict, duration_ms=spent, at=at)
                )
        return response

    async def aclose(self) -> None:
        """Closes the wrapped transport."""
        await self._transport.aclose()


class SigningTransport(httpx.AsyncBaseTransport):
    """Wraps a transport (default: ``httpx.AsyncHTTPTransport()``), and signs each https request: every redirect and every
    repetition gets a separate signature, for its own authority and path.

    A client's ``auth`` cannot do that: httpx calls it once, and its headers go to the next authority too.
    """

    def __init__(self, signer: Signer, transport: httpx.AsyncBaseTransport | None = None) -> None:
        self.signer = signer
        self._transport = transport or httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Passes the request on, with a signature."""
        response = await self._transport.handle_async_request(_signed(self.signer, request))
        self.signer.observe(request.url, list(response.headers))
        return response

    async def aclose(self) -> None:
        """Closes the wrapped transport."""
        await self._transport.aclose()


class SyncSigningTransport(httpx.BaseTransport):
    """The same for ``httpx.Client`` (default: ``httpx.HTTPTransport()``)."""

    def __init__(self, signer: Signer, transport: httpx.BaseTransport | None = None) -> None:
        self.signer = signer
        self._transport = transport or httpx.HTTPTransport()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Passes the request on, with a signature."""
        response = self._transport.handle_request(_signed(self.signer, request))
        self.signer.observe(request.url, list(response.headers))
        return response

    def close(self) -> None:
        """Closes the wrapped transport."""
        self._transport.close()


def _signed(signer: Signer, request: httpx.Request) -> httpx.Request:
    """Returns the request with a signature. The client's own request stays without one: httpx copies the headers of a
    request to the one that follows a redirect.
    """
    headers = request.headers.copy()
    for name in SIGNATURE:
        headers.pop(name, None)
    headers.update(signer.headers(request.url, request.method))
    return httpx.Request(
        request.method, request.url, headers=headers, stream=request.stream, extensions=request.extensions
    )
