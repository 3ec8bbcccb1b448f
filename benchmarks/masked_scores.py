"""Examine the final model of a run on each client's classes, as it is and with outputs of 0 for
the classes that the client lacks.

    python benchmarks/masked_scores.py RUN_FOLDER [--data FOLDER]

A client's accuracy is the mean over its classes, weighed by its training samples of each, of the
common test samples of that class. An output of 0 is what HeteroFL's masked loss has for such a
class in training (``algorithm.mask``). Takes three seconds of one core for HeteroFL's level e on
MNIST.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch

from motley.core.components import imports
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.experiments.trained import load
from motley.tasks.task import Task

_BATCH = 500
"""Samples of a forward pass."""


def accuracies(module: torch.nn.Module, task: Task) -> tuple[float, float]:
    """Return the mean over clients of their accuracy, plain and with masked outputs."""
    federation = task.federation
    rows = federation.global_test
    if rows is None:
        raise SystemExit('the run has no common test samples: split = { test = "global" }')
    labels = federation.y[torch.from_numpy(rows)].numpy()
    scores = torch.cat(
        [
            _scores(module, task, rows[start : start + _BATCH])
            for start in range(0, len(rows), _BATCH)
        ]
    )
    plain = []
    masked = []
    train = federation.train
    for client in range(len(federation)):
        own = train.values[train.offsets[client] : train.offsets[client + 1]]
        classes, counts = np.unique(federation.y[torch.from_numpy(own)].numpy(), return_counts=True)
        mask = torch.zeros(scores.shape[1])
        mask[torch.from_numpy(classes)] = 1.0
        for kept, outputs in ((plain, scores), (masked, scores * mask)):
            right = [
                outputs[labels == label].argmax(1).eq(int(label)).double().mean().item()
                for label in classes
            ]
            kept.append(np.average(right, weights=counts))
    return float(np.mean(plain)), float(np.mean(masked))


@torch.no_grad()
def _scores(module: torch.nn.Module, task: Task, rows: np.ndarray) -> torch.Tensor:
    samples = task.federation.x[torch.from_numpy(rows)]
    if task.transform is not None:
        samples = task.transform(samples, None)
    return module(samples)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--data", type=Path, default=None)
    options = parser.parse_args()
    run = load(options.run)
    with imports(True):
        task = task_of(Experiment(**run.config), data=options.data)
    plain, masked = accuracies(run.module().eval(), task)
    print(
        f"mean over {len(task.federation)} clients: {100 * plain:.2f} %, with masked outputs "
        f"{100 * masked:.2f} %"
    )


if __name__ == "__main__":
    main()
