"""Nodes and the cluster at build time."""

from __future__ import annotations

from typing import Any

import pytest

from jobcore.errors import BuildError
from jobcore.tasks import Cluster, Node, Task, TaskGroup


def names(group: TaskGroup) -> list[str]:
    return [task.name for task in group.tasks()]


def test_nodes_register_with_the_active_cluster_where_they_are_made() -> None:
    Node("nowhere")
    with Cluster() as cluster:
        Node("b", gpus=1)
        Node("a")
        Node("b", gpus=8, rack="r")
        assert Node.current().name == "local"
        assert cluster.nodes() == ["b", "a"], "asking for the current node registers nothing"
        Task(name="t")
        Task(node="c")
    assert cluster.nodes() == ["b", "a", "local", "c"]
    assert cluster.node_kwargs() == {"b": {"gpus": 1, "rack": "r"}, "a": {}, "local": {}, "c": {}}
    cluster.add_node("d")
    assert (
        repr(cluster)
        == f"Cluster(nodes={['b', 'a', 'local', 'c', 'd']}, node_kwargs={cluster.node_kwargs()})"
    )


def test_the_default_node_and_cluster_are_not_left_active() -> None:
    assert Node.current() == Node("local")
    assert Node.current(required=False) is None
    assert Cluster.current() is not Cluster.current()
    assert Cluster.current(required=False) is None


def test_a_node_is_its_name() -> None:
    assert Node("a", x=1) == Node("a")
    assert len({Node("a"), Node("a"), Node("b")}) == 2
    assert Node("a") != "a"
    assert str(Node("a")) == "a"


def test_tasks_belong_to_the_current_node() -> None:
    with TaskGroup() as group:
        with Node("a"):
            Task()
            with Node("b"), Task():
                pass
            Task(node="c")
            Task(node=Node("a"))
        Task()
    assert names(group) == ["a/task", "b/task", "c/task", "a/task:1", "local/task"]
    assert group.used_nodes() == ["a", "b", "c", "local"]
    assert [task.node for task in group.tasks()] == ["a", "b", "c", "a", "local"]


@pytest.mark.parametrize("name", ["", 3, "\ud800"])
def test_a_node_needs_a_name(name: Any) -> None:
    with pytest.raises(BuildError, match="node name"):
        Node(name)
