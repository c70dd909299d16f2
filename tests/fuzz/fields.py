"""Changes of bytes: blind ones, and ones that know the fields of a zip file."""

from __future__ import annotations

import hashlib
import random
import struct

from fuzz import documents

COMMENT_BYTES = 81

# ---- bytes, whatever they are ----


def blind(data: bytes, rng: random.Random, other: bytes) -> bytes:
    """Change bytes without a thought of what they mean."""
    out = bytearray(data)
    size = len(out)
    at = rng.randrange(size + 1)
    length = min(rng.choice([1, 2, 4, 8, 64, 100, 1000, size // 2]), size - at)
    match rng.randrange(10):
        case 0 | 1 if size:
            for _ in range(rng.choice([1, 1, 2, 8])):
                out[rng.randrange(size)] ^= 1 << rng.randrange(8)
        case 2 if size:
            out[rng.randrange(size)] = rng.choice([0, 1, 0x7F, 0x80, 0xFF, 0x5A])
        case 3:
            to = rng.randrange(size + 1)
            out[at : at + length], out[to : to + length] = out[to : to + length], out[at : at + length]
        case 4:
            del out[at:]
        case 5:
            del out[at : at + length]
        case 6:
            out[at:at] = rng.choice([bytes(length), rng.randbytes(length), bytes(out[at : at + length])])
        case 7:
            out[at:] = other[min(at, len(other)) :]
        case 8:
            start = rng.randrange(len(other) + 1)
            out[at : at + length] = other[start : start + length]
        case _:
            out[at : at + length] = rng.choice([b"\0", b"\xff"]) * length
    return bytes(out)


# ---- the fields of a zip file ----

LOCAL = [(0, 4), (4, 2), (6, 2), (8, 2), (10, 2), (12, 2), (14, 4), (18, 4), (22, 4), (26, 2), (28, 2)]
CENTRAL = [
    (0, 4),
    (4, 2),
    (6, 2),
    (8, 2),
    (10, 2),
    (12, 2),
    (14, 2),
    (16, 4),
    (20, 4),
    (24, 4),
    (28, 2),
    (30, 2),
    (32, 2),
]
CENTRAL += [(34, 2), (36, 2), (38, 4), (42, 4)]
END = [(0, 4), (4, 2), (6, 2), (8, 2), (10, 2), (12, 4), (16, 4), (20, 2)]
END64 = [(0, 4), (4, 8), (12, 2), (14, 2), (16, 4), (20, 4), (24, 8), (32, 8), (40, 8), (48, 8)]
LOCATOR = [(0, 4), (4, 4), (8, 8), (16, 4)]


def index_start(data: bytes) -> int:
    """Where the central directory of a whole database starts."""
    end = len(data) - 22 - COMMENT_BYTES
    start = struct.unpack_from("<L", data, end + 16)[0]
    if data[end - 20 : end - 16] == b"PK\6\7":
        start = struct.unpack_from("<Q", data, end - 76 + 48)[0]
    return int(start)


def fields(data: bytes) -> list[tuple[int, int]]:
    """Place and width of every number of the headers and end records of a whole database."""
    found = []
    at, end = index_start(data), len(data) - 22 - COMMENT_BYTES
    found += [(end + place, width) for place, width in END]
    if data[end - 20 : end - 16] == b"PK\6\7":
        found += [(end - 20 + place, width) for place, width in LOCATOR]
        found += [(end - 76 + place, width) for place, width in END64]
    while data[at : at + 4] == b"PK\1\2":
        key, extra = struct.unpack_from("<HH", data, at + 28)
        found += [(at + place, width) for place, width in CENTRAL]
        wide = at + 46 + key
        offset = struct.unpack_from("<L", data, at + 42)[0]
        if extra:
            found += [(wide, 2), (wide + 2, 2)] + [(wide + 4 + 8 * i, 8) for i in range((extra - 4) // 8)]
            if offset == 0xFFFFFFFF:
                offset = struct.unpack_from("<Q", data, wide + extra - 8)[0]
        found += [(offset + place, width) for place, width in LOCAL]
        local = offset + 30 + struct.unpack_from("<H", data, offset + 26)[0]
        found += [(local, 2), (local + 2, 2)]
        at = wide + extra
    return found


def in_fields(data: bytes, rng: random.Random) -> bytes:
    """Set numbers of headers and end records to extremes."""
    out = bytearray(data)
    places = fields(data)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        at, width = rng.choice(places)
        top = 1 << 8 * width
        old = int.from_bytes(out[at : at + width], "little")
        new = rng.choice(
            [
                0,
                1,
                top - 1,
                top // 2,
                top // 2 - 1,
                old + 1,
                old - 1,
                old + 64,
                old ^ 1 << rng.randrange(8 * width),
            ]
        )
        new = rng.choice([new, new, new, len(data), index_start(data), 2**31, 2**32 - 1, rng.randrange(top)])
        out[at : at + width] = (new % top).to_bytes(width, "little")
    return bytes(out)


def in_end(data: bytes, rng: random.Random) -> bytes:
    """Other end records: wide ones that are not needed, numbers that are none, another comment."""
    start, end = index_start(data), len(data) - 22 - COMMENT_BYTES
    if data[end - 20 : end - 16] == b"PK\6\7":
        end -= 76
    comment = data[-COMMENT_BYTES:]
    count = data.count(b"PK\1\2", start)
    numbers = [count, end - start, start]
    for _ in range(rng.choice([0, 1, 1, 3])):
        numbers[rng.randrange(3)] = rng.choice(
            [*documents.NUMBERS[:24], 2**63, 2**64 - 1, len(data), 2**64 - start]
        )
    count, size, start = (n % 2**64 for n in numbers)
    records = b""
    wide = rng.random() < 0.6
    if wide:
        records += struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 0x032D, 45, 0, 0, count, count, size, start)
        records += struct.pack("<4sLQL", b"PK\6\7", 0, rng.choice([end, start + size, 0]) % 2**64, 1)
    narrow = [min(count, 0xFFFF), min(size, 0xFFFFFFFF), min(start, 0xFFFFFFFF)]
    if wide and rng.random() < 0.5:
        at = rng.randrange(3)
        narrow[at] = (0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)[at]
    said = rng.choice([len(comment), len(comment), len(comment), 0, 0xFFFF])
    records += struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, narrow[0], narrow[0], narrow[1], narrow[2], said)
    if rng.random() < 0.2:
        text = [
            b"jobcore 1 sha256=",
            b"jobcore 1 SHA256=",
            b"jobcore 99 sha256=",
            b"jobcore 2 sha256=",
            b"jobcore -1 sha256=",
        ]
        text += [b"jobcore 000000001 sha256=", b"jobcore 3 sha256=", b"jobcore \xff sha256="]
        comment = rng.choice(text) + comment[17:]
    return data[:end] + records + comment


def reseal(data: bytes) -> bytes:
    """Make the digest at the end right, if the index is where the end records of a whole database say."""
    end = len(data) - COMMENT_BYTES
    starts = {struct.unpack_from("<L", data, end - 6)[0]} if end >= 22 else set()
    if end >= 98 and data[end - 98 : end - 94] == b"PK\6\6":
        starts.add(struct.unpack_from("<Q", data, end - 98 + 48)[0])
    for start in sorted(starts):
        if start <= end:
            return data[:-64] + hashlib.sha256(data[start:-COMMENT_BYTES]).hexdigest().encode()
    return data
