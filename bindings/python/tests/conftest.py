"""Shared parts of the tests. They run against the installed package, never against the sources next to them."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import pytest

import fetchwise

HERE = pathlib.Path(__file__).resolve().parent
REPOSITORY = HERE.parent.parent.parent

sys.path.insert(0, str(HERE))

assert not pathlib.Path(fetchwise.__file__).is_relative_to(HERE.parent / "src"), (
    f"the tests are about the installed package, and this is the source: {fetchwise.__file__}"
)


class Program:
    """The program `fetchwise`, for comparisons with the package."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    def run(self, *args: str, data: pathlib.Path, stdin: str | None = None) -> str:
        command = [str(self.path), "--data-dir", str(data), *args]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300, check=False)
        assert done.returncode == 0, f"{command}: {done.stderr}"
        return done.stdout

    def json(self, *args: str, data: pathlib.Path) -> Any:
        return json.loads(self.run("--json", *args, data=data))


@pytest.fixture(scope="session")
def program() -> Program:
    """Returns $FETCHWISE_PROGRAM, or the program that the repository has built."""
    named = os.environ.get("FETCHWISE_PROGRAM")
    path = pathlib.Path(named) if named else REPOSITORY / "target" / "debug" / "fetchwise"
    if not path.exists():
        pytest.fail(f"there is no program at {path}: cargo build -p fetchwise-cli, or set FETCHWISE_PROGRAM")
    return Program(path)


def python(code: str, *args: str, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Runs `code` in a separate interpreter, outside of any folder with a package in it."""
    command = [sys.executable, "-c", code, *args]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False, cwd=HERE)
