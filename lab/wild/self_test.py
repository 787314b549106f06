"""Checks of the relay and of the judgement of pages, against a small server on loopback.

Owns: the answers of the server. Must not know: hosts of the lab.
"""

import contextlib
import socket
import socketserver
import threading

from crawl import is_good
from hosts import Link
from meter import Meter

ANSWERS = {
    "/length": b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    "/chunks": b"HTTP/1.1 429 No\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n",
    "/nothing": b"HTTP/1.1 204 No Content\r\n\r\n",
    "/hint": b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok",
    "/until-close": b"HTTP/1.1 200 OK\r\n\r\nto the end",
}


class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while line := self.rfile.readline():
            path = line.split(b" ")[1].decode()
            while self.rfile.readline() not in (b"\r\n", b""):
                pass
            if path == "/reset":
                self.request.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
                self.request.close()
                return
            if path == "/close":
                return
            # In two parts: a head may come in pieces.
            answer = ANSWERS[path]
            for part in (answer[:9], answer[9:]):
                self.wfile.write(part)
                self.wfile.flush()
            if path == "/until-close":
                return

    def finish(self):
        with contextlib.suppress(OSError, ValueError):
            super().finish()


def talk(meter: Meter, paths: list[str]) -> tuple[bytes, bool]:
    """Sends requests on one connection; returns what came, and whether the end was a reset."""
    with socket.create_connection((meter.address, meter.port), timeout=60) as client:
        client.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: a\r\n\r\n".encode() for path in paths))
        came, expected = b"", sum(len(ANSWERS.get(path, b"")) for path in paths)
        try:
            while data := client.recv(65536):
                came += data
                if len(came) == expected and paths[-1] not in ("/until-close", "/close", "/reset"):
                    break
        except ConnectionError:
            return came, True
        return came, False


def main() -> int:
    socketserver.ThreadingTCPServer.daemon_threads = True
    with socketserver.ThreadingTCPServer(("127.0.99.2", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        meter = Meter("127.0.99.1", server.server_address[1], server.server_address)
        paths = ["/length", "/chunks", "/nothing", "/hint", "/until-close"]
        came, was_reset = talk(meter, paths)
        assert came == b"".join(ANSWERS[path] for path in paths), came
        assert not was_reset
        seen = [(one.path, one.status) for one in meter.take()]
        assert seen == [*zip(paths, [200, 429, 204, 200, 200])], seen
        assert talk(meter, ["/length", "/close"]) == (ANSWERS["/length"], False)
        # An end without an answer counts for the host, and a reset arrives as a reset.
        assert talk(meter, ["/reset"]) == (b"", True)
        seen = [(one.path, one.status, one.closed_by) for one in meter.take()]
        assert seen == [("/length", 200, None), ("/close", None, "host"), ("/reset", None, "host")], seen
        meter.stop()
        server.shutdown()
    link = Link("http://a/", ("Fish & chips", "a word"))
    assert is_good("<title>x</title><p>Fish &amp; <b>chips</b></p>\n<p>A list: a\n word</p>", link)
    assert not is_good("<p>Fish &amp; chips</p>", link)
    assert is_good("<div><template shadowrootmode='open'>Fish &amp; chips, a word</template></div>", link)
    assert not is_good("<template>Fish &amp; chips, a word</template>", link)
    assert not is_good("<script>text = 'Fish & chips: a word'</script>", link)
    print("The relay and the judgement of pages work.")
    return 0
