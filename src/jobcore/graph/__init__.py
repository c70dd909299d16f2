"""Build time: nets, steps and plans, and the op types they are made of. Nothing here runs anything."""

from __future__ import annotations

# Importing these registers their op types.
from jobcore.graph import (
    ops_blobs,
    ops_columns,
    ops_control,
    ops_counters,
    ops_data,
    ops_fills,
    ops_math,
    ops_queues,
    ops_sampling,
    ops_stats,
    ops_store,
    ops_sync,
    ops_timers,
)
from jobcore.graph.blobref import BlobReference
from jobcore.graph.blocks import Block
from jobcore.graph.builder import NetBuilder
from jobcore.graph.context import DefaultManaged, Managed
from jobcore.graph.control import Control, Guard, Loop, When, While
from jobcore.graph.names import NameAllocator, NameRoot, NameScope, current_scope, scoped
from jobcore.graph.net import Net
from jobcore.graph.op import Op, OpContext
from jobcore.graph.operations import Operations, ops
from jobcore.graph.plan import Plan
from jobcore.graph.registry import REQUIRED, ArgSpec, Kernel, OpSchema, all_ops, register_op, schema
from jobcore.graph.setups import SetupNets
from jobcore.graph.step import ExecutionStep, Steppable, execution_step, to_execution_step

__all__ = [
    "REQUIRED",
    "ArgSpec",
    "BlobReference",
    "Block",
    "Control",
    "DefaultManaged",
    "ExecutionStep",
    "Guard",
    "Kernel",
    "Loop",
    "Managed",
    "NameAllocator",
    "NameRoot",
    "NameScope",
    "Net",
    "NetBuilder",
    "Op",
    "OpContext",
    "OpSchema",
    "Operations",
    "Plan",
    "SetupNets",
    "Steppable",
    "When",
    "While",
    "all_ops",
    "current_scope",
    "execution_step",
    "ops",
    "register_op",
    "schema",
    "scoped",
    "to_execution_step",
]

del ops_blobs, ops_columns, ops_control, ops_counters, ops_data, ops_fills, ops_math, ops_queues
del ops_sampling, ops_stats, ops_store, ops_sync, ops_timers
