"""The federated linear regression of FedCVR-Bolt:
``task = { name = "clustered_regression", clusters = 2 }``.

Source: arXiv:2506.02897v1, Appendix B.3 (docs/methods/timing-and-world.md#clustered-regression).

Client k belongs to cluster ``j ~ Uniform{0 .. J - 1}``; its samples are ``x ~ N(mu_x, sigma_x^2)``,
each with its own coefficients, ``theta_i ~ N(theta, sigma_theta^2 I)``, and ``y = theta_i . x``,
where with ``intercept`` a 1 is appended to x. So the noise is
multiplicative: the smallest mean squared error of any model at x is ``sigma_theta^2 |x|^2``. One
cluster is IID.

The paper gives neither the clusters' parameters nor N. INTERPRETATION-D: the defaults, drawn once
per cluster.

Published: T = 100, m = 10, 10 local steps (epochs in the appendix), lr .01, batches of 100.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.tasks.models import Linear
from motley.tasks.task import Dataset, TaskSource

Range = tuple[float, float]


class Cluster(NamedTuple):
    """The parameters of a cluster: mean and standard deviation of x and of the coefficients (mean
    ``[1]`` or ``[2]``)."""

    mu_x: float
    sigma_x: float
    theta: Floats
    sigma_theta: float

    @property
    def min_mse(self) -> float:
        """The mean squared error of the cluster's best model: ``sigma_theta^2 E |x|^2``.

        >>> Cluster(2.0, 1.0, np.array([3.0, 0.5]), 0.1).min_mse  # 0.01 (4 + 1 + 1)
        0.06
        """
        return round(
            self.sigma_theta**2 * (self.mu_x**2 + self.sigma_x**2 + len(self.theta) - 1), 12
        )


@dataclass(frozen=True)
class ClusteredRegression(TaskSource):
    """Linear regression with one line per cluster of clients and noise in the coefficients; natural
    clients.

    Parameters
    ----------
    clusters: J.
    intercept: whether lines have an intercept.
    examples: samples of each client, N.
    mu_x, sigma_x, theta, sigma_theta: smallest and largest value of each, drawn uniformly, once per
        cluster (``theta`` once per coefficient).

    ``partition = "by_writer"`` keeps these clients; any other partition mixes their samples. The
    loss is half the squared error, so the mean squared error is twice the loss.
    """

    loss: ClassVar[str] = "half_squared_error"
    metric: ClassVar[Literal["accuracy", "loss"]] = "loss"
    makes_clients: ClassVar[bool] = True

    clusters: int = 2
    intercept: bool = False
    examples: int = 100
    mu_x: Range = (-5.0, 5.0)
    sigma_x: Range = (0.5, 1.5)
    theta: Range = (-5.0, 5.0)
    sigma_theta: Range = (0.1, 1.0)

    def __post_init__(self) -> None:
        for name, least in (("clusters", 1), ("examples", 2)):
            if getattr(self, name) < least:
                raise ConfigError(f"{name}: got {getattr(self, name)}; expected at least {least}")
        for name in ("mu_x", "sigma_x", "theta", "sigma_theta"):
            low, high = getattr(self, name)
            deviation = name.startswith("sigma")
            if not (-math.inf < low <= high < math.inf and (low >= 0 or not deviation)):
                kind = "deviations of at least 0" if deviation else "finite numbers"
                raise ConfigError(
                    f"{name}: got [{low:g}, {high:g}]; expected two {kind}, the least and the "
                    "greatest value"
                )

    def cluster(self, key: Key, number: int) -> Cluster:
        """Return a cluster's parameters; they depend on its number and the key alone."""

        def drawn(name: str, n: int = 1) -> Floats:
            low, high = getattr(self, name)
            return np.asarray(low + (high - low) * key.fold(name).uniform([number], n)[0])

        theta = drawn("theta", 2 if self.intercept else 1)
        return Cluster(
            float(drawn("mu_x")[0]),
            float(drawn("sigma_x")[0]),
            theta,
            float(drawn("sigma_theta")[0]),
        )

    def members(self, key: Key, population: int) -> NDArray[np.int64]:
        """Return the cluster of each client ``[K]``."""
        return (self.clusters * key.fold("cluster").uniform(np.arange(population))[:, 0]).astype(
            np.int64
        )

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return all clients' samples, client by client; a client's samples depend on its id
        alone."""
        n = self.examples
        member = self.members(key, population)
        clusters = [self.cluster(key, j) for j in range(self.clusters)]
        x = np.ones((population, n, 1 + self.intercept))
        y = np.empty((population, n, 1))
        for k in range(population):
            law = clusters[member[k]]
            rng = key.fold("client", k).numpy()
            x[k, :, 0] = rng.normal(law.mu_x, law.sigma_x, n)
            y[k, :, 0] = (rng.normal(law.theta, law.sigma_theta, (n, len(law.theta))) * x[k]).sum(
                axis=1
            )
        sizes = np.bincount(member, minlength=self.clusters)
        least = float(np.dot(sizes, [law.min_mse for law in clusters]) / population)
        if self.clusters > 1:
            sentence = f"{self.clusters} clusters of {', '.join(map(str, sizes))} clients"
        else:
            sentence = "one cluster (IID)"
        note = {
            "data": f"linear regression, {sentence}; a model per cluster would have a mean squared "
            f"error of {least:.4g}"
        }
        flat = [torch.from_numpy(values.reshape(population * n, -1)).float() for values in (x, y)]
        client = np.repeat(np.arange(population), n)
        nowhere = np.zeros(len(client), bool)
        return Dataset(
            x=flat[0],
            y=flat[1],
            classes=None,
            test=nowhere,
            groups=client,
            names=(),
            notes=note,
            generated=True,
        )

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        """Return a factory of ``Flatten, Linear`` without bias: the intercept, if any, is a
        coefficient like the slope."""
        return partial(Linear(bias=False).build, tuple(dataset.x.shape[1:]), 1)
