"""The interface of a compressor, which turns a vector into a
:class:`~motley.transport.packet.Packet` whose spec is known beforehand.

There are two kinds: a :class:`Sparsifier` chooses *which* values are sent, a :class:`Quantizer`
sends every value in *few bits*. A compressor gets the flat vector of all trainable parameters
(docs/methods/compression.md#contract).

``ratio`` (theta in the papers) is the share of the vector that may be sent;
``kept = max(1, min(D, ceil(ratio D - 1e-6)))``. All randomness comes from a key, so the spec
computed before training is that of the packet.
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
from typing_extensions import override

from motley.core.errors import CodecError, ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.paper import Paper
from motley.transport.packet import Codes, Coding, Packet, PacketSpec

Tensors = Mapping[str, Tensor]
NONE: Tensors = {}
"""No curvature was measured."""


class Compressor(ABC):
    """A rule that compresses updates. Subclasses are frozen dataclasses of options.

    ``budgeted``: whether the upload ratio has an effect; False: every value is sent.
    """

    paper: ClassVar[Paper | None] = None
    budgeted: ClassVar[bool] = True

    @abstractmethod
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        """Return the spec of the packet that :meth:`compress` returns for the same arguments; it
        does not depend on values."""

    @abstractmethod
    def compress(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE
    ) -> Packet:
        """Return the packet of ``v`` ``[D]``. ``curvature``: of the layers that
        :meth:`curvature_layers` named, as far as measured.

        Raises
        ------
        CodecError: a value that is not finite.
        """

    def curvature_layers(
        self, ratio: float, layout: Layout, key: Key, client_state: Tensors | None
    ) -> tuple[str, ...]:
        """Return the layers whose curvature must be measured after local training; called when the
        job is planned."""
        return ()

    @property
    def probes_model(self) -> bool:
        """Whether the curvature of these layers is taken from a probe of the whole model; else of
        the layers alone."""
        return False

    def next_state(self, packet: Packet, layout: Layout) -> Tensors:
        """Return the client's next state, which replaces the old one when the upload is
        accepted."""
        return {}

    def initial_state(self, layout: Layout) -> Tensors:
        """Return the state of a client before its first accepted upload."""
        return {}

    def refuses_feedback(self, size: int) -> str | None:
        """Return why the compressor does not go with error feedback on updates of ``size`` values;
        None if it does."""
        return None

    def paper_bits(self, ratio: float, layout: Layout, key: Key) -> int:
        """Return the bits as papers count them: ``ratio D`` values in their own width, of runs the
        drawn ones; 32 for each scale, nothing for places."""
        spec = self.spec(ratio, layout, key)
        return spec.values_bits(ratio if self.budgeted and spec.places != "runs" else None)


class Sparsifier(Compressor):
    """A compressor that sends some of the values, unchanged."""

    @abstractmethod
    def choose(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors
    ) -> Packet:
        """Return a packet of the chosen values."""

    @override
    def compress(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE
    ) -> Packet:
        return self.choose(require_finite(v), ratio, layout, key, curvature)


class Quantizer(Compressor):
    """A compressor that sends every value in few bits. In a chain it gets the values that a
    sparsifier chose, from any layers."""

    budgeted: ClassVar[bool] = False

    @property
    @abstractmethod
    def width(self) -> tuple[int, int]:
        """The number of levels, and of values per group (0: one group)."""

    @abstractmethod
    def quantize(self, values: Tensor, group: int | tuple[int, ...], key: Key) -> Codes:
        """Return values ``[n]`` as levels times one scale per group."""

    def groups(self, layout: Layout) -> int | tuple[int, ...]:
        """Return the groups of a whole vector."""
        return self.width[1]

    def coded(self, spec: PacketSpec, group: int | tuple[int, ...]) -> PacketSpec:
        """Return a spec with its values written as codes."""
        coding: Coding = "codes64" if spec.coding == "float64" else "codes32"
        return PacketSpec(
            size=spec.size,
            sent=spec.sent,
            places=spec.places,
            runs=spec.runs,
            coding=coding,
            levels=self.width[0],
            group=group,
        )

    @override
    def spec(
        self, ratio: float, layout: Layout, key: Key, dtype: torch.dtype = torch.float32
    ) -> PacketSpec:
        return self.coded(
            PacketSpec(layout.size, layout.size, coding=coding_of(dtype)), self.groups(layout)
        )

    @override
    def compress(
        self, v: Tensor, ratio: float, layout: Layout, key: Key, curvature: Tensors = NONE
    ) -> Packet:
        return Packet(
            len(v), self.quantize(require_finite(v), self.groups(layout), key.fold("coins"))
        )


def coding_of(dtype: torch.dtype) -> Coding:
    """Return the coding of unquantized values of a dtype."""
    return "float64" if dtype == torch.float64 else "float32"


def kept_of(ratio: float, size: int) -> int:
    """Return how many of ``size`` values an upload ratio allows, at least 1.

    >>> kept_of(0.07, 100), kept_of(0.0, 5), kept_of(1.0, 5)
    (7, 1, 5)
    """
    if not 0.0 <= ratio <= 1.0:
        raise ConfigError(f"got an upload ratio of {ratio}; expected 0 to 1")
    # 1e-6: 0.07 * 100 is a bit more than 7 in floats. At least one value, or an upload would say
    # nothing; none only of an empty vector.
    return max(min(size, 1), min(size, math.ceil(ratio * size - 1e-6)))


def require_finite(v: Tensor) -> Tensor:
    """Return ``v`` on the CPU; raises CodecError if a value is not finite."""
    v = v.detach().cpu().contiguous()
    # By the two ends: one pass, and a NaN is both of them.
    if v.numel() and not all(math.isfinite(float(end)) for end in v.aminmax()):
        raise CodecError("got an update that is not finite; it is rejected before it is sent")
    return v


def tensor_sizes(layout: Layout) -> tuple[int, ...]:
    """Return the number of weights of each parameter tensor, in order."""
    return tuple(entry.size for entry in layout)


def coins(key: Key, n: int) -> NDArray[np.float32]:
    """Return n uniform random numbers in [0, 1)."""
    return key.numpy().random(n, dtype=np.float32)
