"""Two worlds of quadratic losses that differ in one client, simulated in NumPy for many trials at
once.

Client k has the loss ``|w - o_k|^2 / 2``, cut at B where it is a signal, and sends ``o_k - w``,
clipped at C. Client 0, the canary, has its optimum far off, or at the population's centre. The
server adds noise of deviation z C to the sum, divides by m and takes a step so short that noise
alone moves the model by about half a unit in all rounds. Reference: docs/privacy.md#attack.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.core.keys import Key
from motley_privacy.accounting import Release, bound
from motley_privacy.likelihood_ratios import Observed, gaussian_ratio, laplace_ratio

DELTA = 1e-5
DIMENSIONS = 8
LARGEST_LOSS = 4.0
"""B: losses are cut here."""
_FAR = 10.0
_SPREAD = 0.5
_BLOCK = 2000
"""Trials at a time."""


@dataclass(frozen=True)
class TwoWorlds:
    """A rule of choice under attack.

    Parameters
    ----------
    rule: a coin per client, a uniform draw of m, or the m largest losses: clear, with Laplace noise
    of scale ``LARGEST_LOSS / strength`` at the client, or with Gumbel noise of that scale at the
    server.
    m: the cohort.
    strength: epsilon of one noisy loss, or eta B.
    losses_seen: whether the adversary sees noisy losses.
    clients, rounds, clip, noise_multiplier: K, R, C and z.
    """

    rule: Literal["poisson", "uniform", "clear", "laplace", "gumbel"]
    m: int = 4
    strength: float = 1.0
    losses_seen: bool = False
    clients: int = 40
    rounds: int = 10
    clip: float = 1.0
    noise_multiplier: float = 20.0

    def bound(self, delta: float) -> float | None:
        """Return the epsilon that the account gives for cohorts that are seen, under replace-one;
        None if there is none."""
        if self.rule == "clear":
            return None
        releases = [Release("gaussian", self.noise_multiplier, self.rounds)]
        if self.rule in ("laplace", "gumbel"):
            winners = self.m if self.rule == "gumbel" else 1
            releases.append(Release(self.rule, 2.0 / self.strength, self.rounds, m=winners))
        return bound(tuple(releases), delta, "replace_one").epsilon

    def trials(self, far: bool, count: int, seed: int) -> Observed:
        """Return what an adversary sees in ``count`` trials of one world."""
        rng = Key(seed).fold("attack", int(far)).numpy()
        blocks = [
            self._block(far, min(_BLOCK, count - first), rng) for first in range(0, count, _BLOCK)
        ]
        signals = np.concatenate(
            [block.signals for block in blocks if block.signals is not None] or [np.zeros(0)]
        )
        members, sums = (
            np.concatenate(parts) for parts in zip(*[block[:2] for block in blocks], strict=True)
        )
        return Observed(members, sums, signals if self.losses_seen else None)

    def _block(self, far: bool, n: int, rng: np.random.Generator) -> Observed:
        near_o, far_o, honest = optima(self.clients)
        centres = np.concatenate([(far_o if far else near_o)[None], honest])
        deviation = self.noise_multiplier * self.clip
        rate = server_rate(deviation, self.m, self.rounds) / self.m
        model = np.zeros((n, DIMENSIONS))
        sums = np.zeros(n)
        signals = np.zeros(n)
        member = np.zeros((n, self.rounds), bool)
        for t in range(self.rounds):
            losses = _losses(centres, model)
            scores = self._scores(np.minimum(losses, LARGEST_LOSS), rng)
            chosen = _cohort(scores, self.m, self.rule == "poisson")
            member[:, t] = chosen[:, 0]
            if self.losses_seen:
                near_l, far_l = (
                    np.minimum(_losses(optimum[None], model)[:, 0], LARGEST_LOSS)
                    for optimum in (near_o, far_o)
                )
                signals += laplace_ratio(scores[:, 0], near_l, far_l, LARGEST_LOSS / self.strength)
            noise = deviation * rng.standard_normal((n, DIMENSIONS))
            near_u, far_u = (
                clipped_rows(optimum - model, self.clip) for optimum in (near_o, far_o)
            )
            # the adversary knows what the others add: the canary's part and the noise are left
            ratio = gaussian_ratio((far_u if far else near_u) + noise, near_u, far_u, deviation)
            sums += np.where(chosen[:, 0], ratio, 0.0)
            # The floor is for a client that is at its optimum: its share is 1, whatever is divided.
            # |o - w|^2 is 2 losses
            shares = chosen * np.minimum(1.0, self.clip / np.sqrt(np.maximum(2.0 * losses, 1e-12)))
            model = model + rate * (shares @ centres - shares.sum(1, keepdims=True) * model + noise)
        return Observed(member, sums, signals if self.losses_seen else None)

    def _scores(self, losses: Floats, rng: np.random.Generator) -> Floats:
        """Return what cohorts are chosen by, ``[n, K]``."""
        if self.rule in ("poisson", "uniform"):
            return np.asarray(rng.random(losses.shape))
        scale = LARGEST_LOSS / self.strength
        if self.rule == "laplace":
            return np.asarray(losses + rng.laplace(scale=scale, size=losses.shape))
        if self.rule == "gumbel":
            return np.asarray(losses + rng.gumbel(scale=scale, size=losses.shape))
        return np.asarray(losses + 1e-9 * rng.random(losses.shape))  # ties at random


def optima(clients: int) -> tuple[Floats, Floats, Floats]:
    """Return the canary's optimum near and far, ``[d]``, and those of the others, ``[K - 1, d]``,
    whose mean is 0."""
    honest = _SPREAD * Key(0).fold("optima").numpy().standard_normal((clients - 1, DIMENSIONS))
    return np.zeros(DIMENSIONS), np.eye(DIMENSIONS)[0] * _FAR, honest - honest.mean(0)


def server_rate(deviation: float, divisor: float, rounds: int) -> float:
    """Return the server's step with which noise moves each coordinate of the model by about a half
    in all rounds, at most 1."""
    return min(1.0, 0.5 * divisor / (deviation * float(np.sqrt(rounds)))) if deviation else 1.0


def clipped_rows(updates: Floats, clip: float) -> Floats:
    """Return vectors ``[..., d]`` with norms of at most ``clip``."""
    norms = np.linalg.norm(updates, axis=-1, keepdims=True)
    return np.asarray(updates * np.minimum(1.0, clip / np.maximum(norms, 1e-300)))


def _losses(centres: Floats, model: Floats) -> Floats:
    """Return the losses of clients with these optima ``[K, d]`` at models ``[n, d]``:
    ``[n, K]``."""
    squares = (centres**2).sum(1) - 2.0 * (model @ centres.T) + (model**2).sum(1, keepdims=True)
    return np.asarray(np.maximum(0.5 * squares, 0.0))


def _cohort(scores: Floats, m: int, coins: bool) -> NDArray[np.bool_]:
    """Return who is in, bool ``[n, K]``: the m largest, or those whose coin says so."""
    n, clients = scores.shape
    if coins:
        return np.asarray(scores < m / clients)
    chosen = np.zeros((n, clients), bool)
    np.put_along_axis(chosen, np.argpartition(-scores, m - 1, axis=1)[:, :m], True, axis=1)
    return chosen


ROWS = (
    TwoWorlds("poisson"),
    TwoWorlds("uniform"),
    TwoWorlds("clear"),
    TwoWorlds("clear", 20),
    TwoWorlds("laplace"),
    TwoWorlds("laplace", strength=2.0),
    TwoWorlds("laplace", 20),
    TwoWorlds("laplace", 20, 2.0),
    TwoWorlds("laplace", losses_seen=True),
    TwoWorlds("gumbel"),
    TwoWorlds("gumbel", 20, 2.0),
)
"""The rules of the table in docs/privacy.md#attack."""
