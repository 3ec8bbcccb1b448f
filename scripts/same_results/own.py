"""Tasks made in Python, as a user makes them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import nn

from motley.tasks import from_arrays, from_clients, own_task

__all__ = ["made", "renamed"]


def made(name: str) -> Any:
    """The task of this name: ``classes``, ``halves`` (of one output), ``numbers``, ``global``,
    ``adapters`` (of low rank), ``merged`` (adapters whose products are merged) or ``renamed`` (with
    test samples of each client)."""
    if name == "renamed":
        return renamed(range(6))
    rng = np.random.default_rng(5)
    if name in ("adapters", "merged"):
        clients = [(rng.normal(size=(14 + k, 5)), rng.integers(0, 3, 14 + k)) for k in range(6)]
        federation = from_clients(clients, test_fraction=0.25, seed=3)
        return own_task(federation, _merged if name == "merged" else _adapted)
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


def renamed(order: Iterable[int]) -> Any:
    """Return a task whose client ``i`` has the training and test samples of number
    ``order[i]``."""
    clients = []
    tests = []
    for number in order:
        rng = np.random.default_rng(number)
        x = rng.normal(size=(14 + number, 5))
        y = np.arange(14 + number) % 3
        clients.append((x[:-4], y[:-4]))
        tests.append((x[-4:], y[-4:]))
    return own_task(from_clients(clients, test=tests), _two_layers)


def _two_layers() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3))


def _classifier() -> nn.Module:
    """Layers with statistics and with dropout."""
    return nn.Sequential(
        nn.Linear(5, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 3)
    )


def _adapted() -> nn.Module:
    """Two layers, each frozen beside an adapter of rank 4."""
    from motley.testing.algorithms import Adapted  # older code has none

    return nn.Sequential(Adapted(5, 6), nn.ReLU(), Adapted(6, 3))


def _merged() -> nn.Module:
    from motley.tasks.merged import merging  # older code has none

    return merging(_adapted)


def _halved(batch: torch.Tensor, key: Any) -> torch.Tensor:
    return 0.5 * batch
