"""A relay in front of each host, which counts requests and their results.

Owns: the exchanges of a host. Invariants: one connection of the client is one connection to the host; bytes pass unchanged and in order, and
an end or a reset passes as what it is; the meter only reads along. Must not know: who crawls, and which answer is a refusal.
"""

import asyncio
import dataclasses
import socket
import struct
import threading
import time

RESET = struct.pack("ii", 1, 0)


@dataclasses.dataclass
class Exchange:
    path: str
    begun: float
    #: Whether a browser asked, for whatever it asked.
    by_browser: bool
    #: Whether the request is for a document, as far as its headers say.
    is_document: bool
    status: int | None = None
    ended: float | None = None
    #: Who closed the connection before there was an answer: host or client.
    closed_by: str | None = None


class Stream:
    """Finds messages in one direction of a connection. After an upgrade, or bytes that are no HTTP, it looks at nothing any more."""

    def __init__(self, has_body):
        self.buffer, self.left, self.is_chunked, self.until_close, self.is_opaque = b"", 0, False, False, False
        self.has_body = has_body

    def feed(self, data: bytes):
        """Yields the head of each message as (first line, headers)."""
        if self.is_opaque or self.until_close:
            return
        self.buffer += data
        while self.buffer and not self.is_opaque and not self.until_close:
            if self.left:
                taken = min(self.left, len(self.buffer))
                self.left, self.buffer = self.left - taken, self.buffer[taken:]
            elif self.is_chunked:
                if not self.pass_chunk():
                    return
            else:
                head, found, rest = self.buffer.partition(b"\r\n\r\n")
                if not found:
                    self.is_opaque = len(head) > 100_000
                    return
                self.buffer = rest
                yield self.message(head)

    def pass_chunk(self) -> bool:
        size, found, rest = self.buffer.partition(b"\r\n")
        if not found:
            return False
        try:
            length = int(size.split(b";")[0], 16)
        except ValueError:
            self.is_opaque = True
            return False
        if length:
            self.left, self.buffer = length + 2, rest
            return True
        # Trailers are rare: the last chunk ends with an empty line.
        if len(rest) < 2:
            return False
        self.is_chunked, self.buffer = False, rest[2:]
        return True

    def message(self, head: bytes) -> tuple[str, dict[str, str]]:
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if self.has_body(first):
            self.is_chunked = "chunked" in headers.get("transfer-encoding", "").lower()
            length = headers.get("content-length")
            self.left = 0 if self.is_chunked else int(length) if (length or "").isdigit() else 0
            self.until_close = not self.is_chunked and length is None and first.startswith("HTTP/")
        return first, headers


class Connection:
    """The exchanges of one connection, in the order of their requests."""

    def __init__(self, exchanges: list[Exchange]):
        self.exchanges, self.open = exchanges, []
        self.requests = Stream(lambda first: True)
        self.responses = Stream(self.response_has_body)

    def response_has_body(self, first: str) -> bool:
        status = (first.split(" ") + [""])[1]
        is_head = bool(self.open) and self.open[0][1]
        return not is_head and status not in ("204", "304") and not status.startswith("1")

    def sent(self, data: bytes):
        for first, headers in self.requests.feed(data):
            method, _, rest = first.partition(" ")
            path = rest.rpartition(" ")[0]
            if path.startswith("http://"):
                path = "/" + path.removeprefix("http://").partition("/")[2]
            mode = headers.get("sec-fetch-dest")
            exchange = Exchange(path, time.monotonic(), mode is not None, mode in (None, "document"))
            self.exchanges.append(exchange)
            self.open.append((exchange, method == "HEAD"))

    def received(self, data: bytes):
        for first, _ in self.responses.feed(data):
            status = int(first.split(" ")[1]) if first.startswith("HTTP/") and first.split(" ")[1].isdigit() else 0
            if status == 101:
                # A WebSocket begins.
                self.requests.is_opaque = self.responses.is_opaque = True
            elif 100 <= status < 200:
                continue
            if self.open:
                exchange, _ = self.open.pop(0)
                exchange.status, exchange.ended = status, time.monotonic()

    def close(self, by: str):
        for exchange, _ in self.open:
            exchange.ended, exchange.closed_by = time.monotonic(), by
        self.open = []


class Meter:
    """Listens on one address and relays to another, in its own thread."""

    def __init__(self, address: str, port: int, behind: tuple[str, int]):
        self.address, self.port, self.behind = address, port, behind
        self.exchanges: list[Exchange] = []
        self.loop, self.is_ready, self.error = asyncio.new_event_loop(), threading.Event(), None
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()
        self.is_ready.wait()
        if self.error:
            raise self.error

    def serve(self):
        try:
            server = self.loop.run_until_complete(asyncio.start_server(self.relay, self.address, self.port, backlog=512))
        except OSError as error:
            self.error = error
            return
        finally:
            self.is_ready.set()
        self.loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(asyncio.sleep(0.1))
        self.loop.close()

    def stop(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(timeout=10)

    def take(self) -> list[Exchange]:
        """Returns the exchanges since the last call."""
        taken, self.exchanges[:] = list(self.exchanges), []
        return taken

    async def relay(self, reader, writer):
        connection = Connection(self.exchanges)
        try:
            behind_reader, behind_writer = await asyncio.open_connection(*self.behind)
        except OSError:
            writer.transport.abort()
            return
        pumps = {
            asyncio.ensure_future(self.pump(reader, behind_writer, connection.sent)): "client",
            asyncio.ensure_future(self.pump(behind_reader, writer, connection.received)): "host",
        }
        try:
            done, rest = await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            first = next(iter(done))
            connection.close(pumps[first])
            for pump in rest:
                pump.cancel()
            other = writer if pumps[first] == "host" else behind_writer
            if first.result():
                other.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        except asyncio.CancelledError:
            # The meter stops.
            for pump in pumps:
                pump.cancel()
        finally:
            for end in (writer, behind_writer):
                end.close()

    @staticmethod
    async def pump(reader, writer, look) -> bool:
        """Copies until the end; returns whether that was a reset."""
        try:
            while data := await reader.read(65536):
                try:
                    look(data)
                except (ValueError, IndexError):
                    # What is no HTTP passes anyway, uncounted.
                    look = len
                writer.write(data)
                await writer.drain()
        except (ConnectionError, OSError):
            return True
        return False
