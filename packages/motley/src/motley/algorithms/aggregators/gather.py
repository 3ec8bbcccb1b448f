"""The weighted mean and all single uploads, for server rules that need the clients' own models
(FedDF, FedBiO, RHFL).

In addition to :class:`~motley.algorithms.aggregators.mean.Mean`, the total holds one row per
upload, in order of client id:

    each.client  int64 [M]
    each.weight  float64 [M]
    each.own_weight  float64 [M]
    each.<part>  [M, ...] for every part of an upload
    held.<part>  bool [M, ...], which coordinates each client holds; absent where all hold all

State: none. Cost: all M uploads in memory at once. Single uploads are not available under secure
aggregation.

>>> import torch
>>> from motley.algorithms.parts import Part, Upload, aggregate
>>> uploads = [
...     Upload({"delta": Part(torch.tensor([d]), "mean")}, 1.0, client=k)
...     for k, d in ((3, 0.0), (7, 2.0))
... ]
>>> total = aggregate(Gather(), uploads, "weight")
>>> total["delta"].tolist(), total["each.delta"].tolist(), total["each.client"].tolist()
([1.0], [[0.0], [2.0]], [3, 7])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Algorithm, ServerState, Tensors, Upload
from motley.algorithms.weights import Divide
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class Gather(Mean):
    """The weighted mean of all parts, and the parts themselves."""

    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    plain_sum: ClassVar[bool] = False
    joins: ClassVar[bool] = False

    @override
    def init(self) -> Any:
        return super().init(), []

    @override
    def add(self, total: Any, upload: Upload) -> Any:
        sums, uploads = total
        uploads.append(upload)
        return super().add(sums, upload), uploads

    @override
    def finish(self, total: Any, divide: Divide) -> dict[str, Tensor]:
        sums, uploads = total
        if not uploads:
            return {}
        out = super().finish(sums, divide)
        out["each.client"] = torch.tensor([upload.client for upload in uploads])
        for name in ("weight", "own_weight"):
            values = [getattr(upload, name) for upload in uploads]
            out[f"each.{name}"] = torch.tensor(values, dtype=torch.float64)
        for name in uploads[0].parts:
            parts = [upload.parts[name] for upload in uploads]
            out[f"each.{name}"] = torch.stack([part.value for part in parts])
            if any(part.held is not None for part in parts):
                all_held = torch.ones_like(parts[0].value, dtype=torch.bool)
                out[f"held.{name}"] = torch.stack(
                    [all_held if part.held is None else part.held for part in parts]
                )
        return out


def client_models(state: ServerState, total: Tensors) -> list[ModelState]:
    """Return the clients' models after local work, in order of client id: the server's model plus
    the update, with the client's buffers."""
    x = state.model.x
    rows = zip(total["each.delta"], total["each.buffers"], total["each.counters"], strict=True)
    return [
        ModelState((x.double() + delta.double()).to(x.dtype), buffers, counters)
        for delta, buffers, counters in rows
    ]


def needs_gather(name: str, algorithm: Algorithm) -> str | None:
    """Return why a server rule that needs single uploads does not go with this aggregator; None if
    it does."""
    if isinstance(algorithm.aggregator, Gather):
        return None
    return (
        f"{name} needs every single upload, and the aggregator "
        f"{type(algorithm.aggregator).__name__} keeps none; leave it out"
    )
