"""A small model in a database, and damage to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import slow_reader
from jobcore import Counter
from jobcore.store import save
from store_cases import TINY

MODEL: dict[str, Any] = {
    "net/enc/w": np.arange(12.0).reshape(3, 4),
    "net/enc/b": np.arange(4.0),
    "net/dec/w": np.arange(8, dtype="f4").reshape(4, 2),
    "note": "text",
    "steps": Counter(7),
}


def damage(path: Path, key: str) -> None:
    """Flip a bit in the first byte of an entry."""
    file, at = path, 0
    if path.is_dir():
        file = path / key
        file.chmod(0o644)
    else:
        entries = slow_reader.take_apart(path.read_bytes())[1]
        at = next(at for name, at, _ in entries if name == key)
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


def save_model(place: Path) -> Path:
    """Save the model, in small chunks, and return its path."""
    save(place, MODEL, chunks=TINY, durable=False)
    return place
