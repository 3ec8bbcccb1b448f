"""DivFL chooses a cohort whose gradients represent those of all clients, by facility location.

Balakrishnan, Li, Zhou, Himayat, Smith, Bilmes: *Diverse Client Selection for Federated Learning via
Submodular Maximization*, ICLR 2022.

    d_ij = ||g_i - g_j||              over all clients known, available or not
    G(S) = sum_i min_{j in S} d_ij    to be small: every client has a similar one in the cohort
    greedy: m times k* = argmin over the available of G(S + k);  at least 1 - 1/e of the best
    gamma_j = #{i: j is the nearest of the cohort}

Symbols: ``g_k`` the client's vector, see ``vectors``; ``S`` the cohort; ``gamma_j`` how many
clients ``j`` represents.

State, per client: ``vector`` ``[d]``; NaN: none yet. With sketches 2 KiB per client, with gradients
8 D bytes: for small models.
Needs: probed vectors (not with ``start = "random"``), reported ones (``stale``).
Probe cost: ``stale``: a download, a gradient over all its data and the vector up, once for each
client, in round 1 (or when it is first available); nothing later, nothing at all with
``start = "random"``. ``ideal``: the same for everybody, each round. A round costs O(K^2 d) for the
distances and about O(K^2 log m) for the picks.

``Cohort.notes``: ``distance``, the mean distance of all to the nearest of the cohort; ``known``,
share of the clients with a vector; ``largest_cluster``, the largest gamma / K.

Deviations and readings
-----------------------
* ``stale`` is what the published runs with m > 1 did, hence the default; ``ideal`` is the upper
  bound.
* ``coefficients = "none"`` leaves the aggregator alone, ``"clusters"`` gives ``Cohort.weights`` =
  gamma_j / K (counts with ``weights = "selector"``).
* INTERPRETATION-D a reported vector is the pseudo-gradient -update / (steps x rate); vectors are
  sketches, 256 numbers from a fixed random projection,
  which keep distances to some percent; ``"gradient"`` is exact.
* INTERPRETATION-D a client without a vector (not available in round 1, or a vector that was not
  finite) is probed when it is next available. A client still without one counts as the mean of the
  known (``start = "random"``: all that never reported).
* INTERPRETATION-D unavailable clients are covered, but not chosen. A vector that is not finite
  leaves the one before it.
* Ties are structural (two clients that only represent each other gain equally): within 1e-6 of the
  largest distance the draw decides, not rounding. Otherwise seeds do not matter, unless
  ``greedy = "stochastic"``.
* Stochastic greedy: each pick considers max(m, 0.1 K_A) of the candidates left, drawn uniformly.

Worked
------
Scalars (0, 1, 3, 10, 12, 13, 20): column sums (59, 54, 48, 41, 43, 46, 81) take index 3; then index
1 (objective 18), then 6 (objective 8); gamma = {3: 3, 1: 3, 6: 1}. The best pair has 14, the best
triple 6. Where clients tie, compare objectives, not ids.

>>> import numpy as np
>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(DivFL(vectors="gradient"), seed=0)
>>> ids = selector.probe(1, range(7), m=3)
>>> gradients = np.array([0.0, 1, 3, 10, 12, 13, 20])[:, None]
>>> selector.observe(1, Reports(ids, Outcome.PROBED, signals={"gradient": gradients}))
>>> selector.select(1, range(7), m=3).ids.tolist()
[3, 1, 6]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import known_vectors, put_vectors
from motley.selectors.common.facility import Vectors, cover, distances
from motley.selectors.common.sampling import Ties
from motley.selectors.selector import SelectionRule

SAMPLE = 0.1
"""Share of the candidates that a pick of the stochastic greedy considers."""


@dataclass(frozen=True)
class DivFL(SelectionRule[ClientTable]):
    """Take the m clients whose gradients best represent all.

    Parameters
    ----------
    variant: ``"stale"``: only the cohort refreshes its vectors; ``"ideal"``: every available client
    does, each round.
    start: stale vectors begin with a ``"probe"`` of all clients, or ``"random"``: with none, hence
    with a random cohort.
    vectors: sketches of 256 numbers that keep distances, or exact gradients.
    greedy: each pick considers all candidates, or a random part of them.
    coefficients: ``"clusters"`` fills ``Cohort.weights`` with gamma_j / K.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    variant: Literal["stale", "ideal"] = "stale"
    start: Literal["probe", "random"] = "probe"
    vectors: Vectors = "gradient_sketch"
    greedy: Literal["lazy", "stochastic"] = "lazy"
    coefficients: Literal["none", "clusters"] = "none"
    ties: Ties = "random"

    paper: ClassVar[Paper] = cite("balakrishnan2022diverse")

    def __post_init__(self) -> None:
        if self.variant == "ideal" and self.start == "random":
            raise ConfigError(
                "got start = 'random', but variant = 'ideal' measures everybody each round; leave "
                "start out"
            )

    @override
    def needs(self) -> SignalRequirements:
        probed: dict[str, int | None] = {} if self.start == "random" else {self.vectors: None}
        return SignalRequirements(
            probed=probed, reported=frozenset({self.vectors} if self.variant == "stale" else ())
        )

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"} if self.coefficients == "clusters" else ())

    @override
    def init(self) -> ClientTable:
        return ClientTable({"vector": np.nan})

    @override
    def candidates(self, state: ClientTable, context: SelectionContext) -> Ids:
        if self.start == "random":
            return np.zeros(0, np.int64)
        if self.variant == "ideal":
            return context.available
        return context.available[~known_vectors(state, "vector", context.available)[1]]

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        everybody = np.union1d(state.ids, context.available)
        vectors, present = known_vectors(state, "vector", everybody)
        n = len(context.available)
        rank = context.rng.permutation(n) if self.ties == "random" else np.arange(n)
        # 1e-9: a product that is whole but for its last bit
        sample = max(context.m, int(SAMPLE * n + 1e-9)) if self.greedy == "stochastic" else None
        covering = cover(
            distances(vectors, np.searchsorted(everybody, context.available)),
            context.m,
            rank,
            sample,
            rng=context.rng,
        )
        share = np.bincount(covering.nearest, minlength=context.m) / len(everybody)
        notes = {
            "distance": covering.objective[-1] / len(everybody),
            "known": present.mean(),
            "largest_cluster": share.max(),
        }
        weights = share if self.coefficients == "clusters" else None
        return Cohort(
            context.available[covering.at],
            weights,
            notes={name: float(value) for name, value in notes.items()},
        )

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        wanted = (
            (Outcome.PROBED, Outcome.ACCEPTED) if self.variant == "stale" else (Outcome.PROBED,)
        )
        return put_vectors(state, "vector", reports.of(*wanted), self.vectors)
