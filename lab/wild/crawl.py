"""A crawl of one host by one crawler, and its figures.

Owns: commands of crawlers, and the figures of a run. Invariants: pages are judged by the texts of their links and counted once; requests
and refusals are those that the meter saw; a crawl that is not done in its time gets SIGINT. Must not know: what software the host is.
"""

import collections
import contextlib
import dataclasses
import html
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

from hosts import REFUSALS, Host, Link
from software import Software

#: A client that leaves a request alone after this time has waited for an answer in vain, in seconds.
SILENCE = 4
#: A rendered page costs as much as this many requests.
RENDER = 20


@dataclasses.dataclass
class Run:
    """The figures of one crawl."""

    listed: int
    good: int = 0
    #: Pages that the crawler took for good, and which are not.
    wrong: int = 0
    #: Links without a page, by their end.
    lost: dict[str, int] = dataclasses.field(default_factory=dict)
    requests: int = 0
    refused: int = 0
    cost: float = 0.0
    seconds: float = 0.0
    #: Good pages per second from the first request to the last page, as a share of the best constant rate.
    share: float | None = None
    has_ended: bool = True
    #: What the crawler said at the end.
    said: str = ""

    @property
    def cost_per_page(self) -> float | None:
        return self.cost / self.good if self.good else None


def is_good(text: str, link: Link) -> bool:
    """Returns whether the page has the texts, outside of scripts; markup may stand between words."""
    # A template shows nothing, unless it is a shadow root.
    visible = re.sub(r"<(script|style|noscript|template(?![^>]*shadowrootmode))\b.*?</\1>", " ", text, flags=re.S | re.I)
    plain, spaced = (" ".join(html.unescape(re.sub(r"<[^>]*>", between, visible)).split()) for between in ("", " "))
    whole = " ".join(html.unescape(visible).split())
    return all(part in plain or part in spaced or part in whole for part in link.expected)


def count(host: Host, links: list[Link], texts: dict[str, str], run: Run, until: float):
    """Judges pages, and counts what the meter saw."""
    for link in links:
        text = texts.get(link.url)
        if text is not None:
            good = is_good(text, link)
            run.good, run.wrong = run.good + good, run.wrong + (not good)
    exchanges = [one for one in host.meter.take() if one.begun <= until]
    run.requests = len(exchanges)
    for one in exchanges:
        silent = one.closed_by == "client" and one.ended - one.begun > SILENCE
        run.refused += (one.status in REFUSALS) or (host.drops and (one.closed_by == "host" or silent))
    # A document comes again at times, so the last page is the last one that any link got first.
    ends, paths = {}, {"/" + link.url.split("/", 3)[3] for link in links}
    for one in exchanges:
        if one.path in paths and one.status is not None and one.status < 400:
            ends.setdefault(one.path, one.ended)
    if host.best and run.good and ends:
        elapsed = max(ends.values()) - exchanges[0].begun
        run.share = min(1.0, run.good / host.best / max(elapsed, 1e-9))


def end(process: subprocess.Popen, seconds: float) -> bool:
    """Waits for a crawl; returns whether it ended by itself."""
    try:
        process.wait(timeout=seconds)
        return True
    except subprocess.TimeoutExpired:
        return False
    finally:
        # Also when the lab itself is ended.
        for sign in (signal.SIGINT, signal.SIGKILL):
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, sign)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=40)


def by_fetchwise(program: str, host: Host, part: int, place: pathlib.Path) -> Run:
    """Crawls with the settings that a list has by default, with what earlier runs in `place` have learned."""
    links = host.links(part)
    place.mkdir(parents=True, exist_ok=True)
    listed, settings, results = place / f"{part}.txt", place / "fetchwise.toml", place / f"{part}.jsonl"
    listed.write_text("\n".join(link.url for link in links) + "\n")
    settings.write_text(host.config())
    command = [program, "--data-dir", place / "data", "--config", settings]
    crawl = [*command, "fetch", "--input", listed, "--json", "--out", place / f"pages-{part}", "--allow-network", "127.0.0.0/8"]
    before = cost_so_far(command)
    host.meter.take()
    run = Run(len(links))
    begun = time.monotonic()
    with results.open("w") as out, (place / f"{part}.stderr").open("w") as messages:
        words = [str(word) for word in crawl]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=messages, cwd=place, start_new_session=True)
        run.has_ended = end(process, host.seconds)
    until = time.monotonic() if run.has_ended else begun + host.seconds
    run.seconds = until - begun
    texts, ends = {}, collections.Counter()
    unheard = {link.url for link in links}
    for line in results.read_text().splitlines():
        result = json.loads(line)
        unheard.discard(result["url"])
        if result["success"]:
            texts[result["url"]] = (place / result["file"]).read_text(errors="replace")
        else:
            ends[result["error_type"] or "unknown"] += 1
    if unheard:
        ends["no result"] = len(unheard)
    run.lost, run.said = dict(ends), (place / f"{part}.stderr").read_text(errors="replace")[-4000:]
    run.cost = cost_so_far(command) - before
    count(host, links, texts, run, until)
    return run


def cost_so_far(command: list) -> float:
    said = subprocess.run([*map(str, command), "stats", "--json"], capture_output=True, text=True, check=False).stdout
    lines = said.splitlines()
    return json.loads(lines[0])["cost"] if lines else 0.0


def by_peer(peer: str, software: Software, host: Host, place: pathlib.Path) -> Run:
    """Crawls the links of the first run with another crawler, which writes its pages as JSON lines."""
    here = pathlib.Path(__file__).parent
    if peer == "Scrapy":
        command = [software.python("scrapy", ["scrapy==2.19.0"]) / "python", here / "peer_scrapy.py"]
    else:
        folder = software.node("crawlee", ["crawlee@3.18.1", "playwright@1.65.1"])
        # Node looks for modules next to the script.
        shutil.copy(here / "peer_crawlee.mjs", folder)
        command = ["node", folder / "peer_crawlee.mjs"]
    links = host.links(0)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    listed, pages = place / "links.txt", place / "pages.jsonl"
    listed.write_text("\n".join(link.url for link in links) + "\n")
    environment = {**os.environ, "LINKS": str(listed), "PAGES": str(pages), "SECONDS": str(int(host.seconds))}
    environment |= {"CHROMIUM": shutil.which("chromium") or "chromium", "CRAWLEE_STORAGE_DIR": str(place / "storage")}
    host.meter.take()
    run, begun = Run(len(links)), time.monotonic()
    with (place / "messages.log").open("w") as messages:
        words = [str(word) for word in command]
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=messages, stderr=messages, cwd=place, env=environment, start_new_session=True)
        # The script ends itself in time and hands in what it has.
        run.has_ended = end(process, host.seconds + 30)
    run.seconds = min(time.monotonic() - begun, host.seconds)
    run.has_ended = run.has_ended and time.monotonic() - begun < host.seconds
    texts = {}
    for line in pages.read_text().splitlines() if pages.exists() else []:
        with contextlib.suppress(ValueError):
            page = json.loads(line)
            texts[page["url"]] = page["text"]
    run.said = (place / "messages.log").read_text(errors="replace")[-2000:]
    exchanges = host.meter.exchanges
    run.cost = sum(RENDER if one.by_browser else 1 for one in exchanges if one.is_document)
    count(host, links, texts, run, begun + host.seconds)
    unheard = run.listed - run.good - run.wrong
    run.lost = {"no page": unheard} if unheard else {}
    return run
