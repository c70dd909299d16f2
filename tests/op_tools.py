"""Runs ops one after another on a workspace, without a session."""

from __future__ import annotations

from typing import Any

import numpy as np

from jobcore.graph import Net, OpContext, schema
from jobcore.workspace import Workspace


def run(net: Net, ws: Workspace) -> None:
    """Run the ops of a net in order."""
    for op in net.ops:
        inputs = [ws.blob(name) for name in op.inputs]
        outputs = [ws.create_blob(name) for name in op.outputs]
        schema(op.type).kernel(OpContext(op, ws, inputs, outputs, op.args))


def result(op_type: str, *values: Any, **args: Any) -> Any:
    """Run one op on fresh blobs with these values, and fetch its output."""
    net, ws = Net("n"), Workspace()
    names = [f"in{i}" for i in range(len(values))]
    for name, value in zip(names, values, strict=True):
        ws.feed(name, value)
    net.add_op(op_type, names, ["out"], **args)
    run(net, ws)
    return ws.fetch("out")


def same(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()
