"""Runs the queries of docs/guides/analysis.md on its exports, and compares DuckDB's results with those of pandas.

The exports are a Parquet file and a CSV file, which every build can write; both have the same answers.

    .ci/analysis.py PROGRAM        (needs duckdb, pandas and pyarrow)
"""

import datetime
import json
import os
import pathlib
import re
import sqlite3
import subprocess
import sys
import tempfile

import duckdb
import pandas as pd

GUIDE = pathlib.Path(__file__).parent.parent / "docs/guides/analysis.md"


def attempts(now):
    """Two weeks of three sites: one that needs a browser, one that begins to block, one with dead links."""
    for hour in range(14 * 24):
        at = now - datetime.timedelta(hours=hour, minutes=1)

        def line(site, fetcher, error=None, try_no=1, second=0):
            return {
                "url": f"https://www.{site}/{hour}",
                "fetcher": fetcher,
                "success": error is None,
                "error_type": error,
                "try_no": try_no,
                "attempted_at": (at + datetime.timedelta(seconds=second)).isoformat(),
            }

        yield line("app.example", "direct_access", "wrong_tool")
        yield line("app.example", "playwright", try_no=2, second=1)
        yield line("shop.example", "direct_access", "blocked_403" if hour < 6 * 24 else None)
        yield line("blog.example", "direct_access", "not_found" if hour % 10 == 0 else None)


def rows(result):
    """The cells of a result, with rounded numbers and without the names of its columns."""
    frame = result.reset_index() if result.index.name else result
    return [[round(float(cell), 6) if isinstance(cell, (int, float)) or hasattr(cell, "item") else cell for cell in row]
            for row in frame.values.tolist()]


def main(program):
    # The program takes these for settings.
    for name in [name for name in os.environ if name.startswith("FETCHWISE_")]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        log = ["--data-dir", str(folder / "log")]
        now = datetime.datetime.now(datetime.timezone.utc)
        lines = "".join(json.dumps(line) + "\n" for line in attempts(now))
        subprocess.run([program, *log, "import", "-"], input=lines, text=True, check=True, stdout=subprocess.DEVNULL)
        # The commands and the readers of the guide, as they are there.
        text = GUIDE.read_text()
        for file, *limits in re.findall(r"^    fetchwise export -o (attempts\.\w+)(?: (--since) (\w+))?$", text, re.M):
            subprocess.run([program, *log, "export", "-o", file, *filter(None, limits)], check=True, cwd=folder, stdout=subprocess.DEVNULL)
        os.chdir(folder)
        reader = lambda of: re.search(rf"`(?:attempts = )?(pd\.{of}\(.*?\))`", text).group(1)
        db = sqlite3.connect("attempts.db")
        tables = {of: eval(reader(of), {"pd": pd, "db": db}) for of in ("read_parquet", "read_csv", "read_sql")}
        db.close()
        for of, table in tables.items():
            times = table.attempted_at
            # SQLite has another order.
            assert str(times.dt.tz) == "UTC" and sorted(times) == sorted(tables["read_parquet"].attempted_at), f"{of}: {times}"
        queries = re.findall(r"```sql\n(.*?)```", text, re.S)
        programs = re.findall(r"```python\n(.*?)```", text, re.S)
        assert len(queries) == len(programs) == 4, "the guide has four questions"
        answers = []
        for query, source in zip(queries, programs):
            assert "'attempts.parquet'" in query, query
            found = []
            for file, of in (("attempts.parquet", "read_parquet"), ("attempts.csv", "read_csv")):
                scope = {"pd": pd, "attempts": tables[of]}
                exec(source, scope)
                by_duckdb = duckdb.sql(query.replace("attempts.parquet", file)).df()
                columns = len(by_duckdb.columns)
                # pandas names the columns of a pivot in the order of the alphabet.
                by_pandas = scope["result"]
                if {"before", "after"} <= set(by_pandas.columns):
                    by_pandas = by_pandas[["before", "after"]]
                by_pandas = [row[:columns] for row in rows(by_pandas)]
                assert rows(by_duckdb) == by_pandas, f"{file}: {query}\nDuckDB: {rows(by_duckdb)}\npandas: {by_pandas}"
                found.append(by_pandas)
            assert found[0] == found[1], f"{query}\nParquet: {found[0]}\nCSV: {found[1]}"
            answers.append(found[0])
        cost, browser, blocked, changed = answers
        assert cost[0][0] == "app.example" and cost[0][3] == 21, cost
        spent, stats = browser[0][0], subprocess.run([program, *log, "stats", "--json"], capture_output=True, text=True, check=True)
        figures = json.loads(stats.stdout)
        assert [spent, browser[0][1]] == [figures["cost"], figures["browser_only_cost"]], (browser, figures)
        assert [row[0] for row in blocked] == ["shop.example"], blocked
        assert changed[0][0] == "shop.example" and changed[0][1] > changed[0][2], changed
        os.chdir("/")
    print("the four questions of docs/guides/analysis.md have the same answers in DuckDB and in pandas, from Parquet and from CSV")


main(os.path.abspath(sys.argv[1]))
