"""Low-rank adapters of which a deployed client holds the first ranks: what of the model travels,
and which share the experiment's capacity gives a client.

A client says when it is met which share of the ranks it can hold: ``share`` in its node's
configuration and, under ``by_memory``, what fits into the node's ``memory_mb``. Every request names
the share that the client trains now, at most this, and brings that part of the model; the upload
covers the same part. Positions are free, for both sides know the share
(:mod:`motley.algorithms.ranked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.layout import Layout
from motley.engines.engine import Setting
from motley.rounds.slices import HeldSlices
from motley.world.interfaces import World

if TYPE_CHECKING:
    from motley_flower.deployed.client_registry import ClientRegistry

__all__ = ["MeasuredSlices", "narrowed", "sent_part", "widened"]


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


class MeasuredSlices(HeldSlices):
    """The share of the ranks that the experiment's capacity gives each deployed client, by the
    seconds that were measured of it.

    INTERPRETATION: under ``by_deadline`` a client of which no round was measured is given the
    widest level. From then on its last measured round is scaled from the share that it trained to
    each level as a simulation's rounds are: seconds per step by the operations of a step, all
    other seconds (both messages, and what Flower does between them) by the bits of the model.
    Of a smaller share these others are more than that, for some of them are the same whatever is
    sent; of a larger one less. So a client that is too slow for a level goes below it, and comes
    back only if that level fits by this estimate.

    Parameters
    ----------
    setting, world: of the run. registry: of the clients, with what was measured.
    """

    def __init__(self, setting: Setting, world: World, registry: ClientRegistry) -> None:
        self.registry = registry
        # a rule that looks at the seconds of a step is refused
        super().__init__(setting, world, lambda ids, _: np.ones(len(ids)))
        self.timed = any(one.measure == "round" for one in self._chain)

    def speed(self, ids: Ids, widths: Floats) -> Floats:
        """Return the seconds of a step, a download and an upload with these shares, ``[n, 3]``;
        NaN for a client of which no round was measured."""
        work, bits = self.level_costs(widths.tolist())
        measured_work, measured_bits = self.level_costs(self.registry.trained[ids].tolist())
        factors = [work / measured_work, bits / measured_bits, bits / measured_bits]
        return np.asarray(self.registry.speed[ids] * np.stack(factors, axis=1), np.float64)

    @override
    def round_s(self, ids: Ids, round: int, levels: tuple[float, ...]) -> Floats:
        steps = self.setting.work.total(self.registry.examples[ids])
        seconds = np.zeros((len(ids), len(levels)))
        for i, level in enumerate(levels):
            step_s, down_s, up_s = self.speed(ids, np.full(len(ids), level)).T
            seconds[:, i] = steps * step_s + down_s + up_s
        return np.nan_to_num(seconds)  # all levels fit a client of which nothing is known

    @override
    def _costs(self, measure: str, levels: tuple[float, ...]) -> Floats | None:
        # what fits into its memory a client says itself
        return np.zeros(len(levels)) if measure == "bytes" else super()._costs(measure, levels)


def _held(layout: Layout, width: float) -> Tensor:
    return torch.from_numpy(layout.kept_positions(width))
