"""Changes of what a database says."""

from __future__ import annotations

import json
import math
import random
from typing import Any

from fuzz import documents
from fuzz.fields import blind
from fuzz.model import Model
from slow_reader import WIDTHS


def lie(model: Model, rng: random.Random) -> None:
    """Change what a database says in one place, or two."""
    for _ in range(rng.choice([1, 1, 1, 2])):
        rng.choice(LIES)(model, rng)


def _lie_root(model: Model, rng: random.Random) -> None:
    model.after.append(lambda root: documents.change(root, rng))


def _lie_table(model: Model, rng: random.Random) -> None:
    def change(root: Any) -> Any:
        try:
            inner = root["attributes"]["jobcore"]
            inner["blobs"] = documents.change(inner["blobs"], rng)
        except (KeyError, TypeError):
            pass
        return root

    model.after.append(change)


def _lie_row(model: Model, rng: random.Random) -> None:
    """A lie that the document of the blob repeats."""
    if not model.rows:
        return
    blob = rng.randrange(len(model.rows))
    row = model.rows[blob]
    at = rng.randrange(len(row))
    kinds = ["tensor", "counter", "string", "bytes", "state", "rng", "empty", "thing", ""]
    row[at] = (
        [
            lambda: rng.choice(kinds),
            lambda: documents.dtype(rng),
            lambda: _shape(row[2], rng),
            lambda: rng.choice([*WIDTHS, "float128", "r8", ""]),
            lambda: rng.choice([0, 1, 2, 3, 4, 8, 16, -1, 2**31, 2**63 - 1, 2**63]),
            lambda: rng.choice([0, 1, 2, 3, 5, -1, 2**31, 2**63 - 1, 2**63, True]),
        ][at]()
        if at < 6
        else rng.choice([_codecs(rng), documents.value(rng)])
    )
    if rng.random() < 0.2:
        documents.change(row, rng)
    if rng.random() < 0.5:
        _refit(model, blob)
    _repeat(model, blob)


def _repeat(model: Model, blob: int) -> None:
    try:
        model.document(blob)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, RecursionError):
        return


def _refit(model: Model, blob: int) -> None:
    """Cut the bytes of a blob as its row wants them, if that is not absurd."""
    try:
        _, _, shape, data_type, item_bytes, chunk_rows = model.rows[blob][:6]
        stored = [*shape, item_bytes] if item_bytes else shape
        size = chunk_rows * math.prod(stored[1:]) * WIDTHS[data_type]
        count = 0 if 0 in stored else -(-stored[0] // chunk_rows) if stored else 1
        if type(size * count) is not int or not 0 <= size * count < 1 << 20 or count > 1000:
            return
    except (TypeError, ValueError, KeyError, ArithmeticError, MemoryError):
        return
    data = b"".join(model.payloads[blob])
    data = data[: size * count].ljust(size * count, b"\1")
    model.payloads[blob] = [data[i * size : (i + 1) * size] for i in range(count)]


def _shape(old: Any, rng: random.Random) -> Any:
    shape = list(old) if isinstance(old, list) else []
    match rng.randrange(7):
        case 0:
            return shape[::-1]
        case 1:
            return [*shape, 1]
        case 2:
            return shape[1:]
        case 3:
            return [math.prod(shape)] if all(type(n) is int for n in shape) else shape
        case 4:
            return [1] * rng.choice([63, 64, 65, 66, 32, 33])
        case 5:
            return [*shape, rng.choice([0, 1, 2**31, 2**62, 2**63 - 1])]
        case _:
            return [rng.choice([*documents.NUMBERS, -1]) for _ in range(rng.randrange(4))]


def _codecs(rng: random.Random) -> Any:
    level = rng.choice([1, 3, 22, 23, -131073, 2**31, 1.0, True, "1"])
    zstd = {"name": "zstd", "configuration": {"level": level, "checksum": rng.choice([True, False, 0])}}
    blosc = {
        "name": rng.choice(["blosc", "blosc", "gzip", "transpose", "sharding_indexed"]),
        "configuration": {
            "cname": rng.choice(["zstd", "lz4", "snappy", "blosclz", "zlib", "x"]),
            "clevel": rng.choice([1, 9, 10, -1]),
            "shuffle": rng.choice(["bitshuffle", "shuffle", "noshuffle", "x", 1]),
            "typesize": rng.choice([1, 2, 4, 255, 256, 0, 2**31]),
            "blocksize": rng.choice([0, 1, 2**31 - 1, 2**31]),
        },
    }
    return rng.choice(
        [[], [zstd], [blosc], [zstd, blosc], zstd, [{}], [{"name": "zstd"}], [{"name": "bytes"}]]
    )


def _lie_alias(model: Model, rng: random.Random) -> None:
    """A view of another blob that reaches where there is nothing."""
    if "alias" not in model.table:
        model.inner["format"] = 3
        model.table["alias"] = [["view", 0, "tensor", "|u1", [1], 0, [1], len(model.names)]]
    rows = model.table["alias"]
    row = rows[rng.randrange(len(rows))]
    if len(row) < 8:
        return
    extremes = [0, 1, -1, 2, -4, 2**31, -(2**31), 2**62, 2**63 - 1, -(2**63), 2**63, 2**64, 1.0]
    for _ in range(rng.choice([1, 1, 2])):
        match rng.randrange(8):
            case 0:
                row[1] = rng.choice([*range(len(model.names) + 2), -1, 2**31])
            case 1:
                row[3] = documents.dtype(rng)
            case 2 | 3 if isinstance(row[4], list) and row[4]:
                row[4][rng.randrange(len(row[4]))] = rng.choice(extremes)
            case 4 if isinstance(row[6], list) and row[6]:
                row[6][rng.randrange(len(row[6]))] = rng.choice(extremes)
            case 5:
                row[5] = rng.choice([*extremes, 2399, 2400, 2396])
            case 6:
                row[7] = rng.choice([*extremes, *range(10)])
            case _:
                documents.change(row, rng)


def _lie_value(model: Model, rng: random.Random) -> None:
    """Other text in a blob that is text."""
    blobs = [i for i, row in enumerate(model.rows) if row[0] in ("string", "bytes", "state", "rng", "empty")]
    if not blobs:
        return
    blob = rng.choice(blobs)
    data = b"".join(model.payloads[blob])[: (model.rows[blob][2] or [0])[0]]
    match rng.randrange(6):
        case 0:
            data = blind(data, rng, b"\xff\xc3\x28")
        case 1:
            data = rng.choice(
                [b"", b"\xff", b"\xed\xa0\x80", b"{", b"null", b"\xef\xbb\xbf1", "1".encode("utf-16"), b"NaN"]
            )
        case _:
            try:
                value = json.loads(data)
            except ValueError:
                value = [documents.value(rng)]
            if not isinstance(value, list | dict):
                value = [value]
            for _ in range(rng.choice([1, 1, 2])):
                if isinstance(value, list | dict) and not isinstance(value, documents.Pairs):
                    value = documents.change(value, rng)
            data = documents.text(value, rng)
    try:
        model.set_text(blob, data)
    except (IndexError, TypeError, KeyError, ValueError):
        return


def _lie_document(model: Model, rng: random.Random) -> None:
    if not model.texts:
        return
    blob = rng.randrange(len(model.texts))
    match rng.randrange(5):
        case 0:
            model.texts[blob] += b" " * rng.choice([1, 300_000])
        case 1:
            model.texts[blob] = rng.choice([b"", b"{", b"[]", model.texts[blob - 1], b"[" * 100_000, b"null"])
        case _:
            try:
                said = documents.change(json.loads(model.texts[blob]), rng)
            except (ValueError, RecursionError):  # after another lie
                return
            model.texts[blob] = documents.text(said, rng)
            if rng.random() < 0.2:
                model.texts[blob] += b" " * 300_000


def _lie_name(model: Model, rng: random.Random) -> None:
    if not model.names:
        return
    blob = rng.randrange(len(model.names))
    names: list[Any] = [
        "",
        "a" * 1000,
        "\ud800",
        rng.choice(model.names),
        model.names[blob].upper(),
        "..",
        "a/../b",
        "\0",
        3,
    ]
    model.names[blob] = rng.choice(names)
    _repeat(model, blob)


def _lie_payload(model: Model, rng: random.Random) -> None:
    blobs = [i for i, payload in enumerate(model.payloads) if payload]
    if blobs:
        payload = model.payloads[rng.choice(blobs)]
        at = rng.randrange(len(payload))
        payload[at] = blind(payload[at], rng, payload[0])


def _lie_entries(model: Model, rng: random.Random) -> None:
    def change(found: list[tuple[str, bytes]]) -> list[tuple[str, bytes]]:
        if not found:
            return [("x/c", b"1")]
        found = list(found)
        at, other = rng.randrange(len(found)), rng.randrange(len(found))
        match rng.randrange(6):
            case 0:
                del found[at]
            case 1:
                found.insert(other, found[at])
            case 2:
                found[at], found[other] = found[other], found[at]
            case 3:
                found[at] = (found[other][0], found[at][1])
            case 4:
                found[at] = (found[at][0], found[other][1])
            case _:
                keys = [
                    "x/c",
                    "../x",
                    "/x",
                    "",
                    "zarr.json",
                    "x" * 70_00,
                    "w/c.9",
                    "a//b",
                    "w",
                    "a\\b",
                    ".",
                    "w/zarr.json/",
                ]
                found.insert(other, (rng.choice(keys), rng.choice([b"", b"1", found[at][1]])))
        return found

    model.late.append(change)


def _lie_fields(model: Model, rng: random.Random) -> None:
    """One more column or member, or columns of other lengths."""

    def change(root: Any) -> Any:
        try:
            blobs = root["attributes"]["jobcore"]["blobs"]
            column = blobs[rng.choice(list(blobs))]
            act = rng.randrange(5)
            if act == 0:
                column += column[:1]
            elif act == 1:
                column.clear()
            elif act == 2 and column:
                column.pop()
            elif act == 3 and column:
                at = rng.randrange(len(column))
                column[at] = documents.value(rng)
            else:
                column += [rng.choice([0, "x", None])] * rng.choice([1, 1000])
        except (KeyError, TypeError, AttributeError):
            pass
        return root

    model.after.append(change)


LIES = [
    _lie_root,
    _lie_table,
    _lie_row,
    _lie_row,
    _lie_value,
    _lie_value,
    _lie_document,
    _lie_name,
    _lie_payload,
]
LIES += [_lie_entries, _lie_fields, _lie_alias]
