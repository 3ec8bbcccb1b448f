"""Measures the engines in bfloat16 against float32: client steps per second of whole rounds of
local training.

    python benchmarks/precision.py [OUT.json] [--quick] [--only WORKLOAD]

Every workload is trained by the engine that ``engine = "auto"`` selects, through its public
``train``, on one thread. The precisions take turns in one process; ratios compare best repetitions
and medians. Data are random numbers, as in ``engines.py``. Then ``python docs/generate.py`` puts
the table into ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from engines import COLOUR, GREY, Workload, federated, setting, speeds
from rich.console import Console

from motley.algorithms.parts import LocalRule
from motley.core.work import LocalWork
from motley.engines import ENGINES, resolve_auto
from motley.tasks.precision import bfloat16_instructions

OUT = Path(__file__).with_name("measured") / "precision.json"
PRECISIONS = ("float32", "bfloat16")
BATCH = LocalWork(32, epochs=1)


@dataclass(frozen=True)
class Compared:
    """A workload, and its wanted ratio of bfloat16 to float32 (None: only reported)."""

    load: Workload
    goal: float | None


def compared(
    name: str,
    model: str,
    shape: tuple[int, ...],
    sizes: tuple[int, ...],
    goal: float | None,
    work: LocalWork = BATCH,
    repetitions: int = 7,
) -> Compared:
    """Return a workload of plain federated averaging."""
    return Compared(Workload(name, model, shape, sizes, work, goal, repetitions), goal)


HUNDRED = LocalWork(100, epochs=5)
TEXT = LocalWork(16, epochs=1)
WORKLOADS = (
    compared("MLP, batch 100", "mlp", GREY, (600,) * 10, 1.8, HUNDRED),
    compared(
        "logistic regression, batch 100", "logistic_regression", GREY, (600,) * 10, None, HUNDRED
    ),
    compared("LEAF's CNN (FEMNIST), batch 32", "leaf_cnn", GREY, (320,) * 2, 1.8),
    compared(
        "LEAF's CNN (FEMNIST), batch 100", "leaf_cnn", GREY, (1000,), None, LocalWork(100, epochs=1)
    ),
    compared("two-conv CNN, batch 32", "cnn", COLOUR, (640,), None),
    compared("pfl's CNN (CIFAR-10), batch 32", "simple_cnn", COLOUR, (640,), 1.8),
    compared("AlexNet, batch 32", "alexnet", COLOUR, (640,), 1.3),
    compared("ResNet-9, batch 32", "resnet9", COLOUR, (96,), 1.8, BATCH, 5),
    compared("ResNet-18, batch 32", "resnet18", COLOUR, (96,), 1.5, BATCH, 5),
    compared("LEAF's LSTM, 80 characters, batch 16", "leaf_lstm", (80,), (64,) * 2, None, TEXT),
    compared("transformer, 80 characters, batch 16", "transformer", (80,), (64,) * 2, None, TEXT),
)


def measure(one: Compared, repetitions: int) -> dict[str, object]:
    """Measure one workload: a row of the table."""
    plain = setting(one.load)
    plain = replace(plain, threads=1, algorithm=plain.algorithm.replace(local=LocalRule()))
    name = resolve_auto(plain)
    engines = []
    runs = {}
    for precision in PRECISIONS:
        built = replace(plain, precision=precision)
        engines.append(ENGINES.get(name)(built))
        runs[precision] = federated(engines[-1], built)
    found = speeds(runs, repetitions)
    for engine in engines:
        engine.close()
    best = {key: max(value) for key, value in found.items()}
    median = {key: statistics.median(value) for key, value in found.items()}
    return {
        "workload": one.load.name,
        "engine": name,
        "best_steps_per_s": best,
        "median_steps_per_s": median,
        "ratio": best["bfloat16"] / best["float32"],
        "median_ratio": median["bfloat16"] / median["float32"],
        "goal": one.goal,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Client steps per second in float32 and bfloat16")
    parser.add_argument("out", nargs="?", default=OUT, type=Path)
    parser.add_argument("--quick", action="store_true", help="three repetitions of everything")
    parser.add_argument("--only", default="", help="workloads whose name contains this")
    options = parser.parse_args()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    console = Console(width=140)
    rows = []
    for one in WORKLOADS:
        if options.only.lower() in one.load.name.lower():
            rows.append(measure(one, 3 if options.quick else one.load.repetitions))
            console.print(
                f"{one.load.name}: {rows[-1]['ratio']:.2f} ({rows[-1]['median_ratio']:.2f})"
            )
    about = {
        "torch": torch.__version__,
        "instructions": bfloat16_instructions("cpu"),
        "load_before": load,
    }
    options.out.write_text(json.dumps({**about, "rows": rows}, indent=2) + "\n")
    console.print(f"written to {options.out}")


if __name__ == "__main__":
    main()
