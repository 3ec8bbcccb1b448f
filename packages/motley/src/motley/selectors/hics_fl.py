"""HiCS-FL draws groups of clients whose updates say that their labels are balanced, less and less
so, from what an upload does to the bias of the output layer.

Chen, Vikalo: *Heterogeneity-Guided Client Sampling: Towards Fast and Efficient Non-IID Federated
Learning*, NeurIPS 2024 (arXiv:2310.00198).

    H_k = entropy of softmax(b_k / T),  b_k what client k's last update adds to the output's bias
    d_jk = angle(b_j, b_k) + lambda |H_j - H_k|;   Ward's method on d makes M groups
    group g is drawn with probability ~ exp(gamma_t mean of H in g),   gamma_t = gamma (1 - t / R)
    in a group every client is as likely; a client is drawn once

Symbols: m clients a round, R planned rounds, t steps made so far. Few samples of a class pull its
bias down, so balanced labels leave the entries of b alike, and H near log C: early rounds prefer
balanced groups, late ones all groups alike.

State, per client: ``bias`` [C], NaN before its first accepted update; ``count``, how often it was
sent out. Needs: the signal ``output_bias`` of updates, and the horizon. Probe cost: none. A choice
costs O(K^2) distances and a tree: for thousands of clients.
``Cohort.notes``: ``entropy``, the mean H of the cohort; ``spread``, the standard deviation of H
over the available clients; ``groups``; ``gamma``. ``client_notes``:
``entropy``, absent for new clients.

Deviations and readings
-----------------------
* As published, everybody is drawn once first: clients that were never sent out come before all
  others, in a random order. Where they do not fill a cohort, the rest is drawn by groups.
* b grows with learning rate and steps, so ``temperature`` must fit them: where ``entropy`` is near
  0 it is too small, where ``spread`` is near 0 and ``entropy`` near log C too large. The code's
  files have .001 and .0015 with Adam or SGD at rate .001, for another quantity (below).
* READING M = m where it is left out; the code's M is 10 for m = 10. lambda 10 and gamma 4 are the
  code's.
* READING b is the update of the *bias*, and Ward's method works on the matrix d. The released code
  differs: it takes the rows of the head's *weight* for the angles, hands the rows of d to Ward's
  method as points, falls back to clustered sampling while the entropies spread by less than .1,
  and asks clients in another order in its warm-up. Its temperature of .0015 belongs to the quantity
  that it measures: under one setting this rule reached 81.4 with it, and 85.6 with .15. The
  default is the code's; set ``temperature`` by your own rate.
* INTERPRETATION-D a client that was sent out and never heard has the mean b of the others. The
  angle of a b of zeros to any other is a right one.
* Where clients keep the head or never train it (FedPer, FedRep, FedBABU) b is 0 and nobody is
  preferred. A model whose last linear layer has no bias is refused.

Worked
------
T = 1: b = (ln 2, 0, 0): softmax (.5, .25, .25), H = 1.039721; b = (0, 0, 0): H = ln 3 = 1.098612.
Two groups with these H, gamma = 4 at the start: odds exp(4 * .058892) = 1.265625 to 1.

>>> import numpy as np
>>> entropies(np.array([[np.log(2.0), 0.0, 0.0], [0.0, 0.0, 0.0]]), 1.0).round(6).tolist()
[1.039721, 1.098612]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import dispatched, known_vectors, put_vectors
from motley.selectors.common.clustering import row_angles, ward_groups
from motley.selectors.common.sampling import softmax, with_replacement
from motley.selectors.selector import SelectionRule


@dataclass(frozen=True)
class HiCSFL(SelectionRule[ClientTable]):
    """Draw groups of clients by how balanced their labels seem, and clients within groups evenly.

    Parameters
    ----------
    temperature: T, the scale of the bias's updates.
    distance: lambda, how much different entropies keep clients apart.
    preference: gamma, how much balanced groups are preferred in the first round.
    groups: M; None: as many as clients are asked.
    """

    temperature: float = 0.0015
    distance: float = 10.0
    preference: float = 4.0
    groups: int | None = None

    paper: ClassVar[Paper] = cite("chen2024hics")

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ConfigError(f"got temperature = {self.temperature}; expected a positive number")
        for name in ("distance", "preference"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected a number of at least 0"
                )
        if self.groups is not None and self.groups < 1:
            raise ConfigError(f"got groups = {self.groups}; expected a whole number of at least 1")

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(reported=frozenset({"output_bias"}), horizon=True)

    @override
    def init(self) -> ClientTable:
        return ClientTable({"bias": np.nan, "count": 0.0})

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        available = context.available
        new = np.flatnonzero(state.get("count", available) == 0)
        chosen = context.rng.permutation(new)[: context.m]
        if len(chosen) == context.m:
            return Cohort(available[chosen])
        seen = np.flatnonzero(state.get("count", available) > 0)
        bias, _ = known_vectors(state, "bias", available[seen])
        h = entropies(bias, self.temperature)
        groups = ward_groups(distances(bias, h, self.distance), self.groups or context.m)
        horizon = context.horizon or context.step
        gamma = self.preference * max(0.0, 1.0 - (context.step - 1) / horizon)
        drawn = drawn_by_groups(
            groups=groups, h=h, gamma=gamma, count=context.m - len(chosen), rng=context.rng
        )
        notes = {
            "entropy": float(h[drawn].mean()),
            "spread": float(h.std()),
            "groups": float(groups.max() + 1),
            "gamma": gamma,
        }
        each = {"entropy": np.concatenate([np.full(len(chosen), np.nan), h[drawn]])}
        ids = available[np.concatenate([chosen, seen[drawn]])]
        return Cohort(ids, notes=notes, client_notes=each)

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        sent = dispatched(reports)
        clients = state.add("count", sent.ids) if len(sent) else state
        accepted = reports.of(Outcome.ACCEPTED)
        return put_vectors(clients, "bias", accepted, "output_bias") if len(accepted) else clients


def entropies(bias: Floats, temperature: float) -> Floats:
    """Return the entropy of ``softmax(b_k / T)`` of each row of ``bias`` ``[K, C]``, in nats."""
    scaled = bias / temperature
    p = np.exp(scaled - scaled.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    return np.asarray(-(p * np.log(np.where(p > 0, p, 1.0))).sum(axis=1))


def distances(bias: Floats, h: Floats, weight: float) -> Floats:
    """Return ``d`` ``[K, K]``, the angle between two rows of ``bias`` ``[K, C]`` plus ``weight``
    times the difference of their entropies ``h`` ``[K]``."""
    h = rounded(h)  # equals have the distance 0
    return row_angles(bias) + weight * np.abs(h[:, None] - h)


def drawn_by_groups(
    groups: Ints, h: Floats, gamma: float, count: int, rng: np.random.Generator
) -> Ids:
    """Return the positions of ``count`` clients, drawn by the mean ``h`` of their groups; a group
    whose clients are all drawn is drawn no more."""
    size = np.bincount(groups)
    mean = np.bincount(groups, h) / size
    times = np.zeros(len(size), np.int64)
    for _ in range(count):
        odds = softmax(np.where(times < size, gamma * mean, -np.inf))
        times[with_replacement(odds, 1, rng)[0]] += 1
    order = rng.permutation(len(groups))
    parts = [order[groups[order] == g][:n] for g, n in enumerate(times.tolist()) if n]
    return np.concatenate(parts)
