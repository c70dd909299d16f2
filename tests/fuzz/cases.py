"""The cases: each is a function of a seed and a number."""

from __future__ import annotations

import collections
import random
import shutil
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from fuzz import native
from fuzz.corpus import corpus, limits
from fuzz.model import remove
from fuzz.mutate import make
from fuzz.oracle import Oracle


@dataclass
class Report:
    """How many cases there were, what came of what was done with them, and which broke a promise."""

    seed: int
    cases: int = 0
    outcomes: collections.Counter[str] = field(default_factory=collections.Counter)
    findings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [f"{self.cases} cases of seed {self.seed}, {len(self.findings)} findings"]
        lines += [f"{count:8} {what}" for what, count in sorted(self.outcomes.items())]
        return "\n".join([*lines, *self.findings])


def run(
    seed: int,
    numbers: Iterable[int],
    folder: Path,
    *,
    seconds: float = float("inf"),
    keep: Path | None = None,
) -> Report:
    """Run cases, for so long, in a folder; copy those that are findings to `keep`."""
    report = Report(seed)
    corpus()
    end = time.monotonic() + seconds
    if keep is not None:
        keep.mkdir(exist_ok=True, parents=True)
    for number in numbers:
        if time.monotonic() > end:
            break
        if keep is not None:
            # What kills the process leaves the number of its case.
            (keep / "current").write_text(f"--seed {seed} --only {number}\n")
        place = folder / "case"
        place.mkdir()
        try:
            report.outcomes.update(one(seed, number, place))
        except Exception as finding:
            report.findings.append(f"--seed {seed} --only {number}: {type(finding).__name__}: {finding}")
            if keep is not None:
                _keep(keep / f"{seed}-{number}", place, finding)
        report.cases += 1
        shutil.rmtree(place)
    if keep is not None:
        (keep / "current").unlink(missing_ok=True)
    return report


def one(seed: int, number: int, folder: Path) -> list[str]:
    """Run one case; give what came of it, or raise a Finding."""
    rng = random.Random(f"{seed}/{number}")
    seeds = corpus()
    if rng.randrange(12) == 0:
        return native.one(rng.choice([s for s in seeds if s.is_zip]), folder, rng)
    weights = [1 if max(map(len, s.files.values())) > 1 << 18 else 6 for s in seeds]
    base, other = rng.choices(seeds, weights)[0], rng.choice(seeds)
    path = folder / ("x.zarr.zip" if base.is_zip else "x.zarr")
    with limits(base.wide):
        repaired = make(base, other, path, rng)
        outcome = Oracle(path, base.values, repaired).check()
    return [f"{what}: {came}" for what, came in outcome.items()]


def _keep(target: Path, place: Path, finding: Exception) -> None:
    remove(target)
    target.mkdir(parents=True)
    (target / "reason.txt").write_text("".join(traceback.format_exception(finding)), errors="surrogateescape")
    for found in place.iterdir():
        if found.is_file():
            shutil.copy(found, target)
        else:
            shutil.copytree(found, target / found.name, symlinks=True, ignore=_only_files)


def _only_files(folder: str, names: list[str]) -> list[str]:
    # A copy of a pipe would wait for ever, and of a sparse file of terabytes nearly so.
    places = {name: Path(folder) / name for name in names}
    return [
        name
        for name, p in places.items()
        if not p.is_symlink() and not p.is_dir() and not (p.is_file() and p.stat().st_size < 1 << 30)
    ]
