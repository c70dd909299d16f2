"""The order of calls that makes a published file survive a power cut, read off a recorded trace."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from fault_tools import trace
from faults.layer import ONLY_LINUX, Call

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason=ONLY_LINUX)

PUBLISH = {"rename", "renameat2", "link"}
DATA = {"write", "pwrite", "ftruncate", "fallocate", "copy"}
SYNC = {"fsync", "fdatasync"}
NAMES = {"mkdir", "link"}  # what makes a name in a folder, beside the opening of a new file
SAVES = [
    *[
        (name,)
        for name in ("save", "save_small", "save_async", "overwrite", "epoch", "run", "run_background")
    ],
    *[(name, "--container", "zarr") for name in ("save", "overwrite", "save_linked", "epoch")],
]


def is_temporary(path: str) -> bool:
    name = path.rpartition("/")[2]
    return name.startswith(".") and name.endswith(".tmp")


def temporary_part(path: str) -> str:
    """The path up to its part with a temporary name."""
    parts = path.split("/")
    at = next(index for index, part in enumerate(parts) if is_temporary(part))
    return "/".join(parts[: at + 1])


def published(calls: list[Call]) -> list[Call]:
    """The calls that gave a new file or folder its final name."""
    return [call for call in calls if call.name in PUBLISH and is_temporary(call.path) and call.result == 0]


def within(call: Call, path: str) -> bool:
    return call.path == path or call.path.startswith(path + "/")


def names_within(calls: list[Call], path: str) -> dict[str, int]:
    """For each folder from `path` down, when the last name was made in it."""
    found: dict[str, int] = {}
    for call in calls:
        new = call.name in NAMES or (call.name == "open" and call.flags & os.O_CREAT)
        folder = str(Path(call.path2 or call.path).parent)
        if new and call.result >= 0 and (folder + "/").startswith(path + "/"):
            found[folder] = max(found.get(folder, 0), call.end)
    return found


def last_end(calls: list[Call]) -> int:
    return max(call.end for call in calls)


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Call]]:
    """The calls of a scenario, which is done once for all tests."""
    found: dict[tuple[str, ...], list[Call]] = {}

    def give(*scenario: str) -> list[Call]:
        if scenario not in found:
            found[scenario] = trace(scenario[0], tmp_path_factory.mktemp("trace"), *scenario[1:])
        return found[scenario]

    return give


@pytest.mark.parametrize("scenario", SAVES)
def test_data_are_synced_before_a_file_gets_its_name_and_the_folder_after(
    scenario: tuple[str, ...], traced: Callable[..., list[Call]]
) -> None:
    calls = traced(*scenario)
    assert published(calls)
    for naming in published(calls):
        work = [call for call in calls if call.end < naming.begin and within(call, naming.path)]
        written = {call.path for call in work if call.name in DATA}
        assert written
        for path in written:
            data = [call for call in work if call.name in DATA and call.path == path]
            syncs = [call for call in work if call.name in SYNC and call.path == path and call.result == 0]
            syncs += [call for call in work if call.name == "syncfs" and call.result == 0]
            assert syncs, f"{path} is not synced"
            assert last_end(data) < syncs[-1].begin, f"{path} is written after its sync"
        for folder, made in names_within(work, naming.path).items():
            syncs = [c for c in work if (c.name in SYNC and c.path == folder) or c.name == "syncfs"]
            assert syncs, f"{folder} is not synced"
            assert made < syncs[-1].begin, f"{folder} gets a name after its sync"
        touched = [call for call in calls if within(call, naming.path) and call.name in DATA]
        assert last_end(touched) < naming.begin, f"{naming.path} is written under its final name"
        parent = str(Path(naming.path2).parent)
        after = [
            c for c in calls if c.name in SYNC and c.path == parent and c.begin > naming.end and c.result == 0
        ]
        assert after, f"the folder of {naming.path2} is not synced after it got its name"


@pytest.mark.parametrize("scenario", SAVES)
def test_nothing_is_opened_for_writing_under_its_final_name(
    scenario: tuple[str, ...], traced: Callable[..., list[Call]]
) -> None:
    calls = traced(*scenario)
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
    opened = [call for call in calls if call.name == "open" and call.flags & writing]
    assert opened
    for call in opened:
        assert any(map(is_temporary, call.path.split("/"))), f"{call.path} is opened for writing"
        assert call.path != temporary_part(call.path) or call.flags & os.O_EXCL, (
            f"{call.path} may be another's"
        )
    touched = [call for call in calls if call.name in DATA and call.path]
    assert all(any(map(is_temporary, call.path.split("/"))) for call in touched)


@pytest.mark.parametrize("container", ["zarr.zip", "zarr"])
def test_the_old_one_goes_only_when_the_new_one_is_safe(
    container: str, traced: Callable[..., list[Call]]
) -> None:
    calls = traced("overwrite", *([] if container == "zarr.zip" else ["--container", container]))
    (naming,) = published(calls)
    removed = [call for call in calls if call.name in {"unlink", "rmdir"} and call.result == 0]
    if container == "zarr.zip":
        # The one step that names the new one takes the name from the old one.
        assert naming.name == "rename"
        assert not removed
        return
    parent = str(Path(naming.path2).parent)
    safe = min(c.end for c in calls if c.name in SYNC and c.path == parent and c.begin > naming.end)
    assert removed, "the old one is still there"
    assert safe < min(call.begin for call in removed), "the old one goes before the new one is safe"


@pytest.mark.parametrize(
    "scenario", [("epoch",), ("run",), ("run_background",), ("epoch", "--container", "zarr")]
)
def test_an_epochs_record_is_named_after_its_databases_and_all_are_safe_before_the_next(
    scenario: tuple[str, ...], traced: Callable[..., list[Call]]
) -> None:
    calls = traced(*scenario)
    names = [(Path(call.path2).name, call) for call in published(calls)]
    records = [call for name, call in names if name.startswith("epoch.")]
    assert len(records) == (1 if scenario[0] == "epoch" else 2)
    for number, record in enumerate(records):
        epoch = Path(record.path2).name.split(".")[1]
        (database,) = [call for name, call in names if name.startswith(f"trainer.{epoch}.")]
        folder = str(Path(record.path2).parent)
        syncs = [call for call in calls if call.name in SYNC and call.path == folder and call.result == 0]
        # The data of both are safe before either has a name.
        for file in (database, record):
            assert within_folder_synced(calls, file.path, before=database.begin), (
                f"{file.path} is named too early"
            )
        assert database.end < record.begin, "the record has its name before its database"
        between = [sync for sync in syncs if database.end < sync.begin and sync.end < record.begin]
        # The first epoch of a start has none before it to go back to.
        assert len(between) == (number == 0)
        safe = next(sync.end for sync in syncs if sync.begin > record.end)
        later = [call.begin for _, call in names if call.begin > record.end]
        assert not later or safe < min(later), "another file has its name before this epoch is safe"


def within_folder_synced(calls: list[Call], path: str, before: int) -> bool:
    """Whether all data below a path were forced to the disk by that time."""
    work = [call for call in calls if within(call, path) and call.name in DATA]
    synced = [call for call in calls if call.name in SYNC and within(call, path) and call.result == 0]
    synced += [call for call in calls if call.name == "syncfs" and call.result == 0]
    return bool(work) and any(last_end(work) < sync.begin and sync.end < before for sync in synced)


@pytest.mark.parametrize(
    "scenario", [("save",), ("save_small",), ("overwrite",), ("save", "--container", "zarr")]
)
def test_what_need_not_be_durable_is_not_synced(
    scenario: tuple[str, ...], traced: Callable[..., list[Call]]
) -> None:
    calls = traced(*scenario, "--not-durable")
    assert published(calls)
    assert not [call for call in calls if "sync" in call.name]
