#!/usr/bin/env python3
"""One node, ten independent nodes and ten that share evidence, each on a separate testbed with the same pages:
blocked requests, and the cost of a page.

    lab/fleet_testbed.py --fetchwise target/dist/fetchwise --nats target/nats-server/nats-server [--write docs/reports/fleet.md]

Every node is a process of `fetchwise fetch`, and the fleet's broker has three real servers. The links come in one order
at one rate, each to a random node, as from a frontier that is not divided by site. The testbed counts good, blocked and
rendered pages.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

NODES = 10
#: What a page costs at least, by the kind of its site; 1 where it is not listed. Sites that block every fetcher have no good pages.
CHEAPEST = {"shell": 20, "redirect": 2}
BEGIN, END = "<!-- fleet-testbed begin -->", "<!-- fleet-testbed end -->"
#: Who has refused everything is not waited for: its links end as paused.
SETTINGS = {"FETCHWISE_PACE__MAX_WAIT": "30s"}
#: Nothing waits longer for a process that has all its links.
PATIENCE = 300


def ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@contextlib.contextmanager
def brokers(program: str, place: str):
    """Yields three brokers' addresses."""
    all_ports = ports(6)
    routes = ", ".join(f"nats://127.0.0.1:{port}" for port in all_ports[3:])
    running = []
    try:
        for number in range(3):
            config = os.path.join(place, f"n{number}.conf")
            with open(config, "w") as file:
                file.write(
                    f"server_name: n{number}\nlisten: \"127.0.0.1:{all_ports[number]}\"\n"
                    f"jetstream {{ store_dir: \"{place}/n{number}\", max_file_store: 1GB }}\n"
                    f"cluster {{ name: fw, listen: \"127.0.0.1:{all_ports[number + 3]}\", routes: [{routes}] }}\n"
                )
            running.append(subprocess.Popen([program, "-c", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        yield ",".join(f"nats://127.0.0.1:{port}" for port in all_ports[:3])
    finally:
        for one in running:
            one.kill()
            one.wait()


def hand_in(where: str, dir_: str, out: str) -> None:
    """Submits the pages that a node has delivered."""
    lines, size = [], 0

    def send() -> None:
        request = urllib.request.Request(where, data=b"".join(lines), method="POST")
        with urllib.request.urlopen(request, timeout=30) as answer:
            answer.read()

    with open(out) as results:
        for text in results:
            result = json.loads(text)
            if not result["success"]:
                continue
            with open(os.path.join(dir_, result["file"]), "rb") as file:
                line = json.dumps({"url": result["url"], "text": file.read().decode(errors="replace")}).encode() + b"\n"
            if lines and size + len(line) > 900_000:
                send()
                lines, size = [], 0
            lines.append(line)
            size += len(line)
    if lines:
        send()


def feed(nodes: list[subprocess.Popen], links: list[str], rate: float, luck: random.Random) -> None:
    begun = time.monotonic()
    for number, link in enumerate(links):
        time.sleep(max(0.0, begun + number / rate - time.monotonic()))
        stdin = luck.choice(nodes).stdin
        stdin.write(link.encode() + b"\n")
        stdin.flush()
        if number % 50 == 0:
            print(f"\r  {number} of {len(links)} links", end="", file=sys.stderr, flush=True)
    print("\r", end="", file=sys.stderr)
    for node in nodes:
        node.stdin.close()


def crawl(args: argparse.Namespace, count: int, is_sharing: bool) -> dict:
    """Returns the testbed's ledger after a crawl by `count` nodes."""
    with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
        command = [args.lab, "testbed", "--json", "--pages", str(args.pages), "--seed", str(args.seed)]
        testbed = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
        stack.callback(testbed.kill)
        where = json.loads(testbed.stdout.readline())
        with urllib.request.urlopen(where["links"], timeout=30) as answer:
            links = answer.read().decode().split()
        luck = random.Random(args.seed)
        luck.shuffle(links)
        fleet = []
        if is_sharing:
            url = stack.enter_context(brokers(args.nats, place))
            fleet = ["--fleet", url]
            subprocess.run([args.fetchwise, "fleet", "init", *fleet, "--data-dir", f"{place}/ops"], check=True, stdout=subprocess.DEVNULL)
        nodes = []
        for number in range(count):
            dir_ = os.path.join(place, f"node{number}")
            os.mkdir(dir_)
            command = [args.fetchwise, "--data-dir", os.path.join(dir_, "data"), "fetch", "--json", "--input", "-"]
            command += ["--out", os.path.join(dir_, "pages"), "--allow-network", "127.0.0.0/8", *fleet]
            out = stack.enter_context(open(os.path.join(dir_, "results"), "wb"))
            said = stack.enter_context(open(os.path.join(dir_, "said"), "wb"))
            node = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=out, stderr=said, cwd=dir_, env=os.environ | SETTINGS)
            stack.callback(node.kill)
            nodes.append(node)
        # All nodes are ready before the first link.
        time.sleep(5)
        feed(nodes, links, args.rate, luck)
        for number, node in enumerate(nodes):
            dir_ = os.path.join(place, f"node{number}")
            node.wait(PATIENCE)
            if node.returncode != 0:
                with open(os.path.join(dir_, "said")) as said:
                    raise SystemExit(f"a node ended with {node.returncode}: {said.read()[-2000:]}")
            hand_in(where["pages"], dir_, os.path.join(dir_, "results"))
        testbed.send_signal(signal.SIGTERM)
        return json.loads(testbed.stdout.read())


def figures(ledger: dict) -> dict[str, float]:
    total = ledger["total"]
    least = sum(CHEAPEST.get(kind, 1) * score["good"] for kind, score in ledger["kinds"].items())
    return {**{name: total[name] for name in ("good", "wrong", "blocked", "renders", "cost")}, "wasted": total["cost"] - least}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetchwise", required=True, type=os.path.abspath, help="the program")
    parser.add_argument("--lab", type=os.path.abspath, help="the program of the testbed (fetchwise-lab next to the other one)")
    parser.add_argument("--nats", required=True, type=os.path.abspath, help="the broker")
    parser.add_argument("--pages", type=int, default=30, help="pages of each site (30)")
    parser.add_argument("--seed", type=int, default=1, help="which pages, and who gets which (1)")
    parser.add_argument("--rate", type=float, default=4.0, help="links a second, of all nodes together (4)")
    parser.add_argument("--write", help="the page with the table")
    args = parser.parse_args()
    args.lab = args.lab or os.path.join(os.path.dirname(args.fetchwise), "fetchwise-lab")
    lines = [
        f"`make fleet-testbed`, {args.pages} pages of each site, seed {args.seed}, {args.rate:g} links a second:",
        "",
        "| nodes | good | wrong | blocked | renders | cost | of it wasted |",
        "|---|---|---|---|---|---|---|",
    ]
    found = {}
    for name, count, is_sharing in (("one", 1, False), ("ten, apart", NODES, False), ("ten, sharing", NODES, True)):
        print(f"{name} ...", file=sys.stderr)
        found[name] = figures(crawl(args, count, is_sharing))
        lines.append(f"| {name} | " + " | ".join(str(value) for value in found[name].values()) + " |")
        print(lines[-1])
    one = found["one"]
    lines.append("")
    for name in ("ten, apart", "ten, sharing"):
        ratios = [found[name][figure] / max(1, one[figure]) for figure in ("wasted", "blocked")]
        lines.append(f"{name.capitalize()}: {ratios[0]:.2f} times the waste of one node, {ratios[1]:.2f} times its refusals.  ")
    print("\n".join(lines[-2:]))
    if args.write:
        with open(args.write) as file:
            text = file.read()
        head, rest = text.split(BEGIN, 1)
        _, tail = rest.split(END, 1)
        with open(args.write, "w") as file:
            file.write(f"{head}{BEGIN}\n" + "\n".join(lines).rstrip() + f"\n{END}{tail}")


main()
