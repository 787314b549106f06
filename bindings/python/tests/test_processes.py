"""Processes that end, are killed, or fork: acknowledged records are on disk afterwards, and nothing hangs."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys

import pytest
from conftest import HERE, python

import fetchwise

RECORD = """
import sys, fetchwise
journal = fetchwise.Journal(sys.argv[1])
selector = fetchwise.Selector(journal=journal)
for n in range(int(sys.argv[2])):
    selector.record(fetchwise.Attempt(f"https://example.org/{n}", "playwright").delivered())
"""


def attempts_in(folder: pathlib.Path) -> int:
    with fetchwise.Journal(folder) as journal:
        verified = journal.verify()
    assert verified["sound"]
    return int(verified["attempts"])


@pytest.mark.parametrize(
    "end",
    [
        "",
        # These are never dropped: the interpreter does not clear builtins.
        "import builtins; builtins.kept = (journal, selector)",
        "raise SystemExit(0)",
        "import atexit; atexit.register(lambda: selector.record(fetchwise.Attempt('https://e.org/', 'playwright').delivered()))",
        # A thread of the caller runs as long as there is an interpreter.
        "import threading; threading.Thread(target=lambda: [selector.select('https://e.org/') for _ in iter(int, 1)], daemon=True).start()",
    ],
)
def test_the_end_of_the_interpreter_loses_nothing(tmp_path: pathlib.Path, end: str) -> None:
    count = 50_000
    done = python(RECORD + end, str(tmp_path), str(count))
    assert done.returncode == 0, done.stderr
    assert attempts_in(tmp_path) == count + ("atexit" in end)


def test_kill_loses_nothing_that_was_settled(tmp_path: pathlib.Path) -> None:
    code = RECORD + "journal.settled()\nprint('settled', flush=True)\nwhile True:\n"
    code += "    selector.record(fetchwise.Attempt('https://example.org/', 'playwright').delivered())\n"
    child = subprocess.Popen(
        [sys.executable, "-c", code, str(tmp_path), "20000"], stdout=subprocess.PIPE, text=True, cwd=HERE
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "settled\n"
    child.send_signal(signal.SIGKILL)
    child.wait(timeout=30)
    assert attempts_in(tmp_path) >= 20_000


def test_a_second_writer_gets_the_pid_of_the_first(tmp_path: pathlib.Path) -> None:
    code = "import sys, fetchwise\njournal = fetchwise.Journal(sys.argv[1])\nprint('open', flush=True)\nsys.stdin.read()"
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=HERE) as child:
        assert child.stdout is not None and child.stdin is not None
        assert child.stdout.readline() == "open\n"
        with pytest.raises(fetchwise.LockedError) as caught:
            fetchwise.Selector(journal=tmp_path)
        assert caught.value.pid == child.pid and caught.value.is_refusal
        child.stdin.close()
        assert child.wait(timeout=30) == 0
    assert attempts_in(tmp_path) == 0


FORK = """
import os, sys, fetchwise
journal = fetchwise.Journal(sys.argv[1])
selector = fetchwise.Selector(journal=journal)
alone = fetchwise.Selector()
attempt = fetchwise.Attempt("https://example.org/", "playwright").delivered()
selector.record(attempt)
alone.record(attempt)
visit = selector.visit("https://example.org/other")
step = visit.next()
child = os.fork()
if child == 0:
    refused = 0
    for use in (journal.flush, journal.settled, journal.metrics, journal.verify, lambda: selector.record(attempt),
                lambda: visit.report(step, "content"), lambda: selector.visit("https://example.org/"),
                lambda: selector.forget(domain="example.org")):
        try:
            use()
        except fetchwise.ForkedError:
            refused += 1
    assert refused == 8, refused
    # What needs no log works on.
    assert selector.select("https://example.org/") and selector.explain("https://example.org/").fetcher
    alone.record(attempt)
    assert alone.masses("domain", "example.org", "playwright")["attempts"] == 2
    assert fetchwise.Detector().classify(b"x" * 5000)
    journal.close()
    # A separate one, in a separate directory.
    with fetchwise.Selector(journal=sys.argv[1] + "-child") as own:
        own.record(attempt)
    del visit, step, selector, journal
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
visit.report(step, "content")
selector.record(attempt)
journal.settled()
assert journal.metrics()["appended"] >= 3
"""


def test_a_forked_child_is_refused_and_ends(tmp_path: pathlib.Path) -> None:
    folder = tmp_path / "data"
    done = python(FORK, str(folder), timeout=60)
    assert done.returncode == 0, done.stderr
    assert attempts_in(folder) == 3
    assert attempts_in(pathlib.Path(f"{folder}-child")) == 1


FORKED_WITH_EVICTED = """
import os, sys, fetchwise
sites = range(3000)
def bounded(journal):
    return fetchwise.Selector(journal=journal, max_keys=50)
def knows_all(selector):
    return all(selector.masses("domain", f"site{n}.example", "playwright")["attempts"] == 1 for n in sites)
journal = fetchwise.Journal(sys.argv[1])
selector = bounded(journal)
for n in sites:
    selector.record(fetchwise.Attempt(f"https://site{n}.example/", "playwright").delivered())
assert knows_all(selector)
child = os.fork()
if child == 0:
    # The files are the parent's: the child decides by what it has in memory, and removes none.
    for n in sites:
        assert selector.select(f"https://site{n}.example/") and selector.explain(f"https://site{n}.example/")
    del selector, journal
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
assert knows_all(selector)
del selector
journal.close()
again = bounded(sys.argv[1])
assert knows_all(again)
again.close()
"""


def test_evidence_that_left_memory_is_kept_on_disk_and_outlives_a_forked_child(tmp_path: pathlib.Path) -> None:
    done = python(FORKED_WITH_EVICTED, str(tmp_path), timeout=60)
    assert done.returncode == 0, done.stderr
    assert attempts_in(tmp_path) == 3000
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("cold-")] == ["cold-checkpoint"]


FORKED_ASYNC = """
import asyncio, os, sys, fetchwise
async def settle(folder):
    with fetchwise.Journal(folder) as journal:
        fetchwise.Selector(journal=journal).record(fetchwise.Attempt("https://example.org/", "x").delivered())
        await asyncio.wait_for(journal.flush_async(), 20)
asyncio.run(settle(sys.argv[1]))
child = os.fork()
asyncio.run(settle(sys.argv[1] + ("-child" if child == 0 else "-parent")))
if child:
    assert os.waitpid(child, 0)[1] == 0
"""


def test_futures_work_after_a_fork(tmp_path: pathlib.Path) -> None:
    done = python(FORKED_ASYNC, str(tmp_path / "data"), timeout=60)
    assert done.returncode == 0, done.stderr


SUBINTERPRETER = """
import fetchwise
try:
    import _interpreters as interpreters
except ImportError:
    import _xxsubinterpreters as interpreters
import sys
other = interpreters.create()
try:
    said = interpreters.run_string(other, "import fetchwise")
    print(getattr(said, "formatted", said))
except Exception as error:
    print(error)
"""


def test_subinterpreters_are_refused_with_a_reason() -> None:
    done = python(SUBINTERPRETER)
    assert done.returncode == 0, done.stderr
    assert "ImportError" in done.stdout and "subinterpreter" in done.stdout, done.stdout


def test_import_loads_no_other_packages() -> None:
    code = "import sys; before = set(sys.modules); import fetchwise; print(*sorted(set(sys.modules) - before))"
    done = python(code)
    names = {name.split(".")[0] for name in done.stdout.split()}
    assert names - {"fetchwise"} <= set(sys.stdlib_module_names), names
    assert not names & {"asyncio", "ssl", "dataclasses", "typing"}, names
