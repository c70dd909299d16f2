"""Saves in the background: staged means that blobs may change, committed means durable, and no error is lost."""

from __future__ import annotations

import array as py_array
import logging
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jobcore
from jobcore import BackgroundSaver, Workspace, load, save, save_async, verify
from jobcore.errors import ClosedError, SaveError, SaveTimeoutError, UnsupportedBlobError
from jobcore.store import ChunkPolicy, arenas, syncing
from jobcore.store.background import is_immutable
from jobcore.testing.values import arrays, same

SIZE = 300_000
HUGE_PAGES = Path("/sys/kernel/mm/transparent_hugepage")


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Hold every save back at its sync, until set."""
    event, sync = threading.Event(), syncing.sync_file

    def wait(fd: int) -> None:
        assert event.wait(30)
        sync(fd)

    monkeypatch.setattr(syncing, "sync_file", wait)
    yield event
    event.set()


def test_blobs_may_change_as_soon_as_it_is_staged(tmp_path: Path, gate: threading.Event) -> None:
    large, turned, small = np.arange(float(SIZE)), np.arange(float(SIZE)).reshape(600, 500).T, np.arange(3)
    counter = jobcore.Counter(5)
    before = {"large": large.copy(), "turned": turned.copy(), "small": small.copy()}
    pending = save_async(tmp_path / "x", {"large": large, "turned": turned, "small": small, "n": counter})
    assert pending.staged
    pending.wait_staged(0)
    for array in (large, turned, small):
        array[...] = -1
    counter.count_up()
    assert not pending.done
    assert not (tmp_path / "x").exists()
    gate.set()
    result = pending.wait(30)
    assert pending.done
    assert pending.error is None
    assert result.path == str(tmp_path / "x")
    found = load(tmp_path / "x")
    assert all(np.array_equal(found[name], before[name]) for name in before)
    assert found["n"].retrieve() == 5
    assert verify(tmp_path / "x").ok
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_it_writes_the_same_bytes_as_a_save_that_waits(tmp_path: Path) -> None:
    blobs = {"a": np.arange(float(SIZE)), "b": "text", "c": np.arange(12.0).reshape(3, 4).T}
    digest = save(tmp_path / "sync", blobs).digest
    for number, options in enumerate([{}, {"copy": False}, {"durable": False}, {"verify": True}]):
        place = tmp_path / str(number)
        assert save_async(place, blobs, **options).wait(60).digest == digest
        assert place.read_bytes() == (tmp_path / "sync").read_bytes()


def test_memory_that_nobody_can_change_is_not_copied(tmp_path: Path, gate: threading.Event) -> None:
    frozen = np.arange(4.0 * SIZE)
    frozen.flags.writeable = False
    arenas.release()
    pending = save_async(tmp_path / "x", {"w": frozen, "step": np.zeros(3)})
    assert arenas._kept == []
    gate.set()
    pending.wait(30)
    assert np.array_equal(load(tmp_path / "x")["w"], frozen)
    assert arenas._kept == []


@pytest.mark.skipif(not HUGE_PAGES.exists(), reason="the kernel has no huge pages of its own accord")
def test_the_copy_is_asked_for_in_huge_pages(tmp_path: Path, gate: threading.Event) -> None:
    size = 40 << 20
    arenas.release()
    pending = save_async(tmp_path / "x.zarr.zip", {"w": np.ones(size, np.uint8)})
    # Each mapping is some lines of "Name: value", the last of which are its flags; "hg" is the advice.
    mappings = Path("/proc/self/smaps").read_text().split("VmFlags:")
    found = [
        int(numbers.rpartition("\nRss:")[2].split()[0])
        for numbers, (flags, *_) in zip(mappings, (text.splitlines() for text in mappings[1:]), strict=False)
        if "hg" in flags.split()
    ]
    assert any(resident << 10 >= size for resident in found)
    gate.set()
    pending.wait(30)


def test_only_true_immutability_counts() -> None:
    array = np.arange(10)
    view = array.view()
    view.flags.writeable = False
    assert not is_immutable(array)
    assert not is_immutable(view)
    assert not is_immutable(np.broadcast_to(array, (3, 10)))
    assert not is_immutable(np.lib.stride_tricks.sliding_window_view(array, 3))
    assert not is_immutable(np.frombuffer(memoryview(bytearray(8)).toreadonly(), "u1"))
    assert not is_immutable(np.frombuffer(memoryview(py_array.array("B", bytes(8))).toreadonly(), "u1"))
    assert not is_immutable(np.asarray(memoryview(np.arange(8)).toreadonly()))
    assert is_immutable(np.frombuffer(memoryview(b"12345678"), "u1"))
    assert is_immutable(np.frombuffer(b"12345678", "u1"))
    array.flags.writeable = False
    assert is_immutable(array[2:5])


def test_a_timeout_says_what_is_missing_and_the_save_goes_on(tmp_path: Path, gate: threading.Event) -> None:
    pending = save_async(tmp_path / "x", {"a": np.zeros(1 << 18)})
    with pytest.raises(
        SaveTimeoutError,
        match=r"x: expected the save to be committed within 0.05 s, found it \w+ after .* of about 2.0 MiB",
    ) as caught:
        pending.wait(0.05)
    assert isinstance(caught.value, TimeoutError)
    assert "in the file" in repr(pending)
    gate.set()
    pending.wait(30)
    assert repr(pending).endswith("committed>")


def test_a_saver_waits_no_longer_than_it_is_told(tmp_path: Path, gate: threading.Event) -> None:
    saver = BackgroundSaver()
    saver.save(tmp_path / "x", {"a": np.zeros(9)})
    with pytest.raises(SaveTimeoutError, match=r"x: expected the save to be committed within 0.05 s"):
        saver.wait(0.05)
    gate.set()
    result = saver.wait(30)
    assert result is not None
    assert result.path == str(tmp_path / "x")


@pytest.mark.parametrize("suffix", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("copy", [True, False])
def test_arrays_of_every_type_and_layout_come_back(suffix: str, copy: bool, tmp_path: Path) -> None:
    blobs = dict(arrays())
    path = tmp_path / f"x.{suffix}"
    save_async(path, blobs, copy=copy, durable=False).wait(60)
    found = load(path)
    assert list(found) == list(blobs)
    assert [name for name, array in blobs.items() if not same(found[name], array)] == []


def fail(_fd: int) -> None:
    raise OSError(5, "Input/output error")


def test_an_error_is_raised_to_who_waits_with_its_path_and_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(syncing, "sync_file", fail)
    with BackgroundSaver() as saver:
        pending = saver.save(tmp_path / "x", {"a": 1})
        with pytest.raises(SaveError, match="Input/output error") as caught:
            pending.wait(30)
        assert caught.value.filename == str(tmp_path / "x")
        assert "in fail" in "".join(traceback.format_exception(caught.value))
        assert f"while {tmp_path / 'x'} was saved" in caught.value.__notes__[0]
        monkeypatch.undo()
        # Somebody was told: the next save goes on.
        saver.save(tmp_path / "x", {"a": 2})
    assert load(tmp_path / "x")["a"] == 2
    assert any(
        record.levelno == logging.ERROR and str(tmp_path / "x") in record.message for record in caplog.records
    )


def fail_beside_a_save(path: Path) -> None:
    with BackgroundSaver() as saver:
        saver.save(path, {"a": 1})
        raise KeyError("mine")


def test_an_error_that_nobody_waited_for_is_raised_by_the_next_save_or_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(syncing, "sync_file", fail)
        saver = BackgroundSaver()
        saver.save(tmp_path / "x", {"a": 1})
        with pytest.raises(SaveError, match="Input/output"):
            saver.save(tmp_path / "y", {"a": 1})
        with pytest.raises(SaveError, match="Input/output"), BackgroundSaver() as other:
            other.save(tmp_path / "z", {"a": 1})
        with pytest.raises(KeyError) as caught:
            fail_beside_a_save(tmp_path / "z")
        assert "and a save in the background failed" in caught.value.__notes__[0]
    assert list(tmp_path.iterdir()) == []
    saver.save(tmp_path / "y", {"a": 1}).wait(30)


def test_bad_input_is_told_at_once_and_leaves_nothing(tmp_path: Path) -> None:
    save(tmp_path / "x", {"a": 1})
    with pytest.raises(SaveError, match="overwrite=True"):
        save_async(tmp_path / "x", {"a": 1})
    with pytest.raises(SaveError, match="No such file"):
        save_async(tmp_path / "no" / "x", {"a": 1})
    with pytest.raises(UnsupportedBlobError):
        save_async(tmp_path / "y", {"a": object()})
    with pytest.raises(TypeError):
        save_async(tmp_path / "y", {"a": 1}, unknown=1)
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_no_memory_for_the_copy_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_nbytes: int) -> None:
        raise MemoryError("none")

    monkeypatch.setattr(arenas, "take", refuse)
    with pytest.raises(MemoryError):
        save_async(tmp_path / "x", {"a": np.zeros(10)})
    assert list(tmp_path.iterdir()) == []


def test_saves_of_one_saver_wait_for_each_other_and_use_one_arena(tmp_path: Path) -> None:
    arenas.release()
    state = np.zeros(SIZE * 8)
    with BackgroundSaver() as saver:
        for epoch in range(6):
            state[:] = epoch
            saver.save(tmp_path / str(epoch), {"w": state}, durable=False)
    for epoch in range(6):
        assert set(load(tmp_path / str(epoch))["w"]) == {epoch}
    assert sum(arena.nbytes for arena in arenas._kept) < 1.5 * state.nbytes
    arenas.release()


def test_the_blobs_are_let_go_when_it_is_done(tmp_path: Path) -> None:
    import weakref

    class Array(np.ndarray[Any, Any]):
        pass

    array = np.zeros(SIZE).view(Array)
    seen = weakref.ref(array)
    pending = save_async(tmp_path / "x", {"a": array}, copy=False)
    del array
    pending.wait(30)
    assert seen() is None


def test_a_workspace_may_be_fed_while_its_blobs_are_saved_without_a_copy(
    tmp_path: Path, gate: threading.Event
) -> None:
    workspace = Workspace()
    workspace["w"] = np.zeros(SIZE)
    pending = save_async(tmp_path / "x", {blob.name: blob for blob in workspace.local_blobs()}, copy=False)
    workspace["w"] = np.ones(SIZE)
    gate.set()
    pending.wait(30)
    assert not load(tmp_path / "x")["w"].any()


def test_many_threads_save_in_the_background(tmp_path: Path, together: Any) -> None:
    def work(number: int) -> None:
        for round_ in range(5):
            save_async(tmp_path / f"{number}.{round_}", {"w": np.full(SIZE, number)}, durable=False)

    together(4, work)
    save_async(tmp_path / "last", {}).wait(60)
    assert all(
        set(load(tmp_path / f"{number}.{round_}")["w"]) == {number}
        for number in range(4)
        for round_ in range(5)
    )


def test_a_forked_child_is_told_that_the_save_is_not_its_own(tmp_path: Path, gate: threading.Event) -> None:
    pending = save_async(tmp_path / "x", {"a": np.zeros(SIZE)})
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pending.wait(5)
        except ClosedError:
            save_async(tmp_path / "child", {"a": 1}, durable=False).wait(20)
            code = 0
        finally:
            os._exit(code)
    gate.set()
    assert os.waitpid(child, 0)[1] == 0
    pending.wait(30)
    assert load(tmp_path / "child")["a"] == 1


PROGRAM = """
import os, signal, sys, threading, time
import numpy as np, jobcore
from jobcore.store import syncing
sync = syncing.sync_file
def slow(fd):
    print("syncing", flush=True)
    time.sleep(0.5)
    sync(fd)
syncing.sync_file = slow
"""


@pytest.mark.parametrize(
    "ending",
    [
        "",
        "raise RuntimeError('mine')",
        "sys.exit(3)",
        "raise KeyboardInterrupt",
        "os.kill(os.getpid(), signal.SIGTERM)",
        "os.kill(os.getpid(), signal.SIGKILL)",
        "os._exit(0)",
    ],
)
def test_however_the_process_ends_the_save_is_whole_or_absent(ending: str, tmp_path: Path) -> None:
    place = tmp_path / "x.zarr.zip"
    code = PROGRAM + f"jobcore.save_async(sys.argv[1], {{'a': np.arange({SIZE}.0)}})\n" + ending
    done = subprocess.run(
        [sys.executable, "-c", code, str(place)], capture_output=True, text=True, timeout=60
    )
    orderly = not ending.startswith("os.")
    assert place.exists() == orderly, done.stderr
    if orderly:
        assert verify(place).ok
        assert load(place)["a"][-1] == SIZE - 1
    assert [path.name[0] for path in tmp_path.iterdir() if path != place] in ([], ["."])


def test_an_interrupt_while_waiting_leaves_the_save_alone(tmp_path: Path, gate: threading.Event) -> None:
    pending = save_async(tmp_path / "x", {"a": np.zeros(SIZE)})
    previous = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.2, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            pending.wait(30)
    finally:
        signal.signal(signal.SIGINT, previous)
    gate.set()
    pending.wait(30)
    assert verify(tmp_path / "x").ok


def test_other_threads_run_while_the_copy_is_taken(tmp_path: Path) -> None:
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    try:
        before = ticks
        save_async(tmp_path / "x", {"w": np.ones(8 << 20)}, chunks=ChunkPolicy(1 << 20, 1 << 20)).wait(60)
        assert ticks > before
    finally:
        stop.set()
        thread.join()
