"""Neural bandit: a small network predicts each client's reward, and its gradients measure how
uncertain the prediction is.

Cao, Pan, Zhu, Liu: *Birds of a Feather Help: Context-aware Client Selection for Federated
Learning*, FL-AAAI workshop 2022; base learner NeuralUCB: Zhou, Li, Gu, *Neural Contextual Bandits
with UCB-based Exploration*, ICML 2020 (arXiv:1911.04462).

    f(x) = W2 relu(W1 x + b1) + b2,   h hidden units, P = (d + 2) h + 1 parameters
    g_k = gradient of f(x_k) in all parameters;   sigma_k = sqrt( sum_j lambda nu g_kj^2 / U_j )
    score_k = f(x_k) + sigma_k;   cohort: the m largest
    after the round, for the participants: U <- U + g_k * g_k, starting from lambda;
    then train f on all (x, y) so far: squared error, steps of one pair, shuffled passes, rate 0.01,
    weight decay lambda, until 1000 steps or a pass with a mean squared error of at most 0.001

x and y are FLASH's client features and reward (:mod:`motley.selectors.common.client_features`),
measured and learnt in FLASH's order: the bandits differ in the learner alone.

State: the columns of the features, 72 bytes per client; ``weights`` and ``u`` [P]; the newest
``buffer`` pairs, ``x`` [n, d] and ``y`` [n]; number, mean and squared deviations of all features
and of all rewards so far. Needs and probe cost are FLASH's: ``robust_loss`` and ``val_loss`` of
everybody available from round 2 on, or of the reporters.
``Cohort.notes``: ``predicted`` and ``sigma``, averaged over the chosen, of whom ``client_notes``
has both.

Deviations and readings
-----------------------
* INTERPRETATION-D features, reward and grouping of Cao et al. are not confirmed; these are FLASH's,
  and nothing is grouped.
* NeuralUCB's released code is followed in U and sigma. All reporters are added to U when their
  (x, y) comes in, before the training.
* INTERPRETATION-D features are standardized by the mean and deviation of all so far, an absent one
  is then 0; rewards are divided by the deviation of all so far. They are cut off at 3 and at 10,
  because steps of a fixed rate diverge on outliers; if training diverges nevertheless the network
  stays as it was.
* INTERPRETATION-D weights start uniform within 1 / sqrt(inputs of the layer). They and the order of
  training follow ``seed``, not the selector's seed, which decides the random first round and ties.
* Round 1 takes m clients at random; ``first_round = "all"`` gives it FLASH's first round.

Worked
------
Linear f with lambda = nu = 1, U = (1, 1), x = (3, 4): sigma = 5, after one update U = (10, 17) and
sigma = 1.356900. One hidden unit w1 = 2, w2 = .5, x = 1.5: f = 1.5, g = (.75, 3), sigma = 3.092329
for any lambda.

>>> from motley.selectors import Selector
>>> selector = Selector(NeuralBandit(hidden=10), seed=0)
>>> len(selector.select(1, range(100), m=10).ids)
10
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.paper import Paper, cite
from motley.core.records import Cohort, Reports, SelectionContext
from motley.core.table import ClientTable
from motley.selectors.common.client_features import ContextualBandit, FirstRound
from motley.selectors.common.sampling import top_m

RATE = 0.01
STEPS = 1000
GOOD_ENOUGH = 1e-3
FARTHEST = 3.0
"""Standardized features beyond plus or minus it count as it."""
HIGHEST = 10.0
"""Rewards of more standard deviations count as it."""
DIVERGED = 1e6
"""An error of the network that ends its training: the parameters stay as they were before."""
_BLOCK = 1 << 11  # rows whose gradients are held at a time


@dataclass(frozen=True)
class NeuralBanditState:
    """See the module's docstring. ``*_moments``: number, mean and sum of squared deviations, one
    column per quantity."""

    clients: ClientTable
    weights: Floats
    u: Floats
    x: Floats
    y: Floats = field(default_factory=lambda: np.zeros(0))
    x_moments: Floats = field(default_factory=lambda: np.zeros((3, 1)))
    y_moments: Floats = field(default_factory=lambda: np.zeros((3, 1)))


@dataclass(frozen=True)
class NeuralBandit(ContextualBandit[NeuralBanditState]):
    """Take the m largest sums of predicted reward and gradient bonus.

    Parameters
    ----------
    hidden: units of the network.
    lam: start of U and weight decay, positive.
    nu: strength of the bonus; 0 is greedy.
    buffer: number of newest pairs that the network is trained on.
    seed: of the network's initial weights and of the order in which it is trained.
    """

    hidden: int = 100
    lam: float = 0.001
    nu: float = 1.0
    buffer: int = 5000
    seed: int = 0
    first_round: FirstRound = "cohort"

    absent: ClassVar[float] = np.nan
    paper: ClassVar[Paper] = cite("zhou2020neural")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden < 1 or self.buffer < 1:
            raise ConfigError(
                f"got hidden = {self.hidden}, buffer = {self.buffer}; expected at least 1 of each"
            )
        if not 0 < self.lam < math.inf or not 0 <= self.nu < math.inf:
            raise ConfigError(
                f"got lam = {self.lam}, nu = {self.nu}; expected lam above 0 and nu of at least 0"
            )

    @override
    def init(self) -> NeuralBanditState:
        d = len(self.feature_names)
        h = self.hidden
        size = (d + 2) * h + 1
        scale = np.repeat([1 / math.sqrt(d), 1 / math.sqrt(h)], [(d + 1) * h, h + 1])
        weights = scale * (
            2.0 * Key(self.seed).fold("network").uniform(np.arange(size))[:, 0] - 1.0
        )
        clients = ClientTable(self.feature_columns())
        return NeuralBanditState(
            clients, weights, np.full(size, self.lam), np.zeros((0, d)), x_moments=np.zeros((3, d))
        )

    @override
    def select(self, state: NeuralBanditState, context: SelectionContext) -> Cohort:
        if context.draw == 1:
            return Cohort(context.rng.choice(context.available, context.m, replace=False))
        x = standardised(self.features(state.clients, context.available), state.x_moments)
        predicted = np.empty(len(x))
        sigma = np.empty(len(x))
        # In blocks, for gradients of all pairs at once are [n, P].
        for start in range(0, len(x), _BLOCK):
            rows = slice(start, start + _BLOCK)
            predicted[rows] = forward(state.weights, x[rows])
            sigma[rows] = bonus(gradients(state.weights, x[rows]), state.u, self.lam, self.nu)
        at = top_m(predicted + sigma, context.m, context.rng, self.ties)
        each = {"predicted": predicted[at], "sigma": sigma[at]}
        means = {name: float(values.mean()) for name, values in each.items()}
        return Cohort(context.available[at], notes=means, client_notes=each)

    @override
    def observe(self, state: NeuralBanditState, draw: int, reports: Reports) -> NeuralBanditState:
        clients, pairs = self.update_features(state.clients, draw, reports)
        moments = add_moments(state.x_moments, self.features(clients, self.measured(reports).ids))
        state = replace(state, clients=clients, x_moments=moments)
        return self.learn(state, draw, pairs.x, pairs.rewards) if len(pairs.ids) else state

    def learn(
        self, state: NeuralBanditState, round: int, x: Floats, y: Floats
    ) -> NeuralBanditState:
        """Return the state with new training pairs, ``[n, d]`` and ``[n]``, in U, in the buffer and
        learnt by the network."""
        rng = Key(self.seed).fold("train", round).numpy()
        y_moments = add_moments(state.y_moments, y[:, None])
        # States are values: a checkpoint, or a probe that is thrown away, may still hold the old.
        u = state.u.copy()
        for start in range(0, len(x), _BLOCK):
            g = gradients(state.weights, standardised(x[start : start + _BLOCK], state.x_moments))
            u += np.einsum("np,np->p", g, g)
        if len(x) > self.buffer:
            sample = rng.permutation(len(x))[: self.buffer]
            x = x[sample]
            y = y[sample]
        x = np.concatenate([state.x, x])[-self.buffer :]
        y = np.concatenate([state.y, y])[-self.buffer :]
        target = np.minimum(y / deviation(y_moments), HIGHEST)
        weights = train(
            state.weights, x=standardised(x, state.x_moments), y=target, decay=self.lam, rng=rng
        )
        return replace(state, weights=weights, u=u, x=x, y=y, y_moments=y_moments)


def _layers(weights: Floats, d: int) -> tuple[Floats, Floats, Floats, Floats]:
    """Return W1 ``[h, d]``, b1 ``[h]``, W2 ``[h]``, b2 ``[1]``: views of the parameters ``[P]``, in
    this order."""
    h = (len(weights) - 1) // (d + 2)
    return (
        weights[: d * h].reshape(h, d),
        weights[d * h : (d + 1) * h],
        weights[(d + 1) * h : -1],
        weights[-1:],
    )


def forward(weights: Floats, x: Floats) -> Floats:
    """Return the network's output for every row, ``[n, d]`` to ``[n]``."""
    w1, b1, w2, b2 = _layers(weights, x.shape[1])
    return np.asarray(np.maximum(x @ w1.T + b1, 0.0) @ w2 + b2)


def gradients(weights: Floats, x: Floats, a: Floats | None = None) -> Floats:
    """Return the gradient of each row's output in all parameters, ``[n, d]`` to ``[n, P]``.

    With ``a = W1 x + b1``, ``[n, h]``, computed if it is not given: df/dW2 = relu(a), df/db2 = 1,
    df/db1 = W2 [a > 0], df/dW1 = (df/db1) x^T.
    """
    n, d = x.shape
    w1, b1, w2, _ = _layers(weights, d)
    h = len(b1)
    a = x @ w1.T + b1 if a is None else a
    out = np.empty((n, len(weights)))
    bias = np.multiply(w2, a > 0, out=out[:, d * h : (d + 1) * h])
    np.multiply(bias[:, :, None], x[:, None, :], out=out[:, : d * h].reshape(n, h, d))
    np.maximum(a, 0.0, out=out[:, (d + 1) * h : -1])
    out[:, -1] = 1.0
    return out


def bonus(g: Floats, u: Floats, lam: float, nu: float) -> Floats:
    """Return sigma of every row of gradients, ``[n, P]`` to ``[n]``."""
    return np.asarray(np.sqrt((g * g) @ (lam * nu / u)))


def train(weights: Floats, x: Floats, y: Floats, decay: float, rng: np.random.Generator) -> Floats:
    """Return the parameters ``[P]`` after gradient descent on ``(f(x) - y)^2``, one row a step;
    unchanged if it diverged."""
    out = weights.copy()
    w1, b1, w2, b2 = _layers(out, x.shape[1])
    steps = 0
    while True:
        total = 0.0
        for i in rng.permutation(len(x)):
            row = x[i : i + 1]
            a = row @ w1.T + b1  # that of forward and of gradients, once
            error = float((np.maximum(a, 0.0) @ w2 + b2)[0] - y[i])
            total += error * error
            out -= RATE * (2.0 * error * gradients(out, row, a)[0] + decay * out)
            steps += 1
            if steps == STEPS or not abs(error) < DIVERGED:
                return out if abs(error) < DIVERGED else weights
        if total / len(x) <= GOOD_ENOUGH:
            return out


def add_moments(moments: Floats, values: Floats) -> Floats:
    """Return number, mean and sum of squared deviations, ``[3, d]``, after the rows of ``values``
    ``[n, d]``; NaN is left out."""
    if not len(values):
        return moments
    present = ~np.isnan(values)
    number, mean, squares = moments
    here = present.sum(axis=0)
    new_mean = np.where(present, values, 0.0).sum(axis=0) / np.maximum(here, 1)
    new_squares = (np.where(present, values - new_mean, 0.0) ** 2).sum(axis=0)
    total = number + here
    gap = np.where(here > 0, new_mean - mean, 0.0)
    shift = gap * here / np.maximum(total, 1)
    # by deviations, as Chan et al. join two samples: sums of squares would cancel
    squares = squares + new_squares + shift * gap * number
    return np.stack([total, mean + shift, squares])


def deviation(moments: Floats) -> Floats:
    """Return standard deviations, ``[d]``; 1 where all values are equal."""
    out = np.sqrt(moments[2] / np.maximum(moments[0], 1.0))
    return np.where(out > 0, out, 1.0)


def standardised(x: Floats, moments: Floats) -> Floats:
    """Return standardized features within plus or minus :data:`FARTHEST`, 0 where absent."""
    out = (x - moments[1]) / deviation(moments)
    np.clip(out, -FARTHEST, FARTHEST, out=out)
    return np.asarray(np.nan_to_num(out, copy=False))
