"""Which share of the ranks of adapters the experiment's capacity gives a deployed client."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.engines.engine import Setting
from motley.rounds.holdings.slices import HeldSlices
from motley.world.interfaces import World
from motley_flower.deployed.client_registry import ClientRegistry


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
    setting, world: of the run.
    registry: of the clients, with what was measured.
    """

    def __init__(self, setting: Setting, world: World, registry: ClientRegistry) -> None:
        self.registry = registry
        # a rule that looks at the seconds of a step is refused
        super().__init__(setting, world, lambda ids, _: np.ones(len(ids)))
        self.timed = any(rule.measure == "round" for rule in self._chain)

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
