"""CA2FL: an asynchronous server remembers every client's last update, and adds to the mean of all
of them what those that arrived have changed.

Wang, Cao, Wu, Chen, Chen: *Tackling the Data Heterogeneity in Asynchronous Federated Learning with
Cached Update Calibration*, ICLR 2024 (openreview.net/forum?id=4aywmeb97I), Algorithm 2.

    an upload delta_k arrives:   d <- d + (delta_k - h_k);   h_k <- delta_k
    when M have arrived:         v = h + d / M;   x <- x + server_lr v
                                 h <- (1/K) sum of all h_k;   d <- 0

Symbols: K all clients, h_k [D] the update of client k that arrived last, 0 before its first, h
their mean at the step before. It is the step of FedVARP on updates that are stale, and not divided
by the learning rate; a buffered server is what it is made for (``synchrony = "buffered"``), and it
goes with each. With everybody in each round it is uniform averaging.

State: at the server the updates of the clients that were heard, 4 D bytes each, and their mean.
Nothing at the clients. Traffic as averaging.

Deviations and readings
-----------------------
* As in the code that others published, no code of the authors being known here, the second upload
  of a client in one buffer is set against its first.
* The method weighs nothing by staleness: write ``synchrony.staleness = "constant"``. Else an update
  is remembered as it was scaled.
* READING ``weights = "examples"`` weighs d and h by n_k, as in FedVARP. Other weightings are
  refused.
* Published for vision: buffers of 10, server_lr .01 to 1.

Worked
------
K = 2, F_k = (w - m_k)^2 / 2, m = (1, 3), one step of lr = .1 from x = 0, one client a round: 0, 1,
0. delta_0 = .1: v = .1, x = .1, h = .05. delta_1 = .29: v = .05 + .29, x = .44, h = .195. delta_0 =
.056: v = .195 + .056 - .1, x = .591.

>>> from motley.algorithms.ca2fl import CA2FL
>>> CA2FL()
CA2FL(server_lr=1.0)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.mifa import Memories
from motley.algorithms.parts import Algorithm, Method, ServerContext, ServerState, Tensors
from motley.algorithms.weights import refuses_but_both
from motley.core.paper import Paper, cite


@dataclass(frozen=True)
class CachedUpdates(Memories):
    """FedVARP's server step on the updates themselves."""

    change: Literal["own", "everybody"] = "everybody"

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("the mean of everybody's last updates", weights):
            return reason
        return needs_gather("the memory of every client's last update", algorithm)

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        rate = torch.ones(1, dtype=torch.float64)
        return super().update(state, {**total, "rate": rate}, context)


@dataclass(frozen=True)
class CA2FL(Method):
    """The mean of all clients' last updates, moved by what the arrived ones have changed: option
    ``server_lr`` (1.0)."""

    paper: ClassVar[Paper] = cite("wang2024ca2fl")
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        CachedUpdates(self.server_lr)  # checks the option

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            aggregator=Gather(), server=CachedUpdates(self.server_lr), weights="uniform"
        )
