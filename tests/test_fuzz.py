"""Databases damaged at random, or made to lie: each is loaded as what it says, or refused by name and place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz import oracle
from fuzz.cases import run
from fuzz.corpus import Seed, corpus
from fuzz.mutate import reached
from fuzz.oracle import Finding, Oracle
from jobcore.errors import FormatError

CASES = 200


@pytest.mark.parametrize("seed", corpus(), ids=lambda seed: seed.name)
def test_what_is_taken_apart_and_put_together_again_is_the_same(seed: Seed, tmp_path: Path) -> None:
    assert reached(seed, tmp_path / "x")


def test_no_change_of_a_database_is_believed_or_breaks_anything(tmp_path: Path) -> None:
    report = run(0, range(CASES), tmp_path)
    assert not report.findings, report
    assert report.cases == CASES
    # Each way was gone with and without an error, or the cases are worth little.
    ways = ("load", "inspect", "subset", "rows", "workspace", "in place, _strided")
    assert all(report.outcomes[f"{way}: good"] and report.outcomes[f"{way}: FormatError"] for way in ways), (
        report
    )
    assert report.outcomes["verify: good"]
    assert report.outcomes["verify: faults"]


@pytest.mark.exhaustive
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(1, 5))
def test_no_change_of_a_database_is_believed_in_many_cases(seed: int, tmp_path: Path) -> None:
    report = run(seed, range(5000), tmp_path)
    assert not report.findings, report


def one_bit_more(values: dict[str, Any]) -> dict[str, Any]:
    array = values["weights"]
    array.reshape(-1).view(np.uint8)[-1] ^= 1
    return values


def nameless(*_: Any, **__: Any) -> Any:
    raise FormatError("expected something else")


def placeless(path: Path, *_: Any, **__: Any) -> Any:
    raise FormatError(f"{path}: expected something else", path=str(path))


def bare(*_: Any, **__: Any) -> Any:
    raise KeyError("x")


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda *a, load=oracle.load, **k: one_bit_more(load(*a, **k)), "but it says tensor"),
        (lambda *a, load=oracle.load, **k: dict(list(load(*a, **k).items())[:-1]), r"loaded the blobs \[\]"),
        (nameless, "does not name the file"),
        (placeless, "does not name the place"),
        (bare, "expected a FormatError, found KeyError"),
    ],
)
def test_a_broken_promise_is_found(
    broken: Any, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for container in ("zarr.zip", "zarr"):
        (seed,) = (seed for seed in corpus() if seed.name == f"one.{container}")
        path = tmp_path / f"x.{container}"
        seed.write(path)
        assert set(Oracle(path, seed.values, False).check().values()) == {"good"}
        with monkeypatch.context() as patch:
            patch.setattr(oracle, "load", broken)
            with pytest.raises(Finding, match=message):
                Oracle(path, seed.values, False).check()
