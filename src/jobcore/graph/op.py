"""One op call as data, and what its kernel gets to see when it runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jobcore.workspace import Blob, Workspace

__all__ = ["Op", "OpContext"]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class Op:
    """One call of an op type; made by `Net.add_op`, never changed, compared by identity.

    Attributes
    ----------
    type
        The op type, a key of the registry.
    inputs, outputs
        Complete blob names.
    args
        Every argument of the schema by name, checked, defaults filled in. Read-only.
    built_at
        ``file:line`` of the statement that built it, ``""`` when unknown.
    name
        The user's name for this call, ``""`` when not given.
    """

    type: str
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    args: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    built_at: str = ""
    name: str = ""

    def call(self) -> str:
        """Return the op as one short text: type, name, inputs and outputs."""
        named = f" {self.name!r}" if self.name else ""
        return f"op {self.type}{named} ({', '.join(self.inputs)}) -> ({', '.join(self.outputs)})"

    def describe(self) -> str:
        """Return the text of `call` and where the op was built."""
        return self.call() + (f", built at {self.built_at}" if self.built_at else "")


@dataclass(frozen=True, slots=True, eq=False)
class OpContext:
    """What a kernel works with during one call.

    Attributes
    ----------
    op
        The op being run.
    workspace
        The workspace it runs in.
    inputs, outputs
        The blobs, in the op's order. Outputs exist, empty on their first use. An in-place op has the
        same blob in both.
    args
        The op's arguments.
    """

    op: Op
    workspace: Workspace
    inputs: list[Blob]
    outputs: list[Blob]
    args: Mapping[str, Any]
