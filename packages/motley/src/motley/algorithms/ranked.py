"""Local training of low-rank adapters, of which clients of less capacity hold fewer ranks.

A client that holds the share r of the ranks has the first ceil(r R) of the R ranks of every
adapter: these rows of A and columns of B, which it receives, trains and sends; all other trainable
parameters are whole. How much it holds is said by the world's ``capacity``, whose shares of a
width are shares of the ranks here. The constant before B A is that of the whole adapter for every
client, so that its ranks mean the same everywhere.

    x_c <- x_c + lr (sum over clients k that hold c of a_k delta_kc) / (sum over the same of a_k)

A rank that nobody in a round holds stays. What a client lacks is not billed: positions are free,
for both sides know how much it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Part,
    Parts,
    Server,
    Slicing,
    Tensors,
)
from motley.algorithms.sliced import SlicedTraining
from motley.core.adapters import Adapter
from motley.core.layout import Layout
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class RankedTraining(SlicedTraining):
    """Plain local training of the ranks that a client holds."""

    @property
    @override
    def slicing(self) -> Slicing:
        return Slicing(ranks=True)

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        parts, next_state = LocalRule.finish(self, after, context)
        return {**parts, "delta": Part(parts["delta"].value, "covered")}, next_state

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.server, FactorServer) and isinstance(algorithm.aggregator, Gather):
            # it keeps every upload beside the mean
            algorithm = algorithm.replace(aggregator=Mean(), server=Average())
        return super().refuses(algorithm, solver, weights)


@dataclass(frozen=True)
class FactorServer(Average):
    """A server step that looks at the factors of every single client; ``layout`` is set by
    :meth:`bound`."""

    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return type(self)(self.lr, layout)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.local, RankedTraining):
            name = type(algorithm.local).__name__
            return f"it looks at the factors of adapters, and clients train by {name}"
        return needs_gather("the factors of every client", algorithm)


def stacked(x: Tensor, total: Tensors, adapter: Adapter) -> tuple[Tensor, Tensor]:
    """Return the factors of all clients of a round after training, side by side, float64: ``B``
    ``[outputs, R]`` and ``A`` ``[R, inputs]`` of the ranks that they hold, R in all, B with the
    clients' shares of the weight. So ``B @ A`` is the weighted mean of the clients' products.

    Parameters
    ----------
    x: the model that they received.
    total: of :class:`Gather`.
    adapter: whose factors.
    """
    a, b = adapter
    share = total["each.weight"] / total["each.weight"].sum()
    left, right = [], []
    for k, delta in enumerate(total["each.delta"]):
        after = x.double() + delta.double()
        held = torch.ones(adapter.rank, dtype=torch.bool)
        if "held.delta" in total:
            held = total["held.delta"][k][a.slice].view(adapter.rank, -1)[:, 0]
        left.append(share[k] * after[b.slice].view(-1, adapter.rank)[:, held])
        right.append(after[a.slice].view(adapter.rank, -1)[held])
    return torch.cat(left, 1), torch.cat(right)
