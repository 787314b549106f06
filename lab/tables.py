"""What scripts that measure share: table rows, the commit, and the marked part of a report.

Owns: the marks of the measured part. Invariants: nothing outside the marks changes. Must not know: what is measured.
"""

import pathlib
import subprocess

ROOT = pathlib.Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- measured -->", "<!-- end -->"


def row(*cells) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def heads(*cells) -> list[str]:
    """Returns the first two lines of a table."""
    return [row(*cells), "|" + "---|" * len(cells)]


def commit() -> str:
    """Returns the short name of the commit, and whether files differ from it."""
    git = ["git", "-C", str(ROOT)]
    try:
        name = subprocess.run([*git, "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True).stdout.strip()
        changes = subprocess.run([*git, "status", "--porcelain", "--untracked-files=no"], capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return f"{name} with changes" if changes.strip() else name


def write_measured(page: str, lines: list[str]):
    """Replaces the measured part of a page, or begins one."""
    path = pathlib.Path(page)
    head, begin, rest = (path.read_text() if path.exists() else f"{BEGIN}\n{END}\n").partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not (begin and end):
        raise SystemExit(f"{page} has no lines {BEGIN} and {END}, between which the figures would go")
    path.write_text(f"{head}{BEGIN}\n" + "\n".join(lines) + f"\n{END}{tail}")
