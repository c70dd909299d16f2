"""Python iterables as readers."""

from __future__ import annotations

import threading
from collections import namedtuple

import numpy as np
import pytest

from jobcore import CheckpointManager, Job, JobRunner, LocalSession, Net, Task, TaskGroup, epoch_limiter, ops
from jobcore.data import List, ReaderWithLimit, Scalar, Struct, pipe, python_processor, reader_from
from jobcore.errors import BuildError, TaskGroupError
from reader_tools import read_all

pytestmark = pytest.mark.usefixtures("quiet_threads")

Pair = namedtuple("Pair", "x y")


class Loader:
    """Can be begun again, and has a length, like a data loader."""

    def __init__(self, count):
        self.count, self.opened, self.made = count, 0, 0

    def __len__(self):
        return self.count

    def __iter__(self):
        self.opened += 1
        for i in range(self.count):
            self.made += 1
            yield np.array([i, i + 1])


def squares():
    for i in range(10):
        yield {"n": np.array([i]), "square": np.array([float(i * i)])}


SOURCES = {
    "list": lambda: [np.array([i, i + 1]) for i in range(9)],
    "array": lambda: np.stack([np.arange(9), np.arange(1, 10)], axis=1),
    "loader": lambda: Loader(9),
    "function": lambda: lambda: (np.array([i, i + 1]) for i in range(9)),
    "function of a position": lambda: lambda start: (np.array([i, i + 1]) for i in range(start, 9)),
    "iterator": lambda: iter([np.array([i, i + 1]) for i in range(9)]),
}


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("schema", [None, np.int64])
@pytest.mark.parametrize("kind", SOURCES)
def test_each_item_is_a_record(kind, schema, instances) -> None:
    found = read_all(reader_from(SOURCES[kind](), schema), instances=instances)[""]
    assert sorted(found) == sorted([*range(9), *range(1, 10)])
    if instances == 1:
        assert found.tolist() == [n for i in range(9) for n in (i, i + 1)]


@pytest.mark.parametrize("kind", SOURCES)
def test_a_second_run_begins_anew_or_says_that_it_cannot(kind) -> None:
    collected = []

    def note(column):
        collected.append(int(column[0]))
        return column

    with TaskGroup() as group:
        queue = pipe(reader_from(SOURCES[kind]()), processor=python_processor(note))
        pipe(queue, processor=lambda record: None)
    session = LocalSession()
    session.run(group)
    assert collected == list(range(9))
    if kind == "iterator":
        with pytest.raises(TaskGroupError, match="cannot be begun again, after 9 items"):
            session.run(group)
    else:
        session.run(group)
        assert collected == 2 * list(range(9))


def noting(seen):
    lock = threading.Lock()

    def note(record):
        def see(inputs, outputs):
            with lock:
                seen.append(int(inputs[0].view().ravel()[0]))

        ops.Python(see)(record.field_blobs(), [])

    return note


def job_reading(source, epochs, seen, *, instances=1, known=None):
    """A job that reads three items in each epoch, until there are none."""
    with Job() as job:
        init = Net("reader_init")
        inner = reader_from(source, known, "position", init_net=init)
        reader = ReaderWithLimit(inner, 3)
        Task(step=init, group=job.init_group)
        with job.epoch_group:
            pipe(reader, processor=noting(seen), num_runtime_threads=instances)
        job.add_stop_condition(reader.data_finished())
        epoch_limiter(job, epochs)
    return job


def train(tmp_path, job):
    runner = JobRunner(job, CheckpointManager(tmp_path / "run"), resume_from_epoch="latest")
    with LocalSession() as session:
        runner.train(session)
        return runner.result.last_epoch, session.workspace().fetch("position").retrieve()


@pytest.mark.parametrize("instances", [1, 3])
@pytest.mark.parametrize("kind", [kind for kind in SOURCES if kind != "iterator"])
def test_a_position_goes_on_from_epoch_to_epoch_and_after_a_resume(tmp_path, kind, instances) -> None:
    first, second = [], []
    source = SOURCES[kind]()
    assert train(tmp_path, job_reading(source, 2, first, instances=instances)) == (2, 6)
    # Another program, as far as the reader goes.
    assert train(tmp_path, job_reading(SOURCES[kind](), 9, second, instances=instances)) == (3, 9)
    assert sorted(first) == [0, 1, 2, 3, 4, 5]
    # That the data are at their end is known after the third epoch: nine items, three in each.
    assert sorted(second) == [6, 7, 8]


def test_a_loader_is_opened_once_for_all_epochs_of_a_program(tmp_path) -> None:
    loader, seen = Loader(9), []
    assert train(tmp_path, job_reading(loader, 9, seen, known=np.int64)) == (3, 9)
    assert (loader.opened, loader.made, seen) == (1, 9, list(range(9)))
    loader, seen = Loader(9), []
    train(tmp_path / "again", job_reading(loader, 2, seen))
    resumed = Loader(9)
    train(tmp_path / "again", job_reading(resumed, 3, seen, known=np.int64))
    # What was read already is made again, and dropped.
    assert (resumed.opened, resumed.made, seen) == (1, 9, list(range(9)))


def test_an_iterator_says_that_it_cannot_go_on_after_a_resume(tmp_path) -> None:
    seen = []
    train(tmp_path, job_reading(SOURCES["iterator"](), 2, seen))
    assert seen == [0, 1, 2, 3, 4, 5]
    with pytest.raises(
        TaskGroupError, match="expected to begin at item 6 of list_iterator, found an iterator"
    ):
        train(tmp_path, job_reading(SOURCES["iterator"](), 3, seen))


def test_fields_of_items(session) -> None:
    del session
    found = read_all(reader_from(squares))
    assert {name: column.tolist() for name, column in found.items()} == {
        "n": list(range(10)),
        "square": [float(i * i) for i in range(10)],
    }
    pairs = [Pair(np.array([1, 2]), [0.5, 1.5]), Pair(np.array([3]), [2.5])]
    assert reader_from(pairs).schema().field_names() == ["x", "y"]
    assert read_all(reader_from(pairs))["y"].tolist() == [0.5, 1.5, 2.5]
    batches = [(np.zeros((2, 3), np.float32), ["a", "b"]), (np.ones((1, 3), np.float32), ["ccc"])]
    reader = reader_from(batches)
    assert reader.schema().field_types()[0] == np.dtype((np.float32, (3,)))
    found = read_all(reader)
    assert found["field_0"].shape == (3, 3)
    assert found["field_1"].tolist() == ["a", "b", "ccc"]
    assert read_all(reader_from([1, 2, 3]))[""].tolist() == [1, 2, 3]
    nested = [{"user": {"age": [3, 4]}, "tags": ([1, 2], [7, 8, 9])}]
    form = Struct(("user", Struct(("age", np.int64))), ("tags", List(Scalar(np.int64))))
    found = read_all(reader_from(nested, form))
    assert found["tags:lengths"].tolist() == [1, 2]
    assert found["tags:values"].tolist() == [7, 8, 9]
    assert found["user:age"].tolist() == [3, 4]


@pytest.mark.parametrize(
    ("items", "schema", "says"),
    [
        ([{"a": [1]}], {"b": int}, r"expected the fields \['b'\], found \['a'\]"),
        ([([1], [2])], {"a": int, "b": int, "c": int}, "a tuple of the fields .* found tuple of 2"),
        ([["x"]], np.int64, "expected int64, found list"),
        ([[1]], {"a": int, "b": int}, "a tuple of the fields .* found list of 1"),
        ([{"a": [object()]}], {"a": None}, "expected numbers or text, found list"),
        ([np.zeros((1, 2))], (np.float64, (3,)), r"rows of shape \(3,\)"),
    ],
)
def test_items_that_do_not_fit_fail_the_task(items, schema, says) -> None:
    with TaskGroup() as group:
        pipe(reader_from(items, schema), processor=lambda record: None)
    with pytest.raises(TaskGroupError, match=says):
        LocalSession().run(group)


@pytest.mark.parametrize("source", ["text", b"bytes", {"a": [1]}, 3, lambda a, b: []])
def test_what_can_be_no_iterable_of_records(source) -> None:
    with pytest.raises(BuildError, match="expected"):
        reader_from(source, np.int64)


def test_more_that_is_refused() -> None:
    with pytest.raises(BuildError, match=r"at least one item of list.*pass a schema"):
        reader_from([])
    with pytest.raises(BuildError, match="to be set up"):
        reader_from([1]).read(Net("n"))
    assert read_all(reader_from([], np.int64))[""].tolist() == []
    assert repr(reader_from([1], name="mine")) == "IterableReader(mine)"


def test_an_exception_of_the_source_fails_the_task_and_moves_nothing() -> None:
    def broken(position):
        for i in range(position, 9):
            if i == 4 and not healed:
                raise OSError("the disk is gone")
            yield np.array([i])

    healed, seen = [], []
    session = LocalSession()
    init = Net("init")
    reader = reader_from(broken, init_net=init, position_blob="position")
    start = TaskGroup("global")
    Task(step=init, group=start)
    with TaskGroup() as group:
        pipe(reader, processor=noting(seen))
    session.run(start)
    with pytest.raises(TaskGroupError, match="the disk is gone"):
        session.run(group)
    assert session.workspace().fetch("position").retrieve() == 4
    healed.append(True)
    session.run(group)
    assert seen == list(range(9))


def test_going_back_to_the_first_item() -> None:
    seen = []
    init, back = Net("init"), Net("back")
    reader = reader_from(Loader(4), init_net=init)
    start, again = TaskGroup("global"), TaskGroup("global")
    Task(step=init, group=start)
    reader.reset(back)
    Task(step=back, group=again)
    with TaskGroup() as group:
        pipe(reader, processor=noting(seen))
    session = LocalSession()
    for part in (start, group, group, again, group):
        session.run(part)
    assert seen == [0, 1, 2, 3, 0, 1, 2, 3]


@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader(tmp_path, workers) -> None:
    data = pytest.importorskip("torch.utils.data")
    loader = data.DataLoader([(float(i), i) for i in range(10)], batch_size=4, num_workers=workers)
    reader = reader_from(loader)
    assert reader.schema().field_names() == ["field_0", "field_1"]
    found = read_all(reader)
    assert found["field_1"].tolist() == list(range(10))
    assert found["field_0"].dtype == np.float64
    seen = []
    # Without workers: in the middle of its data the loader stays open, and they with it.
    batches = data.DataLoader(list(range(9)), batch_size=1)
    assert train(tmp_path, job_reading(batches, 2, seen)) == (2, 6)
    assert train(tmp_path, job_reading(batches, 9, seen)) == (3, 9)
    assert seen == list(range(9))
