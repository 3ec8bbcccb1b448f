"""Layouts: the position of each parameter and buffer of a model in its flat vector; names and
shapes only, no tensors.

A layout that knows how the axes of its tensors belong to units
(:func:`motley.tasks.narrow_models.cuttable`) also says which part of them a narrower model holds,
:meth:`Layout.slices`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from motley.core.arrays import Ids
from motley.core.errors import ContractError


class Axis(NamedTuple):
    """An axis of a tensor along which the units of a layer lie: its features, or its channels.

    Parameters
    ----------
    group: number of the group of units that are cut together (a residual sum joins the units of
    several layers).
    units: how many they are.
    positions: length of the axis for each unit; more than 1 behind a layer that flattens images.
    """

    group: int
    units: int
    positions: int = 1

    def kept(self, width: float, offset: int = 0) -> Ids:
        """Return the ascending indices that a model of this width holds: of s = ceil(width * units)
        units, from number ``offset`` (modulo the units) on, around the end."""
        first = (offset % self.units + np.arange(kept_units(width, self.units))) % self.units
        each: Ids = (np.sort(first)[:, None] * self.positions + np.arange(self.positions)).reshape(
            -1
        )
        return each


def kept_units(width: float, units: int) -> int:
    """Return how many of a layer's units a model of this width holds, at least one."""
    # 1e-6: 0.28 * 25 is a bit more than 7 in floats, and would keep an eighth unit.
    return max(1, min(units, math.ceil(width * units - 1e-6)))


@dataclass(frozen=True, slots=True)
class Entry:
    """One parameter or buffer of a model.

    Parameters
    ----------
    layer: dotted name of its module.
    start: its position in the flat vector.
    norm, linear, batch_norm: whether the module is a normalization layer, a linear layer, a
    BatchNorm, by its type.
    axes: for each axis of the tensor the units along it, None for one that is never cut; None as a
    whole where this is not known.
    """

    name: str
    layer: str
    shape: tuple[int, ...]
    start: int
    norm: bool = False
    linear: bool = False
    batch_norm: bool = False
    axes: tuple[Axis | None, ...] | None = None

    @property
    def size(self) -> int:
        """Number of weights."""
        return math.prod(self.shape)

    @property
    def slice(self) -> slice:
        """Its slice of the flat vector."""
        return slice(self.start, self.start + self.size)

    def kept(self, width: float, offset: int = 0) -> tuple[Ids, ...]:
        """Return the ascending indices along each axis that a model of this width holds; see
        :meth:`Layout.slices`.

        Raises
        ------
        ContractError: the layout does not know its axes.
        """
        if self.axes is None:
            raise ContractError(
                f"the axes of {self.name!r} are not known; make the layout with "
                "motley.tasks.narrow_models.cuttable"
            )
        return tuple(
            np.arange(n) if axis is None else axis.kept(width, offset)
            for n, axis in zip(self.shape, self.axes, strict=True)
        )


@dataclass(frozen=True, slots=True)
class Layout:
    """The positions of all trainable parameters in ``named_parameters()`` order, contiguous and
    without padding.

    Floating ``buffers`` and integer ``counters`` have flat vectors of their own. Iteration is over
    parameters.

    Example
    -------
    >>> weight = Entry("0.weight", "0", (2, 3), 0, linear=True)
    >>> layout = Layout((weight, Entry("0.bias", "0", (2,), 6, linear=True)))
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
    def output_bias(self) -> slice | None:
        """The bias of the last linear layer; None where there is none."""
        linear = [entry for entry in self.entries if entry.linear]
        last = [entry for entry in linear if entry.layer == linear[-1].layer]
        return next((entry.slice for entry in last if len(entry.shape) == 1), None)

    @property
    def norm(self) -> tuple[slice, ...]:
        """Slices of all parameters owned by normalization layers."""
        return tuple(entry.slice for entry in self.entries if entry.norm)

    def slices(self, width: float, offset: int = 0) -> dict[str, tuple[Ids, ...]]:
        """Return the index sets of a narrower model: name of each parameter and floating buffer ->
        ascending indices along each axis.

        Parameters
        ----------
        width: share of the units of every hidden layer, in (0, 1].
        offset: number of the first unit that is kept, modulo each layer's.

        Raises
        ------
        ContractError: the layout does not know its axes.

        Example
        -------
        >>> hidden = Axis(0, 4)
        >>> first = Entry("0.weight", "0", (4, 2), 0, axes=(hidden, None))
        >>> layout = Layout((first, Entry("1.weight", "1", (3, 4), 8, axes=(None, hidden))))
        >>> [index.tolist() for index in layout.slices(0.5, 3)["0.weight"]], layout.kept_size(0.5)
        ([[0, 3], [0, 1]], 10)
        """
        return {entry.name: entry.kept(width, offset) for entry in (*self.entries, *self.buffers)}

    def kept_size(self, width: float) -> int:
        """Return how many parameters a model of this width has; an offset does not change it."""
        return sum(math.prod(len(index) for index in entry.kept(width)) for entry in self.entries)

    def kept_positions(self, width: float, offset: int = 0) -> Ids:
        """Return the positions in the flat vector of the parameters of a narrower model, in the
        order of that model's own vector."""
        return _positions(self.entries, width, offset)

    def kept_buffers(self, width: float, offset: int = 0) -> Ids:
        """Return the positions of a narrower model's floating buffers in their flat vector; see
        :meth:`kept_positions`."""
        return _positions(self.buffers, width, offset)


def _positions(entries: tuple[Entry, ...], width: float, offset: int) -> Ids:
    parts = [
        entry.start
        + np.arange(entry.size).reshape(entry.shape)[np.ix_(*entry.kept(width, offset))].reshape(-1)
        for entry in entries
    ]
    return np.concatenate([np.zeros(0, np.int64), *parts])
