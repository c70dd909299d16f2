"""The folder that a run directory is: the names in it, and what errors of the system mean there."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from jobcore.checkpoint import paths
from jobcore.errors import CheckpointNotFoundError, SaveError
from jobcore.store.telling import Telling

__all__ = ["listing", "newest", "saving_to"]


def listing(root: Path) -> list[str]:
    """Return the names in a run directory, sorted; a directory that is not there has none.

    Raises
    ------
    CheckpointNotFoundError
        It is a file.
    """
    try:
        return sorted(os.listdir(root))  # noqa: PTH208 - a Path for each of many thousand files would be felt
    except FileNotFoundError:
        return []
    except NotADirectoryError as error:
        if not root.exists():  # something above it is a file: there is nothing here either
            return []
        raise CheckpointNotFoundError(
            f"expected a run directory, found a file: {root}", hint="give the directory that holds the epochs"
        ) from error


def saving_to(root: Path) -> Telling:
    """Raise what the system says in a ``with`` block as a `SaveError` about the run directory."""
    return Telling(partial(_unwritable, root))


def _unwritable(root: Path, error: OSError) -> SaveError:
    raised = SaveError(
        f"expected a writable run directory, found {root}: {error.strerror or error}",
        hint="choose another directory, or mend its rights or its disk",
    )
    raised.errno, raised.strerror, raised.filename = error.errno, error.strerror, error.filename
    return raised


def newest(names: Iterable[str]) -> int:
    """Return the newest generation that a name in a run directory belongs to; 0 when there is none."""
    # A generation whose claim was removed by hand may still own records and databases: never hand it out again.
    return max((g for name in names if (g := paths.parse_generation(name)) is not None), default=0)
