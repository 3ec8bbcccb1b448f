"""Layout: where each parameter and buffer of a model lies in its flat vector. Knows names and shapes, never tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Entry", "Layout"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One parameter or buffer: its name, its layer (the module's dotted name), shape, where it begins, whether a normalisation owns
    it, whether a linear layer does, and whether this normalisation is a BatchNorm; by the layer's type, not by its name."""

    name: str
    layer: str
    shape: tuple[int, ...]
    start: int
    norm: bool = False
    linear: bool = False
    batch_norm: bool = False

    @property
    def size(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def slice(self) -> slice:
        """Its place in the flat vector."""
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, slots=True)
class Layout:
    """The trainable parameters of a model in ``named_parameters()`` order, contiguous and not padded; beside them, each in a vector
    of their own, floating ``buffers`` and integer ``counters``. Iterating is over parameters.

    Example
    -------
    >>> layout = Layout((Entry("0.weight", "0", (2, 3), 0, linear=True), Entry("0.bias", "0", (2,), 6, linear=True)))
    >>> layout.size, layout["0.bias"].slice, layout.last_layer
    (8, slice(6, 8, None), slice(0, 8, None))
    """

    entries: tuple[Entry, ...]
    buffers: tuple[Entry, ...] = ()
    counters: tuple[Entry, ...] = ()

    @property
    def size(self) -> int:
        """D, the length of the flat vector."""
        return sum(entry.size for entry in self.entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries)

    def __getitem__(self, name: str) -> Entry:
        for entry in self.entries:
            if entry.name == name:
                return entry
        raise KeyError(name)

    @property
    def layers(self) -> dict[str, slice]:
        """Layer name -> the slice of all its parameters, in order."""
        out: dict[str, slice] = {}
        for entry in self.entries:
            start = out[entry.layer].start if entry.layer in out else entry.start
            out[entry.layer] = slice(start, entry.start + entry.size)
        return out

    @property
    def last_layer(self) -> slice:
        """Weights and bias of the last linear layer; the whole vector when there is none."""
        linear = [entry.layer for entry in self.entries if entry.linear]
        return self.layers[linear[-1]] if linear else slice(0, self.size)

    @property
    def norm(self) -> tuple[slice, ...]:
        """Slices of all parameters owned by normalisation layers."""
        return tuple(entry.slice for entry in self.entries if entry.norm)
