"""What a workspace refuses: the error names the blob, what was expected and what was found; nothing is half done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobcore import Workspace
from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError, JobcoreError


@pytest.fixture
def ws() -> Workspace:
    return Workspace(name="w")


def raised(error: type[JobcoreError], call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(error) as caught:
        call(*args)
    return str(caught.value)


class OwnArray:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


UNSUPPORTED = object()


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (UNSUPPORTED, BlobKindError, ["found object", "a Counter", "state", "transient=True"]),
        ({1, 2}, BlobKindError, ["found set"]),
        (np.float64, BlobKindError, ["found type"]),
        (np.array([None]), BlobKindError, ["without Python objects", "object (1,)"]),
        (np.zeros(2, [("a", "O")]), BlobKindError, ["without Python objects"]),
        (np.ma.array([1, 2], mask=[0, 1]), BlobValueError, ["masked", ".mask"]),
        (2**64, BlobValueError, ["65 bits", "state"]),
        (-(2**63) - 1, BlobValueError, ["64 bits", "state"]),
        ("\ud800", BlobValueError, ["lone surrogate", "bytes"]),
        ([{"k": UNSUPPORTED}], BlobKindError, ["x[0]['k']"]),
        (
            OwnArray(RuntimeError("needs grad")),
            BlobKindError,
            ["OwnArray", "RuntimeError: needs grad", "detach"],
        ),
        (OwnArray(np.array([{}])), BlobKindError, ["without Python objects"]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_be_a_blob_is_refused_and_leaves_none(
    ws: Workspace, value: Any, error: type[JobcoreError], says: list[str]
) -> None:
    with pytest.raises(error) as caught:
        ws["x"] = value
    assert all(text in str(caught.value) for text in [*says, "x"]), str(caught.value)
    assert "x" not in ws
    ws["x"] = 1
    with pytest.raises(error):
        ws["x"] = value
    assert ws["x"] == 1


def test_errors_name_the_blob_and_what_was_expected_and_found(ws: Workspace) -> None:
    ws["weights"] = np.zeros(3)
    ws["label"] = "cat"
    ws.create_blob("later")
    ws.bind("bound", np.zeros((2, 3), "f4"))
    assert raised(BlobNotFoundError, ws.fetch, "wieghts") == (
        "no blob 'wieghts' among the 4 of workspace 'w' (close names: 'weights')"
    )
    assert raised(BlobNotFoundError, Workspace(ws, "task").view, "zzzzz") == (
        "no blob 'zzzzz' among the 4 of workspace 'task' and its ancestors"
    )
    assert raised(BlobValueError, ws.fetch, "later") == (
        "blob 'later' is empty: expected a value, found none (feed it first)"
    )
    assert "'later' is empty" in raised(BlobValueError, ws.view, "later")
    assert raised(BlobKindError, ws.view, "label") == (
        "blob 'label': expected a tensor to view, found a string (use fetch)"
    )
    assert raised(BlobKindError, ws.counter, "label") == "blob 'label': expected a counter, found a string"
    assert "blob 'bound' is bound: expected float32 (2, 3), found float64 (2, 3)" in raised(
        BlobValueError, ws.feed, "bound", np.zeros((2, 3))
    )
    assert "expected float32 (2, 3), found float32 (3, 2)" in raised(
        BlobValueError, ws.feed, "bound", np.zeros((3, 2), "f4")
    )
    assert "expected ndarray float32 (2, 3), found string str" in raised(
        BlobKindError, ws.feed, "bound", "text"
    )
    assert "expected ndarray float32 (2, 3), found object" in raised(
        BlobKindError, ws.feed, "bound", object(), True
    )
    assert raised(BlobNotFoundError, Workspace(ws).remove_blob, "label").startswith(
        "blob 'label' belongs to an ancestor of workspace ''"
    )
    with pytest.raises(KeyError):
        ws["missing"]
    with pytest.raises(BlobNotFoundError, match="no blob 'gone'"):
        del ws["gone"]


@pytest.mark.parametrize(
    ("array", "error", "says"),
    [
        ([1, 2], BlobValueError, "found list"),
        (np.broadcast_to(0.0, 3), BlobValueError, "read-only"),
        (np.ma.array([1.0]), BlobValueError, "found MaskedArray"),
        (np.array([None]), BlobKindError, "fixed-width"),
    ],
)
def test_only_plain_writable_memory_can_be_bound(
    ws: Workspace, array: Any, error: type[JobcoreError], says: str
) -> None:
    assert says in raised(error, ws.bind, "x", array)
    assert "x" not in ws


def test_a_failed_feed_leaves_flag_and_value_alone(ws: Workspace) -> None:
    ws.bind("x", np.zeros(2))
    with pytest.raises(BlobValueError):
        ws.feed("x", np.zeros(3), transient=True)
    assert not ws.blob("x").transient
    ws.feed("o", object(), transient=True)
    with pytest.raises(BlobKindError, match=r"'o'.*only a transient blob"):
        ws.blob("o").transient = False
    with pytest.raises(BlobKindError):
        ws.feed("o", object(), transient=False)
    assert ws.blob("o").transient


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("", BlobValueError, "empty"),
        ("a\udc80", BlobValueError, "lone surrogate at 1"),
        (5, BlobKindError, "found int"),
        (None, BlobKindError, "found NoneType"),
        (b"x", BlobKindError, "found bytes"),
    ],
)
def test_other_names_are_refused_everywhere(
    ws: Workspace, name: Any, error: type[JobcoreError], says: str
) -> None:
    for call in (ws.create_blob, ws.counter):
        assert says in raised(error, call, name)
    assert says in raised(error, ws.feed, name, 1)
    assert says in raised(error, ws.bind, name, np.zeros(1))
    assert len(ws) == 0
    if not isinstance(name, str):
        for call in (ws.fetch, ws.view, ws.blob, ws.has_blob, ws.remove_blob, ws.__contains__):
            assert says in raised(error, call, name)


def test_parent_and_name_are_set_once(ws: Workspace) -> None:
    child = Workspace(ws)
    with pytest.raises(BlobValueError, match="set once"):
        ws.__init__(child)  # type: ignore[misc]  # it would make a ring
    assert "nothing" not in child
    for bad in ("parent", 3):
        assert "expected a Workspace as parent" in raised(BlobKindError, Workspace, bad)
    assert "expected a str as name" in raised(BlobKindError, Workspace, None, 3)
