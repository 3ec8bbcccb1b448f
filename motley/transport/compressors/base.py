"""What a compressor is: how a vector becomes a :class:`~motley.transport.packet.Packet`, and of what form, known beforehand.

Two kinds share everything but one question each: a :class:`Sparsifier` says *which* values travel, a :class:`Quantizer` in *how
few bits*. A compressor sees the flat vector over trainable parameters only (docs/methods/compression.md#contract): all layers at
once.

``theta`` is the share of the vector that may travel; ``kept = max(1, min(D, ceil(theta D - 1e-6)))``. Randomness
comes from a key alone, so the spec that was planned is the spec that travels.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.errors import CodecError, ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.transport.packet import Codes, Coding, Packet, PacketSpec

__all__ = [
    "NONE",
    "Compressor",
    "Quantizer",
    "Sparsifier",
    "Tensors",
    "coding_of",
    "coins",
    "kept_of",
    "require_finite",
    "tensor_sizes",
]

Tensors = Mapping[str, Tensor]
NONE: Tensors = {}
"""Nothing was measured."""


class Compressor(ABC):
    """How an update is made smaller. Subclasses are frozen dataclasses of options."""

    paper: ClassVar[Paper | None] = None
    budgeted: ClassVar[bool] = True  # False: theta is not listened to, every value travels

    @abstractmethod
    def spec(self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32) -> PacketSpec:
        """The form that :meth:`compress` will give for the same arguments, whatever the values."""

    @abstractmethod
    def compress(self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE) -> Packet:
        """What travels of ``v`` ``[D]``. ``extras``: what was measured because :meth:`wants` named it.

        Raises
        ------
        CodecError: a value that is not finite.
        """

    def curvature_layers(self, ratio: float, layout: Layout, key: Key, client_state: Tensors | None) -> tuple[str, ...]:
        """Layers whose curvature must be measured before a client's training ends. Asked when a cohort is planned."""
        return ()

    def next_state(self, packet: Packet, layout: Layout) -> Tensors:
        """What the client keeps of what it sent; taken over when the upload is accepted."""
        return {}

    def initial_state(self, layout: Layout) -> Tensors:
        """The same of a client that never sent anything."""
        return {}

    def refuses_feedback(self) -> str | None:
        """Why error feedback may not go around it; None when it may."""
        return None

    def paper_bits(self, ratio: float, layout: Layout, key: Key) -> int:
        """Bits as papers count them: ``theta D`` values in their own width, places free, 32 for each scale."""
        return self.spec(ratio, layout, key).values_bits(ratio if self.budgeted else None)


class Sparsifier(Compressor):
    """Sends some values, each whole."""

    @abstractmethod
    def choose(self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors) -> Packet:
        """Which values travel, as they are."""

    def compress(self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE) -> Packet:
        """The chosen values."""
        return self.choose(require_finite(v), ratio, layout, key, curvature)


class Quantizer(Compressor):
    """Sends every value in few bits. In a chain it gets the values that a sparsifier chose, which belong to no layer."""

    budgeted: ClassVar[bool] = False

    @property
    @abstractmethod
    def width(self) -> tuple[int, int]:
        """Levels, and values per group (0: one group)."""

    @abstractmethod
    def quantize(self, values: Tensor, group: int | tuple[int, ...], key: Key) -> Codes:
        """Values ``[n]`` as levels times a scale per group."""

    def groups(self, layout: Layout) -> int | tuple[int, ...]:
        """The groups of a whole vector."""
        return self.width[1]

    def coded(self, spec: PacketSpec, group: int | tuple[int, ...]) -> PacketSpec:
        """A form whose values are written as codes."""
        coding: Coding = "codes64" if spec.coding == "float64" else "codes32"
        return PacketSpec(spec.size, spec.kept, spec.places, spec.runs, coding, self.width[0], group)

    def spec(self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32) -> PacketSpec:
        """All values, as codes."""
        return self.coded(PacketSpec(layout.size, layout.size, coding=coding_of(dtype)), self.groups(layout))

    def compress(self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE) -> Packet:
        """All values, as codes."""
        return Packet(len(v), self.quantize(require_finite(v), self.groups(layout), key.fold("coins")))


def coding_of(dtype: torch.dtype) -> Coding:
    """How whole values of this dtype are written."""
    return "float64" if dtype == torch.float64 else "float32"


def kept_of(ratio: float, size: int) -> int:
    """How many of ``size`` values a share of ``theta`` is.

    >>> kept_of(0.07, 100), kept_of(0.0, 5), kept_of(1.0, 5)
    (7, 1, 5)
    """
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(f"got a share of {ratio}; expected 0 to 1")
    return max(min(size, 1), min(size, math.ceil(ratio * size - 1e-6)))


def require_finite(v: Tensor) -> Tensor:
    """``v``, on the CPU, or CodecError."""
    v = v.detach().cpu().contiguous()
    if v.numel() and not all(math.isfinite(float(end)) for end in v.aminmax()):
        raise CodecError("got an update that is not finite; it is rejected before it reaches the channel")
    return v


def tensor_sizes(layout: Layout) -> tuple[int, ...]:
    """Weights of each parameter tensor, in order."""
    return tuple(entry.size for entry in layout)


def coins(key: Key, n: int) -> NDArray[np.float32]:
    """Uniform numbers in [0, 1), ``[n]``."""
    return key.numpy().random(n, dtype=np.float32)
