"""Submits pages to the testbed, in batches of less than 1 MiB."""

import json
import os
import urllib.request

BATCH = 900_000


class Pages:
    """The pages of a crawler: `add` for each, `close` at the end."""

    def __init__(self) -> None:
        self._lines: list[bytes] = []
        self._size = 0

    def add(self, url: str, text: str) -> None:
        line = json.dumps({"url": url, "text": text}).encode() + b"\n"
        if self._size + len(line) > BATCH:
            self.close()
        self._lines.append(line)
        self._size += len(line)

    def close(self) -> None:
        if self._lines:
            request = urllib.request.Request(os.environ["PAGES"], data=b"".join(self._lines), method="POST")
            with urllib.request.urlopen(request, timeout=30) as answer:
                answer.read()
        self._lines, self._size = [], 0


def links() -> list[str]:
    with urllib.request.urlopen(os.environ["LINKS"], timeout=30) as answer:
        return answer.read().decode().split()
