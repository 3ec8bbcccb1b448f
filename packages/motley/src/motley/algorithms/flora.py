"""FLoRA: the server stacks the clients' low-rank factors, everybody merges the product of the stack
into the frozen weights, and the next round begins with fresh adapters.

Wang, Shen, He, Sun, Wang, Lyu, Li: *FLoRA: Federated Fine-Tuning Large Language Models with
Heterogeneous Low-Rank Adaptations*, NeurIPS 2024 (arXiv:2409.05976).

    client k  W = W_t + s B_k A_k, W_t frozen; A_k drawn anew, B_k from zeros; trains and sends
              both, of its rank r_k
    server    A = (p_1 A_1; ...; p_K A_K),   B = (B_1, ..., B_K),   so   B A = sum_k p_k B_k A_k
    all       W_{t+1} = W_t + s B A

Symbols: p_k = n_k / sum n. Stacking is exact for any ranks, and what was learned may have any rank
after some rounds. State: how many stacks a client has merged. Traffic: up a client's factors; down
the stacks of the rounds since a client last took part, of a layer never more than the product,
``outputs x inputs`` numbers. With M clients of one rank that is M times the adapters for each
round.

Deviations and readings
-----------------------
* INTERPRETATION-D who was absent merges what it missed when it comes back; in the paper everybody
  gets every stack. Fresh adapters are not billed: server and clients draw them from the run's
  seed and the number of merged stacks. They are the same for all clients of a round, of whom one
  of less ``capacity`` holds the first ranks. Who came late is sent the same stacks again.
* The product of a stack is formed, beside the frozen weights and not in them: modules of one
  process share those. Operations and memory are counted without it.
* A round in which nothing was aggregated merges nothing, and its adapters stay.
* Other trainable parameters and BatchNorm statistics are averaged.

Worked
------
R = 1, p = (3/4, 1/4), B_1 = (1, 0), A_1 = (1, 0), B_2 = (0, 1), A_2 = (0, 1): the stack has two
ranks, its product is diag(.75, .25), and 2 (2 + 2) = 8 numbers would travel, so the product's 4 do.

>>> from motley.algorithms.flora import FLoRA
>>> FLoRA()
FLoRA()
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Parts,
    Server,
    ServerContext,
    ServerState,
    Slicing,
    Tensors,
    step_model,
)
from motley.algorithms.ranked import FactorServer, RankedTraining, stacked
from motley.core.adapters import adapters_of, merged_of
from motley.core.errors import ModelError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

RANKS = "stacked_ranks"
"""The name of the ranks of every stack, int64 ``[stacks, adapters]``, in state and download."""


def averaged_buffers(layout: Layout) -> Tensor:
    """Return which floating buffers are averaged, bool ``[Bf]``: all but the merged products."""
    averaged = torch.ones(sum(entry.size for entry in layout.buffers), dtype=torch.bool)
    for product in merged_of(layout):
        averaged[product.slice] = False
    return averaged


@dataclass(frozen=True)
class StackedTraining(RankedTraining):
    """Plain local training of fresh adapters beside the products merged so far; ``layout`` is set
    by :meth:`bound`."""

    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @property
    @override
    def slicing(self) -> Slicing:
        return Slicing(ranks=True, merges=True)

    @override
    def bound(self, layout: Layout) -> LocalRule:
        return dataclasses.replace(self, layout=layout)

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {"merged": torch.zeros(1, dtype=torch.int64)}

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), RANKS: server.extra[RANKS]}

    @override
    def values_down(self, download: Tensors, client_state: ClientState | None) -> int:
        layout = self.layout
        merged = 0 if client_state is None else int(client_state["merged"])
        missed = download[RANKS][merged:].sum(0).tolist()
        values = layout.size + int(averaged_buffers(layout).sum()) + 2 * len(download["counters"])
        for ranks, adapter, product in zip(
            missed, adapters_of(layout), merged_of(layout), strict=True
        ):
            both = adapter.a.size + adapter.b.size
            values += min(ranks * both // adapter.rank, product.size) - both
        return values

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        parts, _ = super().finish(after, context)
        buffers = parts["buffers"]
        averaged = averaged_buffers(context.layout).to(buffers.value.device)
        stacks = torch.tensor([len(context.download[RANKS])])
        return {**parts, "buffers": buffers._replace(value=buffers.value[averaged])}, {
            "merged": stacks
        }


@dataclass(frozen=True)
class Stacking(FactorServer):
    """The server step of FLoRA; ``draw`` is set by :meth:`bound`."""

    draw: Callable[[int], ModelState] | None = None

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return Stacking(self.lr, layout, draw)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        if any(model.x[adapter.b.slice].any() for adapter in adapters_of(self.layout)):
            raise ModelError(
                "flora begins with adapters that change nothing, and these do: a client of fewer "
                "ranks would not hold all of them; merge them into the model that you begin with"
            )
        adapters = len(merged_of(self.layout))
        return ServerState(model, {RANKS: torch.zeros(0, adapters, dtype=torch.int64)})

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        x = state.model.x.double()
        stacks = len(state.extra[RANKS]) + 1
        fresh = x if self.draw is None else self.draw(stacks).x.to(x)
        step = total["delta"].clone()
        buffers = state.model.buffers.to(torch.float64, copy=True)
        if "buffers" in total:
            buffers[averaged_buffers(self.layout)] = total["buffers"]
        ranks = []
        for adapter, product in zip(adapters_of(self.layout), merged_of(self.layout), strict=True):
            b, a = stacked(x, total, adapter)
            buffers[product.slice] += (b @ a).reshape(-1)
            step[adapter.a.slice] = (fresh - x)[adapter.a.slice]
            step[adapter.b.slice] = -x[adapter.b.slice]
            ranks.append(len(a))
        all_ranks = torch.cat([state.extra[RANKS], torch.tensor([ranks])])
        return ServerState(
            step_model(state, step, {**total, "buffers": buffers}), {RANKS: all_ranks}
        )


@dataclass(frozen=True)
class FLoRA(Method):
    """Stacking of low-rank factors, whose product is merged into the frozen weights."""

    paper: ClassVar[Paper] = cite("wang2024flora")
    adapters: ClassVar[bool] = True

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=StackedTraining(), aggregator=Gather(), server=Stacking())
