"""DELTA, as released, draws clients by their loss and by the distance of their gradient from the
mean gradient.

Wang, Guo, Lin, Tang: *DELTA: Diverse Client Sampling for Fasting Federated Learning*, NeurIPS 2023
(code: L3030/DELTA_FL).

    u_k = b l_k / sum l * ||g_k - mean g|| + (1 - b) sqrt(l_k / sum l)
    cohort: m successive draws without replacement, probabilities proportional to u_k
    a_k = p_k / pi_k                                                   Cohort.weights

Symbols: ``l_k`` loss and ``g_k`` gradient of the received model on the client's data, sums and the
mean over the available; ``b`` in [0, 1]; ``p_k`` share of the data, ``pi_k`` the inclusion
probability, *not* m u_k (exact up to 12 available clients, above that Rosen's limit). Diversity is
distance from the mean here; in ``divfl`` it is coverage.

State, per client: ``num_examples``, ``loss`` and ``distance`` as last measured, NaN before.
Needs: ``num_examples`` once; probed ``loss`` and ``gradient_sketch`` (or ``gradient``). Probe cost:
every available client downloads the model, takes its loss and gradient over all its data (or
``probe_batches``) and sends the gradient's numbers up, each round: 256 of a sketch, whose distances
are approximate, or as many as the model has.
``Cohort.notes``: ``max_probability``, ``cv_probability`` over the available, ``max_weight``.

Deviations and readings
-----------------------
* The paper samples by ``sqrt(a1 zeta_k^2 + a2 sigma_k^2)``, where zeta_k = ||grad F_k - grad F||
  and sigma_k^2 is the local variance of stochastic gradients (INTERPRETATION-R). It is not offered:
  no signal measures sigma_k^2.
* INTERPRETATION-D unbiased coefficients by inclusion probability, because DELTA is defined by
  unbiased sampling; the code's weights are not known. They count with ``weights = "selector"``; the
  plain code's draw is any other weighting.
* INTERPRETATION-D b = 0.5 (not known). A loss or distance never measured is the mean of the others;
  one that is not a number keeps the one before it. A negative loss counts as 0; all losses 0: equal
  shares of the loss.
* Fewer than m positive u_k: all of them, the rest uniformly (and pi_k accordingly).

>>> import numpy as np
>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(DELTA(b=1.0), seed=0)
>>> ids = selector.probe(1, available_ids=[3, 5, 9], m=1)
>>> gradients = np.array([[0.0, 0.0], [3.0, 0.0], [0.0, 3.0]])
>>> signals = {"loss": np.ones(3), "gradient_sketch": gradients}
>>> selector.observe(1, Reports(ids, Outcome.PROBED, signals=signals))
>>> round(selector.select(1, available_ids=[3, 5, 9], m=1).notes["max_probability"], 4)
0.3799
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.base import SelectionRule
from motley.selectors.common.client_signals import SIZE, filled, put_sizes, shares
from motley.selectors.common.sampling import (
    inclusion_probabilities,
    probability_notes,
    successive_draws,
)

__all__ = ["DELTA"]

LARGEST = 1e140
"""Losses and gradients above it, of runs that diverge, count as it: sums of squares stay finite."""


@dataclass(frozen=True)
class DELTA(SelectionRule[ClientTable]):
    """Draw clients by loss and gradient diversity.

    Parameters
    ----------
    b: weight of the diversity against the loss alone, in [0, 1].
    vector: the vectors whose distance counts: random projections of the gradients, or the gradients
    themselves.
    probe_batches: batches of the measurement; None means all local training data.
    """

    b: float = 0.5
    vector: Literal["gradient_sketch", "gradient"] = "gradient_sketch"
    probe_batches: int | None = None

    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    paper: ClassVar[Paper] = cite("wang2023delta")

    def __post_init__(self) -> None:
        if not 0 <= self.b <= 1:
            raise ConfigError(
                f"got b = {self.b}; expected a number in [0, 1] (0 draws by the root of the loss "
                "alone)"
            )
        if self.probe_batches is not None and self.probe_batches < 1:
            raise ConfigError(
                f"got probe_batches = {self.probe_batches}; expected at least 1, or none for all "
                "data"
            )

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(
            frozenset({SIZE}), {"loss": self.probe_batches, self.vector: self.probe_batches}
        )

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    @override
    def init(self) -> ClientTable:
        return ClientTable({SIZE: np.nan, "loss": np.nan, "distance": np.nan})

    @override
    def candidates(self, state: ClientTable, context: SelectionContext) -> Ids:
        return context.available

    def probabilities(self, state: ClientTable, available: Ids) -> Floats:
        """Return ``u_k``, normalised, ``[K_A]``."""
        loss = np.maximum(filled(state.get("loss", available)), 0.0)
        share = loss / loss.sum() if loss.any() else np.full(len(loss), 1.0 / len(loss))
        distance = filled(state.get("distance", available))
        u = self.b * share * distance + (1.0 - self.b) * np.sqrt(share)
        return u / u.sum() if u.any() else np.full(len(u), 1.0 / len(u))

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        u = self.probabilities(state, context.available)
        at = successive_draws(u, context.m, context.rng)
        chance = inclusion_probabilities(u, context.m)
        fill = context.m - np.count_nonzero(u)
        left_out = u == 0
        if fill > 0:
            chance[left_out] = fill / np.count_nonzero(left_out)
        weights = shares(state, context.available)[at] / chance[at]
        notes = {**probability_notes(u), "max_weight": float(weights.max())}
        return Cohort(context.available[at], weights, notes=notes, probabilities=u)

    @override
    def observe(self, state: ClientTable, round: int, reports: Reports) -> ClientTable:
        clients = put_sizes(state, reports)
        probed = reports.of(Outcome.PROBED)
        if len(probed):
            gradients = probed.signal(self.vector).reshape(len(probed), -1)
            loss = np.minimum(probed.signal("loss"), LARGEST)
            clients = clients.put(probed.ids, {"loss": loss, "distance": _from_mean(gradients)})
        return clients


def _from_mean(gradients: Floats) -> Floats:
    """Return ``||g_k - mean g||``, ``[n, D]`` to ``[n]``; a gradient with an entry that is not a
    number is left out: NaN."""
    out = np.full(len(gradients), np.nan)
    whole = ~np.isnan(gradients).any(axis=1)
    if whole.any():
        known = np.clip(gradients[whole], -LARGEST, LARGEST)
        out[whole] = np.linalg.norm(known - known.mean(axis=0), axis=1)
    return out
