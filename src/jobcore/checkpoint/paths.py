"""Where checkpoints live: the one place that turns prefix, node, epoch and generation into paths."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jobcore.errors import BuildError
from jobcore.store import names
from jobcore.tasks import Node

__all__ = ["RunDirectory", "db_name", "get_ckpt_filename"]

_SUFFIX = {"zarr": ".zarr", "zarr.zip": ".zarr.zip"}
# Numbers as this library writes them: `epoch.05.1.json` is somebody's copy.
_NUMBER = "(0|[1-9][0-9]*)"
_RECORD = re.compile(rf"epoch\.{_NUMBER}\.{_NUMBER}\.json")
_CLAIM = re.compile(rf"generation\.{_NUMBER}\.json")
_DATABASE = re.compile(rf"(.+)\.{_NUMBER}\.{_NUMBER}\.zarr(?:\.zip)?")
_TEMPORARY = re.compile(r"\.(?P<final>.+)\.\d+\.[0-9A-Za-z_-]+\.tmp")


def get_ckpt_filename(node_name: str, epoch: int) -> str:
    """Return ``<node>.<epoch>``, for example ``trainer_0.5``."""
    return f"{node_name}.{epoch}"


def db_name(
    epoch: int,
    node_name: str,
    db_prefix: str | os.PathLike[str],
    path_prefix: str | os.PathLike[str] | None = None,
) -> str:
    """Return the stem of a node's database: prefix, separator, ``<node>.<epoch>``.

    Parameters
    ----------
    epoch, node_name
        What the database holds.
    db_prefix
        The run directory.
    path_prefix
        Used instead of `db_prefix` when given and not empty.

    Notes
    -----
    The file itself carries the generation and the container too (``trainer_0.5.1.zarr.zip``); the managers'
    ``get_ckpt_db_path`` gives the path of a committed one.
    """
    return os.path.join(path_prefix or db_prefix, get_ckpt_filename(node_name, epoch))  # noqa: PTH118 - keep it relative


@dataclass(frozen=True, slots=True)
class RunDirectory:
    """A run directory and the container that it uses.

    The path is made absolute when the object is made, so that saving and resuming agree although the
    working directory changes in between.
    """

    path: Path
    db_type: str

    @classmethod
    def at(cls, prefix: str | os.PathLike[str], db_type: str) -> RunDirectory:
        """Resolve `prefix` (``~``, relative, trailing separator) and check `db_type`."""
        if db_type not in _SUFFIX:
            raise ValueError(f"expected db_type to be one of {sorted(_SUFFIX)}, found {db_type!r}")
        if not os.fspath(prefix):
            raise ValueError("expected the path of a run directory as db_prefix, found an empty string")
        # Path refuses the home of a user that is not there.
        return cls(Path(os.path.expanduser(prefix)).absolute(), db_type)  # noqa: PTH111

    def database(self, node: str, epoch: int, generation: int) -> Path:
        """Return the path of one node's database."""
        return self.path / self.database_name(node, epoch, generation)

    def database_name(self, node: str, epoch: int, generation: int) -> str:
        """Return the name of one node's database."""
        return f"{names.escape(node)}.{epoch}.{generation}{_SUFFIX[self.db_type]}"

    def record(self, epoch: int, generation: int) -> Path:
        """Return the path of an epoch's commit record."""
        return self.path / record_name(epoch, generation)

    def text(self, name: str) -> str:
        """Return the path of a file in it as text, which takes a tenth of the time that a `Path` does."""
        return os.path.join(self.path, name)  # noqa: PTH118 - plain text

    def claim(self, generation: int) -> Path:
        """Return the path of a generation's claim."""
        return self.path / claim_name(generation)


def record_name(epoch: int, generation: int) -> str:
    """Return the file name of an epoch's commit record."""
    return f"epoch.{epoch}.{generation}.json"


def claim_name(generation: int) -> str:
    """Return the file name of a generation's claim."""
    return f"generation.{generation}.json"


def parse_record(name: str) -> tuple[int, int] | None:
    """Return (epoch, generation) of a record's file name, or None."""
    match = _RECORD.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None


def parse_claim(name: str) -> int | None:
    """Return the generation of a claim's file name, or None."""
    match = _CLAIM.fullmatch(name)
    return int(match[1]) if match else None


def parse_database(name: str) -> tuple[str, int, int] | None:
    """Return (escaped node, epoch, generation) of the name of a database's file or directory, or None."""
    match = _DATABASE.fullmatch(name)
    return (match[1], int(match[2]), int(match[3])) if match else None


def parse_generation(name: str) -> int | None:
    """Return the generation that a claim, record or database belongs to, by its file name, or None."""
    if (claim := parse_claim(name)) is not None:
        return claim
    numbers = parse_record(name) or parse_database(name)
    return numbers[-1] if numbers is not None else None


def parse_temporary(name: str) -> int | None:
    """Return the generation of an unfinished claim, record or database, by its file name, or None."""
    match = _TEMPORARY.fullmatch(name)
    return parse_generation(match["final"]) if match else None


def node_names(nodes: Sequence[str | Node]) -> tuple[str, ...]:
    """Return the names of nodes.

    Raises
    ------
    BuildError
        One text was given, whose letters would each be a node, or something that is no node.
    """
    if isinstance(nodes, str) or not all(isinstance(node, (str, Node)) for node in nodes):
        raise BuildError(f"expected a list of nodes or of their names, found {nodes!r}")
    return tuple(map(str, nodes))


def check_epoch(what: str, value: object, least: int = 0, others: str = "") -> int:
    """Return `value` as a number of epochs: any integer of at least `least`, NumPy's included.

    Errors call it `what`, and say what `others` may stand in its place.

    Raises
    ------
    BuildError
        It is none.
    """
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type] # that is the check
    except TypeError:
        number = -1
    if number < least:
        raise BuildError(f"expected {what} to be an integer of at least {least}{others}, found {value!r}")
    return number
