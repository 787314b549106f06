"""The detector from Python: every kind of body works, and no page makes it raise."""

from __future__ import annotations

import pathlib
import random

import pytest
from conftest import REPOSITORY

import fetchwise

WALL = b"<title>Just a moment...</title><script>window._cf_chl_opt={}</script>"
SEEDS = REPOSITORY / "fuzz" / "seeds" / "classify"


def test_bodies_of_every_kind() -> None:
    detector = fetchwise.Detector()
    for body in (WALL, bytearray(WALL), memoryview(WALL), memoryview(b"xx" + WALL)[2:]):
        assert detector.classify(body, status=403).vendor == "cloudflare"
    for wrong in ("<html>", None, 7, [1, 2]):
        with pytest.raises(TypeError, match="bytes"):
            detector.classify(wrong)  # type: ignore[arg-type]


def test_headers_of_every_kind() -> None:
    detector = fetchwise.Detector()
    want = detector.classify(b"", status=403, headers={"cf-mitigated": "challenge"}).vendor
    assert want == "cloudflare"
    for headers in (
        [("cf-mitigated", "challenge")],
        [(b"CF-Mitigated", b"challenge")],
        {b"cf-mitigated": [b"challenge"]},
        (("cf-mitigated", "challenge"),),
        iter([("cf-mitigated", "challenge")]),
    ):
        assert detector.classify(b"", status=403, headers=headers).vendor == want
    for wrong in ([1], "text", [("a",)]):
        with pytest.raises(TypeError):
            detector.classify(b"", headers=wrong)  # type: ignore[arg-type]
    assert detector.classify(b"x" * 10_000, headers={"Content-Type": b"\xff\xfe"}) is not None


def test_a_body_may_be_changed_while_it_is_read() -> None:
    detector = fetchwise.Detector()
    body = bytearray(b"<p>" + b"The ferry leaves at noon. " * 1000)
    verdict = detector.classify(body)
    body[:] = WALL
    assert verdict.is_content and detector.classify(body, status=403).is_blocked


def test_malformed_bodies_do_not_raise() -> None:
    detector = fetchwise.Detector()
    bodies = [file.read_bytes() for file in sorted(SEEDS.iterdir())]
    assert len(bodies) >= 5, f"no seeds in {SEEDS}"
    chance = random.Random(1)
    for body in bodies[:]:
        for _ in range(20):
            changed = bytearray(body)
            for _ in range(chance.randint(1, 20)):
                if changed:
                    changed[chance.randrange(len(changed))] = chance.randrange(256)
            bodies.append(bytes(changed[: chance.randint(0, len(changed))]))
    bodies += [chance.randbytes(chance.randint(0, 20_000)) for _ in range(200)]
    for body in bodies:
        status = chance.choice([0, 200, 204, 304, 403, 429, 503, 999])
        headers = [("Content-Type", chance.choice(["text/html", "text/html; charset=utf-16", "", "application/pdf"]))]
        verdict = detector.classify(body, status=status, headers=headers, url="https://example.org/")
        answer = detector.judge(status, headers, body)
        assert answer.outcome == verdict.outcome and isinstance(verdict.reason, str)
        assert isinstance(repr(verdict), str) and verdict.error_for("direct_access") == answer.error_for("direct_access")
        assert detector.explain(body, status=status, headers=headers)["verdict"].outcome == verdict.outcome


def test_rules_of_ones_own(tmp_path: pathlib.Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text("[[rule]]\nid = 'mine'\ngrade = 'strong'\nfind = ['xyzzy-wall']\nnote = 'a test'\nvendor = 'xyzzy'\n")
    detector = fetchwise.Detector(rules=rules)
    verdict = detector.classify(b"<html><body><div class=xyzzy-wall></div></body></html>")
    assert (verdict.is_blocked, verdict.vendor, verdict.rule) == (True, "xyzzy", "mine")
    rules.write_text("[[rule]]\nid = 'mine'\n")
    with pytest.raises(fetchwise.ConfigError, match="mine"):
        detector.reload()
    assert detector.classify(b"<html><body><div class=xyzzy-wall></div></body></html>").is_blocked, "the old rules stay in force"
    rules.write_text("")
    detector.reload()
    assert not detector.classify(b"<html><body><div class=xyzzy-wall></div></body></html>").is_blocked
    with pytest.raises(fetchwise.Error, match="rules="):
        fetchwise.Detector().reload()


def test_a_page_of_the_network_is_named() -> None:
    detector = fetchwise.Detector()
    page = b"<h1>This website is blocked</h1><p>By order of the court, your internet service provider has blocked access.</p>"
    verdict = detector.classify(page)
    assert verdict.is_network_block and verdict.outcome == "network_block"
    assert verdict.error_for("direct_access") == fetchwise.ErrorKind.NETWORK_BLOCK
    assert not detector.classify(b"", status=403).is_network_block
