"""The workspace in plain Python: what `Workspace` and `Blob` must do, without threads, reuse of memory and C.

Everything is copied, always. A view is a copy that is marked read-only, except that of a bound blob.
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np

from jobcore import Counter, Timer
from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError


class SlowBlob:
    def __init__(self, name: str) -> None:
        if not name:
            raise BlobValueError("empty name")
        self.name = name
        self.transient = False
        self.reset()

    def reset(self) -> None:
        self.kind, self.value, self.bound = "empty", None, False

    def feed(self, value: Any, transient: bool | None = None) -> None:
        if value is self:
            value = self.value if self.kind in ("tensor", "object") else value
            kind, kept = self.kind, self.value
        else:
            allowed = self.transient if transient is None else transient
            try:
                kind, kept = classified(value)
            except (BlobKindError, BlobValueError):
                if not allowed:
                    raise
                kind, kept = "object", value
        if self.bound and kind != "tensor":
            raise BlobKindError("bound")
        if kind == "object" and not (self.transient if transient is None else transient):
            raise BlobKindError("not transient")
        if self.bound:
            if kept.shape != self.value.shape or kept.dtype != self.value.dtype:
                raise BlobValueError("does not fit")
            self.value[...] = kept
        else:
            self.kind, self.value = kind, kept
        if transient is not None:
            self.transient = transient

    def fetch(self) -> Any:
        if self.kind == "empty":
            raise BlobValueError("empty")
        if self.kind == "tensor":
            return laid_out(self.value)
        return copy.deepcopy(self.value) if self.kind == "state" else self.value

    def view(self) -> Any:
        if self.kind == "empty":
            raise BlobValueError("empty")
        if self.kind != "tensor":
            raise BlobKindError("no tensor")
        shown = self.value.view() if self.bound else laid_out(self.value)
        shown.flags.writeable = False
        return shown

    def bind(self, array: Any) -> None:
        if not isinstance(array, np.ndarray) or not array.flags.writeable:
            raise BlobValueError("not writable")
        self.kind, self.value, self.bound = "tensor", array, True

    def set_transient(self, flag: bool) -> None:
        if self.kind == "object" and not flag:
            raise BlobKindError("object")
        self.transient = flag


class SlowWorkspace:
    def __init__(self, parent: SlowWorkspace | None = None) -> None:
        self.parent = parent
        self.own: dict[str, SlowBlob] = {}

    def find(self, name: str) -> SlowBlob | None:
        if name in self.own:
            return self.own[name]
        return None if self.parent is None else self.parent.find(name)

    def blob(self, name: str) -> SlowBlob:
        found = self.find(name)
        if found is None:
            raise BlobNotFoundError(name)
        return found

    def create_blob(self, name: str) -> SlowBlob:
        found = self.find(name)
        if found is None:
            found = self.own[name] = SlowBlob(name)
        return found

    def feed(self, name: str, value: Any, transient: bool | None = None) -> None:
        blob = self.find(name) or SlowBlob(name)
        blob.feed(value, transient)
        if self.find(name) is None:
            self.own[name] = blob

    def bind(self, name: str, array: Any) -> None:
        blob = self.find(name) or SlowBlob(name)
        blob.bind(array)
        if self.find(name) is None:
            self.own[name] = blob

    def fetch(self, name: str) -> Any:
        return self.blob(name).fetch()

    def view(self, name: str) -> Any:
        return self.blob(name).view()

    def counter(self, name: str, init_count: int = 0) -> Counter:
        fresh = Counter(init_count)
        blob = self.create_blob(name)
        if blob.kind == "empty":
            blob.feed(fresh)
        if blob.kind != "counter":
            raise BlobKindError("no counter")
        return blob.fetch()

    def remove_blob(self, name: str) -> None:
        if self.own.pop(name, None) is None:
            raise BlobNotFoundError(name)

    def reset(self) -> None:
        self.own = {}

    def blob_names(self, include_shared: bool = True) -> list[str]:
        inherited = self.parent.blob_names() if self.parent is not None and include_shared else []
        return inherited + [name for name in self.own if name not in inherited]


def classified(value: Any) -> tuple[str, Any]:
    if isinstance(value, SlowBlob):
        return value.kind, copy.deepcopy(value.value) if value.kind in ("tensor", "state") else value.value
    if isinstance(value, np.ndarray):
        if value.dtype.hasobject and value.dtype.kind != "T":
            raise BlobKindError("objects")
        return "tensor", laid_out(value)
    if isinstance(value, np.generic | int | float | complex):
        number = np.array(value)
        if number.dtype.hasobject:
            raise BlobValueError("too big")
        return "tensor", number
    for kind, types in KINDS.items():
        if isinstance(value, types):
            return kind, copy.deepcopy(value) if kind == "state" else value
    raise BlobKindError("unsupported")


KINDS: dict[str, tuple[type, ...]] = {
    "counter": (Counter,),
    "timer": (Timer,),
    "string": (str,),
    "bytes": (bytes,),
    "state": (type(None), list, tuple, dict),
    "rng": (np.random.Generator,),
}


def laid_out(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    fortran_only = array.flags.f_contiguous and not array.flags.c_contiguous
    return np.array(array, order="F" if fortran_only else "C", subok=False)
