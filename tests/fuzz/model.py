"""A whole database as what it says, to be changed and put together again."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fuzz import documents
from fuzz.corpus import Seed, limits
from fuzz.judge import Entries
from jobcore._fast.crc32c import crc32c
from jobcore._fast.hash128 import hash128
from slow_image import SlowZip
from slow_reader import document, key_of

HEAD = b'{"zarr_format":3,"node_type":"group","attributes":{"jobcore":{"sha256":"'


class Model:
    """Root, blobs and documents of a whole database, which can be changed and written as either container."""

    def __init__(self, seed: Seed, path: Path) -> None:
        seed.write(path)
        with contextlib.closing(Entries(path)) as entries:
            keys = dict(entries)
        remove(path)
        self.seed = seed
        self.root = json.loads(keys.pop("zarr.json"))
        inner = self.root["attributes"]["jobcore"]
        self.inner = inner
        self.table = inner["blobs"]
        self.names: list[Any] = list(self.table["name"])
        self.rows: list[Any] = [copy.deepcopy(self.table["specs"][i]) for i in self.table["spec"]]
        self.payloads: list[list[bytes]] = []
        self.texts: list[bytes] = []
        for name, row in zip(self.names, self.rows, strict=True):
            key = key_of(name)
            chunks = [k for k in keys if k.startswith(f"{key}/c")]
            chunks.sort(key=lambda k: int((k.split("/c.")[1:] or ["0"])[0].split(".")[0]))
            self.payloads.append([keys[chunk] for chunk in chunks])
            self.texts.append(keys[f"{key}/zarr.json"])
            assert row
        #: What is done to the entries, as pairs of key and bytes, before checksums are made.
        self.late: list[Callable[[list[tuple[str, bytes]]], list[tuple[str, bytes]]]] = []
        #: What is done to the root before it is written.
        self.after: list[Callable[[Any], Any]] = []

    def set_text(self, blob: int, data: bytes) -> None:
        """Give another value to a blob that is text or bytes, and the shape that goes with it."""
        row = self.rows[blob]
        rows = rng_rows = max(1, len(data))
        if row[5] < row[2][0]:
            rng_rows = row[5]
        row[2], row[5] = [len(data)], min(rows, rng_rows)
        step = row[5]
        parts = [data[i : i + step] for i in range(0, len(data), step)]
        self.payloads[blob] = [part.ljust(step, b"\0") for part in parts]
        self.document(blob)

    def document(self, blob: int) -> None:
        """Let the document of a blob say what its row says, if it can be said."""
        kind, dtype, shape, data_type, item_bytes, chunk_rows = self.rows[blob][:6]
        stored = [*shape, item_bytes] if item_bytes else shape
        said = document(self.names[blob], kind, dtype, stored, data_type, item_bytes, chunk_rows)
        said["codecs"] += self.rows[blob][6] if len(self.rows[blob]) > 6 else []
        if not self.seed.is_zip:
            said["codecs"].append({"name": "crc32c"})
        self.texts[blob] = documents.text(said)

    def entries(self) -> list[tuple[str, bytes]]:
        """Key and bytes of all but the root."""
        found = []
        for name, row, payload, text in zip(self.names, self.rows, self.payloads, self.texts, strict=True):
            try:
                key = key_of(name)
            except (AttributeError, ValueError, IndexError, TypeError):
                key = "k"
            try:
                rest = ".0" * (len(row[2]) - 1 + bool(row[4]))
                axes = len(row[2]) + bool(row[4])
            except TypeError:
                rest, axes = "", 1
            found += [(f"{key}/c" + (f".{i}{rest}" if axes else ""), data) for i, data in enumerate(payload)]
            found.append((f"{key}/zarr.json", text))
        for change in self.late:
            found = change(found)
        return found

    def _columns(self) -> None:
        specs: list[Any] = []
        self.table["name"], self.table["spec"], self.table["specs"] = self.names, [], specs
        for row in self.rows:
            if row not in specs:
                specs.append(row)
            self.table["spec"].append(specs.index(row))
        if "size" in self.table:
            pairs = zip(self.rows, self.payloads, strict=True)
            self.table["size"] = [len(data) for row, payload in pairs if len(row) > 6 for data in payload]

    def write(self, rng: random.Random | None) -> dict[str, bytes]:
        """Put it together, every checksum and digest right."""
        self._columns()
        return self._zip(rng) if self.seed.is_zip else self._directory(rng)

    def _text(self, rng: random.Random | None) -> bytes:
        root = self.root
        for change in self.after:
            root = change(root)
        return documents.text(root, rng)

    def _zip(self, rng: random.Random | None) -> dict[str, bytes]:
        with limits(self.seed.wide):
            out = SlowZip()
            self.table["place"], self.table["crc32"] = [], []
            for key, data in self.entries():
                place, crc = out.add(key, data)
                if not key.endswith("zarr.json"):
                    self.table["place"].append(place)
                    self.table["crc32"].append(crc)
            out.finish(self._text(rng), 3 if self.inner.get("format") == 3 else 1)
        return {"": bytes(out.data)}

    def _directory(self, rng: random.Random | None) -> dict[str, bytes]:
        files = {}
        self.table["crc32c"], self.table["hash"] = [], []
        for key, data in self.entries():
            if key.endswith("zarr.json"):
                files[key] = data
                continue
            crc = crc32c(data)
            files[key] = data + crc.to_bytes(4, "little")
            self.table["crc32c"].append(crc)
            self.table["hash"].append(hash128(data).hex())
        files["zarr.json"] = seal(self._text(rng))
        return files


def seal(root: bytes) -> bytes:
    """Make the digest in the root of a directory right."""
    at = len(HEAD)
    if not root.startswith(HEAD):
        return root
    digest = hashlib.sha256(root[:at] + b"0" * 64 + root[at + 64 :]).hexdigest()
    return root[:at] + digest.encode() + root[at + 64 :]


def remove(path: Path) -> None:
    """Delete a file or directory."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
