"""The kinds of client exceptions, raised by the clients' own classes if they are installed."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl

import pytest

import fetchwise
from fetchwise import ErrorKind, error_kind


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (TimeoutError(), ErrorKind.TIMEOUT),
        (asyncio.TimeoutError(), ErrorKind.TIMEOUT),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), ErrorKind.DNS_ERROR),
        (socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"), ErrorKind.NETWORK_ERROR),
        (socket.gaierror(socket.EAI_FAIL, "Non-recoverable failure"), ErrorKind.NETWORK_ERROR),
        (ssl.SSLError(1, "certificate verify failed"), ErrorKind.TLS_ERROR),
        (ConnectionResetError(), ErrorKind.NETWORK_ERROR),
        (asyncio.IncompleteReadError(b"", 7), ErrorKind.TRUNCATED),
        (OSError(errno.EMFILE, "Too many open files"), ErrorKind.LOCAL_FAULT),
        (RuntimeError("anything else"), ErrorKind.NETWORK_ERROR),
    ],
)
def test_standard_library_exceptions(error: BaseException, kind: ErrorKind) -> None:
    assert error_kind(error) is kind


def test_of_httpx() -> None:
    httpx = pytest.importorskip("httpx")
    for name, kind in {
        "ReadTimeout": "timeout",
        "ConnectTimeout": "timeout",
        "ConnectError": "network_error",
        "RemoteProtocolError": "network_error",
        "ProxyError": "proxy_error",
        "TooManyRedirects": "redirect_loop",
        "UnsupportedProtocol": "invalid_url",
    }.items():
        assert error_kind(getattr(httpx, name)("said")) == kind, name
    try:
        raise httpx.ConnectError("said") from socket.gaierror(-2, "Name or service not known")
    except httpx.ConnectError as error:
        assert error_kind(error) == "dns_error"


def test_a_lookup_without_an_answer_may_succeed_later() -> None:
    class NameResolutionError(Exception):
        """What urllib3 raises for each failed lookup."""

    for number, kind in {socket.EAI_AGAIN: "network_error", socket.EAI_NONAME: "dns_error"}.items():
        try:
            try:
                raise NameResolutionError("failed to resolve") from socket.gaierror(number, "said")
            except NameResolutionError:
                raise ConnectionError("no retries left")  # noqa: B904
        except ConnectionError as error:
            assert error_kind(error) == kind


def test_of_aiohttp() -> None:
    aiohttp = pytest.importorskip("aiohttp")
    assert error_kind(aiohttp.ServerTimeoutError()) == "timeout"
    assert error_kind(aiohttp.ClientPayloadError()) == "truncated"
    assert error_kind(aiohttp.ServerDisconnectedError()) == "network_error"
    assert error_kind(aiohttp.InvalidURL("x")) == "invalid_url"


def test_of_curl_cffi() -> None:
    requests = pytest.importorskip("curl_cffi.requests")
    with pytest.raises(Exception) as refused:
        requests.get("http://127.0.0.1:1/")
    assert error_kind(refused.value) == "network_error"
    with pytest.raises(Exception) as unknown:
        requests.get("http://no-such-name.invalid/")
    assert error_kind(unknown.value) == "dns_error"


def test_of_playwright() -> None:
    api = pytest.importorskip("playwright.async_api")
    for message, kind in {
        "Page.goto: net::ERR_NAME_NOT_RESOLVED at https://x/": "dns_error",
        "Page.goto: net::ERR_CONNECTION_REFUSED at https://x/": "network_error",
        "Page.goto: net::ERR_CERT_AUTHORITY_INVALID at https://x/": "tls_error",
        "Page.goto: net::ERR_TOO_MANY_REDIRECTS at https://x/": "redirect_loop",
        "Page.goto: Download is starting": "wrong_tool",
        "Page.goto: Target page, context or browser has been closed": "local_fault",
    }.items():
        assert error_kind(api.Error(message)) == kind, message
    assert error_kind(api.TimeoutError("Timeout 30000ms exceeded.")) == "timeout"


def test_of_scrapy() -> None:
    twisted = pytest.importorskip("twisted.internet.error")
    assert error_kind(twisted.TimeoutError()) == "timeout"
    assert error_kind(twisted.DNSLookupError()) == "dns_error"
    assert error_kind(twisted.ConnectionRefusedError()) == "network_error"


def test_an_exception_can_be_reported() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access"])
    visit = selector.visit("https://example.org/")
    step = visit.next()
    assert step is not None
    visit.report(step, socket.gaierror(-2, "Name or service not known"))
    assert visit.next() is None and visit.end is not None
    assert visit.end.error_type == ErrorKind.DNS_ERROR and "gaierror" in visit.end.message
