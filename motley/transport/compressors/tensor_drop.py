"""Tensor drop: each parameter tensor of the update travels whole or not at all, by a coin.

Li, Zeng, Zhang, Cao: *PyramidFL: A Fine-grained Client Selection Framework for Efficient Federated Learning*, MobiCom 2022.
Reference: docs/methods/selectors.md#pyramidfl-code.

    tensor l is sent with probability theta, independently; what is not sent counts as 0 and is not made up for

Symbols: ``theta = 1 - dr_k``, PyramidFL's ``Cohort.upload_ratio``. State: none. On the wire: the runs of parameters that are sent,
16 bytes each, and their values. How many travel is drawn, from the key and not from values, so it is billed before training.

Deviations and readings
-----------------------
* ``rescale = true`` divides by theta, which makes it unbiased; off, as in the authors' code.
* A draw may drop every tensor: an update of zeros, as in the code. The expected share is theta, the drawn one is billed.

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

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.transport.compressors.base import Sparsifier, Tensors, coding_of
from motley.transport.packet import Packet, PacketSpec, Runs

__all__ = ["TensorDrop"]


@dataclass(frozen=True)
class TensorDrop(Sparsifier):
    """Whole tensors with probability ``theta``; ``rescale``: divided by it."""

    paper: ClassVar[Paper] = Paper(
        "li2022pyramidfl",
        "PyramidFL: A Fine-grained Client Selection Framework for Efficient Federated Learning",
        ("Chenning Li", "Xiao Zeng", "Mi Zhang", "Zhichao Cao"),
        "ACM International Conference on Mobile Computing and Networking (MobiCom)",
        2022,
    )
    rescale: bool = False

    def runs(self, ratio: float, layout: Layout, key: Key) -> Runs:
        """The parameters that travel."""
        if not 0.0 <= ratio <= 1.0:
            raise ConfigError(f"got a share of {ratio}; expected 0 to 1")
        lucky = key.fold("tensors").uniform(np.arange(len(layout.entries)))[:, 0] < ratio
        return tuple((e.slice.start, e.slice.stop) for e, sent in zip(layout, lucky.tolist(), strict=True) if sent)

    def spec(self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32) -> PacketSpec:
        """The drawn runs."""
        runs = self.runs(ratio, layout, key)
        return PacketSpec(layout.size, sum(b - a for a, b in runs), "runs", len(runs), coding_of(dtype))

    def choose(self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors) -> Packet:
        """The drawn tensors."""
        runs = self.runs(ratio, layout, key)
        values = torch.cat([v[a:b] for a, b in runs]) if runs else v[:0]
        return Packet(len(v), values / ratio if self.rescale and ratio else values, runs)

    def refuses_feedback(self) -> str | None:
        """As in random-k."""
        return (
            "tensors divided by their chance would be piled up by error feedback; set rescale = false" if self.rescale else None
        )

    def paper_bits(self, ratio: float, layout: Layout, key: Key) -> int:
        """What is drawn, without the runs."""
        return self.spec(ratio, layout, key).values_bits()
