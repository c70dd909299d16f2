"""Locks that a forked child finds free: the thread of its parent that holds one does not live in it."""

from __future__ import annotations

import os
import threading
from weakref import WeakKeyDictionary

__all__ = ["renew_in_child"]

_owners: WeakKeyDictionary[object, tuple[str, ...]] = WeakKeyDictionary()


def renew_in_child(owner: object, *names: str) -> None:
    """See to it that the locks of an object are new ones in a child that is forked.

    Parameters
    ----------
    owner
        The object, for as long as it lives.
    names
        Attributes of it that are ``threading.RLock``. What they guard must be whole at each step.
    """
    _owners[owner] = names


def _renew() -> None:
    for owner, names in list(_owners.items()):
        for name in names:
            setattr(owner, name, threading.RLock())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)
