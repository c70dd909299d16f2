"""LocalSession: what can be run, on which workspaces, with which outputs."""

from __future__ import annotations

import gc
import threading
import weakref

import numpy as np
import pytest

from jobcore import (
    LocalSession,
    Node,
    Task,
    TaskGroup,
    TaskOutputList,
    Workspace,
    WorkspaceType,
    sleep,
)
from jobcore.errors import (
    BuildError,
    ClosedError,
    NotRunError,
    TaskGroupError,
)
from jobcore.graph import Managed, Plan
from jobcore.runtime import Session, current_token
from session_tools import RUNNABLES, add

pytestmark = pytest.mark.usefixtures("quiet_threads")


@pytest.mark.parametrize("make", RUNNABLES.values(), ids=RUNNABLES.keys())
def test_whatever_is_no_group_runs_on_the_nodes_own_workspace(session, make):
    session.run(make())
    assert session.workspace().fetch("x") == 7


@pytest.mark.parametrize("name", sorted(RUNNABLES.keys() - {"compiled"}))
def test_a_private_run_leaves_nothing(session, name):
    session.run(RUNNABLES[name](), WorkspaceType.PRIVATE)
    assert session.workspace().blob_names() == []


class _JobLike(Managed):
    epoch_group = None


@pytest.mark.parametrize(
    ("runnable", "text"),
    [
        (None, "found NoneType"),
        ("text", "found str"),
        (7, "found int"),
        ([], "found an empty list"),
        ((), "found an empty tuple"),
        (Plan("empty"), "at least one step"),
        (int, "found type"),
        ([None], "NoneType"),
        (lambda: None, "workspace"),
        (_JobLike(), "JobRunner"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_before_anything_runs(session, runnable, text):
    with pytest.raises(BuildError, match=text):
        session.run(runnable)
    assert session.workspace().blob_names() == []


def test_a_list_runs_in_sequence_and_a_failure_ends_it(session):
    with pytest.raises(TaskGroupError):
        session.run([add("x"), lambda ws: 1 // 0, add("x")])
    assert session.workspace().fetch("x") == 1


# -- workspaces


def test_every_node_has_a_workspace_of_its_own_that_lasts(session):
    group = TaskGroup(WorkspaceType.GLOBAL)
    for node in ("a", "b"):
        Task(step=lambda ws, node=node: ws.feed("name", node), node=node, group=group)
    session.run(group)
    assert session.workspace("a").fetch("name") == "a"
    assert session.workspace(Node("b")).fetch("name") == "b"
    assert session.workspace("a") is session.workspace("a")
    assert session.workspace().blob_names() == []
    assert session.workspace("a").name == "a"


def test_a_workspace_given_is_that_of_node_local_and_survives_the_session():
    ws = Workspace()
    with LocalSession(ws) as session:
        assert session.workspace("local") is ws
        session.run(add("x"))
        assert session.workspace("other") is not ws
    assert ws.fetch("x") == 1
    with pytest.raises(TypeError, match="expected a Workspace for node 'local', found dict"):
        LocalSession({})


@pytest.mark.parametrize("node", ["", 3, None, b"a", "\ud800"])
def test_a_node_name_is_checked(session, node):
    with pytest.raises(BuildError, match="node name"):
        session.workspace(node)


def test_private_tasks_see_the_node_and_not_each_other(session):
    session.workspace().feed("shared", 1)
    group, seen = TaskGroup(), {}

    def look(name):
        def step(ws):
            ws.feed(name, 1)
            ws.feed("shared", 5)
            seen[name] = (ws.parent is session.workspace(), sorted(ws.blob_names()))

        return step

    for name in "ab":
        Task(step=[look(name)], name=name, group=group)
    session.run(group)
    assert seen == {"a": (True, ["a", "shared"]), "b": (True, ["b", "shared"])}
    assert session.workspace().blob_names() == ["shared"]
    assert session.workspace().fetch("shared") == 5


def test_every_run_of_a_private_task_starts_with_an_empty_workspace(session):
    group, names = TaskGroup(), []
    group.task(lambda ws: (names.append(ws.blob_names()), ws.feed("mine", 1)))
    session.run(group)
    session.run(group)
    assert names == [[], []]


def test_a_private_workspace_is_gone_when_the_run_is(session):
    group, kept = TaskGroup(), []
    group.task(outputs=["mine"])(lambda ws: (ws.feed("mine", 1), kept.append(weakref.ref(ws))))
    gc.disable()
    try:
        session.run(group)
        assert kept[0]() is None
    finally:
        gc.enable()


def test_a_workspace_type_is_applied_to_a_group_without_one_and_checked_otherwise(session):
    group = TaskGroup()
    group.task(add("x"))
    session.run(group, "global")
    session.run(group)
    assert session.workspace().fetch("x") == 2
    typed = TaskGroup("private")
    typed.task(add("x"))
    with pytest.raises(BuildError, match="expected a task group of workspace type global, found private"):
        session.run(typed, WorkspaceType.GLOBAL)
    with pytest.raises(BuildError, match="compiled group of workspace type global, found private"):
        session.run(session.compile(typed), WorkspaceType.GLOBAL)
    with pytest.raises(BuildError, match="'private' or 'global'"):
        session.run(typed, "shared")


# -- outputs


def test_outputs_are_copies_of_what_the_task_left(session):
    group = TaskGroup()

    @group.task(outputs=["loss", "weights"])
    def train(ws):
        ws.feed("loss", 0.5)
        ws.feed("weights", np.arange(3.0))

    loss, weights = train.outputs()
    with pytest.raises(NotRunError):
        loss.fetch()
    session.run(group)
    assert loss.fetch().shape == ()
    assert loss.fetch() == 0.5
    assert session.fetch_output(weights).tolist() == [0, 1, 2]
    assert session.fetch_output(TaskOutputList([loss, weights]))[0] == 0.5
    assert session.workspace().blob_names() == []


def test_an_output_of_a_list_is_fetched_as_a_list_and_of_a_handle_as_the_handle(session):
    group = TaskGroup()

    @group.task
    def work(ws):
        ws.feed("a", "text")
        ws.counter("c", 4)

    output = work.add_output(["a", "c"])
    session.run(group)
    text, counter = output.fetch()
    assert (text, counter.retrieve()) == ("text", 4)


def test_an_output_that_was_not_made_is_none(session):
    group = TaskGroup()

    @group.task(outputs=["missing", "empty"])
    def work(ws):
        ws.create_blob("empty")

    session.run(group)
    assert [output.fetch() for output in work.outputs()] == [None, None]


def test_a_private_output_hides_none_of_another_task_of_the_same_name(session):
    group = TaskGroup()
    tasks = [
        Task(step=lambda ws, n=n: ws.feed("r", n), outputs=["r"], name=f"t{n}", group=group) for n in range(3)
    ]
    session.run(group)
    assert [int(task.outputs()[0].fetch()) for task in tasks] == [0, 1, 2]


def test_a_private_task_puts_out_what_it_changed_in_the_node(session):
    session.workspace().feed("total", 1)
    group = TaskGroup()
    work = group.task(outputs="total")(add("total"))
    session.run(group)
    assert work.outputs()[0].fetch() == 2


def test_a_task_without_a_step_lets_a_private_sibling_write_its_output(session):
    group = TaskGroup()
    condition = Task(outputs=["stop"], group=group)
    group.task(lambda ws: ws.feed("stop", True))
    session.run(group)
    assert condition.outputs()[0].fetch() == True  # noqa: E712 - a 0-d array
    # It carries a value to the caller and is no state of the node.
    assert session.workspace().blob("stop").transient


def test_declaring_an_output_leaves_a_blob_that_is_there_as_it_is(session):
    session.workspace().feed("stop", 5)
    group = TaskGroup()
    condition = Task(outputs=["stop"], group=group)
    session.run(group)
    assert condition.outputs()[0].fetch() == 5
    assert not session.workspace().blob("stop").transient


def test_outputs_of_a_later_run_replace_those_of_an_earlier_one(session):
    group = TaskGroup()
    work = group.task(outputs="x")(add("x"))
    session.workspace().feed("x", 0)
    for expected in (1, 2):
        session.run(group)
        assert work.outputs()[0].fetch() == expected


@pytest.mark.parametrize("other", ["x", None, 3])
def test_only_outputs_can_be_fetched(session, other):
    with pytest.raises(TypeError, match="expected a TaskOutput"):
        session.fetch_output(other)


# -- closing


def test_a_closed_session_names_class_and_method():
    session = LocalSession()
    output = Task(step=add("x"), outputs="x").outputs()[0]
    assert session.is_open()
    session.close()
    session.close()
    assert not session.is_open()
    for method, call in {
        "run": lambda: session.run(add("x")),
        "workspace": session.workspace,
        "fetch_output": lambda: session.fetch_output(output),
        "__enter__": session.__enter__,
    }.items():
        with pytest.raises(ClosedError, match=rf"^LocalSession\.{method}: expected an open session"):
            call()
    assert "closed" in repr(session)


def test_leaving_the_block_closes_after_an_exception_too():
    with pytest.raises(ZeroDivisionError), LocalSession() as session:
        1 // 0  # noqa: B018 - raises
    assert not session.is_open()


def test_closing_lets_go_of_the_workspaces():
    session = LocalSession()
    gone = weakref.ref(session.workspace())
    session.close()
    assert gone() is None


def test_session_is_an_interface():
    with pytest.raises(TypeError, match="abstract"):
        Session()


# -- runs inside runs, and side by side


@pytest.mark.parametrize("tasks", [1, 2])
def test_a_step_may_run_something_in_its_own_session(session, tasks):
    inner = TaskGroup(WorkspaceType.GLOBAL)
    for number in range(tasks):
        Task(step=add(f"inner{number}"), name=str(number), group=inner)
    outer = TaskGroup()
    for number in range(tasks):
        step = [lambda ws: session.run(inner), lambda ws, n=number: session.run(add(f"nested{n}"))]
        Task(step=step, name=str(number), group=outer)
    session.run(outer)
    counts = {name: int(session.workspace().fetch(name)) for name in session.workspace().blob_names()}
    assert sorted(counts) == [f"{kind}{n}" for kind in ("inner", "nested") for n in range(tasks)]
    assert all(counts[f"nested{n}"] == 1 for n in range(tasks))


def test_a_step_sees_the_token_of_its_own_run(session):
    tokens = []

    def inner(ws):
        tokens.append(current_token())

    def outer(ws):
        tokens.append(current_token())
        session.run(inner)
        tokens.append(current_token())

    session.run(outer)
    first, nested, again = tokens
    assert first is again
    assert nested is not first
    assert nested.is_within(first)
    assert not current_token().is_within(first)


def test_two_threads_may_run_in_one_session_at_the_same_time(session):
    barrier = threading.Barrier(2, timeout=60)
    group = TaskGroup()
    work = group.task(outputs="mine")(lambda ws: (barrier.wait(), ws.feed("mine", 1)))
    threads = [threading.Thread(target=session.run, args=(group,)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert work.outputs()[0].fetch() == 1
    assert session.is_open()


def test_many_threads_run_and_compile_at_once(session, together):
    session.workspace().counter("hits")
    group = TaskGroup()
    for number in range(2):
        Task(step=lambda ws: ws.fetch("hits").count_up(), name=str(number), group=group)
    results = together(8, lambda _: [session.run(group) for _ in range(20)])
    assert results == [[None] * 20] * 8
    assert session.workspace().fetch("hits").retrieve() == 320


def test_many_threads_ask_for_one_workspace(session, together):
    assert len({id(ws) for ws in together(16, lambda _: session.workspace("new"))}) == 1


def test_sleep_inside_a_step_is_an_ordinary_sleep(session):
    session.run(lambda ws: sleep(0))
