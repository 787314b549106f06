#!/usr/bin/env python3
"""Draws what `fetchwise fetch` shows on a terminal as SVG: crawl-120.svg, crawl-60.svg and crawl-report.svg.

    .ci/terminal_pictures.py --fetchwise target/debug/fetchwise --out docs/images

Owns: the sites of the pictures, the moment that they show, and the colours. Invariants: every character comes from the program, through a
terminal emulator (pyte); nothing is written by hand but the command itself. Must not know: what the program prints, besides its counts.
"""

import argparse
import contextlib
import fcntl
import html
import json
import os
import pathlib
import pty
import re
import struct
import subprocess
import tempfile
import termios
import time
import urllib.request

import pyte

#: Few failures, so that the picture has room for the live region.
SITES = [("static", 3, 40), ("shell", 1, 12), ("limited", 1, 60), ("slow", 1, 30), ("flaky", 1, 30), ("gone", 1, 3), ("forbidden", 1, 5)]
ROWS = 24
#: The part of the links that has ended when the picture of a running crawl is taken.
SHOWN_SHARE = 0.6
COMMAND = "fetchwise fetch --input links.txt --out pages --data-dir data --allow-network 127.0.0.0/8 --wait 0"
CELL, LINE, MARGIN, SIZE = 8.43, 18, 12, 14
BACKGROUND, FOREGROUND = "#16181d", "#d7dae0"
COLOURS = {"red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef", "magenta": "#c678dd", "cyan": "#56b6c2"}
PROMPT = COLOURS["blue"]


def svg(rows: list[list[tuple[str, str, bool]]], columns: int) -> str:
    """Rows of runs (text, colour, bold) as a picture."""
    width, height = round(columns * CELL + 2 * MARGIN), len(rows) * LINE + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="{SIZE}">',
        f'<rect width="{width}" height="{height}" rx="6" fill="{BACKGROUND}"/>',
    ]
    for number, runs in enumerate(rows):
        column = 0
        for text, colour, bold in runs:
            if text.strip():
                x, y = MARGIN + column * CELL, MARGIN + number * LINE + SIZE
                weight = ' font-weight="bold"' if bold else ""
                lines.append(
                    f'<text x="{x:.1f}" y="{y}" fill="{colour}"{weight} xml:space="preserve" textLength="{len(text) * CELL:.1f}" '
                    f'lengthAdjust="spacingAndGlyphs">{html.escape(text, quote=False)}</text>'
                )
            column += len(text)
    return "\n".join([*lines, "</svg>"]) + "\n"


def runs_of(screen: pyte.Screen, row: int) -> list[tuple[str, str, bool]]:
    """A row of the terminal as runs of one style, without blanks at the end."""
    runs: list[tuple[str, str, bool]] = []
    cells = [screen.buffer[row][column] for column in range(screen.columns)]
    while cells and cells[-1].data == " ":
        cells.pop()
    for cell in cells:
        colour = COLOURS.get(cell.fg, FOREGROUND)
        if runs and runs[-1][1:] == (colour, cell.bold):
            runs[-1] = (runs[-1][0] + cell.data, colour, cell.bold)
        else:
            runs.append((cell.data, colour, cell.bold))
    return runs


def rows_of(screen: pyte.Screen) -> list[list[tuple[str, str, bool]]]:
    rows = [runs_of(screen, row) for row in range(screen.lines)]
    while rows and not rows[-1]:
        rows.pop()
    return rows


def done(screen: pyte.Screen) -> float:
    """The part of the links that has ended, by the live region."""
    found = re.findall(r"([\d,]+)/([\d,]+)  ", "\n".join(screen.display))
    return int(found[-1][0].replace(",", "")) / int(found[-1][1].replace(",", "")) if found else 0.0


def crawl(program: str, links: str, columns: int) -> tuple[list, list]:
    """Crawls on a terminal. Returns its rows in the middle of the crawl, and at the end."""
    screen = pyte.Screen(columns, ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"\x1b[34m$ {COMMAND}\x1b[0m\r\n".encode())
    with tempfile.TemporaryDirectory() as place:
        pathlib.Path(place, "links.txt").write_text(links)
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
        kept = {name: value for name, value in os.environ.items() if not name.startswith("FETCHWISE_") and name != "NO_COLOR"}
        settings = kept | {"TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        command = [program, *COMMAND.split()[1:]]
        child = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=place, env=settings, start_new_session=True)
        os.close(theirs)
        middle: list = []
        with contextlib.suppress(OSError):
            while part := os.read(ours, 65536):
                stream.feed(part)
                if not middle and done(screen) >= SHOWN_SHARE:
                    # What was read may end in the middle of a frame: the next one comes within a quarter of a second.
                    time.sleep(0.1)
                    stream.feed(os.read(ours, 65536))
                    middle = rows_of(screen)
        os.close(ours)
        child.wait()
    return middle, rows_of(screen)


def report(rows: list) -> list:
    """The rows from the summary on."""
    begins = [number for number, runs in enumerate(rows) if runs and re.match(r"\d+ delivered", "".join(text for text, _, _ in runs))]
    return rows[begins[-1] :]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetchwise", required=True, type=os.path.abspath, help="the program")
    parser.add_argument("--lab", type=os.path.abspath, help="the program of the testbed (fetchwise-lab next to the other one)")
    parser.add_argument("--out", required=True, type=pathlib.Path, help="the folder for the pictures")
    args = parser.parse_args()
    args.lab = args.lab or os.path.join(os.path.dirname(args.fetchwise), "fetchwise-lab")
    for columns in (120, 60):
        with tempfile.TemporaryDirectory() as place, contextlib.ExitStack() as stack:
            sites = pathlib.Path(place, "sites.toml")
            sites.write_text("".join(f'[[site]]\nkind = "{kind}"\ncount = {count}\npages = {pages}\n' for kind, count, pages in SITES))
            command = [args.lab, "testbed", "--json", "--sites", str(sites)]
            testbed = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True))
            stack.callback(testbed.terminate)
            with urllib.request.urlopen(json.loads(testbed.stdout.readline())["links"], timeout=30) as answer:
                links = answer.read().decode()
            middle, end = crawl(args.fetchwise, links, columns)
        args.out.joinpath(f"crawl-{columns}.svg").write_text(svg(middle, columns))
        if columns == 120:
            args.out.joinpath("crawl-report.svg").write_text(svg(report(end), columns))
        print(f"crawl-{columns}.svg: {len(middle)} lines")


if __name__ == "__main__":
    main()
