"""FedBN: every client keeps its own BatchNorm layers, for clients whose features differ.

Li, Jiang, Zhang, Kamp, Dou: *FedBN: Federated Learning on Non-IID Features via Local Batch Normalization*, ICLR 2021
(arXiv:2102.07623). Reference: docs/methods/algorithms.md#fedbn.

    server    holds, averages and sends everything but BatchNorm
    client k  starts from the received tensors and its own BatchNorm; trains all of it; sends all but BatchNorm; keeps BatchNorm

A BatchNorm layer holds scale and offset, running mean and variance, and the counter of batches. Layers are found by their type, so
a ResNet's ``shortcut.1`` is among them; LayerNorm and GroupNorm are not (they hold no statistics of data).

State: the BatchNorm of each client that took part. Traffic: all but BatchNorm, both ways; compressors get the shorter vector.
Clients are probed, trained and evaluated with their own BatchNorm; there is no common model, and no result for one.

Deviations and readings
-----------------------
* A client that never took part has the initial model's BatchNorm (INTERPRETATION-D; a mean of all clients' would require to upload
  them). The model written at the end of a run is that of such a client.
* Any weights: the default ``examples``; the authors' code averages uniformly.
* A model without BatchNorm is trained by plain averaging, bit for bit.
* Server rules that work with whole models (FedDF, FedBiO, RHFL) are refused.

>>> from motley.algorithms.fedbn import FedBN
>>> FedBN()
FedBN()
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.base import Algorithm, ClientState, Correction, JobContext, Method, Part, Parts, Tensors
from motley.algorithms.local import Solver
from motley.core.layout import Entry, Layout
from motley.core.paper import Paper, cite
from motley.tasks.base import ModelState

__all__ = ["FedBN", "PersonalBatchNorm"]

FIELDS = ("x", "buffers", "counters")


@lru_cache(maxsize=8)
def _own(layout: Layout) -> dict[str, Tensor]:
    """Return bool masks of the BatchNorm entries in a model's three vectors."""
    return {
        name: _mask(entries) for name, entries in zip(FIELDS, (layout.entries, layout.buffers, layout.counters), strict=True)
    }


def _mask(entries: Sequence[Entry]) -> Tensor:
    sizes = torch.tensor([entry.size for entry in entries], dtype=torch.int64)
    return torch.tensor([entry.batch_norm for entry in entries], dtype=torch.bool).repeat_interleave(sizes)


@dataclass(frozen=True)
class PersonalBatchNorm(Correction):
    """Plain local training in which every client keeps its own BatchNorm; ``layout`` is set by :meth:`bound`."""

    shared: ClassVar[bool] = False
    personal_start: ClassVar[bool] = True
    sends_whole_model: ClassVar[bool] = False
    keeps_state: ClassVar[bool] = True
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout) -> Correction:
        return PersonalBatchNorm(layout) if any(entry.batch_norm for entry in (*layout, *layout.buffers)) else Correction()

    @override
    def sent(self, model: ModelState) -> ModelState:
        return ModelState(*(value[~own] for value, own in self._with_masks(model)))

    @override
    def initial_state(self, state: ModelState) -> ClientState:
        return {name: value[own] for name, (value, own) in zip(FIELDS, self._with_masks(state), strict=True)}

    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """Return the received tensors with the client's own BatchNorm inserted; zeros without a client state."""
        whole = {}
        for name, own in _own(self.layout).items():
            received = download[name]
            places = own.to(received.device)
            whole[name] = received.new_zeros(len(own))
            whole[name][~places] = received
            if client_state is not None:
                whole[name][places] = client_state[name]
        return ModelState(**whole)

    def finish(self, after: ModelState, context: JobContext) -> tuple[Mapping[str, Part], ClientState]:
        """Return all but BatchNorm as the upload, and BatchNorm as the client's next state."""
        before = ModelState(context.x, after.buffers, after.counters)
        now, then = self.sent(after), self.sent(before)
        parts = {
            "delta": Part(now.x - then.x, "mean"),
            "buffers": Part(now.buffers, "convex"),
            "counters": Part(now.counters, "max"),
        }
        return parts, self.initial_state(after)

    def update(self, parts: Parts) -> Tensor:
        """Return the update of the whole model, 0 at BatchNorm's entries."""
        sent = ~_own(self.layout)["x"]
        whole = parts["delta"].value.new_zeros(len(sent))
        whole[sent.to(whole.device)] = parts["delta"].value
        return whole

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        server = algorithm.server
        if server.needs or server.asks_clients:
            return f"FedBN's clients keep their BatchNorm, and the server rule {type(server).__name__} works with whole models"
        return None

    def _with_masks(self, model: ModelState) -> list[tuple[Tensor, Tensor]]:
        """Return the model's three vectors, each with the mask of BatchNorm's entries in it."""
        values = (model.x, model.buffers, model.counters)
        return [(value, own.to(value.device)) for value, own in zip(values, _own(self.layout).values(), strict=True)]


@dataclass(frozen=True)
class FedBN(Method):
    """Averaging of everything but BatchNorm, which every client keeps for itself."""

    paper: ClassVar[Paper] = cite("li2021fedbn")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(correction=PersonalBatchNorm())
