#!/usr/bin/env python3
"""A crawl of twelve hosts with limiters: the share of the allowed pages that it gets, and the requests that are refused.

    lab/limiters.py --fetchwise target/dist/fetchwise [--seconds 300] [--quick] [--write docs/reports/limiters.md]

Owns: the limiters, the rate that each of them allows, and the targets. Invariants: the server alone counts pages and refusals; a page
counts once. Must not know: how fetchwise paces a host.

The program crawls a mixed list of 72,000 links twice, with one data directory and different links, and each visit ends by SIGINT. A third
crawl begins from nothing on a machine whose processors are all kept busy. Hosts with errors and slow hosts are crawled by further
programs during the second visit: they mostly wait, and have their own data directories and addresses.

One server on loopback responds for all hosts, each with its own latency. It runs before all other processes where the system allows that
(real-time scheduling), as if it were another machine. Ends with 1 if a target is missed.
"""

import argparse
import asyncio
import collections
import dataclasses
import datetime
import json
import math
import multiprocessing
import os
import pathlib
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "lab"))

from tables import commit, heads, row, write_measured  # noqa: E402

#: Links of each of the twelve hosts in one list.
LINKS = 6000
#: The default of `pace.max_rate`, which is the best rate of a host without a limit.
MAX_RATE = 20.0
#: The spread of latencies: the standard deviation of their logarithms.
SIGMA = 0.35
#: The latency of a refusal, as a share of a page's.
REFUSAL = 0.4
#: The part of a visit after which slow hosts are judged: two of five minutes.
WARM = 0.4

WORDS = (
    "harbour almanac lantern gravel orchard ledger kettle meadow timber copper saddle ribbon market winter engine paper river stone bridge "
    "garden window letter music island morning village summer teacher doctor weather station journey history science kitchen forest"
).split()
CHALLENGE = b"""<html lang="en"><head><title>harbour almanac</title></head><body style="margin:0">
<p id="cmsg">Please enable JS and disable any ad blocker</p><script data-cfasync="false">
var dd={'rt':'c','cid':'0a1b2c3d','hsh':'4e5f6a7b','t':'fe','s':1,'e':'8c9d0e1f','host':'geo.captcha-delivery.com'};
</script></body></html>"""


@dataclasses.dataclass
class Refusal:
    """A response that has no page."""

    status: int
    retry_after: float | None = None
    body: bytes | None = None
    #: Whether the limiter refused the request; if not, the host failed at random.
    is_blocked: bool = True


class Limiter:
    """A host without a limit."""

    def refusal(self, now: float) -> Refusal | None:
        return None

    def delay(self, now: float, chance: random.Random) -> float:
        """The time that a request waits for others, in seconds."""
        return 0.0

    def headers(self, now: float) -> dict[str, str]:
        return {}

    def leave(self):
        """Ends a request that was not refused."""


@dataclasses.dataclass
class Bucket(Limiter):
    """A token bucket, like `limit_req` of nginx with `nodelay`: `burst` requests on top of the one that is due."""

    rate: float
    burst: float
    says_when: bool = False
    level: float = 0.0
    at: float = 0.0

    def refusal(self, now):
        self.level = max(0.0, self.level - (now - self.at) * self.rate)
        self.at = now
        if self.level > self.burst:
            return Refusal(429, (self.level - self.burst) / self.rate if self.says_when else None)
        self.level += 1
        return None


@dataclasses.dataclass
class Window(Limiter):
    """`count` requests in each window of the clock, then 429 until it ends."""

    count: int
    seconds: float
    says_when: bool = False
    is_declared: bool = False
    number: int = 0
    used: int = 0

    def left(self, now):
        if self.number != now // self.seconds:
            self.number, self.used = now // self.seconds, 0
        return self.seconds - now % self.seconds

    def refusal(self, now):
        left = self.left(now)
        if self.used >= self.count:
            return Refusal(429, left if self.says_when else None)
        self.used += 1
        return None

    def headers(self, now):
        if not self.is_declared:
            return {}
        left = math.ceil(self.left(now))
        policy, state = f'"default";q={self.count};w={self.seconds:.0f}', f'"default";r={self.count - self.used};t={left}'
        return {"RateLimit-Policy": policy, "RateLimit": state}


@dataclasses.dataclass
class Counter(Limiter):
    """At most `count` requests within any `seconds`; a subclass says what happens to others, and whether they count."""

    count: float
    seconds: float
    times: collections.deque = dataclasses.field(default_factory=collections.deque)

    def within(self, now) -> int:
        while self.times and self.times[0] <= now - self.seconds:
            self.times.popleft()
        return len(self.times)


@dataclasses.dataclass
class Sliding(Counter):
    """429 while the last `seconds` hold `count` requests."""

    def refusal(self, now):
        if self.within(now) >= self.count:
            return Refusal(429)
        self.times.append(now)
        return None


@dataclasses.dataclass
class Ban(Counter):
    """More than `count` requests within `seconds` ban the client for `penalty` seconds; then it starts from nothing."""

    penalty: float = 60.0
    is_challenge: bool = False
    until: float = 0.0

    def refusal(self, now):
        if now >= self.until:
            if self.within(now) < self.count:
                self.times.append(now)
                return None
            self.times.clear()
            self.until = now + self.penalty
        return Refusal(200, body=CHALLENGE) if self.is_challenge else Refusal(403)


@dataclasses.dataclass
class TwoThresholds(Counter):
    """429 above `count` requests within `seconds`; `hard` times as many, refused ones included, ban for `penalty` seconds."""

    hard: float = 2.0
    penalty: float = 300.0
    until: float = 0.0

    def refusal(self, now):
        if now < self.until:
            return Refusal(403)
        self.times.append(now)
        within = self.within(now)
        if within > self.hard * self.count:
            self.times.clear()
            self.until = now + self.penalty
            return Refusal(403)
        return Refusal(429) if within > self.count else None


@dataclasses.dataclass
class AtOnce(Limiter):
    """`count` requests at once, like `limit_conn` of nginx; others get 503."""

    count: int
    open: int = 0

    def refusal(self, now):
        if self.open >= self.count:
            return Refusal(503)
        self.open += 1
        return None

    def leave(self):
        self.open -= 1


@dataclasses.dataclass
class Queue(Limiter):
    """One request at a time, `rate` per second on average; others wait for their turn."""

    rate: float
    free_at: float = 0.0

    def delay(self, now, chance):
        self.free_at = max(self.free_at, now) + chance.expovariate(self.rate)
        return self.free_at - now


@dataclasses.dataclass
class Errors(Limiter):
    """No limit, and a share of 503 at any rate."""

    share: float
    chance: random.Random

    def refusal(self, now):
        return Refusal(503, is_blocked=False) if self.chance.random() < self.share else None


@dataclasses.dataclass
class Host:
    name: str
    rule: str
    #: Good pages per second of the best constant pace.
    best: float
    limiter: Limiter
    #: The median latency, in seconds.
    latency: float
    pages: set = dataclasses.field(default_factory=set)
    #: Time and kind of each response: page, again (a page that was delivered before), blocked, error.
    events: list = dataclasses.field(default_factory=list)


def best_of_queue(rate: float, latency: float) -> float:
    """The even rate at which a queue doubles the latency of the quiet host."""
    service = 1 / rate
    low, high = 0.05, 0.99
    for _ in range(40):
        load, busy = (low + high) / 2, 0.5
        for _ in range(200):
            busy = math.exp((busy - 1) / load)
        low, high = (load, high) if service * busy / (1 - busy) <= latency + service else (low, load)
    return rate * low


def twelve_hosts() -> list[Host]:
    """One host of each kind. Their rates differ by a factor of forty, as in the simulator's `mixed-list`."""
    mean = math.exp(SIGMA**2 / 2)
    return [
        Host("free", "no limit", MAX_RATE, Limiter(), 0.10),
        Host("bucket", "8 per second, burst 16; 429", 8.0, Bucket(8, 16), 0.08),
        Host("bucket, says when", "4 per second, burst 10; 429 with Retry-After", 4.0, Bucket(4, 10, says_when=True), 0.15),
        Host("10 s window", "60 in 10 s of the clock; 429", 6.0, Window(60, 10), 0.12),
        Host("1 min window", "120 per minute of the clock; 429 with Retry-After", 2.0, Window(120, 60, says_when=True), 0.20),
        Host("sliding window", "90 within 30 s; 429", 3.0, Sliding(90, 30), 0.10),
        Host("ban", "40 within 10 s, then 403 for 60 s", 4.0, Ban(40, 10), 0.15),
        Host("two thresholds", "20 within 10 s; 429, and above 40 403 for 300 s", 2.0, TwoThresholds(20, 10), 0.12),
        Host("at once", "4 requests at once; 503", 4 / (0.35 * mean), AtOnce(4), 0.35),
        Host("queue", "6 per second, one after the other", best_of_queue(6, 0.10 * mean), Queue(6), 0.10),
        Host("declared", "60 per minute, in RateLimit headers; 429", 1.0, Window(60, 60, says_when=True, is_declared=True), 0.15),
        Host("captcha", "30 within 60 s, then 200 with a challenge for 120 s", 0.5, Ban(30, 60, penalty=120, is_challenge=True), 0.20),
    ]


def hosts_with_errors() -> dict[str, Host]:
    return {
        "flaky": Host("25 % of 503", "no limit", 0.75 * MAX_RATE, Errors(0.25, random.Random(25)), 0.10),
        "clean": Host("no errors", "no limit", MAX_RATE, Limiter(), 0.10),
        # When few errors come is chance, so there are three of these hosts.
        **{f"stray {n}": Host(f"2 % of 503 ({n})", "no limit", 0.98 * MAX_RATE, Errors(0.02, random.Random(n)), 0.10) for n in (1, 2, 3)},
    }


def slow_hosts() -> dict[str, Host]:
    return {
        f"{rate:g} {burst}": Host(f"{rate:g} per second, burst {burst}", "429", rate, Bucket(rate, burst), 0.10)
        for rate in (1.0, 0.5)
        for burst in (0, 2)
    }


class Server:
    """Responds for all hosts, in a separate process."""

    def __init__(self, hosts: dict[str, Host], seed: int):
        self.hosts, self.chance, self.late, self.port = hosts, random.Random(seed), [], 0
        self.has_priority = False

    def page(self, path: str) -> bytes:
        chance = random.Random(path)
        text = "".join(f"<p>{' '.join(chance.choices(WORDS, k=40)).capitalize()}.</p>\n" for _ in range(6))
        title = " ".join(chance.choices(WORDS, k=4))
        return f"<html><head><title>{title}</title></head><body><h1>{title}</h1>\n{text}</body></html>".encode()

    async def sleep(self, seconds: float):
        until = time.monotonic() + seconds
        await asyncio.sleep(seconds)
        self.late.append(time.monotonic() - until)

    async def handle(self, host: Host, path: str) -> bytes:
        """Returns the response to a request."""
        now = time.monotonic()
        latency = host.latency * math.exp(SIGMA * self.chance.gauss(0, 1))
        refusal = host.limiter.refusal(now)
        if refusal:
            headers = {**host.limiter.headers(now), "Connection": "keep-alive"}
            if refusal.retry_after is not None:
                headers["Retry-After"] = str(math.ceil(refusal.retry_after))
            kind, status, body = "blocked" if refusal.is_blocked else "error", refusal.status, refusal.body
            body = body or f"<html><head><title>{status}</title></head><body><h1>{status}</h1></body></html>".encode()
            await self.sleep(REFUSAL * latency)
        else:
            try:
                await self.sleep(latency + host.limiter.delay(now, self.chance))
            finally:
                host.limiter.leave()
            headers, status, body = host.limiter.headers(time.monotonic()), 200, self.page(path)
            kind = "again" if path in host.pages else "page"
            host.pages.add(path)
        host.events.append((time.monotonic(), kind))
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        return f"HTTP/1.1 {status} -\r\nContent-Type: text/html\r\nContent-Length: {len(body)}\r\n{head}\r\n".encode() + body

    async def respond(self, reader, writer):
        try:
            # To respond on every address of 127.0.0.0/8, the server listens on all addresses of the machine.
            host = self.hosts.get(writer.get_extra_info("sockname")[0])
            if host is None or not writer.get_extra_info("peername")[0].startswith("127."):
                return
            while request := await reader.readuntil(b"\r\n\r\n"):
                writer.write(await self.handle(host, request.split(b" ", 2)[1].decode()))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def serve(self, pipe):
        server = await asyncio.start_server(self.respond, "0.0.0.0", 0, backlog=1024)
        pipe.send((server.sockets[0].getsockname()[1], self.has_priority))
        threading.Thread(target=self.report, args=[pipe, os.getppid()], daemon=True).start()
        await server.serve_forever()

    def report(self, pipe, parent: int):
        """Hands over what was counted whenever the parent asks."""
        while os.getppid() == parent:
            if pipe.poll(1):
                pipe.recv()
                pipe.send(({address: host.events for address, host in self.hosts.items()}, self.late))
                for host in self.hosts.values():
                    host.events = []
                self.late = []
        os._exit(0)

    def run(self, pipe):
        try:
            os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
            self.has_priority = True
        except (AttributeError, OSError):
            pass
        asyncio.run(self.serve(pipe))


def keep_busy(parent: int):
    # A program that somebody else started is in another session, which matters to some schedulers.
    os.setsid()
    while os.getppid() == parent:
        for _ in range(1_000_000):
            pass


def processor_ticks() -> tuple[int, int]:
    """The time that all processors were busy so far, and idle; in the kernel's ticks."""
    with open("/proc/stat") as file:
        user, nice, system, idle, waiting, *interrupts = map(int, file.readline().split()[1:])
    return user + nice + system + sum(interrupts[:3]), idle + waiting


class Crawl:
    """A run of `fetchwise fetch` over a list."""

    def __init__(self, args, place: str, name: str, data: str, links: list[str], options=()):
        random.Random(args.seed).shuffle(links)
        path = os.path.join(place, f"{name}.txt")
        pathlib.Path(path).write_text("\n".join(links))
        command = [args.fetchwise, "--data-dir", os.path.join(place, data), "fetch", "--input", path, "--json", "--quiet"]
        command += ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore", *options]
        self.results, self.messages = pathlib.Path(place, f"{name}.jsonl"), pathlib.Path(place, f"{name}.stderr")
        self.processor_s, self.begun = 0.0, time.monotonic()
        with self.results.open("w") as results, self.messages.open("w") as messages:
            self.process = subprocess.Popen(command, stdout=results, stderr=messages, cwd=place)

    def stop(self):
        if self.process.poll() is not None:
            print(f"a crawl ended early: {self.messages.read_text()}", file=sys.stderr)
            return
        with open(f"/proc/{self.process.pid}/stat") as file:
            ticks = file.read().rpartition(")")[2].split()[11:13]
        self.processor_s = sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def outcomes(self) -> collections.Counter:
        """The number of results by error type; `delivered` for pages."""
        counts = collections.Counter()
        with self.results.open() as file:
            for line in file:
                result = json.loads(line)
                counts["delivered" if result["success"] else result["error_type"]] += 1
        return counts


@dataclasses.dataclass
class Visit:
    """What the server counted during one or several crawls."""

    begun: float
    seconds: float
    events: dict[str, list[tuple[float, str]]]
    late: list[float]
    busy: float
    processor_s: float
    outcomes: collections.Counter

    def count(self, address: str, kinds=("page",), since=0.0, until=1.0) -> int:
        """The responses of a kind in a part of the visit."""
        begin, end = self.begun + since * self.seconds, self.begun + until * self.seconds
        return sum(kind in kinds and begin <= at < end for at, kind in self.events[address])

    def delivered(self, hosts: dict[str, Host]) -> int:
        """All pages, those that were open at the end of the visit included."""
        return sum(kind == "page" for address in hosts for _, kind in self.events[address])

    def rate(self, address: str, since=0.0, until=1.0) -> float:
        return self.count(address, since=since, until=until) / ((until - since) * self.seconds)

    def share(self, host: Host, address: str) -> float:
        return min(1.0, self.rate(address) / host.best)

    def mean_share(self, hosts: dict[str, Host]) -> float:
        return statistics.mean(self.share(host, address) for address, host in hosts.items())

    def blocked(self, hosts: dict[str, Host]) -> float:
        """Refusals per thousand requests."""
        everything = sum(self.count(address, ("page", "again", "blocked", "error")) for address in hosts)
        return 1000 * sum(self.count(address, ("blocked",)) for address in hosts) / max(everything, 1)


class Bench:
    def __init__(self, args, place: str):
        self.args, self.place = args, place
        self.first, self.busy = self.place_at(70, twelve_hosts()), self.place_at(71, twelve_hosts())
        self.errors = self.place_at(72, list(hosts_with_errors().values()))
        self.slow = self.place_at(73, list(slow_hosts().values()))
        self.fixed = self.place_at(74, [hosts_with_errors()["flaky"]])
        hosts = {**self.first, **self.busy, **self.errors, **self.slow, **self.fixed}
        self.pipe, theirs = multiprocessing.Pipe()
        self.server = multiprocessing.Process(target=Server(hosts, args.seed).run, args=[theirs], daemon=True)
        self.server.start()
        self.port, self.has_priority = self.pipe.recv()

    @staticmethod
    def place_at(network: int, hosts: list[Host]) -> dict[str, Host]:
        return {f"127.0.{network}.{1 + n}": host for n, host in enumerate(hosts)}

    def links(self, hosts: dict[str, Host], visit: str, count=LINKS) -> list[str]:
        return [f"http://{address}:{self.port}/{visit}/{n}" for n in range(count) for address in hosts]

    def crawl(self, what: str, *crawls) -> Visit:
        """Crawls for the time of a visit, and returns what was counted. The first crawl gives the time."""
        print(f"{what}: {self.args.seconds:g} s", file=sys.stderr, flush=True)
        self.pipe.send(None)
        self.pipe.recv()
        before = processor_ticks()
        running = [Crawl(self.args, self.place, *crawl) for crawl in crawls]
        begun = running[0].begun
        try:
            time.sleep(max(0.0, begun + self.args.seconds - time.monotonic()))
            busy, idle = (after - earlier for after, earlier in zip(processor_ticks(), before))
        finally:
            for crawl in running:
                crawl.stop()
        self.pipe.send(None)
        events, late = self.pipe.recv()
        share = busy / max(busy + idle, 1)
        outcomes = running[0].outcomes()
        return Visit(begun, self.args.seconds, events, sorted(late), share, running[0].processor_s, outcomes)

    def run(self) -> list[Visit]:
        """Returns the first and the second visit and, unless it is left out, the one on a busy machine."""
        first = self.crawl("first visit", ("first", "data", self.links(self.first, "first")))
        # More links than the highest rate brings.
        count = int(1.2 * MAX_RATE * self.args.seconds)
        second = self.crawl(
            "second visit, hosts with errors, slow hosts",
            ("second", "data", self.links(self.first, "second")),
            ("errors", "data-errors", self.links({**self.errors, **self.slow}, "errors", count)),
            ("fixed", "data-fixed", self.links(self.fixed, "fixed", count), ["--rate", "2"]),
        )
        if self.args.skip_busy:
            return [first, second]
        programs = [multiprocessing.Process(target=keep_busy, args=[os.getpid()], daemon=True) for _ in range(os.cpu_count() or 1)]
        for program in programs:
            program.start()
        try:
            busy = self.crawl("first visit on a busy machine", ("busy", "data-busy", self.links(self.busy, "busy")))
        finally:
            for program in programs:
                program.kill()
        return [first, second, busy]


def host_table(bench: Bench, first: Visit, second: Visit, busy: Visit | None = None) -> list[str]:
    """One row per host: what it allows and what came."""
    figures = ["good/s", "share", "blocked"]
    columns = ["host", "limit", "allows/s", *figures, "second: good/s", *figures[1:]]
    columns += ["busy: good/s", *figures[1:]] if busy else []
    lines = heads(*columns)
    for (address, host), other in zip(bench.first.items(), bench.busy):
        cells = [host.name, host.rule, f"{host.best:.1f}"]
        for visit, at in ((first, address), (second, address), (busy, other))[: 3 if busy else 2]:
            cells += [f"{visit.rate(at):.2f}", f"{visit.share(host, at):.2f}", visit.count(at, ("blocked",))]
        lines.append(row(*cells))
    return lines


def minute_table(bench: Bench, visit: Visit) -> list[str]:
    """One row per host with errors and slow host: its good pages per second in each fifth of the visit."""
    parts = [(n / 5, (n + 1) / 5) for n in range(5)]
    minutes = [f"{begin * visit.seconds:.0f}-{end * visit.seconds:.0f} s" for begin, end in parts]
    lines = heads("host", *minutes, "all", "blocked")
    groups = [(bench.fixed, ", `--rate 2`"), (bench.errors, ""), (bench.slow, "")]
    for address, host, note in ((address, host, note) for hosts, note in groups for address, host in hosts.items()):
        rates = [f"{visit.rate(address, *part):.2f}" for part in parts]
        lines.append(row(host.name + note, *rates, f"{visit.rate(address):.2f}", visit.count(address, ("blocked",))))
    return lines


def figures(bench: Bench, first: Visit, second: Visit, busy: Visit | None = None) -> list[tuple[str, str, float, bool]]:
    """The name of each figure, its target, its value, and whether it meets the target."""
    free, (flaky, clean, *stray) = next(iter(bench.first)), bench.errors
    strays = statistics.mean(second.rate(address) for address in stray)
    fixed = next(iter(bench.fixed))
    parts = [(n / 5, (n + 1) / 5) for n in range(5)]
    as_fixed = min(second.rate(flaky, *part) / max(second.rate(fixed, *part), 1e-9) for part in parts)
    slow = {rate: min(second.rate(at, WARM) for at, host in bench.slow.items() if host.best == rate) for rate in (1.0, 0.5)}
    shares = [visit.mean_share(bench.first) for visit in (first, second)]
    at_least = [
        ("share of the allowed pages, first visit", 0.72, shares[0]),
        ("share, second visit", 0.82, shares[1]),
        ("pages per second of the free host, first visit", 15.0, first.rate(free)),
        ("pages per second of the free host, second visit", 15.0, second.rate(free)),
        ("25 % of 503: pages of the worst minute, of those at a fixed 2 per second", 0.6, as_fixed),
        ("2 % of 503: pages, of those of a host without errors (mean of three)", 0.9, strays / max(second.rate(clean), 1e-9)),
        ("1 per second, bare 429: pages per second after two minutes", 0.7, slow[1.0]),
        ("0.5 per second, bare 429: the same", 0.35, slow[0.5]),
    ]
    if busy:
        at_least.append(("share on a busy machine, of that on an idle one", 0.9, busy.mean_share(bench.busy) / max(shares[0], 1e-9)))
    at_most = [
        ("blocked per thousand requests, first visit", 8.0, first.blocked(bench.first)),
        ("blocked per thousand requests, second visit", 1.0, second.blocked(bench.first)),
    ]
    rows = [(name, f"at least {goal:g}", value, value >= goal) for name, goal, value in at_least]
    rows += [(name, f"at most {goal:g}", value, value <= goal) for name, goal, value in at_most]
    return [*rows[:2], *rows[-2:], *rows[2:-2]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetchwise", required=True, type=os.path.abspath, help="the program")
    parser.add_argument("--seconds", type=float, default=300, help="the time of each visit (300)")
    parser.add_argument("--seed", type=int, default=1, help="the order of the links, and the latencies (1)")
    parser.add_argument("--quick", action="store_true", help="three visits of 20 s, to try the program: the targets do not apply")
    parser.add_argument("--skip-busy", action="store_true", help="leave out the crawl on a busy machine")
    parser.add_argument("--write", help="the page with the tables")
    parser.add_argument("--keep", help="a directory for lists, results and data; a temporary one unless set")
    args = parser.parse_args()
    if args.quick:
        args.seconds, args.write = 20, None
    day, load, begun = datetime.datetime.now(datetime.timezone.utc), os.getloadavg(), time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        place = os.path.abspath(args.keep or temporary)
        os.makedirs(place, exist_ok=True)
        bench = Bench(args, place)
        visits = bench.run()
        bench.server.kill()
    first, second = visits[:2]
    visited = list(zip(visits, (bench.first, bench.first, bench.busy)))
    rows = figures(bench, *visits)
    is_met = {True: "met", False: "missed"}
    lines = heads("figure", "target", "measured", "verdict")
    lines += [row(name, goal, f"{value:.2f}", is_met[met]) for name, goal, value, met in rows]
    names = ["first visit", "second visit with the other programs", "busy machine"]
    loads = ", ".join(f"{visit.busy:.0%} ({name})".replace("%", " %") for visit, name in zip(visits, names))
    late = ", ".join(f"{1000 * visit.late[int(0.99 * len(visit.late))]:.0f} ms" if visit.late else "none" for visit in visits)
    used = ", ".join(f"{visit.processor_s:.0f} s" for visit in visits)
    other = [", ".join(f"{count} {kind}" for kind, count in visit.outcomes.most_common()) for visit in visits]
    pages = [visit.delivered(hosts) for visit, hosts in visited]
    counts = [f"{count} pages, those after SIGINT included; results: {text}" for count, text in zip(pages, other)]
    lines += [
        "",
        "The hosts. Shares are of what the limit allows, capped at 1. "
        + ("" if args.skip_busy else "`busy` is a first visit while one program per processor never waits. ")
        + f"The machine has {os.cpu_count()} processors.",
        "",
        *host_table(bench, *visits),
        "",
        f"* Shares of the run: {', '.join(f'{visit.mean_share(hosts):.3f}' for visit, hosts in visited)}. Blocked per thousand requests: "
        f"{', '.join(f'{visit.blocked(hosts):.1f}' for visit, hosts in visited)}.",
        *(f"* {name.capitalize()}: the server delivered {count}." for name, count in zip(names, counts)),
        "",
        "Hosts with errors and slow hosts, crawled during the second visit by separate programs; pages per second:",
        "",
        *minute_table(bench, second),
        "",
        "* Holds cost the crawl with `--rate 2` pages, too: without any, 2 requests per second to its host would bring 1.5 pages.",
        f"* Measured on {day:%Y-%m-%d} at commit {commit()}, seed {args.seed}, {args.seconds:g} s per visit, "
        f"{time.monotonic() - begun:.0f} s in all.",
        f"* Load average before the run: {load[0]:.1f}. The processors were busy for {loads} of the time.",
        f"* Processor time of the crawl: {used}. The server's responses were late by at most {late} in 99 % of cases; "
        + ("it ran before all other processes." if bench.has_priority else "it had the same priority as the crawl."),
    ]
    print("\n".join(lines))
    if args.write:
        write_measured(args.write, lines)
    return 0 if args.quick or all(met for *_, met in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
