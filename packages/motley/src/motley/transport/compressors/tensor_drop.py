"""Tensor drop: each parameter tensor of the update is sent whole or not at all, at random.

Li, Zeng, Zhang, Cao: *PyramidFL: A Fine-grained Client Selection Framework for Efficient Federated
Learning*, MobiCom 2022.

    tensor l is sent with probability theta, independently;
    what is not sent counts as 0 and is not made up for

Symbols: ``theta = 1 - dr_k``, PyramidFL's ``Cohort.upload_ratio``. State: none. On the wire: the
runs of parameters that are sent, 16 bytes each, and their values. How many travel is drawn, from
the key and not from values, so it is billed before training.

Deviations and readings
-----------------------
* ``rescale = true`` divides by theta, which makes it unbiased; off, as in the authors' code.
* A draw may drop every tensor: an update of zeros, as in the code. The expected share is theta, the
  drawn one is billed.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Entry, Layout
>>> layout = Layout((Entry("a", "", (2,), 0), Entry("b", "", (1,), 2)))
>>> TensorDrop().compress(torch.tensor([1.0, 2.0, 3.0]), 1.0, layout, Key(0)).dense().tolist()
[1.0, 2.0, 3.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.transport.compressors.compressor import Sparsifier, Tensors, coding_of
from motley.transport.packet import Packet, PacketSpec, Runs


@dataclass(frozen=True)
class TensorDrop(Sparsifier):
    """Every parameter tensor with probability ``theta``; ``rescale``: divide the values by it."""

    paper: ClassVar[Paper] = cite("li2022pyramidfl")
    rescale: bool = False

    def runs(self, ratio: float, layout: Layout, key: Key) -> Runs:
        """Return the runs of parameters that are sent."""
        if not 0.0 <= ratio <= 1.0:
            raise ConfigError(f"got an upload ratio of {ratio}; expected 0 to 1")
        lucky = key.fold("tensors").uniform(np.arange(len(layout.entries)))[:, 0] < ratio
        return tuple(
            (e.slice.start, e.slice.stop)
            for e, sent in zip(layout, lucky.tolist(), strict=True)
            if sent
        )

    @override
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        runs = self.runs(ratio, layout, key)
        return PacketSpec(
            size=layout.size,
            sent=sum(b - a for a, b in runs),
            places="runs",
            runs=len(runs),
            coding=coding_of(dtype),
        )

    @override
    def choose(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors
    ) -> Packet:
        runs = self.runs(ratio, layout, key)
        values = torch.cat([v[a:b] for a, b in runs]) if runs else v[:0]
        return Packet(len(v), values / ratio if self.rescale and ratio else values, runs)

    @override
    def refuses_feedback(self, size: int) -> str | None:
        if self.rescale:
            return (
                "tensors divided by their probability do not go with error feedback, whose "
                "residual would grow; set rescale = false"
            )
        return None
