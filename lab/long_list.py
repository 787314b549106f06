#!/usr/bin/env python3
"""A crawl of a long list: the time to the first request, the time to read the list, and the peak memory of the process.

    lab/long_list.py --fetchwise target/dist/fetchwise [--links 10000000] [--hosts 100000] [--seconds 60]

The hosts are addresses of 127.0.0.0/8 that take turns in the list, and one server on loopback responds for all of them.
The crawl ends by SIGKILL after some seconds, or once the list is read if that takes longer. The target is 400 MB, and a
first request within 10 s.
"""

import argparse
import asyncio
import os
import signal
import subprocess
import tempfile
import threading
import time

MAX_MEMORY = 400e6
MAX_FIRST_S = 10.0
#: Nothing waits longer for the list to be read.
PATIENCE = 900
PAGE = b"<html><head><title>A page</title></head><body><p>" + b"This page has some sentences of text. " * 40 + b"</p></body></html>"
RESPONSE = b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: %d\r\n\r\n%s" % (len(PAGE), PAGE)


class Server(threading.Thread):
    """A server that responds with the same page to everything."""

    def __init__(self):
        super().__init__(daemon=True)
        self.requests, self.first_at, self.port = 0, None, 0
        self.ready = threading.Event()

    async def respond(self, reader, writer):
        try:
            # To respond on every address of 127.0.0.0/8, the server listens on all addresses of the machine.
            if not writer.get_extra_info("peername")[0].startswith("127."):
                return
            while await reader.readuntil(b"\r\n\r\n"):
                self.first_at = self.first_at or time.monotonic()
                self.requests += 1
                writer.write(RESPONSE)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def serve(self):
        server = await asyncio.start_server(self.respond, "0.0.0.0", 0, backlog=4096)
        self.port = server.sockets[0].getsockname()[1]
        self.ready.set()
        await server.serve_forever()

    def run(self):
        asyncio.run(self.serve())


def write_list(path: str, links: int, hosts: int, port: int):
    names = [f"http://127.{1 + n // 62500}.{n // 250 % 250}.{1 + n % 250}:{port}/" for n in range(hosts)]
    with open(path, "w") as file:
        for begin in range(0, links, hosts):
            page = f"{begin // hosts}\n"
            file.write(page.join(names[: min(hosts, links - begin)]) + page)


def status(pid: int, field: str) -> int:
    """Returns a field of the process's memory in bytes."""
    with open(f"/proc/{pid}/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(field + ":"))


def position(pid: int, path: str) -> int:
    """Returns how far the process has read the list."""
    best = 0
    for number in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{number}") == path:
                with open(f"/proc/{pid}/fdinfo/{number}") as file:
                    best = max(best, int(file.readline().split()[1]))
        except OSError:
            pass
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fetchwise", required=True)
    parser.add_argument("--links", type=int, default=10_000_000)
    parser.add_argument("--hosts", type=int, default=100_000)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--concurrency", type=int, default=64)
    args = parser.parse_args()
    server = Server()
    server.start()
    server.ready.wait()
    with tempfile.TemporaryDirectory() as place:
        path = os.path.realpath(os.path.join(place, "links.txt"))
        write_list(path, args.links, args.hosts, server.port)
        size = os.path.getsize(path)
        command = [os.path.abspath(args.fetchwise), "--data-dir", os.path.join(place, "data"), "fetch", "--input", path]
        command += ["--allow-network", "127.0.0.0/8", "--no-browser", "--robots", "ignore", "--quiet"]
        command += ["--concurrency", str(args.concurrency)]
        begun = time.monotonic()
        crawl = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd=place)
        read_at = None
        try:
            while crawl.poll() is None:
                elapsed = time.monotonic() - begun
                # The file is counted first and closed after reading.
                if read_at is None and server.first_at and position(crawl.pid, path) in (0, size):
                    read_at, read_memory = elapsed, status(crawl.pid, "VmHWM")
                if elapsed > PATIENCE or read_at is not None and elapsed >= args.seconds:
                    break
                time.sleep(0.05)
            peak, elapsed, requests = status(crawl.pid, "VmHWM"), time.monotonic() - begun, server.requests
            parts = {name: status(crawl.pid, name) for name in ["RssAnon", "RssFile"]}
        finally:
            crawl.send_signal(signal.SIGKILL)
            crawl.wait()
    first = server.first_at - begun if server.first_at else float("inf")
    is_soon, is_small = first <= MAX_FIRST_S, peak <= MAX_MEMORY
    verdict = {True: "met", False: "missed"}
    print(f"links                      {args.links:>12,} over {args.hosts:,} hosts")
    print(f"first request after        {first:>12.2f} s   {verdict[is_soon]}: at most {MAX_FIRST_S:g} s")
    if read_at is not None:
        print(f"list read after            {read_at:>12.2f} s")
        print(f"peak memory by then        {read_memory / 1e6:>12.1f} MB")
    print(f"peak memory after {elapsed:>5.0f} s  {peak / 1e6:>12.1f} MB  {verdict[is_small]}: at most {MAX_MEMORY / 1e6:g} MB")
    print(f"of it, not from files      {parts['RssAnon'] / 1e6:>12.1f} MB")
    print(f"requests by then           {requests:>12,}")


if __name__ == "__main__":
    main()
