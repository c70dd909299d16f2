"""The kernels that copy and look at blobs, and Python functions as ops."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from jobcore import LocalSession, NetBuilder, Task, TaskGroup, ops
from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore.errors import BlobKindError, BlobValueError, BuildError, TaskGroupError
from jobcore.graph import Net
from jobcore.workspace import Workspace
from op_tools import result, run, same


@pytest.mark.parametrize("value", [np.arange(3), "text", b"bytes", {"a": [1]}])
def test_a_copy_is_independent(value: Any) -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("x", value)
    ref = net.Copy("x")
    run(net, ws)
    ws.feed("x", 0)
    found = ws.fetch(ref)
    assert found.tolist() == value.tolist() if isinstance(value, np.ndarray) else found == value


@pytest.mark.parametrize("value", [Counter(), Timer("t"), np.random.default_rng(0)])
def test_handles_are_not_copied(value: Any) -> None:
    with pytest.raises(BlobKindError, match="expected a tensor, a string, bytes or a state, found 'in0'"):
        result("Copy", value)


@pytest.mark.parametrize(
    ("value", "empty"),
    [(np.zeros((2, 0)), True), (np.zeros(()), False), ("", True), ("a", False), (b"", True), (b"a", False)],
)
def test_is_empty(value: Any, empty: bool) -> None:
    same(result("IsEmpty", value), np.bool_(empty))


def test_is_empty_of_other_blobs() -> None:
    net, ws = Net("n"), Workspace()
    ws.create_blob("x")
    net.IsEmpty("x", "y")
    run(net, ws)
    same(ws.fetch("y"), np.bool_(True))
    with pytest.raises(BlobKindError, match="found 'in0': counter"):
        result("IsEmpty", Counter())


def test_all_blob_names() -> None:
    node = Workspace(name="node")
    node.feed("w", 1)
    ws = Workspace(node)
    ws.create_blob("empty")
    ws.feed("größe/a:b", 2)
    net = Net("n")
    every, own = net.GetAllBlobNames([], "every"), net.GetAllBlobNames([], "own", include_shared=False)
    run(net, ws)
    names = ws.fetch(every)
    assert names.dtype.kind == "U"
    assert names.shape == (4,)
    assert set(names.tolist()) == {"w", "empty", "größe/a:b", "every"}
    assert set(ws.fetch(own).tolist()) == {"empty", "größe/a:b", "every", "own"}


def test_a_name_that_a_string_tensor_would_cut_is_an_error() -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("x\0", 1)
    net.GetAllBlobNames()
    with pytest.raises(BlobValueError, match=r"cannot hold the names \['x\\x00'\]"):
        run(net, ws)


def test_python_functions_get_blobs_and_the_workspace() -> None:
    seen: list[Any] = []

    def double(inputs: Any, outputs: Any) -> str:
        outputs[0].feed(inputs[0].fetch() * 2)
        return "ignored"

    def peek(inputs: Any, outputs: Any, workspace: Any) -> None:
        seen.append((inputs, outputs, workspace))

    net, ws = Net("n"), Workspace()
    ws.feed("x", np.array([1, 2]))
    net.Python(double)("x", "x")
    net.Python(peek)([], [], pass_workspace=True)
    run(net, ws)
    run(net, ws)
    assert ws.fetch("x").tolist() == [4, 8]
    assert seen == [([], [], ws)] * 2


def test_a_factory_makes_a_function_for_each_instance():
    made, calls, lock = [], [], threading.Lock()

    def factory(start, *, step):
        seen = [start]
        with lock:
            made.append(start)

        def function(inputs, outputs):
            seen[0] += step
            outputs[0].feed(seen[0])
            with lock:
                calls.append(seen[0])

        return function

    with TaskGroup() as group, Task(name="t", num_instances=64), ops.loop(4):
        ops.Python((factory, (10,), {"step": 2}))([], ["x"])
    with LocalSession() as session:
        session.run(group)
    assert len(made) == 64
    assert sorted(calls) == sorted([12, 14, 16, 18] * 64)


@pytest.mark.parametrize("value", [3, (), (3,), (int, 3), (int, (), 3), (int, (), {}, 1)])
def test_what_is_neither_a_function_nor_a_factory_is_refused(value):
    with NetBuilder("n"), pytest.raises(BuildError, match="factory"):
        ops.Python(value)([], [])


def test_a_factory_that_makes_no_function_fails_the_task():
    with NetBuilder("n") as builder:
        ops.Python((int, ("3",)))([], [])
    with (
        LocalSession() as session,
        pytest.raises(TaskGroupError, match="expected a function from the factory"),
    ):
        session.run(builder)
