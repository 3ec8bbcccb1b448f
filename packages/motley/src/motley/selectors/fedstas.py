"""FedSTaS groups clients into strata of similar gradients and draws more clients from strata that
vary more.

Slessor, Kong, Tang, Than, Kong: *FedSTaS: Client Stratification and Client Level Sampling for
Efficient Federated Learning*, arXiv:2412.14226, 2024.

    1. strata h = 1 .. H: k-means of the clients' compressed gradients g_k
    2. m_h = m N_h S_h / sum_h N_h S_h     Neyman's allocation, rounded by largest remainder
    3. inside stratum h: m_h clients, successive draws with probability |g_k| / sum over h of |g|
    4. a_k = N_h / (N m_h)                 the stratified mean of the updates

Symbols: ``N_h`` available clients in stratum h, ``N`` their sum; ``S_h`` the spread of the
stratum's gradients about their mean, ``S_h^2 = sum |g_k - mean|^2 / (N_h - 1)``, 0 for a single
client.

State, per client measured: its last ``sketch`` [256]. Needs: ``gradient_sketch``, probed
(``probe = "all"``) or reported ("last_report"). Probe cost: ``all``: every available client
downloads the model, computes the gradient of ``probe_batches`` batches and sends 256 numbers, every
``every`` rounds; ``last_report``: none. A choice costs O(K H 256) per step of k-means.

The a_k are ``Cohort.weights``; they count with ``weights = "selector"`` (or ``"selector_ratio"``,
which renormalizes when a client drops out). ``Cohort.notes``: ``strata`` (not empty),
``max_probability``, ``cv_probability`` of ``(m_h / m) |g_k| / sum |g|``.

Deviations and readings
-----------------------
* READING the compressed gradient is the library's random projection, which keeps distances and
  norms; the paper groups coordinates. ``probe = "last_report"`` takes the pseudo-gradient of the
  last round a client took part in.
* INTERPRETATION-R S_h is the standard deviation (the source at hand has the letter only).
* INTERPRETATION-D no more strata than clients wanted, at least 1 client from each; what a stratum
  would get beyond its size or below 1 is shared out among the others in proportion. Where nothing
  varies the shares follow N_h. k-means has a fixed key, so the same gradients give the same strata
  for every seed; strata are numbered, and drawn from, in order of their smallest client.
* INTERPRETATION-D clients that were never measured are a stratum of their own, drawn uniformly, of
  the others' mean S_h.
* Missing: the paper also lets each chosen client train on a random share of its samples, from a
  private estimate of their total. A :class:`Cohort` cannot express that (``local_steps`` bounds the
  work, not the data), and the source at hand does not define it.
* With draws by norm inside a stratum the plain mean of step 4 is biased towards large gradients;
  the paper's, kept.

Worked
------
N = (10, 30, 60), S = (4, 2, 1), m = 10: m_h = (2.5, 3.75, 3.75) before rounding.

>>> from motley.selectors import Selector
>>> from motley.core.records import Outcome, Reports
>>> selector = Selector(FedSTaS(strata=2), seed=0)
>>> sketches = {"gradient_sketch": [[1, 0], [3, 0], [5, 0], [0, 90]]}
>>> selector.observe(1, Reports([0, 1, 2, 3], Outcome.PROBED, signals=sketches))
>>> cohort = selector.select(1, available_ids=range(4), m=2)
>>> 3 in cohort.ids, sorted(cohort.weights.tolist())
(True, [0.25, 0.75])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import deviations
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import filled, put_vectors
from motley.selectors.common.clustering import k_means
from motley.selectors.common.sampling import probability_notes, successive_draws
from motley.selectors.selector import SelectionRule

LARGEST = 1e100
"""Entries of a gradient above it, of runs that diverge, count as it: sums of squares stay
finite."""
_LAST_RESORT = 1e-9  # relative: the weight of a stratum without spread when the others are used up


@dataclass(frozen=True)
class FedSTaS(SelectionRule[ClientTable]):
    """Draw clients by stratified sampling.

    Parameters
    ----------
    strata: H; never more than the clients wanted.
    probe: which clients' gradients are measured, see above.
    probe_batches: batches of that measurement; None: all training data.
    every: rounds between two measurements of everybody.
    spread: S_h as above, or the released code's: the variance ``sum |g_k - mean|^2 / N_h``.
    ``standardise``: shift and scale every coordinate of the gradients to mean 0 and deviation 1
    over the clients first, as the released code does.
    """

    strata: int = 10
    probe: Literal["all", "last_report"] = "all"
    probe_batches: int | None = None
    every: int = 1
    spread: Literal["deviation", "variance"] = "deviation"
    standardise: bool = False

    paper: ClassVar[Paper] = cite("slessor2024fedstas")

    def __post_init__(self) -> None:
        if self.strata < 1 or self.every < 1:
            raise ConfigError(
                f"got strata = {self.strata}, every = {self.every}; expected at least 1 of each"
            )
        if self.probe_batches is not None and self.probe_batches < 1:
            raise ConfigError(
                f"got probe_batches = {self.probe_batches}; expected at least 1, or none for all "
                "training data"
            )
        if self.probe == "last_report" and (self.every, self.probe_batches) != (1, None):
            raise ConfigError(
                "with probe = 'last_report' nobody is probed; leave every and probe_batches out"
            )

    @override
    def needs(self) -> SignalRequirements:
        if self.probe == "all":
            return SignalRequirements(probed={"gradient_sketch": self.probe_batches})
        return SignalRequirements(reported=frozenset({"gradient_sketch"}))

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    @override
    def init(self) -> ClientTable:
        return ClientTable({"sketch": np.nan})

    @override
    def candidates(self, state: ClientTable, context: SelectionContext) -> Ids:
        due = self.probe == "all" and (context.draw - 1) % self.every == 0
        return context.available if due else context.available[:0]

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        measured = np.isin(context.available, state.ids, assume_unique=True)
        sketches = state.get("sketch", context.available[measured])
        if self.standardise and measured.any():
            # 1e-8: the released code's; a coordinate in which nobody differs becomes 0
            sketches = deviations(sketches) / (sketches.std(axis=0) + 1e-8)
        norm = np.ones(len(measured))
        label = np.zeros(len(measured), np.int64)
        spread = np.zeros(0)
        if measured.any():
            groups = max(min(self.strata, context.m - (not measured.all()), len(sketches)), 1)
            strata = k_means(sketches, groups, Key(0).fold("strata"))
            norm[measured], label[measured] = np.linalg.norm(sketches, axis=1), strata
            spread = spreads(sketches, strata, self.spread)
        if not measured.all():
            label[~measured] = len(spread)
            spread = filled(np.append(spread, np.nan))
        sizes = np.bincount(label, minlength=len(spread))
        wanted = allocate(sizes, spread, context.m)
        return self._draw(context, label, norm, sizes, wanted=wanted)

    def _draw(
        self, context: SelectionContext, label: Ints, norm: Floats, sizes: Ints, wanted: Ints
    ) -> Cohort:
        chosen = []
        p = np.zeros(len(label))
        for h in np.flatnonzero(wanted):
            members = np.flatnonzero(label == h)
            chosen.append(members[successive_draws(norm[members], int(wanted[h]), context.rng)])
            total = norm[members].sum()
            share = norm[members] / total if total > 0 else 1.0 / len(members)
            p[members] = share * wanted[h] / context.m
        at = np.concatenate(chosen)
        weights = sizes[label[at]] / wanted[label[at]] / sizes[wanted > 0].sum()
        notes = {"strata": float(len(sizes)), **probability_notes(p)}
        return Cohort(context.available[at], weights, notes=notes, probabilities=p)

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        measured = reports.of(Outcome.PROBED if self.probe == "all" else Outcome.ACCEPTED)
        return put_vectors(
            table=state,
            column="sketch",
            reports=measured,
            signal="gradient_sketch",
            largest=LARGEST,
        )


def spreads(
    points: Floats, label: Ints, form: Literal["deviation", "variance"] = "deviation"
) -> Floats:
    """Return S_h of each stratum ``0 .. max label``, none empty: the root of
    ``sum |g_k - mean|^2 / (N_h - 1)``, or ``sum |g_k - mean|^2 / N_h``, ``[H]``."""
    out = np.zeros(int(label.max()) + 1)
    for h in range(len(out)):
        members = int(np.count_nonzero(label == h))
        square = (deviations(points[label == h]) ** 2).sum()
        out[h] = square / members if form == "variance" else np.sqrt(square / max(members - 1, 1))
    return out


def allocate(sizes: Ints, spread: Floats, m: int) -> Ints:
    """Return whole m_h in proportion to ``N_h S_h``, at most N_h, summing to ``m <= sum N_h``,
    ``[H]``.

    At least 1 each, if m suffices. The shares are ``q_h = clip(s N_h S_h, 1, N_h)`` with the s that
    makes them sum to m (Neyman's own where nothing is clipped), rounded by largest remainder, the
    first of several; remainders are compared to nine decimal places.
    """
    if spread.max() > 0:
        weight = sizes * np.maximum(spread, _LAST_RESORT * spread.max())
    else:
        weight = sizes.astype(np.float64)
    weight /= weight.max()
    least = 1.0 if np.count_nonzero(sizes) <= m else 0.0
    low = np.minimum(least, sizes)

    def share(s: float) -> Floats:
        return np.asarray(np.clip(s * weight, low, sizes))

    below = 0.0
    above = m / weight.sum()
    while share(above).sum() < m:
        above *= 2.0
    for _ in range(60):
        middle = 0.5 * (below + above)
        below, above = (middle, above) if share(middle).sum() < m else (below, middle)
    q = share(above)
    # After 60 halvings q is exact but for rounding: a whole number just below itself is whole.
    counts = np.floor(q + 1e-9).astype(np.int64)
    room = np.where(counts < sizes, np.round(q - counts, 9), -1.0)
    counts[np.argsort(-room, kind="stable")[: m - int(counts.sum())]] += 1
    return counts
