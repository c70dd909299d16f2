"""What a workspace promises to many threads, and to a child process."""

from __future__ import annotations

import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from jobcore import Counter, Workspace
from jobcore.errors import BlobNotFoundError, BlobValueError
from native_build import build

Together = Callable[..., list[Any]]

ITEMS = 1 << 20  # 8 MiB of float64
SMALL = 1 << 10  # 8 KiB: copied with the GIL held


def layouts(items: int) -> list[Any]:
    return [np.zeros(items), np.zeros((2, items))[:, ::2]]


@pytest.mark.parametrize("items", [SMALL, ITEMS])
@pytest.mark.parametrize("strided", [False, True])
@pytest.mark.parametrize("bound", [False, True])
def test_no_reader_ever_gets_half_a_tensor(
    together: Together, bound: bool, strided: bool, items: int
) -> None:
    ws = Workspace()
    memory = layouts(items)[strided]
    if bound:
        ws.bind("x", memory)
    else:
        ws["x"] = memory
    sources = [np.full_like(memory, n) if not strided else spread(memory, n) for n in range(1, 4)]
    rounds = 20 if items == ITEMS else 300
    done = threading.Event()
    torn: list[Any] = []

    def feed(number: int) -> None:
        try:
            for n in range(rounds):
                ws["x"] = sources[(n + number) % 3]
        finally:
            done.set()

    def read(number: int) -> int:
        reads = 0
        while not done.is_set() or not reads:
            got = ws["x"] if number % 2 or bound else ws.view("x")
            first = got.flat[0]
            if not (got == first).all():
                torn.append(got)
            # A view has to stay what it was when it was taken.
            elif not number % 2 and not bound:
                time.sleep(0)
                if not (got == first).all():
                    torn.append(got)
            reads += 1
        return reads

    results = together(4, lambda number: feed(number) if number < 2 else read(number))
    assert results[:2] == [None, None]
    assert all(isinstance(reads, int) and reads for reads in results[2:]), results
    assert not torn


def spread(like: Any, number: int) -> Any:
    base = np.zeros((like.shape[0], 2 * like.shape[1]))
    part = base[:, ::2]
    part[...] = number
    return part


def test_a_reader_gets_its_turn_while_another_thread_feeds_without_end(together: Together) -> None:
    for bound in (False, True):
        ws = Workspace()
        array = np.ones(ITEMS)
        if bound:
            ws.bind("x", np.zeros(ITEMS))
        else:
            ws["x"] = array
        enough = threading.Event()

        def feed(ws: Workspace = ws, array: Any = array, enough: threading.Event = enough) -> None:
            while not enough.is_set():
                ws["x"] = array

        def read(ws: Workspace = ws, enough: threading.Event = enough) -> int:
            try:
                return sum(1 for _ in range(30) if ws["x"].shape == (ITEMS,))
            finally:
                enough.set()

        # A feeder that keeps the reader out makes this hang, not fail.
        assert together(2, lambda number: read() if number else feed()) == [None, 30]


def test_two_blobs_fed_from_each_other_never_wait_for_ever(together: Together) -> None:
    ws = Workspace()
    for name in ("a", "b"):
        ws.bind(name, np.zeros(ITEMS // 8))

    def cross(number: int) -> None:
        source, target = ("a", "b") if number % 2 else ("b", "a")
        for _ in range(50):
            ws[target] = ws.blob(source)
            ws[target] = ws.view(source)

    assert together(4, cross) == [None] * 4


def test_racing_creation_gives_everybody_the_same_blob(together: Together) -> None:
    parent = Workspace()
    ws = Workspace(parent)
    names = [f"n{n}" for n in range(300)]

    def create(number: int) -> list[Any]:
        found = []
        for name in names:
            if number % 3 == 0:
                ws.feed(name, float(number))
            elif number % 3 == 1:
                ws.bind(name, np.zeros(()))
            found.append(ws.create_blob(name))
        return found

    first, *others = together(6, create)
    assert all(mine is yours for other in others for mine, yours in zip(first, other, strict=True))
    assert ws.local_blobs() == first
    assert ws.blob_names() == names


def test_racing_counters_are_one_counter(together: Together) -> None:
    ws = Workspace()

    def count(_: int) -> list[Counter]:
        return [ws.counter(f"c{n}") for n in range(200) if ws.counter(f"c{n}").count_up() >= 0]

    first, *others = together(4, count)
    assert all(mine is yours for other in others for mine, yours in zip(first, other, strict=True))
    assert {counter.retrieve() for counter in first} == {4}


def test_feeds_of_all_kinds_and_removals_at_random_leave_whole_values(together: Together) -> None:
    ws = Workspace()
    child = Workspace(ws)
    values: list[Any] = [np.full(ITEMS // 16, 3.0), np.full(5, 3.0), "text", {"k": [1, 2]}, 3, b"raw"]
    rng = np.random.default_rng(5)
    plans = [rng.integers(0, 9, 400).tolist() for _ in range(6)]

    def work(number: int) -> list[str]:
        wrong = []
        for step, action in enumerate(plans[number]):
            name = f"x{step % 3}"
            try:
                if action < 6:
                    (ws if number % 2 else child).feed(name, values[action])
                elif action == 6:
                    ws.remove_blob(name)
                elif action == 7:
                    child.blob(name).reset()
                elif step % 40 == 0:
                    child.reset()
                got = child.fetch(name)
            except (BlobNotFoundError, BlobValueError):
                continue  # removed or emptied by another thread
            if (
                not any(type(got) is type(value) and np.array_equal(got, value) for value in values)
                and got != 3
            ):
                wrong.append(repr(got))
        return wrong

    assert together(6, work) == [[]] * 6


def test_a_blob_that_is_bound_or_reset_while_it_is_fed_takes_one_or_the_other(together: Together) -> None:
    ws = Workspace()
    ws["x"] = np.zeros(ITEMS // 8)
    outside = np.full(ITEMS // 8, -1.0)

    def work(number: int) -> None:
        for n in range(60):
            if number == 0:
                ws.bind("x", outside)
                ws.blob("x").reset()
            else:
                ws["x"] = np.full(ITEMS // 8, float(n))
                array = ws.blob("x").value
                assert array is None or array.flags.writeable == (array is outside)

    assert together(3, work) == [None] * 3
    ws.bind("x", outside)
    ws["x"] = np.full(ITEMS // 8, 5.0)
    assert (outside == 5).all()


def test_other_threads_run_while_a_big_tensor_is_copied() -> None:
    ws = Workspace()
    big = np.ones(1 << 25)  # 256 MiB: longer than it takes a thread to be scheduled
    ws["x"] = big
    ticks = 0
    stop = threading.Event()

    def tick() -> None:
        nonlocal ticks
        while not stop.is_set():
            ticks += 1

    ticker = threading.Thread(target=tick, daemon=True)
    ticker.start()
    try:
        seen = 0
        for _ in range(50):
            before = ticks
            ws["x"] = big
            seen += ticks > before
            if seen:
                break
        assert seen
    finally:
        stop.set()
        ticker.join()


@pytest.fixture(scope="module")
def gate(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("gate", tmp_path_factory.mktemp("gate"))


USES: list[Callable[[Workspace], Any]] = [
    lambda ws: ws["x"],
    lambda ws: ws.view("x"),
    lambda ws: ws.blob("x").value,
    lambda ws: ws.feed("x", np.zeros(ITEMS)),
    lambda ws: ws.feed("x", "text"),
    lambda ws: ws.feed("y", ws.blob("x")),
    lambda ws: ws.bind("x", np.zeros(3)),
    lambda ws: ws.blob("x").reset(),
    lambda ws: ws.blob("x").take_buffer(ITEMS, "f8"),
    lambda ws: ws.blob("x").adopt(np.zeros(3)),
]


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("use", USES, ids=range(len(USES)))
def test_all_others_wait_while_native_code_works_on_the_bytes(
    gate: ModuleType, use: Callable[[Workspace], Any], bound: bool
) -> None:
    ws = Workspace()
    if bound:
        ws.bind("x", np.ones(ITEMS))
    else:
        ws["x"] = np.ones(ITEMS)
    blob = ws.blob("x")
    gate.close(blob)
    # From the thread that keeps the others out it would wait for itself: an error, and no harm done.
    with pytest.raises(BlobValueError, match="'x' was used by the thread that is writing"):
        use(ws)
    done: list[Any] = []

    def try_use() -> None:
        try:
            done.append(use(ws))
        except (BlobValueError, TypeError) as error:
            done.append(error)

    user = threading.Thread(target=try_use, daemon=True)
    user.start()
    while gate.state(blob) != (True, 1):
        time.sleep(0.001)
    assert not done
    gate.open(blob)
    user.join()
    assert len(done) == 1
    assert gate.state(blob) == (False, 0)


def test_native_code_changes_bytes_in_place_and_reads_them_undisturbed(gate: ModuleType) -> None:
    ws = Workspace()
    ws["x"] = np.ones(ITEMS)
    where = ws.view("x").ctypes.data
    gate.negate(ws.blob("x"))
    assert (ws["x"] == -1).all()
    assert ws.view("x").ctypes.data == where
    total = gate.add_up(ws.blob("x"), lambda: ws.feed("x", np.full(ITEMS, 9.0)))
    assert total == -ITEMS


def forked(in_child: Callable[[], int]) -> int:
    """Run a function in a child process; return what it returned."""
    with warnings.catch_warnings():
        # Forking beside threads is what is tested here.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        status = 99
        try:
            signal.alarm(30)  # ends a child that hangs
            status = in_child()
        finally:
            os._exit(status)  # whatever it was, the child must not go on as a second test run
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@pytest.mark.parametrize("bound", [False, True])
def test_a_child_process_is_told_once_what_the_fork_tore(gate: ModuleType, bound: bool) -> None:
    ws = Workspace()
    ws.bind("x", np.ones(ITEMS)) if bound else ws.feed("x", np.ones(ITEMS))
    blob = ws.blob("x")

    def read() -> int:
        with pytest.raises(BlobValueError, match="when this process was forked"):
            ws.view("x")
        assert (blob.kind, blob.bound) == (("tensor", True) if bound else ("empty", False))
        return write()

    def write() -> int:
        for n in range(3):
            ws["x"] = np.full(ITEMS, float(n))
            assert (ws["x"] == n).all()
        return 0

    # Threads that stay behind in the parent: one that writes, and one that waits for it.
    writing, finish = threading.Event(), threading.Event()

    def occupy() -> None:
        gate.close(blob)
        writing.set()
        finish.wait()
        gate.open(blob)

    writer = threading.Thread(target=occupy, daemon=True)
    writer.start()
    writing.wait()
    reader = threading.Thread(target=blob.fetch, daemon=True)
    reader.start()
    while gate.state(blob) != (True, 1):
        time.sleep(0.001)
    assert forked(read) == 0
    assert forked(write) == 0
    finish.set()
    writer.join()
    reader.join()
    assert (ws["x"] == 1).all()


@pytest.mark.parametrize("bound", [False, True])
def test_a_child_process_never_waits_for_a_thread_of_its_parent(bound: bool) -> None:
    ws = Workspace()
    array = np.ones(ITEMS)
    ws.bind("x", np.zeros(ITEMS)) if bound else ws.feed("x", array)
    stop = threading.Event()

    def feed() -> None:
        while not stop.is_set():
            ws["x"] = array

    def use() -> int:
        told = "when this process was forked"
        try:
            found = ws["x"]
        except BlobValueError as error:
            told = str(error)
        else:
            assert (found == 1).all() or (found == 0).all()
        assert "when this process was forked" in told
        for _ in range(3):
            ws["x"] = array
            assert (ws["x"] == 1).all()
        return 0

    feeders = [threading.Thread(target=feed, daemon=True) for _ in range(2)]
    for feeder in feeders:
        feeder.start()
    try:
        assert [forked(use) for _ in range(5)] == [0] * 5
    finally:
        stop.set()
        for feeder in feeders:
            feeder.join()
