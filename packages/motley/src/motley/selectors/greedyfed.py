"""GreedyFed takes the clients whose updates have helped most, by Shapley values on samples of the
server.

Singhal, Pandey, Popovski: *Greedy Shapley Client Selection for Communication-Efficient Federated
Learning*, IEEE Networking Letters 2024 (arXiv:2312.09108). The values are those of GTG-Shapley:
Liu, Chen, Yu, Liu, Cui, ACM TIST 13(4), 2022 (arXiv:2109.02053).

    v(S) = -L(S)    L: validation loss of the model that the uploads of S alone would make
    sv_i = sum_{S without i} |S|! (M - |S| - 1)! / M! (v(S + i) - v(S))               exact
    GTG:  |v(all) - v(none)| < eps: all 0                                             between rounds
          permutations pi, each client first in turn; sv_i = mean of v(..i) - v(..before i),
          0 from the first place on at which |v(all) - v(..)| < eps                   within a round
    SV_k <- (n_k SV_k + sv_k) / (n_k + 1)       average = "mean"
    SV_k <- alpha SV_k + (1 - alpha) sv_k       average = "exponential"
    cohort: those never asked before, then the m largest SV_k

Symbols: M uploads of a round, ``eps`` the option ``truncation``, ``n_k`` the values that client k
has so far, ``SV_k`` its valuation, 0 before the first.

State, per client: ``count`` (how often it was asked), ``values`` (n_k), ``value`` (SV_k).
Needs: reported ``contribution``, hence ``split = { server = ... }``; every single upload.
Probe cost: none; the server evaluates at most 2^M models a round, and holds M updates. As all that
the server computes, that takes wall time and no virtual time; the column ``notes`` counts them
(``evaluations``).

``Cohort.notes``: ``new``, clients of the cohort that were never asked before. ``client_notes``:
``value``, SV_k.

Deviations and readings
-----------------------
* READING the paper was read in its abstract, summaries and the authors' code alone
  (pringlesinghal/GreedyFed, 563d991 and 17fd9e3): equations have no numbers here.
* The authors' code and GTG-Shapley's (liuzelei13/GTG-Shapley, 740d32a) end a round's permutations
  by different tests, both after whole turns of M permutations. ``until = "mean"``, GreedyFed's: of
  at least 20 running means (a 0 before the first), each the mean over clients, the last ten differ
  by under 1 % of the last. But for truncation that mean is (v(all) - v(none)) / M whatever the
  order, so the first turn that ends at 19 permutations or more is the last. ``until = "each"``,
  GTG's: after over 30 permutations, the last ten running means differ by at most 5 % of the last in
  the mean over clients. Both end at ``permutations`` M.
* READING what S alone would make is the algorithm's own server step on the uploads of S, at their
  weights; under FedAvg the codes' weighted mean of models.
* READING eps is 1e-4 in loss, as in GreedyFed's code; GTG's has .01 between and .001 within rounds,
  in accuracy. Where it ends a round at once, that code gives everybody 1e-9 to be divided by later;
  here it is 0.
* READING the order of the first pass is drawn, as ids may follow labels; the code takes clients by
  number. Places that it leaves open in its last round are drawn, too, as there. A newcomer is asked
  when it is first available.
* READING an exponential average starts from 0, so that a client with one value counts
  (1 - alpha) of it: with alpha = .5, values .2 and .4 give .1 and .25; from the first value on they
  would give .2 and .3. Which of them the paper means could not be seen.
* READING a client that was asked and has no value (late, dropped, rejected) counts 0, as one whose
  update changes nothing. A round before or after which the loss is not finite gives no values.
* Losses are rounded to 34 binary digits, so that last bits cut no permutation short.

Worked
------
Three uploads with losses 2 (none), 1.4, 1.6, 2.2 (one), 1.2 (0 and 1), 1.6 (0 and 2), 1.6 (1 and
2), 1.2 (all). The six orders give client 0 .6, .6, .4, .4, .6, .4, client 1 .2, .4, .4, .4, .4, .6,
client 2 0, -.2, 0, 0, -.2, -.2: exact (.5, .4, -.1). Orders 012, 102, 201: (8/15, 1/3, -1/15). With
eps = .25 orders that begin with 0 end there (.8 - .6 = .2): all six give (.5, .3, -1/15).

>>> import numpy as np
>>> from motley.core.records import JointUploads
>>> losses = {"": 2.0, "0": 1.4, "1": 1.6, "2": 2.2, "01": 1.2, "02": 1.6, "12": 1.6, "012": 1.2}
>>> uploads = JointUploads(
...     np.array([4, 7, 9]),
...     loss=lambda members: losses["".join(map(str, sorted(members)))],
...     rng=np.random.default_rng(0),
... )
>>> GreedyFed(values="exact").contributions(uploads).round(9).tolist()
[0.5, 0.4, -0.1]
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import combinations
from math import comb
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.core.records import (
    CONTRIBUTION,
    Cohort,
    JointUploads,
    Reports,
    SelectionContext,
    SignalRequirements,
)
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import LARGEST, dispatched
from motley.selectors.common.sampling import Ties, top_m
from motley.selectors.selector import SelectionRule

Value = Callable[[Collection[int]], float]
MOST_EXACT = 12
"""Uploads up to which the sum over all sets is taken: 4096 evaluations."""


@dataclass(frozen=True)
class GreedyFed(SelectionRule[ClientTable]):
    """Take the m clients of the largest average Shapley value; first, everybody once.

    Parameters
    ----------
    average: of a client's values, over all rounds alike, or an exponential one.
    alpha: weight of the past in the exponential average; 0: the last value alone.
    values: by permutations that are cut short, or exact, for up to 12 uploads a round.
    truncation: eps, in units of the loss.
    until: when permutations end, see the module.
    permutations: at most so many for each upload.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    average: Literal["mean", "exponential"] = "mean"
    alpha: float = 0.5
    values: Literal["gtg", "exact"] = "gtg"
    truncation: float = 1e-4
    until: Literal["mean", "each"] = "mean"
    permutations: int = 50
    ties: Ties = "random"

    paper: ClassVar[Paper] = cite("singhal2024greedyfed")

    def __post_init__(self) -> None:
        if not 0 <= self.alpha < 1:
            raise ConfigError(f"got alpha = {self.alpha}; expected at least 0 and less than 1")
        if not 0 <= self.truncation < np.inf:
            raise ConfigError(
                f"got truncation = {self.truncation}; expected a finite loss of at least 0"
            )
        if self.permutations < 1:
            raise ConfigError(f"got permutations = {self.permutations}; expected at least 1")

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(reported=frozenset({CONTRIBUTION}))

    @override
    def init(self) -> ClientTable:
        return ClientTable({"count": 0.0, "values": 0.0, "value": 0.0})

    @override
    def select(self, state: ClientTable, context: SelectionContext) -> Cohort:
        ids = context.available
        fresh = state.get("count", ids) == 0
        new = int(min(fresh.sum(), context.m))
        value = state.get("value", ids)
        if new:
            order = context.rng.permutation(len(ids))
            order = order[np.argsort(~fresh[order], kind="stable")]
            at = order[: context.m]
        else:
            at = top_m(value, context.m, context.rng, self.ties)
        return Cohort(ids[at], notes={"new": float(new)}, client_notes={"value": value[at]})

    @override
    def contributions(self, uploads: JointUploads) -> Floats:
        losses: dict[frozenset[int], float] = {}

        def value(members: Collection[int]) -> float:
            key = frozenset(members)
            if key not in losses:
                losses[key] = float(rounded(np.array([uploads.loss(sorted(key))]))[0])
            return -losses[key]

        n = len(uploads.clients)
        if self.values == "exact":
            return exact(value, n)
        return self.guided(value, n, uploads.rng)

    def guided(self, value: Value, n: int, rng: np.random.Generator) -> Floats:
        """Return the Shapley values of n uploads by GTG-Shapley, ``[n]``; ``value``: of a set of
        them."""
        none, everyone = value(()), value(range(n))
        if not np.isfinite(everyone - none):
            return np.full(n, np.nan)
        if abs(everyone - none) < self.truncation:
            return np.zeros(n)
        total = np.zeros(n)
        means = [total]
        for _ in range(self.permutations):
            for first in range(n):
                others = rng.permutation([i for i in range(n) if i != first])
                order = [first, *others.astype(int).tolist()]
                before = none
                marginal = np.zeros(n)
                for place, i in enumerate(order, start=1):
                    if abs(everyone - before) < self.truncation:
                        break
                    now = value(order[:place])
                    marginal[i] = now - before
                    before = now
                total = total + marginal
                means.append(total / len(means))
            if self._settled(np.array(means)):
                break
        return means[-1]

    def _settled(self, means: Floats) -> bool:
        """Return whether the running means ``[1 + permutations, n]``, of which the first is 0, move
        little enough."""
        if self.until == "mean":
            each = means.mean(1)
            moved = np.abs(each[-10:] - each[-1]).mean()
            return len(each) >= 20 and bool(moved < 0.01 * abs(each[-1]))
        last = means[-1]
        moved = (np.abs(means[-10:] - last) / (np.abs(last) + 1e-12)).mean(1).max()
        return len(means) - 1 > 30 and bool(moved <= 0.05)

    @override
    def observe(self, state: ClientTable, draw: int, reports: Reports) -> ClientTable:
        ended = dispatched(reports)
        state = state.add("count", ended.ids)
        heard = ended[np.isfinite(ended.signal(CONTRIBUTION))]
        sv = np.clip(heard.signal(CONTRIBUTION), -LARGEST, LARGEST)
        old, n = state.get("value", heard.ids), state.get("values", heard.ids)
        if self.average == "mean":
            new = (n * old + sv) / (n + 1)
        else:
            new = self.alpha * old + (1 - self.alpha) * sv
        return state.put(heard.ids, {"value": new, "values": n + 1})


def exact(value: Value, n: int) -> Floats:
    """Return the Shapley values of n uploads by the sum over all sets, ``[n]``.

    Raises
    ------
    ConfigError: more than 12 uploads.
    """
    if n > MOST_EXACT:
        raise ConfigError(
            f"got {n} uploads in a server step, of which exact values take 2^{n} evaluations; "
            f'expected at most {MOST_EXACT}, or write values = "gtg"',
            "selector.values",
        )
    out = np.zeros(n)
    for size in range(n):
        share = 1.0 / (n * comb(n - 1, size))
        for members in combinations(range(n), size):
            for i in set(range(n)).difference(members):
                out[i] += share * (value((*members, i)) - value(members))
    return out
