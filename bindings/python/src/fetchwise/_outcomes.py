"""Outcomes of requests, and the meaning of client exceptions.

Owns: the names of failures (``ErrorKind``) and the only mapping from exceptions to them. It imports no client. It
recognises classes by the names of their ancestors, so that it understands whatever is installed.
"""

from __future__ import annotations

import asyncio
import enum
import itertools
import socket
import ssl
from collections.abc import Iterator

from ._fetchwise import FetchResult


class ErrorKind(str, enum.Enum):
    """The reason why an attempt delivered no content. Each is a ``str``: its name in JSON and in the log.

    >>> fetchwise.ErrorKind.TIMEOUT == "timeout"
    True
    """

    BLOCKED_CAPTCHA = "blocked_captcha"
    BLOCKED_403 = "blocked_403"
    WRONG_TOOL = "wrong_tool"
    EMPTY_CONTENT = "empty_content"
    TIMEOUT = "timeout"
    NETWORK_ERROR = "network_error"
    SERVER_ERROR = "server_error"
    TRUNCATED = "truncated"
    NOT_FOUND = "not_found"
    CLIENT_ERROR = "client_error"
    AUTH_REQUIRED = "auth_required"
    DNS_ERROR = "dns_error"
    TLS_ERROR = "tls_error"
    PROXY_ERROR = "proxy_error"
    REDIRECT_LOOP = "redirect_loop"
    TOO_LARGE = "too_large"
    REFUSED_ADDRESS = "refused_address"
    INVALID_URL = "invalid_url"
    QUEUED = "queued"
    LOCAL_FAULT = "local_fault"
    RATE_LIMITED = "rate_limited"
    DISALLOWED = "disallowed"
    NOT_HELD = "not_held"
    NETWORK_BLOCK = "network_block"
    PAYMENT_REQUIRED = "payment_required"
    DECLINED = "declined"
    IDENTITY_REJECTED = "identity_rejected"
    RESERVED = "reserved"
    LEFT_BY_POLICY = "left_by_policy"

    __str__ = str.__str__


ErrorKind.__module__ = "fetchwise"

# The first entry that names an exception's class or an ancestor counts. Subclasses come before less specific ancestors.
_BY_CLASS = {
    # httpx, aiohttp, curl_cffi, requests, urllib3, Scrapy and Twisted, Playwright.
    "ProxyError": ErrorKind.PROXY_ERROR,
    "ClientProxyConnectionError": ErrorKind.PROXY_ERROR,
    "ClientHttpProxyError": ErrorKind.PROXY_ERROR,
    "TooManyRedirects": ErrorKind.REDIRECT_LOOP,
    "ClientConnectorDNSError": ErrorKind.DNS_ERROR,
    "DNSError": ErrorKind.DNS_ERROR,
    "DNSLookupError": ErrorKind.DNS_ERROR,
    "CannotResolveHostError": ErrorKind.DNS_ERROR,
    "NameResolutionError": ErrorKind.DNS_ERROR,
    "ClientConnectorCertificateError": ErrorKind.TLS_ERROR,
    "ClientSSLError": ErrorKind.TLS_ERROR,
    "SSLError": ErrorKind.TLS_ERROR,
    "CertificateVerifyError": ErrorKind.TLS_ERROR,
    "DownloadTimeoutError": ErrorKind.TIMEOUT,
    "TimeoutException": ErrorKind.TIMEOUT,
    "TimeoutError": ErrorKind.TIMEOUT,
    "Timeout": ErrorKind.TIMEOUT,
    "ServerTimeoutError": ErrorKind.TIMEOUT,
    "TCPTimedOutError": ErrorKind.TIMEOUT,
    "IncompleteRead": ErrorKind.TRUNCATED,
    "IncompleteReadError": ErrorKind.TRUNCATED,
    "ContentLengthError": ErrorKind.TRUNCATED,
    "ClientPayloadError": ErrorKind.TRUNCATED,
    "ResponseDataLossError": ErrorKind.TRUNCATED,
    "PartialDownload": ErrorKind.TRUNCATED,
    "DownloadCancelledError": ErrorKind.TOO_LARGE,
    "InvalidURL": ErrorKind.INVALID_URL,
    "InvalidUrlClientError": ErrorKind.INVALID_URL,
    "UnsupportedProtocol": ErrorKind.INVALID_URL,
    "UnsupportedURLSchemeError": ErrorKind.INVALID_URL,
}

# Messages of Chromium and Firefox, which Playwright passes on in its only class of errors.
_BY_WORDS = (
    ("Download is starting", ErrorKind.WRONG_TOOL),
    ("net::ERR_ABORTED", ErrorKind.WRONG_TOOL),
    ("ERR_NAME_NOT_RESOLVED", ErrorKind.DNS_ERROR),
    ("NS_ERROR_UNKNOWN_HOST", ErrorKind.DNS_ERROR),
    ("ERR_TOO_MANY_REDIRECTS", ErrorKind.REDIRECT_LOOP),
    ("NS_ERROR_REDIRECT_LOOP", ErrorKind.REDIRECT_LOOP),
    ("ERR_PROXY", ErrorKind.PROXY_ERROR),
    ("ERR_TUNNEL", ErrorKind.PROXY_ERROR),
    ("ERR_CERT", ErrorKind.TLS_ERROR),
    ("ERR_SSL", ErrorKind.TLS_ERROR),
    ("ERR_TIMED_OUT", ErrorKind.TIMEOUT),
    ("ERR_CONNECTION_TIMED_OUT", ErrorKind.TIMEOUT),
    ("ERR_INVALID_URL", ErrorKind.INVALID_URL),
    ("ERR_INSUFFICIENT_RESOURCES", ErrorKind.LOCAL_FAULT),
    # A fault of the browser, not of the page: the next browser may succeed.
    ("Target crashed", ErrorKind.LOCAL_FAULT),
    ("Page crashed", ErrorKind.LOCAL_FAULT),
    ("has been closed", ErrorKind.LOCAL_FAULT),
    ("Executable doesn't exist", ErrorKind.LOCAL_FAULT),
    # Error numbers of libcurl, in curl_cffi's messages.
    ("curl: (6)", ErrorKind.DNS_ERROR),
    ("curl: (5)", ErrorKind.PROXY_ERROR),
    ("curl: (97)", ErrorKind.PROXY_ERROR),
    ("curl: (28)", ErrorKind.TIMEOUT),
    ("curl: (35)", ErrorKind.TLS_ERROR),
    ("curl: (60)", ErrorKind.TLS_ERROR),
    ("curl: (47)", ErrorKind.REDIRECT_LOOP),
    ("curl: (18)", ErrorKind.TRUNCATED),
    ("curl: (3)", ErrorKind.INVALID_URL),
)

# No name server answered, or none that knows the name: the next lookup may succeed.
_NO_ANSWER = {socket.EAI_AGAIN, socket.EAI_FAIL}

# The most exceptions that are looked at.
_WRAPPED = 6

# No fetcher causes a shortage of this machine: descriptors, ports, memory, its network.
_LOCAL_ERRNO = {12, 23, 24, 28, 99, 100, 101}


def error_kind(error: BaseException) -> ErrorKind:
    """Returns the kind of an exception of an HTTP client or of Playwright.

    Knows those of httpx, aiohttp, curl_cffi, requests, urllib3, Scrapy, Twisted, Playwright and the standard library,
    and treats any other as a network error.

    >>> fetchwise.error_kind(TimeoutError())
    <ErrorKind.TIMEOUT: 'timeout'>
    """
    chain = list(itertools.islice(_chain(error), _WRAPPED))
    # Most clients have one exception for any failed lookup.
    if any(isinstance(seen, socket.gaierror) and seen.errno in _NO_ANSWER for seen in chain):
        return ErrorKind.NETWORK_ERROR
    return next((kind for seen in chain if (kind := _of(seen)) is not None), ErrorKind.NETWORK_ERROR)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yields an exception and those that it wraps: a client's may wrap a more specific one."""
    seen: BaseException | None = error
    while seen is not None:
        yield seen
        seen = seen.__cause__ or seen.__context__


def _of(error: BaseException) -> ErrorKind | None:
    if isinstance(error, (asyncio.TimeoutError, TimeoutError, socket.timeout)):
        return ErrorKind.TIMEOUT
    if isinstance(error, socket.gaierror):
        return ErrorKind.DNS_ERROR
    if isinstance(error, ssl.SSLError):
        return ErrorKind.TLS_ERROR
    text = str(error)
    for words, kind in _BY_WORDS:
        if words in text:
            return kind
    for ancestor in type(error).__mro__:
        known = _BY_CLASS.get(ancestor.__name__)
        if known is not None:
            return known
    if isinstance(error, OSError) and error.errno in _LOCAL_ERRNO:
        return ErrorKind.LOCAL_FAULT
    return None


def answer_of(error: object) -> FetchResult:
    """Returns the fetch result of an exception, so that ``Visit.report(step, error)`` accepts it directly."""
    if not isinstance(error, BaseException):
        raise TypeError(
            "report a FetchResult, a Verdict, an ErrorKind or an exception, not " + type(error).__name__
        )
    return FetchResult(
        error_kind(error), message=f"{type(error).__name__}: {error}"[:500], final_url=_failed_url(error)
    )


def _failed_url(error: BaseException) -> str | None:
    """Returns the URL that a client requested last, if its exception names it: redirects may have led there."""
    try:
        url = error.request.url  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return None
    return str(url)
