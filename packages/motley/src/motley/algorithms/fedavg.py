"""FedAvg: average the results of several local epochs.

McMahan, Moore, Ramage, Hampson, Aguera y Arcas: *Communication-Efficient Learning of Deep Networks
from Decentralized Data*, AISTATS 2017.

    client:  w <- x;  for each batch b:  w <- w - lr * grad l(w; b);   delta_k = w - x
    server:  x <- x + lr_server * sum_k a_k delta_k

``a_k`` comes from the experiment's ``weights``: ``examples`` (n_k over the cohort's sum, the
default), ``uniform`` (1/M), ``horvitz_thompson`` (K/M p_k, unbiased under uniform sampling without
replacement; need not sum to 1), ``score``. See :mod:`motley.algorithms.weights`.

Deviations: none. ``x + sum a_k delta_k`` is formed in float64, never ``sum a_k w_k``.

Common code divides by the sum over the responders; the paper's algorithm writes n_k / n over *all*
clients. With partial participation these differ (docs/methods/index.md#weights).

Worked
------
Clients f_k = (a_k / 2)(w - m_k)^2 with tau_k steps have the fixed point sum p_k (1 - (1 - lr
a_k)^tau_k) m_k / sum p_k (1 - (1 - lr a_k)^tau_k): p = (.5, .5), a = (1, 1), m = (0, 10), tau = (2,
20), lr = .01 gives 9.014818, where the objective's minimum is 5. One full-batch step of everybody
is one step of gradient descent.

>>> from motley.algorithms.fedavg import Average
>>> Average(lr=1.0).lr
1.0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import (
    Algorithm,
    LocalRule,
    Method,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class Average(Server):
    """The plain server step: ``x <- x + lr * total``."""

    lr: float = 1.0

    def __post_init__(self) -> None:
        if not self.lr > 0:
            raise ConfigError(f"got lr = {self.lr}; expected a positive number")

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        return ServerState(step_model(state, self.lr * total["delta"], total), state.extra)


@dataclass(frozen=True)
class FedAvg(Method):
    """Federated averaging: plain local training and the weighted mean; option ``server_lr``
    (1.0)."""

    paper: ClassVar[Paper] = cite("mcmahan2017communication")
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        Average(self.server_lr)  # checks the option

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(server=Average(self.server_lr))


def plain_fedavg() -> Algorithm:
    """Return FedAvg for classification, the algorithm that other methods change."""
    return Algorithm(CrossEntropy(), LocalRule(), Mean(), Average())
