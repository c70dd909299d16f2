"""Saves and loads that somebody disturbs on purpose: odd mappings and places, interrupts, forks, few descriptors."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jobcore
from jobcore import BackgroundSaver, inspect, load, save, save_async, verify
from jobcore.errors import BlobValueError, FormatError, SaveError, UnsupportedBlobError
from jobcore.store import ChunkPolicy, check_blobs, files, open_database, write_database
from jobcore.store.saving import Saving

ONE = {"w": np.arange(6.0)}
ENDS = pytest.mark.parametrize("end", [".zarr.zip", ".zarr"])


class Twice(Mapping[str, Any]):
    """Gives a name two times."""

    def __getitem__(self, name: str) -> Any:
        return np.zeros(3)

    def __iter__(self) -> Iterator[str]:
        return iter(["a", "a"])

    def __len__(self) -> int:
        return 2


class Text(str):
    """A text that is equal to nothing."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 1


def left(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# -- what is saved


@ENDS
def test_a_name_that_comes_twice_is_refused_before_anything_is_written(end: str, tmp_path: Path) -> None:
    for blobs in (Twice(), {Text("a"): np.zeros(3), Text("a"): np.ones(3)}):
        with pytest.raises(UnsupportedBlobError, match="'a' is repeated"):
            save(tmp_path / f"x{end}", blobs)
    assert left(tmp_path) == []


def test_names_of_a_class_of_the_users_own_are_texts(tmp_path: Path) -> None:
    save(tmp_path / "x", {Text("q"): np.arange(3)})
    (name,) = load(tmp_path / "x")
    assert type(name) is str
    assert name == "q"


@pytest.mark.parametrize("blobs", [None, "abc", [("a", 1)], 5])
def test_what_is_no_mapping_is_told(blobs: Any, tmp_path: Path) -> None:
    for call in (lambda: save(tmp_path / "x", blobs), lambda: check_blobs(blobs)):
        with pytest.raises(TypeError, match="expected blobs as a mapping from names to values, found"):
            call()
    assert left(tmp_path) == []


def test_a_mapping_that_changes_meanwhile_is_saved_as_it_was(tmp_path: Path) -> None:
    blobs: dict[str, Any] = {"a": np.arange(3)}

    class Sly:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            blobs["more"] = 1
            return np.arange(2)

    blobs["b"] = Sly()
    save(tmp_path / "x", blobs)
    assert list(load(tmp_path / "x")) == ["a", "b"]


@ENDS
def test_metadata_may_change_as_soon_as_a_save_is_staged(
    end: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, finish = threading.Event(), Saving.finish

    def late(self: Saving) -> Any:
        assert go_on.wait(30)
        return finish(self)

    monkeypatch.setattr(Saving, "finish", late)
    user: dict[str, Any] = {"lr": [1, 2]}
    pending = save_async(tmp_path / f"x{end}", ONE, user=user)
    user["lr"].append(3)
    user["bad"] = "\ud800"
    go_on.set()
    pending.wait(30)
    assert inspect(tmp_path / f"x{end}").user == {"lr": [1, 2]}


def test_metadata_that_gives_a_key_twice_is_refused(tmp_path: Path) -> None:
    class Double(dict[str, int]):
        def items(self) -> Any:
            return [("a", 1), ("a", 2)]

    with pytest.raises(BlobValueError, match="user: expected each key once, found 'a' repeated"):
        save(tmp_path / "x", {}, user=Double())
    assert left(tmp_path) == []


@pytest.mark.parametrize("epoch", [10**5000, 2**64], ids=["enormous", "large"])
def test_an_epoch_that_no_reader_could_hold_is_refused(epoch: int, tmp_path: Path) -> None:
    with pytest.raises(BlobValueError, match="epoch: expected an integer of at most 64 bits"):
        write_database(tmp_path / "x", {}, epoch=epoch)
    assert left(tmp_path) == []


@pytest.mark.parametrize("size", [1.5, True, None, "1"])
def test_sizes_of_chunks_are_whole_numbers(size: Any) -> None:
    with pytest.raises(TypeError, match="expected target_bytes as an int"):
        ChunkPolicy(size)


# -- where


@ENDS
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_pipe_is_neither_replaced_nor_waited_for(end: str, overwrite: bool, tmp_path: Path) -> None:
    place = tmp_path / f"x{end}"
    os.mkfifo(place)
    with pytest.raises(SaveError, match="found a device, pipe or socket") as caught:
        save(place, ONE, overwrite=overwrite)
    assert caught.value.errno == errno.EEXIST
    assert stat.S_ISFIFO(place.lstat().st_mode)
    for look in (load, inspect):
        with pytest.raises(FormatError, match="expected a file, found a device, pipe or socket"):
            look(place)
    assert not verify(place).ok
    assert left(tmp_path) == [place.name]


@ENDS
def test_a_link_is_replaced_and_not_what_it_points_to(end: str, tmp_path: Path) -> None:
    save(tmp_path / f"old{end}", {"old": np.zeros(2)})
    (tmp_path / f"link{end}").symlink_to(f"old{end}")
    with pytest.raises(SaveError):
        save(tmp_path / f"link{end}", ONE)
    save(tmp_path / f"link{end}", ONE, overwrite=True)
    assert list(load(tmp_path / f"link{end}")) == ["w"]
    assert list(load(tmp_path / f"old{end}")) == ["old"]


@ENDS
@pytest.mark.skipif(sys.platform == "darwin", reason="there every file name is Unicode text")
def test_file_names_that_are_no_unicode_text_are_as_good_as_others(end: str, tmp_path: Path) -> None:
    place = tmp_path / (os.fsdecode(b"\xff\xfe") + end)
    save(place, ONE)
    save(place, ONE, overwrite=True)
    assert verify(place).ok
    assert left(tmp_path) == [place.name]


@pytest.mark.parametrize("call", [load, inspect, verify, lambda path: save(path, ONE)])
@pytest.mark.parametrize("name", ["a\0b", "a\ud800"], ids=["NUL", "surrogate"])
def test_names_that_no_file_can_have_are_told(call: Any, name: str) -> None:
    with pytest.raises(ValueError, match="expected a path, found 'a"):
        call(name)


@pytest.mark.parametrize("overwrite", [False, True])
def test_who_may_not_replace_a_directory_is_not_told_to(overwrite: bool, tmp_path: Path) -> None:
    (tmp_path / "x.zarr").mkdir()
    with pytest.raises(SaveError, match="Is a directory") as caught:
        save(tmp_path / "x.zarr", ONE, overwrite=overwrite)
    assert "overwrite" not in str(caught.value.hint)


FEW_FILES = """
import os, resource, sys
import numpy as np
import jobcore, jobcore.errors

path, more = sys.argv[1], int(sys.argv[2])
jobcore.save(path + ".first", {"w": np.zeros(3)})
lowest = os.dup(0)
os.close(lowest)
resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + more, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
try:
    jobcore.save(path, {"w": np.zeros(3), "v": np.zeros(3)})
except jobcore.errors.SaveError as error:
    assert "Too many open files" in str(error), error
    assert "ulimit -n" in error.hint
"""


@ENDS
@pytest.mark.parametrize("more", range(5))
@pytest.mark.skipif(sys.platform == "win32", reason="no such limit")
def test_without_descriptors_nothing_is_left_behind(end: str, more: int, tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", FEW_FILES, str(tmp_path / f"x{end}"), str(more)], check=True)
    assert [name for name in left(tmp_path) if name.startswith(".")] == []
    if (tmp_path / f"x{end}").exists():
        assert verify(tmp_path / f"x{end}").ok


# -- when


@pytest.mark.parametrize("begins", [True, False])
def test_an_interrupt_in_the_start_of_a_thread_leaves_the_save_to_one_of_the_two(
    begins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, start, finish = threading.Event(), threading.Thread.start, Saving.finish

    def interrupted(thread: threading.Thread) -> None:
        if begins:
            start(thread)
            assert begun.wait(30)
        raise KeyboardInterrupt

    def told(self: Saving) -> Any:
        begun.set()
        return finish(self)

    saver = BackgroundSaver()
    with monkeypatch.context() as patch:
        patch.setattr(Saving, "finish", told)
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            saver.save(tmp_path / "x", ONE)
        saver.wait(30)
    assert left(tmp_path) == (["x"] if begins else [])
    assert not begins or verify(tmp_path / "x").ok
    saver.save(tmp_path / "next", ONE)
    assert saver.wait(30) is not None


@ENDS
def test_a_save_that_nobody_finishes_leaves_nothing(end: str, tmp_path: Path) -> None:
    from jobcore.store.write import begin

    saving = begin(tmp_path / f"x{end}", ONE)
    assert len(left(tmp_path)) == 1
    child = os.fork() if hasattr(os, "fork") else 0
    if child == 0 and hasattr(os, "fork"):
        del saving  # a copy of it, which is not its own
        os._exit(0)
    elif child:
        os.waitpid(child, 0)
        assert len(left(tmp_path)) == 1
    del saving
    assert left(tmp_path) == []


@ENDS
def test_a_database_that_nobody_closes_keeps_no_descriptor(end: str, tmp_path: Path) -> None:
    save(tmp_path / f"x{end}", ONE)
    lowest = os.dup(0)
    os.close(lowest)
    open_database(tmp_path / f"x{end}").read("w", slice(1, 2))
    again = os.dup(0)
    os.close(again)
    assert again == lowest


INTERRUPTED = """
import os, random, signal, sys, threading, time
import numpy as np
import jobcore

folder, end = sys.argv[1:]
signal.signal(signal.SIGALRM, signal.default_int_handler)
state = {f"w{n}": np.arange(20_000.0) * n for n in range(4)} | {f"s{n}": np.arange(5) for n in range(20)}
ways = (
    lambda path: jobcore.save(path, state, durable=False),
    lambda path: jobcore.save_async(path, state).wait(),
    lambda path: jobcore.load(folder + "/good" + end),
)
jobcore.save(folder + "/good" + end, state)
random.seed(5)
for n in range(90):
    way, path = ways[n % 3], f"{folder}/n{n}{end}"
    try:
        try:
            signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-5, 0.03))
            way(path)
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
    except KeyboardInterrupt:
        pass
    while any(thread.name.startswith("save ") for thread in threading.enumerate()):
        time.sleep(0.001)
    if os.path.exists(path):
        assert jobcore.verify(path).ok, path
"""


@ENDS
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no such timer")
def test_interrupts_at_any_moment_leave_what_is_whole_or_nothing(end: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path), end], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    for name in left(tmp_path):
        if not name.startswith("."):
            assert verify(tmp_path / name).ok


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_that_was_forked_during_a_save_can_save(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, entered, go_on = BackgroundSaver(), threading.Event(), threading.Event()
    create = files.create_temporary

    def wait(path: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            entered.set()
            assert go_on.wait(30)
        return create(path)

    monkeypatch.setattr(files, "create_temporary", wait)
    other = threading.Thread(target=lambda: saver.save(tmp_path / "parent", ONE))
    other.start()
    assert entered.wait(30)  # it holds the lock of the saver
    child = os.fork()
    if child == 0:
        signal.alarm(30)
        saver.save(tmp_path / "child", ONE).wait()
        os._exit(0)
    _, status = os.waitpid(child, 0)
    go_on.set()
    other.join(30)
    saver.wait(30)
    assert os.waitstatus_to_exitcode(status) == 0
    assert left(tmp_path) == ["child", "parent"]
    assert jobcore.verify(tmp_path / "child").ok
