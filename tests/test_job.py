"""A job as it is built and compiled."""

from __future__ import annotations

import pytest

import jobcore
from jobcore import BlobReference, Job, LocalSession, NameScope, Node, epoch_limiter
from jobcore.errors import BuildError
from jobs import run


class TestJob:
    def test_compiling_is_repeatable_and_may_happen_inside_the_block(self):
        trace: list[str] = []
        with Job() as job:
            jobcore.Task(step=lambda ws: ws.feed("n", 0), group=job.init_group)
            jobcore.Task(step=lambda ws: trace.append("epoch"), group=job.epoch_group)
            epoch_limiter(job, 1)
            first = job.compile(LocalSession)
            # What is compiled is frozen: a task added later would be in one compiled job and not in the other.
            with pytest.raises(BuildError, match="frozen by being compiled"):
                jobcore.Task(step=lambda ws: None, group=job.epoch_group)
        second = job.compile(LocalSession)
        run(first)
        run(second)
        run(job)
        assert trace == ["epoch"] * 3
        assert first.nodes_to_checkpoint() == ["local"]

    def test_nodes_are_those_of_the_init_group(self):
        with Job() as job:
            for node in ("b", "a", "b"):
                with Node(node):
                    jobcore.Task(step=lambda ws: None, group=job.init_group)
            with Node("c"):
                jobcore.Task(step=lambda ws: None, group=job.epoch_group)
        assert job.nodes_to_checkpoint() == ["b", "a"]

    def test_a_block_that_raises_leaves_no_context_behind(self):
        with pytest.raises(ZeroDivisionError), Job():
            raise ZeroDivisionError
        assert Job.current(required=False) is None
        assert jobcore.TaskGroup.current(required=False) is None

    def test_bare_tasks_land_in_the_epoch_group(self):
        with Job() as job:
            jobcore.Task(step=lambda ws: None)
            assert Job.current() is job
        assert job.epoch_group.num_registered_tasks() == 1


def test_a_blob_reference_as_stop_condition_is_absolute():
    with Job() as job, NameScope("scope"):
        job.add_stop_condition(BlobReference("done"))
    assert job.stop_conditions[0].name == "done"
