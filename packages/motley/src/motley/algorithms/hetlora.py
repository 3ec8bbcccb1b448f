"""HetLoRA: clients of different ranks average their factors by the size of what they learned, and
let go of ranks that they do not need.

Cho, Liu, Xu, Fahrezi, Joshi: *Heterogeneous LoRA for Federated Fine-tuning of On-Device Foundation
Models*, EMNLP 2024 (arXiv:2401.06432).

    client k  of rank r: W = W_0 + s B A, from the first r ranks of B and A (truncation); minimizes
              F_k + lam |B'| |A'|,   B', A' the ranks from q = floor(gamma r) on
    pruning   |B'| |A'| is smaller than as received: the client sends q ranks, and holds q from now
    server    B <- sum_k w_k B_k,   A <- sum_k w_k A_k,   w_k = |B_k A_k| / sum of all |B_j A_j|

Symbols: |.| the Frobenius norm; a client's factors are padded with zeros to R ranks. State: the
ranks that a client still holds. Traffic: a client's ranks of both factors, both ways. Cost: the
term's gradient, one pass over the adapters a step.

Deviations and readings
-----------------------
* READING each adapter has weights of its own; the term and its comparison are sums over the
  adapters, so that all of them are pruned together. Samples do not weigh.
* READING ranks that nobody in a round holds stay, where padding would make them zeros that no
  gradient moves. Where all products are 0, clients weigh alike.
* INTERPRETATION-D the message of the round in which a client prunes is billed with its r ranks:
  time is planned before training. From the next round on it holds q in all that is billed.
* At B' = 0, as all begin, the term has the gradient 0, and nobody prunes.
* The rules were built from descriptions of the paper, not from its text, which was not at hand:
  check them before you compare with its tables. ``lam`` is ours.
* ``gamma = 1`` prunes nothing; a pruning leaves at least one rank, where floor(gamma r) may be 0.
* Other trainable parameters and BatchNorm statistics are averaged with the run's weights;
  where there are none, ``weights`` is refused.

Worked
------
R = 2: B_1 = ((3, 0), (0, 0)), A_1 = ((1, 0), (0, 0)) of one rank, |B_1 A_1| = 3; B_2 = A_2 = I
of two, |B_2 A_2| = sqrt(2), w = (.679623, .320377). Of B = ((1, 2), (0, 0)), A = ((1, 0), (0, 3)),
gamma = .5: q = 1, |B'| |A'| = 6, its gradient 3 (1, 0) by B' and 2 (0, 1) by A'.

>>> from motley.algorithms.hetlora import HetLoRA
>>> HetLoRA()
HetLoRA(gamma=0.99, lam=0.005)
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Parts,
    Phase,
    ServerContext,
    ServerState,
    Slicing,
    Tensors,
    step_model,
)
from motley.algorithms.phases import GradientAt
from motley.algorithms.ranked import FactorServer, RankedTraining
from motley.core.adapters import Adapter, adapters_of
from motley.core.errors import ConfigError, ModelError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


def kept_ranks(rank: int, gamma: float) -> int:
    """Return how many ranks are left after a pruning, at least one."""
    return max(1, math.floor(gamma * rank + 1e-9))


def last_ranks(x: Tensor, adapter: Adapter, gamma: float) -> tuple[Tensor, Tensor]:
    """Return the ranks of a pruning, views of a model ``[D]``: columns of B and rows of A."""
    first = kept_ranks(adapter.rank, gamma)
    b = x[adapter.b.slice].view(-1, adapter.rank)
    return b[:, first:], x[adapter.a.slice].view(adapter.rank, -1)[first:]


def _slope(lam: float, partner: Tensor, size: Tensor) -> Tensor:
    """Return what a factor of this size is multiplied with in the term's gradient; 0 for a factor
    of zeros. No number is looked at, so that no step waits for its device."""
    return torch.where(size > 0, lam * partner / size, 0.0)


@dataclass(frozen=True)
class PrunedTraining(RankedTraining):
    """Local training with a term that makes the last ranks small, and prunes those that became
    smaller; ``layout`` is set by :meth:`bound`."""

    gamma: float = 0.99
    lam: float = 0.005
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @property
    @override
    def slicing(self) -> Slicing:
        return Slicing(ranks=True, prunes=self.gamma < 1)

    @override
    def bound(self, layout: Layout) -> LocalRule:
        ranks = sorted({adapter.rank for adapter in adapters_of(layout)})
        if len(ranks) > 1 and self.gamma < 1:
            raise ModelError(
                f"hetlora prunes all adapters alike, and these have {ranks} ranks; give all one "
                "rank, or write gamma = 1.0"
            )
        return dataclasses.replace(self, layout=layout)

    @override
    def ignores_weights(self) -> str | None:
        factors = sum(entry.size for pair in adapters_of(self.layout) for entry in pair)
        if self.layout.size > factors or self.layout.buffers:
            return None
        return (
            "HetLoRA weighs clients by the size of their products, and the model has nothing "
            "beside its adapters; leave weights out"
        )

    @override
    def initial_state(self, state: ModelState) -> ClientState | None:
        return {"ranks": torch.tensor([self._rank])} if self.gamma < 1 else None

    @property
    def _rank(self) -> int:
        return adapters_of(self.layout)[0].rank

    @override
    def held_share(self, client_state: ClientState | None) -> float:
        return 1.0 if client_state is None else int(client_state["ranks"]) / self._rank

    def _size(self, x: Tensor, layout: Layout) -> float:
        """Return the sum over the adapters of ``|B'| |A'|``."""
        pairs = (last_ranks(x.double(), adapter, self.gamma) for adapter in adapters_of(layout))
        return float(sum(b.norm() * a.norm() for b, a in pairs))

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        if self.gamma == 1 or not self.lam:
            return super().phases(context)
        adapters = adapters_of(context.layout)

        def direction(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
            slope = gradient(values[RECEIVED]).clone()
            for adapter in adapters:
                b, a = last_ranks(values[RECEIVED], adapter, self.gamma)
                to_b, to_a = last_ranks(slope, adapter, self.gamma)
                to_b.add_(b * _slope(self.lam, a.norm(), b.norm()))
                to_a.add_(a * _slope(self.lam, b.norm(), a.norm()))
            return slope

        return (Phase(direction=direction),)

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        parts, state = super().finish(after, context)
        layout = context.layout
        if self.gamma == 1 or self._size(after.x, layout) >= self._size(context.x, layout):
            return parts, state
        held = torch.ones_like(after.x, dtype=torch.bool)
        for adapter in adapters_of(layout):
            for ranks in last_ranks(held, adapter, self.gamma):
                ranks.zero_()
        left = torch.tensor([kept_ranks(adapters_of(layout)[0].rank, self.gamma)])
        return {**parts, "delta": parts["delta"]._replace(held=held)}, {"ranks": left}


@dataclass(frozen=True)
class SizedAverage(FactorServer):
    """The server step of HetLoRA; parameters that belong to no adapter are averaged."""

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        x = state.model.x.double()
        step = total["delta"].clone()
        deltas = total["each.delta"].double()
        held = total.get("held.delta", torch.ones_like(deltas, dtype=torch.bool))
        padded = (x + deltas) * held
        for adapter in adapters_of(self.layout):
            sizes = torch.stack([_product_size(row, adapter) for row in padded])
            weights = sizes / sizes.sum() if sizes.any() else torch.full_like(sizes, 1 / len(sizes))
            for entry in adapter:
                mean = weights @ padded[:, entry.slice]
                covered = held[:, entry.slice].any(0)
                step[entry.slice] = torch.where(covered, mean - x[entry.slice], -0.0)
        return ServerState(step_model(state, step, total))


def _product_size(x: Tensor, adapter: Adapter) -> Tensor:
    """Return the Frobenius norm of ``B A``, which is that of the product of their triangles."""
    b = torch.linalg.qr(x[adapter.b.slice].view(-1, adapter.rank)).R
    a = torch.linalg.qr(x[adapter.a.slice].view(adapter.rank, -1).mT).R
    size: Tensor = torch.linalg.matrix_norm(b @ a.mT)
    return size


@dataclass(frozen=True)
class HetLoRA(Method):
    """Averaging of factors by the size of the clients' products, with self-pruning of ranks.

    Parameters
    ----------
    gamma: share of its ranks, rounded down, that a client holds after a pruning, in (0, 1]; 1:
    nobody prunes.
    lam: weight of the term that makes the other ranks small, at least 0.
    """

    paper: ClassVar[Paper] = cite("cho2024hetlora")
    adapters: ClassVar[bool] = True
    gamma: float = 0.99
    lam: float = 0.005

    def __post_init__(self) -> None:
        if not 0 < self.gamma <= 1:
            raise ConfigError(f"got gamma = {self.gamma}; expected a share in (0, 1]")
        if not 0 <= self.lam < math.inf:
            raise ConfigError(f"got lam = {self.lam}; expected a finite number of at least 0")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = PrunedTraining(gamma=self.gamma, lam=self.lam)
        return plain.replace(local=local, aggregator=Gather(), server=SizedAverage())
