"""Linear bandits: ridge regression of rewards on client features, shared by FLASH and LinUCB.

    V = lambda I + sum x x^T,  b = sum r x,
    theta_hat = V^-1 b                     ridge regression on the history
    V = L L^T;   theta = theta_hat + g L^-T z  has the law N(theta_hat, g^2 V^-1);
    x^T V^-1 x = |L^-1 x|^2

Everything goes through the Cholesky factor; nothing is inverted. Shapes: ``x`` ``[n, d]``, ``V``
and ``L`` ``[d, d]``.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.linalg import cho_solve, solve_triangular
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.records import Reports
from motley.core.table import ClientTable
from motley.selectors.common.client_features import ContextualBandit

Schedule = Literal["constant", "algorithm", "analysis"]


def learn(v: Floats, b: Floats, x: Floats, rewards: Floats) -> tuple[Floats, Floats]:
    """Return ``V + sum x x^T`` and ``b + sum r x``."""
    return v + x.T @ x, b + x.T @ rewards


def factor(v: Floats) -> Floats:
    """Return L of ``V = L L^T``, lower triangular, of one V ``[d, d]`` or of many ``[n, d, d]``;
    reads V's lower triangle."""
    return np.asarray(np.linalg.cholesky(v), dtype=np.float64)


def posterior_mean(lower: Floats, b: Floats) -> Floats:
    """Return ``theta_hat = V^-1 b``, ``[d]``."""
    return np.asarray(cho_solve((lower, True), b))


def draw(lower: Floats, b: Floats, g: float, z: Floats) -> Floats:
    """Return ``theta_hat + g L^-T z``, ``[d]``, for a standard normal ``z``."""
    return posterior_mean(lower, b) + g * np.asarray(
        solve_triangular(lower, z, trans="T", lower=True)
    )


def widths(lower: Floats, x: Floats) -> Floats:
    """Return ``sqrt(x^T V^-1 x)``, ``[n]``."""
    whitened = solve_triangular(lower, x.T, lower=True)
    # a sum of squares is never negative; with an inverse of V rounding may make it so
    return np.asarray(np.sqrt(np.einsum("in,in->n", whitened, whitened)))


@dataclass(frozen=True)
class LinearBanditState:
    """``clients``: the columns of :class:`ContextualBandit`. ``v``: V ``[d, d]``. ``b``:
    ``[d]``."""

    clients: ClientTable
    v: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    b: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class LinearBandit(ContextualBandit[LinearBanditState]):
    """Options, state and learning of a bandit whose reward is linear in the client features.

    The exploration factor, FLASH's g and LinUCB's a, follows ``schedule``:

    ``constant``   the number given
    ``algorithm``  ``sqrt(lambda) + sqrt(d log((1 + s K) / delta))``: FLASH's Algorithm 1
    ``analysis``   ``R sqrt(d log((1 + s L^2 / lambda) / delta)) + sqrt(lambda) S``: FLASH's regret
                   bound

    An option of a schedule that is not in use is refused.

    Parameters
    ----------
    schedule: how the exploration factor changes over time.
    lam: ridge penalty lambda, positive.
    delta: 1 minus the confidence of the schedules, in (0, 1).
    noise, theta_norm, x_norm: R, S and L of ``schedule = "analysis"``.
    """

    schedule: Schedule = "constant"
    lam: float = 1.0
    delta: float = 0.05
    noise: float = 1.0
    theta_norm: float = 1.0
    x_norm: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.constant < math.inf:
            raise ConfigError(
                f"got {self.constant} for exploration; expected a number of at least 0 (0 is "
                "greedy)"
            )
        if not 0 < self.lam < math.inf:
            raise ConfigError(
                f"got lam = {self.lam}; expected a positive number: V would have no Cholesky factor"
            )
        if not 0 < self.delta < 1:
            raise ConfigError(f"got delta = {self.delta}; expected a number in (0, 1)")
        bounds = (self.noise, self.theta_norm, self.x_norm)
        if not all(0 < bound < math.inf for bound in bounds):
            raise ConfigError(
                f"got noise, theta_norm, x_norm = {bounds}; expected positive numbers"
            )
        for schedule, numbers in (("constant", (self.constant,)), ("analysis", bounds)):
            if self.schedule != schedule and set(numbers) != {1.0}:
                raise ConfigError(
                    f"got {numbers}, which only schedule = {schedule!r} uses; got schedule = "
                    f"{self.schedule!r}"
                )

    @property
    @abstractmethod
    def constant(self) -> float:
        """The exploration factor of ``schedule = "constant"``."""

    def exploration(self, s: int, d: int, clients: int) -> float:
        """Return the exploration factor after ``s`` updates, with ``d`` features and K =
        ``clients``."""
        if self.schedule == "constant":
            return self.constant
        if self.schedule == "algorithm":
            return math.sqrt(self.lam) + math.sqrt(d * math.log((1 + s * clients) / self.delta))
        growth = math.log((1 + s * self.x_norm**2 / self.lam) / self.delta)
        return self.noise * math.sqrt(d * growth) + math.sqrt(self.lam) * self.theta_norm

    @override
    def init(self) -> LinearBanditState:
        d = len(self.feature_names)
        return LinearBanditState(
            ClientTable(self.feature_columns()), self.lam * np.eye(d), np.zeros(d)
        )

    @override
    def observe(self, state: LinearBanditState, draw: int, reports: Reports) -> LinearBanditState:
        clients, pairs = self.update_features(state.clients, draw, reports)
        return LinearBanditState(clients, *learn(state.v, state.b, pairs.x, pairs.rewards))
