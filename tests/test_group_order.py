"""What runs before, beside and after tasks: in which order, how often, in which workspace, and whatever happens."""

from __future__ import annotations

import signal
import threading
from collections import Counter as Tally

import pytest

from jobcore import LocalSession, Net, Task, TaskGroup, check_cancelled, ops, sleep
from jobcore.errors import Cancelled, ClosedError, SessionBusyError, TaskGroupError
from jobcore.graph import execution_step
from jobcore.runtime import current_token
from session_tools import FOREVER, after, hang, interrupt_main

pytestmark = pytest.mark.usefixtures("quiet_threads")


def call(function, *of):
    """Write an op that calls a function."""
    ops.Python(lambda inputs, outputs: function(*of))()


def all_blocks(log, name, **body):
    """Write every kind of block into the task that is open, each adding its name to `log`."""
    for kind in ("local_init", "task_init", "task_instance_init"):
        with getattr(ops, kind)():
            call(log.append, f"{name} {kind}")
    for kind in ("task_instance_exit", "task_exit", "local_exit"):
        with getattr(ops, kind)():
            call(log.append, f"{name} {kind}")
    # Far apart, so that only the last report, after the end, is made.
    for kind in ("task_reporter", "local_reporter"):
        with getattr(ops, kind)(interval_ms=1000 * FOREVER):
            call(log.append, f"{name} {kind}")


ORDER = [
    "local_init",
    "task_init",
    "task_instance_init",
    "body",
    "task_reporter",
    "task_instance_exit",
    "task_exit",
    "local_reporter",
    "local_exit",
]


@pytest.mark.parametrize("kind", ["private", "global"])
def test_the_order_of_one_task(session, kind):
    log = []
    with TaskGroup(kind) as group, Task(name="a"):
        all_blocks(log, "a")
        call(log.append, "a body")
    for _ in range(2):
        session.run(group)
        assert log == [f"a {part}" for part in ORDER]
        log.clear()


def test_the_order_of_a_task_with_three_instances(session):
    log, barrier = [], threading.Barrier(3, timeout=60)
    with TaskGroup() as group, Task(name="a", num_instances=3):
        all_blocks(log, "a")
        call(barrier.wait)
        call(log.append, "a body")
    session.run(group)
    order = [entry.removeprefix("a ") for entry in log]
    assert Tally(order) == {
        part: 3 if part in ("task_instance_init", "body", "task_instance_exit") else 1 for part in ORDER
    }
    assert order[:5] == ["local_init", "task_init", *["task_instance_init"] * 3]
    assert order[-4:] == ["task_reporter", "task_exit", "local_reporter", "local_exit"]


def test_local_blocks_run_once_per_node_round_all_its_tasks(session):
    log, barrier = [], threading.Barrier(4, timeout=60)
    with TaskGroup() as group:
        for node in ("n0", "n1"):
            for task in ("a", "b"):
                with Task(node=node, name=task):
                    with ops.local_init():
                        call(log.append, f"init {node}")
                    with ops.local_exit():
                        call(log.append, f"exit {node}")
                    call(barrier.wait)
                    call(log.append, "body")
    session.run(group)
    assert sorted(log[:4]) == ["init n0", "init n0", "init n1", "init n1"]
    assert log[4:8] == ["body"] * 4
    assert sorted(log[8:]) == ["exit n0", "exit n0", "exit n1", "exit n1"]


def test_blocks_may_stand_at_any_depth_and_run_all_the_same(session):
    log = []
    with TaskGroup() as group, Task(name="a"), ops.loop(2), ops.If(ops.Const(False)), ops.stop_guard():
        all_blocks(log, "a")
        call(log.append, "never")
    session.run(group)
    assert log == [f"a {part}" for part in ORDER if part != "body"]


def test_blocks_of_what_is_no_task_run_too(session):
    log = []
    net = Net("n")
    net.Python(lambda inputs, outputs: log.append("body"))()
    with TaskGroup() as group, Task() as task:
        all_blocks(log, "a")
    for runnable in (execution_step("s", task.get_step()), [task.get_step(), lambda ws: None]):
        session.run(runnable)
        assert log == [f"a {part}" for part in ORDER if part != "body"]
        log.clear()
    assert group.num_registered_tasks() == 1


# -- the numbers of the original


def test_a_net_that_is_added_twice_to_a_task_runs_twice(session):
    net = Net("add")
    net.Add(["x", "one"], "x")
    with TaskGroup() as group, Task(outputs=["x"]) as task:
        ops.Const(0, "x")
        ops.Const(1, "one")
        ops.net(net)
        ops.net(net)
    session.run(group)
    assert task.outputs()[0].fetch() == 2


def test_what_task_init_makes_is_there_in_the_body_and_task_exit_sees_the_end(session):
    with TaskGroup() as group, Task() as task:
        with ops.task_init():
            one = ops.Const(1)
        two = ops.Add([one, one])
        with ops.task_init():
            three = ops.Const(3)
        accumulated = ops.Add([two, three])
        with ops.task_exit():
            seven_at_exit = ops.Add([accumulated, one])
        six = ops.Add([accumulated, one])
        ops.Add([accumulated, one], accumulated)
        seven = ops.Add([accumulated, one])
        task.add_outputs([six, seven, seven_at_exit])
    for _ in range(2):
        session.run(group)
        assert [int(output.fetch()) for output in task.outputs()] == [6, 7, 7]


def test_each_of_64_instances_makes_its_own_function_and_calls_it_four_times(session):
    made, called, lock = [], [], threading.Lock()

    def factory():
        with lock:
            made.append(1)

        def count():
            with lock:
                called.append(1)

        return count

    with TaskGroup() as group, Task(num_instances=64):
        with ops.task_instance_init():
            ops.Python(lambda inputs, outputs: outputs[0].feed(factory(), transient=True))([], ["function"])
        with ops.loop(4):
            ops.Python(lambda inputs, outputs: inputs[0].value())(["function"], [])
    session.run(group)
    assert (len(made), len(called)) == (64, 256)


def test_counters_of_a_task_and_of_its_instances(session):
    names = ("all", "squares_of_init", "squares_of_body")
    with TaskGroup() as group, Task(num_instances=10) as task:
        with ops.task_init():
            for name in names:
                ops.CreateCounter([], name)
        with ops.task_instance_init():
            ops.CreateCounter([], "own_init")
        ops.CreateCounter([], "own_body")
        with ops.loop(15):
            ops.CountUp("all")
            ops.CountUp("own_init")
            ops.CountUp("own_body")
        with ops.task_instance_exit():
            for own, total in (("own_init", names[1]), ("own_body", names[2])):
                count = ops.RetrieveCount(own)
                with ops.loop(ops.Mul([count, count])):
                    ops.CountUp(total)
        with ops.task_exit():
            task.add_outputs([ops.RetrieveCount(name, f"{name} in the end") for name in names])
    session.run(group)
    assert [int(output.fetch()) for output in task.outputs()] == [150, 2250, 2250]


# -- workspaces


@pytest.mark.parametrize("kind", ["private", "global"])
def test_who_sees_and_keeps_what_blocks_make(session, kind):
    seen = {}

    def look(name):
        ops.net(lambda ws: seen.setdefault(name, []).append((ws.name, sorted(ws.blob_names()))))

    with TaskGroup(kind) as group:
        for name in ("a", "b"):
            with Task(name=name, num_instances=2 if name == "b" else 1):
                with ops.local_init():
                    ops.Const(1, f"local {name}")
                with ops.task_init():
                    ops.Const(1, f"task {name}")
                with ops.task_instance_init():
                    ops.Const(1, f"instance {name}")
                ops.Const(1, f"body {name}")
                with ops.task_exit():
                    look(name)
    session.run(group)
    ((workspace, of_a),) = seen["a"]
    ((_, of_b),) = seen["b"]
    shared = ["local a", "local b"]
    if kind == "private":
        assert of_a == sorted(["body a", "instance a", *shared, "task a"])
        assert of_b == sorted([*shared, "task b"])
        assert session.workspace().blob_names() == []
        assert workspace == "local/a"
    else:
        assert set(of_a) >= {"body a", "instance a", *shared, "task a"}
        assert sorted(session.workspace().blob_names()) == sorted(
            ["body a", "instance a", *shared, "task a", "task b"]
        )
        assert workspace == "local"


# -- whatever happens

EXITS = ["task_instance_exit", "task_exit", "local_exit"]
LAST = ["task_reporter", "task_instance_exit", "task_exit", "local_reporter", "local_exit"]


def fail():
    raise ValueError("on purpose")


@pytest.mark.parametrize(
    ("where", "then"),
    [
        ("body", LAST),
        ("task_instance_init", ["task_instance_exit", "task_exit", "local_reporter", "local_exit"]),
        ("task_init", ["task_exit", "local_reporter", "local_exit"]),
        ("local_init", ["local_exit"]),
    ],
)
@pytest.mark.parametrize("tasks", [1, 2])
def test_exit_blocks_and_last_reports_of_what_has_begun_run_after_a_failure(session, where, then, tasks):
    log = []
    with TaskGroup() as group:
        with Task(name="a"):
            all_blocks(log, "a")
            if where == "body":
                call(fail)
            else:
                with getattr(ops, where)():
                    call(fail)
        if tasks == 2:
            Task(step=hang, name="b")
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    (failure,) = caught.value.failures
    assert failure.step.endswith("Python")
    assert where == "body" or where in failure.step
    assert failure.task == ("local/local_init" if where == "local_init" else "local/a")
    begun = ORDER[: ORDER.index(where) + (where != "body")]
    assert log == [f"a {part}" for part in begun + then]
    session.run(lambda ws: None)


def test_every_exit_block_runs_and_every_error_is_collected(session):
    ran = []

    def failing(name):
        ran.append(name)
        raise ValueError(name)

    with TaskGroup() as group, Task(name="a", num_instances=2):
        call(fail)
        for kind in EXITS:
            for number in range(2):
                with getattr(ops, kind)():
                    call(failing, f"{kind} {number}")
        with ops.task_reporter(1000 * FOREVER):
            call(failing, "task report")
        with ops.local_reporter(1000 * FOREVER):
            call(failing, "local report")
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    errors = Tally(str(failure.error) for failure in caught.value.failures)
    bodies = errors.pop("on purpose")
    instances = 2 if ran.count("task_instance_exit 0") == 2 else 1
    assert bodies in (1, 2)
    assert errors == Tally(ran)
    assert errors == {
        **{f"{kind} {n}": 1 for kind in EXITS[1:] for n in (0, 1)},
        **{f"task_instance_exit {n}": instances for n in (0, 1)},
        "task report": 1,
        "local report": 1,
    }
    assert str(caught.value.failures[0].error) == "on purpose"


def test_a_failing_exit_block_stops_the_siblings_and_fails_the_run(session):
    with TaskGroup() as group:
        with Task(name="a"), ops.task_exit():
            call(fail)
        Task(step=hang, name="b")
    with pytest.raises(TaskGroupError, match="1 of 2 tasks failed: task 'local/a'"):
        session.run(group)


def test_a_failing_local_exit_alone_fails_the_run_and_clears_the_outputs(session):
    with TaskGroup() as group, Task(name="a", outputs=["x"]):
        ops.Const(1, "x")
        with ops.local_exit():
            call(fail)
    with pytest.raises(TaskGroupError, match="what runs before, beside or after the tasks failed") as caught:
        session.run(group)
    assert caught.value.failures[0].task == "local/local_exit"


def test_exit_blocks_are_shielded_from_the_order_that_is_up(session):
    seen, ended = [], []

    def careful():
        check_cancelled()
        sleep(0)
        seen.append(current_token().cancelled)
        session.run(lambda ws: ended.append("a run of its own"))

    with TaskGroup() as group:
        with Task(name="a", num_instances=2):
            ops.net(hang)
            for kind in EXITS:
                with getattr(ops, kind)():
                    call(careful)
                    ops.net(
                        execution_step(
                            "parts", [lambda ws: careful(), lambda ws: None], concurrent_substeps=True
                        )
                    )
        Task(step=lambda ws: fail(), name="b")
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [str(failure.error) for failure in caught.value.failures] == ["on purpose"]
    assert not any(seen)
    assert len(seen) == len(ended) >= 2


def test_a_concurrent_part_that_fails_in_an_exit_block_stops_its_siblings(session):
    with TaskGroup() as group, Task(name="a"), ops.task_exit():
        ops.net(execution_step("parts", [hang, lambda ws: fail()], concurrent_substeps=True))
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [str(failure.error) for failure in caught.value.failures] == ["on purpose"]


def test_cancelled_raised_by_an_exit_block_is_a_failure(session):
    def gives_up():
        raise Cancelled("on my own")

    with TaskGroup() as group, Task(name="a"), ops.task_exit():
        call(gives_up)
    with pytest.raises(TaskGroupError, match="Cancelled: on my own"):
        session.run(group)


@pytest.mark.parametrize("tasks", [1, 2])
def test_exit_blocks_run_when_the_session_is_closed_and_closing_waits_for_them(tasks):
    log, begun, session = [], threading.Event(), LocalSession()
    with TaskGroup() as group:
        with Task(name="a"):
            all_blocks(log, "a")
            call(begun.set)
            ops.net(hang)
        for number in range(1, tasks):
            Task(step=hang, name=f"b{number}")

    def close():
        assert begun.wait(60)
        session.close()
        log.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(ClosedError):
        session.run(group)
    closer.join()
    assert log == [*(f"a {part}" for part in ORDER if part != "body"), "closed"]


@pytest.mark.parametrize("tasks", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interruption_ends_the_run_and_the_exit_blocks_run(session, tasks, number):
    log, handler = [], signal.getsignal(signal.SIGTERM)

    def leave(number, frame):
        raise SystemExit(143)

    with TaskGroup() as group:
        with Task(name="a"):
            all_blocks(log, "a")
            call(signal.pthread_kill, threading.main_thread().ident, number)
            ops.net(hang)
        for other in range(1, tasks):
            Task(step=hang, name=f"b{other}")
    signal.signal(signal.SIGTERM, leave)
    try:
        with pytest.raises(KeyboardInterrupt if number == signal.SIGINT else SystemExit):
            session.run(group)
    finally:
        signal.signal(signal.SIGTERM, handler)
    assert log == [f"a {part}" for part in ORDER if part != "body"]
    session.run(lambda ws: None)


def test_an_interruption_of_the_local_init_runs_no_task_and_the_local_exit(session):
    log = []
    with TaskGroup() as group, Task(name="a"):
        all_blocks(log, "a")
        with ops.local_init():
            call(interrupt_main)
            ops.net(hang)
    with pytest.raises(KeyboardInterrupt):
        session.run(group)
    assert log == ["a local_init", "a local_exit"]


def test_an_interruption_in_an_exit_block_ends_that_block_alone(session):
    log = []
    with TaskGroup() as group, Task(name="a"):
        with ops.task_exit():
            call(interrupt_main)
            ops.net(hang)
        all_blocks(log, "a")
    with pytest.raises(KeyboardInterrupt):
        session.run(group)
    assert log == [f"a {part}" for part in ORDER if part != "body"]


def test_after_a_second_interruption_the_exit_blocks_run_when_the_stragglers_have_ended(session):
    release, began, log = threading.Event(), threading.Event(), []

    def presses():
        assert began.wait(60)
        interrupt_main()
        current_token().wait()
        interrupt_main()

    with TaskGroup() as group:
        with Task(name="deaf"):
            all_blocks(log, "a")
            call(began.set)
            call(release.wait, 60)
        with Task(name="presses"):
            call(presses)
    with pytest.raises(KeyboardInterrupt):
        session.run(group)
    assert log == ["a local_init", "a task_init", "a task_instance_init"]
    release.set()
    # The next run waits for all of that.
    session.run(lambda ws: log.append("next"))
    assert log == [*(f"a {part}" for part in ORDER if part != "body"), "next"]


def test_a_failure_is_not_lost_when_the_interruption_comes_out(session):
    with TaskGroup() as group, Task(name="a"):
        call(interrupt_main)
        ops.net(hang)
        with ops.local_exit():
            call(fail)
    with pytest.raises(KeyboardInterrupt) as caught:
        session.run(group)
    assert isinstance(caught.value.__context__, TaskGroupError)
    assert [failure.task for failure in caught.value.__context__.failures] == ["local/local_exit"]


def test_an_interruption_of_an_exit_block_after_a_failure_brings_the_failure_along(session):
    with TaskGroup() as group, Task(name="a"):
        call(fail)
        with ops.task_exit():
            call(interrupt_main)
            ops.net(hang)
    with pytest.raises(KeyboardInterrupt) as caught:
        session.run(group)
    assert isinstance(caught.value.__context__, TaskGroupError)
    assert [str(failure.error) for failure in caught.value.__context__.failures] == ["on purpose"]


def test_in_a_closed_session_no_block_runs():
    log, session = [], LocalSession()
    with TaskGroup() as group, Task(name="a"):
        all_blocks(log, "a")
    compiled = session.compile(group)
    session.close()
    for runnable in (group, compiled):
        with pytest.raises(ClosedError):
            session.run(runnable)
    assert log == []


def test_a_task_that_was_cancelled_before_it_began_runs_none_of_its_blocks(session):
    log = []
    with TaskGroup() as group:
        with Task(name="a"):
            with ops.local_init():
                call(fail)
            all_blocks(log, "a")
        Task(step=after(threading.Event(), lambda: None), name="b")
    with pytest.raises(TaskGroupError):
        session.run(group)
    assert log == ["a local_exit"]


def test_closing_during_the_local_init_stops_it_and_the_local_exit_runs():
    log, begun, session = [], threading.Event(), LocalSession()
    with TaskGroup() as group, Task(name="a"):
        all_blocks(log, "a")
        with ops.local_init():
            call(begun.set)
            ops.net(hang)
    closer = threading.Thread(target=after(begun, session.close), args=(None,))
    closer.start()
    with pytest.raises(ClosedError):
        session.run(group)
    closer.join()
    assert log == ["a local_init", "a local_exit"]


@pytest.mark.parametrize(
    "where", ["task_instance_exit", "task_exit", "local_exit", "local_init", "local_reporter"]
)
def test_no_block_can_close_the_session_it_runs_in(session, where):
    with TaskGroup() as group, Task(name="a", num_instances=2), getattr(ops, where)():
        call(session.close)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert {type(failure.error) for failure in caught.value.failures} == {SessionBusyError}
    assert session.is_open()


def in_loop():
    with ops.loop():
        ops.net(hang)
        ops.stop()


def in_if():
    with ops.If(ops.Const(True)), ops.IfNet(ops.Const(True)):
        ops.net(hang)


def in_condition():
    with ops.WhileNet(), ops.Condition():
        ops.net(hang)
        ops.Const(True)


def in_endless_loop_of_ops():
    with ops.loop():
        ops.stop_if(ops.Const(False))


def in_instances():
    ops.net(execution_step("i", [hang], num_concurrent_instances=2, own_workspace=True))


def in_reporter():
    with ops.task_reporter(0.001):
        call(check_cancelled)
    ops.net(hang)


@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize("kind", ["private", "global"])
@pytest.mark.parametrize(
    "write", [in_loop, in_if, in_condition, in_endless_loop_of_ops, in_instances, in_reporter]
)
def test_the_order_to_stop_reaches_every_depth(session, write, kind, instances):
    begun = threading.Semaphore(0)
    with TaskGroup(kind) as group:
        with Task(name="deep", num_instances=instances), ops.stop_guard():
            call(begun.release)
            write()
        Task(step=after_all(begun, instances), name="fails")
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [str(failure.error) for failure in caught.value.failures] == ["on purpose"]


def after_all(begun, count):
    def step(ws):
        for _ in range(count):
            assert begun.acquire(timeout=60)
        fail()

    return step
