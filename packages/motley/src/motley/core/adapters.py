"""Low-rank adapters in a model's layout: pairs of parameters whose names differ in ``lora_A`` and
``lora_B`` alone, as those of ``peft`` do.

An adapter of rank r adds ``s B A x`` to what its layer computes, A ``[r, inputs]``, B
``[outputs, r]``, s a constant of the module. Its first j ranks are the first j rows of A and
columns of B.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from motley.core.errors import ModelError
from motley.core.layout import Axis, Entry, Layout

MERGED = "merged_product"
"""The name of the buffer of merged products in an adapter's layer (:mod:`motley.tasks.merged`)."""
_A, _B = "lora_A", "lora_B"


class Adapter(NamedTuple):
    """The two factors of an adapter: ``a`` ``[r, inputs, ...]``, ``b`` ``[outputs, r, ...]``."""

    a: Entry
    b: Entry

    @property
    def rank(self) -> int:
        """r."""
        return self.a.shape[0]

    @property
    def owner(self) -> str:
        """Dotted name of the layer whose outputs the adapter changes."""
        parts = self.a.name.split(".")
        return ".".join(parts[: parts.index(_A)])


def adapters_of(layout: Layout) -> tuple[Adapter, ...]:
    """Return the trainable adapters of a model, in the layout's order.

    Raises
    ------
    ModelError: there is none.

    Example
    -------
    >>> a = Entry("0.lora_A.weight", "0.lora_A", (2, 5), 0)
    >>> b = Entry("0.lora_B.weight", "0.lora_B", (3, 2), 10)
    >>> [pair.rank for pair in adapters_of(Layout((a, b)))]
    [2]
    """
    entries = {tuple(entry.name.split(".")): entry for entry in layout}
    adapters = []
    for name, a in entries.items():
        b = entries.get(tuple(_B if part == _A else part for part in name))
        if b is not None and b is not a and a.shape[:1] == b.shape[1:2]:
            adapters.append(Adapter(a, b))
    if not adapters:
        raise ModelError(
            "the model has no low-rank adapters, trainable pairs of parameters lora_A and lora_B; "
            'use task = { name = "hf", ... }, or another algorithm, e.g. algorithm = "fedavg"'
        )
    return tuple(adapters)


def merged_of(layout: Layout) -> tuple[Entry, ...]:
    """Return the buffers of merged products, in the order of :func:`adapters_of`; empty where the
    model has none."""
    buffers = {entry.name: entry for entry in layout.buffers}
    names = (f"{pair.owner}.{MERGED}".lstrip(".") for pair in adapters_of(layout))
    return tuple(buffers[name] for name in names if name in buffers)


def ranked(layout: Layout) -> Layout:
    """Return the layout with the ranks of each adapter as its units, so that
    :meth:`Layout.slices` keeps the first ranks of every adapter and all else whole.

    Raises
    ------
    ModelError: the model has no adapters.
    """
    cut: dict[str, tuple[Axis | None, ...]] = {}
    for group, (a, b) in enumerate(adapters_of(layout), 1):
        ranks = Axis(group, a.shape[0])
        cut[a.name] = (ranks, *(None for _ in a.shape[1:]))
        cut[b.name] = (None, ranks, *(None for _ in b.shape[2:]))

    def known(entries: tuple[Entry, ...]) -> tuple[Entry, ...]:
        return tuple(
            dataclasses.replace(entry, axes=cut.get(entry.name, (None,) * len(entry.shape)))
            for entry in entries
        )

    return Layout(known(layout.entries), known(layout.buffers), layout.counters)
