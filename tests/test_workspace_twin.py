"""The workspace against its plain twin, over random sequences of calls on a chain of three."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobcore import Counter, Timer, Workspace
from jobcore.errors import BlobKindError, BlobValueError, JobcoreError
from slow_workspace import SlowWorkspace

NAMES = st.sampled_from(["a", "b", "é/\0 ~", "c" * 300])
# Few shapes, dtypes and layouts, so that a feed often meets memory that it may use again.
ARRAYS: list[Callable[[int], Any]] = [
    lambda n: np.full(3, n, "f8"),
    lambda n: np.full((2, 3), n, "f8", order="F"),
    lambda n: np.full((2, 6), n, "f8")[:, ::2],
    lambda n: np.full((2, 3), n, "f8"),
    lambda n: np.full((), n, "i8"),
    lambda n: np.full((), n, ">i8"),
    lambda n: np.zeros((0, 4), "f4"),
    lambda n: np.array([(n, b"x")], [("n", "i2"), ("s", "S3")]),
    lambda n: np.full(70_000, n, "f8"),
    lambda n: np.full((40_000, 2), n, "f8")[:, 0],
]


def arrays() -> st.SearchStrategy[Any]:
    return st.builds(lambda make, n: make(n), st.sampled_from(ARRAYS), st.integers(0, 99))


def values() -> st.SearchStrategy[Any]:
    small = st.integers(0, 99)
    return st.one_of(
        arrays(),
        small,
        small.map(float),
        small.map(np.float32),
        st.booleans(),
        st.sampled_from([2**63, 2**64, -(2**63), 1j, None, "text", "é", b"bytes", object(), Timer()]),
        st.lists(small, max_size=2).map(lambda items: {"items": items}),
        small.map(Counter),
        small.map(np.random.default_rng),
        st.just(np.array([None])),
    )


def same(fast: Any, slow: Any) -> bool:
    if isinstance(slow, np.ndarray):
        return (
            type(fast) is np.ndarray
            and fast.dtype == slow.dtype
            and fast.shape == slow.shape
            and fast.tobytes() == slow.tobytes()
        )
    if isinstance(slow, str | bytes | dict | None):
        return type(fast) is type(slow) and bool(fast == slow)
    return fast is slow


class Twins(RuleBasedStateMachine):
    """A chain of three workspaces beside a chain of three slow ones, which must never be told apart."""

    def __init__(self) -> None:
        super().__init__()
        root, slow_root = Workspace(name="root"), SlowWorkspace()
        self.fast = [root, Workspace(root, "mid")]
        self.fast.append(Workspace(self.fast[1], "leaf"))
        self.slow = [slow_root, SlowWorkspace(slow_root)]
        self.slow.append(SlowWorkspace(self.slow[1]))
        self.views: list[tuple[Any, bytes]] = []
        self.bound: list[tuple[Any, Any]] = []

    def both(self, which: int, method: str, *args: Any) -> Any:
        """Call both twins; the results or the types of the errors agree."""
        outcomes: list[Any] = []
        for side in (self.fast, self.slow):
            try:
                outcomes.append(getattr(side[which], method)(*args))
            except JobcoreError as error:
                outcomes.append(type(error))
        fast, slow = outcomes
        assert same(fast, slow) or type(slow).__name__.startswith("Slow"), (method, args, fast, slow)
        return fast

    @rule(
        which=st.integers(0, 2),
        name=NAMES,
        value=values(),
        transient=st.sampled_from([None, None, True, False]),
    )
    def feed(self, which: int, name: str, value: Any, transient: bool | None) -> None:
        self.both(which, "feed", name, value, transient)

    @rule(which=st.integers(0, 2), name=NAMES)
    def fetch(self, which: int, name: str) -> None:
        fast = self.both(which, "fetch", name)
        if isinstance(fast, np.ndarray):
            assert fast.flags.owndata
            assert fast.flags.writeable
            slow = self.slow[which].fetch(name)
            assert fast.flags.f_contiguous == slow.flags.f_contiguous
            fast.fill(0)  # changes nobody's value but the caller's

    @rule(which=st.integers(0, 2), name=NAMES)
    def view(self, which: int, name: str) -> None:
        fast = self.both(which, "view", name)
        if isinstance(fast, np.ndarray):
            assert not fast.flags.writeable
            if not self.fast[which].blob(name).bound:
                self.views.append((fast, fast.tobytes()))

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def drop_a_view(self, data: Any) -> None:
        self.views.pop(data.draw(st.integers(0, len(self.views) - 1)))

    @rule(which=st.integers(0, 2), name=NAMES, array=arrays())
    def bind(self, which: int, name: str, array: Any) -> None:
        twin = np.zeros_like(array)[...]
        twin[...] = array
        self.bound.append((array, twin))
        self.fast[which].bind(name, array)
        self.slow[which].bind(name, twin)
        assert self.fast[which].blob(name).value is array

    @rule(which=st.integers(0, 2), name=NAMES)
    def bind_what_cannot_be_bound(self, which: int, name: str) -> None:
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        self.both(which, "bind", name, fixed)

    @rule(which=st.integers(0, 2), name=NAMES, source=NAMES, transient=st.sampled_from([None, True, False]))
    def feed_from_another(self, which: int, name: str, source: str, transient: bool | None) -> None:
        if not self.fast[which].has_blob(source):
            return
        outcomes = []
        for side in (self.fast[which], self.slow[which]):
            try:
                side.feed(name, side.blob(source), transient)
                outcomes.append(None)
            except JobcoreError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(which=st.integers(0, 2), name=NAMES, backwards=st.booleans())
    def feed_its_own_value(self, which: int, name: str, backwards: bool) -> None:
        if self.fast[which].has_blob(name) and self.fast[which].blob(name).kind == "tensor":
            own = self.fast[which].blob(name).value
            own = own[::-1] if backwards and own.ndim else own
            expected = own.copy()
            self.fast[which].feed(name, own)
            self.slow[which].feed(name, expected)

    @rule(which=st.integers(0, 2), name=NAMES, kept=st.booleans())
    def load_in_place(self, which: int, name: str, kept: bool) -> None:
        if not self.fast[which].has_blob(name):
            return
        blob = self.fast[which].blob(name)
        if (
            blob.kind == "tensor"
            and blob.dtype is not None
            and blob.shape is not None
            and not blob.dtype.names
        ):
            array = blob.take_buffer(blob.shape, blob.dtype)
            array.fill(7)
            blob.adopt(array, kept)
            self.slow[which].feed(name, array, kept)

    @rule(which=st.integers(0, 2), name=NAMES, flag=st.booleans())
    def set_transient(self, which: int, name: str, flag: bool) -> None:
        if self.fast[which].has_blob(name):
            outcomes = []
            for change in (
                lambda: setattr(self.fast[which].blob(name), "transient", flag),
                lambda: self.slow[which].blob(name).set_transient(flag),
            ):
                try:
                    outcomes.append(change())
                except BlobKindError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1]

    @rule(which=st.integers(0, 2), name=NAMES)
    def reset_blob(self, which: int, name: str) -> None:
        if self.fast[which].has_blob(name):
            self.fast[which].blob(name).reset()
            self.slow[which].blob(name).reset()

    @rule(which=st.integers(0, 2), name=NAMES)
    def create(self, which: int, name: str) -> None:
        assert self.both(which, "create_blob", name).name == name

    @rule(which=st.integers(0, 2), name=NAMES)
    def remove(self, which: int, name: str) -> None:
        self.both(which, "remove_blob", name)

    @rule(which=st.integers(0, 2), name=NAMES, start=st.integers(-1, 2))
    def counter(self, which: int, name: str, start: int) -> None:
        fast = slow = None
        try:
            fast = self.fast[which].counter(name, start).retrieve()
        except JobcoreError as error:
            fast = type(error)
        try:
            slow = self.slow[which].counter(name, start).retrieve()
        except JobcoreError as error:
            slow = type(error)
        # An existing counter is given whatever the start is; the slow twin checks the start first.
        assert fast == slow or (start < 0 and slow is BlobValueError)
        if isinstance(fast, int) and slow == fast:
            # From here on both hold one and the same handle, or their counts would part.
            shared = self.fast[which].counter(name)
            self.slow[which].blob(name).value = shared

    @rule(which=st.sampled_from([0, 1, 2, 2]))
    def reset_workspace(self, which: int) -> None:
        self.both(which, "reset")

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        for fast, slow in zip(self.fast, self.slow, strict=True):
            assert fast.blob_names() == list(fast) == slow.blob_names()
            assert fast.blob_names(include_shared=False) == list(slow.own)
            assert [blob.name for blob in fast.local_blobs()] == list(slow.own)
            assert len(fast) == len(slow.blob_names())
            for blob, twin in zip(fast.local_blobs(), slow.own.values(), strict=True):
                assert (blob.kind, blob.transient, blob.bound) == (twin.kind, twin.transient, twin.bound)
                assert same(blob.value, twin.value), (blob, twin.value)

    @invariant()
    def views_never_change(self) -> None:
        for view, content in self.views:
            assert view.tobytes() == content

    @invariant()
    def bound_arrays_hold_what_was_fed(self) -> None:
        for array, twin in self.bound:
            assert same(array, twin)


Twins.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestTwins = Twins.TestCase
