"""UCB1 chooses the clients with the m largest mean rewards plus a bonus for few selections; it uses
no client features.

Auer, Cesa-Bianchi, Fischer: *Finite-time Analysis of the Multiarmed Bandit Problem*, Machine
Learning 47, 2002.

    y_k     = |L_k(now) - L_k(last time)| / tau_k,  FLASH's reward with the client's own loss
    index_k = mean_k + sqrt(2 ln t / N_k),  +inf while N_k = 0;   cohort: the m largest

Symbols: ``L_k`` the loss of the model that client k received, on its training data, before it
trains; ``tau_k`` its duration; ``N_k`` how often it took part; ``mean_k`` the mean of its rewards,
mapped to [0, 1] by the smallest and the largest of all rewards so far.

State, per client: ``loss``, ``duration`` and its ``round``, ``count`` (N), ``rewards`` (how many),
``total`` (their sum), 48 bytes. Needs: reported ``arrival_loss`` (one forward pass over the
training data of each chosen client) and durations. Probe cost: none. ``Cohort.notes``: ``unseen``,
how many available have N = 0; ``mean`` and ``bonus``, averaged over those of the chosen that have
been seen; ``client_notes``: both of the chosen, where all of them were seen.

Deviations and readings
-----------------------
* INTERPRETATION-D rewards are mapped by the running extremes of all raw rewards, past ones too, so
  a mean is that of mapped rewards; while all rewards are equal they are 0. A batch of m plays a
  round is a heuristic extension.
* INTERPRETATION-D a client's first report gives no reward (there is no loss to compare with), but
  counts in N, as does a report without a finite loss. A client without any reward yet has the mean
  of the available ones that have one.
* Round 1 takes everybody, as FLASH does, for a fair comparison; ``first_round = "cohort"`` takes m
  of those never seen.

Worked
------
t = 18, means (.5, .4, .45), N = (10, 3, 5): indices (1.260312, 1.788133, 1.525244).

>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(UCB1(), seed=0)
>>> for t, losses in ((1, [2.0, 2.0, 2.0]), (2, [1.0, 1.9, 1.5])):
...     signals = {"arrival_loss": losses}
...     reports = Reports([0, 1, 2], Outcome.ACCEPTED, compute_s=[1, 1, 1], signals=signals)
...     selector.observe(t, reports)
>>> selector.select(3, [0, 1, 2], m=2).ids.tolist()
[0, 2]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.table import ClientTable
from motley.selectors.common.client_features import (
    FirstRound,
    Tau,
    first_round_size,
    loss_rewards,
    reward_columns,
)
from motley.selectors.common.client_signals import DURATIONS, filled
from motley.selectors.common.sampling import Ties, top_m
from motley.selectors.selector import SelectionRule


@dataclass(frozen=True)
class UCB1State:
    """Columns as named in the module's docstring; the smallest and the largest reward so far."""

    clients: ClientTable = field(
        default_factory=lambda: ClientTable(
            reward_columns() | {"count": 0.0, "rewards": 0.0, "total": 0.0}
        )
    )
    smallest: float = math.inf
    largest: float = -math.inf


@dataclass(frozen=True)
class UCB1(SelectionRule[UCB1State]):
    """Take the m largest sums of mean reward and bonus.

    Parameters
    ----------
    tau: the duration that rewards are divided by: the round's, or each client's own; over the mean
    of all, or in seconds.
    first_round: ``"all"``, or ``"cohort"``: m clients at random.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    tau: Tau = "round"
    first_round: FirstRound = "all"
    ties: Ties = "random"

    paper: ClassVar[Paper] = cite("auer2002finite")

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(reported=frozenset({"arrival_loss"}), columns=DURATIONS)

    @override
    def init(self) -> UCB1State:
        return UCB1State()

    @override
    def size(self, draw: int, m: int, available: int) -> int:
        return first_round_size(self.first_round, draw, m, available)

    def means(self, state: UCB1State, ids: Ids) -> Floats:
        """Return the mean rewards of these clients in [0, 1], ``[n]``."""
        rewards = state.clients.get("rewards", ids)
        span = state.largest - state.smallest
        if not span > 0:
            return np.zeros(len(ids))
        mean = np.divide(
            state.clients.get("total", ids),
            rewards,
            out=np.full(len(ids), np.nan),
            where=rewards > 0,
        )
        mean -= state.smallest
        mean /= span
        return np.asarray(filled(mean, default=0.0))

    @override
    def select(self, state: UCB1State, context: SelectionContext) -> Cohort:
        count = state.clients.get("count", context.available)
        mean = self.means(state, context.available)
        bonus = np.full(len(count), np.inf)
        np.divide(2.0 * math.log(context.draw), count, out=bonus, where=count > 0)
        np.sqrt(bonus, out=bonus)
        at = top_m(mean + bonus, context.m, context.rng, self.ties)
        notes = {"unseen": float(np.count_nonzero(count == 0))}
        seen = at[count[at] > 0]
        if len(seen):
            notes |= {"mean": float(mean[seen].mean()), "bonus": float(bonus[seen].mean())}
        # the bonus of a client that was never asked is infinite
        each = {"mean": mean[at], "bonus": bonus[at]} if len(seen) == len(at) else {}
        return Cohort(context.available[at], notes=notes, client_notes=each)

    @override
    def observe(self, state: UCB1State, draw: int, reports: Reports) -> UCB1State:
        accepted = reports.of(Outcome.ACCEPTED)
        if not len(accepted):
            return state
        clients, y = loss_rewards(
            clients=state.clients,
            round=draw,
            accepted=accepted,
            signal="arrival_loss",
            tau=self.tau,
        )
        clients = clients.add("count", accepted.ids)
        present = ~np.isnan(y)
        if not present.any():
            return UCB1State(clients, state.smallest, state.largest)
        ids = accepted.ids[present]
        y = y[present]
        clients = clients.add("rewards", ids).add("total", ids, y)
        return UCB1State(
            clients, min(state.smallest, float(y.min())), max(state.largest, float(y.max()))
        )
