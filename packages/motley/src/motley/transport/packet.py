"""Packets: the values of one vector that are sent, and their places. Tensors only; bytes are
:mod:`motley.transport.wire`'s.

A :class:`Packet` holds ``sent`` values of a vector of ``size``; the others are zero. Places and
values are independent:

    places   everywhere (None) | ascending indices | runs, half-open intervals (whole tensors)
             | a seed
    values   numbers in float32, float64 or int64 | :class:`Codes`, whole levels times a scale
             per group

Its :class:`PacketSpec` holds all but the numbers. A spec is known before training, and so is its
length in bytes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from motley.core.errors import CodecError, ContractError
from motley.core.keys import Key

Runs = tuple[tuple[int, int], ...]
Places = Literal["all", "indices", "runs", "seed"]
Coding = Literal["float32", "float64", "int64", "codes32", "codes64"]

PLACES: tuple[Places, ...] = ("all", "indices", "runs", "seed")
CODINGS: dict[Coding, torch.dtype] = {
    "float32": torch.float32,
    "float64": torch.float64,
    "int64": torch.int64,
    "codes32": torch.float32,
    "codes64": torch.float64,
}
"""The codings of values, and the dtype of the numbers in each (for codes: of the scales)."""

_CHUNK = 1 << 17


@dataclass(frozen=True, slots=True)
class PacketSpec:
    """The layout of a packet: everything but its numbers.

    Parameters
    ----------
    size: of the vector.
    sent: number of values sent.
    places: encoding of their places; ``indices`` is written as a list or a bitmap, whichever is
    shorter.
    runs: number of runs.
    coding: of the values.
    levels, group: of :class:`Codes`.
    """

    size: int
    sent: int
    places: Places = "all"
    runs: int = 0
    coding: Coding = "float32"
    levels: int = 0
    group: int | tuple[int, ...] = 0

    @property
    def width(self) -> int:
        """The bits of one value."""
        if self.coding.startswith("codes"):
            # bit_length(s) = ceil(log2(s + 1)); signs alone have s = 0
            return 1 + self.levels.bit_length()
        return 64 if self.coding.endswith("64") else 32

    @property
    def scale_bits(self) -> int:
        """The bits of the scales."""
        if not self.coding.startswith("codes"):
            return 0
        return _groups(self.sent, self.group) * (64 if self.coding == "codes64" else 32)

    def values_bits(self, ratio: float | None = None) -> int:
        """Return the bits of the values alone, as papers count them. ``ratio``: count
        ``ratio * size`` values, not rounded up."""
        count = self.sent if ratio is None else ratio * self.size
        return round(count * self.width) + self.scale_bits


@dataclass(frozen=True, slots=True, eq=False)
class Codes:
    """Quantized values: whole levels ``q`` in ``-s..s``, which stand for ``scale q / s``; with
    ``s = 0`` for ``scale sign(q)``.

    Parameters
    ----------
    q: int8, int16 or int32 ``[sent]``, never 0 where s is 0.
    levels: s.
    scales: one for each group of values.
    group: values per group (the last may be shorter), 0 for a single one, or the sizes of all
    groups.
    """

    q: Tensor
    levels: int
    scales: Tensor
    group: int | tuple[int, ...] = 0

    def values(self) -> Tensor:
        """Return the numbers, in the dtype of the scales."""
        share = self.q.to(self.scales.dtype)
        if self.levels > 1:
            share /= self.levels
        sizes = group_sizes(len(share), self.group)
        if len(sizes) == 1:
            return share.mul_(self.scales[0])
        return share.mul_(
            torch.repeat_interleave(self.scales, torch.from_numpy(sizes), output_size=len(share))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Packet:
    """The values of one vector that are sent.

    Parameters
    ----------
    size: of the vector.
    values: ``[sent]`` or :class:`Codes`.
    places: see the module.
    drawn_at: the places drawn from a seed, if known; they are not sent.

    Example
    -------
    >>> import torch
    >>> Packet(4, torch.tensor([3.0, -1.0]), torch.tensor([0, 2])).dense().tolist()
    [3.0, 0.0, -1.0, 0.0]
    """

    size: int
    values: Tensor | Codes
    places: Tensor | Runs | Key | None = None
    drawn_at: Tensor | None = None

    @property
    def sent(self) -> int:
        """The number of values sent."""
        return len(self.values.q if isinstance(self.values, Codes) else self.values)

    @property
    def spec(self) -> PacketSpec:
        """The layout of the packet."""
        places, runs = self._placed()
        coding, levels, group = self._coded()
        return PacketSpec(
            size=self.size,
            sent=self.sent,
            places=places,
            runs=runs,
            coding=coding,
            levels=levels,
            group=group,
        )

    def numbers(self) -> Tensor:
        """Return the decoded values, ``[sent]``."""
        return self.values.values() if isinstance(self.values, Codes) else self.values

    def indices(self) -> Tensor:
        """Return the values' places, ascending, ``[sent]``."""
        if self.places is None:
            return torch.arange(self.size)
        if isinstance(self.places, Tensor):
            return self.places
        if isinstance(self.places, Key):
            return (
                drawn(self.places, self.size, self.sent) if self.drawn_at is None else self.drawn_at
            )
        return torch.cat(
            [torch.arange(a, b) for a, b in self.places] or [torch.zeros(0, dtype=torch.int64)]
        )

    def dense(self) -> Tensor:
        """Return the whole vector ``[size]``, zero where nothing was sent."""
        numbers = self.numbers()
        if self.places is None:
            return numbers
        out = numbers.new_zeros(self.size)
        if isinstance(self.places, tuple):
            for (a, b), part in zip(
                self.places, torch.split(numbers, [b - a for a, b in self.places]), strict=True
            ):
                out[a:b] = part
            return out
        return out.index_copy_(0, self.indices(), numbers)

    def _placed(self) -> tuple[Places, int]:
        if self.places is None:
            return "all", 0
        if isinstance(self.places, tuple):
            return "runs", len(self.places)
        return ("seed" if isinstance(self.places, Key) else "indices"), 0

    def _coded(self) -> tuple[Coding, int, int | tuple[int, ...]]:
        if isinstance(self.values, Codes):
            double = self.values.scales.dtype == torch.float64
            return "codes64" if double else "codes32", self.values.levels, self.values.group
        for coding in ("float32", "float64", "int64"):
            if CODINGS[coding] == self.values.dtype:
                return coding, 0, 0
        raise CodecError(f"got values of {self.values.dtype}; expected float32, float64 or int64")


def _groups(sent: int, group: int | tuple[int, ...]) -> int:
    """Return the number of groups; without an array, for a stranger may announce any number of
    values."""
    if isinstance(group, tuple):
        return len(group)
    return min(sent, 1) if group == 0 or group >= sent else math.ceil(sent / group)


def group_sizes(
    sent: int, group: int | tuple[int, ...]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the number of values in each group."""
    if isinstance(group, tuple):
        return np.asarray(group, np.int64)
    if group == 0 or group >= sent:
        return np.full(min(sent, 1), sent, np.int64)
    sizes = np.full(math.ceil(sent / group), group, np.int64)
    sizes[-1] = sent - group * (len(sizes) - 1)
    return sizes


def drawn(key: Key, size: int, sent: int) -> Tensor:
    """Return a uniform random subset of ``sent`` of ``size`` places, ascending: those of the
    smallest hashed numbers.

    The hash is :class:`~motley.core.keys.Key`'s own, so sender and receiver draw alike whatever
    versions they run.
    """
    if not 0 <= sent <= size:
        raise ContractError(f"got {sent} of {size} places; expected at most all of them")
    if sent == size:
        return torch.arange(size)
    if sent == 0:
        return torch.zeros(0, dtype=torch.int64)
    luck = np.empty(size)
    for start in range(0, size, _CHUNK):  # chunks that stay in the cache
        stop = min(start + _CHUNK, size)
        luck[start:stop] = key.uniform(np.arange(start, stop))[:, 0]
    return torch.from_numpy(np.sort(np.argpartition(luck, sent - 1)[:sent]))
