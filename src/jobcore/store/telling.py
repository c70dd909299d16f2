"""What the system says while something is saved, as an error of ours."""

from __future__ import annotations

from collections.abc import Callable

from jobcore.errors import SaveError

__all__ = ["Telling"]


class Telling:
    """Raise what the system says in a ``with`` block as a `SaveError`.

    Parameters
    ----------
    error
        Makes the one out of the other.

    Notes
    -----
    No generator: an epoch enters many such blocks.
    """

    __slots__ = ("_error",)

    def __init__(self, error: Callable[[OSError], SaveError]) -> None:
        self._error = error

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, where: object) -> None:
        if isinstance(error, OSError) and not isinstance(error, SaveError):
            raise self._error(error) from error
