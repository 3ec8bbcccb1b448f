"""One run of a comparison as a framework's user starts it: the clients' digits, the model, the
local steps, and what a run writes down.

Knows nothing of any framework, Motley included. ``whole_grids.py`` writes the clients' samples.
"""

from __future__ import annotations

import argparse
import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from torch import Tensor, nn

CLIENTS, COHORT = 30, 5
EPOCHS, BATCH, LR = 5, 16, 0.01


@dataclass(frozen=True)
class GridRun:
    """One run: an ``algorithm`` by Motley's name, a ``seed``, and so many ``rounds``.

    ``data``: a file with ``x0``, ``y0`` to ``x29``, ``y29`` of the clients, ``x`` and ``y`` of the
    test samples. ``out``: the folder for what is counted.
    """

    data: Path
    out: Path
    algorithm: str
    seed: int
    rounds: int
    epochs: int = EPOCHS
    batch: int = BATCH
    lr: float = LR

    def samples(self, client: int | str = "") -> tuple[Tensor, Tensor]:
        """Return inputs and labels of a client; of the test without one."""
        import torch

        arrays = _arrays(self.data)
        return torch.from_numpy(arrays[f"x{client}"]), torch.from_numpy(arrays[f"y{client}"])

    def write(self, steps: int, correct: float) -> None:
        """Write down how many local steps there were, and the last accuracy."""
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "grid.json").write_text(json.dumps({"steps": steps, "accuracy": correct}))


@functools.cache
def _arrays(data: Path) -> dict[str, np.ndarray]:
    with np.load(data) as file:
        return dict(file)


def grid_run(argv: Sequence[str] | None = None) -> GridRun:
    """Return the run that a command line asks for."""
    parser = argparse.ArgumentParser(description="One run of benchmarks/peers/whole_grids.py")
    parser.add_argument("algorithm")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--rounds", type=int, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    given = parser.parse_args(argv)
    return GridRun(
        data=given.data.resolve(),
        out=given.out.resolve(),
        algorithm=given.algorithm,
        seed=given.seed,
        rounds=given.rounds,
    )


def digits_model() -> nn.Module:
    """Return the multi-layer perceptron that Motley calls ``mlp``, for 64 inputs."""
    from torch import nn

    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 200),
        nn.ReLU(),
        nn.Linear(200, 200),
        nn.ReLU(),
        nn.Linear(200, 10),
    )


def accuracy(model: nn.Module, x: Tensor, y: Tensor) -> float:
    """Return the share of samples whose label a model gives the highest output."""
    import torch

    with torch.no_grad():
        return float((model(x).argmax(1) == y).float().mean())
