"""Clients with quadratic objectives, whose limits are known in closed form:
``task = { name = "quadratic" }``.

Client k minimizes ``f_k(w) = a_k / 2 * ||w - m_k||^2``. It is represented by a linear layer without
bias from one input to d outputs (so ``w`` is its weight), the sample ``x = sqrt(a_k)``,
``y = sqrt(a_k) m_k`` and half the squared error: ``||w x - y||^2 / 2 = a_k / 2 * ||w - m_k||^2``.
Engines treat it like any other model.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import nn
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.tasks.models import Linear
from motley.tasks.task import Dataset, TaskSource


@dataclass(frozen=True)
class Quadratic(TaskSource):
    """Quadratic objectives with known minima; natural clients.

    Parameters
    ----------
    dim: d.
    curvatures: ``a_k``, one per client; empty: all 1.
    minima: ``m_k``, ``population * dim`` numbers client by client; empty: standard normal numbers
    times ``spread``.
    examples: equal samples per client (its ``n_k``); empty: one each.

    Each client also has one test row, a copy of its sample, so that the mean test loss is the mean
    of the ``f_k``.
    """

    loss: ClassVar[str] = "half_squared_error"
    metric: ClassVar[Literal["accuracy", "loss"]] = "loss"
    makes_clients: ClassVar[bool] = True

    dim: int = 1
    curvatures: tuple[float, ...] = ()
    minima: tuple[float, ...] = ()
    examples: tuple[int, ...] = ()
    spread: float = 1.0

    def __post_init__(self) -> None:
        if self.dim < 1:
            raise ConfigError(f"dim: got {self.dim}; expected at least 1")
        if any(a <= 0 for a in self.curvatures):
            raise ConfigError(f"curvatures: got {list(self.curvatures)}; expected numbers above 0")
        if any(n < 1 for n in self.examples):
            raise ConfigError(f"examples: got {list(self.examples)}; expected at least 1 each")

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return ``n_k`` equal training rows and one test row per client; float64, so that closed
        forms hold up to rounding."""
        a = self._per_client("curvatures", self.curvatures, np.ones(population))
        minima = self._per_client(
            "minima", self.minima, self.spread * key.normal(np.arange(population), self.dim).ravel()
        )
        count = self._per_client("examples", self.examples, np.ones(population)).astype(np.int64)
        client = np.concatenate([np.repeat(np.arange(population), count), np.arange(population)])
        test = np.arange(len(client)) >= count.sum()
        root = np.sqrt(a)[client, None]
        y = root * minima.reshape(population, self.dim)[client]
        note = {"data": f"parabolas in {self.dim} dimensions"}
        return Dataset(
            x=torch.from_numpy(root),
            y=torch.from_numpy(y),
            classes=None,
            test=test,
            groups=client,
            names=(),
            notes=note,
            generated=True,
        )

    @staticmethod
    def _per_client(name: str, values: tuple[float, ...], default: Floats) -> Floats:
        if values and len(values) != len(default):
            raise ConfigError(
                f"got {len(values)} numbers; this population needs {len(default)}", f"task.{name}"
            )
        return np.asarray(values, dtype=np.float64) if values else default

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        return partial(Linear(bias=False).build, (1,), self.dim)


def minimum(p: ArrayLike, a: ArrayLike, m: ArrayLike) -> Floats:
    """Return the minimum of ``sum p_k f_k``: ``sum p_k a_k m_k / sum p_k a_k``; ``p``, ``a``
    ``[K]``, ``m`` ``[K]`` or ``[K, d]``."""
    return np.asarray(
        np.average(
            np.asarray(m, float), axis=0, weights=np.asarray(p, float) * np.asarray(a, float)
        )
    )


def fedavg_round(
    w: ArrayLike, p: ArrayLike, a: ArrayLike, m: ArrayLike, steps: ArrayLike, lr: float
) -> Floats:
    """Return the model after one round of FedAvg in which client k takes ``steps_k`` full-batch
    steps, weights ``p`` (summing to 1).

    A step is ``w - lr a_k (w - m_k)``, so after tau of them
    ``w_k = m_k + (1 - lr a_k)^tau (w - m_k)``.
    """
    start = np.asarray(w, float)
    target = np.asarray(m, float)
    left = (1.0 - lr * np.asarray(a, float)) ** np.asarray(steps)
    after = target + np.expand_dims(left, tuple(range(1, target.ndim))) * (start - target)
    return np.asarray(np.tensordot(np.asarray(p, float), after, 1))


def fedavg_fixed_point(
    p: ArrayLike, a: ArrayLike, m: ArrayLike, steps: ArrayLike, lr: float
) -> Floats:
    """Return the fixed point of FedAvg with all clients and weights ``p``:
    ``sum p_k (1 - (1 - lr a_k)^tau_k) m_k / sum p_k (1 - (1 - lr a_k)^tau_k)``
    (docs/methods/algorithms.md#fedavg).

    Example
    -------
    >>> round(float(fedavg_fixed_point([0.5, 0.5], [1, 1], [0, 10], [2, 20], lr=0.01)), 6)
    9.014818
    """
    moved = 1.0 - (1.0 - lr * np.asarray(a, float)) ** np.asarray(steps)
    return minimum(p, moved, m)


def fednova_fixed_point(
    p: ArrayLike, a: ArrayLike, m: ArrayLike, steps: ArrayLike, lr: float
) -> Floats:
    """Return the fixed point of FedNova, which divides each client's progress by its steps (A4,
    test iii).

    Example
    -------
    >>> round(float(fednova_fixed_point([0.5, 0.5], [1, 1], [0, 10], [2, 20], lr=0.01)), 6)
    4.778178
    """
    moved = (1.0 - (1.0 - lr * np.asarray(a, float)) ** np.asarray(steps)) / np.asarray(steps)
    return minimum(p, moved, m)
