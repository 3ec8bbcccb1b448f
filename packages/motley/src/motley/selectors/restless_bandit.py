"""Restless hidden-Markov bandit: compare the rewards of clients within a round, which cancels the
influence all of them share.

Yemini, Leshem, Somekh-Baruch: *The Restless Hidden Markov Bandit with Linear Rewards and Side
Information*, IEEE Transactions on Signal Processing 69, 2021 (arXiv:1910.10271). What is known of
the paper: two hidden states, one shared by all arms and Markov, one per arm and i.i.d. It selects
no clients, so everything below is INTERPRETATION-D.

    reward  y_k = |L_k(now) - L_k(last time)| / tau_k,  FLASH's reward with the client's own loss
    differencing (default): y_k = s_t + u_k + noise, s_t shared by the round;
        with r = |R_t| >= 2 rewards
        A_kj += [k = j] - 1/r;  c_k += y_k - mean y,  for k, j in R_t;
        u = (A + lambda I)^-1 c
        X_t = {k : N_k < D ln(t + 1)};
        cohort: of X_t up to m, least N first; the rest by largest u
    filter: belief b over two states, transition P, emission means mu_(k,z), deviation sigma
        b <- b * exp(-(mean y - mean mu_z)^2 / (2 sigma^2)), normalized;  b <- b P after the round
        mu_(k,z): running means of y_k weighted by b_z
        cohort: N_k = 0 first, then the largest sum_z b_z mu_(k,z)

Symbols: ``N_k`` how often k took part; ``D`` is ``explore``; ``R_t`` the reporters with a reward;
``P`` has ``stay`` on its diagonal.

A is never formed. It is ``diag(n) - sum over rounds of 1_R 1_R^T / r``, n_k the rounds in which k
was compared: the cohorts are kept, and the system is solved by conjugate gradients, preconditioned
by the diagonal and started from the previous u.

State, per client ever seen: ``loss``, ``duration``, ``round``, ``count`` (N), and ``compared`` (n),
``c``, ``u``, or, of the filter, the means ``mu0``, ``mu1`` and their weights ``w0``, ``w1``: at
most 64 bytes. Differencing adds 8 bytes for every reward ever compared: ``members``, the cohorts
one after the other, and ``starts``, where each begins. (A would take 8 K^2.) Needs: reported
``arrival_loss`` (one forward pass over the training data of each chosen client) and durations.
Probe cost: none.
``Cohort.notes``: ``explored``, how many of the cohort had been chosen too seldom; filter:
``belief`` in the state of higher mean.

Deviations and readings
-----------------------
* A first report has no reward, and neither has one without a finite loss: such a reporter counts in
  N and is not compared.
* r < 2: nothing is compared. A client that was never compared has u = 0, and so has, on average, a
  group of clients that were only compared with each other.
* Filter: sigma is the deviation of all rewards so far where it is not given (1 until it is
  positive); mu starts at their mean plus and minus sigma with the weight of one reward (from the
  first reward alone both states would have the same mean).
* ``first_round = "all"`` gives it FLASH's first round.

FLASH reports this bandit near random selection: expect no gain.

Worked
------
Round 1 rewards {0: 5, 1: 4}, round 2 {1: 1, 2: 3}: lambda towards 0 gives u = (0, -1, 1), so client
2 is best, where raw means (5, 2.5, 3) prefer client 0; lambda = .1: (.052083, -.9375, .885417).
Adding a constant to all rewards of a round changes nothing. Filter with b = (.5, .5), P = [[.9,
.1], [.2, .8]], means (1, 0), sigma = .5, observation .8: posterior (.768525, .231475), prediction
(.737967, .262033).

>>> from motley.core.records import Outcome, Reports
>>> from motley.selectors import Selector
>>> selector = Selector(RestlessBandit(explore=0.1), seed=0)
>>> for t, losses in ((1, [9.0, 9.0, 9.0]), (2, [8.0, 7.0, 6.0])):
...     signals = {"arrival_loss": losses}
...     reports = Reports([0, 1, 2], Outcome.ACCEPTED, compute_s=[1, 1, 1], signals=signals)
...     selector.observe(t, reports)
>>> selector.select(3, [0, 1, 2], m=2).ids.tolist()
[2, 1]
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids, Ints
from motley.core.errors import ConfigError
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
from motley.selectors.common.client_signals import DURATIONS
from motley.selectors.common.sampling import Ties, softmax, top_m
from motley.selectors.selector import SelectionRule

TOLERANCE = 1e-11
"""Conjugate gradients stop at this residual, relative to c, or to the first residual where c has
all but cancelled."""
LONGEST = 1000
"""Conjugate gradients stop after so many steps, should rounding keep the residual above the
tolerance."""


@dataclass(frozen=True)
class RestlessBanditState:
    """Columns as named in the module's docstring; cohort i is
    ``members[starts[i] : starts[i + 1]]``.

    Filter: ``belief`` ``[2]`` (state 0 has the higher mean); number, mean and sum of squared
    deviations of all rewards so far.
    """

    clients: ClientTable
    members: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    starts: Ids = field(default_factory=lambda: np.zeros(1, np.int64))
    belief: Floats = field(default_factory=lambda: np.full(2, 0.5))
    seen: int = 0
    mean: float = 0.0
    squares: float = 0.0


@dataclass(frozen=True)
class RestlessBandit(SelectionRule[RestlessBanditState]):
    """Rank clients by reward differences within rounds, or by a two-state filter.

    Parameters
    ----------
    variant: how the state that all clients share is treated, see above.
    lam: ridge penalty of ``differencing``, positive.
    explore: D of ``differencing``, positive.
    stay: of ``filter``: probability that the shared state does not change, for each of the two
    states; in (0, 1).
    sigma: of ``filter``: standard deviation of the mean reward; None takes that of all rewards so
    far.
    tau: the duration that rewards are divided by: the round's, or each client's own; over the mean
    of all, or in seconds.
    first_round: ``"cohort"``: m clients, or ``"all"``.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    variant: Literal["differencing", "filter"] = "differencing"
    lam: float = 0.1
    explore: float = 1.0
    stay: tuple[float, float] = (0.9, 0.9)
    sigma: float | None = None
    tau: Tau = "round"
    first_round: FirstRound = "cohort"
    ties: Ties = "random"

    paper: ClassVar[Paper] = cite("yemini2021restless")

    def __post_init__(self) -> None:
        if not 0 < self.lam < math.inf or not 0 < self.explore < math.inf:
            raise ConfigError(
                f"got lam = {self.lam}, explore = {self.explore}; expected positive numbers"
            )
        if not all(0 < chance < 1 for chance in self.stay):
            raise ConfigError(
                f"got stay = {self.stay}; expected two probabilities in (0, 1): certainty would "
                "never be given up"
            )
        if self.sigma is not None and not 0 < self.sigma < math.inf:
            raise ConfigError(
                f"got sigma = {self.sigma}; expected a positive number, or none for that of the "
                "rewards so far"
            )
        if self.variant == "filter":
            other_variant, unused = ("differencing", (self.lam, self.explore) != (0.1, 1.0))
        else:
            other_variant, unused = ("filter", (self.stay, self.sigma) != ((0.9, 0.9), None))
        if unused:
            raise ConfigError(
                f"got options of variant = {other_variant!r} with variant = {self.variant!r}; "
                "leave them out"
            )

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(reported=frozenset({"arrival_loss"}), columns=DURATIONS)

    @override
    def init(self) -> RestlessBanditState:
        if self.variant == "differencing":
            own = {"compared": 0.0, "c": 0.0, "u": 0.0}
        else:
            own = {"mu0": np.nan, "mu1": np.nan, "w0": 1.0, "w1": 1.0}
        return RestlessBanditState(ClientTable(reward_columns() | {"count": 0.0} | own))

    @override
    def size(self, draw: int, m: int, available: int) -> int:
        return first_round_size(self.first_round, draw, m, available)

    @override
    def select(self, state: RestlessBanditState, context: SelectionContext) -> Cohort:
        count = state.clients.get("count", context.available)
        enough = (
            self.explore * math.log(context.draw + 1) if self.variant == "differencing" else 1.0
        )
        seldom = np.flatnonzero(count < enough)
        first = seldom[top_m(-count[seldom], context.m, context.rng, self.ties)]
        frequent = np.flatnonzero(count >= enough)
        index = self.index(state, context.available[frequent])
        then = frequent[top_m(index, context.m - len(first), context.rng, self.ties)]
        notes = {"explored": float(len(first))}
        if self.variant == "filter":
            notes["belief"] = float(state.belief[0])
        return Cohort(context.available[np.concatenate([first, then])], notes=notes)

    def index(self, state: RestlessBanditState, ids: Ids) -> Floats:
        """Return u, or the filter's predicted reward, of these clients, ``[n]``."""
        if self.variant == "differencing":
            return state.clients.get("u", ids)
        return self.emissions(state, ids) @ state.belief

    def emissions(self, state: RestlessBanditState, ids: Ids) -> Floats:
        """Return ``mu_(k,z)``, ``[n, 2]``; for a client without one the mean of all rewards plus
        and minus sigma."""
        spread = self.deviation(state)
        means = [(state.clients.get("mu0", ids), spread), (state.clients.get("mu1", ids), -spread)]
        return np.stack(
            [np.where(np.isnan(mu), state.mean + shift, mu) for mu, shift in means], axis=1
        )

    def deviation(self, state: RestlessBanditState) -> float:
        """Return sigma, as given or of the rewards so far."""
        if self.sigma is not None:
            return self.sigma
        return math.sqrt(state.squares / state.seen) if state.squares > 0 else 1.0

    @override
    def observe(
        self, state: RestlessBanditState, draw: int, reports: Reports
    ) -> RestlessBanditState:
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
        state = replace(state, clients=clients.add("count", accepted.ids))
        ids = accepted.ids[~np.isnan(y)]
        y = y[~np.isnan(y)]
        if self.variant == "filter":
            return self.filter(state, ids, y) if len(ids) else state
        return self.compare(state, ids, y) if len(ids) > 1 else state

    def compare(self, state: RestlessBanditState, ids: Ids, y: Floats) -> RestlessBanditState:
        """Return the state with one more cohort of rewards ``[r]``, r >= 2, in A and c, and with
        the new u."""
        clients = state.clients.add("compared", ids).add("c", ids, y - y.mean())
        members = np.concatenate([state.members, ids])
        starts = np.append(state.starts, len(members))
        compared = clients.ids[clients.get("compared", clients.ids) > 0]
        n, c, before = (clients.get(name, compared) for name in ("compared", "c", "u"))
        u = compared_means(
            diagonal=n + self.lam,
            c=c,
            members=np.searchsorted(compared, members),
            starts=starts,
            # one more cohort moves few means, so the last ones are nearly the solution
            guess=before,
        )
        return replace(
            state, clients=clients.put(compared, {"u": u}), members=members, starts=starts
        )

    def filter(self, state: RestlessBanditState, ids: Ids, y: Floats) -> RestlessBanditState:
        """Return the state with the rewards ``[r]`` of one round in belief and means."""
        seen = state.seen + len(y)
        mean = state.mean + (y - state.mean).sum() / seen
        # as Welford: no difference of two large sums, which would be rounding
        squares = state.squares + float(((y - state.mean) * (y - mean)).sum())
        state = replace(state, seen=seen, mean=float(mean), squares=squares)
        mu = self.emissions(state, ids)
        likelihood = -0.5 * ((y.mean() - mu.mean(axis=0)) / self.deviation(state)) ** 2
        now = softmax(np.log(state.belief) + likelihood)
        w = np.stack([state.clients.get("w0", ids), state.clients.get("w1", ids)], axis=1) + now
        mu += now / w * (y[:, None] - mu)
        clients = state.clients.put(
            ids, {"mu0": mu[:, 0], "mu1": mu[:, 1], "w0": w[:, 0], "w1": w[:, 1]}
        )
        stay = self.stay
        moves = np.array([[stay[0], 1.0 - stay[0]], [1.0 - stay[1], stay[1]]])
        return replace(state, clients=clients, belief=now @ moves)


def compared_means(
    diagonal: Floats, c: Floats, members: Ints, starts: Ids, guess: Floats
) -> Floats:
    """Solve ``(diag - sum_R 1_R 1_R^T / r) u = c`` by preconditioned conjugate gradients; return u
    ``[n]``.

    Parameters
    ----------
    diagonal: how often each client was compared, plus lambda, ``[n]``.
    c: ``[n]``.
    guess: the starting point, ``[n]``.
    members: positions in ``0 .. n - 1``, round after round.
    starts: where each round begins in ``members``, ``[rounds + 1]``.
    """
    sizes = np.diff(starts)

    def times(v: Floats) -> Floats:
        means = np.add.reduceat(v[members], starts[:-1]) / sizes
        return np.asarray(diagonal * v - np.bincount(members, np.repeat(means, sizes), len(v)))

    u = guess.copy()
    residual = c - times(u)
    enough = TOLERANCE * max(float(np.linalg.norm(c)), float(np.linalg.norm(residual)))
    direction = residual / diagonal
    height = float(residual @ direction)
    for _ in range(LONGEST):
        # the square of a smaller residual is 0 in floats
        if np.linalg.norm(residual) <= enough or not height > 0:
            break
        image = times(direction)
        step = height / float(direction @ image)
        u += step * direction
        residual -= step * image
        scaled = residual / diagonal
        height, before = float(residual @ scaled), height
        direction = scaled + height / before * direction
    return u
