"""FedCVR-Bolt groups similar clients into coalitions and draws from each one client, by how much
variance it explains.

Licciardi, Raineri, Proskurnikov, Rondoni, Zino: *Sociodynamics-inspired Adaptive Coalition and
Client Selection in Federated Learning*, arXiv:2506.02897v1, 2025.

    1. W_kj = exp(-g |theta~_k - theta~_j|^2), theta~ = theta / |theta|, rows normalized,
       similarity (W + W^T) / 2
    2. spectral clustering of W into P = m coalitions
    3. v_k = sum_d (C^d alpha)_k^2 / C^d_kk
       part of Var(global model) that knowing theta_k removes
    4. from each coalition one client, with probability proportional to exp(beta v_k)
    5. the chosen clients train; the others keep theta_k
    6. thbar_k = rho_kj theta_j for the others, j the chosen one of k's coalition,
       rho_kj = C_kj / sqrt(C_kk C_jj)
    7. C^d <- (1 - 1/t) C^d + (1/t) e^d (e^d)^T,  e = theta - thbar
    8. a_k = n_k / sum of n over the chosen

The first ``warm_up`` rounds choose uniformly. Symbols: ``theta_k`` [D'] last model of client k that
the server saw, on a fixed set of coordinates d of the last linear layer; ``thbar_k`` its predicted
mean; ``e_k`` its innovation; ``C^d`` [K, K] covariance of the innovations; ``alpha_k`` = n_k / n.
With weights 1/t, C is the plain mean of all rounds' ``e e^T``.

State, per client: ``num_examples``; ``theta``, ``mean`` (thbar), ``weighted`` (C n, so C alpha
times the sum of sizes) and ``variance`` (diag C), all [D'] and both without what is left of C(1);
``label``, its coalition in the next round. The matrices C^d are never made: steps 3 and 7 need C
alpha and diag C, which follow their own recursions in O(K D'), and step 6 one entry C_kj per client
and coordinate, which is ``1/t sum_s e_s[k] e_s[j]`` from the stored ``innovations`` (float32,
rounds x K x D'; of a warm-up round only the m rows that changed). Above ``memory_mb`` older ones
are folded into half as many combinations; ``Cohort.notes["folded"]`` is the share of C's trace that
the entries C_kj have lost by it (v never loses anything). ``rho = "cosine"`` needs and stores none.
A checkpoint holds the stored innovations too, and encoding it takes four times their size for a
moment. At K = 10,000 and D' = 300 a round is 12 MB: 200 rounds kept whole (``memory_mb = 4000``)
take 2.4 GB in all, the default folds after some 110 rounds and stays at 1.7 GB (share folded after
200 of a made-up run: 0.5 %).

Needs: ``last_layer`` once (the initial model's, known to the server) and with every update;
``num_examples`` once. Probe cost: none. ``Cohort.weights``: step 8. ``Cohort.notes``:
``max_probability``, ``cv_probability`` (of being chosen, over the available), ``largest_coalition``
(share of the available), ``folded``; after the warm-up with ``compare = r`` also the share of
Var(global model) that knowing all models of the cohort removes (Proposition 1 for several clients),
``explained.cohort``, and the mean of r random cohorts of the same size, ``explained.random``: the
clients A together remove ``sum_d a_A^T (C^d_AA)^-1 a_A``, a = C^d alpha, which is not the sum of
their v_k, since what two clients know can be the same. ``rho = "cosine"`` has no such notes.

What must hold: v_k = Var(glob) - E Var(glob | theta_k) (Proposition 1 with A = {k}); planted groups
are found; exactly one client per coalition; beta = 0 is uniform inside a coalition.

The paper is version 1; version 2 of arXiv:2506.02897 has another title, *Socially Inspired
Coalition Formation and Client Selection in Federated Learning*, and is not what is built here.

Released code
-------------
Two things follow from the code as it stands. A chosen client's innovation vanishes, and that of a
client that is not chosen compares its *old* model with rho times its coalition's chosen one, round
after round until it is chosen itself: v measures disagreement with the chosen client, not with a
forecast. And while C is near ones, v is the same for all, so that the first draws are uniform
within coalitions (``Cohort.notes["max_probability"]`` says what becomes of it).

Deviations and readings
-----------------------
* READING Gaussian on the normalised vectors with g = 1 (Eq. 4 has the raw models:
  ``similarity = "gaussian"``; Algorithm 1 lines 3 to 5 the cosine: ``"cosine"``). Embedding and
  k-means: :mod:`motley.selectors.common.clustering`; a fixed key starts them, so coalitions are a
  function of the models alone. Empty and identical coalitions: the largest gives up the later half
  of its members, until there are m.
* READING rho is Pearson's (Eqs. 9, 16); ``"cosine"`` is Algorithm 1 as printed, ``"regression"``
  C_kj / C_jj Proposition 2's predictor.
* READING the innovation of a chosen client is taken against the mean predicted before its update,
  so it is not zero; only then its mean becomes its own model, the expectation of what is known (Eq.
  9 is of the *unobserved*, Algorithm 1 line 13). A client seen again in the next round is thus
  expected where it was. ``seen_mean = "kept"`` leaves the mean of before: a client seen round after
  round is then measured for ever against the mean from before its first sighting. One that starts
  at 0 and reports 10 three times has variance (100 + 100 + 100) / 3 = 100, and 100 for ever,
  against (100 + 0 + 0) / 3 = 33.3; since v grows with it, such a client is chosen because it was
  chosen. ``literal_means`` sets the mean *before* the innovation is taken, as line 13 stands:
  variance 0, and a client that is chosen loses all value.
* READING theta(1) = thbar(1) = the initial model, C(1) = 0. In the warm-up rounds, and in a
  coalition none of whose chosen clients reported, an unobserved client's mean is its own last model
  (innovation 0).
* A relative ridge keeps C_kk > 0: v = rho = 0 where a client or coordinate has no variance.
* INTERPRETATION: coalitions are made of all known clients, also unavailable ones (they are
  unobserved like others); only available ones are drawn. P is the number of clients wanted; when it
  differs from that of the previous round, coalitions are made anew. Where a coalition has several
  observed clients, the nearest one predicts.
* Every dispatched client must be reported, a lost one as ``DROPPED``: their number is the number of
  coalitions of the round.
* INTERPRETATION: t counts rounds in which a client was observed; others change nothing. A client
  never observed starts at theta(1); without an enrolled initial model, theta(1) is the mean of the
  first models reported.
* Coordinates are limited to 1e15 in size, for runs that diverge.

Worked
------
beta = 1.

(a) One coordinate, C = [[4, 2, .5], [2, 2, .2], [.5, .2, 1]], alpha = (.5, .3, .2): C alpha = (2.7,
1.64, .51), v = (1.8225, 1.3448, .2601), Var(glob) = 1.944. Coalitions {0, 1}, {2}: probabilities
(.617205, .382795) and 1; at beta = .5 (.559430, .440570).

(b) Same C, t = 4, theta = (1, .8, -.5), thbar = (.9, .7, -.4); 0 is chosen and becomes 1.2, 2
becomes -.7: rho_10 = .707107, thbar = (.9, .848528, -.4), e = (.3, -.048528, -.3), C = [[3.0225,
1.496360, .3525], [1.496360, 1.500589, .153640], [.3525, .153640, .7725]], C alpha = (2.030658,
1.229085, .376842), v = (1.364292, 1.006704, .183831). ``literal_means``: e = (0, -.048528, 0), C =
[[3, 1.5, .375], [1.5, 1.500589, .15], [.375, .15, .75]]. ``rho = "regression"``: thbar_1 = .6. n =
(50, 30, 20): the aggregate is .657143.

(c) A second coordinate C = [[1, -.3, .1], [-.3, 2, .4], [.1, .4, .5]]: v of it (.1849, .140450,
.1458), sum with (a) (2.0074, 1.485250, .4059); one coalition of all: (.557153, .330528, .112319);
coalition {1, 2}: (.746371, .253629). Similarity of (1, 0), (.8, .6), (0, 1) at g = 1: Gaussian
.670320, .135335, .449329 off the diagonal; normalized and symmetrized .343737, .080177, .247766
(diagonal .553816, .471776, .631049); cosine .8, 0, .6.

(d) Several clients, C of (a): A = {0, 2} removes (1 * 2.7^2 - 2 * .5 * 2.7 * .51 + 4 * .51^2) /
3.75 = 1.85424 of 1.944 (determinant of [[4, .5], [.5, 1]] 3.75), {0, 1} 1.9066, {1, 2} 1.466959,
all three everything. v_0 + v_1 = 3.1673 is more than there is.

(e) The client of 10, 10, 10 above, beside one that explains nothing, of equal size and with a model
1 away in place of 10, is drawn with p = 1 / (1 + e^(-C / 4)): .562 under ``"kept"``, .521 under
``"last"``; with 10, 1 - 1.4e-11 against .99976.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(FedCvrBolt(warm_up=1), seed=0)
>>> ids, models = np.arange(4), np.array([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
>>> selector.observe(1, Reports(ids, Outcome.ACCEPTED, signals={"last_layer": models}))
>>> # one of {0, 1} and one of {2, 3}
>>> sorted(k // 2 for k in selector.select(2, ids, m=2).ids.tolist())
[0, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, ContractError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import SIZE, dispatched, put_sizes, shares, sizes
from motley.selectors.common.clustering import (
    coalitions,
    fill_empty,
    nearest,
    scikit_coalitions,
    unit_rows,
)
from motley.selectors.common.innovations import (
    Block,
    append,
    cohort_products,
    fold,
    paired_products,
)
from motley.selectors.selector import SelectionRule

LARGEST = 1e15
_SINGULAR = 1e-6  # innovations are stored in float32
_DEFAULTS = {
    SIZE: np.nan,
    "theta": np.nan,
    "mean": np.nan,
    "weighted": np.nan,
    "variance": np.nan,
    "label": -1.0,
}


@dataclass(frozen=True)
class FedCvrBoltState:
    """One row per client, columns as named in the module's docstring, and

    ``initial`` theta(1) [D'], empty while unknown; ``rounds`` that C has learned from;
    ``innovations``: ids and rows of each of these; ``lost``: trace of the sum of ``e e^T`` given up
    by folding; ``coalitions``: how many the labels tell apart, 0 before the first.
    """

    clients: ClientTable = field(default_factory=lambda: ClientTable(_DEFAULTS))
    initial: Floats = field(default_factory=lambda: np.zeros(0))
    rounds: int = 0
    innovations: tuple[Block, ...] = ()
    lost: float = 0.0
    coalitions: int = 0


@dataclass(frozen=True)
class FedCvrBolt(SelectionRule[FedCvrBoltState]):
    """Draw one client from each of m coalitions, which reduces the variance of the global model.

    Parameters
    ----------
    similarity: how two clients' models are compared, step 1.
    g: width of the Gaussian.
    beta: 0 draws uniformly within a coalition, inf takes the largest v.
    recluster_every: rounds between two clusterings.
    rho: how a coalition's chosen client predicts the others.
    literal_means: whether a chosen client's mean is its own model already when its innovation is
    taken, which is then zero.
    seen_mean: what a chosen client's mean is afterwards: its own model, or the mean kept from
    before.
    warm_up: rounds of uniform choice at the start.
    whole: last layers of up to so many numbers are used whole (2010: the paper's MNIST MLP).
    coordinates: number of coordinates used of a larger layer, drawn once.
    ridge: added to C_kk, relative to its mean over the clients.
    exact_up_to: number of clients up to which the similarity is a full matrix; above it a factor is
    used.
    landmarks: number of landmarks of that factor (Gaussian), at least 2m.
    memory_mb: MiB of stored innovations before older ones are folded; at least seven rounds are
    kept.
    key: seed of the coordinates' draw and of the clustering, independent of the selector's seed.
    covariance: C(1), zeros or ones.
    step: weight of a round in C, step 7: ``"mean"`` 1/t, t = 1 in the first round; the other two
    leave C as it is in the warm-up, then ``"shifted"`` takes 1/(t + 2), t = 0 in the first round,
    so that C is the mean of C(1) and all ``e e^T``, and ``"constant"`` 0.01.
    clustering: how the similarity becomes coalitions: Ng, Jordan and Weiss on W, or scikit-learn's
    ``SpectralClustering`` on the Gaussian itself (up to ``exact_up_to`` clients).
    among: the coordinates are drawn from so many last numbers of the layer; 0: from all.
    compare: number of random cohorts whose explained variance each cohort's is noted beside; 0
    notes none.
    """

    similarity: Literal["gaussian_normalised", "gaussian", "cosine"] = "gaussian_normalised"
    g: float = 1.0
    beta: float = 1.0
    recluster_every: int = 1
    rho: Literal["pearson", "cosine", "regression"] = "pearson"
    literal_means: bool = False
    seen_mean: Literal["last", "kept"] = "last"
    warm_up: int = 30
    whole: int = 2010
    coordinates: int = 300
    ridge: float = 1e-9
    exact_up_to: int = 1000
    landmarks: int = 200
    memory_mb: float = 1024.0
    key: int = 0
    compare: int = 0
    covariance: Literal["zero", "ones"] = "zero"
    step: Literal["mean", "shifted", "constant"] = "mean"
    clustering: Literal["ng_jordan_weiss", "scikit_learn"] = "ng_jordan_weiss"
    among: int = 0

    paper: ClassVar[Paper] = cite("licciardi2025sociodynamics")

    def __post_init__(self) -> None:
        if not 0 < self.g < math.inf:
            raise ConfigError(f"got g = {self.g}; expected a positive number")
        if not self.beta >= 0:
            raise ConfigError(
                f"got beta = {self.beta}; expected at least 0 (inf takes the largest v of each "
                "coalition)"
            )
        if not 0 <= self.ridge < math.inf:
            raise ConfigError(f"got ridge = {self.ridge}; expected a number of at least 0")
        if not self.memory_mb > 0:
            raise ConfigError(
                f"got memory_mb = {self.memory_mb}; expected a positive number of MiB"
            )
        if min(self.warm_up, self.whole, self.exact_up_to, self.among) < 0:
            options = (
                f"warm_up = {self.warm_up}, whole = {self.whole}, exact_up_to = "
                f"{self.exact_up_to}, among = {self.among}"
            )
            raise ConfigError(f"got {options}; expected numbers of at least 0")
        if self.compare < 0 or (self.compare and self.rho == "cosine"):
            options = f"got compare = {self.compare} with rho = {self.rho!r}"
            raise ConfigError(
                f"{options}; expected at least 0, and 0 with rho = 'cosine', which stores no "
                "innovations"
            )
        if self.step == "constant" and self.rho != "cosine":
            raise ConfigError(
                f"got step = 'constant' with rho = {self.rho!r}, but stored innovations have equal "
                "weights; set rho = 'cosine', as the released code does, or step = 'shifted'"
            )
        if self.clustering == "scikit_learn" and self.similarity == "cosine":
            raise ConfigError(
                "got clustering = 'scikit_learn' with similarity = 'cosine', which may be "
                "negative; set similarity = 'gaussian_normalised'"
            )
        if self.among and self.among < self.coordinates:
            raise ConfigError(
                f"got among = {self.among}; expected at least coordinates = {self.coordinates}, or "
                "0 to draw from the whole layer"
            )
        if self.literal_means and self.seen_mean == "kept":
            raise ConfigError(
                "got literal_means with seen_mean = 'kept'; a literal mean is the client's own "
                "model, leave one of them out"
            )
        if self.recluster_every < 1 or self.coordinates < 1 or self.landmarks < 1:
            options = (
                f"recluster_every = {self.recluster_every}, coordinates = {self.coordinates}, "
                f"landmarks = {self.landmarks}"
            )
            raise ConfigError(f"got {options}; expected numbers of at least 1")

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(frozenset({SIZE, "last_layer"}), {}, frozenset({"last_layer"}))

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    @override
    def init(self) -> FedCvrBoltState:
        return FedCvrBoltState()

    # --------------------------------------------------------------------------------- steps 1 to 4

    def points(self, theta: Floats) -> Floats:
        """Return the vectors that the similarity compares, ``[K, D']``."""
        return theta if self.similarity == "gaussian" else unit_rows(theta)

    def labels(self, state: FedCvrBoltState, count: int) -> Ids:
        """Return the coalition of every known client, ``[K]``, ``min(count, K)`` of them: stored
        ones, or made anew."""
        labels = state.clients.get("label", state.clients.ids)
        if count == state.coalitions and not (labels < 0).any():
            return labels.astype(np.int64)
        kernel: Literal["gaussian", "cosine"] = (
            "cosine" if self.similarity == "cosine" else "gaussian"
        )
        points = self.points(state.clients.get("theta", state.clients.ids))
        if self.clustering == "scikit_learn" and len(points) <= self.exact_up_to:
            return scikit_coalitions(points, count, self.g, self.key)
        key = Key(self.key).fold("fedcvr_bolt")
        return coalitions(
            x=points,
            count=count,
            kernel=kernel,
            g=self.g,
            key=key,
            exact_up_to=self.exact_up_to,
            landmarks=self.landmarks,
        )

    def _divisor(self, rounds: int) -> int:
        """Return 1 / g_t of the last of so many rounds that C has learned from; with ``"mean"`` and
        ``"shifted"`` C has all of them with this weight."""
        return {"mean": max(rounds, 1), "shifted": rounds + 1, "constant": 100}[self.step]

    def _first(self, state: FedCvrBoltState) -> float:
        """Return what is left of C(1) in every entry of C."""
        if self.covariance == "zero":
            return 0.0
        if self.step == "mean":
            return float(not state.rounds)
        if self.step == "shifted":
            return 1.0 / self._divisor(state.rounds)
        return float((1.0 - 1.0 / self._divisor(state.rounds)) ** state.rounds)

    def weighted(self, state: FedCvrBoltState, ids: Ids) -> Floats:
        """Return ``C^d n`` of these clients, ``[len(ids), D']``: C alpha times the sum of sizes."""
        learned = state.clients.get("weighted", ids)
        first = self._first(state)
        if not first:
            return learned
        return np.asarray(learned + first * sizes(state.clients, state.clients.ids).sum())

    def variance(self, state: FedCvrBoltState, ids: Ids) -> Floats:
        """Return the diagonal of C^d of these clients, ``[len(ids), D']``."""
        learned = state.clients.get("variance", ids)
        first = self._first(state)
        return learned + first if first else learned

    def value(self, state: FedCvrBoltState, ids: Ids) -> Floats:
        """Return ``v_k = sum_d (C^d alpha)_k^2 / C^d_kk``, ``[len(ids)]``."""
        clients = state.clients
        total = sizes(clients, clients.ids).sum()
        if not total:
            return np.zeros(len(ids))
        squares = (self.weighted(state, ids) / total) ** 2
        return np.asarray(
            _divide(squares, self.variance(state, ids) + self._ridge(state)).sum(axis=1)
        )

    def explained(self, state: FedCvrBoltState, ids: Ids) -> float:
        """Return the share of Var(global model) that knowing the models of several clients removes,
        in [0, 1]; 0 without variance.

        Proposition 1 with A = ``ids``: ``sum_d a_A^T (C^d_AA)^-1 a_A`` over
        ``sum_d alpha^T C^d alpha``, with ``a_A`` the entries of ``C^d alpha`` at A. For one client
        the numerator is ``v_k``; for several it is not the sum of these, since they know in part
        the same. With innovations folded, ``C^d_AA`` is what is left of it.
        """
        clients = state.clients
        n = sizes(clients, clients.ids)
        total_variance = float((n @ self.weighted(state, clients.ids)).sum())
        if not total_variance > 0:
            return 0.0
        products = cohort_products(state.innovations, np.sort(ids), len(state.initial))
        together = self._with_first(state, products)
        # correlations: clients of any scale count alike
        spread = np.sqrt(np.einsum("dkk->dk", together))
        per = _divide(self.weighted(state, np.sort(ids)).T, spread)
        # pinv: clients with proportional innovations make the matrix singular
        inverse = np.linalg.pinv(
            _divide(together, spread[:, :, None] * spread[:, None, :]),
            rcond=_SINGULAR,
            hermitian=True,
        )
        return min(float(np.einsum("dk,dkj,dj->", per, inverse, per)) / total_variance, 1.0)

    def _with_first(self, state: FedCvrBoltState, products: NDArray[np.floating]) -> Floats:
        """Return entries of C from the sums of products of innovations."""
        first = self._first(state)
        learned = products / self._divisor(state.rounds)
        return np.asarray(learned + first if first else learned)

    def probabilities(self, value: Floats, group: Ids) -> Floats:
        """Return the probability of each client in its group, ``[K]``: ``exp(beta v)``, normalized
        in groups 0 .. m - 1."""
        best = np.full(int(group.max()) + 1, -np.inf)
        np.maximum.at(best, group, value)
        # the shift cancels in the quotient, and exp of a large value is infinite
        behind = value - best[group]
        if math.isfinite(self.beta):
            weight = np.exp(self.beta * behind)
        else:
            weight = (rounded(value) == rounded(best)[group]).astype(np.float64)
        return np.asarray(weight / np.bincount(group, weight)[group])

    @override
    def select(self, state: FedCvrBoltState, context: SelectionContext) -> Cohort:
        if context.draw <= self.warm_up or not len(state.initial):
            group = np.zeros(len(context.available), np.int64)
            at = context.rng.choice(len(group), context.m, replace=False)
            p = np.full(len(group), context.m / len(group))
        else:
            state = _join(state, context.available)
            rows = np.searchsorted(state.clients.ids, context.available)
            group = fill_empty(self.labels(state, context.m)[rows], context.m)
            p = self.probabilities(self.value(state, context.available), group)
            with np.errstate(divide="ignore"):
                # Gumbel: a group's largest has the law p
                draw = np.log(p) - np.log(context.rng.standard_exponential(len(p)))
            order = np.lexsort((draw, group))
            at = order[np.flatnonzero(np.diff(group[order], append=context.m))]
        if state.lost:
            total_variance = self._divisor(state.rounds) * float(
                state.clients.get("variance", state.clients.ids).sum()
            )
        else:
            total_variance = 1.0
        notes = {
            "max_probability": float(p.max()),
            "cv_probability": float(p.std() / p.mean()),
            "largest_coalition": float(np.bincount(group).max() / len(group)),
            "folded": state.lost / total_variance,
        }
        ids = context.available[at]
        if self.compare and context.draw > self.warm_up:
            random = [
                context.rng.choice(context.available, len(ids), replace=False)
                for _ in range(self.compare)
            ]
            notes["explained.cohort"] = self.explained(state, ids)
            notes["explained.random"] = float(
                np.mean([self.explained(state, cohort) for cohort in random])
            )
        return Cohort(ids, shares(state.clients, ids), notes=notes, probabilities=p)

    # --------------------------------------------------------------------------------- steps 5 to 7

    @override
    def observe(self, state: FedCvrBoltState, draw: int, reports: Reports) -> FedCvrBoltState:
        if len(reports.of(Outcome.ENROLLED)):
            return self._enrol(state, reports)
        sent = dispatched(reports)
        accepted, models = self._models(reports.of(Outcome.ACCEPTED))
        if not len(accepted):
            return state
        if not len(state.initial):
            state = replace(state, initial=models.mean(axis=0))
        if models.shape[1] != len(state.initial):
            raise ContractError(
                f"last_layer has {models.shape[1]} coordinates in round {draw}, "
                f"{len(state.initial)} before; expected the same layer of the same model in every "
                "round"
            )
        state = _join(state, accepted)
        if draw > self.warm_up:
            leader = self._leaders(state, accepted, len(sent))
        else:
            leader = np.arange(len(state.clients))
        learns = self.step == "mean" or draw > self.warm_up
        state = self._learn(state, accepted, models, leader, learns=learns)
        if draw < self.warm_up:
            return state
        if len(sent) != state.coalitions or (draw - self.warm_up) % self.recluster_every == 0:
            fresh = self.labels(replace(state, coalitions=0), len(sent))
            state = replace(
                state,
                coalitions=len(sent),
                clients=_write(state.clients, label=fresh.astype(np.float64)),
            )
        return state

    def _learn(
        self, state: FedCvrBoltState, accepted: Ids, models: Floats, leader: Ids, learns: bool
    ) -> FedCvrBoltState:
        """Do steps 5 to 7, the last only if C ``learns`` from this round. ``leader``: position of
        the client that predicts each client, ``[K]``; its own if none does."""
        ids = state.clients.ids
        columns = state.clients.columns
        seen = np.searchsorted(ids, accepted)
        led = np.flatnonzero(leader != np.arange(len(ids)))
        theta = columns["theta"].copy()
        theta[seen] = models
        mean = theta.copy()
        if not self.literal_means:
            mean[seen] = columns["mean"][seen]
        if len(led):
            mean[led] = self._rho(state, leader, led) * theta[leader[led]]
        e = theta - mean
        if self.seen_mean == "last":
            mean[seen] = models
        if not learns:
            return replace(state, clients=_write(state.clients, theta=theta, mean=mean))
        rounds = state.rounds + 1
        t = self._divisor(rounds)
        weighted = columns["weighted"] * (1.0 - 1.0 / t)
        weighted += e * ((sizes(state.clients, ids) @ e) / t)
        variance = columns["variance"] * (1.0 - 1.0 / t)
        variance += e * e / t
        blocks = state.innovations
        lost = 0.0
        if self.rho != "cosine":
            blocks, lost = fold(append(blocks, ids, e), self.memory_mb * 2**20)
        clients = _write(
            state.clients, theta=theta, mean=mean, weighted=weighted, variance=variance
        )
        return replace(
            state, clients=clients, rounds=rounds, innovations=blocks, lost=state.lost + lost
        )

    def _rho(self, state: FedCvrBoltState, leader: Ids, led: Ids) -> Floats:
        """Return ``rho_kj`` of the led clients, ``[n, D']`` (cosine: ``[n, 1]``), from C and the
        models before this round."""
        columns = state.clients.columns
        of = leader[led]
        if self.rho == "cosine":
            unit = unit_rows(columns["theta"])
            return np.asarray(np.einsum("kd,kd->k", unit[led], unit[of])[:, None])
        products = paired_products(state.innovations, state.clients.ids, leader, len(state.initial))
        together = self._with_first(state, products[led])
        spread = self.variance(state, state.clients.ids) + self._ridge(state)
        if self.rho == "regression":
            return _divide(together, spread[of])
        return np.clip(_divide(together, np.sqrt(spread[led] * spread[of])), -1.0, 1.0)

    def _leaders(self, state: FedCvrBoltState, accepted: Ids, count: int) -> Ids:
        """Return the position of the observed client that predicts each client, ``[K]``; its own if
        observed or if none does."""
        labels = self.labels(state, count)
        seen = np.searchsorted(state.clients.ids, accepted)
        observed = np.bincount(labels[seen], minlength=int(labels.max()) + 1)
        of = np.full(len(observed), -1)
        of[labels[seen]] = seen
        leader = np.where(observed[labels] > 0, of[labels], np.arange(len(labels)))
        for crowded in np.flatnonzero(observed > 1):
            members = np.flatnonzero(labels == crowded)
            mates = seen[labels[seen] == crowded]
            points = self.points(state.clients.get("theta", state.clients.ids[members]))
            leader[members] = mates[nearest(points, points[np.searchsorted(members, mates)])]
        leader[seen] = seen
        return leader

    def _enrol(self, state: FedCvrBoltState, reports: Reports) -> FedCvrBoltState:
        first = self._models(reports.of(Outcome.ENROLLED))[1]
        if not len(state.initial) and len(first):
            # A copy: a view would keep the models of all clients that enrolled with it.
            state = replace(state, initial=first[0].copy())
        return _join(replace(state, clients=put_sizes(state.clients, reports)), reports.ids)

    def _models(self, reports: Reports) -> tuple[Ids, Floats]:
        """Return the clients that sent a whole model, and the chosen coordinates of each,
        ``[n, D']``."""
        if "last_layer" not in reports.signals:
            return reports.ids[:0], np.zeros((0, 0))
        layer = reports.signals["last_layer"]
        layer = layer[:, None] if layer.ndim == 1 else layer
        layer = layer[:, -self.among :]  # all of it where among is 0
        if layer.shape[1] > max(self.whole, self.coordinates):
            draw = (
                Key(self.key)
                .fold("fedcvr_bolt", "coordinates")
                .uniform(np.arange(layer.shape[1]))[:, 0]
            )
            # By the run's key alone: all clients, in all rounds, are compared on the same
            # coordinates.
            layer = layer[:, np.sort(np.argsort(draw, kind="stable")[: self.coordinates])]
        complete = ~np.isnan(layer).any(axis=1)
        return reports.ids[complete], np.clip(layer[complete], -LARGEST, LARGEST)

    def _ridge(self, state: FedCvrBoltState) -> Floats:
        """Return the ridge added to every C^d_kk, ``[D']``."""
        return np.asarray(self.ridge * self.variance(state, state.clients.ids).mean(axis=0))


def _divide(above: NDArray[np.floating], below: Floats) -> Floats:
    """Return the quotient; 0 where ``below`` is 0."""
    return np.asarray(np.divide(above, below, out=np.zeros(below.shape), where=below > 0))


def _write(clients: ClientTable, **columns: Floats) -> ClientTable:
    """Return the table with whole columns replaced."""
    return replace(clients, columns={**clients.columns, **columns})


def _join(state: FedCvrBoltState, ids: Ids) -> FedCvrBoltState:
    """Return the state with these clients in the table; one without a model starts at theta(1), if
    known, without a history."""
    clients = state.clients.grow(ids)
    width = len(state.initial)
    if "theta" in clients.columns:
        fresh = np.isnan(clients.columns["theta"][:, 0])
    else:
        fresh = np.ones(len(clients), bool)
    if not width or not fresh.any():
        return state if clients is state.clients else replace(state, clients=clients)
    start = np.broadcast_to(state.initial, (int(fresh.sum()), width))
    zero = np.zeros(start.shape)
    columns = {"theta": start, "mean": start, "weighted": zero, "variance": zero}
    return replace(state, clients=clients.put(clients.ids[fresh], columns))
