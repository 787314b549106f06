#!/usr/bin/env python3
"""A fetcher for fetchwise's CommandFetcher: requests and answers as lines of JSON (docs/guides/command-fetcher.md).

It needs nothing but Python's standard library, and gets pages with urllib. To make it a fetcher of another kind,
change `get`.
"""

import base64
import http.client
import json
import os
import queue
import socket
import ssl
import sys
import tempfile
import threading
import urllib.error
import urllib.request
import zlib

THREADS = 8
# A longer body goes into a file: base64 in a line costs memory on both sides.
INLINE_MAX = 1 << 20


class Failure(Exception):
    """A request without a response, with fetchwise's name for the reason."""

    def __init__(self, kind, message):
        super().__init__(message)
        self.kind = kind


class Redirects(urllib.request.HTTPRedirectHandler):
    """Follows as many redirects as the request allows, to http and https only."""

    def __init__(self, at_most):
        self.left = at_most

    def redirect_request(self, req, fp, code, msg, headers, newurl):
        if self.left == 0 or not newurl.startswith(("http://", "https://")):
            raise Failure("redirect_loop", f"too many redirects, or one that goes nowhere: {newurl}")
        self.left -= 1
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def get(request):
    """Fetches one page and returns the fields of a response."""
    opener = urllib.request.build_opener(Redirects(request["max_redirects"]))
    opener.addheaders = [("User-Agent", "fetchwise-example/1"), ("Accept-Encoding", "gzip, deflate")]
    timeout = request["deadline_ms"] / 1000
    try:
        response = opener.open(request["url"], timeout=timeout)
    except urllib.error.HTTPError as error:
        if error.code in (301, 302, 303, 307, 308) and error.headers.get("location"):
            raise Failure("redirect_loop", f"the redirects go in a circle: {error.url}") from error
        response = error  # An error page is a response, too.
    with response:
        body, truncated = read_body(response, request["max_body"])
        return {
            "status": response.status,
            "headers": list(response.headers.items()),
            "final_url": response.url,
            "truncated": truncated,
            **place(body),
        }


def read_body(response, max_body):
    """Returns the body without its content coding, and whether it ended too early."""
    coding = (response.headers.get("content-encoding") or "").lower()
    decode = {
        "gzip": zlib.decompressobj(31),
        "deflate": zlib.decompressobj(),
    }.get(coding)
    body, truncated = bytearray(), False
    while True:
        try:
            chunk = response.read1(1 << 16)
        except http.client.IncompleteRead as broken:
            chunk, truncated = broken.partial, True
        if not chunk:
            # read1 does not report that fewer bytes came than were announced.
            truncated = truncated or bool(getattr(response, "length", 0))
            break
        # One byte more than allowed is enough to know.
        body += decode.decompress(chunk, max_body - len(body) + 1) if decode else chunk
        if len(body) > max_body:
            raise Failure("too_large", f"the body is longer than {max_body} bytes")
        if truncated:
            break
    return bytes(body), truncated


def place(body):
    """Puts a short body into the response, a long one into the scratch folder."""
    if len(body) <= INLINE_MAX:
        return {"body_base64": base64.b64encode(body).decode("ascii")}
    descriptor, path = tempfile.mkstemp(dir=os.environ["FETCHWISE_SCRATCH"])
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    return {"body_path": os.path.basename(path)}


def kind_of(error):
    """Returns fetchwise's name for an error of urllib."""
    reason = getattr(error, "reason", error)
    if isinstance(error, Failure):
        return error.kind
    if isinstance(reason, (TimeoutError, socket.timeout)):
        return "timeout"
    if isinstance(reason, socket.gaierror):
        return "dns_error"
    if isinstance(reason, ssl.SSLError):
        return "tls_error"
    if isinstance(error, (ValueError, UnicodeError, http.client.InvalidURL)):
        return "invalid_url"
    return "network_error"


def answer(request):
    """Returns the response to one request; no error in it ends the program."""
    try:
        return {"id": request["id"], **get(request)}
    except Exception as error:  # pylint: disable=broad-except
        return {"id": request["id"], "error": {"kind": kind_of(error), "message": str(error)}}


def main():
    requests = queue.Queue()
    waiting = set()  # Requests without a response that were not cancelled.
    lock = threading.Lock()

    def work():
        while True:
            request = requests.get()
            if request["id"] not in waiting:
                continue
            line = json.dumps(answer(request))
            with lock:
                waiting.discard(request["id"])
                # Flushed: otherwise the response stays in a buffer.
                print(line, flush=True)

    for _ in range(THREADS):
        threading.Thread(target=work, daemon=True).start()
    for line in sys.stdin:
        message = json.loads(line)
        with lock:
            if "cancel" in message:
                waiting.discard(message["cancel"])
            else:
                waiting.add(message["id"])
                requests.put(message)


if __name__ == "__main__":
    main()
