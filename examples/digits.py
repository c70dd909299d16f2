"""Train a classifier of handwritten digits, with a checkpoint after every epoch.

Kill it whenever you like and start it again with the same command: it goes on from the last complete epoch, and
ends with the very weights of a run that was never killed.

    jobcore run examples/digits.py --dir runs/digits
    jobcore run examples/digits.py --dir runs/digits --set epochs=30    # goes on to 30
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_digits

import jobcore
from jobcore import Job, Workspace, epoch_limiter

Floats = NDArray[np.float64]


def build_job(
    epochs: int = 15,
    hidden: int = 64,
    batch: int = 32,
    rate: float = 0.1,
    momentum: float = 0.9,
    seed: int = 0,
) -> Job:
    """Return the job: a network of one hidden layer, trained by minibatch SGD with momentum."""
    with Job() as job:

        @job.setup_group.task
        def data(ws: Workspace) -> None:
            # Runs at every start. Transient blobs live in the workspace and never in a checkpoint.
            images, labels = load_digits(return_X_y=True)
            order = np.random.default_rng(1234).permutation(len(images))
            images, labels = images[order] / 16.0, labels[order]
            ws.feed("x_train", images[:1437], transient=True)
            ws.feed("y_train", labels[:1437], transient=True)
            ws.feed("x_test", images[1437:], transient=True)
            ws.feed("y_test", labels[1437:], transient=True)

        @job.init_group.task
        def init(ws: Workspace) -> None:
            # Runs once. All of this is saved after every epoch: weights, their velocities, and the generator.
            rng = np.random.default_rng(seed)
            ws.feed("w1", rng.normal(0, 64**-0.5, (64, hidden)))
            ws.feed("b1", np.zeros(hidden))
            ws.feed("w2", rng.normal(0, hidden**-0.5, (hidden, 10)))
            ws.feed("b2", np.zeros(10))
            for name in ("w1", "b1", "w2", "b2"):
                ws.feed(f"velocity/{name}", np.zeros_like(ws.view(name)))
            ws.feed("rng", rng)

        @job.epoch_group.task(outputs=["loss", "accuracy"])
        def train(ws: Workspace) -> None:
            x, y = ws.view("x_train"), ws.view("y_train")
            weights = {name: ws.fetch(name) for name in ("w1", "b1", "w2", "b2")}
            velocity = {name: ws.fetch(f"velocity/{name}") for name in weights}
            losses = []
            order = ws.fetch("rng").permutation(len(x))
            for begin in range(0, len(x), batch):
                rows = order[begin : begin + batch]
                loss, gradient = loss_and_gradient(weights, x[rows], y[rows])
                losses.append(loss)
                for name, value in gradient.items():
                    velocity[name] = momentum * velocity[name] - rate * value
                    weights[name] += velocity[name]
            for name, value in weights.items():
                ws.feed(name, value)
                ws.feed(f"velocity/{name}", velocity[name])
            ws.feed("loss", np.mean(losses))
            ws.feed("accuracy", accuracy(weights, ws.view("x_test"), ws.view("y_test")))

        epoch_limiter(job, epochs)
    return job


def forward(weights: dict[str, Floats], x: Floats) -> tuple[Floats, Floats]:
    """Return the hidden layer and the class probabilities, shapes (n, hidden) and (n, 10)."""
    hidden = np.maximum(x @ weights["w1"] + weights["b1"], 0)
    scores = hidden @ weights["w2"] + weights["b2"]
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return hidden, scores / scores.sum(axis=1, keepdims=True)


def loss_and_gradient(
    weights: dict[str, Floats], x: Floats, y: NDArray[np.int64]
) -> tuple[float, dict[str, Floats]]:
    """Return the mean cross-entropy of a batch and its gradient by weight."""
    hidden, probability = forward(weights, x)
    rows = np.arange(len(y))
    loss = float(-np.log(probability[rows, y]).mean())
    error = probability.copy()
    error[rows, y] -= 1
    error /= len(y)
    back = (error @ weights["w2"].T) * (hidden > 0)
    return loss, {"w1": x.T @ back, "b1": back.sum(axis=0), "w2": hidden.T @ error, "b2": error.sum(axis=0)}


def accuracy(weights: dict[str, Floats], x: Floats, y: NDArray[np.int64]) -> float:
    """Return the share of rows that are classified rightly."""
    return float((forward(weights, x)[1].argmax(axis=1) == y).mean())


if __name__ == "__main__":
    runner = jobcore.JobRunner(
        build_job(), jobcore.MultiNodeCheckpointManager("runs/digits"), resume_from_epoch="latest"
    )
    with jobcore.LocalSession() as session:
        last = runner.train(session)
        print(f"epoch {last}: weights of shape {session.workspace().view('w1').shape} in runs/digits")
