"""What becomes of single blobs when they are saved: how each is cut, encoded, left out, or stored as another name.

A policy is a small value, and a mapping from names or patterns to policies says whose it is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import translate
from typing import Any

import numpy as np

from jobcore.errors import BlobValueError
from jobcore.store.codecs import MAX_BYTES, Blosc, Codec, Zstd, ready
from jobcore.store.layout import ChunkPolicy, Spec
from jobcore.store.names import check_name
from jobcore.store.selection import closest

__all__ = [
    "AliasOf",
    "BlobPolicy",
    "Decisions",
    "Layout",
    "Policies",
    "Policy",
    "Skip",
    "check_layout",
    "check_policies",
    "for_names",
    "skipped_names",
]

_MiB = 1 << 20
#: How what is encoded is cut where nobody has said it: small enough that several threads have work and little memory
#: is taken.
ENCODED_CHUNKS = ChunkPolicy(4 * _MiB, 8 * _MiB)
_PLAIN_CHUNKS = ChunkPolicy()
_SPECIAL = re.compile(r"[*?[]")
_LISTED = 20


@dataclass(frozen=True, slots=True)
class BlobPolicy:
    """How a blob is cut and encoded.

    Attributes
    ----------
    chunks
        How it is cut along axis 0. ``None``: as the `chunks` of the save say; where they say nothing, as
        :class:`ChunkPolicy` does by default, or into chunks of 2 to 8 MiB when there is a codec.
    codec
        What encodes each chunk, :class:`Zstd` or :class:`Blosc`; ``None`` stores the bytes as they are.
    """

    chunks: ChunkPolicy | None = None
    codec: Codec | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.chunks, ChunkPolicy | None):
            raise TypeError(f"expected chunks as a ChunkPolicy or None, found {_type(self.chunks)}")
        if not isinstance(self.codec, Zstd | Blosc | None):
            raise TypeError(f"expected codec as Zstd, Blosc or None, found {_type(self.codec)}")


@dataclass(frozen=True, slots=True)
class Skip:
    """A blob is left out; the database records its name and the reason.

    Attributes
    ----------
    reason
        Why, for people.
    """

    reason: str = "skipped by policy"

    def __post_init__(self) -> None:
        if not isinstance(self.reason, str):
            raise TypeError(f"expected reason as text, found {_type(self.reason)}")


@dataclass(frozen=True, slots=True)
class AliasOf:
    """A blob is not stored, but its name is: it is what the blob of another name is.

    Both are loaded as one array, so a write through one is seen through the other.

    Attributes
    ----------
    name
        Name of a tensor that is stored, of equal dtype and shape.
    """

    name: str

    def __post_init__(self) -> None:
        reason = check_name(self.name)
        if reason is not None:
            raise ValueError(f"expected the name of a blob, found {self.name!r:.120}: {reason}")


#: What can be said of a blob.
Policy = BlobPolicy | Skip | AliasOf
#: Which blob has which policy: a mapping from exact names and glob patterns, or a callable that is given the name and
#: the array to be stored, and gives a policy or ``None``.
Policies = Mapping[str, Policy] | Callable[[str, np.ndarray[Any, Any]], Policy | None]


@dataclass(frozen=True, slots=True)
class Layout:
    """How a blob is cut and encoded, all defaults filled in."""

    chunks: ChunkPolicy
    codec: Codec | None = None


def check_policies(policies: object) -> None:
    """Check policies as far as that can be done without blobs.

    Parameters
    ----------
    policies
        What a caller gave.

    Raises
    ------
    TypeError
        It is neither a mapping nor a callable, or a value of the mapping is no policy.
    ValueError
        A codec cannot be used here.
    """
    if policies is None or (callable(policies) and not isinstance(policies, Mapping)):
        return
    if not isinstance(policies, Mapping):
        raise TypeError(
            f"expected policies as a mapping from names to policies, or a callable, found {_type(policies)}"
        )
    for name, policy in policies.items():
        if not isinstance(name, str) or not name:
            raise TypeError(f"expected names of blobs as the keys of policies, found {name!r:.80}")
        _check(policy, f"policies[{name!r:.120}]")


def _check(policy: object, where: str) -> None:
    if not isinstance(policy, BlobPolicy | Skip | AliasOf):
        hint = ": wrap it in BlobPolicy" if isinstance(policy, Zstd | Blosc | ChunkPolicy) else ""
        raise TypeError(f"expected {where} as a BlobPolicy, Skip or AliasOf, found {_type(policy)}{hint}")
    if isinstance(policy, BlobPolicy) and policy.codec is not None:
        ready(policy.codec)


class Decisions:
    """Decides for each blob of one save.

    Parameters
    ----------
    policies
        As callers give them.
    chunks
        How blobs are cut whose policy says nothing of it, or ``None`` for the defaults.
    names
        All names that the save was given.

    Attributes
    ----------
    plain
        Whether nothing was said of any blob, so that nobody needs to ask.

    Raises
    ------
    TypeError, ValueError
        As for :func:`check_policies`.
    BlobValueError
        A name that is no pattern is not among those given.
    """

    def __init__(
        self, policies: Policies | None, chunks: ChunkPolicy | None, names: Mapping[str, object]
    ) -> None:
        if not isinstance(chunks, ChunkPolicy | None):
            raise TypeError(f"expected chunks as a ChunkPolicy or None, found {_type(chunks)}")
        check_policies(policies)
        self._plain = Layout(chunks or _PLAIN_CHUNKS)
        self._encoded = chunks or ENCODED_CHUNKS
        self._exact: Mapping[str, Policy] = {}
        self._patterns: list[tuple[str, re.Pattern[str], Policy]] = []
        self._call: Callable[[str, np.ndarray[Any, Any]], Policy | None] | None = None
        self._layouts: dict[BlobPolicy, Layout] = {}
        self.plain = not policies
        if isinstance(policies, Mapping):
            # A blob may have any name: where there is one of just this name, its key is no pattern.
            self._exact = {key: policy for key, policy in policies.items() if key in names}
            others = [key for key in policies if key not in names]
            _refuse_unknown([key for key in others if not _is_pattern(key)], names)
            self._patterns = [(key, re.compile(translate(key)), policies[key]) for key in others]
        elif policies is not None:
            self._call = policies

    @property
    def plain_layout(self) -> Layout:
        """How a blob is cut of which nothing was said."""
        return self._plain

    def skipped(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Give name and reason of the blobs that are left out for their names alone, whatever they hold.

        Raises
        ------
        BlobValueError
            Two patterns say different things of one blob.
        """
        if self.plain or self._call is not None:
            return []
        found = ((name, self._by_name(name)) for name in names)
        return [(name, policy.reason) for name, policy in found if isinstance(policy, Skip)]

    def decide(self, name: str, kind: str, array: np.ndarray[Any, Any]) -> Layout | Skip | AliasOf:
        """Decide for one blob.

        Parameters
        ----------
        name, kind
            Its name and kind.
        array
            What would be stored.

        Returns
        -------
        Layout, Skip or AliasOf
            What becomes of it.

        Raises
        ------
        BlobValueError
            Two patterns say different things of it.
        TypeError, ValueError
            The callable gave what is no policy, or a codec that cannot be used here.
        """
        policy = self._by_name(name) if self._call is None else self._call(name, array)
        if policy is None:
            return self._plain
        if self._call is not None:
            _check(policy, f"what policies({name!r:.120}, ...) gives")
        if not isinstance(policy, BlobPolicy):
            return policy
        if kind != "tensor" and name not in self._exact:
            # Whoever says "*" means the weights: a counter, a text or a state that is encoded only grows.
            return self._plain
        layout = self._layouts.get(policy)
        if layout is None:
            default = self._plain.chunks if policy.codec is None else self._encoded
            layout = self._layouts[policy] = Layout(policy.chunks or default, policy.codec)
        return layout

    def _by_name(self, name: str) -> Policy | None:
        policy = self._exact.get(name)
        if policy is not None or not self._patterns:
            return policy
        found = [(key, policy) for key, pattern, policy in self._patterns if pattern.match(name)]
        for key, other in found[1:]:
            if other != found[0][1]:
                raise BlobValueError(
                    f"blob {name!r:.120}: the patterns {found[0][0]!r:.120} and {key!r:.120} both match it, and say "
                    f"different things: {found[0][1]} and {other}",
                    hint="give it a policy under its own name, which beats every pattern, or narrow one of the two",
                )
        return found[0][1] if found else None


def for_names(policies: Policies | None, names: Mapping[str, object]) -> Policies | None:
    """Leave exact names out that are not among those given: for a save whose blobs others than the caller choose."""
    if not isinstance(policies, Mapping):
        return policies
    return {key: policy for key, policy in policies.items() if key in names or _is_pattern(key)}


def skipped_names(policies: Policies | None, names: Mapping[str, object]) -> set[str]:
    """Give the names that policies leave out, as far as that depends on the names alone."""
    return {name for name, _ in Decisions(policies, None, names).skipped(names)}


def _is_pattern(key: str) -> bool:
    return _SPECIAL.search(key) is not None


def check_layout(name: str, spec: Spec) -> None:
    """Refuse chunks that are too large to be encoded.

    Raises
    ------
    BlobValueError
        The chunks are too large.
    """
    if spec.codecs and spec.chunk_bytes > MAX_BYTES:
        raise BlobValueError(
            f"blob {name!r:.120}: expected at most {MAX_BYTES:,} bytes in a chunk that is encoded, found "
            f"{spec.chunk_bytes:,}",
            hint="give it smaller chunks, or no codec when a single row is that large",
        )


def _refuse_unknown(unknown: list[str], names: Iterable[str]) -> None:
    if unknown:
        more = f", and {len(unknown) - _LISTED} more" if len(unknown) > _LISTED else ""
        raise BlobValueError(
            "policies: expected names of blobs that are saved, found "
            + ", ".join(f"{name!r:.120}{closest(name, names)}" for name in unknown[:_LISTED])
            + more,
            hint="correct the name, or use a pattern with *, ? or [...], which may match nothing",
        )


def _type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"
