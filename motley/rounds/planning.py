"""The drawing board: how much each client of a cohort will do, and when. Time is planned before learning.

A client's seconds of computing: what is measured of the received model, what the server rule asks beside the local work, and the
local steps, each as long as the loss makes it (frozen models that go along cost a third of a step each).
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from motley.algorithms.base import ExtraExchange
from motley.core.arrays import Floats, Ids
from motley.core.records import Cohort
from motley.engines.base import Setting
from motley.rounds import probing
from motley.rounds.channel import Sizes
from motley.rounds.config import RunConfig
from motley.timing.stragglers import Stragglers
from motley.timing.timeline import FORWARD, Timelines, plan, transfer_s
from motley.world.base import World

__all__ = ["WorkPlanner"]


class WorkPlanner:
    """Plans the work of cohorts.

    Parameters
    ----------
    setting: of the run. exchange: what the server rule asks of participants. reported: signals the selector wants with an update.
    """

    def __init__(self, setting: Setting, extra_exchange: ExtraExchange, reported: Iterable[str]) -> None:
        self.setting, self.extra_exchange = setting, extra_exchange
        self.federation = setting.task.federation
        self.examples = self.federation.seen
        self.full_steps = setting.work.total(self.examples)
        self.first = probing.arrival(reported, setting.algorithm.correction.pre_training)
        self.longer = 1.0 + FORWARD * setting.algorithm.loss.passes

    def step_s(self, world: World, ids: Ids, round: int) -> Floats:
        """Seconds of a plain local step, ``[n]``."""
        key = self.setting.streams.key("device")
        return world.device.step_s(key, ids, max(round, 1), self.examples[ids], self.full_steps[ids])

    def work_s(self, world: World, ids: Ids, round: int) -> Floats:
        """Seconds of all local steps, ``[n]``."""
        return self.longer * self.step_s(world, ids, round) * self.full_steps[ids]

    def load(self, world: World, cohort: Cohort, up_mbps: Floats, round: int) -> dict[str, Floats]:
        """What an allocator may know of a cohort: the work that is planned before stragglers or a deadline cut it short."""
        planned = self.full_steps[cohort.ids] if cohort.local_steps is None else np.maximum(cohort.local_steps, 1)
        examples, steps = np.asarray(self.examples[cohort.ids], np.float64), np.asarray(planned, np.float64)
        seconds = self.longer * self.step_s(world, cohort.ids, round) * steps
        return {"examples": examples, "steps": steps, "compute_s": seconds, "uplink_mbps": up_mbps}

    def _ended(self, stragglers: Stragglers, ids: Ids, round: int) -> Ids:
        """Steps of the epochs that each client ends, ``[n]``."""
        work = self.setting.work
        epochs = stragglers.epochs(self.setting.streams.key("device"), ids, round, work.epochs or 1)
        return np.where(epochs < (work.epochs or 1), epochs * work.batches(self.examples[ids]), self.full_steps[ids])

    def lines(
        self, run: RunConfig, cohort: Cohort, bits: Sizes, speeds: tuple[Floats, Floats],
        dispatch: int, version: int, round: int, now_s: float, besides: Floats | float = 0.0,
    ) -> Timelines:  # fmt: skip
        """One timeline per client of a cohort.

        Parameters
        ----------
        bits, speeds: of its messages and its links, up and down. dispatch: number of the first. version: of the model sent.
        besides: local steps that its upload takes to be made.
        """
        up, down = speeds
        ids = cohort.ids
        steps = self.full_steps[ids] if cohort.local_steps is None else np.maximum(cohort.local_steps, 1)
        plain_s = self.step_s(run.world, ids, round)
        gone = run.world.failures.drop_at(self.setting.streams.key("fail"), ids, round)
        if run.stragglers is not None:
            whole, steps = steps, np.minimum(steps, self._ended(run.stragglers, ids, round))
            plain_s = plain_s * whole / np.maximum(steps, 1)  # slow, not idle
            gone = np.where((steps < whole) & (run.stragglers.partial == "drop"), np.fmin(gone, 1.0), gone)
        asked = self.extra_exchange.own * self.setting.work.batches(self.examples[ids]) + self.extra_exchange.batches
        met = (probing.passes(self.first, self.federation, self.setting.work, ids) + asked) * FORWARD
        spare_s = -(transfer_s(bits.down, down) + transfer_s(bits.up, up)) - (met + besides) * plain_s
        steps = run.synchrony.steps(steps, spare_s, self.longer * plain_s)
        before = (met + besides) / np.maximum(steps, 1)
        return plan(
            client=ids,
            dispatch=dispatch + np.arange(len(ids)),
            version=version,
            steps=steps,
            start_s=now_s,
            step_s=plain_s * (self.longer + before),
            bits_down=bits.down,
            down_mbps=down,
            bits_up=bits.up,
            up_mbps=up,
            drop_at=np.where(steps > 0, gone, 0.0),
        )
