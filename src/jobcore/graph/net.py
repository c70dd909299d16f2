"""A net: an ordered list of ops with a name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobcore.errors import BuildError
from jobcore.graph import registry
from jobcore.graph.args import constant
from jobcore.graph.blobref import BlobReference, BlobsLike, as_references
from jobcore.graph.names import NamePrefix, NameRoot, check_name, scoped
from jobcore.graph.op import Op
from jobcore.graph.where import built_at

__all__ = ["Net", "Op"]


class Net:
    """Ops that run in order, on one thread, on the blobs of one workspace.

    Ops are added by type: ``net.Add([x, y], "sum")``, ``net.CountUp(counter)``. A name given as a string
    gets the prefix of the open name scopes; a reference is used as it is.

    Parameters
    ----------
    name
        Inside a `NetBuilder` the builder's name goes in front, with a ``/``. Inside a name root (a job, a
        task group, or a builder that stands alone) a name that is taken gets ``_1``, ``_2`` and so on.
        Outside, the net has exactly this name.

    Attributes
    ----------
    name
        The complete name.
    built_at
        ``file:line`` of the statement that made it.

    Raises
    ------
    BuildError
        The name is empty or not valid Unicode.

    Notes
    -----
    Thread safety: none; a net is built by one thread. It is frozen once a step that holds it is part of a
    plan, a task or another step: adding to it is a BuildError from then on.
    """

    def __init__(self, name: str) -> None:
        check_name(name, "net name")
        prefix = NamePrefix.current(required=False)
        self._setup(f"{prefix.name}/{name}" if prefix is not None and prefix.name else name)

    @classmethod
    def named(cls, name: str) -> Net:
        """Make a net that the builder's prefix is not added to; the name root still numbers it."""
        net = cls.__new__(cls)
        net._setup(check_name(name, "net name"))
        return net

    def _setup(self, base: str) -> None:
        root = NameRoot.deciding()
        self.name = base if root is None else root.names.unique(base, kind="net")
        self.built_at = built_at()
        self._ops: list[Op] = []
        self._defined: dict[str, None] = {}
        self._used: dict[str, None] = {}
        self._external_inputs: list[BlobReference] = []
        self._external_outputs: list[BlobReference] = []
        self._attributes: dict[str, list[object]] = {}
        self._next_number: dict[tuple[str, bool], int] = {}
        self._frozen_by: str | None = None

    @property
    def ops(self) -> tuple[Op, ...]:
        """The ops, in the order in which they run."""
        return tuple(self._ops)

    @property
    def external_inputs(self) -> tuple[BlobReference, ...]:
        """Blobs that are read here and made elsewhere: declared ones and ones found in use."""
        return tuple(self._external_inputs)

    @property
    def external_outputs(self) -> tuple[BlobReference, ...]:
        """Blobs declared with `add_external_output`."""
        return tuple(self._external_outputs)

    @property
    def frozen(self) -> bool:
        """Whether the net can no longer change."""
        return self._frozen_by is not None

    def freeze(self, by: str = "freeze()") -> None:
        """Refuse every later change; `by` says who froze it, for the error message."""
        if self._frozen_by is None:
            self._frozen_by = by

    def _assert_open(self, what: str) -> None:
        if self._frozen_by is not None:
            raise BuildError(
                f"net {self.name!r} was frozen by {self._frozen_by}; {what} came too late",
                hint="finish the net before it is added to a task, a plan or another step",
            )

    def add_op(
        self,
        op_type: str,
        /,
        inputs: BlobsLike = (),
        outputs: int | BlobsLike | None = None,
        *,
        name: str = "",
        **args: object,
    ) -> BlobReference | tuple[BlobReference, ...] | None:
        """Add one op and return references to its outputs.

        Parameters
        ----------
        op_type
            A type of the registry, see `jobcore.graph.all_ops`.
        inputs
            One blob or several. One that no earlier op of this net makes is an external input.
        outputs
            Names or references, or how many to name automatically; left out, the op's usual count, which
            is one for most. Automatic names are the net's name, ``/``, the op type, ``:`` and the index
            when a count was given; the second op of the type gets ``_2`` behind the type.
        name
            A name for this call, shown in errors.
        **args
            The op's arguments.

        Returns
        -------
        BlobReference or tuple of BlobReference or None
            For one output, for several, and for none.

        Raises
        ------
        BuildError
            The op does not exist, the call does not fit its schema, or the net is frozen.
        """
        self._assert_open(f"op {op_type}")
        known = registry.schema(op_type)
        consumed = as_references(inputs, self)
        if isinstance(outputs, bool):
            raise BuildError(f"op {op_type}: expected names or a count as outputs, found {outputs!r}")
        if outputs is None:
            produced = self._automatic(op_type, known.default_outputs, numbered=known.default_outputs > 1)
        elif isinstance(outputs, int):
            if outputs < 0:
                raise BuildError(f"op {op_type}: expected a count of outputs of at least 0, found {outputs}")
            produced = self._automatic(op_type, outputs, numbered=True)
        else:
            # A reference that came from another net is this net's output from here on.
            produced = [BlobReference(ref, self) for ref in as_references(outputs)]
        op = registry.make_op(op_type, consumed, produced, args, built_at(), name)
        for ref in consumed:
            self._used.setdefault(str(ref))
            if ref not in self._defined:
                self._defined[str(ref)] = None
                self._external_inputs.append(ref)
        for ref in produced:
            self._used.setdefault(str(ref))
            self._defined.setdefault(str(ref))
        self._ops.append(op)
        if not produced:
            return None
        return produced[0] if len(produced) == 1 else tuple(produced)

    def _automatic(self, op_type: str, count: int, numbered: bool) -> list[BlobReference]:
        base = scoped(f"{self.name}/{op_type}")
        key = (base, numbered)
        number = self._next_number.get(key, 1)
        while True:
            stem = base if number == 1 else f"{base}_{number}"
            names = [f"{stem}:{i}" for i in range(count)] if numbered else [stem] * count
            if not any(name in self._defined for name in names):
                break
            number += 1
        # The next search starts here: a net of 10,000 ops of one type stays linear.
        self._next_number[key] = number
        return [BlobReference(name, self) for name in names]

    def next_blob(self, prefix: str, output_id: int | None = None) -> BlobReference:
        """Return a reference of a new automatic name and keep the name reserved.

        Parameters
        ----------
        prefix
            What to put behind the net's name; an op type, usually.
        output_id
            Adds ``:`` and this number.
        """
        self._assert_open(f"blob {prefix!r}")
        base = scoped(f"{self.name}/{check_name(prefix, 'blob name')}")
        suffix = "" if output_id is None else f":{output_id}"
        name, number = f"{base}{suffix}", 1
        while name in self._defined:
            number += 1
            name = f"{base}_{number}{suffix}"
        self._defined[name] = None
        return BlobReference(name, self)

    def Const(self, value: object, blob_out: str | None = None, dtype: object = None) -> BlobReference:
        """Add an op that makes `value` a blob, and return its reference.

        Parameters
        ----------
        value
            A number, a boolean, an array or nested lists of those: a tensor of NumPy's dtype for it (a
            float stays float64). A string or bytes: a blob of that kind. It is copied now.
        blob_out
            Name of the blob; automatic when left out.
        dtype
            The dtype to convert to, as for ``numpy.asarray``; the blob is a tensor then.

        Raises
        ------
        BuildError
            The value cannot be a blob, or not of that dtype.
        """
        outputs = None if blob_out is None else [blob_out]
        if dtype is not None:
            try:
                value = constant(value, dtype)
            except (TypeError, ValueError, OverflowError) as error:
                raise BuildError(
                    f"op Const: a value of type {type(value).__name__} as {dtype}: {error}"
                ) from error
        reference = self.add_op("Const", (), outputs, value=value)
        assert isinstance(reference, BlobReference)
        return reference

    def Python(self, function: Callable[..., object] | tuple[Any, ...]) -> Callable[..., Any]:
        """Return a function that adds an op calling `function`.

        The result is called with ``(inputs=(), outputs=None, pass_workspace=False)`` like any op. At run
        time the kernel calls ``function(inputs, outputs)`` with two lists of blobs, and the workspace as
        a third argument when `pass_workspace` is true. A tuple ``(factory, args, kwargs)`` makes the function at run
        time, once for each workspace, and so for each instance of a task.
        """

        def add(
            inputs: BlobsLike = (),
            outputs: int | BlobsLike | None = None,
            pass_workspace: bool = False,
            name: str = "",
        ) -> BlobReference | tuple[BlobReference, ...] | None:
            return self.add_op(
                "Python", inputs, outputs, name=name, function=function, pass_workspace=pass_workspace
            )

        return add

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_") or not registry.is_op(op_type):
            raise AttributeError(f"a Net has no attribute {op_type!r}: {registry.unknown_op(op_type)}")
        return bound_op(op_type, self.add_op)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *registry.all_ops()})

    def add_external_input(self, *names: str) -> BlobReference | tuple[BlobReference, ...]:
        """Declare blobs that come from outside; returns one reference or a tuple.

        Raises
        ------
        BuildError
            No name was given, or one of them is defined in this net already.
        """
        self._assert_open("an external input")
        references = as_references(names, self)
        if not references:
            raise BuildError(f"net {self.name!r}: expected at least one external input, found none")
        seen: set[str] = set()
        for ref in references:
            if ref in self._defined or ref in seen:
                raise BuildError(f"net {self.name!r}: blob {str(ref)!r} is defined already")
            seen.add(ref)
        for ref in references:
            self._defined[str(ref)] = None
            self._used.setdefault(str(ref))
            self._external_inputs.append(ref)
        return references[0] if len(references) == 1 else tuple(references)

    def add_external_output(self, *names: str) -> None:
        """Declare blobs made here for others to read.

        Raises
        ------
        BuildError
            One of them is not defined in this net.
        """
        self._assert_open("an external output")
        references = as_references(names, self)
        for ref in references:
            if ref not in self._defined:
                raise BuildError(f"net {self.name!r}: blob {str(ref)!r} is not defined here")
        self._external_outputs.extend(ref for ref in references if ref not in self._external_outputs)

    def blob_is_defined(self, name: str) -> bool:
        """Return whether an op of this net makes the blob, or it is an external input; full name."""
        return name in self._defined

    def used_blob_names(self) -> list[str]:
        """Return the full names of all blobs that the ops touch, in order of first use."""
        return list(self._used)

    def add_attribute(self, key: str, value: object) -> None:
        """Attach an object under a key; an object that is there already is not attached twice."""
        self._assert_open(f"attribute {key!r}")
        attached = self._attributes.setdefault(key, [])
        if not any(other is value for other in attached):
            attached.append(value)

    def get_attributes(self, key: str) -> list[object]:
        """Return the objects attached under `key`, in order; empty when there are none."""
        return list(self._attributes.get(key, ()))

    def __repr__(self) -> str:
        return f"Net(name={self.name!r}, ops={len(self._ops)})"


def bound_op(op_type: str, add_op: Callable[..., Any]) -> Callable[..., Any]:
    """Return `add_op` with its type fixed, carrying the op's name and documentation."""

    def add(inputs: BlobsLike = (), outputs: int | BlobsLike | None = None, **args: object) -> object:
        return add_op(op_type, inputs, outputs, **args)

    add.__name__ = add.__qualname__ = op_type
    add.__doc__ = registry.schema(op_type).doc
    return add
