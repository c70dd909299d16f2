"""Run time: sessions, what they compile and run, and how work is cancelled."""

from __future__ import annotations

from jobcore.runtime.cancel import CancelToken, check_cancelled, current_token, sleep
from jobcore.runtime.compile import CompiledGroup, CompiledTask, Runnable
from jobcore.runtime.local import LocalSession
from jobcore.runtime.session import Session
from jobcore.runtime.termination import Terminated, terminable

__all__ = [
    "CancelToken",
    "CompiledGroup",
    "CompiledTask",
    "LocalSession",
    "Runnable",
    "Session",
    "Terminated",
    "check_cancelled",
    "current_token",
    "sleep",
    "terminable",
]
