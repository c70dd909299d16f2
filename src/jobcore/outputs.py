"""What tasks give back: outputs, named at build time and filled by a session."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jobcore.errors import BlobValueError, NotRunError
from jobcore.graph.blobref import listed
from jobcore.graph.names import check_name

__all__ = ["TaskOutput", "TaskOutputList"]


class TaskOutput:
    """Blobs of a task whose values are kept when its group has ended.

    Parameters
    ----------
    names
        One blob or a list of blobs, full names or references.
    label
        What to show it as in progress reports; by default the name of a single blob, and for a list
        nothing.

    Attributes
    ----------
    names
        Tuple of the full blob names.
    label
        The label, or ``None``.

    Notes
    -----
    Thread safety: values are replaced in one step, so a reader sees those of one run.
    """

    def __init__(self, names: str | Iterable[str], label: str | None = None) -> None:
        self._single = isinstance(names, str)
        self.names = tuple(check_name(name, "output blob name") for name in listed(names))
        self.label = self.names[0] if label is None and self._single else label
        self._values: tuple[object, ...] | None = None

    def fetch(self) -> object:
        """Return the value of the single blob, or a list of the values; ``None`` for a blob never fed.

        Raises
        ------
        NotRunError
            No session has run the task yet.
        """
        values = self._values
        if values is None:
            raise NotRunError(
                f"output {self._shown()} has no value: its task did not run to the end yet",
                hint="run the task's group in a session first",
            )
        return values[0] if self._single else list(values)

    def set_values(self, values: Sequence[object]) -> None:
        """Take the values of one run, in the order of `names`; called by the session.

        Raises
        ------
        BlobValueError
            Their number is another.
        """
        if len(values) != len(self.names):
            raise BlobValueError(
                f"output {self._shown()}: expected {len(self.names)} values, found {len(values)}"
            )
        self._values = tuple(values)

    def clear(self) -> None:
        """Forget the values, so that those of an earlier run are not taken for a failed one's."""
        self._values = None

    def _shown(self) -> str:
        return repr(self.names[0]) if self._single else repr(list(self.names))

    def __repr__(self) -> str:
        values = None if self._values is None else list(self._values)
        return f"TaskOutput(names={list(self.names)}, values={values})"


class TaskOutputList:
    """Several outputs as one flat list of names and values.

    Parameters
    ----------
    outputs
        The outputs; more can be appended to the attribute of the same name.
    """

    def __init__(self, outputs: Iterable[TaskOutput] | None = None) -> None:
        self.outputs = list(outputs or ())

    def names(self) -> list[str]:
        """Return the blob names of all outputs, one after another."""
        return [name for output in self.outputs for name in output.names]

    def set_values(self, values: Sequence[object]) -> None:
        """Hand each output its share of `values`, which follow `names`.

        Raises
        ------
        BlobValueError
            The number of values is another; no output was changed then.
        """
        if len(values) != len(self.names()):
            raise BlobValueError(f"expected {len(self.names())} output values, found {len(values)}")
        start = 0
        for output in self.outputs:
            output.set_values(values[start : start + len(output.names)])
            start += len(output.names)

    def __repr__(self) -> str:
        return f"TaskOutputList(outputs={self.outputs})"
