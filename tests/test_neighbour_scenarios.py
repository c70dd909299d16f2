"""Scenarios of what jobs are made of, with their numbers: counters, statistics, databases, workers, batches."""

from __future__ import annotations

import itertools
import threading

import numpy as np
import pytest

import jobcore
from jobcore import Net, StatRegistry, Task, TaskGroup, Workspace, ops
from jobcore.data import Dataset, List, Scalar, Struct, pipe, python_sink, reader_from
from jobcore.errors import (
    BlobKindError,
    BlobNotFoundError,
    BuildError,
    MismatchError,
    SaveError,
    TaskGroupError,
)
from op_tools import run
from reader_tools import run_init

pytestmark = pytest.mark.usefixtures("quiet_threads")


def build(write):
    net, ws = Net("n"), Workspace()
    refs = write(net)
    run(net, ws)
    return ws, refs


# -- counters


def test_a_counter_from_one_down_and_up_and_set_back() -> None:
    def write(net):
        c = net.CreateCounter([], "c", init_count=1)
        first, second, up = net.CountDown(c), net.CountDown(c), net.CountUp(c)
        value = net.RetrieveCount(c)
        net.ResetCounter(c, [], init_count=1)
        again = net.CountDown(c)
        return [first, second, up, value, again, net.ResetCounter(c, init_count=5), net.ResetCounter(c)]

    ws, refs = build(write)
    assert [ws.fetch(ref).item() for ref in refs] == [False, True, -1, 0, False, 0, 5]


def test_a_counter_is_what_it_was_when_it_was_saved(tmp_path) -> None:
    path = tmp_path / "counter.zarr.zip"

    def write(net):
        c = net.CreateCounter([], "c", init_count=22)
        net.Save(c, db=path)
        for _ in range(10):
            net.CountDown(c)
        less = net.RetrieveCount(c)
        net.Load([], [c], db=path)
        return less, net.RetrieveCount(c)

    ws, (less, loaded) = build(write)
    assert (ws.fetch(less), ws.fetch(loaded)) == (12, 22)


# -- statistics


def test_two_keys_twice_are_two_keys_and_go_on_into_another_registry() -> None:
    def write(net):
        net.Const(["34", "45"], "keys")
        net.Const([1, 1], "ones")
        one, other = net.StatRegistryCreate([], "one"), net.StatRegistryCreate([], "other")
        for _ in range(2):
            net.StatRegistryUpdate(["keys", "ones", one], [])
        net.StatRegistryExport(one, ["k1", "v1", "t1"], reset=False)
        net.StatRegistryUpdate(["k1", "v1", other], [])
        net.StatRegistryExport(other, ["k2", "v2", "t2"])

    ws, _ = build(write)
    for at in "12":
        assert sorted(ws.fetch(f"k{at}").tolist()) == ["34", "45"]
        assert ws.fetch(f"v{at}").tolist() == [2, 2]
        assert len(ws.fetch(f"t{at}")) == 2


def test_what_many_threads_count_is_exported_once(together) -> None:
    stats = StatRegistry()
    for each, total in ((10, 100), (5, 50)):
        together(10, lambda _, each=each: [stats.add("n") for _ in range(each)])
        assert [s.value for s in stats.export(reset=True)] == [total]
        assert [s.value for s in stats.export()] == [0]


# -- databases


def test_blobs_are_loaded_under_new_names_beside_those_that_are_there(tmp_path) -> None:
    path = tmp_path / "a.zarr.zip"
    ws, net = Workspace(), Net("save")
    for name in "xyz":
        ws.feed(name, np.full(4, ord(name)))
    assert len(ws) == 3
    net.Save(list("xyz"), db=path, blob_name_overrides=["a", "b", "c"])
    run(net, ws)
    one, all_of_them = Net("one"), Net("all")
    one.Load([], ["a"], db=path)
    run(one, ws)
    assert len(ws) == 4
    all_of_them.Load(db=path, load_all=True)
    run(all_of_them, ws)
    assert len(ws) == 6
    assert [int(ws.fetch(name)[0]) for name in "abc"] == [ord(name) for name in "xyz"]


def test_two_databases_of_ten_blobs_are_twenty(tmp_path) -> None:
    paths = []
    for part in range(2):
        paths.append(tmp_path / f"{part}.zarr.zip")
        jobcore.save(paths[-1], {f"blob{10 * part + i}": np.int64(10 * part + i) for i in range(10)})
    ws, net = Workspace(), Net("load")
    net.Load(dbs=paths, load_all=True)
    run(net, ws)
    assert {name: int(ws.fetch(name)) for name in ws} == {f"blob{i}": i for i in range(20)}
    jobcore.save(tmp_path / "same.zarr.zip", {"blob3": 3})
    clash = Net("clash")
    clash.Load(dbs=[paths[0], tmp_path / "same.zarr.zip"], load_all=True)
    with pytest.raises(MismatchError, match="'blob3'"):
        run(clash, ws)


@pytest.mark.parametrize("op_type", ["Checkpoint", "Snapshot"])
def test_every_tenth_iteration_is_saved(tmp_path, op_type) -> None:
    net, ws = Net("train"), Workspace()
    ws.feed("value", np.float32(0))
    net.Iter([], "iter")
    net.Copy("iter", "value")
    net.add_op(op_type, ["iter", "value"], [], db=tmp_path / "test%05d.zarr.zip", every=10)
    for _ in range(100):
        run(net, ws)
    found = sorted(path.name for path in tmp_path.iterdir())
    assert found == [f"test{n:05}.zarr.zip" for n in range(10, 101, 10)]
    for number in (10, 90, 100):
        blobs = jobcore.load(tmp_path / f"test{number:05}.zarr.zip")
        assert {name: int(value) for name, value in blobs.items()} == {"iter": number, "value": number}
    # A second run over the same files is told, and damages none.
    ws.feed("iter", np.int64(9))
    with pytest.raises(SaveError):
        run(net, ws)
    assert int(jobcore.load(tmp_path / "test00010.zarr.zip")["iter"]) == 10


def test_a_checkpoint_that_could_not_work_is_refused(tmp_path) -> None:
    net = Net("n")
    for db, says in (
        ("run.zarr.zip", "one place for the iteration"),
        ("run%%.zarr.zip", "one place for the iteration"),
        ("run%.0s.zarr.zip", "expected a place for the iteration"),
        ("run%d%d.zarr.zip", "one place for the iteration"),
        ("run%(x)d.zarr.zip", "one place for the iteration"),
        ("run%", "one place for the iteration"),
    ):
        with pytest.raises(BuildError, match=says):
            net.Checkpoint(["i"], [], db=db)
    with pytest.raises(BuildError, match="at least 1"):
        net.Checkpoint(["i"], [], db="run%d.zarr.zip", every=0)
    with pytest.raises(BuildError, match="'db' is missing"):
        net.Checkpoint(["i"], [])
    net.Checkpoint(["i"], [], db=str(tmp_path / "run%d.zarr.zip"))
    for value in (1.5, np.arange(2), "text"):
        ws = Workspace()
        ws.feed("i", value)
        with pytest.raises(BlobKindError, match="expected a single integer"):
            run(net, ws)
    assert list(tmp_path.iterdir()) == []


# -- queues and workers


def test_eight_producers_and_three_consumers_hand_over_nested_rows(session) -> None:
    schema = Struct(("rows", List(Struct(("key", Scalar(np.int64)), ("value", Scalar(np.int64))))))
    source, target = Dataset(schema, name="source"), Dataset(schema, name="target")
    columns = {
        "rows:lengths": np.array([1, 2, 3], np.int32),
        "rows:values:key": np.array([10, 20, 20, 30, 30, 40]),
        "rows:values:value": np.array([1, 2, 2, 3, 3, 4]),
    }
    run_init(session, (source, columns), (target, None))
    with TaskGroup() as group:
        queue = pipe(source.reader(), num_runtime_threads=8)
        pipe(queue, target, num_runtime_threads=3)
    session.run(group)
    sums = [int(session.workspace().fetch(blob).sum()) for blob in target.get_blobs()]
    assert sums == [6, 150, 15]


def test_two_workers_feed_ten_values_each(session) -> None:
    """What is set up comes before any worker, what cleans up after the last, and each value once."""
    log, lock = [], threading.Lock()

    def note(what):
        return lambda inputs, outputs: log.append(what)

    def work(inputs, outputs):
        with lock:
            log.append("work")
        outputs[0].feed(str(int(inputs[0].fetch())))

    with TaskGroup() as group:
        with Task(name="workers", num_instances=2):
            with ops.local_init():
                ops.Python(note("init"))()
                ops.CreateBlobsQueue([], "queue", capacity=3, num_writers=2)
            with ops.task_init():
                ops.CreateCounter([], "number")
            ops.CountUp("number", "mine")
            with ops.loop(10):
                ops.Python(work)(["mine"], ["text"])
                ops.EnqueueBlobs(["queue", "text"])
            with ops.task_instance_exit():
                ops.FinishQueueWriter("queue")
            with ops.local_exit():
                ops.Python(note("shutdown"))()
        with Task(name="reader"), ops.loop():
            ops.SafeDequeueBlobs("queue", ["found", "over"])
            ops.stop_if("over")
            ops.Python(lambda inputs, outputs: log.append(inputs[0].fetch()))(["found"], [])
    session.run(group)
    assert (log[0], log[-1]) == ("init", "shutdown")
    assert [log.count(what) for what in ("init", "work", "0", "1", "shutdown")] == [1, 20, 10, 10, 1]


def test_five_hundred_batches_of_exactly_32(session) -> None:
    """Two fetchers of batches of any size; the columns of what is batched anew stay beside each other."""
    rows = 500 * 32
    sizes = itertools.cycle([1, 7, 40, 32, 100, 3])
    starts = [0]
    while starts[-1] < rows:
        starts.append(min(starts[-1] + next(sizes), rows))
    batches = [(np.arange(a, b), np.arange(a, b)[:, None] * [1, 2]) for a, b in itertools.pairwise(starts)]
    found = []
    with TaskGroup() as group:
        with Task(name="fetch", num_instances=2):
            with ops.local_init():
                ops.CreateRebatchingQueue([], "queue", capacity=100, num_blobs=2)
                ops.RegisterQueueWriter("queue", count=2)
            with ops.task_init():
                ops.CreateCounter([], "next")
            with ops.loop():
                ops.CountUp("next", "at")
                ops.stop_if(ops.GE(["at", ops.Const(len(batches))]))

                def fetch(inputs, outputs):
                    for blob, value in zip(outputs, batches[int(inputs[0].fetch())], strict=True):
                        blob.feed(value)

                ops.Python(fetch)(["at"], ["label", "pair"])
                ops.EnqueueRebatchingQueue(["queue", "label", "pair"], enqueue_batch=True)
            with ops.task_instance_exit():
                ops.FinishQueueWriter("queue")
        with Task(name="train"), ops.loop(500):
            ops.DequeueRebatchingQueue("queue", ["labels", "pairs"], num_elements=32)
            ops.Python(lambda inputs, outputs: found.append([blob.fetch() for blob in inputs]))(
                ["labels", "pairs"], []
            )
    session.run(group)
    assert [len(labels) for labels, _ in found] == [32] * 500
    assert all((pairs == labels[:, None] * [1, 2]).all() for labels, pairs in found)
    assert sorted(np.concatenate([labels for labels, _ in found])) == list(range(rows))


# -- outputs of tasks with instances


@pytest.mark.parametrize("workspace_type", ["private", "global"])
def test_an_output_that_each_instance_has_for_itself_is_an_error(session, workspace_type) -> None:
    for how in ("op", "function"):
        with TaskGroup(workspace_type) as group:
            if how == "op":
                with Task(name="t", num_instances=3) as task:
                    ops.Const(1, "own")
            else:
                task = Task(lambda ws: ws.feed("own", 1), name="t", num_instances=3)
            task.add_output("own")
        with pytest.raises(TaskGroupError, match=r"'own'.*each of the 3 instances.*task_exit") as caught:
            session.run(group)
        assert isinstance(caught.value.failures[0].error, BlobNotFoundError)


def test_what_instances_share_is_an_output(session) -> None:
    session.workspace().feed("above", 1)
    with TaskGroup() as group, Task(num_instances=3) as task:
        with ops.task_init():
            ops.CreateCounter([], "shared")
        ops.CountUp("shared")
        ops.Const(5, "above")
        with ops.task_exit():
            ops.RetrieveCount("shared", "total")
        task.add_outputs(["shared", "above", "total"])
    session.run(group)
    shared, above, total = (output.fetch() for output in task.outputs())
    assert (shared.retrieve(), int(above), int(total)) == (3, 5, 3)


def test_a_reader_of_plain_python_ends_a_job_of_workers(session) -> None:
    seen, lock = [], threading.Lock()

    def keep(number):
        with lock:
            seen.append(int(number))

    with TaskGroup() as group:
        pipe(reader_from(range(200)), processor=python_sink(keep), num_runtime_threads=3)
    session.run(group)
    assert sorted(seen) == list(range(200))
