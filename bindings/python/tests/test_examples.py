"""The published names: each public name has an example that runs."""

from __future__ import annotations

import doctest
import inspect
import time
from typing import Any

import pytest

import fetchwise


@pytest.mark.parametrize(
    ("successes", "attempts", "confidence"), [(5, 5, 0.50), (8, 10, 0.80), (14, 20, 0.70), (3, 3, 0.30)]
)
def test_published_confidence(successes: int, attempts: int, confidence: float) -> None:
    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
    now = time.time()
    for n in range(attempts):
        attempt = fetchwise.Attempt(f"https://example.org/{n}/page", "playwright", at=now)
        ended = attempt.delivered() if n < successes else attempt.failed(fetchwise.ErrorKind.SERVER_ERROR)
        selector.record(ended)
    # This is evidence of the domain alone: each page is the only one in its folder.
    masses = selector.masses("domain", "example.org", "playwright", at=now)
    assert masses["attempts"] == attempts
    assert masses["success"] == pytest.approx(successes, rel=1e-3)
    candidates = selector.explain("https://example.org/new/page", at=now).to_dict()["candidates"]
    by_name = {candidate["fetcher"]: candidate for candidate in candidates}
    assert by_name["playwright"]["confidence"] == pytest.approx(confidence, abs=0.01)


def docstrings() -> list[tuple[str, str]]:
    found = []
    for name in fetchwise.__all__:
        value = getattr(fetchwise, name)
        if isinstance(value, str):
            continue
        found.append((name, inspect.getdoc(value) or ""))
        if inspect.isclass(value):
            for part, member in vars(value).items():
                is_data = member is None or isinstance(member, (str, float)) or inspect.ismemberdescriptor(member)
                if not part.startswith("_") and not is_data:
                    found.append((f"{name}.{part}", inspect.getdoc(member) or ""))
    return found


@pytest.mark.parametrize(("name", "text"), docstrings())
def test_docstring(name: str, text: str) -> None:
    assert text.strip(), f"{name} says nothing of itself"
    examples = doctest.DocTestParser().get_doctest(text, {"fetchwise": fetchwise}, name, None, None)
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL, verbose=False)
    said: list[str] = []
    runner.run(examples, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


# Classes without a constructor appear in the examples of the calls that return them.
MADE_BY_OTHERS = {"Visit": "Selector.visit"}


def test_every_public_name_has_an_example() -> None:
    text = dict(docstrings())
    without = [
        name
        for name in fetchwise.__all__
        if not isinstance(getattr(fetchwise, name), str) and ">>>" not in text[MADE_BY_OTHERS.get(name, name)]
    ]
    assert without == []


def test_kinds_are_those_of_the_library() -> None:
    from fetchwise import _fetchwise

    assert [kind.value for kind in fetchwise.ErrorKind] == _fetchwise._ERROR_KINDS


def test_a_decision_matches_by_kind() -> None:
    decision = fetchwise.Selector().select("https://example.org/a.pdf")
    seen: Any = None
    match decision:
        case fetchwise.Decision("paused"):
            seen = "paused"
        case fetchwise.Decision("take", fetcher):
            seen = fetcher
    assert seen == "direct_access"
    assert decision and decision.rule != "none"
    with pytest.raises(AttributeError):
        decision.fetcher = "other"  # type: ignore[misc]


def test_urls_are_accepted_as_text_or_as_client_objects() -> None:
    selector = fetchwise.Selector()

    class Address:
        def __str__(self) -> str:
            return "https://example.org/"

    assert selector.select(Address()).fetcher == "direct_access"
    for bad in ["", "nonsense", "ftp://example.org/", "http://", None, b"https://example.org/", "https://" + "a" * 70_000]:
        with pytest.raises(fetchwise.UrlError):
            selector.select(bad)
    assert issubclass(fetchwise.UrlError, ValueError)


def test_invalid_settings_raise() -> None:
    with pytest.raises(fetchwise.ConfigError, match="nobody"):
        fetchwise.Selector().select("https://example.org/", prefer="nobody")
    with pytest.raises(fetchwise.ConfigError):
        fetchwise.Selector(policy="best")
    with pytest.raises(fetchwise.ConfigError):
        fetchwise.Selector(half_life_days=0.1)
    with pytest.raises(ValueError, match="empty"):
        fetchwise.Selector().select("https://example.org/", hint="emty")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        fetchwise.Selector(fetchers=[3])  # type: ignore[list-item]


def test_a_config_file(tmp_path: Any) -> None:
    file = tmp_path / "fetchwise.toml"
    file.write_text("[http]\ntimeout = '7s'\n[tuning]\nprobe_timeout = '2s'\n[backoff]\nescalate_after_block = false\n")
    selector = fetchwise.Selector(config=file)
    visit = selector.visit("https://example.org/")
    step = visit.next()
    assert step is not None and step.deadline == 2.0
    visit.report(step, "blocked_403")
    assert visit.next() is None and visit.end is not None and visit.end.requests == 1
    file.write_text("[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'mine'\nclass = 'rendering'\ncost = 7.5\n")
    fetchers = fetchwise.Selector(config=file).fetchers
    assert [(f.name, f.cost, f.renders) for f in fetchers] == [("direct_access", 1.0, False), ("mine", 7.5, True)]
    file.write_text("[[fetcher]]\nnam = 'direct_access'\n")
    with pytest.raises(fetchwise.ConfigError, match="nam"):
        fetchwise.Selector(config=file)
