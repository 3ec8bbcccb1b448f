"""The weighted mean, and every upload beside it: for server rules that look at single clients (FedDF, FedBiO, RHFL).

Beside what :class:`~motley.algorithms.aggregators.mean.Mean` gives, the total holds, one row per upload in order of client id,

    each.client  int64 [M]      each.weight  float64 [M]      each.<part>  [M, ...] for every part of an upload

State: none. Cost: all M uploads in memory at once, which secure aggregation forbids.

>>> import torch
>>> from motley.algorithms.base import Part, Upload
>>> uploads = [Upload({"delta": Part(torch.tensor([d]), "mean")}, 1.0, client=k) for k, d in ((3, 0.0), (7, 2.0))]
>>> total = Gather().fold(uploads, "weight")
>>> total["delta"].tolist(), total["each.delta"].tolist(), total["each.client"].tolist()
([1.0], [[0.0], [2.0]], [3, 7])
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.base import Algorithm, ServerState, Tensors, Upload
from motley.tasks.base import ModelState

__all__ = ["Gather", "client_models", "needs_gather"]


@dataclass(frozen=True)
class Gather(Mean):
    """The weighted mean of all parts, and all parts."""

    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"

    def fold(self, uploads: Iterable[Upload], divide: Literal["weight", "count", "none"]) -> dict[str, Tensor]:
        """See the top of this file; empty when there are no uploads."""
        kept = list(uploads)
        if not kept:
            return {}
        total = super().fold(kept, divide)
        total["each.client"] = torch.tensor([upload.client for upload in kept])
        total["each.weight"] = torch.tensor([upload.weight for upload in kept], dtype=torch.float64)
        for name in kept[0].parts:
            total[f"each.{name}"] = torch.stack([upload.parts[name].value for upload in kept])
        return total


def client_models(state: ServerState, total: Tensors) -> list[ModelState]:
    """The clients' models after local work, in order of client id: the server's plus their updates, with their own buffers."""
    x = state.model.x
    rows = zip(total["each.delta"], total["each.buffers"], total["each.counters"], strict=True)
    return [ModelState((x.double() + delta.double()).to(x.dtype), buffers, counters) for delta, buffers, counters in rows]


def needs_gather(name: str, algorithm: Algorithm) -> str | None:
    """Why a server rule that looks at single clients cannot go with this aggregator; None when it can."""
    if isinstance(algorithm.aggregator, Gather):
        return None
    return (
        f"{name} looks at every single upload, which the aggregator {type(algorithm.aggregator).__name__} folds; leave it out"
    )
