"""The machines of a job, as labels: which node a task belongs to."""

from __future__ import annotations

from jobcore.graph.context import DefaultManaged
from jobcore.graph.names import check_name

__all__ = ["Cluster", "Node"]


class Cluster(DefaultManaged):
    """Ordered registry of the nodes that are named while it is active.

    Notes
    -----
    When none is active, `Cluster.current` gives a new one that is not left active: nodes registered in it
    are seen by whoever asked, and by nobody else. Thread safety: none; build in one thread.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, dict[str, object]] = {}

    def add_node(self, node: Node | str) -> None:
        """Register a node; registered again, it only adds keyword arguments it did not have yet."""
        known = self._nodes.setdefault(str(node), {})
        if isinstance(node, Node):
            for key, value in node.kwargs().items():
                known.setdefault(key, value)

    def nodes(self) -> list[str]:
        """Return the names of the nodes in the order in which they were first named."""
        return list(self._nodes)

    def node_kwargs(self) -> dict[str, dict[str, object]]:
        """Return the merged keyword arguments of each node by its name."""
        return {name: dict(kwargs) for name, kwargs in self._nodes.items()}

    def __repr__(self) -> str:
        return f"Cluster(nodes={self.nodes()}, node_kwargs={self.node_kwargs()})"


class Node(DefaultManaged):
    """A label for a machine. Tasks built inside ``with Node(...):`` belong to it.

    Making one registers it with the active `Cluster`, if there is one.

    Parameters
    ----------
    node
        The name; two nodes of one name are the same node.
    **kwargs
        Whatever a scheduler wants to know about it.

    Raises
    ------
    BuildError
        The name is empty or not valid Unicode.

    Notes
    -----
    Outside any, `Node.current` gives the node ``local``, which is neither left active nor registered: a
    task that uses it registers it.
    """

    def __init__(self, node: str = "local", **kwargs: object) -> None:
        self._setup(node, kwargs)
        register(self)

    def _setup(self, name: str, kwargs: dict[str, object]) -> None:
        self.name = check_name(name, "node name")
        self._kwargs = kwargs

    @classmethod
    def _default(cls) -> Node:
        # Asking which node is current must not put one into the cluster, so __init__ is passed by.
        node = cls.__new__(cls)
        node._setup("local", {})
        return node

    def kwargs(self) -> dict[str, object]:
        """Return the keyword arguments that this node was made with."""
        return dict(self._kwargs)

    def __eq__(self, other: object) -> bool:
        return self.name == other.name if isinstance(other, Node) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Node(name={self.name!r}, kwargs={self._kwargs})"


def register(node: Node) -> None:
    """Register `node` with the active cluster, if there is one."""
    cluster = Cluster.current(required=False)
    if cluster is not None:
        cluster.add_node(node)
