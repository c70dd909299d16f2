"""Tasks that copy from a reader to a writer, for the tests of both."""

from __future__ import annotations

import numpy as np

from jobcore import LocalSession, SetupNets, Task, TaskGroup, execution_step
from jobcore.data import Dataset, Scalar, Struct
from jobcore.graph import Net


def copy_task(reader, writer, *, group, instances=1, process=None, outputs=None, name="copy"):
    """A task that reads until nothing is left, and writes; `process` turns nets and record into nets and record."""
    with group:
        task_nets, own_nets = [Net("init"), Net("finish")], [Net("own_init"), Net("own_finish")]
        reader.setup_ex(*task_nets)
        writer.setup_ex(*task_nets)
        nets, stop, record = reader.read_record_ex(*own_nets)
        if process is not None:
            more, record = process(record)
            nets = [*nets, *more]
        nets = [*nets, *writer.write_record_ex(record, *own_nets)]
        first = Net("begin")
        first.add_attribute(Task.TASK_SETUP, SetupNets([task_nets[0]], [task_nets[1]]))
        first.add_attribute(Task.TASK_INSTANCE_SETUP, SetupNets([own_nets[0]], [own_nets[1]]))
        step = execution_step("body", [first, execution_step("rounds", nets, should_stop_blob=stop)])
        return Task(step=step, outputs=outputs, num_instances=instances, name=name)


def rows_of(count, start=0):
    return np.arange(start, start + count)


def numbers(count, start=0, name="source"):
    """A data set of one column, and what it holds."""
    return Dataset(Struct(("label", Scalar(np.int64))), name=name), rows_of(count, start)


def run_init(session, *pairs):
    """Make data sets in the node's workspace: of arrays by column, or None for an empty one."""
    net = Net("make")
    for dataset, columns in pairs:
        if columns is None:
            dataset.init_empty(net)
        else:
            dataset.init_from_columns(net, columns)
    group = TaskGroup("global")
    Task(step=net, group=group)
    session.run(group)


def read_all(reader, *pairs, instances=1, workspace_type="private", session=None, outputs=None, schema=None):
    """Run a task that reads everything into a data set; returns its columns, and the values of `outputs`."""
    session = LocalSession() if session is None else session
    target = Dataset(reader.schema() if schema is None else schema, name="target")
    run_init(session, *pairs, (target, None))
    group = TaskGroup(workspace_type)
    task = copy_task(reader, target.writer(), group=group, instances=instances)
    found = None if outputs is None else [task.add_output(output()) for output in outputs]
    session.run(group)
    columns = {
        name: session.workspace().fetch(blob)
        for name, blob in zip(target.field_names(), target.get_blobs(), strict=True)
    }
    return columns if found is None else (columns, [output.fetch() for output in found])
