"""Layers that stay with the clients: a local rule under which the server holds, averages and sends
the rest of the model alone.

    server    holds x without the personal entries
    client k  starts from the received entries and its own; trains all of them;
              sends the change of the shared ones; keeps its own

A method says which entries are personal in :meth:`PersonalLayers.own_entries`; FedBN keeps
BatchNorm (:mod:`motley.algorithms.fedbn`), FedPer the head (:mod:`motley.algorithms.fedper`), and
with ``own_norms`` BatchNorm beside it. Clients are probed, trained and evaluated with their own
entries; there is no common model. A client that never took part has the initial model's; a new one
adapts its own entries and leaves the received ones.

>>> class Heads(PersonalLayers):
...     def own_entries(self, layout):
...         return [entry.name for entry in layout if entry.layer == "head"]
>>> Heads.shared, Heads.sends_all
(False, False)
"""

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Part,
    Parts,
    PersonalRule,
    Phase,
    Tensors,
)
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.tasks.task import ModelState

_VECTORS = ("x", "buffers", "counters")


def head_of(layout: Layout, layers: int) -> list[str]:
    """Return the names of a model's head: its last so many linear layers and what lies between
    them; no name for 0 layers.

    Parameters, buffers and counters that are not in the head are the base.
    """
    if layers:
        linear = list(dict.fromkeys(entry.layer for entry in layout if entry.linear))[-layers:]
    else:
        linear = []
    order = list(dict.fromkeys(entry.layer for entry in layout))
    inside = set(order[order.index(linear[0]) : order.index(linear[-1]) + 1]) if linear else set()
    return [
        entry.name
        for entry in (*layout, *layout.buffers, *layout.counters)
        if entry.layer in inside
    ]


def require_head(layout: Layout, method: str) -> None:
    """Refuse a model without a linear layer, whose last one a method reads.

    Raises
    ------
    ConfigError: it has none.
    """
    if not head_of(layout, 1):
        raise ConfigError(
            f"{method} reads the last linear layer, and this model has none; use a model that ends "
            "in one",
            "algorithm",
        )


def last_linear(layout: Layout) -> tuple[int, int]:
    """Return the outputs and inputs of a model's last linear layer."""
    outputs, inputs = [e.shape for e in layout if e.linear and len(e.shape) == 2][-1]
    return outputs, inputs


def batch_norm_of(layout: Layout) -> list[str]:
    """Return the names of the parameters, buffers and counters of a model's BatchNorm layers."""
    return [
        entry.name for entry in (*layout, *layout.buffers, *layout.counters) if entry.batch_norm
    ]


def masks(layout: Layout, names: Collection[str]) -> dict[str, Tensor]:
    """Return bool masks of the named entries in a model's three vectors, by the vector's name."""
    out = {}
    for vector, entries in zip(
        _VECTORS, (layout.entries, layout.buffers, layout.counters), strict=True
    ):
        sizes = torch.tensor([entry.size for entry in entries], dtype=torch.int64)
        out[vector] = torch.tensor(
            [entry.name in names for entry in entries], dtype=torch.bool
        ).repeat_interleave(sizes)
    return out


def check_layers(name: str, layers: int) -> None:
    """Raise ConfigError if a number of layers of the head is below 0."""
    if layers < 0:
        raise ConfigError(f"got {name} = {layers}; expected a whole number of at least 0")


@dataclass(frozen=True)
class PersonalLayers(PersonalRule):
    """Plain local training in which every client keeps some entries of the model; ``layout`` is set
    by :meth:`bound`.

    ``own_norms``: clients keep BatchNorm, too, wherever it lies in the model (FedBN)."""

    shared: ClassVar[bool] = False
    starts_own: ClassVar[bool] = True
    sends_all: ClassVar[bool] = False
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value
    own_norms: bool = False

    @abstractmethod
    def own_entries(self, layout: Layout) -> Collection[str]:
        """Return the names of the parameters, buffers and counters that stay with the clients."""

    def kept(self, layout: Layout) -> set[str]:
        """Return the names of all entries that stay with the clients, their own BatchNorm
        included."""
        return {*self.own_entries(layout), *(batch_norm_of(layout) if self.own_norms else ())}

    @override
    def bound(self, layout: Layout) -> LocalRule:
        bound = dataclasses.replace(self, layout=layout)
        names = bound.kept(layout)
        if len(names) and all(entry.name in names for entry in layout):
            reason = (
                f"under {type(self).__name__} the clients keep every parameter of this model, "
                "so nothing would be shared"
            )
            raise ConfigError(f"{reason}; use a model with more layers", "algorithm")
        return bound if len(names) else LocalRule()

    @cached_property
    def _own(self) -> dict[str, Tensor]:
        """Bool masks of the personal entries in a model's three vectors."""
        return masks(self.layout, self.kept(self.layout))

    @override
    def sent(self, model: ModelState) -> ModelState:
        return ModelState(*(value[~own] for value, own in self._with_masks(model)))

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {
            name: value[own]
            for name, (value, own) in zip(_VECTORS, self._with_masks(state), strict=True)
        }

    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """Return the received entries with the client's own inserted; zeros without a client
        state."""
        full_model = {}
        for name, own in self._own.items():
            received = download[name]
            places = own.to(received.device)
            full_model[name] = received.new_zeros(len(own))
            full_model[name][~places] = received
            if client_state is not None:
                full_model[name][places] = client_state[name]
        return ModelState(**full_model)

    @override
    def adaptation(self, context: JobContext) -> tuple[Phase, ...]:
        own = frozenset(entry.name for entry in self.layout if entry.name in self.kept(self.layout))
        return (Phase("tune", where=None if self.shared else own),)

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        """Return the shared entries as the upload, and the personal ones as the client's next
        state."""
        before = ModelState(context.x, after.buffers, after.counters)
        now = self.sent(after)
        then = self.sent(before)
        parts = {
            "delta": Part(now.x - then.x, "mean"),
            "buffers": Part(now.buffers, "convex"),
            "counters": Part(now.counters, "max"),
        }
        return parts, self.initial_state(after)

    def update(self, parts: Parts) -> Tensor:
        """Return the update of the whole model, 0 at the personal entries."""
        sent = ~self._own["x"]
        full_update = parts["delta"].value.new_zeros(len(sent))
        full_update[sent.to(full_update.device)] = parts["delta"].value
        return full_update

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        server = algorithm.server
        if server.needs or server.asks_clients:
            reason = f"under {type(self).__name__} clients keep layers of their own"
            return f"{reason}, and the server rule {type(server).__name__} works with whole models"
        return None

    def _with_masks(self, model: ModelState) -> list[tuple[Tensor, Tensor]]:
        """Return the model's three vectors, each with the mask of the personal entries in it."""
        values = (model.x, model.buffers, model.counters)
        return [
            (value, own.to(value.device))
            for value, own in zip(values, self._own.values(), strict=True)
        ]
