#!/usr/bin/env python3
"""Crawlers on the same testbed, one after the other, each set up by its own documentation.

    lab/peers/run.py --fetchwise target/dist/fetchwise --kept DIR [--pages N] [--seed N] [--seconds N] [--only NAME ...] [--write docs/reports/peers.md]

Needs Scrapy, scrapy-playwright and Crawlee in the Python that runs this, and npm's crawlee and playwright below --node.
Missing ones are reported and skipped. The testbed counts good, wrong, blocked and rendered pages. Each ledger is kept
as a file: one crawler can run again, and the tables still have all of them, if pages and seed are the same.
"""

import argparse
import datetime
import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
#: What a crawler may take beyond its time, to hand in what it has.
GRACE = 60


def peers(args: argparse.Namespace) -> dict[str, tuple[list[str], str | None]]:
    """Returns the commands, and the reason if one cannot run."""

    def python(module: str, *command: str) -> tuple[list[str], str | None]:
        missing = None if importlib.util.find_spec(module) else f"pip install {module}"
        return [sys.executable, *command], missing

    node = args.node and os.path.isdir(os.path.join(args.node, "node_modules", "crawlee"))
    crawlee = None if node else "npm install crawlee playwright"
    spider = None if args.spider and os.path.exists(args.spider) else "cargo build --release --manifest-path lab/peers/spider/Cargo.toml"
    return {
        "fetchwise": ([sys.executable, "fetchwise_testbed.py"], None),
        "fetchwise, --wait 0": ([sys.executable, "fetchwise_testbed.py", "--wait", "0"], None),
        "Scrapy": python("scrapy", "scrapy_testbed.py"),
        "Scrapy, every page by scrapy-playwright": python("scrapy_playwright", "scrapy_testbed.py", "playwright"),
        "Crawlee for Python, adaptive": python("crawlee", "crawlee_testbed.py"),
        "Crawlee, adaptive": (["node", "crawlee_testbed.mjs"], crawlee),
        "spider, smart": ([args.spider], spider),
    }


def circumstances() -> dict[str, str]:
    """Returns the time, the load and the commit of a run."""

    def git(*command: str) -> str:
        return subprocess.run(["git", *command], cwd=HERE, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "../../src", "../../log", "../../crates", "../../lab")
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "load": ", ".join(f"{load:.2f}" for load in os.getloadavg()),
        "commit": (git("rev-parse", "--short=12", "HEAD") or "unknown") + (", with changes that are not committed" if changed else ""),
    }


def crawl(args: argparse.Namespace, name: str, command: list[str]) -> dict:
    """Returns one crawler's ledger and time, and the circumstances when it began."""
    at_start = circumstances()
    with tempfile.TemporaryDirectory() as place:
        testbed_command = [args.lab, "testbed", "--json", "--pages", str(args.pages), "--seed", str(args.seed)]
        with subprocess.Popen(testbed_command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as testbed:
            try:
                assert testbed.stdout
                where = json.loads(testbed.stdout.readline())
                environment = os.environ | {
                    "LINKS": where["links"],
                    "PAGES": where["pages"],
                    "FETCHWISE": args.fetchwise,
                    "SECONDS": str(args.seconds),
                    "CHROMIUM": args.chromium,
                    "CHROME_BIN": args.chromium,
                    "CRAWLEE_STORAGE_DIR": place,
                    "PYTHONPATH": HERE,
                }
                run = list(command)
                if len(run) > 1:
                    # Node looks for modules next to the script.
                    run[1] = os.path.join(args.node if run[1].endswith(".mjs") else HERE, run[1])
                    if run[1].endswith(".mjs"):
                        shutil.copy(os.path.join(HERE, command[1]), run[1])
                begun = time.monotonic()
                patience = args.seconds + GRACE
                try:
                    ended = subprocess.run(run, env=environment, cwd=place, timeout=patience, check=False, capture_output=True, text=True)
                    code, said = ended.returncode, ended.stderr
                except subprocess.TimeoutExpired:
                    code, said = None, f"not done after {patience} s"
                seconds = time.monotonic() - begun
            finally:
                testbed.send_signal(signal.SIGTERM)
            ledger = json.loads(testbed.stdout.read())
    if code != 0:
        print(f"{name} ended with {code}: {said[-2000:]}", file=sys.stderr)
    return {"seconds": seconds, "code": code, "at_start": at_start, **ledger}


def row(name: str, found: dict) -> str:
    total = found["total"]
    per_hundred = total["good"] * 100 / total["cost"] if total["cost"] else 0.0
    counts = [total[figure] for figure in ("good", "wrong", "blocked", "renders", "requests", "cost")]
    return f"| {name} | " + " | ".join(str(count) for count in counts) + f" | {per_hundred:.1f} | {found['seconds']:.0f} |"


def runs(found: dict[str, dict]) -> list[str]:
    lines = ["| crawler | began | load at the start | commit |", "|---|---|---|---|"]
    for name, one in found.items():
        at_start = one.get("at_start", {})
        lines.append(f"| {name} | " + " | ".join(at_start.get(key, "unknown") for key in ("date", "load", "commit")) + " |")
    return lines


def by_kind(found: dict[str, dict]) -> list[str]:
    names = list(found)
    kinds = found[names[0]]["kinds"]
    lines = ["| kind | listed | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for kind, score in kinds.items():
        cells = [f"{one['kinds'][kind]['good']}, {one['kinds'][kind]['wrong']}" for one in found.values()]
        lines.append(f"| {kind} | {score['listed']} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetchwise", required=True, type=os.path.abspath, help="the program")
    parser.add_argument("--lab", type=os.path.abspath, help="the program of the testbed (fetchwise-lab next to the other one)")
    parser.add_argument("--pages", type=int, default=30, help="pages of each site (30)")
    parser.add_argument("--seed", type=int, default=1, help="which pages (1)")
    parser.add_argument("--seconds", type=int, default=600, help="what came after so long counts no more (600)")
    parser.add_argument("--only", nargs="+", help="only these crawlers")
    parser.add_argument("--node", type=os.path.abspath, help="where npm's crawlee is")
    parser.add_argument("--spider", type=os.path.abspath, help="the program of lab/peers/spider")
    parser.add_argument("--kept", required=True, type=os.path.abspath, help="where the ledgers are kept")
    parser.add_argument("--chromium", default=shutil.which("chromium") or "chromium", help="the browser for all")
    parser.add_argument("--write", help="put the tables into this page, between its marks")
    args = parser.parse_args()
    args.lab = args.lab or os.path.join(os.path.dirname(args.fetchwise), "fetchwise-lab")
    found = {}
    os.makedirs(args.kept, exist_ok=True)
    for name, (command, missing) in peers(args).items():
        kept = os.path.join(args.kept, f"{name}, {args.pages} pages, seed {args.seed}.json")
        if args.only and name not in args.only:
            if os.path.exists(kept):
                with open(kept) as file:
                    found[name] = json.load(file)
            continue
        if missing:
            print(f"{name} is left out: {missing}", file=sys.stderr)
            continue
        print(f"{name} ...", file=sys.stderr)
        found[name] = crawl(args, name, command)
        with open(kept, "w") as file:
            json.dump(found[name], file)
    head = ["| crawler | good | wrong | blocked | renders | requests | cost | good for 100 | seconds |", "|---|---|---|---|---|---|---|---|---|"]
    servable = next(iter(found.values()))["total"]["servable"]
    text = "\n".join(
        [f"`make peers`, {args.pages} pages of each site, seed {args.seed}, at most {args.seconds} s each: {servable} pages are available.", ""]
        + head
        + [row(name, one) for name, one in found.items()]
        + ["", "Good and wrong pages by kind of site:", ""]
        + by_kind(found)
        + ["", "When each ran:", ""]
        + runs(found)
    )
    print(text)
    if args.write:
        with open(args.write) as page:
            before, rest = page.read().split("<!-- measured -->\n", 1)
        after = rest.split("<!-- end -->", 1)[1]
        with open(args.write, "w") as page:
            page.write(f"{before}<!-- measured -->\n{text}\n<!-- end -->{after}")


main()
