"""Low-rank adapters of which a deployed client holds the first ranks: what of the model travels.

A client says when it is met which share of the ranks it can hold: ``share`` in its node's
configuration and, under ``by_memory``, what fits into the node's ``memory_mb``. Every request names
the share that the client trains now, at most this, and brings that part of the model; the upload
covers the same part. Positions are free, for both sides know the share
(:mod:`motley.algorithms.ranked`).
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from motley.core.layout import Layout


def narrowed(value: Tensor, layout: Layout, width: float) -> Tensor:
    """Return the numbers ``[d]`` of a vector of the whole model ``[D]`` that a client of this share
    of the ranks holds."""
    return value if width == 1.0 else value[_held(layout, width).to(value.device)]


def widened(value: Tensor, layout: Layout, width: float) -> tuple[Tensor, Tensor | None]:
    """Return a vector of the whole model ``[D]`` that is 0 where the client holds nothing, and
    which positions it holds, bool ``[D]``; None: all. The inverse of :func:`narrowed`."""
    if width == 1.0:
        return value, None
    held = torch.zeros(layout.size, dtype=torch.bool)
    held[_held(layout, width)] = True
    return value.new_zeros(layout.size).masked_scatter_(held.to(value.device), value), held


def sent_part(download: Mapping[str, Tensor], layout: Layout, width: float) -> Mapping[str, Tensor]:
    """Return what a client of this share of the ranks is sent of a model; all else is whole."""
    return download if width == 1.0 else {**download, "x": narrowed(download["x"], layout, width)}


def _held(layout: Layout, width: float) -> Tensor:
    return torch.from_numpy(layout.kept_positions(width))
