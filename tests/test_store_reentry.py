"""Saves and loads in the middle of others, by signal handlers and finalizers, and at the very end."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore.store import BlobPolicy, Zstd

# Calls something at a line of the given files, which is where the interpreter would call a signal handler.
AT_LINE = """
import sys
import numpy as np
import jobcore
from jobcore.store import arenas, background, dirreader, dirstage, open_database, openfile, zipreader, zipscan

def came(at, places, run, nested):
    files, count = {place.__file__ for place in places}, 0

    def line(frame, event, argument):
        nonlocal count
        if event == "line":
            count += 1
            if count == at:
                nested()
        return line

    sys.settrace(lambda frame, event, argument: line if frame.f_code.co_filename in files else None)
    try:
        run()
    finally:
        sys.settrace(None)
    return count >= at

folder, db_type = sys.argv[1:]
"""

SAVES = """
def saved(name, value, how):
    path = f"{folder}/{name}.{db_type}"
    blobs = {"a": np.full(5, value), "b": np.full((3, 70000), value, order="F")}
    if how == "async":
        pending.append(jobcore.save_async(path, blobs, durable=False))
    else:
        jobcore.save(path, blobs, durable=False)

for how in ("async", "sync"):
    at, going = 0, True
    while going:
        at, pending = at + 1, []
        names = f"{how}{at}", f"{how}{at}nested"
        going = came(
            at,
            (arenas, background, dirstage),
            lambda: saved(names[0], at, how),
            lambda: (saved(names[1], -at, how), [one.wait(30) for one in pending[-1:]]),
        )
        for one in pending:
            one.wait(30)
        for name, value in zip(names, (at, -at) if going else (at,)):
            loaded = jobcore.load(f"{folder}/{name}.{db_type}")
            assert (loaded["a"] == value).all() and (loaded["b"] == value).all(), (how, at, name)
    assert at > (20 if how == "async" or db_type == "zarr.zip" else 0), at
"""

LOADS = """
from jobcore.store import BlobPolicy, Zstd
path = f"{folder}/x.{db_type}"
codecs = {"c": BlobPolicy(codec=Zstd(1))}
blobs = {"a": np.arange(5), "b": np.arange(70000.0), "c": np.zeros((2, 300000))}
jobcore.save(path, blobs, durable=False, policies=codecs)
into = {name: np.empty(array.shape[::-1], array.dtype).T for name, array in blobs.items()}
for closes in (False, True):
    at, going = 0, True
    while going:
        at += 1
        database = open_database(path)

        def nested():
            if closes:
                database.close()
            else:
                assert (database.load()["b"] == blobs["b"]).all()

        def load():
            try:
                loaded = database.load(into=into)
                assert all((loaded[name] == blobs[name]).all() for name in blobs)
            except jobcore.errors.ClosedError:
                assert closes

        going = came(at, (openfile, zipreader, zipscan, dirreader), load, nested)
        database.close()
    assert at > 40, at
"""


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("what", [SAVES, LOADS], ids=["saves", "loads"])
def test_a_signal_handler_may_do_the_same_at_any_line(what: str, db_type: str, tmp_path: Path) -> None:
    # In a process of its own: what it guards against is a wait without end.
    script = [sys.executable, "-c", AT_LINE + what, str(tmp_path), db_type]
    done = subprocess.run(script, timeout=120, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not [name.name for name in tmp_path.iterdir() if name.name.startswith(".")]


AT_END = """
import atexit, sys
import numpy as np
import jobcore
from jobcore.store import BlobPolicy, ChunkPolicy, Zstd
from jobcore.store.codecs import ready

path, when, how = sys.argv[1:]
ready(Zstd(1))  # nothing can be imported later

def save():
    policy = {"*": BlobPolicy(ChunkPolicy(1 << 18, 1 << 18), Zstd(1))}
    (jobcore.save if how == "sync" else jobcore.save_async)(path, {"a": np.arange(300000.0)}, policies=policy)

class Last:
    def __del__(self):
        save()

if when == "atexit":
    atexit.register(save)
else:
    last = Last()
    last.itself = last
    sys.modules["last"] = last
"""


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("how", ["sync", "async"])
@pytest.mark.parametrize("when", ["atexit", "finalizer"])
def test_a_save_at_the_end_of_the_interpreter_is_whole(
    when: str, how: str, db_type: str, tmp_path: Path
) -> None:
    path = tmp_path / f"x.{db_type}"
    script = [sys.executable, "-c", AT_END, str(path), when, how]
    done = subprocess.run(script, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert [name.name for name in tmp_path.iterdir()] == [path.name]
    assert (jobcore.load(path)["a"] == np.arange(300000.0)).all()


FORK = """
import os, signal, sys, threading
import jobcore
from jobcore.store import BlobPolicy, Zstd, open_database

path = sys.argv[1]
database = open_database(path)
reader, held, go = database._reader, threading.Event(), threading.Event()
locks = [reader._lock]
if path.endswith("zip"):
    locks += [reader._file._lock, reader._scan._decoding]
else:
    locks += [reader._scattering]

def hold():
    for lock in locks:
        lock.acquire()
    held.set()
    go.wait()

thread = threading.Thread(target=hold)
thread.start()
held.wait()
child = os.fork()
if child == 0:
    signal.alarm(20)
    loaded = database.load(), database.load(["b"])["b"], database.read("b", slice(1, 3))
    database.close()
    os._exit(0 if loaded[1][2] == loaded[2][1] == 2 else 1)
_, status = os.waitpid(child, 0)
go.set()
thread.join()
sys.exit(status)
"""


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
def test_a_forked_child_loads_while_a_thread_of_its_parent_does(db_type: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{db_type}"
    policies = {"c": BlobPolicy(codec=Zstd(1))}
    jobcore.save(path, {"a": 1, "b": np.arange(9.0), "c": np.zeros(300000)}, policies=policies)
    script = [sys.executable, "-W", "ignore", "-c", FORK, str(path)]
    done = subprocess.run(script, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
