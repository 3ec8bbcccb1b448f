"""Clustered sampling draws one client from each of m urns; together the urns hold every client as
often as its data asks for, so that the draw is unbiased, and clients that are alike share an urn.

Fraboni, Vidal, Kameni, Lorenzi: *Clustered Sampling: Low-Variance and Improved Representativity for
Clients Selection in Federated Learning*, ICML 2021 (arXiv:2105.05883).

    p_k share of the data; client k has m p_k to lay into urns of room 1; r_uk what urn u has of it
    each urn u gives one client, k with probability r_uk;   a_k = multiplicity_k / m
    E a_k = p_k;   Var a_k = 1/m^2 sum_u r_uk (1 - r_uk)  <=  p_k (1 - p_k) / m,  that of m draws
                                                              with replacement
    by = "sizes"       (Algorithm 1) urns are filled one after the other, clients by falling size
    by = "similarity"  (Algorithm 2) clients are grouped by Ward's method on the angles between
                       their updates, as far as a group fits into an urn; the m largest groups get
                       an urn each, the others fill what room is left

Symbols: m clients a round. ``Cohort.weights`` are the a_k; ``Cohort.multiplicity`` how often a
client was drawn. They count with ``weights = "selector"`` and, the same, with ``"uniform"``.

State, per client: ``num_examples``; by similarity also ``vector``, its last update: 2 KiB with
sketches. Needs: ``num_examples`` once; by similarity the reported vectors. Probe cost: none. By
sizes a choice costs a sort; by similarity O(K^2) angles and a tree: for thousands of clients.
``Cohort.notes``: ``max_probability``, ``cv_probability`` of p; ``groups``, in how many the clients
fall; ``urns_alone``, the share of urns with one client in them.

Deviations and readings
-----------------------
* READING Ward's method works on the matrix of angles, as if they were Euclidean distances. The
  released code hands the rows of that matrix to Ward's method as points, so that two clients are
  near where their angles to all others are; groups differ.
* READING a client with m p_k >= 1 first fills whole urns alone; what is left of it enters the
  groups.
* As published, a client that never reported has an update of zeros. Here the angle between two of
  them is 0 and between one of them and another client a right angle.
* INTERPRETATION-D vectors are sketches of 256 numbers, which keep angles to some percent;
  ``"gradient"`` is exact. Urns are filled anew in each round from the clients that are available.
* The theory holds for any way to fill the room that the m largest groups leave: here the largest of
  the other groups come first.

Worked
------
Sizes (5, 3, 2, 2), m = 2: (5, 3, 2, 2) / 6 in urns of room 1: the first has 5/6 of client 0 and 1/6
of 1, the second 2/6 of 1 and 2/6 of each of 2 and 3. Var a_1 = (5/36 + 8/36) / 4 = .0903; with
replacement .0938. Clients 1 and 3 alike, 0 and 2 alike: 0 and 2 do not fit together (7/6), 1 and 3
do (5/6), so the groups are {0}, {1, 3}, {2}: the urns have 5/6 of 0 with 1/6 of 2, and {1, 3} with
1/6 of 2.

>>> import numpy as np
>>> urn_shares(*by_sizes(np.array([5, 3, 2, 2]) / 12, 2), 4, 2).round(3).tolist()
[[0.833, 0.167, 0.0, 0.0], [0.0, 0.333, 0.333, 0.333]]
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ints
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import (
    SIZE,
    known_vectors,
    put_sizes,
    put_vectors,
    shares,
)
from motley.selectors.common.clustering import row_angles, ward_tree
from motley.selectors.common.facility import Vectors
from motley.selectors.common.sampling import probability_notes
from motley.selectors.selector import SelectionRule

ROUNDING = 1e-9
"""How much more than the room of an urn, 1, may lie in it."""
Line = tuple[Ints, Floats]
"""Clients' positions and amounts ``[n]``, laid end to end: urn u is what lies from u to u + 1. A
client may stand at several places."""


@dataclass(frozen=True)
class ClusteredSampling(SelectionRule[ClientTable]):
    """Draw one client from each of m urns, which together hold clients in proportion to their data.

    Parameters
    ----------
    by: whether urns are filled by ``"similarity"`` of the clients' updates, or by ``"sizes"``
    alone.
    vectors: what stands for an update: sketches of 256 numbers that keep angles, or all of it.
    """

    by: Literal["similarity", "sizes"] = "similarity"
    vectors: Vectors = "gradient_sketch"

    paper: ClassVar[Paper] = cite("fraboni2021clustered")

    @override
    def needs(self) -> SignalRequirements:
        reported = {self.vectors} if self.by == "similarity" else set()
        return SignalRequirements(frozenset({SIZE}), reported=frozenset(reported))

    @override
    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    @override
    def private_with(self) -> str:
        return 'by = "sizes"' if self.by == "similarity" else ""

    @override
    def init(self) -> ClientTable:
        return ClientTable({SIZE: np.nan, "vector": np.nan})

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        m = context.m
        p = shares(state, context.available)
        groups = len(p)
        if self.by == "sizes":
            at, amounts = by_sizes(p, m)
        else:
            vectors, present = known_vectors(state, "vector", context.available)
            at, amounts, groups = by_similarity(p, m, angles(vectors, present))
        edges = np.cumsum(amounts)
        # an urn is an m-th of the line, so a draw from each needs no urns
        drawn = np.searchsorted(edges, (np.arange(m) + context.rng.random(m)) * edges[-1] / m)
        # rounding may put a draw behind the last edge
        chosen, counts = np.unique(at[np.minimum(drawn, len(at) - 1)], return_counts=True)
        alone = np.floor(m * p + ROUNDING).sum() / m
        notes = {**probability_notes(p), "groups": float(groups), "urns_alone": float(alone)}
        return Cohort(context.available[chosen], counts / m, counts, notes=notes, probabilities=p)

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        clients = put_sizes(state, reports)
        accepted = reports.of(Outcome.ACCEPTED)
        if self.by == "sizes" or not len(accepted):
            return clients
        return put_vectors(clients, "vector", accepted, self.vectors)


def by_sizes(p: Floats, m: int) -> Line:
    """Return the urns of Algorithm 1 for shares ``p`` ``[K]`` that sum to 1, as a line: clients by
    falling share."""
    # Stable: equal shares in order of their ids, so that the urns do not hang on the sort.
    falling = np.argsort(-p, kind="stable")
    return falling, m * p[falling]


def angles(vectors: Floats, present: Bools) -> Floats:
    """Return the angles between vectors ``[K, d]``, as radians ``[K, K]``; those that are not
    ``present`` ``[K]`` are alike, and at a right angle to all others."""
    between = row_angles(np.where(present[:, None], vectors, 0.0))
    between[np.ix_(~present, ~present)] = 0.0
    return between


def by_similarity(p: Floats, m: int, distances: Floats) -> tuple[Ints, Floats, int]:
    """Return the urns of Algorithm 2 as a line, and the number of groups.

    Parameters
    ----------
    p: shares of the data ``[K]``, which sum to 1.
    distances: between clients ``[K, K]``.
    """
    amounts = m * p
    full_urns = np.floor(amounts + ROUNDING)
    fractions = np.maximum(amounts - full_urns, 0.0)
    alone = np.flatnonzero(full_urns)
    partial = np.flatnonzero(fractions > ROUNDING)
    groups = _groups(fractions[partial], distances[np.ix_(partial, partial)])
    groups = [partial[group] for group in groups]
    held = rounded(np.array([fractions[group].sum() for group in groups]))
    # stable: in order of their first ids
    groups = [groups[i] for i in np.argsort(-held, kind="stable")]
    urns = m - int(full_urns.sum())
    fill = deque((int(k), float(fractions[k])) for group in groups[urns:] for k in group)
    line = [(int(k), float(full_urns[k])) for k in alone]
    for group in groups[:urns]:
        line += [(int(k), float(fractions[k])) for k in group]
        room = 1.0 - float(fractions[group].sum())
        while fill and room > ROUNDING:
            k, left = fill.popleft()
            taken = min(left, room)
            line.append((k, taken))
            room -= taken
            if left - taken > ROUNDING:
                fill.appendleft((k, left - taken))
    at, laid = zip(*line, strict=True)
    return np.array(at, np.int64), np.array(laid), len(groups) + len(alone)


def _groups(fractions: Floats, distances: Floats) -> list[Ints]:
    """Return the positions of each group: the largest branches of Ward's tree that fit into an urn,
    in order of their first members."""
    branches: list[Ints | None] = [np.array([k]) for k in range(len(fractions))]
    for first, second in ward_tree(distances).tolist():
        left = branches[first]
        right = branches[second]
        joined = None if left is None or right is None else np.union1d(left, right)
        if joined is not None and fractions[joined].sum() > 1.0 + ROUNDING:
            joined = None
        if joined is not None:
            branches[first] = branches[second] = None
        branches.append(joined)
    return sorted((branch for branch in branches if branch is not None), key=lambda b: int(b[0]))


def urn_shares(at: Ints, amounts: Floats, clients: int, m: int) -> Floats:
    """Return ``r`` ``[m, K]``: which share each client has of each urn of a line."""
    shares_of = np.zeros((m, clients))
    start = 0.0
    for k, amount in zip(at.tolist(), amounts.tolist(), strict=True):
        end = start + amount
        for urn in range(int(start + ROUNDING), min(int(np.ceil(end - ROUNDING)), m)):
            shares_of[urn, k] += max(0.0, min(end, urn + 1.0) - max(start, float(urn)))
        start = end
    return shares_of
