"""httpx, aiohttp and curl_cffi against a site that counts."""

from __future__ import annotations

import asyncio
import pathlib
import subprocess
import sys

import pytest
from conftest import HERE
from origin import Origin

import fetchwise

httpx = pytest.importorskip("httpx")


def test_the_transport_records_and_does_nothing_else() -> None:
    import fetchwise.httpx

    selector = fetchwise.Selector(fetchers=["direct_access", "playwright"])

    async def main(origin: Origin) -> None:
        transport = fetchwise.httpx.Transport(selector)
        async with httpx.AsyncClient(transport=transport, follow_redirects=True) as client:
            assert (await client.get(f"{origin.url}/static/1")).status_code == 200
            assert (await client.get(f"{origin.url}/app/1")).text.count("root") == 1
            assert (await client.get(f"{origin.url}/block/1")).status_code == 403
            assert (await client.get(f"{origin.url}/moved")).url.path == "/static/moved"
            assert (await client.get(f"{origin.url}/gone/1")).status_code == 404
            with pytest.raises(httpx.ConnectError):
                await client.get("http://127.0.0.1:1/")

    with Origin() as origin:
        asyncio.run(main(origin))
        assert origin.requests() == 6, "each was asked once, the redirect twice"
    masses = selector.masses("domain", "127.0.0.1", "direct_access")
    # An article, a shell, a block, the redirect's target, and no connection. No fetcher caused the missing page.
    assert (masses["attempts"], round(masses["success"]), round(masses["blocked"])) == (5, 2, 1)


@pytest.mark.parametrize("count", [400])
def test_the_loop_of_the_example(tmp_path: pathlib.Path, count: int) -> None:
    pytest.importorskip("aiohttp")
    pytest.importorskip("curl_cffi")
    example = HERE.parent / "examples" / "fetch_loop.py"
    assert len(example.read_text().splitlines()) < 80
    with Origin() as origin:
        urls = [f"{origin.url}/static/{n}" for n in range(count)]
        command = [sys.executable, str(example), "--no-pace", "--data-dir", str(tmp_path), *urls]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        delivered = sum(int(line.split()[0]) for line in done.stdout.splitlines() if "delivered" in line)
        assert delivered == count, done.stdout
        requests = origin.requests("static")
    with fetchwise.Journal(tmp_path) as journal:
        # On a machine that is too busy to connect or to respond in time, some requests are retried. Each request is
        # recorded.
        verified = journal.verify()
        assert verified["sound"] and count <= requests <= verified["attempts"], (requests, verified)
