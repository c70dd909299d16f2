"""Ops on columns, one at a time, for the tests of cursors and of columns."""

from __future__ import annotations

import numpy as np

from jobcore import Net, Workspace
from op_tools import run

FIELDS = ["id", "tags:lengths", "tags:values"]
COLUMNS = ["id", "len", "val"]
BATCH = ["i", "l", "v"]


def workspace(**blobs):
    ws = Workspace()
    for name, value in blobs.items():
        ws.feed(name, value)
    return ws


def do(ws, op_type, inputs=(), outputs=None, **args):
    """Run one op."""
    net = Net("n")
    net.add_op(op_type, list(inputs), outputs, **args)
    run(net, ws)


def tagged():
    """Three rows with a list each, and a cursor before them."""
    found = workspace(
        id=np.array([10, 11, 12]), len=np.array([2, 0, 1], np.int32), val=np.array(["a", "b", "c"])
    )
    do(found, "CreateTreeCursor", [], ["cursor"], fields=FIELDS)
    return found
