"""A chain of two compressors: a sparsifier chooses the values that are sent, a quantizer shortens
them.

The quantizer gets the chosen values alone, and error feedback keeps what is left of the *quantized*
values.

>>> import torch
>>> from motley.core.keys import Key
>>> from motley.core.layout import Entry, Layout
>>> from motley.transport.compressors.qsgd import QSGD
>>> from motley.transport.compressors.topk import TopK
>>> both = Chain(TopK(), QSGD(levels=1, bucket=0))
>>> layout = Layout((Entry("w", "", (2,), 0),))
>>> both.compress(torch.tensor([0.5, -4.0]), 0.5, layout, Key(0)).dense().tolist()
[0.0, -4.0]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.transport.compressors.compressor import (
    NONE,
    Compressor,
    Quantizer,
    Sparsifier,
    Tensors,
    require_finite,
)
from motley.transport.packet import Packet, PacketSpec


@dataclass(frozen=True)
class Chain(Compressor):
    """A sparsifier followed by a quantizer."""

    budgeted: ClassVar[bool] = True
    sparsifier: Sparsifier
    quantizer: Quantizer

    def __post_init__(self) -> None:
        if not isinstance(self.sparsifier, Sparsifier) or not isinstance(self.quantizer, Quantizer):
            raise ConfigError(
                f"got {type(self.sparsifier).__name__} then {type(self.quantizer).__name__}; "
                "expected a sparsifier (topk, randomk, tensor_drop), then a quantizer (qsgd, "
                "fedpaq, signs, terngrad)"
            )

    @override
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        return self.quantizer.coded(
            self.sparsifier.spec(ratio, layout, key, dtype), self.quantizer.width[1]
        )

    @override
    def compress(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE
    ) -> Packet:
        packet = self.sparsifier.choose(require_finite(v), ratio, layout, key, curvature)
        codes = self.quantizer.quantize(
            packet.numbers(), self.quantizer.width[1], key.fold("coins")
        )
        return Packet(packet.size, codes, packet.places, packet.drawn_at)

    @override
    def curvature_layers(
        self, ratio: float, layout: Layout, key: Key, client_state: Tensors | None
    ) -> tuple[str, ...]:
        return self.sparsifier.curvature_layers(ratio, layout, key, client_state)

    @property
    @override
    def probes_model(self) -> bool:
        return self.sparsifier.probes_model

    @override
    def next_state(self, packet: Packet, layout: Layout) -> Tensors:
        return self.sparsifier.next_state(packet, layout)

    @override
    def initial_state(self, layout: Layout) -> Tensors:
        return self.sparsifier.initial_state(layout)

    @override
    def refuses_feedback(self, size: int) -> str | None:
        return self.sparsifier.refuses_feedback(size) or self.quantizer.refuses_feedback(size)
