"""How a session runs steps: instances, concurrency, iteration and stop blobs."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from jobcore import Task, TaskGroup, WorkspaceType
from jobcore.errors import TaskGroupError
from jobcore.graph import ExecutionStep, Net, execution_step
from session_tools import add, constant

pytestmark = pytest.mark.usefixtures("quiet_threads")


# -- instances


@pytest.mark.parametrize("kind", WorkspaceType)
def test_instances_run_at_once_each_on_a_workspace_below_the_tasks(session, kind):
    barrier, seen, lock = threading.Barrier(3, timeout=60), [], threading.Lock()
    group = TaskGroup(kind)

    @group.task(num_instances=3)
    def work(ws):
        barrier.wait()
        ws.feed("mine", 1)
        with lock:
            seen.append((ws.blob_names(include_shared=False), ws.parent))

    session.run(group)
    assert [names for names, _ in seen] == [["mine"]] * 3
    assert len({id(parent) for _, parent in seen}) == 1
    assert (seen[0][1] is session.workspace()) == (kind is WorkspaceType.GLOBAL)
    assert session.workspace().blob_names() == []


def test_instances_share_what_their_task_can_see(session):
    session.workspace().counter("hits")
    group = TaskGroup()
    group.task(num_instances=4)(lambda ws: [ws.fetch("hits").count_up() for _ in range(1000)])
    session.run(group)
    assert session.workspace().fetch("hits").retrieve() == 4000


# -- concurrency


def test_tasks_of_a_group_run_at_the_same_time_also_on_different_nodes(session):
    barrier, group = threading.Barrier(3, timeout=60), TaskGroup()
    for number in range(3):
        Task(step=lambda ws: barrier.wait(), node=f"node{number}", group=group)
    session.run(group)


def test_a_single_task_runs_in_the_calling_thread(session):
    threads, group = [], TaskGroup()
    group.task(lambda ws: threads.append(threading.current_thread()))
    session.run(group)
    assert threads == [threading.current_thread()]


def test_threads_are_named_after_their_tasks(session):
    names, group = set(), TaskGroup()
    for name in "ab":
        Task(step=lambda ws: names.add(threading.current_thread().name), name=name, group=group)
    session.run(group)
    assert names == {"jobcore local/a", "jobcore local/b"}


def test_what_a_task_sets_in_its_context_stays_there_and_the_callers_is_seen(session):
    group, seen = TaskGroup(), []

    def step(ws):
        seen.append(np.geterr()["over"])
        np.seterr(over="raise")

    with np.errstate(over="ignore"):
        for tasks in (1, 2):
            group = TaskGroup()
            for number in range(tasks):
                Task(step=step, name=str(number), group=group)
            session.run(group)
        assert np.geterr()["over"] == "ignore"
    assert seen == ["ignore"] * 3


def test_concurrent_substeps_run_at_once_and_are_joined_before_the_next_round(session):
    barrier, log = threading.Barrier(2, timeout=60), []

    def part(name):
        def step(ws):
            barrier.wait()
            log.append(name)

        return step

    both = execution_step("both", [part("a"), part("b")], num_iter=3, concurrent_substeps=True)
    session.run([both, lambda ws: log.append("end")])
    assert [sorted(log[i : i + 2]) for i in (0, 2, 4)] == [["a", "b"]] * 3
    assert log[6:] == ["end"]


def test_a_single_concurrent_substep_needs_no_thread(session):
    threads = []
    session.run(
        execution_step("s", [lambda ws: threads.append(threading.current_thread())], concurrent_substeps=True)
    )
    assert threads == [threading.current_thread()]


# -- iteration


@pytest.mark.parametrize(("count", "runs"), [(None, 1), (0, 0), (-1, 0), (1, 1), (5, 5)])
@pytest.mark.parametrize("shape", ["function", "nets", "substeps"])
def test_a_step_runs_as_often_as_it_says(session, shape, count, runs):
    session.workspace().feed("x", 0)
    net = Net("n")
    net.Add(["x", net.Const(1)], "x")
    content = {
        "function": {"function": add("x")},
        "nets": {"nets": [net]},
        "substeps": {"substeps": [execution_step("inner", add("x"))]},
    }[shape]
    session.run(ExecutionStep("s", num_iter=count, **content))
    assert session.workspace().fetch("x") == runs


def counting(limit):
    def step(ws):
        add("x")(ws)
        ws.feed("stop", bool(ws.fetch("x") >= limit))

    return step


def test_a_stop_blob_is_looked_at_after_each_part_and_not_before_the_first(session):
    session.workspace().feed("stop", True)
    session.run(ExecutionStep("f", function=counting(3), should_stop_blob="stop"))
    assert session.workspace().fetch("x") == 3
    late = execution_step("late", [counting(4), add("late")], should_stop_blob="stop")
    session.run(late)
    assert session.workspace().fetch("x") == 4
    assert not session.workspace().has_blob("late")


def test_a_stop_blob_is_looked_at_after_each_net(session):
    first, second = constant("first", True, "stop"), constant("second", 1, "never")
    session.run(ExecutionStep("s", nets=[first, second], should_stop_blob="stop"))
    assert not session.workspace().has_blob("never")


def test_concurrent_parts_all_end_before_the_stop_blob_is_looked_at(session):
    step = execution_step("s", [counting(1), add("other")], should_stop_blob="stop", concurrent_substeps=True)
    session.run(step)
    assert session.workspace().fetch("other") == 1


@pytest.mark.parametrize("prepare", [lambda ws: None, lambda ws: ws.create_blob("stop")])
def test_a_missing_or_empty_stop_blob_does_not_stop(session, prepare):
    prepare(session.workspace())

    def step(ws):
        add("x")(ws)
        if ws.fetch("x") == 3:
            ws.feed("stop", np.ones(1, bool))

    session.run(ExecutionStep("s", function=step, should_stop_blob="stop"))
    assert session.workspace().fetch("x") == 3


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (1, r"a tensor of dtype int64 and shape \(\)"),
        (np.ones(2, bool), r"a tensor of dtype bool and shape \(2,\)"),
        ("yes", "a blob of kind 'string'"),
        ([True], "a blob of kind 'state'"),
    ],
)
def test_a_stop_blob_of_another_type_is_an_error_that_names_it(session, value, found):
    session.workspace().feed("halt", value)
    with pytest.raises(TaskGroupError, match=f"a single boolean in the stop blob 'halt', found {found}"):
        session.run(ExecutionStep("s", function=add("x"), should_stop_blob="halt"))
    assert session.workspace().fetch("x") == 1


def test_steps_without_content_do_nothing(session):
    session.run(ExecutionStep("empty"))
    session.run(ExecutionStep("endless", should_stop_blob="never"))
    session.run(TaskGroup())
    assert session.workspace().blob_names() == []
