"""Jobs that several tests run."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

import jobcore
from jobcore import (
    BlobReference,
    Job,
    JobRunner,
    LocalSession,
    MultiNodeCheckpointManager,
    Node,
    Task,
    Workspace,
)

# Totals after epochs 0 to 4 of `summing_job`: 100, then + (0+1+2), + (3+4+5), + (6+7+8), + 9.
TOTALS = (100, 103, 115, 136, 145)


def summing_job(*numbers: int) -> Job:
    """Nodes ``trainer_<i>`` that each add up the values 0 to 9, three in an epoch, until the data end."""
    with Job() as job:
        for number in numbers:
            with Node(f"trainer_{number}"):
                add_summing_tasks(job)
    return job


def add_summing_tasks(job: Job) -> None:
    @job.init_group.task
    def init(ws: Workspace) -> None:
        ws.feed("val", np.arange(10))
        ws.feed("cursor", 0)
        ws.feed("total", np.array([100]))

    @job.epoch_group.task(outputs=["finished"])
    def add(ws: Workspace) -> None:
        cursor, values = int(ws.fetch("cursor")), ws.view("val")
        batch = values[cursor : cursor + 3]
        ws.feed("total", ws.fetch("total") + batch.sum())
        ws.feed("cursor", cursor + len(batch))
        # As a reader does: the end is seen when a read comes back short.
        ws.feed("finished", len(batch) < 3)

    job.add_stop_condition(add.outputs()[0])


def total(session: LocalSession, node: str) -> int:
    """Fetch a node's total by a task of its own, outside any job."""
    with Node(node):
        task = Task(outputs=[BlobReference("total")])
    session.run(task)
    return int(task.outputs()[0].fetch()[0])


def counting_job(epochs: int, log: list[str] | None = None) -> Job:
    """A job that counts its epochs in a blob and writes down which groups ran."""
    trace = log if log is not None else []
    with Job() as job:

        @job.setup_group.task
        def setup(ws: Workspace) -> None:
            trace.append("setup")

        @job.init_group.task
        def init(ws: Workspace) -> None:
            trace.append("init")
            ws.feed("count", 0)

        @job.epoch_group.task
        def count(ws: Workspace) -> None:
            ws.feed("count", int(ws.fetch("count")) + 1)
            trace.append(f"epoch {int(ws.fetch('count'))}")

        @job.download_group.task
        def download(ws: Workspace) -> None:
            trace.append("download")

        @job.exit_group.task
        def leave(ws: Workspace) -> None:
            trace.append("exit")

        jobcore.epoch_limiter(job, epochs)
    return job


def run(
    job: Job,
    prefix: str | os.PathLike[str] | None = None,
    resume: Any = None,
    session: LocalSession | None = None,
    **kwargs: Any,
) -> JobRunner:
    """Run a job, with checkpoints in `prefix` if that is given, and return its runner."""
    manager = None if prefix is None else MultiNodeCheckpointManager(prefix)
    runner = JobRunner(job, manager, resume_from_epoch=resume, **kwargs)
    if session is not None:
        runner.train(session)
        return runner
    with LocalSession() as own:
        runner.train(own)
    return runner
