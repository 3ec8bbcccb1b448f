"""One model for each group of clients that hold the same architecture: a local rule under which the
server holds, averages and sends as many models as there are architectures.

    server    holds x = (x_0, x_1, ...), one model after the other, buffers and counters likewise
    client k  of architecture a trains x_a;  sends its change
    server    x_a <- x_a + (sum of a_k delta_k) / (sum of a_k)   over the round's clients of a

The vectors of a model lie at the places of its group in the server's; what a client sends counts
there alone. A group without clients in a round keeps its model bit for bit.

>>> import torch
>>> from torch import nn
>>> from motley.tasks.flat import layout_of
>>> layouts = [layout_of(nn.Linear(1, outputs)) for outputs in (1, 2)]
>>> none = torch.zeros(0)
>>> two = joined([ModelState(torch.arange(n), none, none) for n in (2, 4)])
>>> two.x.tolist(), group_of(two, layouts, 1).x.tolist()
([0, 1, 0, 1, 2, 3], [0, 1, 2, 3])
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.job import ClientState, JobContext, Tensors
from motley.algorithms.parts import PersonalRule
from motley.algorithms.upload import Part, Parts
from motley.core.layout import Layout
from motley.tasks.task import ModelState, of_architecture

_VECTORS = ("x", "buffers", "counters")


def _places(layouts: Sequence[Layout], number: int) -> dict[str, slice]:
    """Return where the vectors of a group's model lie in the server's, by the vector's name."""
    places = {}
    for name in _VECTORS:
        sizes = [
            sum(e.size for e in (layout.entries if name == "x" else getattr(layout, name)))
            for layout in layouts
        ]
        places[name] = slice(sum(sizes[:number]), sum(sizes[: number + 1]))
    return places


def group_of(model: ModelState, layouts: Sequence[Layout], number: int) -> ModelState:
    """Return the model of one group, of what the server holds.

    Parameters
    ----------
    layouts: of the models of all groups.
    number: of the group.
    """
    cut = {name: getattr(model, name)[at] for name, at in _places(layouts, number).items()}
    return of_architecture(ModelState(**cut), number)


def joined(models: Sequence[ModelState]) -> ModelState:
    """Return what the server holds of these models, one of each group."""
    return ModelState(*(torch.cat([getattr(model, name) for model in models]) for name in _VECTORS))


@dataclass(frozen=True)
class GroupTraining(PersonalRule):
    """Plain local training of a group's model.

    Parameters
    ----------
    layouts: of the models of all groups.
    number: of the group.
    """

    shared: ClassVar[bool] = False
    sends_all: ClassVar[bool] = False
    unlike: ClassVar[bool] = True
    layouts: tuple[Layout, ...]
    number: int

    @property
    @override
    def groups(self) -> tuple[Layout, ...]:
        return self.layouts

    @override
    def first_held(self, models: Sequence[ModelState]) -> ModelState:
        return joined(models)

    @override
    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        received = ModelState(*(download[name] for name in _VECTORS))
        return group_of(received, self.layouts, self.number)

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        received = context.download
        changed = dataclasses.replace(after, x=after.x - context.x)
        whole: dict[str, Tensor] = {}
        held: dict[str, Tensor] = {}
        for name, at in _places(self.layouts, self.number).items():
            whole[name] = torch.zeros_like(received[name])
            held[name] = torch.zeros_like(received[name], dtype=torch.bool)
            whole[name][at] = getattr(changed, name)
            held[name][at] = True
        counters = torch.where(held["counters"], whole["counters"], received["counters"])
        return {
            "delta": Part(whole["x"], "covered", held["x"]),
            "buffers": Part(whole["buffers"], "convex", held["buffers"]),
            "counters": Part(counters, "max"),
        }, context.client_state

    @override
    def update(self, parts: Parts) -> Tensor:
        return parts["delta"].value[_places(self.layouts, self.number)["x"]]
