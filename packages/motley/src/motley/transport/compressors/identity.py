"""No compression: every value of the update is sent, 32 bits each.

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
from typing_extensions import override

from motley.core.keys import Key
from motley.core.layout import Layout
from motley.transport.compressors.compressor import (
    NONE,
    Compressor,
    Tensors,
    coding_of,
    require_finite,
)
from motley.transport.packet import Packet, PacketSpec


@dataclass(frozen=True)
class Identity(Compressor):
    """The whole update, uncompressed."""

    budgeted: ClassVar[bool] = False

    @override
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        return PacketSpec(layout.size, layout.size, coding=coding_of(dtype))

    @override
    def compress(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE
    ) -> Packet:
        return Packet(len(v), require_finite(v))
