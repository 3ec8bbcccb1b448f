"""Measures rounds of the engines ``batched`` and ``vmap`` on one thread and on two, for models,
cohorts and batches: from which steps on the second thread helps.

    python benchmarks/thread_steps.py [RUNS] [ENGINE]

The rule of :mod:`motley.engines.batched` that chooses is replaced by one that takes every thread,
and beside each measurement stands what it would choose. Data are random numbers; the two take
turns, and of the rounds of each the fastest counts. ``vmap`` has models of at most 10^5
weights. It prints the tables of docs/measured.md.
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
VMAP_WEIGHTS = 100_000
"""Weights up to which ``auto`` takes ``vmap``."""


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


def round_s(task: Task, engine: str, cohort: int, batch: int, steps: int, threads: int) -> float:
    """Return the seconds of the fastest round of a run but the first."""
    ends: list[float] = []
    keys = {
        "cohort": cohort,
        "stop": {"rounds": ROUNDS},
        "local": {"steps": steps, "batch_size": batch},
        "evaluate": {"every": 100, "per_client": False},
        "engine": {"name": engine, "threads": threads},
    }
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "run"
        motley.run(keys, task=task, out=out, on_round=lambda _: ends.append(time.perf_counter()))
    return min(b - a for a, b in itertools.pairwise(ends))


def every_thread(clients: int, largest: int, workers: int, operations: float) -> int:
    """Return as many threads as there are clients for, in place of the rule's choice."""
    return min(workers, clients)


def main() -> None:
    """Measure and print."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    engine = sys.argv[2] if len(sys.argv) > 2 else "batched"
    rule = batched.fastest_division
    batched.fastest_division = every_thread
    torch.set_num_threads(1)
    print("One thread's time over two threads'; in brackets how many the rule takes.\n")
    print(f"| layers | clients | {' | '.join(f'batch {batch}' for batch in BATCHES)} |")
    print("| --- " * (2 + len(BATCHES)) + "|")
    for layers, cohort in itertools.product(LAYERS, COHORTS):
        weights = sum((a + 1) * b for a, b in itertools.pairwise(layers))
        if engine == "vmap" and weights > VMAP_WEIGHTS:
            continue
        cells = []
        for batch in BATCHES:
            work = weights * batch * cohort
            if work > LARGEST:
                continue
            task = task_of(layers, cohort, batch)
            steps = 20 if work < LARGEST / 6 else 8
            fastest = {1: np.inf, 2: np.inf}
            for _, threads in itertools.product(range(runs), fastest):
                seconds = round_s(
                    task, engine, cohort=cohort, batch=batch, steps=steps, threads=threads
                )
                fastest[threads] = min(fastest[threads], seconds)
            largest = max(1, batched.CHUNK_WEIGHTS // weights)
            taken = rule(cohort, largest, workers=2, operations=2.0 * weights * batch)
            cells.append(f"{fastest[1] / fastest[2]:.2f} ({taken})")
        names = "-".join(map(str, layers))
        print(f"| {names} | {cohort} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
