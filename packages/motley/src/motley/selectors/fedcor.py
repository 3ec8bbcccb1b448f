"""FedCor models all clients' loss changes as a Gaussian and greedily chooses those expected to
lower the global loss most.

Tang, Ning, Wang, Sun, Wang, Li, Chen: *FedCor: Correlation-Based Active Client Selection Strategy
for Heterogeneous Federated Learning*, CVPR 2022 (arXiv:2103.13822).

    y_k      = L_k(after) - L_k(before), of one aggregation
               a row of [K] per Gaussian-process round
    y        ~ N(mu, Sigma),  Sigma = X^T X + noise^2 I,
               X [d, K] (state and code keep its transpose, a row per client)
    mu_k     = sum_e g^(t - e) y_e,k / sum_e g^(t - e)
    training : Adam on -sum_e g^(t - e) log N(y_e; mu, Sigma) over X
    greedy   : k* = argmax alpha_k (Sigma p)_k / sqrt(Sigma_kk);
               Sigma <- Sigma - Sigma_:k* Sigma_k*: / Sigma_k*k*;  m times
    annealing: alpha_k <- beta alpha_k whenever k is chosen;
               alpha <- 1 when the Gaussian is trained again

Symbols: ``e``, ``t`` epochs, that is server steps so far; ``g`` discount; ``p_k`` share of the data
over all known clients; ``d`` ``dimension``. With X the likelihood and its gradient cost O(K d^2),
by A = X X^T + noise^2 I_d: Sigma^-1 X^T = X^T A^-1, and logdet Sigma = logdet A + 2 (K - d) log
noise. Conditioned on the picks, Sigma stays X^T C X + noise^2 I among the others, with C [d, d]:
the greedy costs O(m K d), and is the downdate of the whole matrix, pick for pick.

Schedule: rounds 1 .. warmup + 1 draw uniformly, and round warmup + 2 trains the Gaussian first;
then greedy. After each epoch that is a multiple of ``interval`` a round is a rehearsal: a uniform
cohort trains and its average is measured, then thrown away.

State, per client: ``num_examples``, ``before`` (loss in the probe of round ``measured``),
``alpha``, ``embedding`` [d], ``changes`` [rounds] (y, NaN: not measured); ``epochs`` of the
changes. About 16 (d + rounds kept) bytes per client.
Needs: ``num_examples`` once; probed ``loss`` on all training data. Probe cost: every available
client downloads the model and evaluates all its data in each round up to warmup + 2; a rehearsal
costs two such probes and m trainings more. Nothing otherwise.

Published settings (warmup, interval, history, discount, annealing; m / K): CIFAR-10 20, 50, 500,
0.99, 0.9; 5 / 100 (the default, INTERPRETATION-D), FMNIST 15, 10, 100, 0.95, 0.95; 5 / 100, command
line 25, 5, 10, 0.8, 0.9; 10 / 100.

``Cohort.notes``: ``greedy`` (1, or 0 for a uniform cohort), ``score`` of the first pick,
``min_alpha``, ``changes`` kept.

Deviations and readings
-----------------------
* A rehearsal is a round of its own (:class:`~motley.core.records.Cohort`): it counts in
  ``stop.rounds``. The experiment's aggregator weights the cohort.
* READING Adam starts afresh at each training. X begins as N(0, 1) / sqrt(d), drawn from
  ``embedding_seed`` and the client's id: an unseen client has its row before it is known. Only the
  rows of clients with a change are trained.
* INTERPRETATION-D an unavailable client stays in p and Sigma, but is no candidate. A missing loss
  takes its coordinate out of y_e (the marginal Gaussian). Without any training yet (nobody
  measured) cohorts stay uniform.
* INTERPRETATION-D every dispatched client is annealed, also a late or dropped one: it would be
  chosen for ever otherwise.
* The largest score is taken even if it is negative; of equal scores the lowest id wins, as in the
  code. mu and the scale of Sigma do not affect the choice.

Worked
------
Sigma = [[1, .8, 0], [.8, 1, 0], [0, 0, .5]], p = (.35, .25, .4): first scores (.55, .53, .282843)
take client 0, then (-, .15, .282843) take 2, although client 1 was second. With alpha = (.5, 1, 1):
1, then 2. mu for g = .9, y = -1 at e = 1 and -.5 at e = 3, t = 3: -.723757.

If training k brings its own change alpha_k a sigma_k below its mean, the expected change of sum p_j
y_j is a constant minus a times the score of k: hence the rule.

>>> import numpy as np
>>> sigma = np.array([[1, 0.8, 0], [0.8, 1, 0], [0, 0, 0.5]])
>>> embedding = np.linalg.cholesky(sigma - 1e-4 * np.eye(3))
>>> p, alpha, available = np.array([0.35, 0.25, 0.4]), np.ones(3), np.ones(3, bool)
>>> at, scores = greedy(embedding, 0.01, p, alpha, available, m=2)
>>> at.tolist(), scores.round(6).tolist()
([0, 2], [0.55, 0.282843])
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.core.rounding import rounded
from motley.core.table import ClientTable
from motley.selectors.common.client_signals import SIZE, dispatched, put_sizes, shares
from motley.selectors.selector import SelectionRule

LARGEST = 1e9
"""Losses beyond it, of runs that diverge, count as it."""
LEAST_NOISE = 1e-6
_DEFAULTS = {SIZE: np.nan, "before": np.nan, "alpha": 1.0, "embedding": np.nan, "changes": np.nan}


class Gaussian(NamedTuple):
    """The n rounds in which the same clients were measured: the clients' rows, residuals
    ``[rows, n]`` and weights ``[n]``."""

    rows: Ids | slice
    residuals: Floats
    weights: Floats


@dataclass(frozen=True)
class FedCorState:
    """One row per client; columns as named in the module's docstring.

    epochs: those of the columns of ``changes``. measured: the round in which ``before`` was
    measured, 0: none.
    """

    clients: ClientTable = field(default_factory=lambda: ClientTable(_DEFAULTS))
    epochs: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    measured: int = 0


@dataclass(frozen=True)
class FedCor(SelectionRule[FedCorState]):
    """Take the m clients whose training should lower the global loss most, given the others chosen.

    Parameters
    ----------
    warmup: epochs of uniform cohorts, less one.
    interval: epochs between rehearsals.
    history: changes older than so many epochs are dropped.
    discount: g, in (0, 1]: weight of a change relative to one an epoch younger.
    annealing: beta, in (0, 1].
    dimension: numbers in a client's embedding.
    noise: standard deviation of the part that the embedding does not explain.
    rate: Adam's step size.
    first_iterations, iterations: Adam's steps in the first training and in later ones.
    measured: the loss on all training data, or on the validation part.
    embedding_seed: seed of the embedding before any training.
    """

    warmup: int = 20
    interval: int = 50
    history: int = 500
    discount: float = 0.99
    annealing: float = 0.9
    dimension: int = 15
    noise: float = 0.01
    rate: float = 0.01
    first_iterations: int = 1000
    iterations: int = 100
    measured: Literal["loss", "val_loss"] = "loss"
    embedding_seed: int = 0

    paper: ClassVar[Paper] = cite("tang2022fedcor")

    def __post_init__(self) -> None:
        if self.warmup < 0 or self.interval < 1 or self.history < 0:
            raise ConfigError(
                f"got warmup = {self.warmup}, interval = {self.interval}, history = "
                f"{self.history}; expected at least 0, 1 and 0 epochs"
            )
        if not 0 < self.discount <= 1 or not 0 < self.annealing <= 1:
            raise ConfigError(
                f"got discount = {self.discount}, annealing = {self.annealing}; expected numbers "
                "in (0, 1]"
            )
        if not LEAST_NOISE <= self.noise < np.inf or not 0 < self.rate < np.inf:
            raise ConfigError(
                f"got noise = {self.noise}, rate = {self.rate}; expected a noise of at least "
                f"{LEAST_NOISE}, below which Sigma cannot be solved in double precision, and a "
                "positive rate"
            )
        if min(self.dimension, self.first_iterations, self.iterations) < 1:
            raise ConfigError(
                f"got dimension = {self.dimension}, first_iterations = {self.first_iterations}, "
                f"iterations = {self.iterations}; expected at least 1"
            )

    @override
    def needs(self) -> SignalRequirements:
        return SignalRequirements(frozenset({SIZE}), {self.measured: None})

    @override
    def init(self) -> FedCorState:
        return FedCorState()

    def schedule(self, round: int) -> tuple[int, bool]:
        """Return the epoch of a round, and whether the round is a rehearsal (its epoch is then that
        of the round before)."""
        first = self.interval * (self.warmup // self.interval + 1) + 2
        if round < first:
            return round - 1, False
        cycle, within = divmod(round - first, self.interval + 1)
        return first - 2 + cycle * self.interval + within, within == 0

    @override
    def candidates(self, state: FedCorState, context: SelectionContext) -> Ids:
        """Return every available client, up to the round after the warm-up and in rehearsals."""
        wanted = context.draw <= self.warmup + 2 or self.schedule(context.draw)[1]
        return context.available if wanted else np.zeros(0, np.int64)

    @override
    def select(self, state: FedCorState, context: SelectionContext) -> Cohort:
        epoch, rehearsal = self.schedule(context.draw)
        clients = state.clients
        changes = float(len(state.epochs))
        if epoch <= self.warmup or rehearsal or "embedding" not in clients.columns:
            ids = context.rng.choice(context.available, context.m, replace=False)
            return Cohort(ids, rehearsal=rehearsal, notes={"greedy": 0.0, "changes": changes})
        everybody = np.union1d(clients.ids, context.available)
        alpha = clients.get("alpha", everybody)
        available = np.isin(everybody, context.available, assume_unique=True)
        p = shares(clients, everybody)
        at, scores = greedy(
            self.embedding(clients, everybody),
            self.noise,
            p,
            alpha,
            available=available,
            m=context.m,
        )
        notes = {
            "greedy": 1.0,
            "score": float(scores[0]),
            "min_alpha": float(alpha.min()),
            "changes": changes,
        }
        return Cohort(everybody[at], notes=notes)

    @override
    def observe(self, state: FedCorState, draw: int, reports: Reports) -> FedCorState:
        epoch, rehearsal = self.schedule(draw)
        state = dataclasses.replace(state, clients=put_sizes(state.clients, reports))
        probed = reports.of(Outcome.PROBED)
        sent = dispatched(reports)
        if len(probed):
            state = self._measure(state, draw, probed)
        if rehearsal:
            clients = state.clients.put(state.clients.ids, {"alpha": 1.0})
        elif len(sent) and epoch > self.warmup:
            clients = state.clients.put(
                sent.ids, {"alpha": self.annealing * state.clients.get("alpha", sent.ids)}
            )
        else:
            return state
        return dataclasses.replace(state, clients=clients)

    def _measure(self, state: FedCorState, round: int, probed: Reports) -> FedCorState:
        """Return the state with these losses, and with their change since one server step (or
        rehearsal) ago if then measured."""
        epoch, rehearsal = self.schedule(round)
        loss = np.clip(probed.signal(self.measured), -LARGEST, LARGEST)
        again = rehearsal and state.measured == round
        if again or (not rehearsal and round > 1 and state.measured == round - 1):
            change = loss - state.clients.get("before", probed.ids)
            state = self._learn(
                state,
                probed.ids,
                change,
                epoch=epoch if rehearsal else epoch - 1,
                train=round > self.warmup + 1,
            )
        if again:
            return state
        clients = state.clients.put(state.clients.ids, {"before": np.nan}, keep_nan=True)
        return dataclasses.replace(
            state, clients=clients.put(probed.ids, {"before": loss}), measured=round
        )

    def _learn(
        self, state: FedCorState, ids: Ids, change: Floats, epoch: int, train: bool
    ) -> FedCorState:
        """Return the state with one more change, without too old ones, and with the Gaussian
        trained on them if ``train``."""
        keep = state.epochs + self.history >= epoch
        clients = state.clients.grow(ids)
        old = clients.get("changes", clients.ids).reshape(len(clients), -1)[:, : len(keep)][:, keep]
        new = np.full(len(clients), np.nan)
        new[np.searchsorted(clients.ids, ids)] = change
        changes = np.column_stack([old, new])
        epochs = np.append(state.epochs[keep], epoch)
        if train:
            seen = ~np.isnan(changes).all(axis=1)
            first = "embedding" not in clients.columns
            start = self.embedding(clients, clients.ids)[seen]
            weights = self.discount ** (epoch - epochs).astype(np.float64)
            steps = self.first_iterations if first else self.iterations
            embedding = fit(
                start,
                changes=changes[seen],
                weights=weights,
                noise=self.noise,
                rate=self.rate,
                iterations=steps,
            )
            clients = clients.put(clients.ids[seen], {"embedding": embedding})
        clients = dataclasses.replace(clients, columns={**clients.columns, "changes": changes})
        return dataclasses.replace(state, clients=clients, epochs=epochs)

    def embedding(self, clients: ClientTable, ids: Ids) -> Floats:
        """Return these clients' rows of X^T ``[n, d]``: trained, or drawn from
        ``embedding_seed``."""
        drawn = Key(self.embedding_seed).fold("fedcor").normal(ids, self.dimension) / np.sqrt(
            self.dimension
        )
        trained = clients.get("embedding", ids).reshape(len(ids), -1)
        return np.where(np.isnan(trained), drawn, trained)


def greedy(
    embedding: Floats, noise: float, p: Floats, alpha: Floats, available: Bools, m: int
) -> tuple[Ints, Floats]:
    """Return the positions picked, in order, and the score of each when it was picked, ``[m]``.

    Parameters
    ----------
    embedding: X^T ``[K, d]``.
    noise: with it Sigma = X^T X + noise^2 I.
    p, alpha: ``[K]``.
    available: which clients are candidates, ``[K]``.
    m: number of picks, at most the number of candidates.
    """
    square = noise**2
    within = np.eye(embedding.shape[1])  # C: the embedding's covariance, given the picks
    own = np.einsum("kd,kd->k", embedding, embedding) + square  # Sigma_kk
    # Sigma p; rows of picked clients are not updated
    pull = embedding @ (p @ embedding) + square * p
    blocked = np.where(available, 0.0, -np.inf)
    at = np.empty(m, np.int64)
    scores = np.empty(m)
    for i in range(m):
        score = alpha * pull / np.sqrt(np.maximum(own, square)) + blocked
        k = at[i] = int(np.argmax(rounded(score)))
        scores[i], blocked[k] = score[k], -np.inf
        along = within @ embedding[k]
        pivot = float(embedding[k] @ along) + square
        column = embedding @ along  # Sigma_:k of the others
        pull -= column * (pull[k] / pivot)
        own -= column * column / pivot
        within -= np.outer(along, along) / pivot
    return at, scores


def gaussians(residuals: Floats, weights: Floats) -> list[Gaussian]:
    """Group the residuals ``[K, n]`` of n rounds by the set of clients measured: an entry that is
    NaN was not."""
    sets, of = np.unique(~np.isnan(residuals.T), axis=0, return_inverse=True)
    groups = [
        (slice(None) if rows.all() else np.flatnonzero(rows), of == i)
        for i, rows in enumerate(sets)
        if rows.any()
    ]
    return [Gaussian(rows, residuals[:, which][rows], weights[which]) for rows, which in groups]


def negative_log_likelihood(
    embedding: Floats, parts: list[Gaussian], noise: float
) -> tuple[float, Floats]:
    """Return ``-sum_e w_e log N(r_e; 0, X^T X + noise^2 I)`` and its gradient in X^T, ``[K, d]``;
    O(K d^2) for each part."""
    square = noise**2
    value = 0.0
    slope = np.zeros_like(embedding)
    for rows, r, w in parts:
        x = embedding[rows]
        inverse = np.linalg.inv(x.T @ x + square * np.eye(x.shape[1]))  # of A
        along = x.T @ r  # [d, n]
        solved = inverse @ along  # X Sigma^-1 r
        logdet = (len(x) - x.shape[1]) * np.log(square) - np.linalg.slogdet(inverse)[1]
        # r^T Sigma^-1 r
        fits = (np.einsum("kn,kn->n", r, r) - np.einsum("dn,dn->n", along, solved)) / square
        value += 0.5 * float(w.sum() * (logdet + len(x) * np.log(2.0 * np.pi)) + w @ fits)
        pulled = w[:, None] * solved.T / square
        # Sigma^-1 (I - sum w r r^T Sigma^-1) X^T, in products of [K, d] and [K, n] only
        slope[rows] += x @ (w.sum() * inverse + solved @ pulled) - r @ pulled
    return value, slope


def fit(
    embedding: Floats, changes: Floats, weights: Floats, noise: float, rate: float, iterations: int
) -> Floats:
    """Return X^T after so many steps of Adam (0.9, 0.999, 1e-8) on the likelihood of the changes
    around their weighted mean.

    Parameters
    ----------
    embedding: ``[K, d]``.
    changes: ``[K, n]``, every client with at least one number.
    weights: ``[n]``.
    """
    parts = gaussians(changes - discounted_mean(changes, weights)[:, None], weights)
    # Adam by hand, for selectors do without torch. The caller's embedding stays as it is.
    x = embedding.copy()
    first = np.zeros_like(embedding)
    second = np.zeros_like(embedding)
    for i in range(1, iterations + 1):
        slope = negative_log_likelihood(x, parts, noise)[1]
        first += 0.1 * (slope - first)
        second += 0.001 * (slope * slope - second)
        x -= rate / (1.0 - 0.9**i) * first / (np.sqrt(second / (1.0 - 0.999**i)) + 1e-8)
    return x


def discounted_mean(changes: Floats, weights: Floats) -> Floats:
    """Return mu ``[K]``: each client's weighted mean of its known changes ``[K, n]``."""
    present = ~np.isnan(changes)
    return np.asarray(
        np.where(present, changes, 0.0)
        @ weights
        # who has no known change gets 0 / tiny = 0; 0 / 0 is NaN
        / np.maximum(present @ weights, np.finfo(np.float64).tiny)
    )
