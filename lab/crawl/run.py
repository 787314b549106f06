#!/usr/bin/env python3
"""Crawls ten sites of the testbed with one `fetchwise fetch`, and compares its time with the time that the limits of the sites force.

    lab/crawl/run.py --fetchwise target/dist/fetchwise [--pages N] [--seed N] [--wait TIME] [--write docs/reports/crawl.md]

Owns: the command of the crawl, the times, and the goal. Invariants: the testbed decides which pages are good, and the clock of this
script decides when a result came. Must not know: how fetchwise paces a host.

The time of the crawl ends with the last delivered page. A wait after that is for hosts that let nobody in, and it is printed apart. Ends
with 1 if pages are left that a plain client or a browser gets, or if the crawl took more than twice the forced time. Where the
processors were busy all the time, only the sites with a limit count for that.
"""

import argparse
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import tomllib
import urllib.parse
import urllib.request

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "peers"))
from hand_in import Pages, links  # noqa: E402

#: Pages per second that the limit of a kind allows (docs/guides/testbed.md documents the kinds). Kinds without a limit force no time.
LIMITS = {"limited": 40 / 10}
#: Kinds whose pages no fetcher of a plain installation gets, and kinds that have none.
LETS_NOBODY_IN = {"cloudflare", "datadome", "forbidden"}
EMPTY = {"gone"}
#: The largest share of the forced time that meets the goal.
MAX_RATIO = 2.0
#: The share of the processors' time from which on the browser, and no host, decides how long the sites without a limit take.
MIN_BUSY = 0.9
BEGIN, END = "<!-- measured -->", "<!-- end -->"


def kinds_by_host(sites: pathlib.Path, listed: list[str]) -> dict[str, str]:
    """The kind of each host: the first links of the list are one page of each site, in the order of the plan."""
    with open(sites, "rb") as file:
        plans = tomllib.load(file)["site"]
    kinds = [plan["kind"] for plan in plans for _ in range(plan.get("count", 1))]
    return dict(zip((urllib.parse.urlsplit(link).hostname for link in listed), kinds))


def fetch(args: argparse.Namespace, place: str) -> tuple[list[tuple[float, dict]], float, int, str]:
    """Runs the crawl. Returns its results with the second in which each came, how long it took, its exit code and its stderr."""
    command = [args.fetchwise, "--data-dir", os.path.join(place, "data"), "fetch", "--json", "--input", os.path.join(place, "links.txt")]
    command += ["--out", os.path.join(place, "pages"), "--allow-network", "127.0.0.0/8"]
    if args.wait:
        command += ["--wait", args.wait]
    results = []
    with open(os.path.join(place, "stderr"), "w+") as said:
        begun = time.monotonic()
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=said, cwd=place, text=True) as crawl:
            for line in crawl.stdout:
                results.append((time.monotonic() - begun, json.loads(line)))
                if len(results) % 50 == 0:
                    print(f"  {time.monotonic() - begun:6.1f} s  {len(results)} results", file=sys.stderr, flush=True)
            code = crawl.wait()
        took = time.monotonic() - begun
        said.seek(0)
        return results, took, code, said.read()


def processor_ticks() -> tuple[int, int]:
    """The time that all processors were busy so far, and idle; in the kernel's ticks."""
    with open("/proc/stat") as file:
        user, nice, system, idle, waiting, *interrupts = map(int, file.readline().split()[1:])
    return user + nice + system + sum(interrupts[:3]), idle + waiting


def table(ledger: dict, kinds: dict[str, str], results: list[tuple[float, dict]]) -> list[str]:
    """One row per host: what it has, what came, and when."""
    lines = [
        "| kind | listed | good | requests | refused | renders | forced, s | last page after, s |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for host, kind in kinds.items():
        pages = [at for at, result in results if result["success"] and urllib.parse.urlsplit(result["url"]).hostname == host]
        score = ledger["kinds"][kind]
        forced = f"{score['listed'] / LIMITS[kind]:.0f}" if kind in LIMITS else ""
        last = f"{max(pages):.1f}" if pages else ""
        cells = [kind, *(score[name] for name in ("listed", "good", "requests", "blocked", "renders")), forced, last]
        lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    return lines


def kind_of(kinds: dict[str, str], result: dict) -> str:
    return kinds.get(urllib.parse.urlsplit(result["url"]).hostname or "", "")


def errors(kinds: dict[str, str], results: list[tuple[float, dict]], kind: str) -> list[str]:
    """The error types of the links of a kind that were not delivered."""
    return sorted({result["error_type"] for _, result in results if not result["success"] and kind_of(kinds, result) == kind})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetchwise", required=True, type=os.path.abspath, help="the program")
    parser.add_argument("--lab", type=os.path.abspath, help="the program of the testbed (fetchwise-lab next to the other one)")
    parser.add_argument("--sites", type=pathlib.Path, default=HERE / "sites.toml", help="the sites, one of each kind (sites.toml)")
    parser.add_argument("--pages", type=int, default=200, help="pages of each site (200)")
    parser.add_argument("--seed", type=int, default=1, help="which pages (1)")
    parser.add_argument("--wait", help="how long the crawl waits for paused links, as in `fetch --wait` (the default of fetch)")
    parser.add_argument("--write", help="the page with the table")
    args = parser.parse_args()
    args.lab = args.lab or os.path.join(os.path.dirname(args.fetchwise), "fetchwise-lab")
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        command = [args.lab, "testbed", "--json", "--sites", str(args.sites), "--pages", str(args.pages), "--seed", str(args.seed)]
        command += ["--ledger", os.path.join(place, "ledger.json")]
        testbed = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        stack.callback(testbed.terminate)
        where = json.loads(testbed.stdout.readline())
        os.environ.update(LINKS=where["links"], PAGES=where["pages"])
        listed = links()
        pathlib.Path(place, "links.txt").write_text("\n".join(listed))
        kinds = kinds_by_host(args.sites, listed)
        before = processor_ticks()
        results, took, code, said = fetch(args, place)
        busy, idle = (after - earlier for after, earlier in zip(processor_ticks(), before))
        pages = Pages()
        for _, result in results:
            if result["success"]:
                body = pathlib.Path(place, result["file"]).read_bytes()
                pages.add(result["url"], body.decode(errors="replace"))
        pages.close()
        with urllib.request.urlopen(where["ledger"], timeout=30) as answer:
            ledger = json.load(answer)
    delivered = [at for at, result in results if result["success"]]
    worked = max(delivered, default=took)
    last_kind = max(((at, kind_of(kinds, result)) for at, result in results if result["success"]), default=(0.0, "nobody"))[1]
    forced = max((ledger["kinds"][kind]["listed"] / rate for kind, rate in LIMITS.items() if kind in ledger["kinds"]), default=0.0)
    outcomes: dict[str, int] = {}
    for _, result in results:
        outcome = "delivered" if result["success"] else result["error_type"]
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    counts = ", ".join(f"{count} {name}" for name, count in sorted(outcomes.items(), key=lambda of: -of[1]))
    scores = {kind: score for kind, score in ledger["kinds"].items() if kind not in LETS_NOBODY_IN | EMPTY}
    left = {kind: score["listed"] - score["good"] for kind, score in scores.items() if score["listed"] > score["good"]}
    missed = ", ".join(f"{count} of {kind} ({', '.join(errors(kinds, results, kind))})" for kind, count in left.items()) or "nothing"
    limited = [at for at, result in results if result["success"] and kind_of(kinds, result) in LIMITS]
    wait = f" --wait {args.wait}" if args.wait else ""
    ratio = f"{worked / forced:.2f} times that" if forced else "no limit"
    lines = [
        f"`make crawl`, {args.pages} pages of each site, seed {args.seed}, `fetch{wait}`:",
        "",
        *table(ledger, kinds, results),
        "",
        f"* Outcomes of {len(listed)} URLs: {counts}. Exit code {code}.",
        f"* The limits force {forced:.0f} s. The last page of a site with a limit came after {max(limited, default=0.0):.1f} s, "
        f"{max(limited, default=0.0) / forced if forced else 0.0:.2f} times that.",
        f"* The last page of all came after {worked:.1f} s, {ratio}: one of `{last_kind}`.",
        f"* The processors were busy for {busy / max(busy + idle, 1):.0%} of the time.".replace("%", " %"),
        f"* The run ended after {took:.1f} s: {took - worked:.1f} s of it were a wait for hosts that let nobody in.",
        f"* Left of the available pages: {missed}.",
    ]
    print("\n".join(lines))
    print(f"\nstderr of the crawl:\n{said}", file=sys.stderr)
    if args.write:
        page = pathlib.Path(args.write)
        head, rest = page.read_text().split(BEGIN, 1)
        page.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{rest.split(END, 1)[1]}")
    is_complete = len(results) == len(listed) and not left
    # Pages that wait for a processor prove nothing about a host's pace.
    judged = max(limited, default=0.0) if busy >= MIN_BUSY * (busy + idle) else worked
    return 0 if is_complete and (not forced or judged <= MAX_RATIO * forced) else 1


if __name__ == "__main__":
    sys.exit(main())
