"""The one error that comes out of a failed run: what it says, and how it can be taken apart."""

from __future__ import annotations

import re
import sys
import threading
import traceback

import pytest

from jobcore import Node, Task, TaskGroup, ops
from jobcore.errors import BlobKindError, BlobNotFoundError, TaskFailure, TaskGroupError
from jobcore.graph import Net, execution_step
from jobcore.runtime import current_token
from session_tools import boom, group_of, hang

pytestmark = pytest.mark.usefixtures("quiet_threads")


# -- what the error says


def test_the_error_names_task_node_step_and_line(session):
    group = TaskGroup()
    with Node("trainer_0"):
        group.task(name="train")(boom)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    (failure,) = caught.value.failures
    assert (failure.node, failure.task, failure.step) == ("trainer_0", "trainer_0/train", "boom")
    assert re.fullmatch(r".*test_session_errors\.py:\d+", failure.built_at)
    assert isinstance(failure.error, ValueError)
    text = str(caught.value)
    assert text.startswith(
        "the task failed: task 'trainer_0/train' on node 'trainer_0', step 'boom' built at "
    )
    assert text.endswith(": ValueError: boom")


def test_the_original_traceback_is_kept_and_printed(session):
    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(boom, hang))
    error = caught.value.failures[0].error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "boom"
    printed = "".join(traceback.format_exception(caught.value))
    assert 'raise ValueError("boom")' in printed
    assert "Cancelled" not in printed


def test_a_failing_op_is_named_by_step_net_type_and_the_line_that_built_it(session):
    with TaskGroup() as group, Task(name="count"):
        ops.Const(1, "number")
        ops.CountDown("number")
        line = sys._getframe().f_lineno - 1
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    (failure,) = caught.value.failures
    assert failure.step == "local/count / CountDown"
    assert failure.built_at == f"{__file__}:{line}"
    assert isinstance(failure.error, BlobKindError)


def test_the_path_leads_from_the_tasks_step_to_the_op(session):
    net = Net("inner_net")
    net.Python(lambda inputs, outputs: 1 // 0)(name="division")
    step = execution_step("outer", [execution_step("middle", [net, net]), boom])
    with pytest.raises(TaskGroupError) as caught:
        session.run(step)
    assert caught.value.failures[0].step == "outer / middle / inner_net / Python 'division'"


def test_a_missing_input_is_a_failure_of_the_op_that_reads_it(session):
    net = Net("n")
    net.Copy("absent", "copy")
    with pytest.raises(TaskGroupError) as caught:
        session.run(net)
    assert caught.value.failures[0].step == "n / Copy"
    assert isinstance(caught.value.failures[0].error, BlobNotFoundError)
    assert not session.workspace().has_blob("copy")


def test_several_failures_are_listed_line_by_line_in_the_order_in_which_they_happened(session):
    barrier = threading.Barrier(2, timeout=60)

    def first(ws):
        barrier.wait()
        raise KeyError("first")

    def second(ws):
        barrier.wait()
        current_token().wait()
        raise OSError("second")

    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(first, second, hang))
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 3 tasks failed:"
    assert "KeyError: 'first'" in lines[1]
    assert "OSError: second" in lines[2]
    assert [type(f.error) for f in caught.value.failures] == [KeyError, OSError]


def test_an_error_whose_text_cannot_be_made_does_not_hide_the_others(session):
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def broken(ws):
        raise Broken

    with pytest.raises(TaskGroupError, match=r"Broken: .*cannot be made"):
        session.run(broken)


# -- an exception group like any other


def test_except_star_takes_what_it_names(session):
    caught = []
    try:
        session.run(group_of(boom, hang))
    except* ValueError as group:
        caught.append(group)
    (group,) = caught
    assert isinstance(group, TaskGroupError)
    assert [failure.task for failure in group.failures] == ["local/t0"]


def test_a_split_keeps_failures_and_errors_together():
    errors = [ValueError("v"), SystemExit(3), ExceptionGroup("inner", [KeyError("k"), TypeError("t")])]
    group = TaskGroupError("x", [TaskFailure("n", f"t{i}", "s", None, e) for i, e in enumerate(errors)])
    exits, rest = group.split(RuntimeError)
    # The group itself is a RuntimeError too, so a split by type takes it whole.
    assert exits is group
    assert rest is None
    keys, rest = group.split(KeyError)
    assert [failure.task for failure in keys.failures] == ["t2"]
    assert [failure.task for failure in rest.failures] == ["t0", "t1", "t2"]
    assert [type(e) for e in rest.failures[2].error.exceptions] == [TypeError]
    exits, rest = group.split(lambda e: e.__cause__ is errors[1])
    assert [failure.task for failure in exits.failures] == ["t1"]
    assert [failure.task for failure in rest.failures] == ["t0", "t2"]
