"""A small run whose local steps take wall time but hardly any processor time, for a cluster of
nodes on one machine.

    python -m chaos.slow_run OUT ROUNDS ALGORITHM ENGINE

ENGINE is a table of engine options in JSON. It goes on with what OUT holds, and prints a line after
every round.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

__all__ = ["Slow", "main", "make"]

STEP_S = 0.05
CLIENTS = 12
SAMPLES = 40


class Slow(nn.Module):
    """A small network that waits before each training step; for its buffer's sake clients are
    trained one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(8, 3)
        self.register_buffer("scale", torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        """Return the network's output."""
        if torch.is_grad_enabled():
            time.sleep(STEP_S)
        out: Tensor = self.layer(torch.tanh(x) * self.scale)
        return out


def make() -> nn.Module:
    """Return the model."""
    return Slow()


def main(out: str, rounds: str, algorithm: str, engine: str) -> None:
    """Run to the end."""
    import motley

    # not that of __main__, which no worker could find
    from chaos.slow_run import make as importable
    from motley.tasks import from_arrays, own_task

    rng = np.random.default_rng(0)
    x = rng.normal(size=(CLIENTS * SAMPLES, 8)).astype(np.float32)
    client = np.arange(len(x)) % CLIENTS
    y = (x[:, 0] + 0.3 * client / CLIENTS > 0).astype(int) + (x[:, 1] > 0.5)
    keys: dict[str, Any] = {
        "cohort": 8,
        "stop": {"rounds": int(rounds)},
        "algorithm": algorithm,
        "engine": json.loads(engine),
        "local": {"epochs": 1, "batch_size": 8},
        "checkpoint": {"every_rounds": 1},
    }
    motley.run(
        keys,
        task=own_task(from_arrays(x, y, client), importable),
        out=out,
        resume=True,
        progress=True,
        on_round=lambda done: print(f"round {done.round} at {time.time():.2f}", flush=True),
    )
    print("done", flush=True)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Exception as error:
        print(f"{type(error).__name__}: {error}", flush=True)
        sys.exit(1)
