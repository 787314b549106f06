"""Random attempts of every kind, the same for the same seed."""

from __future__ import annotations

import random
from collections.abc import Iterator

import fetchwise

FETCHERS = ["direct_access", "playwright", "playwright_stealth"]
HOSTS = [f"site{n}.example" for n in range(40)] + ["news.example.co.uk", "docs.example.org", "127.0.0.1"]
SUFFIXES = ["", ".html", ".pdf", ".php", "?q=ä&p=1"]


def attempts(count: int, *, seed: int, newest: float) -> Iterator[fetchwise.Attempt]:
    """`count` attempts within the forty days before `newest`, which is a time in seconds."""
    chance = random.Random(seed)
    kinds = list(fetchwise.ErrorKind)
    for n in range(count):
        host = chance.choice(HOSTS)
        depth = "/".join(chance.choice(["a", "news", "p", "2026"]) for _ in range(chance.randint(0, 3)))
        url = f"https://{host}/{depth}{n if chance.random() < 0.5 else ''}{chance.choice(SUFFIXES)}"
        age = (1 - n / count) * 40 * 86_400 + chance.random()
        attempt = fetchwise.Attempt(
            url,
            chance.choice(FETCHERS),
            status=chance.choice([None, 200, 403, 404, 429, 503]),
            headers={"Server": chance.choice(["nginx", "cloudflare"]), "Set-Cookie": "secret=1"},
            duration_ms=chance.randint(0, 60_000),
            at=newest - age,
            source=chance.choice([None, "learned", "probe", "explore"]),
            rule=chance.choice([None, "index", "probe_first", "mine"]),
            confidence=chance.choice([None, round(chance.random(), 6)]),
            propensity=chance.choice([None, round(chance.random(), 6)]),
            hint=chance.choice([None, "blocked", "empty", "timeout", "unknown"]),
            try_no=chance.randint(1, 3),
            heuristics=chance.choice([None, {"language": "de"}, [("block_cloudflare", "true"), ("spa_framework", "next")]]),
        )
        yield attempt.delivered() if chance.random() < 0.6 else attempt.failed(chance.choice(kinds))
