"""A training process that can be told where to die; run by ``test_kill.py``.

    python kill_process.py RUN [--nodes N] [--die-at PLACE:COUNT] [--by SIGNAL]

The process sends itself a signal, SIGKILL by default, at the COUNT-th time that it comes by PLACE:

=================  ====================================================================
``init``           half way through the init task
``epoch``          half way through the epoch task of the last node
``write``          in a system call that writes to a file of the run directory, half of it done
``sync``           after the data of a database, record or claim, before they are synced
``publish``        before a database, record or claim gets its name
``published``      after it has got its name
``record``         between the databases of an epoch and its record
=================  ====================================================================
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
from pathlib import Path

import numpy as np

import jobcore
import jobcore.checkpoint.log
import jobcore.store.publishing
from faults.layer import Kind, Layer
from jobcore import Job, Node, Workspace

EPOCHS = 5

#: Places that are system calls: their names, and the kind of death. For them ``faults.c`` must be preloaded.
CALLS = {"write": ("write,pwrite", Kind.KILL_HALF), "sync": ("fsync,fdatasync", Kind.KILL_BEFORE)}


class Death:
    """Counts the times at a place, and kills the process at the one that was asked for."""

    def __init__(self, order: str | None, by: str = "SIGKILL") -> None:
        self.place, _, count = (order or ":0").partition(":")
        self.left = int(count)
        self.signal = signal.Signals[by]

    def at(self, place: str) -> bool:
        if place != self.place:
            return False
        self.left -= 1
        return self.left == 0

    def pass_by(self, place: str) -> None:
        if self.at(place):
            os.kill(os.getpid(), self.signal)


def build_job(nodes: int, death: Death) -> Job:
    with Job() as job:
        for number in range(nodes):
            with Node(f"trainer_{number}"):
                add_training(job, number, last=number == nodes - 1, death=death)
        jobcore.epoch_limiter(job, EPOCHS)
    return job


def add_training(job: Job, number: int, last: bool, death: Death) -> None:
    """Linear regression by momentum SGD, with a shuffle from a checkpointed generator."""

    @job.setup_group.task
    def data(ws: Workspace) -> None:
        rng = np.random.default_rng(99)
        x = rng.normal(size=(512, 16))
        ws.feed("x", x, transient=True)
        ws.feed("y", x @ rng.normal(size=16) + 0.1 * rng.normal(size=512), transient=True)

    @job.init_group.task
    def init(ws: Workspace) -> None:
        rng = np.random.default_rng(number)
        ws.feed("weights", rng.normal(size=16))
        if last:
            death.pass_by("init")
        ws.feed("velocity", np.zeros(16))
        ws.feed("ballast", rng.integers(0, 255, 3 << 20, dtype=np.uint8))
        ws.feed("rng", rng)
        ws.counter("epochs")

    @job.epoch_group.task
    def train(ws: Workspace) -> None:
        x, y, rng = ws.view("x"), ws.view("y"), ws.fetch("rng")
        weights, velocity = ws.fetch("weights"), ws.fetch("velocity")
        for step, rows in enumerate(np.array_split(rng.permutation(len(x)), 16)):
            if last and step == 8:
                death.pass_by("epoch")
            gradient = x[rows].T @ (x[rows] @ weights - y[rows]) / len(rows)
            velocity = 0.9 * velocity - 0.01 * gradient
            weights = weights + velocity
        ws.feed("weights", weights)
        ws.feed("velocity", velocity)
        ws.fetch("epochs").count_up()


def arm(death: Death) -> None:
    """Put the places of death that lie inside the library round its calls of the operating system."""
    publishing = jobcore.store.publishing
    real_publish = publishing.publish

    def publish(temporary, final):
        if os.fspath(final).rpartition("/")[2].startswith("epoch."):
            death.pass_by("record")
        death.pass_by("publish")
        real_publish(temporary, final)
        death.pass_by("published")

    publishing.publish = publish


def arm_layer(run: Path, order: str, by: str) -> None:
    """Put a place of death into a system call, of whichever thread."""
    place, _, count = order.partition(":")
    names, kind = CALLS[place]
    if by != "SIGKILL":
        kind = Kind.SIGNAL
    Layer(run).arm(names, int(count), kind, signal.Signals[by])


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("run")
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--die-at")
    parser.add_argument("--by", default="SIGKILL")
    options = parser.parse_args(arguments)
    in_layer = (options.die_at or "").partition(":")[0] in CALLS
    death = Death(None if in_layer else options.die_at, options.by)
    arm(death)
    if in_layer:
        arm_layer(Path(options.run).absolute(), options.die_at, options.by)
    runner = jobcore.JobRunner(
        build_job(options.nodes, death),
        jobcore.MultiNodeCheckpointManager(options.run),
        resume_from_epoch="latest",
    )
    with jobcore.LocalSession() as session:
        runner.train(session)
    print("resumed from", runner.result.resumed_from, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
