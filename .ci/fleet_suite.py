"""Runs the rows of the fleet's fault suite, prints its progress, and writes the results into a page. See .ci/fleet-suite."""

import datetime
import json
import os
import re
import subprocess
import sys
import time

BEGIN, END = "<!-- fleet-suite begin -->", "<!-- fleet-suite end -->"
CARGO = ["cargo", "test", "--locked", "--all-features"]
# As CI builds them, so that nothing is built twice.
BROKERS = ["--workspace", "--test", "nats"]
# Rows that need no brokers run in one process: what they are called in the table, and their tests.
WITHOUT_BROKERS = [
    ("row_08_messages_doubled_and_shuffled_in_one_process", ["-p", "fetchwise-fleet", "--lib"], "proptests::"),
    ("row_18_any_bytes_are_refused_or_read", ["-p", "fetchwise-fleet", "--test", "fleet"], "hostile::"),
]
# A row that takes longer than this hangs.
LONGEST = {"desk": 1200, "ci": 3600, "full": 6 * 3600}


def say(text):
    print(text, flush=True)


def build(target, package):
    """The program with the tests of a target."""
    command = CARGO + target + ["--no-run", "--message-format", "json"]
    built = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    if built.returncode != 0:
        sys.exit("the tests do not compile")
    found = []
    for line in built.stdout.splitlines():
        said = json.loads(line) if line.startswith("{") else {}
        if said.get("executable") and said.get("profile", {}).get("test") and f"/{package}" in f"/{said['manifest_path']}":
            found.append((said["executable"], os.path.dirname(said["manifest_path"])))
    if len(found) != 1:
        sys.exit(f"there are {len(found)} programs of {target} in {package}")
    return found[0]


def rows_of(program):
    """What tests there are, in order, each with whether it is run by hand only."""
    executable, folder = program
    listed = {}
    for flags in ([], ["--ignored"]):
        text = subprocess.run([executable, "--list", *flags], cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
        for name in re.findall(r"^(\S+): test$", text, re.M):
            listed[name] = bool(flags)
    return listed


def run(program, test, exact, ignored, seconds):
    """Whether it went well, what it printed, and how long it took."""
    executable, folder = program
    command = [executable, test, "--test-threads", "1", "--nocapture"]
    command += ["--exact"] if exact else []
    command += ["--ignored"] if ignored else []
    begun = time.monotonic()
    try:
        ended = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=seconds)
        text, fine = ended.stdout, ended.returncode == 0
    except subprocess.TimeoutExpired as late:
        text, fine = (late.stdout or b"").decode(errors="replace") + f"\nnot ended after {seconds} s", False
    ran = re.search(r"^test result: \w+\. (\d+) passed", text, re.M)
    if fine and (ran is None or int(ran[1]) == 0):
        text, fine = text + "\nno test of that name ran", False
    return fine, text, time.monotonic() - begun


def told(text):
    """What a row has measured, or why it was left out."""
    lines = [line.strip() for line in text.splitlines()]
    # A test's first words stand behind its name.
    lines = [re.sub(r"^test \S+ \.\.\. ?", "", line) for line in lines]
    noise = re.compile(r"^(ok|running \d+ tests?|test result: .*|)$")
    return slowest([line.replace("|", "/") for line in lines if not noise.match(line)])


def slowest(lines):
    """Of times that many rounds have measured, those of the round whose last time is the longest."""
    kinds = {}
    for line in lines:
        kinds.setdefault(re.sub(r"[\d.]+(ms|µs)", "#", line), []).append(line)

    def last(line):
        times = re.findall(r"([\d.]+)(ms|µs)", line)
        return float(times[-1][0]) * {"ms": 1, "µs": 0.001}[times[-1][1]] if times else 0

    told = [(max(alike, key=last), len(alike)) for alike in kinds.values()]
    return [line if count == 1 or not last(line) else f"{line} (the slowest of {count})" for line, count in told]


def main():
    page, counts, only = sys.argv[1:]
    if BEGIN not in open(page).read() or END not in open(page).read():
        sys.exit(f"{page} has no place for the table: {BEGIN} and {END}")
    target = os.environ.get("CARGO_TARGET_DIR", "target")
    broker = subprocess.run([f"{target}/nats-server/nats-server", "--version"], stdout=subprocess.PIPE, text=True, check=True)
    brokers = build(BROKERS, "fleet/")
    tests = rows_of(brokers)
    wanted = [(name.split("::")[-1], brokers, name, True, tests[name]) for name in tests
              if re.match(r"(cluster_faults|fault_matrix|scope_own_faults|pauses|authentication|soak_eight_nodes)::", name)]
    known = {row for row, *_ in wanted} | {row for row, *_ in WITHOUT_BROKERS}
    for row, flags, prefix in WITHOUT_BROKERS:
        if re.search(only, row):
            wanted.append((row, build(flags, "fleet/"), prefix, False, False))
    wanted = sorted(row for row in wanted if re.search(only, row[0]))
    if not wanted:
        sys.exit(f"no row is called as {only!r} says")
    rows, failed, begun = {}, [], time.monotonic()
    for number, (row, program, test, exact, ignored) in enumerate(wanted, 1):
        say(f"[{number}/{len(wanted)}] {row}, counts {counts}, {(time.monotonic() - begun) / 60:.0f} min so far ...")
        fine, text, took = run(program, test, exact, ignored, LONGEST[counts])
        words = told(text) if fine else []
        for line in words:
            say(f"    {line}")
        if not fine:
            failed.append(row)
            say(text)
        skipped = any(word.startswith("SKIPPED") for word in words)
        result = "FAILED" if not fine else "not run here" if skipped else "holds"
        say(f"[{number}/{len(wanted)}] {row}: {result}, {took:.0f} s")
        rows[row] = f"| {row.replace('_', ' ')} | {counts} | {result} | {took:.0f} | {'; '.join(words)} |"
        write(page, rows, known, f"{broker.stdout.strip()}, {datetime.date.today()}")
    say(f"{len(wanted) - len(failed)} of {len(wanted)} rows hold, {(time.monotonic() - begun) / 60:.1f} min; the table is in {page}")
    sys.exit(1 if failed else 0)


def write(page, rows, known, of):
    """Puts the rows that were run into the page's table; the others stay."""
    text = open(page).read()
    head, rest = text.split(BEGIN, 1)
    before, tail = rest.split(END, 1)
    kept = {line.split("|")[1].strip().replace(" ", "_"): line for line in before.splitlines() if re.match(r"\| \w+ .*\|$", line)}
    kept = {row: line for row, line in kept.items() if row in known}
    table = [f"{of}:", "", "| row | counts | result | seconds | what it measured |", "|---|---|---|---|---|"]
    table += [line for _, line in sorted({**kept, **rows}.items())]
    open(page, "w").write(head + BEGIN + "\n" + "\n".join(table) + "\n" + END + tail)


main()
