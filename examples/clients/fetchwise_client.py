#!/usr/bin/env python3
"""A crawler that gets its decisions from `fetchwise serve`, and reports its results. It needs only Python's standard library.

    fetchwise serve &
    python3 fetchwise_client.py https://example.org/ https://example.org/about

The server decides; this program fetches. It has one fetcher, `direct_access` (a plain request); a crawler with a browser adds its own to
FETCHERS, under the names that `fetchwise fetchers` lists. $FETCHWISE_URL is where the server is, $FETCHWISE_TOKEN the token that it wants.
"""

import base64
import json
import os
import socket
import sys
import time
import urllib.error
import urllib.parse
import urllib.request


class Fetchwise:
    """The API: one method for each kind of call."""

    def __init__(self, url=None, token=None):
        self.url = (url or os.environ.get("FETCHWISE_URL") or "http://127.0.0.1:7117").rstrip("/")
        self.token = token or os.environ.get("FETCHWISE_TOKEN")

    def call(self, method, path, body=None):
        """Sends a request and returns the JSON response. Raises an error with the server's message if it refuses."""
        data = body if isinstance(body, bytes) else None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        request.add_header("Content-Type", "application/json")
        if self.token:
            request.add_header("Authorization", "Bearer " + self.token)
        try:
            with urllib.request.urlopen(request, timeout=90) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            said = json.load(error)
            raise RuntimeError(f"{said.get('error_type')}: {said.get('error')}") from error

    def select(self, urls, **said):
        return self.call("POST", "/v1/select", {"urls": list(urls), **said})

    def begin(self, url, **said):
        return self.call("POST", "/v1/visits", {"url": url, **said})

    def report(self, visit, number, **said):
        return self.call("POST", f"/v1/visits/{visit}/report", {"number": number, **said})

    def look(self, visit, wait_s=0):
        return self.call("GET", f"/v1/visits/{visit}?wait_s={wait_s}")

    def attempts(self, attempts):
        """Records attempts that were made without a visit."""
        lines = "".join(json.dumps(attempt) + "\n" for attempt in attempts)
        return self.call("POST", "/v1/attempts", lines.encode())

    def explain(self, url):
        return self.call("GET", "/v1/explain?" + urllib.parse.urlencode({"url": url}))


def plain(url, deadline):
    """Makes one request. Returns the fields of a report: the response to judge, or the name of the error."""
    begun = time.monotonic()
    request = urllib.request.Request(url, headers={"User-Agent": "fetchwise-example"})
    try:
        try:
            response = urllib.request.urlopen(request, timeout=deadline)
        except urllib.error.HTTPError as error:
            response = error  # An error status is a response, too.
        with response:
            body = response.read(1 << 20)
            said = {
                "status": response.status,
                "headers": list(response.headers.items()),
                "body_base64": base64.b64encode(body).decode(),
                "final_url": response.url,
            }
    except urllib.error.URLError as error:
        said = {"outcome": outcome_of(error.reason), "message": str(error.reason)}
    except OSError as error:
        said = {"outcome": outcome_of(error), "message": str(error)}
    said["duration_ms"] = round(1000 * (time.monotonic() - begun), 1)
    return said


def outcome_of(error):
    if isinstance(error, (TimeoutError, socket.timeout)):
        return "timeout"
    return "dns_error" if isinstance(error, socket.gaierror) else "network_error"


FETCHERS = {"direct_access": plain}


def visit(api, url):
    """Fetches a URL, from the first decision to the end."""
    at = api.begin(url, fetchers=list(FETCHERS))
    while at["step"]["kind"] != "end":
        step = at["step"]
        if step["kind"] == "wait":
            at = api.look(at["visit"], wait_s=30)
            continue
        said = FETCHERS[step["fetcher"]](step["url"], step["deadline_ms"] / 1000)
        at = api.report(at["visit"], step["number"], **said)
    return at["step"]


def main(urls):
    api, exit_code = Fetchwise(), 0
    for url in urls:
        end = visit(api, url)
        print(json.dumps({"url": url, **end}))
        exit_code |= end["end"] != "delivered"
    return exit_code


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
