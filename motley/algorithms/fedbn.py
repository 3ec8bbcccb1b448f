"""FedBN: BatchNorm stays with the client, for clients whose features differ.

Li, Jiang, Zhang, Kamp, Dou: *FedBN: Federated Learning on Non-IID Features via Local Batch Normalization*, ICLR 2021
(arXiv:2102.07623). Reference: docs/methods/algorithms.md#fedbn.

    server    holds, averages and sends everything but BatchNorm
    client k  begins with what it received and its own BatchNorm; trains all of it; sends all but BatchNorm; keeps BatchNorm

Of a BatchNorm are: scale and offset, running mean and variance, the counter of batches. They are found by the layer's type, so that a
ResNet's ``shortcut.1`` is among them; LayerNorm and GroupNorm are not (they hold no statistics of anybody's data).

State: with each client that took part, its BatchNorm. Traffic: all but BatchNorm, both ways; compressors see the shorter vector.
Clients are measured, trained and examined with their own BatchNorm; there is no model for everybody, and no figure for one.

Deviations and readings
-----------------------
* A client that never took part has the initial model's BatchNorm (INTERPRETATION-D; the mean of all clients' would have to leave
  them). The model written at the end of a run is such a client's.
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

from motley.algorithms.base import Algorithm, ClientState, Correction, JobContext, Method, Part, Parts, Tensors
from motley.algorithms.local import Solver
from motley.core.layout import Entry, Layout
from motley.core.paper import Paper
from motley.tasks.base import ModelState

__all__ = ["FedBN", "PersonalBatchNorm"]

FIELDS = ("x", "buffers", "counters")


@lru_cache(maxsize=8)
def _own(layout: Layout) -> dict[str, Tensor]:
    """Which places of a model's three vectors are BatchNorm's, bool each."""
    return {
        name: _mask(entries) for name, entries in zip(FIELDS, (layout.entries, layout.buffers, layout.counters), strict=True)
    }


def _mask(entries: Sequence[Entry]) -> Tensor:
    sizes = torch.tensor([entry.size for entry in entries], dtype=torch.int64)
    return torch.tensor([entry.batch_norm for entry in entries], dtype=torch.bool).repeat_interleave(sizes)


@dataclass(frozen=True)
class PersonalBatchNorm(Correction):
    """Every client its own BatchNorm; ``layout`` is known once it is bound."""

    shared: ClassVar[bool] = False
    personal_start: ClassVar[bool] = True
    sends_whole_model: ClassVar[bool] = False
    keeps_state: ClassVar[bool] = True
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    def bound(self, layout: Layout) -> Correction:
        """Plain local training where there is no BatchNorm."""
        return PersonalBatchNorm(layout) if any(entry.batch_norm for entry in (*layout, *layout.buffers)) else Correction()

    def sent(self, model: ModelState) -> ModelState:
        """All but BatchNorm."""
        return ModelState(*(value[~own] for value, own in self._with_places(model)))

    def initial_state(self, state: ModelState) -> ClientState:
        """The initial model's BatchNorm."""
        return {name: value[own] for name, (value, own) in zip(FIELDS, self._with_places(state), strict=True)}

    def start(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        """What was received around the client's own BatchNorm; around zeros for nobody's."""
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
        """All but BatchNorm goes, BatchNorm stays."""
        before = ModelState(context.x, after.buffers, after.counters)
        now, then = self.sent(after), self.sent(before)
        parts = {
            "delta": Part(now.x - then.x, "mean"),
            "buffers": Part(now.buffers, "convex"),
            "counters": Part(now.counters, "max"),
        }
        return parts, self.initial_state(after)

    def update(self, parts: Parts) -> Tensor:
        """The update, 0 where BatchNorm lies."""
        sent = ~_own(self.layout)["x"]
        whole = parts["delta"].value.new_zeros(len(sent))
        whole[sent.to(whole.device)] = parts["delta"].value
        return whole

    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        """Server rules that compute with whole models."""
        server = algorithm.server
        if server.needs or server.asks_clients:
            return f"FedBN's clients keep their BatchNorm, and the server rule {type(server).__name__} works with whole models"
        return None

    def _with_places(self, model: ModelState) -> list[tuple[Tensor, Tensor]]:
        """The model's three vectors, each with BatchNorm's places in it."""
        values = (model.x, model.buffers, model.counters)
        return [(value, own.to(value.device)) for value, own in zip(values, _own(self.layout).values(), strict=True)]


@dataclass(frozen=True)
class FedBN(Method):
    """Averaging of everything but BatchNorm, which stays with each client."""

    paper: ClassVar[Paper] = Paper(
        "li2021fedbn",
        "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization",
        ("Xiaoxiao Li", "Meirui Jiang", "Xiaofei Zhang", "Michael Kamp", "Qi Dou"),
        "International Conference on Learning Representations (ICLR)",
        2021,
        "https://arxiv.org/abs/2102.07623",
    )

    def change(self, plain: Algorithm) -> Algorithm:
        """Plain averaging of what is sent."""
        return plain.replace(correction=PersonalBatchNorm())
