"""How ``tests/data/run-v1`` was made: a run directory of format 1, with a resume in its history.

    python tests/make_golden_run.py TARGET

The files in the repository were written once and never change: they stand for what users have on disk.
"""

from __future__ import annotations

import sys

import numpy as np

from jobcore import Job, JobRunner, LocalSession, MultiNodeCheckpointManager, Node, epoch_limiter


def build_job(epochs: int) -> Job:
    with Job() as job:
        for number, name in enumerate(("trainer_0", "Größe/1")):
            with Node(name):
                add_tasks(job, number)
        epoch_limiter(job, epochs)
    return job


def add_tasks(job: Job, number: int) -> None:
    @job.init_group.task
    def init(ws):
        ws.feed("weights", np.arange(6, dtype=np.float32).reshape(2, 3) + number)
        ws.feed("config", {"rate": 0.5, "name": "golden", "sizes": (1, 2)})
        ws.feed("rng", np.random.default_rng(number))
        ws.counter("epochs")

    @job.epoch_group.task
    def train(ws):
        ws.feed("weights", ws.fetch("weights") * 2)
        ws.feed("drawn", ws.fetch("rng").integers(1000))
        ws.fetch("epochs").count_up()


def main(target: str) -> None:
    for epochs, resume in ((3, None), (4, 1)):
        runner = JobRunner(build_job(epochs), MultiNodeCheckpointManager(target), resume_from_epoch=resume)
        with LocalSession() as session:
            runner.train(session)


if __name__ == "__main__":
    main(sys.argv[1])
