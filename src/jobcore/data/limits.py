"""Readers that end before their source does, or take their time; and one that only counts."""

from __future__ import annotations

import operator

import numpy as np

from jobcore.data.reader import Part, Reader, one_round
from jobcore.data.schema import Scalar, Struct
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, Net

__all__ = [
    "CountUntil",
    "CounterReader",
    "ReaderWithDelay",
    "ReaderWithLimit",
    "ReaderWithLimitBase",
    "ReaderWithTimeLimit",
]


class CounterReader(Reader):
    """Gives endless records of one column ``iter``: 0, 1, 2 and so on, a scalar int64.

    All instances of a task count together. The counter is made by `setup_ex`, or by `init_net` and nowhere else.

    Parameters
    ----------
    init_net
        Makes the counter: in a job's init group, it goes on from epoch to epoch and after a resume.
    """

    def __init__(self, init_net: Net | None = None) -> None:
        super().__init__(Struct(("iter", Scalar(np.int64))))
        self.counter: BlobReference | None = None
        self._persistent = False
        if init_net is not None:
            self.setup_ex(init_net, init_net)
            self._persistent = True

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:  # noqa: ARG002 - nothing is to be done at the end
        """Add the making of the counter, unless that was done where the reader was made."""
        if self._persistent:
            return
        if self.counter is None:
            self.counter = init_net.next_blob("counter")
        init_net.CreateCounter([], self.counter, init_count=0)

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the ops that take the next number."""
        counter = _made(self.counter, self)
        stop = net.Const(False, net.next_blob("should_stop"))
        return stop, [net.CountUp(counter, net.next_blob("iter"))]

    def peek_end(self, net: Net) -> BlobReference:
        """Add an op that says no: there is always one more number."""
        return net.Const(False, net.next_blob("at_end"))

    def reset(self, net: Net) -> None:
        """Add an op that goes back to 0."""
        net.ResetCounter(_made(self.counter, self), [])


def _made(blob: BlobReference | None, reader: Reader) -> BlobReference:
    if blob is None:
        raise BuildError(
            f"expected {reader!r} to be set up, found that it is not",
            hint="call setup_ex first, as pipe does",
        )
    return blob


class ReaderWithLimitBase(Reader):
    """Ends where a limit says, or with the reader inside. Base of the limits.

    A subclass defines `setup_limit` and `check_limit`.

    Parameters
    ----------
    reader
        The source.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__(reader._schema)
        self.reader = reader
        self._data_finished: BlobReference | None = None

    def schema(self) -> object:
        """Return the form of the records."""
        return self.reader.schema()

    def data_finished(self) -> BlobReference:
        """Return the blob that tells whether the source came to its end, a boolean scalar.

        It is false when a task begins, and true from when any of its instances has found nothing more. When the limit
        ended the reading, the source is asked once more without reading: one that can tell (a data set, or readers of
        data sets side by side) makes it true if the last record was its very last. For any other source (a queue, which
        may be closed at any moment later), a limit of exactly its size leaves it false.

        Raises
        ------
        BuildError
            The reader was not set up yet.
        """
        return _made(self._data_finished, self)

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add the making of `data_finished` and the limit, and what the source needs."""
        if self._data_finished is None:
            self._data_finished = init_net.next_blob("data_finished")
        init_net.CreateAtomicBool([], self._data_finished)
        self.setup_limit(init_net, finish_net)
        self.reader.setup_ex(init_net, finish_net)

    def setup_limit(self, init_net: Net, finish_net: Net) -> None:
        """Add the making of the limit, once per task."""
        raise NotImplementedError(f"{type(self).__name__} does not say what its limit is")

    def check_limit(self, net: Net) -> BlobReference | None:
        """Add ops that tell whether the limit is reached; return a boolean scalar, or None for no limit."""
        raise NotImplementedError(f"{type(self).__name__} does not say when its limit is reached")

    def read_ex(
        self, init_net: Net, finish_net: Net
    ) -> tuple[list[Part], BlobReference, list[BlobReference]]:
        """Make the nets of one round: look at the limit, read, and note whether that was the end."""
        finished = self.data_finished()
        before = Net("limit")
        reached = self.check_limit(before)
        if reached is None:
            # Not the stop blob of the source: with that, the round would end before it is noted down.
            reached = before.Const(False, before.next_blob("should_stop"))
        else:
            # Each instance asks when it is done. The last one does so when all that was begun is read.
            at_end = self.reader.peek_end(finish_net)
            if at_end is not None:
                finish_net.ConditionalSetAtomicBool([finished, at_end])
        nets, stop, fields = self.reader.read_ex(init_net, finish_net)
        after = Net("limit_after")
        after.ConditionalSetAtomicBool([finished, stop])
        after.Copy(stop, reached)
        return [before, *one_round(nets, stop), after], reached, fields

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Refuse: a round needs a test before the read.

        Raises
        ------
        BuildError
            Always.
        """
        raise BuildError(
            f"{self!r} cannot read in a single net ({net.name!r}): nothing in a net comes between its limit and a read",
            hint="use read_ex or read_record_ex",
        )

    def peek_end(self, net: Net) -> BlobReference | None:
        """Add ops that tell whether the source has nothing left; None where it cannot tell."""
        return self.reader.peek_end(net)

    def reset(self, net: Net) -> None:
        """Add ops that go back to the first record of the source; the limit stays as far as it is."""
        self.reader.reset(net)


class ReaderWithLimit(ReaderWithLimitBase):
    """Ends after a number of records.

    Parameters
    ----------
    reader
        The source.
    num_iter
        How many records (batches, where the source gives those) per task run, of all instances together. 0 is none,
        and None is no limit.

    Raises
    ------
    BuildError
        `num_iter` is negative, or no integer.
    """

    def __init__(self, reader: Reader, num_iter: int | None = 1) -> None:
        super().__init__(reader)
        self._num_iter: int | None = None
        self._counter: BlobReference | None = None
        if num_iter is not None:
            wrong = isinstance(num_iter, bool) or not hasattr(num_iter, "__index__")
            if wrong or operator.index(num_iter) < 0:
                raise BuildError(
                    f"expected as num_iter a number of records of at least 0, or None, found {num_iter!r}",
                    hint="None is no limit",
                )
            self._num_iter = operator.index(num_iter)

    def setup_limit(self, init_net: Net, finish_net: Net) -> None:  # noqa: ARG002 - nothing is to be done at the end
        """Add the making of a counter of what may still be read."""
        if self._num_iter is not None:
            if self._counter is None:
                self._counter = init_net.next_blob("limit")
            init_net.CreateCounter([], self._counter, init_count=self._num_iter)

    def check_limit(self, net: Net) -> BlobReference | None:
        """Add an op that counts down."""
        if self._num_iter is None:
            return None
        reached: BlobReference = net.CountDown(_made(self._counter, self), net.next_blob("should_stop"))
        return reached


class CountUntil(ReaderWithLimit):
    """Gives records of one column ``iter``: 0 to `num_iter` - 1, each once over all instances of a task."""

    def __init__(self, num_iter: int | None) -> None:
        super().__init__(CounterReader(), num_iter)


class ReaderWithTimeLimit(ReaderWithLimitBase):
    """Ends when a time is over; it is looked at before each read.

    Parameters
    ----------
    reader
        The source.
    duration
        Seconds from the begin of the task; 0 and None are no limit.

    Raises
    ------
    BuildError
        `duration` is negative, infinite or no number.
    """

    def __init__(self, reader: Reader, duration: float | None = 0) -> None:
        super().__init__(reader)
        self._duration = _seconds(0 if duration is None else duration, "duration", "0 and None are no limit")
        self._deadline: BlobReference | None = None

    def setup_limit(self, init_net: Net, finish_net: Net) -> None:  # noqa: ARG002 - nothing is to be done at the end
        """Add the fixing of the time when it is over."""
        if self._duration > 0:
            if self._deadline is None:
                self._deadline = init_net.next_blob("deadline")
            init_net.CreateDeadline([], self._deadline, seconds=self._duration)

    def check_limit(self, net: Net) -> BlobReference | None:
        """Add an op that looks at the clock."""
        if not self._duration > 0:
            return None
        over: BlobReference = net.DeadlinePassed(_made(self._deadline, self), net.next_blob("should_stop"))
        return over


class ReaderWithDelay(Reader):
    """Sleeps before each read: a slow source, for trying what comes after it.

    Parameters
    ----------
    reader
        The source.
    delay
        Seconds, at least 0.
    """

    def __init__(self, reader: Reader, delay: float) -> None:
        super().__init__(reader._schema)
        self.reader = reader
        self._delay = _seconds(delay, "delay", None)

    def schema(self) -> object:
        """Return the form of the records."""
        return self.reader.schema()

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add what the source needs."""
        self.reader.setup_ex(init_net, finish_net)

    def read_ex(
        self, init_net: Net, finish_net: Net
    ) -> tuple[list[Part], BlobReference, list[BlobReference]]:
        """Make the nets of one round: sleep, then read."""
        nets, stop, fields = self.reader.read_ex(init_net, finish_net)
        delay = Net("delay")
        delay.Const(False, stop)
        delay.Sleep([], [], seconds=self._delay)
        return [delay, *nets], stop, fields

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the ops of one round."""
        net.Sleep([], [], seconds=self._delay)
        return self.reader.read(net)

    def peek_end(self, net: Net) -> BlobReference | None:
        """Add ops that tell whether the source has nothing left; None where it cannot tell."""
        return self.reader.peek_end(net)

    def reset(self, net: Net) -> None:
        """Add ops that go back to the first record."""
        self.reader.reset(net)


def _seconds(value: float, what: str, hint: str | None) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = -1.0
    if isinstance(value, str) or not 0 <= number < float("inf"):
        raise BuildError(f"expected as {what} seconds, finite and at least 0, found {value!r}", hint=hint)
    return number
