"""Measures the engines' client steps per second against a plain centralized PyTorch loop on the
same machine.

    python benchmarks/engines.py [OUT.json] [--quick] [--only WORKLOAD]

Every workload is trained by the engine that ``engine = "auto"`` selects, through its public
``train``, and by a textbook loop with the same model, batch size and learning rate on preloaded
tensors, on one torch thread and on all. They take turns in one process; the ratio compares best
repetitions (other processes can only slow one down), and medians are reported too. Data are random
numbers, since no step's cost depends on them. ``scaling.py`` compares the engines with each other.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import nn

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.fedprox import Proximal
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import Algorithm
from motley.algorithms.positions import per_position
from motley.core.keys import Key, Streams
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines import ENGINES, resolve_auto
from motley.engines.engine import Engine, Job, Setting
from motley.tasks.flat import construct, initial
from motley.tasks.models import MODELS
from motley.tasks.precision import Precision, products
from motley.tasks.task import Federation, Task

LR = 0.01
_CHARACTERS = 76


@dataclass(frozen=True)
class Workload:
    """A model and a cohort: ``sizes`` are the clients' samples, ``goal`` is the wanted ratio to the
    loop (None: only reported)."""

    name: str
    model: str
    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    work: LocalWork
    goal: float | None
    repetitions: int = 7


def dirichlet_sizes() -> tuple[int, ...]:
    """Return sizes of ten clients as Dirichlet 0.1 makes them of 60,000 MNIST samples and 100
    clients: a few large, many small."""
    rng = np.random.default_rng(5)
    shares = rng.dirichlet(np.full(100, 0.1), size=10)
    return tuple(int(n) for n in np.maximum(10, (shares.sum(0) * 6000).astype(int))[:10])


GREY = (1, 28, 28)
COLOUR = (3, 32, 32)
WORKLOADS = (
    Workload(
        "logistic regression, batch 100",
        "logistic_regression",
        GREY,
        (600,) * 10,
        LocalWork(100, epochs=10),
        3.0,
        15,
    ),
    Workload(
        "logistic regression, batch 10",
        "logistic_regression",
        GREY,
        (600,) * 100,
        LocalWork(10, epochs=1),
        8.0,
        11,
    ),
    Workload("MLP, equal sizes", "mlp", GREY, (600,) * 10, LocalWork(100, epochs=10), 1.4),
    Workload(
        "MLP, Dirichlet 0.1 sizes", "mlp", GREY, dirichlet_sizes(), LocalWork(100, epochs=10), 1.2
    ),
    Workload("two-conv CNN, batch 32", "cnn", COLOUR, (640,) * 6, LocalWork(32, epochs=1), 1.1, 5),
    Workload("AlexNet, batch 32", "alexnet", COLOUR, (640,) * 4, LocalWork(32, epochs=1), 1.1, 5),
    Workload(
        "ResNet-18, batch 32", "resnet18", COLOUR, (128,) * 4, LocalWork(32, epochs=1), None, 2
    ),
    Workload(
        "LEAF's LSTM, 80 characters, batch 16",
        "leaf_lstm",
        (80,),
        (64,) * 6,
        LocalWork(16, epochs=1),
        1.0,
        5,
    ),
    Workload(
        "transformer, 80 characters, batch 16",
        "transformer",
        (80,),
        (64,) * 6,
        LocalWork(16, epochs=1),
        1.0,
        5,
    ),
)


def setting(load: Workload, device: str = "cpu", precision: Precision = "float32") -> Setting:
    """Return the setting of a federation of random samples under FedProx; the cohort is all
    clients."""
    rng = np.random.default_rng(0)
    n = sum(load.sizes)
    model = MODELS.build(load.model)
    classes = _CHARACTERS if model.sequences else 10
    if model.sequences:
        x, y = (torch.from_numpy(rng.integers(0, classes, (n, *load.shape))) for _ in range(2))
    else:
        x = torch.from_numpy(rng.standard_normal((n, *load.shape), dtype=np.float32))
        y = torch.from_numpy(rng.integers(0, classes, n))
    train = Ragged(np.concatenate([[0], np.cumsum(load.sizes)]), np.arange(n))
    none = Ragged(np.zeros(len(load.sizes) + 1, np.int64), np.zeros(0, np.int64))
    federation = Federation(x, y, train, y, none, none, None, classes)
    task = Task(load.name, federation, partial(model.build, load.shape, classes))
    loss = per_position(CrossEntropy(), federation.targets)
    return Setting(
        task,
        Algorithm(loss, Proximal(0.1), Mean(), Average()),
        SGD(LR),
        load.work,
        Streams(0),
        device=device,
        precision=precision,
    )


def federated(engine: Engine, setting: Setting) -> Callable[[], int]:
    """Return a function that trains one round of the cohort and returns its client steps."""
    sizes = setting.task.federation.train.sizes
    steps = setting.work.total(sizes).tolist()
    state = initial(setting.task.model, Key(0), setting.dtype)
    sent = {"x": state.x, "buffers": state.buffers, "counters": state.counters}
    number = iter(range(10**9))

    def once() -> int:
        jobs = [Job(client, next(number), count, LR) for client, count in enumerate(steps)]
        return sum(done.steps for done in engine.train(jobs, sent, {}))

    return once


def centralised(setting: Setting, threads: int, steps: int) -> Callable[[], int]:
    """Return a function that runs the textbook loop over all clients' samples and returns its
    steps."""
    data = setting.task.federation
    batch = setting.work.batch_size
    model = construct(setting.task.model, 0).to(setting.device).train()
    samples = data.x.to(setting.device)
    targets = data.y.to(setting.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    generator = torch.Generator().manual_seed(0)

    def once() -> int:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        done = 0
        while done < steps:
            order = torch.randperm(len(samples), generator=generator).to(setting.device)
            for at in order.split(batch)[: steps - done]:
                optimizer.zero_grad()
                x = samples.index_select(0, at)
                y = targets.index_select(0, at)
                with (
                    nullcontext()
                    if setting.precision == "float32"
                    else products(setting.precision, setting.device)
                ):
                    outputs = model(x)
                nn.functional.cross_entropy(outputs.float().flatten(0, -2), y.flatten()).backward()
                optimizer.step()
                done += 1
        torch.set_num_threads(before)
        if samples.is_cuda:
            torch.cuda.synchronize()
        return done

    return once


def speeds(
    runs: dict[str, Callable[[], int]], repetitions: int, seconds: float = math.inf
) -> dict[str, list[float]]:
    """Return the steps per second of every run in every turn; the first turn only warms up.

    No turn after the third begins later than ``seconds`` after the first.
    """
    out: dict[str, list[float]] = {name: [] for name in runs}
    start = time.perf_counter()
    for turn in range(repetitions + 1):
        if turn > 3 and time.perf_counter() > start + seconds:
            break
        for name, run in runs.items():
            begin = time.perf_counter()
            steps = run()
            if turn:
                out[name].append(steps / (time.perf_counter() - begin))
    return out


def measure(load: Workload, repetitions: int) -> dict[str, object]:
    """Measure one workload: a row of the table."""
    built = setting(load)
    name = resolve_auto(built)
    engine = ENGINES.get(name)(built)
    total = int(built.work.total(built.task.federation.train.sizes).sum())
    cores = len(os.sched_getaffinity(0))
    runs = {"engine": federated(engine, built)}
    runs |= {
        f"loop, {n} threads": centralised(built, n, max(4, total // 2)) for n in sorted({1, cores})
    }
    found = speeds(runs, repetitions)
    engine.close()
    best = {key: max(value) for key, value in found.items()}
    median = {key: statistics.median(value) for key, value in found.items()}
    loops = [key for key in found if key != "engine"]
    return {
        "workload": load.name,
        "engine": name,
        "client_steps": total,
        "best_steps_per_s": best,
        "median_steps_per_s": median,
        "ratio": best["engine"] / max(best[key] for key in loops),
        "median_ratio": median["engine"] / max(median[key] for key in loops),
        "goal": load.goal,
    }


def measure_on(
    load: Workload,
    device: str,
    names: Sequence[str],
    seconds: float,
    precision: Precision = "float32",
) -> dict[str, object]:
    """Measure one workload on a device: every one of these engines that takes it, beside the plain
    loop there."""
    built = setting(load, device, precision)
    kinds = {name: ENGINES.get(name) for name in names}
    engines = {name: kind(built) for name, kind in kinds.items() if kind.refuses(built) is None}
    total = int(built.work.total(built.task.federation.train.sizes).sum())
    runs = {name: federated(engine, built) for name, engine in engines.items()}
    runs["loop"] = centralised(built, len(os.sched_getaffinity(0)), max(4, total // 2))
    found = speeds(runs, load.repetitions, seconds)
    for engine in engines.values():
        engine.close()
    best = {key: max(value) for key, value in found.items()}
    median = {key: statistics.median(value) for key, value in found.items()}
    fastest = max(engines, key=lambda name: median[name])
    return {
        "client_steps": total,
        "engine": fastest,
        "best_steps_per_s": best,
        "median_steps_per_s": median,
        "turns": len(found["loop"]),
        "ratio": best[fastest] / best["loop"],
        "median_ratio": median[fastest] / median["loop"],
    }


def table(rows: list[dict[str, object]]) -> Table:
    """Return the rows as a table for the terminal."""
    out = Table(title="Client steps per second, best repetition (median)")
    for column in (
        "workload",
        "engine",
        "engine /s",
        "loop 1 thread /s",
        "loop all threads /s",
        "ratio",
        "goal",
    ):
        out.add_column(column, justify="left" if column in ("workload", "engine") else "right")
    for row in rows:
        best = row["best_steps_per_s"]
        median = row["median_steps_per_s"]
        cells = [
            f"{best[key]:,.0f} ({median[key]:,.0f})"
            if best[key] >= 100
            else f"{best[key]:.2f} ({median[key]:.2f})"
            for key in best
        ]
        goal = "-" if row["goal"] is None else f">= {row['goal']:.1f}"
        ratio = f"{row['ratio']:.2f} ({row['median_ratio']:.2f})"
        out.add_row(row["workload"], row["engine"], cells[0], cells[1], cells[-1], ratio, goal)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description="Client steps per second of the engines")
    parser.add_argument("out", nargs="?", default="benchmarks/results/engines.json", type=Path)
    parser.add_argument("--quick", action="store_true", help="three repetitions of everything")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    options = parser.parse_args()
    console = Console(width=140)
    rows = []
    for load in WORKLOADS:
        if options.only.lower() in load.name.lower():
            repetitions = min(3, load.repetitions) if options.quick else load.repetitions
            with console.status(load.name):
                rows.append(measure(load, repetitions))
    console.print(table(rows))
    options.out.parent.mkdir(parents=True, exist_ok=True)
    report = {"torch": torch.__version__, "cores": len(os.sched_getaffinity(0)), "rows": rows}
    options.out.write_text(json.dumps(report, indent=2) + "\n")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
