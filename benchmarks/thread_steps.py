"""Measures rounds of the engine ``batched`` on one thread and on two, for models, cohorts and
batches: from which steps on the second thread helps.

    python benchmarks/thread_steps.py [RUNS]

The rule of :mod:`motley.engines.batched` that chooses is switched off, and beside each measurement
stands what it would choose. Data are random numbers; the two take turns, and of the rounds of each
the fastest counts. It prints the table of docs/measured.md.
"""

from __future__ import annotations

import itertools
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

import motley
from motley.engines import batched
from motley.tasks import from_arrays, own_task
from motley.tasks.task import Task

LAYERS = (
    (64, 10),
    (64, 32, 10),
    (64, 200, 200, 10),
    (784, 10),
    (784, 200, 10),
    (784, 200, 200, 10),
    (64, 500, 500, 10),
)
COHORTS = (2, 5, 10, 20)
BATCHES = (10, 16, 32, 64, 128)
ROUNDS = 6
LARGEST = 6e8
"""Multiplications of a step of all clients above which a second thread helps in any case."""


def stack(layers: tuple[int, ...]) -> Callable[[], nn.Module]:
    """Return a function that makes linear layers of these sizes with ReLU between them."""

    def make() -> nn.Module:
        pairs = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(layers)]
        return nn.Sequential(*[module for pair in pairs for module in pair][:-1])

    return make


def task_of(layers: tuple[int, ...], cohort: int, batch: int) -> Task:
    """Return a task of so many equal clients with at least a batch of samples each."""
    rng = np.random.default_rng(0)
    held = max(160, batch)
    x = rng.standard_normal((held * cohort, layers[0])).astype(np.float32)
    y = rng.integers(0, 10, held * cohort)
    clients = np.repeat(np.arange(cohort), held)
    return own_task(from_arrays(x, y, clients, test_fraction=0.05), stack(layers))


def round_s(task: Task, cohort: int, batch: int, steps: int, threads: int, out: Path) -> float:
    """Return the seconds of the fastest round of a run but the first."""
    ends: list[float] = []
    keys = {
        "cohort": cohort,
        "stop": {"rounds": ROUNDS},
        "local": {"steps": steps, "batch_size": batch},
        "evaluate": {"every": 100, "per_client": False},
        "engine": {"name": "batched", "threads": threads},
    }
    motley.run(keys, task=task, out=out, on_round=lambda _: ends.append(time.perf_counter()))
    return min(b - a for a, b in itertools.pairwise(ends))


def chosen(weights: int, cohort: int, batch: int, costs: tuple[float, float]) -> int:
    """Return how many of two threads the rule takes."""
    batched.ALONE, batched.TOGETHER = costs
    largest = max(1, batched.CHUNK_WEIGHTS // weights)
    threads = batched.fastest_division(cohort, largest, workers=2, operations=2.0 * weights * batch)
    batched.ALONE = batched.TOGETHER = 0.0
    return threads


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    costs = batched.ALONE, batched.TOGETHER
    batched.ALONE = batched.TOGETHER = 0.0  # every thread takes part
    torch.set_num_threads(1)
    print("One thread's time over two threads'; in brackets how many the rule takes.\n")
    print(f"| layers | clients | {' | '.join(f'batch {batch}' for batch in BATCHES)} |")
    print("| --- " * (2 + len(BATCHES)) + "|")
    for layers, cohort in itertools.product(LAYERS, COHORTS):
        weights = sum((a + 1) * b for a, b in itertools.pairwise(layers))
        cells = []
        for batch in BATCHES:
            work = weights * batch * cohort
            if work > LARGEST:
                continue
            task = task_of(layers, cohort, batch)
            steps = 20 if work < LARGEST / 6 else 8
            fastest = {1: np.inf, 2: np.inf}
            for _, threads in itertools.product(range(runs), fastest):
                with tempfile.TemporaryDirectory() as folder:
                    seconds = round_s(task, cohort, batch, steps, threads, Path(folder) / "run")
                fastest[threads] = min(fastest[threads], seconds)
            ratio = fastest[1] / fastest[2]
            cells.append(f"{ratio:.2f} ({chosen(weights, cohort, batch, costs)})")
        names = "-".join(map(str, layers))
        print(f"| {names} | {cohort} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
