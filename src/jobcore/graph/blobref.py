"""Reference to a blob at build time: its complete name, and the net that makes it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

from jobcore.errors import BuildError
from jobcore.graph.names import check_name, scoped

if TYPE_CHECKING:
    from jobcore.graph.net import Net

__all__ = ["BlobReference", "BlobsLike", "as_references"]


class BlobReference(str):
    """Complete name of a blob, with the net that it comes from.

    It is a string: equal to and hashed like the plain name, so either finds the other in a dictionary.
    A name scope never changes it. Calling an op type on it adds that op to its net, with itself as the
    first input: ``x.Add(y)``.

    Parameters
    ----------
    name
        The complete blob name.
    net
        The net that makes the blob, if any.

    Raises
    ------
    BuildError
        The name is empty or not valid Unicode.
    """

    __slots__ = ("net",)

    net: Net | None

    def __new__(cls, name: str, net: Net | None = None) -> BlobReference:
        """Check the name and keep the net."""
        self = super().__new__(cls, check_name(name, "blob name"))
        self.net = net
        return self

    def __add__(self, other: str) -> BlobReference:
        return BlobReference(str.__add__(self, other), self.net)

    def __radd__(self, other: str) -> BlobReference:
        return BlobReference(str.__add__(other, self), self.net)

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_") or self.net is None:
            raise AttributeError(
                f"blob reference {str(self)!r} has no attribute {op_type!r}"
                + ("" if op_type.startswith("_") else ", and no net that an op could be added to")
            )
        add = getattr(self.net, op_type)

        def add_with_self(
            inputs: BlobsLike = (), outputs: int | BlobsLike | None = None, **args: object
        ) -> object:
            return add([self, *listed(inputs)], outputs, **args)

        add_with_self.__name__ = op_type
        add_with_self.__doc__ = add.__doc__
        return add_with_self

    def __repr__(self) -> str:
        return f"BlobReference({str(self)!r})"


BlobsLike: TypeAlias = str | Iterable[str]
"""One blob, or several, by name or by reference."""


def listed(blobs: BlobsLike) -> list[str]:
    """Return one blob or several as a list."""
    if isinstance(blobs, str):
        return [blobs]
    if not isinstance(blobs, Iterable):
        raise BuildError(
            "expected a blob name, a BlobReference or a list of them, "
            f"found {type(blobs).__name__}: {blobs!r}",
            hint="make a constant a blob with ops.Const",
        )
    return list(blobs)


def as_references(blobs: BlobsLike, net: Net | None = None) -> list[BlobReference]:
    """Return `blobs` as references: plain names get the prefix of the open scopes, references never.

    Raises
    ------
    BuildError
        One of them is not a name; a number, say, where a blob belongs.
    """
    references = []
    for blob in listed(blobs):
        if isinstance(blob, BlobReference):
            references.append(blob)
        else:
            if not isinstance(blob, str):
                raise BuildError(
                    f"expected a blob name or a BlobReference, found {type(blob).__name__}: {blob!r}",
                    hint="make a constant a blob with ops.Const",
                )
            references.append(BlobReference(scoped(check_name(blob, "blob name")), net))
    return references
