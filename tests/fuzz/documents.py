"""Hostile JSON: values, and text that `json.dumps` would not make."""

from __future__ import annotations

import json
import random
from typing import Any


class Raw(str):
    """Text that stands in a document as it is."""


class Pairs(list[tuple[Any, Any]]):
    """An object by its members, of which some may have one name."""


NUMBERS = [
    0,
    1,
    2,
    3,
    7,
    63,
    64,
    65,
    255,
    256,
    65535,
    65536,
    2**20,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**32 + 1,
]
NUMBERS += [2**40, 2**53, 2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**70]
DEPTHS = [30, 65, 200, 900, 970, 995, 3000, 100_000]


def deep(rng: random.Random) -> Raw:
    """Something nested deeply."""
    depth = rng.choice(DEPTHS)
    head, tail, core = rng.choice(
        [
            ("[", "]", ""),
            ("[", "]", "1"),
            ('{"a":', "}", "1"),
            ('{"base":', ',"shape":[1]}', '"<f4"'),
            ('{"names":["a"],"formats":[', '],"offsets":[0],"itemsize":4}', '"<f4"'),
            ('{"$tuple":[', "]}", "1"),
        ]
    )
    return Raw(head * depth + core + tail * depth)


def scalar(rng: random.Random) -> Any:
    """A value of no members."""
    match rng.randrange(8):
        case 0:
            return rng.choice([None, True, False])
        case 1 | 2:
            return rng.choice(NUMBERS) * rng.choice([1, 1, 1, -1])
        case 3:
            return rng.choice([0.0, -0.0, 1.0, 0.5, 3.0, 1e308, 5e-324, -1.0])
        case 4 | 5:
            return rng.choice(
                ["", "x", "w", "\ud800", "a\udfffb", "\0", "a" * 300, "é", "NaN", "../x", "/etc", "c.0"]
            )
        case _:
            texts = [
                "NaN",
                "Infinity",
                "-Infinity",
                "1e999",
                "-0",
                "1E2",
                "1.0",
                "9" * 5000,
                "9" * 400,
                '"\\u0000"',
            ]
            return Raw(rng.choice([*texts, "", "tru", "'a'", "01", "\ufeff1", "[1,]", '"\t"']))


def dtype(rng: random.Random) -> Any:
    """A data type, most of which are none."""
    texts = [
        "<f4",
        ">f8",
        "|b1",
        "|i1",
        "<i4",
        "<u8",
        "<c16",
        "|S3",
        "<U2",
        "|V5",
        "<M8[ns]",
        "bfloat16",
        "int4",
        "<f16",
    ]
    odd = [
        "O",
        "|O",
        "f4,f4",
        "<M8[0s]",
        "<M8[99999999999s]",
        "|S0",
        "|V0",
        "<U536870912",
        "|V2147483647",
        "<M8[as]",
    ]
    odd += [
        "|S4294967296",
        "<c32",
        "|b2",
        "<i3",
        "<f1",
        "float8_e4m3fn",
        "float128",
        "int4 ",
        "i4",
        "",
        "uint2",
    ]
    odd += [
        "float6_e2m3fn",
        "bfloat17",
        "<U9999999999",
        "|u2",
        "<b1",
        ">i1",
        "\ud800",
        "<m8",
        "|V1073741824",
        "=f4",
    ]
    match rng.randrange(6):
        case 0 | 1:
            return rng.choice(texts)
        case 2 | 3:
            return rng.choice(odd)
        case 4:
            return {
                "base": dtype(rng),
                "shape": [rng.choice([*NUMBERS, -1, 1, 2, 2]) for _ in range(rng.randrange(3))],
            }
        case _:
            count = rng.randrange(4)
            names = [rng.choice(["a", "b", "c", "", "\ud800", "a" * 300, "é"]) for _ in range(count)]
            return {
                "names": names,
                "formats": [dtype(rng) for _ in range(count)],
                "offsets": [rng.choice([0, 0, 4, 8, -1, 2**31, 2**63]) for _ in range(count)],
                "itemsize": rng.choice([0, 1, 4, 8, 12, 16, 2**31 - 1, 2**31, 2**40, -4]),
            }


def tagged(rng: random.Random) -> Any:
    """An object of a tag, as states have them."""
    tag = rng.choice(
        ["$int", "$float", "$complex", "$bytes", "$tuple", "$array", "$scalar", "$", "$$", "$x", "$$int"]
    )
    body: Any = rng.choice(
        [
            "0x1",
            "-0x" + "f" * 30,
            "0x",
            "zz",
            "1_0",
            " 0x1",
            "7ff8000000000000",
            "3ff0",
            "AAAA",
            "A===",
            "@",
            [1, 2],
            [1],
            [],
        ]
    )
    if tag in ("$array", "$scalar") or rng.random() < 0.2:
        shape = rng.choice(
            [[], [1], [0], [2], [0, 2**63], [2**32, 2**32, 0], [-1], [1.0], [True], "", {}, 3, [1] * 70]
        )
        body = {
            "dtype": dtype(rng),
            "shape": shape,
            "data": rng.choice(["", "AAAA", "AAAAAA==", "AA==", "A", 1, None]),
        }
    if rng.random() < 0.2:
        body = scalar(rng)
    return {tag: body}


def value(rng: random.Random) -> Any:
    """Any hostile value."""
    match rng.randrange(10):
        case 0:
            return deep(rng)
        case 1:
            return dtype(rng)
        case 2:
            return rng.choice([[], {}, [[]], [{}], {"a": 1}, [0], ["w"], [None] * 5])
        case 3:
            return tagged(rng)
        case _:
            return scalar(rng)


def nodes(document: Any) -> list[tuple[Any, Any]]:
    """Every place in a document, as the list or dict that has it and its index or key."""
    found = []
    left = [document]
    while left:
        node = left.pop()
        for key in list(node) if isinstance(node, dict) else range(len(node)):
            found.append((node, key))
            if isinstance(node[key], list | dict) and not isinstance(node[key], Pairs):
                left.append(node[key])
    return found


def change(document: Any, rng: random.Random) -> Any:
    """Change one place of a document, which is a list or dict and is changed itself."""
    if isinstance(document, Pairs):
        return document  # a second change of one that has a name twice: what is in it must stay pairs
    places = nodes(document)
    if not places:
        return value(rng)
    # By depth first: else the long columns would get all of it.
    holder, key = rng.choice(places)
    if rng.random() < 0.5:
        holders = list({id(node): node for node, _ in places}.values())
        holder = rng.choice(holders)
        key = rng.choice(list(holder)) if isinstance(holder, dict) else rng.randrange(len(holder))
    old = holder[key]
    match rng.randrange(12):
        case 0:
            del holder[key]
        case 1 if isinstance(holder, list):
            holder.insert(key, rng.choice([old, value(rng)]))
        case 1 | 2 if isinstance(holder, dict):
            # Twice under one name: which of them counts?
            pairs = Pairs([*holder.items(), (key, rng.choice([old, value(rng)]))])
            return _put(document, holder, pairs)
        case 3 if isinstance(holder, list):
            other = rng.randrange(len(holder))
            holder[key], holder[other] = holder[other], old
        case 4 | 5 | 6 if type(old) is int:
            holder[key] = old + rng.choice([1, -1, 2, 64, -64, 2**32, 2**31, 2**63, 2**64])
        case 7 if isinstance(old, list) and old:
            rng.shuffle(old)
        case 8:
            holder[key] = rng.choice([[old], {"a": old}, [old, old]])
        case 9 if type(old) is int:
            holder[key] = rng.choice(
                [float(old), str(old), bool(old), -old, Raw(f"{old}.0"), Raw(f"{old}e0")]
            )
        case 10 if isinstance(old, str):
            holder[key] = rng.choice([old + "x", old[:-1], old.upper(), [old], old + "\ud800", old * 2])
        case _:
            holder[key] = value(rng)
    return document


def _put(document: Any, old: Any, new: Any) -> Any:
    if document is old:
        return new
    for holder, key in nodes(document):
        if holder[key] is old:
            holder[key] = new
    return document


def text(document: Any, rng: random.Random | None = None) -> bytes:
    """Write a document, and sometimes in another form of text than UTF-8 without spaces."""
    written = _write(document)
    data = written.encode("utf-8", "surrogatepass")
    if rng is None or rng.random() < 0.9:
        return data
    match rng.randrange(8):
        case 0:
            return b"\xef\xbb\xbf" + data
        case 1:
            return written.encode(rng.choice(["utf-16", "utf-16-le", "utf-32", "utf-32-be"]), "surrogatepass")
        case 2:
            return data + rng.choice([b" ", b"\n" * 300_000, b"\0", b"x", b"{}"])
        case 3:
            return b" " * rng.choice([1, 300_000]) + data
        case 4:
            at = rng.randrange(len(data) + 1)
            return (
                data[:at]
                + rng.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\0"])
                + data[at:]
            )
        case 5:
            return data[: rng.randrange(len(data) + 1)]
        case 6:
            return data.replace(b",", b" ,\n ").replace(b":", b" : ")
        case _:
            return data.replace(b'"', b"'") if rng.random() < 0.2 else data * 2


def _write(node: Any) -> str:
    if isinstance(node, Raw):
        return str(node)
    if isinstance(node, Pairs):
        return "{" + ",".join(f"{_plain(key)}:{_write(item)}" for key, item in node) + "}"
    if isinstance(node, dict):
        return "{" + ",".join(f"{_plain(key)}:{_write(item)}" for key, item in node.items()) + "}"
    if isinstance(node, list):
        return "[" + ",".join(map(_write, node)) + "]"
    return _plain(node)


def _plain(node: Any) -> str:
    # As the library writes it; a lone surrogate has no other form than an escape.
    lone = isinstance(node, str) and any("\ud800" <= char <= "\udfff" for char in node)
    return json.dumps(node, ensure_ascii=lone)
