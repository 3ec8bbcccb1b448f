"""DELTA draws clients by their loss, or their size, and by the distance of their gradient from the
mean gradient.

Wang, Guo, Lin, Tang: *DELTA: Diverse Client Sampling for Fasting Federated Learning*, NeurIPS 2023.

    form       s_k            u_k                                  draws      Cohort.weights
    "loss"     l_k / sum l    b s_k d_k + (1 - b) sqrt(s_k)        without    p_k / pi_k
    "leaf"     n_k / sum n    b s_k d_k + (1 - b) sqrt(s_k)        without    n_k / (K q_k n_S)
    "cifar10"  n_k / sum n    b s_k d_k + (1 - b) s_k              with       c_k n_k / (K q_k n_S)

Symbols: ``d_k = ||g_k - mean g||``; ``l_k`` loss and ``g_k`` gradient of the received model on the
client's data, sums and the mean over the available; ``b`` in [0, 1]; ``q_k = u_k / sum u``;
"without" means m successive draws without replacement, "with" m independent draws, of which
``c_k`` are client k's; ``n_S`` samples of all draws, ``K`` available clients; ``p_k`` share of the
data, ``pi_k`` the inclusion probability, *not* m u_k (exact up to 12 available clients, above that
Rosen's limit). Diversity is distance from the mean here; in ``divfl`` it is coverage.

State, per client: ``num_examples``, ``loss`` and ``distance`` as last measured, NaN before.
Needs: ``num_examples`` once; probed ``loss`` (form "loss") and ``gradient_sketch`` (or
``gradient``). Probe cost:
every available client downloads the model, takes its loss and gradient over all its data (or
``probe_batches``) and sends the gradient's numbers up, each round: 256 of a sketch, whose distances
are approximate, or as many as the model has.
``Cohort.notes``: ``max_probability``, ``cv_probability`` over the available, ``max_weight``.

Deviations and readings
-----------------------
* The paper samples by ``sqrt(a1 zeta_k^2 + a2 sigma_k^2)``, where zeta_k = ||grad F_k - grad F||
  and sigma_k^2 is the local variance of stochastic gradients (INTERPRETATION-R). It is not offered:
  no signal measures sigma_k^2.
* INTERPRETATION-D the default form: losses in the place that the released code gives to sizes, and
  unbiased coefficients by inclusion probability, because DELTA is defined by unbiased sampling. The
  coefficients of the two released forms do not sum to 1, and those of "leaf" are biased. Any of
  them counts with ``weights = "selector"``.
* b = 0.5 is the released code's default. A loss or distance never measured is the mean of the
  others; one that is not a number keeps the one before it. A negative loss counts as 0; all losses
  0: equal shares of the loss.
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
from motley.selectors.common.client_signals import SIZE, filled, put_sizes, shares
from motley.selectors.common.sampling import (
    inclusion_probabilities,
    probability_notes,
    successive_draws,
    with_replacement,
)
from motley.selectors.selector import SelectionRule

LARGEST = 1e140
"""Losses and gradients above it, of runs that diverge, count as it: sums of squares stay finite."""


@dataclass(frozen=True)
class DELTA(SelectionRule[ClientTable]):
    """Draw clients by loss and gradient diversity.

    Parameters
    ----------
    b: weight of the diversity against the loss (or size) alone, in [0, 1].
    form: the rule with losses, or that of the released scripts for LEAF or for CIFAR-10, see above.
    vector: the vectors whose distance counts: random projections of the gradients, or the gradients
    themselves.
    probe_batches: batches of the measurement; None means all local training data.
    """

    b: float = 0.5
    vector: Literal["gradient_sketch", "gradient"] = "gradient_sketch"
    probe_batches: int | None = None
    form: Literal["loss", "leaf", "cifar10"] = "loss"

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
        probed = ("loss", self.vector) if self.form == "loss" else (self.vector,)
        return SignalRequirements(frozenset({SIZE}), dict.fromkeys(probed, self.probe_batches))

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
        """Return ``u_k``, normalized, ``[K_A]``."""
        if self.form == "loss":
            loss = np.maximum(filled(state.get("loss", available)), 0.0)
            share = loss / loss.sum() if loss.any() else np.full(len(loss), 1.0 / len(loss))
        else:
            share = shares(state, available)
        distance = filled(state.get("distance", available))
        alone = share if self.form == "cifar10" else np.sqrt(share)
        u = self.b * share * distance + (1.0 - self.b) * alone
        return u / u.sum() if u.any() else np.full(len(u), 1.0 / len(u))

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        u = self.probabilities(state, context.available)
        if self.form != "loss":
            return self._released(state, context, u)
        at = successive_draws(u, context.m, context.rng)
        chance = inclusion_probabilities(u, context.m)
        # with too few positive weights the rest of the cohort is drawn uniformly
        fill = context.m - np.count_nonzero(u)
        left_out = u == 0
        if fill > 0:
            chance[left_out] = fill / np.count_nonzero(left_out)
        weights = shares(state, context.available)[at] / chance[at]
        notes = {**probability_notes(u), "max_weight": float(weights.max())}
        return Cohort(context.available[at], weights, notes=notes, probabilities=u)

    def _released(self, state: ClientTable, context: SelectionContext, u: Floats) -> Cohort:
        """Return the cohort that the released scripts draw, with their coefficients."""
        if self.form == "cifar10":
            at, counts = with_replacement(u, context.m, context.rng)
        else:
            at = successive_draws(u, context.m, context.rng)
            counts = np.ones(len(at), np.int64)
        p = counts * shares(state, context.available)[at]
        # a client that fills the cohort, of probability 0, counts as one of a uniform draw
        chance = np.where(u[at] > 0, u[at], 1.0 / len(u))
        weights = p / (len(u) * chance * p.sum())
        notes = {**probability_notes(u), "max_weight": float(weights.max())}
        return Cohort(context.available[at], weights, counts, notes=notes, probabilities=u)

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        clients = put_sizes(state, reports)
        probed = reports.of(Outcome.PROBED)
        if len(probed):
            gradients = probed.signal(self.vector).reshape(len(probed), -1)
            measured = {"distance": _from_mean(gradients)}
            if self.form == "loss":
                measured["loss"] = np.minimum(probed.signal("loss"), LARGEST)
            clients = clients.put(probed.ids, measured)
        return clients


def _from_mean(gradients: Floats) -> Floats:
    """Return ``||g_k - mean g||``, ``[n, D]`` to ``[n]``; a gradient with an entry that is not a
    number is left out: NaN."""
    out = np.full(len(gradients), np.nan)
    complete = ~np.isnan(gradients).any(axis=1)
    if complete.any():
        clipped = np.clip(gradients[complete], -LARGEST, LARGEST)
        out[complete] = np.linalg.norm(clipped - clipped.mean(axis=0), axis=1)
    return out
