"""What type checkers find out: the guide's programs pass strict checks, and steps and decisions narrow."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest
from conftest import HERE, REPOSITORY

GUIDE = REPOSITORY / "docs" / "guides" / "python.md"

# What the guide's excerpts take from the programs around them.
PRELUDE = """
import fetchwise
import httpx

selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])
clients: dict[str, httpx.Client] = {}
url, body, headers = "https://example.org/", b"", {"content-type": "text/html"}
"""

NARROWS = """
from typing import assert_never, assert_type

import fetchwise

selector = fetchwise.Selector()
visit = selector.visit("https://example.org/")
while step := visit.next():
    match step:
        case fetchwise.WaitStep(reason):
            assert_type(step.seconds, float)
            visit.give_up(step)
        case fetchwise.FetchStep(fetcher):
            assert_type(fetcher, str)
            assert_type(step.fetcher, str)
            assert_type(step.deadline, float)
            assert_type(step.decision, fetchwise.Take)
            visit.report(step, "content")
        case _:
            assert_never(step)

decision = selector.select("https://example.org/")
assert_type(decision.fetcher, str | None)
if decision:
    assert_type(decision.fetcher, str)
match decision:
    case fetchwise.Take(fetcher):
        assert_type(fetcher, str)
        assert_type(decision.confidence, float)
    case fetchwise.Paused(until):
        assert_type(until, float)
    case fetchwise.GiveUp() | fetchwise.NoViableFetcher():
        assert_type(decision.fetcher, None)
    case _:
        assert_never(decision)
if decision.kind == "take":
    assert_type(decision.fetcher, str)
elif decision.kind == "paused":
    assert_type(decision.paused_until, float)
"""

WRONG = """
import fetchwise

step = fetchwise.Selector().visit("https://example.org/").next()
assert step is not None
print(step.fetcher)
"""


def programs() -> dict[str, str]:
    """Returns the guide's programs by the line at which each begins."""
    text, found = GUIDE.read_text(), {}
    for block in re.finditer(r"```python\n(.*?)```", text, re.DOTALL):
        code = block[1]
        if "visit.next()" in code or "select" in code or "asyncio.run" in code:
            if "predictor" in code:
                continue
            is_whole = code.startswith("import")
            found[str(text.count("\n", 0, block.start()) + 1)] = code if is_whole else PRELUDE + code
    return found


def mypy(file: pathlib.Path) -> subprocess.CompletedProcess[str]:
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--python-version", "3.11", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=file.parent)


def pyright(file: pathlib.Path) -> subprocess.CompletedProcess[str]:
    if importlib.util.find_spec("pyright") is None:
        pytest.skip("there is no pyright")
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, cwd=file.parent)


CHECKERS = pytest.mark.parametrize("check", [mypy, pyright])


@CHECKERS
def test_the_guides_programs_pass(check, tmp_path: pathlib.Path) -> None:  # type: ignore[no-untyped-def]
    pytest.importorskip("httpx")
    assert len(programs()) >= 3
    for line, code in programs().items():
        file = tmp_path / f"line_{line}.py"
        if "detector" in code and "detector =" not in code:
            code = code.replace("selector = fetchwise", "detector = fetchwise.Detector()\nselector = fetchwise", 1)
        file.write_text(code)
        done = check(file)
        assert done.returncode == 0, f"{GUIDE}:{line}\n{done.stdout}{done.stderr}"


@CHECKERS
def test_steps_and_decisions_narrow(check, tmp_path: pathlib.Path) -> None:  # type: ignore[no-untyped-def]
    (tmp_path / "narrows.py").write_text(NARROWS)
    done = check(tmp_path / "narrows.py")
    assert done.returncode == 0, done.stdout + done.stderr
    (tmp_path / "wrong.py").write_text(WRONG)
    done = check(tmp_path / "wrong.py")
    assert done.returncode == 1 and "fetcher" in done.stdout, done.stdout + done.stderr


def test_the_stub_has_the_docstrings_of_the_module() -> None:
    import fetchwise

    script = HERE.parent / "stub_docs.py"
    spec = importlib.util.spec_from_file_location("stub_docs", script)
    assert spec is not None and spec.loader is not None
    stub_docs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(stub_docs)
    stub = pathlib.Path(fetchwise.__file__).with_name("_fetchwise.pyi").read_text()
    assert stub_docs.problems(stub) == [], "write them with bindings/python/stub_docs.py"
    assert stub_docs.written(stub) == stub
    # It notices a docstring that is gone, and one that says something else.
    assert stub_docs.problems(stub.replace("The address to request.", "The address.")) != []
