"""Layouts: the position of each parameter and buffer of a model in its flat vector; names and shapes only, no tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["Entry", "Layout"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One parameter or buffer of a model.

    Parameters
    ----------
    layer: dotted name of its module. start: its position in the flat vector. norm, linear, batch_norm: whether the module is a
    normalisation layer, a linear layer, a BatchNorm, by its type.
    """

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
        """Its slice of the flat vector."""
        return slice(self.start, self.start + self.size)


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all trainable parameters in ``named_parameters()`` order, contiguous and without padding.

    Floating ``buffers`` and integer ``counters`` have flat vectors of their own. Iteration is over parameters.

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
