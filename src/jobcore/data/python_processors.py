"""Plain functions of arrays as processors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jobcore._fast.blob import Blob
from jobcore.data.processors import Processor, ProcessorOutput
from jobcore.data.records import new_record
from jobcore.data.schema import as_field
from jobcore.errors import BlobValueError, BuildError
from jobcore.graph import Net
from jobcore.graph.functions import check_runs, function_name

__all__ = ["python_processor", "python_sink"]


class _PythonProcessor:
    """See `python_processor`."""

    def __init__(self, function: Callable[..., Any], schema: Any, ends: bool = False) -> None:
        if not callable(function):
            raise BuildError(f"expected a function of arrays, found {type(function).__name__}: {function!r}")
        self.function = check_runs(function, "processor")
        self.name = function_name(function)
        self._schema = None if schema is None else as_field(schema).clone_schema()
        self._ends = ends

    def __call__(self, record: Any) -> ProcessorOutput:
        net = Net("python")
        if self._ends:
            return self._last(net, record)
        schema = record.clone_schema() if self._schema is None else self._schema
        made = new_record(net, schema)
        stop = net.next_blob("should_stop")
        names = schema.field_names()
        function = self.function

        def process(inputs: list[Blob], outputs: list[Blob]) -> None:
            try:
                result = function(*_values(inputs))
            except StopIteration:
                outputs[-1].feed(True)
                return
            for blob, value in zip(outputs, _columns_of(self.name, names, result), strict=False):
                if value is None:
                    # A function that forgot to return; as a value the None would go on as one.
                    raise BlobValueError(
                        f"processor {self.name}: expected the columns {names} as arrays, found None",
                        hint="return the new columns; python_sink takes a function that returns nothing",
                    )
                blob.feed(value)
            outputs[-1].feed(False)

        net.Python(process)(record.field_blobs(), [*made.field_blobs(), stop], name=self.name)
        return ProcessorOutput([net], made, stop)

    def _last(self, net: Net, record: Any) -> ProcessorOutput:
        stop = net.next_blob("should_stop")
        function = self.function

        def process(inputs: list[Blob], outputs: list[Blob]) -> None:
            try:
                function(*_values(inputs))
            except StopIteration:
                outputs[0].feed(True)
            else:
                outputs[0].feed(False)

        net.Python(process)(record.field_blobs(), [stop], name=self.name)
        return ProcessorOutput([net], None, stop)

    def __repr__(self) -> str:
        return f"{'python_sink' if self._ends else 'python_processor'}({self.name})"


def _values(blobs: list[Blob]) -> list[Any]:
    return [blob.view() if blob.kind == "tensor" else blob.value for blob in blobs]


def _columns_of(name: str, names: list[str], result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        if set(result) == set(names):
            return [result[column] for column in names]
        found = f"a mapping with {list(result)}"
    elif isinstance(result, tuple):
        if len(result) == len(names):
            return list(result)
        found = f"a tuple of {len(result)}"
    elif len(names) == 1:
        return [result]
    else:
        found = type(result).__name__
    raise BlobValueError(
        f"processor {name}: expected the columns {names}, as a mapping or a tuple in this order, found {found}"
    )


def python_processor(function: Callable[..., Any], schema: Any = None) -> Processor:
    """Return a processor that calls a plain function of arrays for each record.

    Parameters
    ----------
    function
        Called with the columns in order, as read-only arrays. It returns the new columns: a mapping by name, a tuple in
        order, or of a single column an array. To stop before this record, it raises `StopIteration`.
    schema
        Form of the new records; by default that of those that come in.

    Raises
    ------
    BuildError
        `function` cannot be called.

    Notes
    -----
    Several instances call it at once, from threads of their own.
    """
    return _PythonProcessor(function, schema)


def python_sink(function: Callable[..., Any]) -> Processor:
    """Return a processor that hands each record to a plain function and ends the pipe there.

    Parameters
    ----------
    function
        Called with the columns in order, as read-only arrays; what it returns is ignored. To stop, it raises
        `StopIteration`.

    Raises
    ------
    BuildError
        `function` cannot be called.

    Notes
    -----
    Several instances call it at once, from threads of their own.
    """
    return _PythonProcessor(function, None, ends=True)
