"""Registries of statistics: exact under threads, exported whole, and fed from nets."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from jobcore import Counter, LocalSession, NetBuilder, StatRegistry, Timer, Workspace, ops, stat_registry
from jobcore.errors import BlobKindError, BlobValueError, TaskGroupError
from jobcore.lowlevel import Blob, BlobQueue, QueueTotals, RebatchingQueue


@pytest.fixture
def process():
    """The registry of the process, with nothing of other tests in it."""
    stat_registry().export(reset=True)
    return stat_registry()


def values(stats, reset=False):
    return {found.name: found.value for found in stats.export(reset=reset) if found.value}


def run(build, ws=None):
    with NetBuilder("net") as builder:
        build()
    with LocalSession(Workspace() if ws is None else ws) as session:
        session.run(builder)
        return session.workspace()


class TestRegistry:
    def test_a_name_is_one_number(self):
        stats = StatRegistry()
        assert stats.counter("a") is stats.counter("a")
        stats.add("a", 5)
        stats.add("a", -7)
        stats.add("b")
        assert [(found.name, found.value) for found in stats.export()] == [("a", -2), ("b", 1)]
        assert len(stats) == 2
        assert "2" in repr(stats)

    def test_what_is_set_back_is_counted_once(self):
        stats = StatRegistry()
        stop = threading.Event()
        got = []

        def read():
            while not stop.is_set():
                got.append(values(stats, reset=True).get("n", 0))

        reader = threading.Thread(target=read)
        reader.start()
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(lambda _: [stats.add("n", 3) for _ in range(5000)], range(4)))
        stop.set()
        reader.join()
        assert sum(got) + values(stats).get("n", 0) == 60_000

    def test_numbers_of_one_registry_are_added_to_another(self):
        one, other = StatRegistry(), StatRegistry()
        for _ in range(2):
            one.update(["k1", "k2"], [0, 2])
        found = one.export()
        assert [entry.value for entry in found] == [0, 4]
        other.update([entry.name for entry in found], [entry.value for entry in one.export(reset=True)])
        assert [entry.value for entry in other.export()] == [0, 4]
        assert [entry.value for entry in one.export()] == [0, 0]
        assert all(entry.time_ns > 1_700_000_000 * 10**9 for entry in found)

    @pytest.mark.parametrize(
        ("names", "numbers"),
        [(["a"], []), (["a", "b"], [1, 2**63]), (["a", ""], [1, 1]), (["a"], [-(2**63) - 1])],
    )
    def test_an_update_that_does_not_fit_adds_nothing(self, names, numbers):
        stats = StatRegistry()
        with pytest.raises(BlobValueError):
            stats.update(names, numbers)
        assert values(stats) == {}

    def test_text_for_a_scraper(self):
        stats = StatRegistry()
        stats.add("rows/read", 12)
        stats.add('odd "name"\\\n', -1)
        text = stats.openmetrics()
        assert text.splitlines()[2:] == [
            'jobcore_statistic{name="rows/read"} 12',
            'jobcore_statistic{name="odd \\"name\\"\\\\\\n"} -1',
            "# EOF",
        ]
        assert text.startswith("# TYPE jobcore_statistic gauge\n")
        assert text.endswith("# EOF\n")

    def test_a_name_is_text(self):
        for name in ("", None, 3):
            with pytest.raises(BlobValueError, match="name of a statistic"):
                StatRegistry().counter(name)


class TestTimers:
    def test_several_timers_have_common_totals(self):
        stats = StatRegistry()
        totals = stats.counter("t/time_ns/sum"), stats.counter("t/time_ns/count")
        timers = [Timer("t", totals) for _ in range(3)]
        for timer in timers:
            timer.begin()
            timer.end()
        assert values(stats)["t/time_ns/count"] == 3
        assert values(stats)["t/time_ns/sum"] == sum(timer.sum_ns for timer in timers)

    def test_totals_are_counters(self):
        for totals in ((None, None), (Counter(), 1), (Counter(), None)):
            with pytest.raises(TypeError):
                Timer("t", totals)

    def test_the_ops_report_under_the_given_name(self, process):
        def build():
            for name in ("t", "u"):
                ops.TimerBegin([], name, counter_name="load")
                ops.TimerEnd(name, [])

        run(build)
        assert values(process)["load/time_ns/count"] == 2


class TestOps:
    def test_export_and_update(self, process):
        process.add("before", 4)

        def build():
            own = ops.StatRegistryCreate([], "own")
            ops.StatRegistryExport([], ["names", "values", "times"], reset=False)
            ops.StatRegistryUpdate(["names", "values", own], [])
            ops.StatRegistryUpdate(["names", "values", own], [])
            ops.StatRegistryExport(own, ["names2", "values2", "times2"])
            ops.StatRegistryExport(own, ["names3", "values3", "times3"])

        ws = run(build)
        at = ws["names"].tolist().index("before")
        assert ws["values"][at] == 4
        assert ws["values2"][ws["names2"].tolist().index("before")] == 8
        assert not ws["values3"].any()
        assert ws["names3"].tolist() == ws["names2"].tolist()
        assert ws["times"].dtype == ws["values"].dtype == np.int64
        assert values(process)["before"] == 4

    def test_numbers_are_put(self, process):
        def build():
            ops.Const(15.1111, "x")
            ops.AveragePut("x", [], stat_name="a", magnitude_expand=10_000)
            ops.IncrementPut("x", [])
            ops.IncrementPut("x", [])
            ops.Const(-3, "y")
            for _ in range(2):
                ops.StdDevPut("y", [], stat_name="d")

        run(build)
        assert values(process) == {
            "a/stat_value/sum": 151_111,
            "a/stat_value/count": 1,
            "x/stat_value": 30,
            "d/stat_value/sum": -6,
            "d/stat_value/sumsq": 18,
            "d/stat_value/count": 2,
        }

    @pytest.mark.parametrize(
        ("value", "bound", "expected"),
        [
            (9e18, True, 2**63 - 1),
            (-9e18, True, -(2**63)),
            (float("inf"), True, 2**63 - 1),
            (float("nan"), True, 0),
            (9e18, False, "fits 64 bits"),
            (float("nan"), False, "finite"),
        ],
    )
    def test_what_does_not_fit(self, process, value, bound, expected):
        def build():
            ops.Const(value, "x")
            ops.IncrementPut("x", [], magnitude_expand=10, bound=bound)

        if isinstance(expected, str):
            with pytest.raises(TaskGroupError, match=expected):
                run(build)
        else:
            run(build)
            assert process.counter("x/stat_value").retrieve() == expected

    def test_an_empty_input_needs_a_default(self, process):
        for empty in (lambda ws: ws.create_blob("x"), lambda ws: ws.feed("x", np.zeros(0))):
            ws = Workspace()
            empty(ws)
            run(lambda: ops.AveragePut("x", [], default_value=16, magnitude_expand=10**12), ws)
            with pytest.raises(TaskGroupError, match="default_value"):
                run(lambda: ops.AveragePut("x", []), ws)
        assert values(process) == {"x/stat_value/sum": 32 * 10**12, "x/stat_value/count": 2}

    def test_other_inputs_are_refused(self):
        ws = Workspace()
        ws.feed("x", np.zeros(2))
        ws.feed("s", "text")
        for build in (
            lambda: ops.AveragePut("x", []),
            lambda: ops.AveragePut("s", []),
            lambda: ops.StatRegistryExport("x", ["a", "b", "c"]),
            lambda: ops.StatRegistryUpdate(["x", "x"], []),
        ):
            with pytest.raises(TaskGroupError) as raised:
                run(build, ws)
            assert isinstance(raised.value.exceptions[0], BlobKindError)


class TestWatched:
    def test_a_queue_is_read_when_the_registry_is(self):
        stats, queue = StatRegistry(), BlobQueue(4, 2, field_names=["x", "text"])
        stats.watch("in", queue.totals)
        queue.put([np.zeros(3), "ab"])
        queue.put([np.zeros(1), "c"])
        queue.get()
        assert values(stats) == {
            "in/queue_balance": 1,
            "in/queue_enqueued_records": 2,
            "in/queue_enqueued_bytes": 35,
            "in/queue_enqueued_bytes/x": 32,
            "in/queue_enqueued_bytes/text": 3,
            "in/write_time_ns/count": 2,
            "in/queue_dequeued_records": 1,
            "in/queue_dequeued_bytes": 26,
            "in/queue_dequeued_bytes/x": 24,
            "in/queue_dequeued_bytes/text": 2,
            "in/read_time_ns/count": 1,
        }
        assert 'jobcore_statistic{name="in/queue_dequeued_bytes/x"} 24' in stats.openmetrics()

    def test_counts_are_set_back_and_a_balance_is_not(self):
        stats, queue = StatRegistry(), BlobQueue(8)
        stats.watch("q", queue.totals)
        for number in range(3):
            queue.put([1])
            found = values(stats, reset=True)
            assert (found["q/queue_enqueued_records"], found["q/queue_balance"]) == (1, number + 1)
        assert values(stats) == {"q/queue_balance": 3}

    def test_what_went_through_stays_when_the_queue_is_gone(self):
        stats = StatRegistry()
        for number in range(1, 4):
            queue = BlobQueue(8)
            stats.watch("q", queue.totals)
            totals = queue.totals
            queue.put([1])
            del queue
            assert totals.ended
            assert totals.read()["queue_balance"] == 0
            assert values(stats)["q/queue_enqueued_records"] == number
        assert stats._watched == []
        assert "final" in repr(totals)

    def test_queues_of_one_name_are_added_up(self):
        stats, queues = StatRegistry(), [RebatchingQueue(9), RebatchingQueue(9)]
        for queue in queues:
            stats.watch("q", queue.totals)
            queue.enqueue([np.arange(4)], batch=True)
        stats.add("q/queue_enqueued_records", 100)
        assert values(stats)["q/queue_enqueued_records"] == 108
        assert values(stats)["q/queue_balance"] == 8

    def test_a_name_is_wanted_and_totals_come_from_queues(self):
        with pytest.raises(BlobValueError, match="expected the name of what is watched"):
            StatRegistry().watch("", BlobQueue().totals)
        with pytest.raises(TypeError, match="expected the `totals` of a queue"):
            QueueTotals()

    def test_what_is_set_back_is_counted_once(self, together):
        stats, queue = StatRegistry(), BlobQueue(50)
        stats.watch("q", queue.totals)
        queue.register_writer()

        def work(number):
            got = 0
            if number == 0:
                for _ in range(3000):
                    queue.put([1])
                queue.writer_done()
            elif number == 1:
                while queue.get_into([Blob("x")]):
                    got += 0
            else:
                while not queue.closed:
                    got += values(stats, reset=True).get("q/queue_enqueued_records", 0)
            return got

        assert sum(together(4, work)) + values(stats).get("q/queue_enqueued_records", 0) == 3000
