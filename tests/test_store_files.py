"""Files that appear whole or not at all, on file systems that refuse this or that."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jobcore.store import files, publishing, refusals


@pytest.fixture(autouse=True)
def nothing_warned_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "_warned", set())


def refuse(code: int) -> Callable[..., Any]:
    def call(*_: Any, **__: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


def break_sync(monkeypatch: pytest.MonkeyPatch, code: int) -> None:
    monkeypatch.setattr(os, "fsync", refuse(code))
    monkeypatch.setattr(os, "fdatasync", refuse(code), raising=False)
    monkeypatch.setattr(fcntl, "fcntl", refuse(code))


@pytest.fixture(params=["rename", "link", "claim"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Each way to publish: an exclusive rename, a link, or a claim where both are refused."""
    if request.param == "rename":
        yield "rename"
        return
    monkeypatch.setattr(publishing, "_exclusive_rename", lambda: lambda *_: errno.EINVAL)
    if request.param == "link":
        yield "link"
        return
    monkeypatch.setattr(os, "link", refuse(errno.EPERM))
    with pytest.warns(RuntimeWarning, match="claim"):
        yield "claim"


def test_publishing_gives_a_file_its_name(way: str, tmp_path: Path) -> None:
    (tmp_path / "new").write_text("x")
    publishing.publish(tmp_path / "new", tmp_path / "final")
    assert [path.name for path in tmp_path.iterdir()] == ["final"]


@pytest.mark.parametrize("there", ["file", "folder", "dangling link"])
def test_publishing_never_replaces(way: str, there: str, tmp_path: Path) -> None:
    final = tmp_path / "final"
    if there == "file":
        final.write_text("old")
    elif there == "folder":
        final.mkdir()
    else:
        final.symlink_to(tmp_path / "nowhere")
    (tmp_path / "new").write_text("x")
    before = sorted(path.name for path in tmp_path.iterdir())
    with pytest.raises(FileExistsError):
        publishing.publish(tmp_path / "new", final)
    assert sorted(path.name for path in tmp_path.iterdir()) == before
    assert there != "file" or final.read_text() == "old"


def test_of_many_publishers_one_wins(way: str, tmp_path: Path, together: Any) -> None:
    for number in range(6):
        (tmp_path / str(number)).write_text(str(number))
    results = together(6, lambda number: publishing.publish(tmp_path / str(number), tmp_path / "final"))
    assert sorted(type(result).__name__ for result in results) == ["FileExistsError"] * 5 + ["NoneType"]
    assert (tmp_path / "final").read_text() == str(results.index(None))
    assert not list(tmp_path.glob(".*"))


def test_a_claim_left_by_a_dead_process_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(publishing, "_exclusive_rename", lambda: None)
    monkeypatch.setattr(os, "link", refuse(errno.EOPNOTSUPP))
    (tmp_path / ".final.claim").touch()
    (tmp_path / "new").touch()
    with (
        pytest.warns(RuntimeWarning),
        pytest.raises(FileExistsError, match=r"remove the claim.*\.final\.claim"),
    ):
        publishing.publish(tmp_path / "new", tmp_path / "final")
    assert not (tmp_path / "final").exists()


def test_other_errors_of_publishing_come_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        publishing.publish(tmp_path / "none", tmp_path / "final")
    monkeypatch.setattr(publishing, "_exclusive_rename", lambda: None)
    monkeypatch.setattr(os, "link", refuse(errno.EIO))
    with pytest.raises(OSError, match="put/output"):
        publishing.publish(tmp_path / "none", tmp_path / "final")


@pytest.mark.parametrize("durable", [True, False])
def test_a_new_file_is_whole(durable: bool, tmp_path: Path) -> None:
    mask = os.umask(0o027)
    try:
        publishing.write_new_file(tmp_path / "a", b"data", durable)
    finally:
        os.umask(mask)
    assert (tmp_path / "a").read_bytes() == b"data"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    with pytest.raises(FileExistsError):
        publishing.write_new_file(tmp_path / "a", b"other", durable)
    assert (tmp_path / "a").read_bytes() == b"data"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("call", ["pwrite", "fsync", "open", "sync"])
def test_a_new_file_that_fails_leaves_nothing(
    call: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    if call == "sync":
        break_sync(monkeypatch, errno.EIO)
    else:
        monkeypatch.setattr(os, call, refuse(errno.EIO))
    with pytest.raises(OSError, match="put/output"):
        publishing.write_new_file(tmp_path / "a", b"data")
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []


def test_short_writes_are_continued(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, offset: pwrite(fd, bytes(data[:3]), offset))
    publishing.write_new_file(tmp_path / "a", b"0123456789")
    assert (tmp_path / "a").read_bytes() == b"0123456789"


def test_a_write_that_writes_nothing_does_not_go_on_for_ever(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(os, "pwrite", lambda *_: 0)
    with pytest.raises(OSError, match="wrote none"):
        publishing.write_new_file(tmp_path / "a", b"0")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP])
def test_a_refused_sync_is_tolerated_and_said_once(
    code: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    break_sync(monkeypatch, code)
    with pytest.warns(RuntimeWarning, match="refuses") as caught:
        for_both = [publishing.write_new_file(tmp_path / name, b"0") for name in "ab"]
    assert for_both == [None, None]
    messages = [str(warning.message) for warning in caught]
    assert len(set(messages)) == len(messages)
    assert (tmp_path / "b").read_bytes() == b"0"


def test_temporary_names_are_hidden_and_different_and_never_too_long(tmp_path: Path) -> None:
    final = tmp_path / ("ü" * 120 + ".zarr.zip")
    one, other = files.temporary_name(final), files.temporary_name(final)
    assert one != other
    for name in (one, other):
        path = Path(name)
        assert path.parent == tmp_path
        assert path.name.startswith(".")
        assert path.name.endswith(".tmp")
        assert str(os.getpid()) in path.name
        assert len(path.name.encode()) <= 255
    assert Path(files.temporary_name("a.zip")).name.startswith(".a.zip.")
