"""Writes around the page cache: what happens, and what is said, where the file system refuses a call for them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from faults import layer

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason=layer.ONLY_LINUX)

# Saves twice, the second time from a snapshot, while one call fails from the first time on; tells what came of it.
PROGRAM = """
    import errno, json, logging, sys
    from pathlib import Path
    import numpy as np
    import jobcore
    from faults.layer import Kind, Layer
    from jobcore.errors import SaveError

    folder, call, code, mebibytes = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    lines = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append([record.levelname, record.name, record.getMessage()])
    logging.getLogger("jobcore").addHandler(handler)
    logging.getLogger("jobcore").setLevel(logging.INFO)
    blobs = {"w": np.random.default_rng(0).integers(0, 256, mebibytes << 20, np.uint8), "b": np.arange(5.0)}
    layer, errors = Layer(folder), []
    for save in (jobcore.save, lambda path, blobs: jobcore.save_async(path, blobs).wait()):
        path = folder / f"{len(errors)}.zarr.zip"
        if code:
            layer.arm(call, 1, Kind.FAIL, code, lasts=call != "pwrite")
        try:
            save(path, blobs)
            layer.disarm()
            errors.append(0)
            assert all(np.array_equal(value, blobs[name]) for name, value in jobcore.load(path).items())
        except SaveError as error:
            layer.disarm()
            errors.append(error.errno)
            assert not list(folder.iterdir())
    print(json.dumps({"errors": errors, "lines": lines, "calls": [call.name for call in layer.trace()]}))
"""


def run(folder: Path, call: str, code: int, mebibytes: int = 6) -> dict[str, Any]:
    environment = layer.preloaded()
    tests = os.fspath(Path(__file__).parent)
    environment["PYTHONPATH"] = os.pathsep.join([tests, environment.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), str(folder), call, str(code), str(mebibytes)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told


@pytest.mark.parametrize(
    ("call", "code", "what"),
    [
        ("setfl", 22, "direct writes (Invalid argument)"),
        ("pwrite", 22, "direct writes (Invalid argument)"),
        ("fallocate", 95, "allocation (Operation not supported)"),
    ],
)
def test_a_refusal_is_logged_once_for_a_file_system_and_the_file_is_whole(
    call: str, code: int, what: str, tmp_path: Path
) -> None:
    told = run(tmp_path, call, code)
    assert told["errors"] == [0, 0]
    text = f"{tmp_path}: the file system refuses {what}; saves go on without, and may take longer"
    assert told["lines"] == [["INFO", "jobcore.store", text]]


def test_nothing_is_said_where_nothing_is_refused(tmp_path: Path) -> None:
    told = run(tmp_path, "fallocate", 0)
    assert told["errors"] == [0, 0]
    if "setfl" in told["calls"] and told["lines"]:
        pytest.fail(f"the file system of {tmp_path} refuses something: {told['lines']}")


def test_a_large_file_is_synced_on_its_way_too_and_a_failure_then_fails_the_save(tmp_path: Path) -> None:
    well = run(tmp_path, "fdatasync", 0, 70)
    assert well["errors"] == [0, 0]
    # One for each save at its end, and at least one before; unless all goes through the page cache here.
    assert well["calls"].count("fdatasync") >= 4 or well["lines"]
    for path in tmp_path.iterdir():
        path.unlink()
    failed = run(tmp_path, "fdatasync", 5, 70)
    assert failed["errors"] == [5, 5]


def test_syncs_that_are_refused_on_the_way_are_given_up(tmp_path: Path) -> None:
    told = run(tmp_path, "fdatasync", 22, 70)
    assert told["errors"] == [0, 0]
