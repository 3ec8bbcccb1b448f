"""Tasks made in Python, as a user makes them."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from motley.tasks import from_arrays, from_clients, own_task

__all__ = ["made"]


def made(name: str) -> Any:
    """The task of this name: ``classes``, ``halves`` (of one output), ``numbers`` or ``global``."""
    rng = np.random.default_rng(5)
    if name == "halves":
        clients = [(rng.normal(size=(10 + k, 5)), rng.integers(0, 2, 10 + k)) for k in range(6)]
        return own_task(from_clients(clients, test_fraction=0.25, seed=3), lambda: nn.Linear(5, 1))
    if name == "classes":
        clients = [
            (rng.normal(size=(12 + 3 * k, 5)), rng.integers(0, 3, 12 + 3 * k)) for k in range(6)
        ]
        return own_task(
            from_clients(clients, test_fraction=0.25, validation=0.1, seed=3),
            _classifier,
            transform=_halved,
        )
    x = rng.normal(size=(90, 5))
    owner = rng.integers(0, 5, 90)
    if name == "numbers":
        federation = from_arrays(
            x, x[:, 0] - 2.0 * x[:, 1] + rng.normal(size=90), owner, regression=True
        )
        return own_task(federation, lambda: nn.Linear(5, 1))
    federation = from_arrays(
        x, rng.integers(0, 3, 90), owner, test="global", test_fraction=0.2, seed=1
    )
    return own_task(federation, _classifier, name="words")


def _classifier() -> nn.Module:
    """Layers with statistics and with dropout."""
    return nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3)
    )


def _halved(batch: torch.Tensor, key: Any) -> torch.Tensor:
    return 0.5 * batch
