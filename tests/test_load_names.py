"""Loading a part, under other names, strictly or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import Counter, Workspace
from jobcore.errors import MismatchError
from jobcore.store import LoadReport, containers, load, save
from load_tools import MODEL, save_model


@pytest.fixture(params=containers.known_types())
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / f"m.{request.param}"


@pytest.fixture
def path(place: Path) -> Path:
    return save_model(place)


def test_names_may_be_a_function_of_the_name(path: Path) -> None:
    assert list(load(path, lambda name: name.endswith("/w"))) == ["net/enc/w", "net/dec/w"]
    assert load(path, lambda _: False) == {}
    into = {"net/enc/b": np.zeros(4), "else": np.zeros(1)}
    assert list(load(path, ["net/enc/b"], into)) == ["net/enc/b"]
    assert list(load(path, lambda name: name == "net/enc/b", into)) == ["net/enc/b"]
    assert into["net/enc/b"].tolist() == [0, 1, 2, 3]


def test_a_prefix_is_cut_off_before_names_change(path: Path) -> None:
    assert list(load(path, prefix="net/")) == ["enc/w", "enc/b", "dec/w"]
    assert list(load(path, ["net/dec/w"], prefix="net/")) == ["dec/w"]
    assert list(load(path, prefix="")) == list(MODEL)
    found = load(
        path, lambda name: "enc" in name, prefix="net/", rename={"enc/w": "W", "dec/w": "never asked"}
    )
    assert list(found) == ["W", "enc/b"]
    assert list(load(path, prefix="net/", rename=lambda name: name[:1] + name[-1])) == ["ew", "eb", "dw"]


def test_an_old_file_fits_a_model_that_was_renamed(path: Path) -> None:
    model: dict[str, Any] = {"steps": Counter(), "dec.w": np.zeros((4, 2), "f4"), "enc.w": np.zeros((4, 3)).T}
    model["enc.b"] = np.zeros(8)[::2]
    rename = {"net/enc/w": "enc.w", "net/enc/b": "enc.b", "net/dec/w": "dec.w", "note": None}
    found = load(path, into=model, rename=rename)
    assert list(found) == list(model)
    assert all(found[name] is model[name] for name in model)
    again = path.with_name("again.zarr.zip")
    save(again, model, durable=False)
    back = {new: old for old, new in rename.items() if new is not None}
    for name, value in load(again, rename=back).items():
        assert value.retrieve() == 7 if name == "steps" else value.tolist() == MODEL[name].tolist()
    ws = Workspace()
    load(path, into=ws, prefix="net/", rename=lambda name: name.replace("/", "."))
    assert ws.blob_names() == ["enc.w", "enc.b", "dec.w"]


def test_everything_that_differs_is_told_in_one_error(path: Path) -> None:
    good = np.zeros(4)
    into = {
        "enc.b": good,
        "enc/w": np.zeros((4, 3)),
        "dec/w": np.zeros((4, 2)),
        "layer_12": np.zeros(1),
    }
    with pytest.raises(MismatchError) as caught:
        load(path, into=into, prefix="net/", rename={"enc/b": "enc.b", "enc/x": "x", "note": "y"})
    for text in [
        "differ in 5 places",
        "'enc/x': to be renamed, but no such blob is stored below the prefix 'net/' (there is enc/",
        "'note': to be renamed, but no such",
        "'layer_12': no such blob is stored",
        "'net/enc/w' (as 'enc/w'): stored is float64 of shape (3, 4), the destination is float64 of shape (4, 3)",
        "'net/dec/w' (as 'dec/w'): stored is float32 of shape (4, 2), the destination is float64 of shape (4, 2)"
        ", which cast=True would convert it to",
    ]:
        assert text in str(caught.value)
    assert not good.any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rename": lambda _: "one"}, "'net/enc/w' and 'net/enc/b' would both become 'one'"),
        ({"rename": {"net/enc/w": "note"}}, "'net/enc/w' and 'note' would both become 'note'"),
        ({"rename": {"note": ""}}, "'note': a blob needs a name, found the empty text, after renaming"),
        ({"rename": {"nota": "x"}}, r"'nota': to be renamed, but no such blob is stored \(there is note\)"),
        ({"prefix": "ned/"}, "the prefix 'ned/': no stored name begins with it"),
        ({"prefix": "note"}, "'note': nothing is left of it without the prefix"),
        ({"names": ["note"], "prefix": "net/"}, "'note': asked for, but it does not begin with the prefix"),
        (
            {"names": ["steps"], "into": {}, "rename": {"steps": "n"}},
            r"'steps' \(as 'n'\): asked for, but not",
        ),
    ],
)
def test_names_that_lead_nowhere_or_collide_are_told(options: Any, text: str, path: Path) -> None:
    for strict in (True, False) if "into" not in options else (True,):
        with pytest.raises(MismatchError, match=text):
            load(path, strict=strict, **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"names": 3}, TypeError, "names as an iterable of texts or a callable, found int"),
        ({"prefix": b"net/"}, TypeError, "prefix as text, found bytes"),
        ({"rename": "x"}, TypeError, "rename as a mapping or a callable, found str"),
        ({"rename": lambda _: 3}, TypeError, "new name of 'net/enc/w' as text or None, found int"),
        (
            {"cast": "any", "into": {}},
            ValueError,
            "cast as a bool or one of no, equiv, safe, same_kind, unsafe",
        ),
        ({"cast": True}, ValueError, "into= beside cast="),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    options: Any, error: type[Exception], text: str, path: Path
) -> None:
    with pytest.raises(error, match=text):
        load(path, **options)


def test_a_load_that_is_not_strict_tells_what_it_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    into = {"enc/b": np.zeros(4), "enc/c": np.ones(4)}
    reports: list[LoadReport] = []
    options: Any = {"into": into, "prefix": "net/", "strict": False}
    assert list(load(path, **options, report=reports.append)) == ["enc/b"]
    (report,) = reports
    assert report.path == str(path)
    assert report.loaded == (("net/enc/b", "enc/b"),)
    assert report.missing == ("enc/c",)
    assert report.unexpected == ("net/enc/w", "net/dec/w")
    assert into["enc/c"].all()
    assert not caplog.records
    load(path, **options)
    assert "1 names are missing: 'enc/c'; 2 blobs have no place: 'net/enc/w', 'net/dec/w'" in caplog.text
    caplog.clear()
    assert list(load(path, ["gone", "note"], strict=False)) == ["note"]
    assert "1 names are missing: 'gone'; 0 blobs have no place: none" in caplog.text
    caplog.clear()
    load(path, strict=False)
    load(path, report=reports.append)
    assert reports[1].missing == reports[1].unexpected == ()
    assert not caplog.records


def test_what_has_a_place_and_does_not_fit_is_an_error_though_not_strict(path: Path) -> None:
    for place in (np.zeros(5), np.zeros(4, "f4"), Counter()):
        with pytest.raises(MismatchError, match="'net/enc/b'"):
            load(path, into={"net/enc/b": place}, strict=False)


def test_a_report_can_prevent_a_load(path: Path) -> None:
    def refuse(report: LoadReport) -> None:
        raise KeyError(report.missing)

    into = {"net/enc/b": np.zeros(4), "gone": np.zeros(1)}
    with pytest.raises(KeyError, match="gone"):
        load(path, into=into, strict=False, report=refuse)
    assert not into["net/enc/b"].any()
