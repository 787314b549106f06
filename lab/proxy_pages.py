#!/usr/bin/env python3
"""Measures the detector on the pages of proxies in Debian's packages: lab/proxy_pages.py FOLDER.

Downloads squid-langpack and e2guardian with apt-get into FOLDER, fills in what a proxy would, and writes a labelled corpus for each. The sets whose names end in "-nameless" are the same pages without the name of their product. The example
`corpora` prints the figures.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

URL = "http://games.example.net/play/index.php?id=7"
HOST = "games.example.net"
CLIENT = "10.20.4.17"

# What Squid writes for each letter after a percent sign, where it is not empty.
SQUID = {"U": URL, "u": URL, "H": HOST, "h": "proxy1.corp.example", "w": "webmaster@corp.example", "i": CLIENT, "s": "squid/5.7",
         "T": "Mon, 30 Nov 2026 09:12:44 GMT", "l": "body { margin: 1em }"}
E2GUARDIAN = {"URL": URL, "REASONGIVEN": f"Banned site: {HOST}", "REASONLOGGED": f"Banned site: {HOST} (games)", "CATEGORIES": "Games",
              "IP": CLIENT, "USER": "m.weber", "HOST": "pc-117", "FILTERGROUP": "pupils", "SERVERIP": "10.20.0.2"}
NAMES = re.compile(rb'(?is)<!--.*?-->|id="?ERR_\w+"?|ERR_\w+|CacheErrorInfo|squid|e2guardian|dansguardian')


def unpacked(package: str, folder: Path) -> Path:
    """Returns the root of a package's files."""
    root = folder / package
    if not root.exists():
        subprocess.run(["apt-get", "download", package], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        subprocess.run(["dpkg", "-x", str(next(folder.glob(f"{package}_*.deb"))), str(root)], check=True)
    return root


def squid(folder: Path):
    """Yields Squid's denials in each language."""
    for page in sorted(unpacked("squid-langpack", folder).glob("usr/share/squid-langpack/*/ERR_*_DENIED")):
        if page.parent.name != "templates" and not page.parent.is_symlink():
            text = page.read_text("utf-8", "replace")
            says = SQUID | {"c": page.name}
            yield re.sub("%(.)", lambda letter, says=says: says.get(letter[1], ""), text).encode()


def e2guardian(folder: Path):
    """Yields e2guardian's denials in each language, in the charset that each has."""
    for page in sorted(unpacked("e2guardian", folder).glob("etc/e2guardian/languages/*/template.html")):
        yield re.sub(rb"-([A-Z]+)-", lambda name: E2GUARDIAN.get(name[1].decode(), "").encode(), page.read_bytes())


def main() -> None:
    """Writes the corpora and measures them."""
    folder = Path(sys.argv[1]).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    corpora = []
    for source in (squid, e2guardian):
        pages = list(source(folder))
        for name, bodies in ((source.__name__, pages), (f"{source.__name__}-nameless", [NAMES.sub(b"", page) for page in pages])):
            out = folder / "corpora" / name
            out.mkdir(parents=True, exist_ok=True)
            lines = []
            for number, body in enumerate(bodies):
                (out / f"{number}.html").write_bytes(body)
                page = {"label": "network", "url": URL, "body_path": f"{number}.html", "headers": {"content-type": "text/html"}}
                lines.append(json.dumps(page))
            (out / "corpus.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
            corpora.append(str(out / "corpus.jsonl"))
    command = ["cargo", "run", "--release", "--quiet", "-p", "fetchwise-detect", "--features", "json", "--example", "corpora", "--"]
    subprocess.run(command + corpora, check=True, cwd=Path(__file__).parent)


if __name__ == "__main__":
    main()
