"""Nothing is compressed: every value of the update is sent, 32 bits each.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Layout
>>> Identity().compress(torch.tensor([1.0, -2.0]), 1.0, Layout(()), Key(0)).dense().tolist()
[1.0, -2.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from motley.core.keys import Key
from motley.core.layout import Layout
from motley.transport.compressors.base import NONE, Compressor, Tensors, coding_of, require_finite
from motley.transport.packet import Packet, PacketSpec

__all__ = ["Identity"]


@dataclass(frozen=True)
class Identity(Compressor):
    """The dense update."""

    budgeted: ClassVar[bool] = False

    def spec(self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32) -> PacketSpec:
        """All values."""
        return PacketSpec(layout.size, layout.size, coding=coding_of(dtype))

    def compress(self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE) -> Packet:
        """All values."""
        return Packet(len(v), require_finite(v))
