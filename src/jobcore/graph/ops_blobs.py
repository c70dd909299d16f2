"""Ops about blobs as a whole: copy, emptiness, names, and calls of Python functions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph.args import boolean
from jobcore.graph.functions import check_step_function
from jobcore.graph.kernels import describe_blob, wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.registry import ArgSpec, register_op
from jobcore.workspace import Workspace

__all__: list[str] = []

_COPIED = ("tensor", "string", "bytes", "state")


@register_op("Copy", num_inputs=1, num_outputs=1, inplace=True)
def copy(ctx: OpContext) -> None:
    """Copy a blob.

    Input: a tensor, a string, bytes or a state; output: the same value, independent of the input.
    """
    source, target = ctx.inputs[0], ctx.outputs[0]
    if source.kind not in _COPIED:
        # Two blobs with one counter in them would look like a copy and count together.
        raise wrong_kind(ctx, source, "a tensor, a string, bytes or a state")
    if source is not target:
        target.feed(source)


@register_op("IsEmpty", num_inputs=1, num_outputs=1, inplace=True)
def is_empty(ctx: OpContext) -> None:
    """Tell whether there is nothing in a blob.

    Input: a blob; output: True for one that was never fed, a tensor without elements, and a string or
    bytes of length 0; bool, 0-d.
    """
    blob = ctx.inputs[0]
    value = blob.value
    if blob.kind == "empty":
        empty = True
    elif isinstance(value, np.ndarray):
        empty = value.size == 0
    elif isinstance(value, (str, bytes)):
        empty = not value
    else:
        raise wrong_kind(ctx, blob, "a tensor, a string or bytes")
    ctx.outputs[0].feed(np.bool_(empty))


@register_op(
    "GetAllBlobNames",
    num_inputs=0,
    num_outputs=1,
    args={"include_shared": boolean(default=True, doc="Also the blobs of the workspaces above.")},
)
def get_all_blob_names(ctx: OpContext) -> None:
    """List the names of the blobs that are visible, with ``include_shared=False`` only the workspace's own.

    No input; output: a 1-D tensor of strings (``<U``), in the workspace's order. Empty blobs and the output
    itself are among them.
    """
    names = ctx.workspace.blob_names(include_shared=ctx.args["include_shared"])
    ctx.outputs[0].feed(_as_names(ctx, names))


def _as_names(ctx: OpContext, names: list[str]) -> NDArray[np.str_]:
    listed = np.array(names, dtype=np.str_)
    if listed.tolist() != names:
        # NumPy strings have no length: trailing NUL characters are lost.
        lost = [name for name in names if name.endswith("\0")]
        raise BlobValueError(f"{ctx.op.call()}: a tensor of strings cannot hold the names {lost}")
    return listed


@register_op(
    "EstimateAllBlobSizes",
    num_inputs=0,
    num_outputs=2,
    args={"include_shared": boolean(default=True, doc="Also the blobs of the workspaces above.")},
    default_outputs=2,
)
def estimate_all_blob_sizes(ctx: OpContext) -> None:
    """Tell how large the visible blobs are, with ``include_shared=False`` only the workspace's own.

    No input; outputs: the names, as GetAllBlobNames gives them, and the bytes of their values, int64, 1-D; what a
    checkpoint needs for names and descriptions is not counted. The outputs themselves are not among them.
    """
    own = set(ctx.op.outputs)
    names = ctx.workspace.blob_names(include_shared=ctx.args["include_shared"])
    names = [name for name in names if name not in own and ctx.workspace.has_blob(name)]
    sizes = [ctx.workspace.blob(name).nbytes for name in names]
    ctx.outputs[0].feed(_as_names(ctx, names))
    ctx.outputs[1].feed(np.array(sizes, np.int64))


@register_op("Print", num_inputs=1, num_outputs=0)
def print_blob(ctx: OpContext) -> None:
    """Write name, kind and value of a blob to the standard output; LogInfo writes to the log.

    Input: a blob of any kind; no output. Of a large tensor NumPy shows the first and last items.
    """
    blob = ctx.inputs[0]
    value = blob.view() if blob.kind == "tensor" else blob.value
    print(f"{describe_blob(blob)}: {value}", flush=True)


class _Factory:
    """Makes the function of a Python op: once for each op and workspace, so that it may keep a state of its own."""

    def __init__(self, make: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self._make = make
        self._args = args
        self._kwargs = dict(kwargs)
        # Guards the table: instances with a common workspace get one function.
        self._lock = threading.Lock()
        self._made: WeakKeyDictionary[Workspace, Callable[..., object]] = WeakKeyDictionary()

    def function(self, workspace: Workspace) -> Callable[..., object]:
        with self._lock:
            found = self._made.get(workspace)
            if found is None:
                found = self._made[workspace] = self._make(*self._args, **self._kwargs)
                if not callable(found):
                    del self._made[workspace]
                    raise BlobKindError(
                        f"expected a function from the factory {self._make!r}, found {type(found).__name__}"
                    )
        return found

    def __repr__(self) -> str:
        return f"factory {self._make!r}"


def _callable(value: object) -> object:
    if callable(value):
        return value
    if isinstance(value, tuple) and 1 <= len(value) <= 3 and callable(value[0]):
        args, kwargs = value[1] if len(value) > 1 else (), value[2] if len(value) > 2 else {}
        if isinstance(args, (tuple, list)) and isinstance(kwargs, Mapping):
            return _Factory(value[0], tuple(args), kwargs)
    raise TypeError("it can neither be called, nor is it (factory, args, kwargs)")


def _check_python(op: Op) -> None:
    arguments = ("inputs", "outputs", *(("workspace",) if op.args["pass_workspace"] else ()))
    if not isinstance(op.args["function"], _Factory):
        check_step_function(op.args["function"], "argument 'function'", arguments)


@register_op(
    "Python",
    num_inputs=(0, None),
    num_outputs=(0, None),
    args={
        "function": ArgSpec(
            _callable,
            "a callable, or (factory, args, kwargs)",
            doc="Called each time the op runs; a factory makes it, once for each workspace.",
        ),
        "pass_workspace": boolean(default=False, doc="Give it the workspace as a third argument."),
    },
    inplace=True,
    check=_check_python,
)
def python(ctx: OpContext) -> None:
    """Call a Python function with the list of input blobs and the list of output blobs.

    ``ops.Python(function)(inputs, outputs, pass_workspace=False)`` builds it. The function feeds the
    outputs; what it returns is ignored, and an exception fails the task. A tuple ``(factory, args, kwargs)`` in
    its place makes a function for each instance: ``factory(*args, **kwargs)`` is called once for each workspace.
    """
    function = ctx.args["function"]
    if isinstance(function, _Factory):
        function = function.function(ctx.workspace)
    if ctx.args["pass_workspace"]:
        function(ctx.inputs, ctx.outputs, ctx.workspace)
    else:
        function(ctx.inputs, ctx.outputs)
