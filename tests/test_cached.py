"""Readers of databases, and the one that writes its own."""

from __future__ import annotations

import numpy as np
import pytest

import jobcore
from jobcore import LocalSession, Net, Task, TaskGroup
from jobcore.data import (
    CachedReader,
    CountUntil,
    Dataset,
    DBFileReader,
    List,
    ReaderWithLimit,
    Scalar,
    Struct,
    fetch_record,
    pipe,
)
from jobcore.errors import BuildError, CheckpointNotFoundError, TaskGroupError
from reader_tools import numbers, read_all, run_init

pytestmark = pytest.mark.usefixtures("quiet_threads")


def cache(reader, session, **options):
    group = TaskGroup("global")
    with group:
        Task(step=reader.build_cache_step(**options))
    session.run(group)


def source_of(count, start, session):
    dataset, values = numbers(count, start)
    run_init(session, (dataset, {"label": values}))
    return dataset.reader()


def test_the_cache_is_used_until_it_is_gone(tmp_path) -> None:
    path = tmp_path / "cache.zarr.zip"

    def labels(start, **options):
        session = LocalSession()
        reader = CachedReader(source_of(100, start, session), path, batch_size=10, loop_over=False)
        cache(reader, session, **options)
        return sorted(read_all(reader, instances=8, session=session)["label"])

    assert labels(0) == list(range(100))
    assert labels(200) == list(range(100))
    path.unlink()
    assert labels(300) == list(range(300, 400))
    assert labels(500, overwrite=True) == list(range(500, 600))
    assert labels(700, overwrite=True, num_threads=4) == list(range(700, 800))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(TaskGroupError):
        labels(0)


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
def test_a_database_is_read_without_a_schema_in_its_order(tmp_path, db_type) -> None:
    path = tmp_path / "data"
    session = LocalSession()
    schema = Struct(("z", Scalar(np.int64)), ("text", Scalar(str)), ("a", List(Scalar((np.float32, (2,))))))
    dataset = Dataset(schema, name="source")
    columns = {
        "z": np.arange(4),
        "text": np.array(["p", "qq", "", "rrr"]),
        "a:lengths": np.array([1, 0, 2, 1], np.int32),
        "a:values": np.arange(8, dtype=np.float32).reshape(4, 2),
    }
    run_init(session, (dataset, columns))
    cache(CachedReader(dataset.reader(batch_size=3), path, db_type), session)
    reader = DBFileReader(path, db_type, batch_size=3)
    assert reader.schema().field_names() == ["z", "text", "a:lengths", "a:values"]
    found = read_all(reader)
    for name, column in columns.items():
        np.testing.assert_array_equal(found[name], column)
    part = DBFileReader(path, db_type, field_names=["text", "z"])
    assert part.schema().field_names() == ["text", "z"]
    assert read_all(part)["z"].tolist() == [0, 1, 2, 3]
    with pytest.raises(BuildError, match=r"expected the columns \['y'\]"):
        DBFileReader(path, db_type, field_names=["y"])


def test_reading_the_cache_of_100_rows_gives_each_once(tmp_path) -> None:
    path = tmp_path / "cache.zarr.zip"
    session = LocalSession()
    cache(CachedReader(source_of(100, 0, session), path), session)
    assert read_all(DBFileReader(path, batch_size=7))["label"].tolist() == list(range(100))
    mixed = [
        read_all(DBFileReader(path, batch_size=7, shuffle=True, seed=seed))["label"].tolist()
        for seed in (1, 1, 2)
    ]
    assert mixed[0] == mixed[1] != mixed[2]
    assert sorted(mixed[0]) == list(range(100)) != mixed[0]


@pytest.mark.parametrize("shuffle", [False, True])
def test_looping_over_never_ends(tmp_path, shuffle) -> None:
    path = tmp_path / "rows.zarr.zip"
    jobcore.save(path, {"n": np.arange(3)})
    reader = ReaderWithLimit(DBFileReader(path, batch_size=2, loop_over=True, shuffle=shuffle), 5)
    found = read_all(reader)["n"].tolist()
    assert len(found) == 10
    if not shuffle:
        assert found == [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]


def test_any_reader_can_be_the_source_and_the_whole_is_one_pipeline(tmp_path) -> None:
    path = tmp_path / "counted.zarr.zip"
    session = LocalSession()
    reader = CachedReader(CountUntil(20), path, batch_size=6)
    cache(reader, session, num_threads=3)
    target = Dataset(reader.schema(), name="target")
    run_init(session, (target, None))
    with TaskGroup() as group:
        pipe(pipe(reader), target)
    session.run(group)
    assert sorted(fetch_record(target.content(), session.workspace()).iter.leaf()) == list(range(20))


def test_what_is_refused(tmp_path) -> None:
    path = tmp_path / "odd.zarr.zip"
    with pytest.raises(CheckpointNotFoundError):
        DBFileReader(path)
    jobcore.save(path, {"a": 1, "b": np.arange(3)})
    with pytest.raises(BuildError, match=r"found others under \['a'\]"):
        DBFileReader(path)
    assert DBFileReader(path, field_names=["b"]).schema().field_types() == [np.dtype(np.int64)]
    with pytest.raises(BuildError, match="a schema or field_names"):
        DBFileReader(path, field_names=["b"], schema={"b": int})
    with pytest.raises(BuildError, match="to be set up"):
        DBFileReader(path, field_names=["b"]).read(Net("n"))
    with pytest.raises(BuildError, match="batch_size"):
        DBFileReader(path, batch_size=0, field_names=["b"])
    with pytest.raises(BuildError, match="num_threads"):
        CachedReader(CountUntil(1), path).build_cache_step(num_threads=0)
    assert repr(CachedReader(CountUntil(1), "p")) == "CachedReader('p')"
