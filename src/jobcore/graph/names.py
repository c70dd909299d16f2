"""Names that depend on the program being built and on nothing else.

Generated names become checkpoint keys, so they must come out the same whatever the process built before.
They are numbered by a `NameAllocator`, and each *name root* (a job, a task group, or a net builder that
stands alone) brings its own.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack
from typing import ClassVar

from jobcore.errors import BuildError
from jobcore.graph.context import Managed, _stacks

__all__ = [
    "FragmentRoot",
    "NameAllocator",
    "NamePrefix",
    "NameRoot",
    "NameScope",
    "check_name",
    "current_scope",
    "scoped",
]


def check_name(name: object, what: str) -> str:
    """Return `name` as a plain string.

    Raises
    ------
    BuildError
        `name` is not a string, is empty, or holds half of a surrogate pair, which no file can store.
    """
    if not isinstance(name, str):
        raise BuildError(f"expected a string as {what}, found {type(name).__name__}: {name!r}")
    if not name:
        raise BuildError(f"expected a non-empty string as {what}, found {name!r}")
    try:
        name.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BuildError(f"{what} {name!r} is not valid Unicode text: {error.reason}") from error
    return str(name)


class NameAllocator:
    """Gives each name once inside one root: ``base``, then ``base_1``, ``base_2`` and so on.

    Notes
    -----
    Thread safety: calls are serialised. Which of two racing callers gets the plain name is up to the
    scheduler, so build one root from one thread.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._used: set[tuple[str, str]] = set()
        self._next: dict[tuple[str, str], int] = {}

    def unique(self, base: str, *, kind: str = "net") -> str:
        """Return `base`, or `base` with the first free number, and remember it as used.

        Parameters
        ----------
        base
            The wanted name.
        kind
            What is named; names of different kinds never clash.
        """
        with self._lock:
            key = (kind, base)
            name, number = base, self._next.get(key, 0)
            if number:
                name = f"{base}_{number}"
            while (kind, name) in self._used:
                number += 1
                name = f"{base}_{number}"
            # The next search starts here: a loop that builds 10,000 nets of one name stays linear.
            self._next[key] = number
            self._used.add((kind, name))
            return name


class NamePrefix(Managed):
    """A managed class with a `name` that the nets built inside it are named after; see `NetBuilder`."""

    def __init__(self, name: str) -> None:
        self.name = name


class NameScope(Managed):
    """Prefix for the blob names given as strings inside the block.

    Scopes nest: ``a`` around ``b`` gives ``a/b/``. A `BlobReference` is complete and never prefixed. Jobs
    and task groups start without a scope: one that is open around them does not reach inside, or the
    same program would get other names when it is called from other code.

    Parameters
    ----------
    prefix
        What to put in front; ``/`` is added. Empty adds nothing.
    reset
        Forget the scopes around this one. ``NameScope("", reset=True)`` is the empty scope.
    """

    def __init__(self, prefix: str, reset: bool = False) -> None:
        if not isinstance(prefix, str):
            raise BuildError(f"expected a string as name scope, found {type(prefix).__name__}: {prefix!r}")
        if prefix:
            check_name(prefix, "name scope")
        self.name = prefix
        self.reset = bool(reset)

    @property
    def prefix(self) -> str:
        """The part of the prefix that this scope contributes, with its trailing ``/``."""
        return f"{self.name}/" if self.name and not self.name.endswith("/") else self.name


class NameRoot(Managed):
    """Where a program's names start: holds the allocator that numbers them.

    Entered as it is, it stands for a whole program, a job: it decides whatever else is open inside it, and
    name scopes and builders around it do not reach in.

    Attributes
    ----------
    names
        The allocator. Roots may share one: the groups of a job use the job's.
    """

    # With several roots open the one of the highest rank decides, and of equals the innermost: inside a
    # job all of its groups draw from one allocator, so that their blobs in one workspace never clash.
    name_rank: ClassVar[int] = 2

    def __init__(self, names: NameAllocator | None = None) -> None:
        self.names = NameAllocator() if names is None else names

    def _enter_context(self, inner: ExitStack) -> None:
        if self.name_rank > 0:
            inner.enter_context(_ScopeStart(self))
            inner.enter_context(NamePrefix(""))

    @staticmethod
    def deciding() -> NameRoot | None:
        """Return the root that names are taken from now, or ``None`` outside any."""
        best: NameRoot | None = None
        for entry in _stacks().get(NameRoot, ()):
            root = entry.target
            assert isinstance(root, NameRoot)
            if best is None or root.name_rank >= best.name_rank:
                best = root
        return best


class FragmentRoot(NameRoot):
    """Root of a piece of a program, a builder that stands alone: scopes around it go on."""

    name_rank = 0


class _ScopeStart(NameScope):
    """Marks on the stack of scopes where a root begins."""

    def __init__(self, root: NameRoot) -> None:
        super().__init__("")
        self.root = root


def current_scope() -> str:
    """Return the prefix of the open scopes, ``""`` outside any; it ends in ``/`` otherwise."""
    stack = _stacks().get(NameScope)
    if not stack:
        return ""
    deciding = NameRoot.deciding()
    prefix = ""
    for entry in stack:
        scope = entry.target
        assert isinstance(scope, NameScope)
        if scope.reset or (isinstance(scope, _ScopeStart) and scope.root is deciding):
            prefix = ""
        prefix += scope.prefix
    return prefix


def scoped(name: str) -> str:
    """Return `name` behind the prefix of the open scopes."""
    return current_scope() + name
