"""Set-up objects and report steps: what nets bring along for their task, and groups for their nodes."""

from __future__ import annotations

import pytest

from jobcore import LocalSession, Net, NetBuilder, Node, SetupNets, Task, TaskGroup, ops
from jobcore.errors import BuildError, TaskGroupError
from jobcore.graph import execution_step
from session_tools import add, concurrent

pytestmark = pytest.mark.usefixtures("quiet_threads")

NEVER_MS = 3_600_000


class Setup:
    """A set-up object that counts how often it is asked."""

    def __init__(self, log, name, returns=None):
        self.log, self.name, self.returns, self.asked = log, name, returns, []

    def _say(self, net, phase):
        self.asked.append(phase)
        net.Python(lambda inputs, outputs: self.log.append(f"{self.name} {phase}"))()
        return self.returns

    def setup(self, net):
        return self._say(net, "setup")

    def exit(self, net):
        return self._say(net, "exit")


def net_with(*attributes, name="n"):
    net = Net(name)
    net.Const(1, f"made by {name}")
    for key, value in attributes:
        net.add_attribute(key, value)
    return net


def logged(log, name):
    net = Net(name)
    net.Python(lambda inputs, outputs: log.append(name))([], [])
    return net


def test_objects_run_in_the_order_of_the_nets_before_and_after(session):
    log, group = [], TaskGroup()
    first, second = Setup(log, "first"), Setup(log, "second", lambda ws: log.append("second more"))
    instance, local = Setup(log, "instance"), Setup(log, "local")
    nets = [
        net_with((Task.TASK_SETUP, first), (TaskGroup.LOCAL_SETUP, local), name="a"),
        net_with((Task.TASK_INSTANCE_SETUP, instance), (Task.TASK_SETUP, second), name="b"),
        net_with((Task.TASK_SETUP, first), name="c"),
    ]
    Task([*nets, lambda ws: log.append("body")], group=group, name="t")
    order = [
        "local setup", "first setup", "second setup", "second more", "instance setup", "body",
        "instance exit", "first exit", "second exit", "second more", "local exit",
    ]  # fmt: skip
    for _ in range(2):
        session.run(group)
        assert log == order
        log.clear()
    # Once per build, whatever is compiled of it how often.
    LocalSession.compile(group)
    assert [item.asked for item in (first, second, instance, local)] == [["setup", "exit"]] * 4


def test_set_up_nets(session):
    log = []
    setup = SetupNets([logged(log, "i0"), logged(log, "i1")], logged(log, "e0"))
    assert repr(SetupNets()) == "SetupNets(init_nets=None, exit_nets=None)"
    session.run(
        [net_with((Task.TASK_SETUP, setup), (Task.TASK_SETUP, SetupNets())), lambda ws: log.append("body")]
    )
    assert log == ["i0", "i1", "body", "e0"]


@pytest.mark.parametrize(
    "returned",
    [
        lambda log: logged(log, "more"),
        lambda log: execution_step("s", logged(log, "more")),
        lambda log: [logged(log, "more"), lambda ws: log.append("function")],
        lambda log: lambda ws: log.append("more"),
        lambda log: None,
        lambda log: [],
        lambda log: execution_step("empty", []),
    ],
)
def test_an_object_may_return_anything_that_becomes_a_step(session, returned):
    log = []

    class Only:
        def setup(self, net):
            return returned(log)

    session.run(net_with((Task.TASK_SETUP, Only())))
    assert log in (["more"], ["more", "function"], [])


@pytest.mark.parametrize(
    ("item", "match"),
    [
        (object(), r"expected an object with a method setup\(net\) or exit\(net\)"),
        (SetupNets(3), "expected an ExecutionStep, a Net, .* found int: 3"),
        (SetupNets(exit_nets="text"), "found str: 'text'"),
    ],
)
@pytest.mark.parametrize("key", [Task.TASK_SETUP, Task.TASK_INSTANCE_SETUP, TaskGroup.LOCAL_SETUP])
def test_what_is_no_set_up_object_is_refused_when_it_is_compiled(session, item, match, key):
    group = TaskGroup()
    Task(net_with((key, item)), group=group)
    for _ in range(2):
        with pytest.raises(BuildError, match=match):
            session.run(group)
    assert not group.frozen


def test_set_up_blocks_may_bring_along_more(session):
    log = []
    with TaskGroup() as group, Task(), ops.task_init():
        ops.Python(lambda i, o: log.append("task_init"))()
        with ops.local_init():
            ops.Python(lambda i, o: log.append("local_init"))()
            with ops.local_exit():
                ops.Python(lambda i, o: log.append("local_exit"))()
        with ops.task_exit():
            ops.Python(lambda i, o: log.append("task_exit"))()
    session.run(group)
    assert log == ["local_init", "task_init", "task_exit", "local_exit"]


def test_a_task_block_inside_a_local_one_is_refused(session):
    with TaskGroup() as group, Task(), ops.local_init(), ops.task_init():
        ops.Const(1)
    with pytest.raises(BuildError, match=r"belongs to node 'local', and .* run with a task \(task_setup\)"):
        session.run(group)


def test_names_of_what_objects_make_depend_on_the_group_alone():
    # Compiled inside another program or not, they are the same.
    group = TaskGroup()
    made = []

    class Maker:
        def setup(self, net):
            made.append(str(net.Const(1)))

    with group, Task(name="t"):
        ops.net().add_attribute(Task.TASK_SETUP, Maker())
        ops.net().add_attribute(Task.TASK_INSTANCE_SETUP, Maker())
    with TaskGroup(), NetBuilder("elsewhere"):
        group.freeze()
    assert made == ["local/t/setup/Const", "local/t/setup_1/Const"]


# -- report steps of a group


def test_report_steps_run_on_their_node_and_once_at_the_end(session):
    log, group = [], TaskGroup()
    for node in ("a", "b"):
        Task(add("x"), node=node, group=group)
    group.report_step(lambda ws: log.append(ws.name), node="a", interval_ms=NEVER_MS)
    with Node("b"):
        group.report_step(execution_step("s", lambda ws: log.append(ws.name)), interval_ms=NEVER_MS)
    net = group.report_net(node=Node("b"), report_interval=NEVER_MS)
    net.Python(lambda i, o: log.append("net"))()
    assert group.report_net(node="b") is net
    for _ in range(2):
        session.run(group)
        assert sorted(log) == ["a/group", "b/group", "net"]
        log.clear()


def test_a_report_step_keeps_its_own_step_unchanged():
    step = execution_step("s", add("x"))
    reporter = TaskGroup().report_step(step, interval_ms=5)
    assert (step.run_every_ms, reporter.run_every_ms) == (None, 5)
    again = execution_step("s", add("x"), run_every_ms=7)
    assert TaskGroup().report_step(again, interval_ms=7) is again


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda group: group.report_step(add("x"), interval_ms=0), "interval_ms of a report step"),
        (lambda group: group.report_step(3), "expected an ExecutionStep"),
        (
            lambda group: (group.report_net(Net("a")), group.report_net(Net("b"))),
            "has the report net 'a' already",
        ),
    ],
)
def test_wrong_report_steps_are_refused(call, match):
    with pytest.raises(BuildError, match=match):
        call(TaskGroup())


def test_a_report_step_for_a_node_without_tasks_is_refused(session):
    group = TaskGroup()
    Task(add("x"), node="a", group=group)
    group.report_step(add("y"), node="nowhere")
    with pytest.raises(
        BuildError, match=r"tasks on node 'nowhere'.* found none .*the tasks of the group run on 'a'"
    ):
        session.run(group)


def test_a_frozen_group_takes_no_report_step(session):
    group = TaskGroup()
    group.task(add("x"))
    session.run(group)
    for call in (lambda: group.report_step(add("y")), group.report_net):
        with pytest.raises(BuildError, match="came too late"):
            call()


def test_steps_under_the_report_key_run_beside_the_body(session):
    log = []
    report = execution_step("s", lambda ws: log.append(sorted(ws.blob_names())), run_every_ms=NEVER_MS)
    net = net_with((Task.REPORT_STEP, report), (Task.REPORT_STEP, logged(log, "a net, every second")))
    session.run(Task(net))
    assert sorted(map(str, log)) == ["['made by n']", "a net, every second"]


# -- what is compiled


def test_a_task_that_runs_alone_brings_its_node_blocks(session):
    log, group = [], TaskGroup()
    local = Setup(log, "local")
    task = Task(net_with((TaskGroup.LOCAL_SETUP, local)), group=group, name="a")
    Task(lambda ws: log.append("other"), group=group, name="b")
    session.run(task)
    assert log == ["local setup", "local exit"]


def test_failures_of_set_up_objects_name_their_step(session):
    class Fails:
        def exit(self, net):
            net.Python(lambda i, o: 1 // 0)(name="division")

    with pytest.raises(TaskGroupError) as caught:
        session.run([concurrent(net_with((Task.TASK_SETUP, Fails())))])
    (failure,) = caught.value.failures
    assert failure.step == "local/sequence/exit / Python 'division'"
    assert "test_setups.py" in failure.built_at
