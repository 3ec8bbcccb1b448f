"""What it costs to compare a run's engine with plain PyTorch before its first round.

    python benchmarks/admission.py [OUT.json]

Seconds of :func:`motley.engines.admission.admit`, the third of three in one process (the first
imports what a run would import anyway), for models of the README's size and ResNet-18.
"""

from __future__ import annotations

import json
import platform
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import motley
from motley.engines.admission import admit
from motley.tasks import from_clients, own_task
from motley.tasks.models import MODELS


def cases() -> dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]]:
    """Return models and shapes of a sample by name."""

    def of_catalogue(name: str, shape: tuple[int, ...]) -> Callable[[], nn.Module]:
        options = MODELS.build(name)
        return lambda: options.build(shape, 10)

    shapes = {
        "logistic_regression": (1, 28, 28),
        "digits_mlp": (1, 8, 8),
        "mlp": (1, 28, 28),
        "leaf_cnn": (1, 28, 28),
        "resnet9": (3, 32, 32),
        "resnet18": (3, 32, 32),
    }
    return {name: (of_catalogue(name, shape), shape) for name, shape in shapes.items()}


def seconds(make: Callable[[], nn.Module], shape: tuple[int, ...]) -> float:
    """Return the wall seconds of one comparison, of the third in this process."""
    rng = np.random.default_rng(0)
    clients = [
        (rng.normal(size=(n, *shape)).astype(np.float32), np.arange(n) % 10) for n in (40, 70, 33)
    ]
    task = own_task(from_clients(clients, test=clients), make)
    keys: dict[str, Any] = {
        "task": "own",
        "cohort": 2,
        "stop": {"rounds": 1},
        "local": {"epochs": 1, "batch_size": 16},
    }
    setting = motley.build(keys, task=task).setting
    for _ in range(2):
        begun = time.perf_counter()
        admit(setting, "auto")
    return time.perf_counter() - begun


def main() -> None:
    """Measure, print, and write a file where one is named."""
    warnings.simplefilter("ignore")
    rows = {}
    for name, (make, shape) in cases().items():
        rows[name] = round(seconds(make, shape), 3)
        print(f"{name:20} {rows[name]:.3f} s", flush=True)
    found = {"seconds": rows, "torch": torch.__version__, "machine": platform.processor()}
    if len(sys.argv) > 1:
        Path(sys.argv[1]).write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
