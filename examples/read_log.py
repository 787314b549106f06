#!/usr/bin/env python3
"""Prints the attempts in a fetchwise data directory as JSON lines, without fetchwise.

    python3 examples/read_log.py DATA_DIR

Written from log/FORMAT.md alone, to show that the page is enough. It reads a log that was closed in good order; what a crash
left is for fetchwise itself to judge.
"""
import json
import re
import struct
import sys
import uuid
from pathlib import Path

ERRORS = (
    "blocked_captcha blocked_403 wrong_tool empty_content timeout network_error server_error truncated not_found client_error "
    "auth_required dns_error tls_error proxy_error redirect_loop too_large refused_address invalid_url queued local_fault "
    "rate_limited disallowed not_held network_block payment_required declined identity_rejected reserved left_by_policy"
).split()
SOURCES = "learned inferred explore probe hard_coded hinted paused".split()
RULES = (
    "index domain_confident last_attempt explore last_ditch cheapest_confident probe_first published caller_hint router_table "
    "shared_probe paused custom impassable_try"
).split()
ARMS = "learning legacy".split()
HINTS = "blocked empty timeout unknown".split()
TYPES = (
    "domain site suffix domain_suffix domain_path path_depth contains_cdn contains_static contains_assets contains_api "
    "content_type has_captcha has_spa spa_framework has_paywall empty_body high_script_ratio status_200"
).split()

TABLE = []
for n in range(256):
    for _ in range(8):
        n = n >> 1 ^ (0x82F63B78 if n & 1 else 0)
    TABLE.append(n)


def crc32c(*parts):
    crc = 0xFFFFFFFF
    for part in parts:
        for byte in part:
            crc = crc >> 8 ^ TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


def u64(n):
    return struct.pack("<Q", n)


class Segment:
    def __init__(self, path):
        self.path, self.bytes = path, path.read_bytes()
        blocks = [self.bytes[at : at + 256] for at in (0, 2048)]
        block = next(b for b in blocks if crc32c(b[:252]) == struct.unpack_from("<I", b, 252)[0])
        assert block[:8] == b"\x89FWL\r\n\x1a\n" and struct.unpack_from("<H", block, 8)[0] == 1
        self.number, self.stands_to, self.first_seq = struct.unpack_from("<IIQ", block, 32)
        (self.nonce,) = struct.unpack_from("<Q", block, 56)
        (self.previous,) = struct.unpack_from("<I", block, 72)
        (self.previous_len,) = struct.unpack_from("<Q", block, 80)
        (incompatible,) = struct.unpack_from("<Q", block, 128)
        assert incompatible & ~3 == 0
        self.end = struct.unpack_from("<Q", block, 136)[0] if incompatible & 1 else None

    def records(self):
        at = 4096
        while at + 48 <= (self.end or len(self.bytes)) and any(self.bytes[at : at + 48]):
            header = self.bytes[at : at + 48]
            magic, hcrc, length, pcrc, seq, _, count, kind, _, _ = struct.unpack("<4sIIIQQIHHq", header)
            payload = self.bytes[at + 48 : at + 48 + length]
            assert magic == b"\xf1FWr" and hcrc == crc32c(u64(self.nonce), u64(at), header[8:])
            assert pcrc == crc32c(u64(self.nonce), u64(seq), payload)
            offset = 0
            for n in range(count if kind == 1 else 0):
                size, record_kind, schema = struct.unpack_from("<IHH", payload, offset)
                yield seq + n, record_kind, schema, payload[offset + 16 : offset + 16 + size]
                offset += 16 + (size + 7) // 8 * 8
            if kind == 4:
                yield from block(seq, payload)
            at += (48 + length + 15) // 16 * 16


def chain(folder):
    """Returns the valid segments, oldest first."""
    found = [Segment(path) for path in folder.iterdir() if re.fullmatch(r"seg-[0-9a-f]{8}-[0-9a-f]{16}\.fwl", path.name)]
    segments, wanted, end = [], max((s.stands_to for s in found), default=0), None
    while wanted:
        candidates = [s for s in found if s.number <= wanted <= s.stands_to]
        if not candidates:
            break  # Below the floor.
        segment = max(candidates, key=lambda s: s.stands_to - s.number)
        segment.end = segment.end or end
        segments.insert(0, segment)
        wanted, end = segment.previous, segment.previous_len
    return segments


class Archive:
    """Reads one struct of a record at a byte position."""

    def __init__(self, data, at):
        self.data, self.at = data, at

    def get(self, code, offset):
        return struct.unpack_from("<" + code, self.data, self.at + offset)[0]

    def optional(self, read, offset, align):
        return read(offset + align) if self.get("B", offset) else None

    def text(self, offset):
        at = self.at + offset
        if self.data[at] & 0xC0 != 0x80:
            return self.data[at : at + 8].split(b"\xff")[0].decode()
        a, relative = struct.unpack_from("<Ii", self.data, at)
        length = a & 0x3F | (a & 0xFFFFFF00) >> 2
        return self.data[at + relative : at + relative + length].decode()

    def list(self, offset, size):
        relative, count = struct.unpack_from("<iI", self.data, self.at + offset)
        return [Archive(self.data, self.at + offset + relative + n * size) for n in range(count)]

    def name(self, names, offset, other):
        code = self.get("B", offset)
        return None if code == 0 else self.text(other) if code == 255 else names[code - 1]


class Column:
    """Takes values from the front of bytes."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def take(self, size):
        self.at += size
        assert self.at <= len(self.data)
        return self.data[self.at - size : self.at]

    def get(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def varint(self):
        value, shift, byte = 0, 0, 0x80
        while byte & 0x80:
            byte = self.get("B")
            value, shift = value | (byte & 0x7F) << shift, shift + 7
        return value

    def name(self):
        return self.take(self.varint()).decode()


def lz4(data, length):
    """Decompresses one block of LZ4."""
    column, out = Column(data), bytearray()

    def extended(size):
        more = size == 15
        while more:
            byte = column.get("B")
            size, more = size + byte, byte == 255
        return size

    while True:
        token = column.get("B")
        out += column.take(extended(token >> 4))
        if column.at == len(data):
            assert len(out) == length
            return bytes(out)
        back = column.get("H")
        for _ in range(extended(token & 15) + 4):
            out.append(out[-back])


def block(first_seq, payload):
    """Yields the records of a block; an attempt in columns as a dict."""
    schema, codec, count, hot_len, cold_len, raw_len, gaps_len, _, _ = struct.unpack_from("<HHIIIIIII", payload)
    assert schema == 1 and codec in (0, 1)
    at = 32 + (hot_len + 15) // 16 * 16
    cold = payload[at : at + cold_len] if codec == 0 else lz4(payload[at : at + cold_len], raw_len)
    gaps, skips, place = Column(payload[at + cold_len : at + cold_len + gaps_len]), {}, 0
    while gaps.at < gaps_len:
        place += gaps.varint()
        skips[place] = gaps.varint()
    hot, whole_cold = Archive(payload[32 : 32 + hot_len], hot_len - 88), Column(cold)
    columns = [Column(whole_cold.take(whole_cold.get("I"))) for _ in range(10)]
    shapes = []
    while columns[4].at < len(columns[4].data):
        shapes.append(columns[4].take(columns[4].varint()))
    tables = {
        "texts": [text.text(0) for text in hot.list(8, 8)],
        "outcomes": hot.list(24, 48),
        "at": [at.get("I", 0) + hot.get("q", 0) for at in hot.list(40, 4)] or [at.get("q", 0) for at in hot.list(48, 8)],
        "took": [took.get("I", 0) for took in hot.list(56, 4)],
        "outcome": [number.get("H", 0) for number in hot.list(72, 2)],
        "id": [bytes(n.data[n.at : n.at + 10]) for n in hot.list(80, 10)],
    }
    whole, seq, row = {place.get("H", 0) for place in hot.list(32, 2)}, first_seq, 0
    for place in range(count):
        seq += skips.get(place, 0)
        if place in whole:
            kind, schema, _ = columns[9].get("H"), columns[9].get("H"), columns[9].get("Q")
            yield seq, kind, schema, columns[9].take(columns[9].varint())
        else:
            yield seq, 1, None, packed_attempt(tables, row, columns, Column(shapes[columns[3].varint()]))
            row += 1
        seq += 1


def packed_attempt(tables, row, columns, shape):
    """Builds an attempt from its row."""
    outcome, texts, at = tables["outcomes"][tables["outcome"][row]], tables["texts"], tables["at"][row]
    numbers, literal_lens, literals, floats = columns[5:9]

    def text(offset):
        number = outcome.get("I", offset)
        return texts[number - 1] if number else ""

    def name(names, offset, other):
        code = outcome.get("B", offset)
        return None if code == 0 else text(other) if code == 255 else names[code - 1]

    def literal():
        return literals.take(literal_lens.varint()).decode()

    url = columns[2].take(columns[1].varint()).decode()
    values = []

    def value():
        way = shape.get("B")
        if way == 0:
            return literal()
        if way == 1:
            host = re.split("[/?#]", url.split("://", 1)[1])[0].rsplit("@", 1)[-1].split(":", 1)[0]
            return host.removeprefix("www.")
        if way == 6:
            return texts[shape.varint()]
        if way == 7:
            return texts[numbers.varint()]
        earlier = values[shape.get("B")]
        if way == 2:
            return earlier
        if way == 3:
            return earlier.encode()[-numbers.varint() :].decode()
        if way == 4:
            return earlier + "|" + values[shape.get("B")]
        assert way == 5
        path = url.split("://", 1)[1].split("/", 1)[1]
        return earlier + "|" + re.split("[/?#]", path)[0]

    zigzag = columns[0].varint()
    time = (zigzag >> 1 ^ -(zigzag & 1)) + at
    link = literal() if shape.get("B") else url
    propensity = floats.get("d") if shape.get("B") else None
    confidence = floats.get("d") if shape.get("B") else None
    headers = {}
    for _ in range(shape.varint()):
        header = shape.name()
        headers[header] = value()
    heuristics = []
    for _ in range(shape.varint()):
        code = shape.get("B")
        kind = shape.name() if code == 255 else TYPES[code - 1]
        importance = floats.get("f") if shape.get("B") else None
        values.append(value())
        heuristics.append({"type": kind, "value": values[-1], "importance": importance})
    return {
        "id": str(uuid.UUID(bytes=struct.pack(">Q", time & 0xFFFFFFFFFFFF)[2:] + tables["id"][row])),
        "link": link,
        "url": url,
        "fetcher": text(8),
        "success": bool(outcome.get("B", 34)),
        "is_banned": bool(outcome.get("B", 35)),
        "error_type": name(ERRORS, 36, 12),
        "http_status": outcome.get("H", 32) or None,
        "response_headers": headers,
        "duration_ms": tables["took"][row],
        "attempted_at_ms": at,
        "source": name(SOURCES, 37, 16),
        "propensity": propensity,
        "hint": None if outcome.get("B", 38) == 0 else HINTS[outcome.get("B", 38) - 1],
        "weight": outcome.get("d", 0),
        "try_no": outcome.get("I", 28),
        "shadow_fetcher": text(24) or None,
        "heuristics": heuristics,
        "rule": name(RULES, 39, 20),
        "confidence": confidence,
        "arm": ARMS[outcome.get("B", 40) - 1] if outcome.get("B", 40) else None,
    }


def attempt(data):
    root = len(data) - 168
    a = Archive(data, root)
    url = a.text(84)
    heuristics = []
    for tag in a.list(144, 28):
        importance = tag.optional(lambda offset: tag.get("f", offset), 20, 4)
        heuristics.append({"type": tag.name(TYPES, 0, 4), "value": tag.text(12), "importance": importance})
    return {
        "id": str(uuid.UUID(bytes=data[root : root + 16])),
        "link": a.optional(a.text, 72, 4) or url,
        "url": url,
        "fetcher": a.text(92),
        "success": bool(a.get("B", 158)),
        "is_banned": bool(a.get("B", 159)),
        "error_type": a.name(ERRORS, 160, 100),
        "http_status": a.get("H", 156) or None,
        "response_headers": {header.text(0): header.text(8) for header in a.list(136, 16)},
        "duration_ms": a.get("Q", 24),
        "attempted_at_ms": a.get("q", 16),
        "source": a.name(SOURCES, 161, 108),
        "propensity": a.optional(lambda offset: a.get("d", offset), 40, 8),
        "hint": None if a.get("B", 164) == 0 else HINTS[a.get("B", 164) - 1],
        "weight": a.get("d", 32),
        "try_no": a.get("I", 152),
        "shadow_fetcher": a.optional(a.text, 124, 4),
        "heuristics": heuristics,
        "rule": a.name(RULES, 162, 116),
        "confidence": a.optional(lambda offset: a.get("d", offset), 56, 8),
        "arm": ARMS[a.get("B", 163) - 1] if a.get("B", 163) else None,
    }


def main(folder):
    attempts, forgotten = [], {}
    for segment in chain(Path(folder)):
        for seq, kind, schema, data in segment.records():
            if kind == 1:
                attempts.append((seq, data if schema is None else attempt(data)))
            elif kind == 5 and schema == 1:
                stone = Archive(data, len(data) - 32)
                domain, link = stone.optional(stone.text, 8, 4), stone.optional(stone.text, 20, 4)
                forgotten[("domain", domain) if domain is not None else ("link", link)] = seq
    for seq, found in attempts:
        names = [("domain", h["value"]) for h in found["heuristics"] if h["type"] in ("domain", "redirected_by")]
        if seq > max(forgotten.get(name, 0) for name in [*names, ("link", found["link"])]):
            print(json.dumps(found))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
