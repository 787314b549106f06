"""Python and the program use one library: the same attempts make the same log and the same explanations."""

from __future__ import annotations

import io
import json
import pathlib
import time
from typing import Any

import pytest
from conftest import Program
from random_attempts import attempts

import fetchwise

COUNT = 10_000
URLS = [
    "https://site3.example/news/1",
    "https://site7.example/a.pdf",
    "https://news.example.co.uk/2026/p",
    "https://docs.example.org/",
    "https://never-seen.example/",
]


def same(one: Any, other: Any) -> bool:
    """Returns whether two explanations are equal except for the last digits of decaying numbers, computed seconds
    apart.
    """
    if isinstance(one, float) and isinstance(other, (float, int)):
        return one == pytest.approx(other, rel=1e-3, abs=1e-6)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        keys = (set(one) | set(other)) - {"available"}
        return all(key in one and key in other and same(one[key], other[key]) for key in keys)
    return bool(one == other)


def explained(program: Program, data: pathlib.Path, url: str, now: str) -> Any:
    return program.json("--now", now, "explain", "--all-fetchers", url, data=data)


def test_recorded_and_imported(program: Program, tmp_path: pathlib.Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    newest = time.time() - 60
    with fetchwise.Journal(ours) as journal:
        selector = fetchwise.Selector(journal=journal)
        for attempt in attempts(COUNT, seed=7, newest=newest):
            selector.record(attempt)
        text = io.StringIO()
        assert fetchwise.export_attempts(journal, text) == COUNT
        file = tmp_path / "lines.jsonl"
        assert fetchwise.export_attempts(journal, file) == COUNT and file.read_text() == text.getvalue()
        with pytest.raises(fetchwise.LogError, match="nowhere"):
            fetchwise.export_attempts(tmp_path / "nowhere", tmp_path / "none.jsonl")
        assert not (tmp_path / "none.jsonl").exists(), "an export that cannot begin leaves no file"
        live = {url: selector.explain(url).to_dict() for url in URLS}
    lines = text.getvalue()
    theirs.mkdir()
    summary = json.loads(program.run("--json", "import", "-", data=theirs, stdin=lines))
    assert (summary["imported"], summary["failed"], summary["duplicates"]) == (COUNT, 0, 0)
    # The logs are equal.
    assert program.run("export", data=ours) == lines
    assert program.run("export", data=theirs) == lines
    # Both give the same evidence, to the last digit, at one time.
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    for url in URLS:
        one, other = explained(program, ours, url, now), explained(program, theirs, url, now)
        assert one == other
        # The evidence observed live in this process is equal, too.
        for part in ("heuristics", "candidates", "steps", "counterfactuals", "host_showed"):
            assert same(live[url][part], one[part]), (url, part)
        assert (live[url]["fetcher"], live[url]["decision"]) == (one["fetcher"], one["decision"])
    # Python starts from the log.
    with fetchwise.Selector(journal=theirs) as again:
        for url in URLS:
            assert same(again.explain(url).to_dict()["steps"], live[url]["steps"])


def test_both_importers_agree(program: Program, tmp_path: pathlib.Path) -> None:
    lines = [attempt.to_json() for attempt in attempts(2_000, seed=11, newest=time.time() - 60)]
    lines += ["", "nonsense", '{"url": "https://example.org/"}', lines[5], '{"url": "x", "success": true}']
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    theirs.mkdir()
    text = "\n".join(lines) + "\n"
    with fetchwise.Journal(ours) as journal:
        selector = fetchwise.Selector(journal=journal)
        counts = fetchwise.import_attempts(io.BytesIO(text.encode()), journal, selector=selector)
        learned = selector.masses("domain", "site3.example", "playwright")
        again = fetchwise.import_attempts(lines[:100], journal)
    assert (again["imported"], again["duplicates"]) == (0, 100)
    file = tmp_path / "lines.jsonl"
    file.write_text(text)
    import subprocess

    command = [str(program.path), "--data-dir", str(theirs), "--json", "import", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    summary = json.loads(done.stdout)
    for field in ("imported", "duplicates", "failed", "clamped"):
        assert counts[field] == summary[field], field
    assert [line for line, _ in counts["errors"]] == [error["line"] for error in summary["errors"]]
    assert [why for _, why in counts["errors"]] == [error["error"] for error in summary["errors"]]
    assert program.run("export", data=ours) == program.run("export", data=theirs)
    with fetchwise.Selector(journal=ours) as started:
        assert started.masses("domain", "site3.example", "playwright") == pytest.approx(learned, rel=1e-3)


def test_dicts_are_the_lines_of_import() -> None:
    for attempt in attempts(500, seed=3, newest=time.time() - 60):
        assert fetchwise.Attempt.from_dict(attempt.to_dict()) == attempt
        assert fetchwise.Attempt.from_json(attempt.to_json()) == attempt
        assert "set-cookie" not in {name.lower() for name in attempt.to_dict()["response_headers"]}
    with pytest.raises(ValueError, match="attempted_at"):
        fetchwise.Attempt.from_dict({"url": "https://example.org/", "fetcher": "x", "success": True})


def test_an_explanation_is_the_text_of_the_program_and_has_a_form_for_notebooks(program: Program, tmp_path: pathlib.Path) -> None:
    config = tmp_path / "fetchwise.toml"
    config.write_text("[[fetcher]]\nname = 'direct_access'\n[[fetcher]]\nname = 'playwright'\n")
    url = "https://shop.example/list?a=<b>&c=1"
    with fetchwise.Selector(config=config, journal=tmp_path / "data") as selector:
        # More than a decision needs: at its threshold, the age of a second decides.
        for n in range(24):
            attempt = fetchwise.Attempt(f"https://shop.example/item/{n}", ["direct_access", "playwright"][n % 2])
            selector.record(attempt.delivered() if n % 2 else attempt.failed("wrong_tool"))
        explanation = selector.explain(url)
    printed = program.run("explain", url, "--config", str(config), "--all-fetchers", data=tmp_path / "data")
    assert str(explanation) == printed.split("\n\n--full")[0]
    lines = str(explanation).splitlines()
    assert lines[2].startswith("playwright  ") and [line[:5] for line in lines[3:]] == ["  1. ", "  2. ", "  3. "]
    html = explanation._repr_html_()
    assert "<b>playwright</b>" in html and html.count("<li>") == 3 and "<td>direct_access</td>" in html
    assert "a=&lt;b&gt;&amp;c=1" in html
