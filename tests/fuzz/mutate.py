"""Changes of whole databases, most of which make every checksum right again."""

from __future__ import annotations

import os
import random
import zlib
from pathlib import Path

from fuzz.corpus import Seed, write_files
from fuzz.fields import blind, in_end, in_fields, reseal
from fuzz.lies import lie
from fuzz.model import Model, remove, seal

# ---- a directory on the disk ----


def in_directory(path: Path, rng: random.Random) -> None:
    """Put something else in the place of a file or folder, or beside it."""
    everything = sorted(path.rglob("*"))
    if not everything:
        return
    place = rng.choice(everything)
    match rng.randrange(10):
        case 0:
            remove(place)
        case 1:
            remove(place)
            os.mkfifo(place)
        case 2:
            other = rng.choice(
                [path, rng.choice(everything), path / "nowhere", place, Path("/dev/zero"), Path("/dev/full")]
            )
            remove(place)
            place.symlink_to(other)
        case 3:
            remove(place)
            place.mkdir()
        case 4:
            beside = place.with_name(
                rng.choice(["c.9", "x", "zarr.json ", ".zarr.json", "ZARR.JSON", "a\nb", "\udcff"])
            )
            if not beside.exists():
                rng.choice([Path.mkdir, Path.touch, os.mkfifo])(beside)
        case 5 if place.is_file():
            kept = place.with_name("kept")
            place.rename(kept)
            place.symlink_to(kept)
        case 6 if place.is_file():
            os.truncate(
                place, rng.choice([0, 1, 3, place.stat().st_size - 1, place.stat().st_size + 1, 1 << 43])
            )
        case 7 if place.is_file():
            place.chmod(rng.choice([0o000, 0o222, 0o777]))
        case 8 if place.is_dir():
            moved = path.parent / f"moved {place.name}"
            remove(moved)
            place.rename(moved)
            place.symlink_to(moved)
        case _ if place.is_file():
            other = rng.choice([p for p in everything if p.is_file()])
            data = other.read_bytes()
            place.unlink()
            place.write_bytes(data)


# ---- one case ----


def make(seed: Seed, other: Seed, path: Path, rng: random.Random) -> bool:
    """Write a changed database; tell whether its checksums were made right, so that it may say something else."""
    files = dict(seed.files)
    kind = rng.randrange(10)
    if kind >= 4:
        model = Model(seed, path)
        lie(model, rng)
        files = model.write(rng)
        if kind == 9 and "" in files and rng.random() < 0.5:
            files[""] = reseal(in_fields(files[""], rng))
        write_files(path, files)
        return True
    if seed.is_zip:
        data = files[""]
        if kind == 0:
            for _ in range(rng.choice([1, 1, 2, 4])):
                data = blind(data, rng, other.files.get("", b""))
        elif kind == 1:
            data = in_fields(data, rng)
        elif kind == 2:
            data = reseal(in_fields(data, rng))
        else:
            data = rng.choice([reseal, bytes])(in_end(data, rng))
        path.write_bytes(data)
        return False
    if kind == 0:
        key = rng.choice(sorted(files))
        other_files = sorted(other.files)
        files[key] = blind(files[key], rng, other.files[rng.choice(other_files)])
    elif kind == 1:
        files["zarr.json"] = seal(blind(files["zarr.json"], rng, b"[]{}"))
        write_files(path, files)
        return True
    write_files(path, files)
    if kind >= 2:
        for _ in range(rng.choice([1, 1, 2])):
            in_directory(path, rng)
    return False


def reached(seed: Seed, path: Path) -> bool:
    """Whether a database that is put together again from what it says is the same one, byte for byte."""
    model = Model(seed, path)
    if not seed.is_zip:
        model.root["attributes"]["jobcore"]["sha256"] = "0" * 64
    again = model.write(None)
    return {k: zlib.crc32(v) for k, v in again.items()} == {k: zlib.crc32(v) for k, v in seed.files.items()}
