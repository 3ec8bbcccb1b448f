"""Fed-CBS chooses a cohort whose pooled labels are balanced.

Zhang, Li, Tang, Sun, Chen, Zhang, Chen, Chen, Li: *Fed-CBS: A Heterogeneity-Aware Client Sampling
Mechanism for Federated Learning via Class-Imbalance Reduction*, ICML 2023 (arXiv:2209.15245).

    QCID(S) = sum_b (sum_S n_k h_kb / sum_S n_k - 1 / B)^2
            = sum_{k,j in S} n_k n_j <h_k, h_j> / (sum_S n_k)^2 - 1 / B
    first client   P(k)     prop. to  QCID({k})^-beta_1 + lambda sqrt(3 ln t / (2 T_k))
    j-th client    P(k | S) prop. to  QCID(S + k)^-beta_j,   0 < beta_1 < beta_2 < ...;
                   beta_j = beta j

Symbols: ``h_k`` label shares of client k, ``n_k`` its samples, so ``n_k h_k`` are its counts; ``B``
classes; ``T_k`` how often it was selected, at least 1; ``lambda`` is ``exploration``. QCID needs no
learning signal, ignores latency, and does not change with training.

State, per client: ``labels`` [B] counts, ``count`` (T). Needs: ``label_histogram`` once. Probe
cost: none. A choice costs O(K B m): the pooled counts grow by one client per pick, and all
candidates are rated by one matrix-vector product.

``Cohort.notes``: ``qcid`` of the cohort; ``max_probability`` and ``cv_probability`` of the first
pick. The balance is that of the pooled data, so leave ``weights = "examples"``.

Deviations and readings
-----------------------
* INTERPRETATION-R beta_j = j and lambda = 10, and the whole form of the first pick: as a factor the
  bonus would be 0 for all in round 1 (ln 1 = 0); a public re-implementation adds it, as written
  here.
* In the paper's conditional probabilities the denominators do not depend on the candidate; they
  cancel.
* INTERPRETATION-D QCID counts as at least ``floor`` (a perfect balance would have an infinite
  weight), B is the length of the histograms, a client without a histogram or without data counts as
  the mean of the available ones.
* Not here: the paper hides the histograms from the server by homomorphic encryption; here the
  server sees them.
* Under ``[privacy]`` the server sees noisy shares in their place (docs/privacy.md#histogram).

Worked
------
Six classes, 30 samples each: C1 uniform, C2 = (6, 6, 6, 6, 6, 0), C3 = (0, 0, 0, 10, 10, 10), C4 =
(10, 10, 10, 0, 0, 0): QCID{1} = 0, {1, 2} = .008333, {1, 2, 3} = .014815, {1, 3, 4} = 0. A greedy
choice from {1} misses {1, 3, 4}.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(FedCBS(), seed=0)
>>> labels = {"label_histogram": [[5, 5, 5, 5], [10, 10, 0, 0], [0, 0, 10, 10], [20, 0, 0, 0]]}
>>> selector.observe(0, Reports([0, 1, 2, 3], Outcome.ENROLLED, signals=labels))
>>> selector.select(1, available_ids=[1, 2, 3], m=2).ids.tolist()
[2, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import dispatched, known_vectors
from motley.selectors.common.sampling import probability_notes, softmax, with_replacement
from motley.selectors.selector import SelectionRule

LARGEST = 1e15
"""Counts above it count as it, and histograms whose sum is below its inverse as empty: squares stay
finite and positive."""


@dataclass(frozen=True)
class FedCBS(SelectionRule[ClientTable]):
    """Draw one client after the other, with higher probability the better its labels complete those
    already chosen.

    Parameters
    ----------
    beta: the j-th pick has the exponent beta j; 0 draws uniformly, a large one is greedy.
    exploration: lambda, strength of the first pick's bonus for rarely selected clients.
    floor: smallest QCID that is distinguished from a perfect balance.
    """

    beta: float = 1.0
    exploration: float = 10.0
    floor: float = 1e-6

    paper: ClassVar[Paper] = cite("zhang2023fedcbs")

    def __post_init__(self) -> None:
        if not 0 <= self.beta < math.inf or not 0 <= self.exploration < math.inf:
            raise ConfigError(
                f"got beta = {self.beta}, exploration = {self.exploration}; expected numbers of at "
                "least 0"
            )
        if not 0 < self.floor < 1:
            raise ConfigError(
                f"got floor = {self.floor}; expected a number in (0, 1), far below 1 / classes"
            )

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(enrolled=frozenset({"label_histogram"}))

    @override
    def init(self) -> ClientTable:
        return ClientTable({"labels": np.nan, "count": 0.0})

    def bonus(self, state: ClientTable, round: int, available: Ids) -> Floats:
        """Return ``lambda sqrt(3 ln t / (2 T_k))``, ``[K_A]``."""
        times = np.maximum(state.get("count", available), 1.0)
        return np.asarray(self.exploration * np.sqrt(1.5 * math.log(max(round, 1)) / times))

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        counts = _counts(state, context.available)
        square = np.einsum("kb,kb->k", counts, counts)
        size = counts.sum(axis=1)
        pooled = np.zeros(counts.shape[1])
        pooled_size = 0.0
        chosen = np.zeros(context.m, np.int64)
        free = np.zeros(len(counts))  # added to logarithms of weights: -inf for those chosen
        notes: dict[str, float] = {}
        first = np.zeros(0)
        for j in range(context.m):
            spread = (pooled @ pooled + 2.0 * (counts @ pooled) + square) / (
                pooled_size + size
            ) ** 2 - 1.0 / counts.shape[1]
            # the power of a small spread would be infinite in late picks; its logarithm is not
            logs = -self.beta * (j + 1) * np.log(np.maximum(spread, self.floor))
            if not j:
                with np.errstate(divide="ignore"):  # no bonus is no addition
                    logs = np.logaddexp(
                        logs, np.log(self.bonus(state, context.draw, context.available))
                    )
            p = softmax(logs + free)
            first = p if not j else first
            notes = notes or probability_notes(p)
            chosen[j] = with_replacement(p, 1, context.rng)[0][0]
            free[chosen[j]] = -np.inf
            pooled = pooled + counts[chosen[j]]
            pooled_size = pooled_size + size[chosen[j]]
        return Cohort(
            context.available[chosen],
            notes={"qcid": qcid(counts[chosen]), **notes},
            probabilities=first,
        )

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        clients = state
        enrolled = reports.of(Outcome.ENROLLED)
        if len(enrolled) and "label_histogram" in enrolled.signals:
            labels = np.clip(enrolled.signals["label_histogram"], -1.0, LARGEST)  # -1: no histogram
            good = (labels >= 0).all(axis=1, keepdims=True) & (
                labels.sum(axis=1, keepdims=True) > 1.0 / LARGEST
            )
            clients = clients.put(enrolled.ids, {"labels": np.where(good, labels, np.nan)})
        sent = dispatched(reports)
        return clients.add("count", sent.ids) if len(sent) else clients


def qcid(counts: Floats) -> float:
    """Return the QCID of these clients together, from their counts ``[n, B]``."""
    pooled = counts.sum(axis=0)
    return float(((pooled / pooled.sum() - 1.0 / len(pooled)) ** 2).sum())


def _counts(clients: ClientTable, available: Ids) -> Floats:
    """Return the label counts ``[K_A, B]``; the mean of the others for a client without a
    histogram, ones if nobody has one."""
    counts, present = known_vectors(clients, "labels", available)
    return counts if present.any() else np.ones(counts.shape)
