"""Which epochs count: pure functions over claims and records.

Every start of a run claims a *generation* and says from which epoch of which earlier generation it goes on.
Records are never changed or removed to make room; instead the newest generation defines a chain, much as a
commit names its parent: its own epochs, then those of the generation it came from up to the epoch where it left
it, and so on. An epoch exists if and only if its record lies on that chain. So a process that was taken for dead can
still write records of its old generation, and none of them counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jobcore.errors import FormatError, VersionError

__all__ = ["Claim", "EpochRecord", "EpochRef", "NodeEntry", "chain"]

RECORD_FORMAT = 1


@dataclass(frozen=True, slots=True, order=True)
class EpochRef:
    """An epoch of one generation."""

    epoch: int
    generation: int


@dataclass(frozen=True, slots=True)
class NodeEntry:
    """One node's database inside an epoch: file name (relative to the run directory), size and digest."""

    file: str
    size_bytes: int
    digest: str
    blobs: int


@dataclass(frozen=True, slots=True)
class Claim:
    """The right of one start of a run to write, taken by creating a file that did not exist."""

    generation: int
    run: str
    resumed_from: EpochRef | None
    owner: str = ""
    created: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": RECORD_FORMAT,
            "generation": self.generation,
            "run": self.run,
            "resumed_from": _ref_to_json(self.resumed_from),
            "owner": self.owner,
            "created": self.created,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> Claim:
        """Check and convert the JSON form; `where` names the file in errors."""
        _check_format(data, where)
        return cls(
            generation=_integer(data, "generation", where),
            run=_text(data, "run", where),
            resumed_from=_ref_from_json(data.get("resumed_from"), where),
            owner=_text(data, "owner", where),
            created=_text(data, "created", where),
        )


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The proof that an epoch is complete on every node.

    Attributes
    ----------
    epoch, generation, run
        What was committed, by which start of which run.
    resumed_from
        Where the generation began (a copy of its claim, so that a damaged claim loses nothing).
    nodes
        Node name to database.
    stop
        ``{"met": bool, "conditions": [{"name": str, "met": bool}, ...]}`` as found after the epoch.
    """

    epoch: int
    generation: int
    run: str
    resumed_from: EpochRef | None
    nodes: Mapping[str, NodeEntry]
    stop: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""

    @property
    def ref(self) -> EpochRef:
        """Epoch and generation."""
        return EpochRef(self.epoch, self.generation)

    @property
    def size_bytes(self) -> int:
        """Bytes of all nodes' databases."""
        return sum(entry.size_bytes for entry in self.nodes.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {
            "format": RECORD_FORMAT,
            "epoch": self.epoch,
            "generation": self.generation,
            "run": self.run,
            "resumed_from": _ref_to_json(self.resumed_from),
            "nodes": {
                node: {"file": e.file, "bytes": e.size_bytes, "digest": e.digest, "blobs": e.blobs}
                for node, e in self.nodes.items()
            },
            "stop": dict(self.stop),
            "created": self.created,
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any], where: str) -> EpochRecord:
        """Check and convert the JSON form; `where` names the file in errors."""
        _check_format(data, where)
        nodes = _mapping(data, "nodes", where)
        return cls(
            epoch=_integer(data, "epoch", where),
            generation=_integer(data, "generation", where),
            run=_text(data, "run", where),
            resumed_from=_ref_from_json(data.get("resumed_from"), where),
            nodes={
                node: NodeEntry(
                    file=_text(entry, "file", where),
                    size_bytes=_integer(entry, "bytes", where),
                    digest=_text(entry, "digest", where),
                    blobs=_integer(entry, "blobs", where),
                )
                for node, entry in nodes.items()
            },
            stop=_mapping(data, "stop", where),
            created=_text(data, "created", where),
        )


def chain(claims: Iterable[Claim], records: Iterable[EpochRecord]) -> tuple[EpochRecord, ...]:
    """Return the records that count, in the order of their epochs.

    Parameters
    ----------
    claims, records
        All that could be read, in any order. A record of another run than its generation's claim was copied here,
        or written by a process that outlived its directory, and never counts.
    """
    claimed = {claim.generation: claim for claim in claims}
    by_generation: dict[int, list[EpochRecord]] = {}
    origin: dict[int, EpochRef | None] = {}
    for record in records:
        claim = claimed.get(record.generation)
        if claim is not None and claim.run != record.run:
            continue
        by_generation.setdefault(record.generation, []).append(record)
        origin[record.generation] = record.resumed_from
    origin.update({generation: claim.resumed_from for generation, claim in claimed.items()})

    found: list[EpochRecord] = []
    generation = max(origin, default=None)
    limit: int | None = None
    while generation is not None:
        own = by_generation.get(generation, [])
        found += [r for r in own if limit is None or r.epoch <= limit]
        parent = origin.get(generation)
        # A parent that is not older can only come from a forged or mixed-up directory; following it could loop.
        if parent is None or parent.generation >= generation:
            break
        generation = parent.generation
        limit = parent.epoch if limit is None else min(limit, parent.epoch)
    unique: dict[int, EpochRecord] = {}
    for record in found:
        unique.setdefault(record.epoch, record)
    return tuple(unique[epoch] for epoch in sorted(unique))


def _check_format(data: Mapping[str, Any], where: str) -> None:
    version = data.get("format")
    if version != RECORD_FORMAT:
        raise VersionError(
            f"expected record format {RECORD_FORMAT}, found {version!r} in {where}",
            path=where,
            hint="written by a newer jobcore: upgrade to read it",
        )


def _field(data: Mapping[str, Any], key: str, kind: type, where: str) -> Any:
    value = data.get(key) if isinstance(data, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise FormatError(
            f"expected {kind.__name__} in field {key!r}, found {value!r} in {where}", path=where, place=key
        )
    return value


def _integer(data: Mapping[str, Any], key: str, where: str) -> int:
    value: int = _field(data, key, int, where)
    return value


def _text(data: Mapping[str, Any], key: str, where: str) -> str:
    value: str = _field(data, key, str, where)
    return value


def _mapping(data: Mapping[str, Any], key: str, where: str) -> dict[str, Any]:
    value: dict[str, Any] = _field(data, key, dict, where)
    return value


def _ref_to_json(ref: EpochRef | None) -> dict[str, int] | None:
    return None if ref is None else {"epoch": ref.epoch, "generation": ref.generation}


def _ref_from_json(data: Any, where: str) -> EpochRef | None:
    if data is None:
        return None
    return EpochRef(_integer(data, "epoch", where), _integer(data, "generation", where))
