"""Crawls software that other people wrote, as its documentation sets it up, each on its own loopback address.

    python3 lab/wild --program target/dist/fetchwise [--only NAME,NAME] [--quick] [--peers] [--write docs/reports/wild.md]

Owns: the list of hosts, and the order of a run. Invariants: one host runs at a time; a host whose software cannot be had is skipped, and the
report says so; each host's figures are kept, so that a host can run again alone. Must not know: how a host is set up, and what a figure means.

Software comes from Debian, npm and PyPI and stays in target/wild: nothing is installed into the system. Ends with 1 if a target is missed.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import shutil
import signal
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import app_git  # noqa: E402
import app_node  # noqa: E402
import app_php  # noqa: E402
import app_python  # noqa: E402
import app_static  # noqa: E402
import report  # noqa: E402
import self_test  # noqa: E402
import tables  # noqa: E402
import guard_apache  # noqa: E402
import guard_applications  # noqa: E402
import guard_fail2ban  # noqa: E402
import guard_haproxy  # noqa: E402
import guard_nginx  # noqa: E402
import guard_proxies  # noqa: E402
import guard_varnish  # noqa: E402
from crawl import Run, by_fetchwise, by_peer  # noqa: E402
from hosts import Host  # noqa: E402
from software import Missing, Software  # noqa: E402

GUARDS = [guard_nginx, guard_haproxy, guard_varnish, guard_apache, guard_applications, guard_fail2ban, guard_proxies]
APPS = [app_php, app_git, app_static, app_node, app_python]
HOSTS: list[type[Host]] = [host for module in GUARDS + APPS for host in module.HOSTS]
PEERS = ("Scrapy", "Crawlee")


def say(text: str):
    print(text, file=sys.stderr, flush=True)


def visit(args, host: Host, software: Software) -> dict:
    """Crawls a host twice, and once with each peer; returns what is kept of it."""
    found = {"at": f"{datetime.datetime.now(datetime.timezone.utc):%Y-%m-%d %H:%M}", "commit": tables.commit(), "load": os.getloadavg()[0]}
    found |= {"best": host.best, "runs": []}
    place = software.place / "runs" / host.name
    shutil.rmtree(place, ignore_errors=True)
    crawls = [(f"run {part + 1}", lambda part=part: by_fetchwise(args.program, host, part, place)) for part in (0, 1)]
    if args.peers and host.kind != "proxy":
        crawls += [(peer, lambda peer=peer: by_peer(peer, software, host, place / peer)) for peer in PEERS]
    for name, crawl in crawls:
        try:
            # Limiters forget between runs, as they would between a crawl of today and one of tomorrow.
            host.start()
            run = crawl()
        finally:
            host.stop()
        say(f"  {name}: {run.good} of {run.listed} good, {run.wrong} wrong, {run.refused} of {run.requests} refused, {run.seconds:.0f} s, lost {run.lost}")
        found["runs"].append({"by": name, **dataclasses.asdict(run)})
    return found


def attempt(args, host: Host, software: Software) -> dict:
    try:
        host.install()
        return visit(args, host, software)
    except Missing as error:
        say(f"  skipped: {error}")
        return {"skipped": str(error), "runs": []}


def main() -> int:
    parser = argparse.ArgumentParser(prog="lab/wild", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=os.path.abspath, help="fetchwise, as it is installed")
    parser.add_argument("--only", help="these hosts, with commas between them")
    parser.add_argument("--quick", action="store_true", help="a few cheap hosts, to see that all of this works: targets do not apply")
    parser.add_argument("--list", action="store_true", help="list the hosts")
    parser.add_argument("--self-test", action="store_true", help="check the relay, without any software")
    parser.add_argument("--peers", action="store_true", help="crawl with Scrapy and Crawlee as well")
    parser.add_argument("--kept", action="store_true", help="crawl nothing: report what was kept of earlier runs")
    parser.add_argument("--write", help="the page with the tables")
    parser.add_argument("--place", type=pathlib.Path, default=tables.ROOT / os.environ.get("CARGO_TARGET_DIR", "target") / "wild", help="where all is kept")
    args = parser.parse_args()
    # A lab that is ended ends its programs.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    if args.list:
        print("\n".join(f"{host.name:24} {host.kind:6} {'quick' if host.quick else '':6} {host.rule}" for host in HOSTS))
        return 0
    if args.self_test:
        return self_test.main()
    wanted = args.only.split(",") if args.only else [host.name for host in HOSTS if host.quick or not args.quick]
    if unknown := set(wanted) - {host.name for host in HOSTS}:
        parser.error(f"no such host: {', '.join(sorted(unknown))} (see --list)")
    if not args.program and not args.kept:
        parser.error("--program is missing")
    software = Software(args.place.resolve())
    kept = software.place / "kept"
    kept.mkdir(exist_ok=True)
    results = {}
    for number, kind in enumerate(HOSTS):
        host, path = kind(number, software), kept / f"{kind.name}.json"
        if host.name in wanted and not args.kept:
            say(f"{host.name}: {host.rule}")
            found = attempt(args, host, software)
            path.write_text(json.dumps(found, indent=1))
        elif path.exists() and not args.quick:
            found = json.loads(path.read_text())
        else:
            continue
        found = {**found, "runs": [(one["by"], Run(**{name: value for name, value in one.items() if name != "by"})) for one in found["runs"]]}
        results[host.name] = (kind, found)
    rows = report.targets(results)
    lines = report.lines(results, rows)
    print("\n".join(lines))
    if args.write and not args.quick:
        tables.write_measured(args.write, lines)
    if args.quick:
        runs = [(kind, run) for kind, found in results.values() for _, run in found["runs"]]
        return 0 if all(run.requests and (run.good or kind.expected_error or not kind.is_passable) for kind, run in runs) else 1
    return 0 if all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
