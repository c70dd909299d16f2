"""Outputs of tasks at build time."""

from __future__ import annotations

from typing import Any

import pytest

from jobcore.errors import BlobValueError, BuildError, NotRunError
from jobcore.graph import BlobReference, ops
from jobcore.tasks import Task, TaskGroup, TaskOutput, TaskOutputList, final_output


def names(group: TaskGroup) -> list[str]:
    return [task.name for task in group.tasks()]


@pytest.mark.parametrize(
    ("names_", "values", "fetched"),
    [
        ("a", [1], 1),
        (BlobReference("a"), [None], None),
        (["a"], [1], [1]),
        (["a", "b"], [1, 2], [1, 2]),
        ([], [], []),
    ],
)
def test_outputs_give_values_in_the_shape_of_their_names(
    names_: Any, values: list[Any], fetched: Any
) -> None:
    output = TaskOutput(names_)
    with pytest.raises(NotRunError, match="has no value"):
        output.fetch()
    output.set_values(values)
    assert output.fetch() == fetched
    with pytest.raises(BlobValueError, match=f"expected {len(values)} values, found {len(values) + 1}"):
        output.set_values([*values, 0])
    assert output.fetch() == fetched
    output.clear()
    with pytest.raises(NotRunError, match="run the task's group"):
        output.fetch()


def test_labels() -> None:
    assert TaskOutput("a").label == "a"
    assert TaskOutput(["a", "b"]).label is None
    assert TaskOutput("a", label="loss").label == "loss"
    assert TaskOutput("a", label="").label == ""


def test_output_lists_are_flat() -> None:
    outputs = [TaskOutput("a"), TaskOutput(["b", "c"]), TaskOutput([])]
    flat = TaskOutputList(outputs)
    assert flat.names() == ["a", "b", "c"]
    with pytest.raises(BlobValueError, match="expected 3 output values, found 2"):
        flat.set_values([1, 2])
    flat.set_values([1, 2, 3])
    assert [output.fetch() for output in outputs] == [1, [2, 3], []]
    assert "TaskOutput(names=['b', 'c'], values=[2, 3])" in repr(flat)


def test_outputs_are_added_in_order_and_once() -> None:
    task = Task(outputs="a")
    first = task.add_output(["b", "c"])
    one = task.add_outputs("d")
    several = task.add_outputs([first, "e", ("f", "g")])
    assert isinstance(one, TaskOutput)
    assert isinstance(several, list)
    assert several[0] is first
    assert task.output_list().names() == ["a", "b", "c", "d", "e", "f", "g"]
    assert len(task.outputs()) == 5


def test_final_output_goes_to_the_active_task_or_a_new_one() -> None:
    with TaskGroup() as group:
        with Task(name="t") as task:
            inside = final_output(ops.Const(1))
        outside = final_output(BlobReference("x"))
    assert task.outputs() == [inside]
    assert names(group) == ["local/t", "local/task"]
    made = group.tasks()[1]
    assert made.outputs() == [outside]
    assert made.get_step() is None
    own = TaskOutput(["a"])
    assert final_output(own) is own


@pytest.mark.parametrize("output", ["", 3, ["a", 3], "\ud800"])
def test_an_output_needs_names(output: Any) -> None:
    with pytest.raises(BuildError):
        TaskOutput(output)
