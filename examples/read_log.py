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
        assert incompatible & ~1 == 0
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


ATTEMPT_SIZES = {1: 144, 2: 176}


def attempt(schema, data):
    # Version 2 starts like version 1.
    root = len(data) - ATTEMPT_SIZES[schema]
    a = Archive(data, root)
    url = a.text(68)
    heuristics = []
    for tag in a.list(120, 28):
        importance = tag.optional(lambda offset: tag.get("f", offset), 20, 4)
        heuristics.append({"type": tag.name(TYPES, 0, 4), "value": tag.text(12), "importance": importance})
    return {
        "id": str(uuid.UUID(bytes=data[root : root + 16])),
        "link": a.optional(a.text, 56, 4) or url,
        "url": url,
        "fetcher": a.text(76),
        "success": bool(a.get("B", 134)),
        "is_banned": bool(a.get("B", 135)),
        "error_type": a.name(ERRORS, 136, 84),
        "http_status": a.get("H", 132) or None,
        "response_headers": {header.text(0): header.text(8) for header in a.list(112, 16)},
        "duration_ms": a.get("Q", 24),
        "attempted_at_ms": a.get("q", 16),
        "source": a.name(SOURCES, 137, 92),
        "propensity": a.optional(lambda offset: a.get("d", offset), 40, 8),
        "hint": None if a.get("B", 138) == 0 else HINTS[a.get("B", 138) - 1],
        "weight": a.get("d", 32),
        "try_no": a.get("I", 128),
        "shadow_fetcher": a.optional(a.text, 100, 4),
        "heuristics": heuristics,
        "rule": a.name(RULES, 168, 160) if schema >= 2 else None,
        "confidence": a.optional(lambda offset: a.get("d", offset), 144, 8) if schema >= 2 else None,
        "arm": ARMS[a.get("B", 169) - 1] if schema >= 2 and a.get("B", 169) else None,
    }


def main(folder):
    attempts, forgotten = [], {}
    for segment in chain(Path(folder)):
        for seq, kind, schema, data in segment.records():
            if kind == 1:
                attempts.append((seq, attempt(schema, data)))
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
