"""Keys of blobs: reversible, one for each name, and safe on every file system."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobcore.errors import BlobValueError
from jobcore.store.names import escape, unescape

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)
DEVICE = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("weights", "weights"),
        ("fc1/weight:0", "fc1=2fweight=3a0"),
        ("Adam", "~adam"),
        ("größe", "gr=c3=b6=c3=9fe"),
        (".hidden", "=2ehidden"),
        ("..", "=2e=2e"),
        ("__init__", "=5f_init__"),
        ("_one", "_one"),
        ("zarr.json", "=7aarr.json"),
        ("zarr.jsons", "zarr.jsons"),
        ("nul.txt", "=6eul.txt"),
        ("nulled", "nulled"),
        ("com7", "=63om7"),
        ("end.", "end=2e"),
        (".", "=2e"),
        ("a~b=c", "a=7eb=3dc"),
        ("#%0", "=23=250"),
        ("\0\n", "=00=0a"),
        ("é", "=c3=a9"),
        ("e\u0301", "e=cc=81"),
    ],
)
def test_names_have_the_documented_keys(name: str, key: str) -> None:
    assert escape(name) == key
    assert unescape(key) == name


@given(TEXT)
@example("A" * 101)
@example("CON")
def test_short_names_come_back(name: str) -> None:
    key = escape(name)
    assert re.fullmatch(r"[a-z0-9_\-.~=]{1,200}", key)
    assert not key.startswith((".", "__"))
    assert not key.endswith(".")
    assert key != "zarr.json"
    assert not DEVICE.fullmatch(key)
    if "==" not in key:
        assert unescape(key) == name


@given(TEXT, TEXT)
def test_different_names_have_different_keys_where_case_counts_for_nothing(one: str, other: str) -> None:
    assert (one == other) == (escape(one).casefold() == escape(other).casefold())


@given(st.text(st.sampled_from("aZ/é~"), min_size=101, max_size=400))
def test_long_names_are_cut_between_escapes_and_stay_apart(name: str) -> None:
    key = escape(name)
    if "==" in key:
        head, _, digits = key.partition("==")
        assert 158 <= len(head) <= 160
        assert re.fullmatch(r"([a-z0-9_\-.]|~[a-z]|=[0-9a-f]{2})+", head)
        assert re.fullmatch("[0-9a-f]{32}", digits)
        assert escape(name + "x") != key
        with pytest.raises(ValueError, match="metadata"):
            unescape(key)


@pytest.mark.parametrize("name", ["", "\ud800", "a\udfffb", None, 3, b"x"])
def test_what_is_no_name_is_refused(name: object) -> None:
    with pytest.raises(BlobValueError):
        escape(name)  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    "key", ["", "A", "a/b", "=6", "=61", "=C3=A9", "=ff", "~", "~1", ".x", "x.", "nul", "zarr.json"]
)
def test_what_no_name_gives_is_no_key(key: str) -> None:
    with pytest.raises(ValueError, match="not the key"):
        unescape(key)
