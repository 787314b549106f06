"""The tables and the verdicts of a run of the lab.

Owns: the targets. Invariants: a figure is computed from what the meter and the pages showed; a skipped host counts for nothing and is named.
Must not know: how hosts run and crawlers crawl.
"""

import re

from crawl import Run
from tables import heads, row

#: Refused per thousand requests, first and second run: of all guards, and of any.
ALL_REFUSED, ANY_REFUSED = (5.0, 1.0), (20.0, 5.0)
SHARES = (0.75, 0.85)
COST = 1.2
FETCHWISE = ("run 1", "run 2")
NAMES = {"run 1": "first run", "run 2": "second run"}


def per_thousand(run: Run) -> float:
    return 1000 * run.refused / max(run.requests, 1)


def own_runs(results: dict, which: str, *kinds: str):
    """Yields (host, run) of one of fetchwise's two runs."""
    for kind, found in results.values():
        for by, run in found["runs"]:
            if by == which and kind.kind in kinds:
                yield kind, run


def targets(results: dict) -> list[tuple[str, str, str, bool]]:
    """Returns (figure, target, measured, whether it is met)."""
    rows = []

    def add(figure: str, target: str, misses: list[str], value: str):
        rows.append((figure, target, value + (": " + ", ".join(misses) if misses else ""), not misses))

    for number, which in enumerate(FETCHWISE):
        everything = list(own_runs(results, which, "guard", "app", "proxy"))
        guards, name = list(own_runs(results, which, "guard")), NAMES[which]
        wrong = [f"{kind.name} {run.wrong}" for kind, run in everything if run.wrong]
        add(f"wrong pages, {name}", "0", wrong, str(sum(run.wrong for _, run in everything)))
        passable = [(kind, run) for kind, run in guards if kind.is_passable]
        lost = [f"{kind.name} {run.listed - run.good - run.wrong}" for kind, run in passable if run.good + run.wrong < run.listed]
        add(f"links lost to limits and bans, {name}", "0", lost, str(sum(run.listed - run.good - run.wrong for _, run in passable)))
        refused = 1000 * sum(run.refused for _, run in passable) / max(sum(run.requests for _, run in passable), 1)
        most = ALL_REFUSED[number]
        rows.append((f"refused per thousand requests of all guards, {name}", f"at most {most:g}", f"{refused:.1f}", refused <= most))
        above = [f"{kind.name} {per_thousand(run):.1f}" for kind, run in passable if per_thousand(run) > ANY_REFUSED[number]]
        worst = max((per_thousand(run) for _, run in passable), default=0.0)
        add(f"refused per thousand requests of any guard, {name}", f"at most {ANY_REFUSED[number]:g}", above, f"{worst:.1f}")
        shares = [(kind, run) for kind, run in guards if run.share is not None]
        low = [f"{kind.name} {run.share:.2f}" for kind, run in shares if run.share < SHARES[number]]
        add(f"least share of the best constant rate, {name}", f"at least {SHARES[number]}", low, f"{min((run.share for _, run in shares), default=0):.2f}")
        costs = [(kind, run.cost_per_page or float("inf")) for kind, run in passable]
        dear = [f"{kind.name} {cost:.2f}" for kind, cost in costs if cost > COST]
        add(f"cost of a page behind guards that any client passes, {name}", f"at most {COST}", dear, f"{max((cost for _, cost in costs), default=0):.2f}")
        apps = list(own_runs(results, which, "app"))
        short = [f"{kind.name} {run.good} of {run.listed}" for kind, run in apps if run.good < run.listed]
        value = f"{sum(run.good for _, run in apps)} of {sum(run.listed for _, run in apps)}"
        add(f"pages of applications that a browser can show, {name}", "every page", short, value)
        proxies = list(own_runs(results, which, "proxy"))
        named = {kind.name: run.lost.get(kind.expected_error, 0) for kind, run in proxies}
        other = [f"{kind.name} {ends_of(run)}" for kind, run in proxies if named[kind.name] != run.listed]
        value = f"{sum(named.values())} of {sum(run.listed for _, run in proxies)}"
        add(f"refusals of a proxy that are `network_block`, {name}", "all", other, value)
        for kind, run in guards:
            if not kind.is_passable:
                says = run.good == run.listed or re.search(r"robots\.txt(?! obeyed)", run.said) is not None
                state = f"{'ended' if run.has_ended else 'not ended'} after {run.seconds:.0f} s; {run.good} pages; robots.txt {'named' if says else 'not named'}"
                rows.append((f"{kind.name}: a robots.txt without an answer, {name}", "ends, and says why", state, run.has_ended and says))
    # A run without hosts of a kind says nothing about it.
    return [one for one in rows if one[2] not in ("0 of 0", "nothing")]


def ends_of(run: Run) -> str:
    return ", ".join(f"{count} {end}" for end, count in sorted(run.lost.items())) or "-"


def figures(run: Run) -> list[str]:
    cost = "-" if run.cost_per_page is None else f"{run.cost_per_page:.2f}"
    share = "-" if run.share is None else f"{run.share:.2f}"
    ended = "yes" if run.has_ended else "no"
    return [f"{run.good} of {run.listed}", str(run.wrong), ends_of(run), f"{run.refused} of {run.requests}", cost, share, f"{run.seconds:.0f}", ended]


def lines(results: dict, rows: list) -> list[str]:
    """Returns the measured part of the report."""
    columns = ["good", "wrong", "lost", "refused", "cost", "share", "seconds", "ended"]
    text = heads("figure", "target", "measured", "verdict")
    text += [row(figure, target, value, "met" if met else "missed") for figure, target, value, met in rows]
    for kinds, title in ((("guard", "proxy"), "Guards"), (("app",), "Applications")):
        of_kind = [(kind, found) for kind, found in results.values() if kind.kind in kinds]
        if not of_kind:
            continue
        text += ["", f"{title}:", "", *heads("host", "set up", *(["best/s"] if "guard" in kinds else []), "run", *columns)]
        for kind, found in of_kind:
            best = ["-" if found.get("best") is None else f"{found['best']:.1f}"] if "guard" in kinds else []
            for by, run in found["runs"]:
                if by in FETCHWISE:
                    text.append(row(kind.name, kind.rule, *best, NAMES[by].split()[0], *figures(run)))
    text += peer_lines(results)
    skipped = [f"* Skipped: {kind.name}. {found['skipped']}" for kind, found in results.values() if "skipped" in found]
    text += ["", *skipped] if skipped else []
    runs = [(kind.name, found) for kind, found in results.values() if "at" in found]
    text += ["", "When each ran:", "", *heads("host", "began (UTC)", "load", "commit of the checkout")]
    text += [row(name, found["at"], f"{found['load']:.1f}", found["commit"]) for name, found in runs]
    return text


def peer_lines(results: dict) -> list[str]:
    """Returns the table of all crawlers on the same links, for hosts that all of them crawled."""
    shared = [(kind, dict(found["runs"])) for kind, found in results.values() if "Scrapy" in dict(found["runs"])]
    if not shared:
        return []
    crawlers = {"run 1": "fetchwise, first run", "Scrapy": "Scrapy with AutoThrottle", "Crawlee": "Crawlee, adaptive"}
    text = ["", "The same links with other crawlers; good, wrong, refused:", "", *heads("host", "listed", *crawlers.values())]
    sums = {by: [0, 0, 0] for by in crawlers}
    for kind, runs in shared:
        cells = []
        for by in crawlers:
            one = [runs[by].good, runs[by].wrong, runs[by].refused] if by in runs else None
            cells.append(", ".join(map(str, one)) if one else "-")
            sums[by] = [total + figure for total, figure in zip(sums[by], one or (0, 0, 0))]
        text.append(row(kind.name, runs["run 1"].listed, *cells))
    total = sum(runs["run 1"].listed for _, runs in shared)
    return [*text, row("all", total, *(", ".join(map(str, sums[by])) for by in crawlers))]
