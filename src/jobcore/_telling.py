"""The text of an error, whatever its class does when it is asked."""

from __future__ import annotations

__all__ = ["told"]


def told(error: BaseException) -> str:
    """Return the name of an error's type and its text."""
    try:
        text = str(error)
    except Exception as failure:  # noqa: BLE001 - a broken __str__ of the user's must not hide what failed
        text = f"(its text cannot be made: {type(failure).__name__})"
    return f"{type(error).__name__}: {text}"
