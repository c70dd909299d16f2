"""Sources and processors that give what they should not: a clear error, and never other data or an early end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from jobcore import Counter, LocalSession, Net, Task, TaskGroup, ops
from jobcore.data import (
    Dataset,
    List,
    Queue,
    Scalar,
    Struct,
    feed_record,
    pipe,
    python_processor,
    python_sink,
    reader_from,
)
from jobcore.data.converting import converted
from jobcore.errors import BuildError, TaskGroupError


def read(source: Any, schema: Any = None, **position: Any) -> list[list[Any]]:
    """Return what a pipe hands on of a source, column by column."""
    got: list[list[Any]] = []
    with TaskGroup() as group:
        queue = pipe(reader_from(source, schema, **position), capacity=1)
        pipe(queue, processor=python_sink(lambda *columns: got.append([c.tolist() for c in columns])))
    with LocalSession() as session:
        session.run(group)
    return got


def refused(source: Any, text: str, schema: Any = None) -> None:
    with pytest.raises(TaskGroupError, match=text):
        read(source, schema)


# ------------------------------------------------------------------------------------------------------ conversion


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1.5], np.int64),
        ([float("nan")], np.int32),
        ([float("inf")], np.uint8),
        ([300], np.int8),
        ([-1], np.uint64),
        (np.array([2**40]), np.int32),
        (np.array([2**63], np.uint64), np.int64),
        ([2], np.bool_),
        ([1 + 2j], np.float64),
        (["1.5"], np.int64),
        (["x"], np.float32),
        ([None], np.int64),
        ([[1], [1, 2]], np.int64),
        ([2**70], np.int64),
    ],
)
def test_what_would_come_out_as_another_number_is_refused(value: Any, dtype: Any) -> None:
    with pytest.raises((TypeError, ValueError, OverflowError)):
        converted(value, np.dtype(dtype))


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        ([1.0, -2.0], np.int64, [1, -2]),
        ([True, False], np.float32, [1.0, 0.0]),
        ([0, 1], np.bool_, [False, True]),
        (np.array([127], np.uint64), np.int8, [127]),
        (["12"], np.int16, [12]),
        ([0.1], np.float32, [float(np.float32(0.1))]),
        ([], np.int64, []),
        ([1, 2], None, [1, 2]),
        (["long text"], "U2", ["long text"]),
        (np.array([1], ">i4"), np.dtype("<i8"), [1]),
        ([[1, 2]], np.dtype((np.int32, 2)), [[1, 2]]),
    ],
)
def test_what_means_the_same_is_converted(value: Any, dtype: Any, expected: list[Any]) -> None:
    wanted = None if dtype is None else np.dtype(dtype)
    array = converted(value, wanted)
    assert array.tolist() == expected
    if wanted is not None and wanted.kind not in "US":
        assert array.dtype == wanted.base


def test_records_are_not_cut_to_integers() -> None:
    refused([{"a": [1, 2]}, {"a": [1.5]}], r"column 'a': expected int64, found list: .*1\.5")
    refused([np.array([2**40])], "expected int32", Scalar(np.int32))
    assert read([{"a": [1, 2]}, {"a": [3.0]}]) == [[[1, 2]], [[3]]]
    with (
        LocalSession() as session,
        pytest.raises(BuildError, match=r"column 'x': expected rows of int64.*0\.5"),
    ):
        feed_record(Struct(("x", Scalar(np.int64, "x"))), {"x": [0.5]}, session.workspace())


# ----------------------------------------------------------------------------------------------------- names, forms


def test_columns_may_have_any_keys() -> None:
    assert read([{"a:b": [1], "a:c": [2], "d/e": [3]}, {"d/e": [6], "a:c": [5], "a:b": [4]}]) == [
        [[1], [2], [3]],
        [[4], [5], [6]],
    ]
    assert read([{1: [1], 2: [2]}]) == [[[1], [2]]]
    refused([{"a:b": [1]}, {"a": {"c": [1]}}], "expected the fields")


def test_a_source_without_columns_is_refused_where_it_is_built() -> None:
    with pytest.raises(BuildError, match="at least one column in the records of list"):
        reader_from([{}])
    with pytest.raises(BuildError, match="at least one column"):
        reader_from([[1]], Struct())


# ----------------------------------------------------------------------------------------------------- ends


class Stops:
    """Becomes an array by raising what is elsewhere the end of an iterator."""

    def __array__(self, dtype: object = None, copy: object = None) -> Any:
        raise StopIteration("not the end")


def test_an_item_that_raises_stop_iteration_is_no_end() -> None:
    refused([np.zeros(1), Stops(), np.ones(1)], "StopIteration: not the end")


class Items:
    """An iterable that can be begun again."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[Any]:
        return (np.array([n]) for n in range(self.count))


@pytest.mark.parametrize(
    "make",
    [
        lambda count: [np.array([n]) for n in range(count)],
        Items,
        lambda count: lambda: iter(Items(count)),
    ],
    ids=["sequence", "iterable", "function"],
)
def test_a_source_shorter_than_what_was_read_is_no_end(make: Callable[[int], Iterable[Any]]) -> None:
    def run(count: int, position: int) -> list[int]:
        got: list[int] = []
        init = Net("reader_init")
        with TaskGroup("global") as group:
            reader = reader_from(make(count), Scalar(np.int64), "position", init_net=init)
            queue = pipe(reader, capacity=1)
            pipe(queue, processor=python_sink(lambda x: got.append(int(x[0]))))
        with LocalSession() as session:
            session.run(init)
            session.workspace().feed("position", Counter(position))
            session.run(group)
        return got

    assert run(6, 4) == [4, 5]
    assert run(6, 6) == []
    with pytest.raises(
        TaskGroupError, match=r"expected at least 7 items of .*, as many as were read before, found 6"
    ):
        run(6, 7)


def test_a_position_below_zero_reads_nothing_from_behind() -> None:
    init = Net("reader_init")
    with TaskGroup("global") as group:
        pipe(reader_from([[1], [2]], None, "position", init_net=init), processor=python_sink(lambda x: None))
    with LocalSession() as session:
        session.run(init)
        session.workspace().fetch("position").restore(-1)
        with pytest.raises(TaskGroupError, match="expected a position of at least 0 in list, found -1"):
            session.run(group)


# ----------------------------------------------------------------------------------------------------- processors


def processed(function: Any) -> None:
    with TaskGroup() as group:
        queue = pipe(reader_from([{"x": [1, 2]}]), processor=python_processor(function), capacity=1)
        pipe(queue, processor=python_sink(lambda x: None))
    with LocalSession() as session:
        session.run(group)


@pytest.mark.parametrize("result", [None, (None,), {"x": None}], ids=repr)
def test_a_processor_that_returns_nothing_is_no_column(result: Any) -> None:
    with pytest.raises(TaskGroupError, match=r"expected the columns \['x'\] as arrays, found None"):
        processed(lambda x: result)


def test_a_processor_must_be_a_plain_function() -> None:
    async def later(x: Any) -> Any:
        return x

    def parts(x: Any) -> Iterator[Any]:
        yield x

    with pytest.raises(BuildError, match="is a coroutine function"):
        python_processor(later)
    with pytest.raises(BuildError, match="is a generator function"):
        python_sink(parts)


# ----------------------------------------------------------------------------------------------------- cursors


def columns_read(spoil: Callable[[Any], object]) -> list[list[Any]]:
    """Read a data set of lists of which something was changed."""
    data = Dataset(Struct(("x", np.int64), ("l", List(np.int32))), name="d")
    columns = {"x": np.arange(5), "l:lengths": np.ones(5, np.int32), "l:values": np.arange(5, dtype=np.int32)}
    got: list[list[Any]] = []
    with TaskGroup("global") as group, Task():
        data.init_from_columns(ops.net(), columns)
        reader = data.reader(ops.net(), cursor_name="cursor", batch_size=2)
        ops.net(spoil)
        rounds, record = reader.execution_step()
        sink = Net("sink")
        sink.Python(lambda inputs, outputs: got.append([b.fetch().tolist() for b in inputs]))(
            record.field_blobs(), []
        )
        rounds.add_net(sink)
        ops.net(rounds)
    with LocalSession() as session:
        session.run(group)
    return got


def test_a_data_set_is_read() -> None:
    assert columns_read(lambda ws: None) == [
        [[0, 1], [1, 1], [0, 1]],
        [[2, 3], [1, 1], [2, 3]],
        [[4], [1], [4]],
    ]


@pytest.mark.parametrize(
    ("lengths", "text"),
    [
        (np.full(5, -1, np.int32), "a length is negative"),
        (np.full(5, 9, np.int32), "column 'l:values': expected 18 items at least, found 5"),
        (np.full(5, 1.0), "expected lengths, 1-D integers, found float64"),
    ],
    ids=["negative", "too many", "no integers"],
)
def test_lengths_that_do_not_fit_give_no_wrong_rows(lengths: Any, text: str) -> None:
    with pytest.raises(TaskGroupError, match=text):
        columns_read(lambda ws: ws.feed("d/l:lengths", lengths))


@pytest.mark.parametrize(
    ("cursor", "text"),
    [
        (
            {"fields": ["x", "l:lengths", "l:values"], "offsets": [-1, -1]},
            "a place of at least 0 for each of 2 levels",
        ),
        (
            {"fields": ["x", "l:lengths", "l:values"], "offsets": [0]},
            "a place of at least 0 for each of 2 levels",
        ),
        ({"fields": ["x", "l:lengths", "l:values"], "offsets": ["0", "0"]}, "expected a cursor in 'cursor'"),
        ({"fields": ["x", "l:lengths", "l:values"], "offsets": 3}, "expected a cursor in 'cursor'"),
        ({"fields": [1, 2, 3], "offsets": [0]}, "a name of a column is no text"),
        ({"fields": ["x", "x", "x"], "offsets": [0]}, "a column is named twice"),
        ({"fields": ["x"], "offsets": [0]}, "expected 1 columns"),
    ],
    ids=range(7),
)
def test_a_state_that_is_no_cursor_reads_nothing(cursor: Any, text: str) -> None:
    with pytest.raises(TaskGroupError, match=text):
        columns_read(lambda ws: ws.feed("cursor", cursor))


# ----------------------------------------------------------------------------------------------------- queues


def test_a_queue_survives_a_group_that_did_not_compile() -> None:
    class Fails:
        """Cannot be set up the first time."""

        times = 0

        def setup(self, net: Net) -> None:
            self.times += 1
            if self.times == 1:
                raise OSError("try again")

    got: list[int] = []
    net = Net("n")
    net.add_attribute(TaskGroup.LOCAL_SETUP, Fails())
    with TaskGroup() as group:
        queue = Queue(1)
        pipe(reader_from([[1], [2]]), queue)
        pipe(queue, processor=python_sink(lambda x: got.append(int(x[0]))))
        Task(step=net)
    with LocalSession() as session:
        with pytest.raises(OSError, match="try again"):
            session.run(group)
        session.run(group)
    assert got == [1, 2]
