"""Crawlee's adaptive crawler with fetchwise's predictor and with its own, with a real browser and a site that counts.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from conftest import HERE

pytest.importorskip("crawlee")
pytest.importorskip("sklearn")

CHROMIUM = os.environ.get("FETCHWISE_CHROMIUM") or shutil.which("chromium") or "/usr/bin/chromium"


def test_fewer_renders_and_fewer_wrong_pages() -> None:
    example = HERE.parent / "examples" / "crawlee_compare.py"
    done = subprocess.run(
        [sys.executable, str(example), "--json", "--chromium", CHROMIUM],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    own, own_again, first, again = json.loads(done.stdout).values()
    for row in (first, again):
        assert row["pages"] == 30 and row["wrong"] == 0
    # Fewer requests, before and after a restart. After it, nothing is fetched twice except to explore a cheaper
    # fetcher.
    assert first["requests"] < own["requests"] or own["wrong"] > 0
    assert again["twice"] <= first["twice"] and again["twice"] <= 2
    assert first["wrong"] + again["wrong"] <= own["wrong"] + own_again["wrong"]
