"""HeteRo-Select, second version, uses one informativeness score for selection, compression and
aggregation.

Masud, Jahin, Hasan: *HeteRo-Select: Informativeness as the Participation Driver in Heterogeneous
Federated Learning*, arXiv:2508.06692v2.
This file has the score, the choice and the weights; budgets and sparsification belong to the
transport, the momentum server to the algorithms.

    V  = (L_k - min L) / (max L - min L + 1e-8)                  value
    D  = clip(1 - cos(last update of k, running mean), 0, 1)     direction; 0.5 before its first
    F  = clip(1 - h_k / mean h, -1, 1)                           fairness; 0 while mean h is 0
    St = minmax(0.5 log(1 + t - l_k))                            staleness; 0 where all are equal
    S  = minmax(V + 0.3 D + 0.2 F + 0.2 St)                      0.5 where all are equal
    p  = softmax(S / tau),  tau = tau0 (1 - 0.5 min(t / T, 1));  m draws without replacement
    a_k = S_k / sum of S over the cohort;  all zero: 1 / m

Symbols: ``L_k`` loss of the received model; ``h_k`` times selected; ``l_k`` last participation, 0
if never; ``T`` the planned rounds. ``minmax`` is ``(x - min) / (max - min)``. Minima, maxima and
means run over the available clients. "Update" is the decompressed upload; the running mean is 0.9
old + 0.1 new of the server's means, starting with the first.

State, per client: ``loss``, ``count`` (h), ``last`` (l), and ``now`` (the cosine at the last
choice) or ``cosine`` (at the last upload). With ``direction = "sketch"`` also the ``score`` at the
last probe, in a table of participants alone the ``sketch`` of each client's last update at length
1, and the running ``mean`` sketch.
Needs: ``loss`` probed, the horizon, and ``last_update_cosine`` probed, ``cosine`` or ``sketch``
reported. Probe cost: every available client downloads the model and evaluates ``probe_batches``
batches, each round. ``direction = "exact"`` costs clients nothing and the server 8 theta D bytes
for each participant and K sparse dot products a round: with 100 clients, 1.3 MB and 2 ms at 7,850
parameters and a share of 20 %, 445 MB and 0.4 s at 2.78 million (:mod:`motley.core.last_updates`).

``Cohort.scores`` are the S_k of the chosen, ``Cohort.weights`` the a_k. Set ``weights = "score"``
or ``"selector_ratio"``: they then sum to 1 also when a client drops out. ``Cohort.notes``: ``tau``,
``max_probability``, ``cv_probability``, and the means of V, D, F and St over the available, before
weights: ``component.value``, ``.direction``, ``.fairness``, ``.staleness``; ``client_notes`` has
those of the chosen. With
``compare_directions`` also, over the available with an update: ``direction.exact``, ``.cosine`` and
``.sketch``, means of D in each form, ``direction.spread_exact`` and ``.spread_cosine``, standard
deviations, and Spearman's rank correlations of the exact D with the others and with St:
``direction.rank_cosine``, ``.rank_sketch``, ``.rank_staleness``; a correlation with a constant is
left out.

Deviations and readings
-----------------------
* READING 0.9 and 0.1 are the authors' code's (docs/methods/hetero-select.md#code, row 8); the text
  gives no constants.
* READING the text compares the last update with the running mean of *now*: ``"exact"`` (default),
  from the updates that the server keeps. The cheap forms are others: ``"cosine"`` is the exact
  cosine at the time of the upload, with the mean of the rounds before, and stays until the next;
  ``"sketch"`` keeps the mean current but estimates the cosine from 64 numbers, and presumes the a_k
  above, over those accepted. The cosine takes 8 bytes a client, the sketch 520. How far they agree
  with the exact D, and how much of that is staleness: docs/methods/hetero-select.md#direction.
* A cosine is absent before the first server step: clients of the first round keep D = 0.5 until
  their next upload.
* INTERPRETATION-D an update of zeros, or one that is not finite, leaves D as it was. In the running
  mean a client that was never probed has the mean score of the others.
* READING a client without a loss takes the mean V of those that have one; without any loss V is 0.
* A late, dropped or rejected client's ``h`` moves, its ``l`` and direction do not
  (docs/methods/selectors.md#dropouts).
* ``as_published = "code"``: S = 1 where all are equal (docs/methods/hetero-select.md#code, row 13).
  Of the code's differences only this one reaches a score; ``lr = "score_adaptive"`` is the code's
  1 + S_k (docs/methods/hetero-select.md#code, row 4). Its cap of 0.15 on the rate never binds from
  0.05 down.
* READING the score normalized over the available is used throughout: the lowest has S = 0 and, if
  drawn, weight 0: its update is discarded. The normalization of St cancels its 0.5 and bounds it;
  the text's remark that the term is unbounded does not hold of the score used.

Worked
------
T = 100.

(a) t = 20, L = (2, 1.5, 1, .5), D = (.6, .2, .5, .9), h = (3, 2, 2, 1), l = (19, 15, 10, 4): V =
(1, .666667, .333333, 0), F = (-.5, 0, 0, .5), St = (0, .513354, .796587, 1); raw (1.08, .829338,
.642651, .57), S = (1, .508505, .142452, 0), tau = .9, p = (.435912, .252481, .168108, .143499).
Budget theta_20 = .265894, memory b = .938093, rate .045. Selected {0, 1, 3} without a ceiling:
theta_k = (.528790, .268892, .005), weights (.662908, .337092, 0).

(b) The schedule, and the same three clients with D = 2,780,000, B = (1, 2.5, 5) Mb/s, T_b =
20.930667: ceilings (.235282, .588204, 1.176409), theta_k = (.235282, .268892, .005), traffic
45.296131 Mb; with (.2, .4, .3) s a step times (30.930667, 29.568266, 15.088960). t = 100, S = (1,
0, .5), no ceiling: (.24, .005, .12), which sums to more than .36. S = (0, 0, 0): (.12, .12, .12).

| t | 1 | 2 | 20 | 51 | 100 |
| --- | --- | --- | --- | --- | --- |
| theta | 1 | .279960 | .265894 | .198731 | .12 |
| b | .85 | .936405 | .938093 | .946152 | .9556 |

(c) t = 1, L = (2.4, 2.2, 2.3, 2.3), D = .5, h = l = 0: S = (1, 0, .5, .5), tau = .995, p =
(.388191, .142092, .234859, .234859). Server with the weights of (a), momentum .5, sent (1, 0, 0,
-2), (0, 1, 0, 0), (4, 0, 2, 0), M = (.2, -.4, 0, 0): mean (.662908, .337092, 0, -1.325816), M =
(.762908, .137092, 0, -1.325816); the third update is discarded. D of (1, 2, 0) against (2, 1, 1):
.269703; of (-1, -2, 0): 1. v = (3, -2, 1, .5), k = 2, layer {0, 1} with abs(H) = (10, 1): literal
scores (.9, 4, 1, .25) send {1, 2}; rescaled (2.387755, 10.612245, 1, .25) send {0, 1}, and e = (0,
0, .938093, .469046). Layer shares (.6, .3, .1, 0): probabilities (.53, .29, .13, .05).

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(HeteroSelect(), seed=0, horizon=100)
>>> losses = {"loss": [2.4, 2.2, 2.3, 2.3]}
>>> selector.observe(1, Reports([0, 1, 2, 3], Outcome.PROBED, signals=losses))
>>> cohort = selector.select(1, available_ids=range(4), m=4)
>>> cohort.scores[cohort.ids.argsort()].round(6).tolist(), round(cohort.notes["max_probability"], 6)
([1.0, 0.0, 0.5, 0.5], 0.388191)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import dispatched, filled, normalised_loss
from motley.selectors.common.sampling import (
    component_notes,
    gumbel_top_m,
    probability_notes,
    softmax,
)
from motley.selectors.selector import SelectionRule

EPS = 1e-8
KEEP = 0.9
UNSEEN = 0.5
"""D of a client without an update so far."""
EQUAL = 1e-12
"""Scores that differ by less are all equal: rounding must not be stretched to [0, 1]."""
LARGEST = 1e150
"""Numbers of a sketch above it, of runs that diverge, count as it: sums of their squares stay
finite."""
_DEFAULTS = {
    "loss": np.nan,
    "count": 0.0,
    "last": 0.0,
    "now": np.nan,
    "cosine": np.nan,
    "score": np.nan,
}


class HeteroSelectComponents(NamedTuple):
    """The four components of the score of the available clients, each ``[K_A]``, in the order of
    the module's formulas."""

    value: Floats
    direction: Floats
    fairness: Floats
    staleness: Floats


@dataclass(frozen=True)
class HeteroSelectState:
    """``clients``: one row per client. ``uploads``: column ``sketch`` [64] of participants,
    length 1. ``mean``: [64], [0] at first."""

    clients: ClientTable = field(default_factory=lambda: ClientTable(_DEFAULTS))
    uploads: ClientTable = field(default_factory=lambda: ClientTable({"sketch": np.nan}))
    mean: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class HeteroSelect(SelectionRule[HeteroSelectState]):
    """Draw by a softmax, of falling temperature, of one score with four components.

    Parameters
    ----------
    direction: how D is measured, see above.
    lr: ``"score_adaptive"`` multiplies the local learning rate by 1 + S_k (``Cohort.lr_scale``), as
    in the paper's main table.
    as_published: ``"code"`` gives S = 1 in place of 0.5 where all scores are equal.
    tau0: temperature at the start; half of it at the end.
    w_value, w_direction, w_fairness, w_staleness: weights; 0 leaves a term out (without the
        direction nothing is reported, without the value nobody is probed, unless sketches need the
        scores).
    probe_batches: batches of the measurement.
    compare_directions: whether the notes compare D in all its forms, whichever is used; changes no
        choice. Losses are then probed also without the value, for the sketches.
    """

    direction: Literal["exact", "cosine", "sketch"] = "exact"
    lr: Literal["shared", "score_adaptive"] = "shared"
    as_published: Literal["text", "code"] = "text"
    tau0: float = 1.0
    w_value: float = 1.0
    w_direction: float = 0.3
    w_fairness: float = 0.2
    w_staleness: float = 0.2
    probe_batches: int = 8
    compare_directions: bool = False

    paper: ClassVar[Paper] = cite("masud2026heteroselect")

    def __post_init__(self) -> None:
        if not 0 < self.tau0 < math.inf:
            raise ConfigError(f"got tau0 = {self.tau0}; expected a positive number")
        if not all(0 <= weight < math.inf for weight in self.weights):
            raise ConfigError(
                f"got weights {self.weights}; expected numbers of at least 0 (0 leaves a term out)"
            )
        if self.probe_batches < 1:
            raise ConfigError(f"got probe_batches = {self.probe_batches}; expected at least 1")

    @property
    def weights(self) -> tuple[float, ...]:
        """The weights, in the order of :class:`HeteroSelectComponents`."""
        return (self.w_value, self.w_direction, self.w_fairness, self.w_staleness)

    @property
    def forms(self) -> frozenset[str]:
        """The forms of D that are kept up to date."""
        if self.compare_directions:
            return frozenset(("exact", "cosine", "sketch"))
        return frozenset({self.direction} if self.w_direction else ())

    @property
    def probes(self) -> bool:
        """Whether anything is measured before the choice, at the clients or at the server."""
        return self.w_value > 0 or bool(self.forms & {"exact", "sketch"})

    @override
    def needs(self) -> SignalRequirements:
        probed: dict[str, int | None] = (
            {"loss": self.probe_batches} if self.w_value or "sketch" in self.forms else {}
        )
        probed |= {"last_update_cosine": None} if "exact" in self.forms else {}
        return SignalRequirements(probed=probed, reported=self.forms - {"exact"}, horizon=True)

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights", "scores"})

    @override
    def private_with(self) -> str:
        compared = ["compare_directions = false"] if self.compare_directions else []
        return " and ".join((["w_direction = 0"] if self.w_direction else []) + compared)

    @override
    def init(self) -> HeteroSelectState:
        return HeteroSelectState()

    @override
    def candidates(self, state: HeteroSelectState, context: SelectionContext) -> Ids:
        return context.available if self.probes else context.available[:0]

    def components(
        self, state: HeteroSelectState, round: int, available: Ids
    ) -> HeteroSelectComponents:
        """Return the four components of these clients (sorted ids) in this round."""
        get = state.clients.get
        count = get("count", available)
        mean = count.mean()
        quiet = np.maximum(round - get("last", available), 0.0)
        fairness = np.zeros(len(available))
        if mean > 0:
            fairness = np.clip(1.0 - count / mean, -1.0, 1.0)
        return HeteroSelectComponents(
            value=normalised_loss(get("loss", available), EPS),
            direction=direction_of(state, self.direction, available),
            fairness=fairness,
            staleness=_minmax(0.5 * np.log1p(quiet), equal=0.0),
        )

    def scores(self, components: HeteroSelectComponents) -> Floats:
        """Return S of these clients, in [0, 1]."""
        total = np.zeros(len(components.value))
        for weight, component in zip(self.weights, components, strict=True):
            total += weight * component
        return _minmax(total, equal=0.5 if self.as_published == "text" else 1.0)

    @override
    def select(self, state: HeteroSelectState, context: SelectionContext) -> Cohort:
        tau = self.tau0 * (1.0 - 0.5 * min(context.step / (context.horizon or context.step), 1.0))
        components = self.components(state, context.draw, context.available)
        scores = self.scores(components)
        available = context.available
        p = softmax(scores, tau)
        at = gumbel_top_m(scores / tau, context.m, context.rng)
        chosen = scores[at]
        compared = (
            _compared(state, available, components.staleness) if self.compare_directions else {}
        )
        means = {name: float(part.mean()) for name, part in component_notes(components).items()}
        return Cohort(
            available[at],
            score_weights(chosen),
            scores=chosen,
            lr_scale=1.0 + chosen if self.lr == "score_adaptive" else None,
            notes={"tau": tau, **probability_notes(p), **means, **compared},
            client_notes=component_notes(components, at),
            probabilities=p,
        )

    @override
    def observe(self, state: HeteroSelectState, draw: int, reports: Reports) -> HeteroSelectState:
        clients = state.clients
        uploads = state.uploads
        mean = state.mean
        probed = reports.of(Outcome.PROBED)
        if len(probed):
            now = {"now": probed.signal("last_update_cosine")} if "exact" in self.forms else {}
            clients = clients.put(probed.ids, {"loss": probed.signal("loss"), **now})
            # kept for the weights of this round's server step: the next losses change them
            if "sketch" in self.forms:
                score = self.scores(
                    self.components(HeteroSelectState(clients, uploads, mean), draw, probed.ids)
                )
                clients = clients.put(probed.ids, {"score": score})
        accepted = reports.of(Outcome.ACCEPTED)
        if len(accepted) and "sketch" in self.forms:
            uploads, mean = _remember(uploads, mean, accepted, clients.get("score", accepted.ids))
        if len(accepted):
            clients = clients.put(accepted.ids, {"last": float(draw)})
            if "cosine" in self.forms:
                clients = clients.put(accepted.ids, {"cosine": accepted.signal("cosine")})
        sent = dispatched(reports)
        clients = clients.add("count", sent.ids) if len(sent) else clients
        return HeteroSelectState(clients, uploads, mean)


def _minmax(values: Floats, equal: float) -> Floats:
    low = values.min()
    spread = values.max() - low
    return np.full(len(values), equal) if spread <= EQUAL else (values - low) / spread


def score_weights(scores: Floats) -> Floats:
    """Return the scores as weights that sum to 1; equal ones if all are 0."""
    total = scores.sum()
    return scores / total if total > 0 else np.full(len(scores), 1.0 / len(scores))


def cosine_distance(cosine: Floats) -> Floats:
    """Return D of a cosine; NaN: no update so far."""
    return np.where(np.isnan(cosine), UNSEEN, np.clip(1.0 - cosine, 0.0, 1.0))


def direction_of(state: HeteroSelectState, form: str, available: Ids) -> Floats:
    """Return D of these clients (sorted ids) in one of its forms, ``[K_A]``; of sketches, only
    participants cost time."""
    if form != "sketch":
        return cosine_distance(state.clients.get("now" if form == "exact" else "cosine", available))
    out = np.full(len(available), UNSEEN)
    length = np.linalg.norm(state.mean)
    seen = state.uploads.ids
    if length > 0 and len(seen):
        # beyond the last id searchsorted points behind the end; the next line compares
        at = np.minimum(np.searchsorted(available, seen), len(available) - 1)
        present = available[at] == seen
        out[at[present]] = cosine_distance(
            state.uploads.get("sketch", seen[present]) @ (state.mean / length)
        )
    return out


def _compared(state: HeteroSelectState, available: Ids, staleness: Floats) -> dict[str, float]:
    """Return the notes ``direction.*``: D in its three forms beside each other, over the available
    with an update."""
    from scipy.stats import rankdata  # takes a tenth of the start of every run

    seen = ~np.isnan(state.clients.get("now", available))
    if not seen.any():
        return {}
    forms = {
        form: direction_of(state, form, available)[seen] for form in ("exact", "cosine", "sketch")
    }
    notes = {f"direction.{form}": float(d.mean()) for form, d in forms.items()}
    notes |= {f"direction.spread_{form}": float(forms[form].std()) for form in ("exact", "cosine")}
    alternatives = {
        "cosine": forms["cosine"],
        "sketch": forms["sketch"],
        "staleness": staleness[seen],
    }
    for name, values in alternatives.items():
        if np.ptp(forms["exact"]) > 0 and np.ptp(values) > 0:
            notes[f"direction.rank_{name}"] = float(
                np.corrcoef(rankdata(forms["exact"]), rankdata(values))[0, 1]
            )
    return notes


def _remember(
    uploads: ClientTable, mean: Floats, accepted: Reports, score: Floats
) -> tuple[ClientTable, Floats]:
    """Return the last sketches, and the running mean after a server step of these clients, weighted
    by their scores."""
    sketch = accepted.signal("sketch")
    if sketch.ndim == 1:
        return uploads, mean
    good = np.isfinite(sketch).all(axis=1)
    sketch = np.clip(sketch[good], -LARGEST, LARGEST)
    ids = accepted.ids[good]
    if not len(ids):
        return uploads, mean
    step = score_weights(filled(score[good])) @ sketch
    mean = step if not len(mean) else KEEP * mean + (1.0 - KEEP) * step
    length = np.linalg.norm(sketch, axis=1)
    moved = length > 0
    return uploads.put(ids[moved], {"sketch": sketch[moved] / length[moved, None]}), mean
