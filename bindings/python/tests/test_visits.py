"""Visits and pauses from Python: the steps are the library's, and misuse raises."""

from __future__ import annotations

import pathlib

import pytest

import fetchwise


def drive(selector: fetchwise.Selector, url: str, *outcomes: object) -> tuple[list[str | None], fetchwise.End]:
    left, asked = list(outcomes), []
    visit = selector.visit(url)
    while step := visit.next():
        assert not step.wait
        asked.append(step.fetcher)
        visit.report(step, left.pop(0))  # type: ignore[arg-type]
    assert visit.end is not None and left == []
    return asked, visit.end


def test_a_shell_goes_to_the_browser_and_a_missing_page_nowhere() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    shell = fetchwise.Detector().classify(b"<html><body><div id=root></div><script src=/a.js></script></body></html>")
    asked, end = drive(selector, "https://example.org/app", shell, "content")
    assert asked == ["direct_access", "playwright"] and end
    asked, end = drive(selector, "https://example.net/gone", fetchwise.ErrorKind.NOT_FOUND)
    assert asked == ["direct_access"] and end.kind == "failed" and end.error_type == "not_found"


def test_a_transient_failure_has_no_weight_until_its_retry_fails() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    asked, end = drive(selector, "https://example.org/", ConnectionResetError(), "content")
    assert asked == ["direct_access", "direct_access"] and end
    masses = selector.masses("domain", "example.org", "direct_access")
    assert masses["success"] == pytest.approx(masses["total"])


def test_a_rate_limit_ends_the_visit_and_holds_the_host() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    answer = fetchwise.Detector().judge(429, {"Retry-After": "60"}, b"<h1>Too many requests</h1>")
    asked, end = drive(selector, "https://example.org/1", answer)
    assert asked == ["direct_access"] and end.is_banned
    assert selector.host_pause("https://example.org/2") is not None
    _, end = drive(selector, "https://example.org/2")
    match end:
        case fetchwise.End("paused"):
            assert end.paused == "host" and end.requests == 0
        case _:
            pytest.fail(repr(end))
    assert selector.select("https://example.org/3").is_host_paused
    assert selector.unpause_host("https://example.org/") is not None
    assert selector.select("https://example.org/3")


def test_the_host_that_responds_is_held_and_not_the_one_that_redirects() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], pace=False)
    detector = fetchwise.Detector()
    limited = detector.judge(429, {"Retry-After": "600"}, b"<h1>Slow down</h1>", final_url="https://v.example/1")
    _, end = drive(selector, "https://short.example/1", limited)
    assert end.is_banned
    assert selector.host_pause("https://v.example/2") is not None
    assert selector.host_pause("https://short.example/2") is None


def test_redirects_in_html_are_followed_and_bound() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access"], pace=False)
    stub = b"<meta http-equiv=refresh content='0; url=/there'><a href=/there>moved</a>"
    detector = fetchwise.Detector()
    visit = selector.visit("https://example.org/here")
    step = visit.next()
    assert step is not None
    visit.report(step, detector.judge(200, {"Content-Type": "text/html"}, stub))
    step = visit.next()
    assert step is not None and step.url == "https://example.org/there" and step.max_redirects == 9
    visit.report(step, "content")
    assert visit.next() is None and visit.end is not None and visit.end.requests == 1


def test_misuse_is_said() -> None:
    selector = fetchwise.Selector()
    visit, other = selector.visit("https://example.org/"), selector.visit("https://example.net/")
    step = visit.next()
    assert step is not None
    with pytest.raises(fetchwise.Error, match="another visit"):
        other.report(step, "content")
    with pytest.raises(TypeError):
        visit.report(step, 17)  # type: ignore[arg-type]
    with pytest.raises(fetchwise.Error, match="does not wait"):
        visit.give_up(step)  # type: ignore[arg-type]
    visit.report(step, "content")
    with pytest.raises(fetchwise.Error, match="already|ended"):
        visit.report(step, "content")
    with pytest.raises(fetchwise.ConfigError):
        selector.visit("https://example.org/", prefer="nobody")
    with pytest.raises(fetchwise.ConfigError):
        selector.visit("https://example.org/", fetchers=["nobody"])


def test_only_available_fetchers_are_used() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
    visit = selector.visit("https://example.org/", fetchers=["playwright"])
    step = visit.next()
    assert step is not None and step.fetcher == "playwright"
    del step
    visit.close()
    assert selector.masses("domain", "example.org", "playwright")["attempts"] == 0


def ends(**options: bool) -> list[str]:
    """Returns the ends of twenty visits of one host, none of which waits."""
    selector, kinds = fetchwise.Selector(fetchers=["direct_access"], **options), []
    for n in range(20):
        visit = selector.visit(f"https://example.org/{n}")
        while step := visit.next():
            if step.wait:
                assert step.reason == "pace" and 0 <= step.seconds <= 1
                visit.give_up(step)
            else:
                visit.report(step, "content")
        assert visit.end is not None
        kinds.append(visit.end.kind)
    return kinds


def test_visits_keep_a_pace_unless_it_is_turned_off() -> None:
    paced = ends()
    assert paced[0] == "delivered" and "paced" in paced, "twenty pages at once are more than a new host gets"
    assert "paced" in ends(pace=True)
    assert set(ends(pace=False)) == {"delivered"}


def test_a_pace_delays_requests() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access"])
    waits = 0
    for n in range(3):
        visit = selector.visit(f"https://example.org/{n}")
        while step := visit.next():
            if step.wait:
                assert step.reason == "pace" and 0 <= step.seconds <= 1
                waits += 1
                step.block()
            else:
                visit.report(step, "content")
    assert waits >= 2


def test_a_host_that_is_held_for_long_ends_visits_instead_of_keeping_them_waiting() -> None:
    selector = fetchwise.Selector(fetchers=["direct_access"])
    answer = fetchwise.Detector().judge(429, {"Retry-After": "600"}, b"<h1>Too many requests</h1>")
    asked, end = drive(selector, "https://example.org/1", answer)
    assert asked == ["direct_access"] and end.is_banned
    _, end = drive(selector, "https://example.org/2")
    assert (end.kind, end.paused, end.requests) == ("paused", "host", 0)


def test_pauses_for_a_framework_that_owns_the_loop(tmp_path: pathlib.Path) -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"], journal=tmp_path, pace=False)
    pauses = fetchwise.Pauses(selector)
    first = pauses.admit("https://example.org/1")
    assert first and first.fetcher == "direct_access" and pauses.admit("https://example.org/1") == first
    second = pauses.admit("https://example.org/2")
    assert not second and second.reason == "probe", "the first probes the host"
    assert pauses.ended("https://example.org/1", "blocked_403", retry_after=60).end is not None
    assert pauses.admit("https://example.org/2").end is not None
    assert 0 < pauses.host_pause("https://example.org/") <= 60
    assert len(pauses) == 0
    with pytest.raises(KeyError):
        pauses.ended("https://example.org/1", "content")
    selector.close()
    with fetchwise.Selector(fetchers=["direct_access"], journal=tmp_path) as again:
        assert again.host_pause("example.org") is not None, "pauses survive the process"


def test_forgetting_lasts(tmp_path: pathlib.Path) -> None:
    with fetchwise.Selector(journal=tmp_path) as selector:
        selector.record(fetchwise.Attempt("https://example.org/", "playwright").delivered())
        selector.forget(domain="example.org")
        assert selector.masses("domain", "example.org", "playwright")["attempts"] == 0
        with pytest.raises(TypeError):
            selector.forget()
    with fetchwise.Selector(journal=tmp_path) as selector:
        assert selector.masses("domain", "example.org", "playwright")["attempts"] == 0


def test_many_urls_get_the_decisions_that_each_gets_alone() -> None:
    selector, at = fetchwise.Selector(fetchers=["direct_access", "playwright"]), 1_790_000_000.0
    for n in range(60):
        selector.record(fetchwise.Attempt(f"https://site{n % 7}.org/{n}", "playwright", at=at).delivered())
    urls = [f"https://site{n % 11}.org/new/{n}" for n in range(40)]
    many = selector.select_many(iter(urls), at=at)
    fields = [(one.fetcher, one.source, one.confidence) for one in (selector.select(url, at=at) for url in urls)]
    assert [(one.fetcher, one.source, one.confidence) for one in many] == fields
    assert selector.select_many([]) == []
    assert selector.select_many(urls[:1], prefer="playwright")[0].source == "hinted"
    with pytest.raises(fetchwise.UrlError):
        selector.select_many(["https://example.org/", "ftp://example.org/"])
    with pytest.raises(TypeError):
        selector.select_many("https://example.org/")
