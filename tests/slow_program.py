"""The slow twin of native programs: the executor in Python runs a step tree that was given none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from jobcore.runtime import compile as compiler


@contextmanager
def in_python(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compile groups in this block without native programs."""
    with monkeypatch.context() as patch:
        patch.setattr(compiler, "lower", lambda step, run_step: None)
        yield
