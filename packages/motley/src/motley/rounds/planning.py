"""The time that local work takes, worked out before anything is trained.

A client's seconds of computing: what is measured of the received model, what the server rule asks
besides the local work, and the local steps, each as long as the loss makes it (every forward pass
of a frozen model costs a third of a step).
"""

from __future__ import annotations

import copy
import dataclasses
from functools import partial
from typing import NamedTuple

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.core.records import Cohort
from motley.core.work import FORWARD
from motley.engines.engine import Setting
from motley.rounds import probing
from motley.rounds.holdings.held import holding_of
from motley.rounds.holdings.holding import StatesOf
from motley.rounds.measured_speeds import steps_in_time
from motley.rounds.run_config import RunConfig
from motley.timing.stragglers import Stragglers
from motley.timing.timeline import Timelines, plan, transfer_s
from motley.world.interfaces import World


class LinkLoads(NamedTuple):
    """Messages and links of a cohort, ``[m]`` each: bits, and megabits a second."""

    bits_down: Ids
    down_mbps: Floats
    bits_up: Ids
    up_mbps: Floats

    def transfers_s(self) -> Floats:
        """Return the seconds that download and upload take together, ``[m]``."""
        return transfer_s(self.bits_down, self.down_mbps) + transfer_s(self.bits_up, self.up_mbps)


def with_batch_sizes(setting: Setting, world: World) -> Setting:
    """Return the setting with the batch size that each client can hold, where the world's
    ``capacity`` limits it."""
    if world.capacity is None or not world.capacity.batch_sizes:
        return setting
    work = setting.work
    examples = setting.task.federation.seen
    key = setting.streams.key("device")
    ids = np.arange(len(examples))
    step_s = world.device.step_s(key, ids, 1, examples, work.total(examples))
    cost = None
    if world.capacity.measure == "bytes":
        sizes = np.minimum(world.capacity.batch_sizes, work.batch_size).tolist()
        cost = np.array([setting.memory(batch_size=size).total for size in sizes])
    held = world.capacity.held_batch_sizes(key.fold("capacity"), ids, step_s, work.batch_size, cost)
    return dataclasses.replace(setting, work=dataclasses.replace(work, client_batch_sizes=held))


def _whole_step_s(
    setting: Setting, world: World, ids: Ids, round: int, *, examples: Ids, steps: Ids
) -> Floats:
    """Return the seconds of a step on the whole model, of clients in a round, ``[n]``; ``examples``
    and ``steps``: of all clients, ``[K]``."""
    key = setting.streams.key("device")
    return world.device.step_s(key, ids, max(round, 1), examples[ids], steps[ids])


class WorkPlanner:
    """Plans how long clients of one run work.

    Parameters
    ----------
    config: of the run.
    reported: signals that the selector wants with an update.
    states_of: returns what clients keep now; None: nobody has taken part.

    Attributes
    ----------
    full_steps: the local steps of each client, ``[K]``.
    with_data: ids of those with any, sorted.
    """

    def __init__(
        self, config: RunConfig, reported: frozenset[str], states_of: StatesOf | None = None
    ) -> None:
        self.config = config
        self.setting = config.setting
        self.world = config.world
        self.extra_exchange = config.extra_exchange()
        self.federation = self.setting.task.federation
        self.examples = self.federation.seen
        work = self.setting.work
        self.full_steps = work.total(self.examples)
        # a function of its own, so that what clients hold does not refer back to the planner
        self._whole_step_s = partial(
            _whole_step_s, self.setting, self.world, examples=self.examples, steps=self.full_steps
        )
        if work.client_batch_sizes is not None:
            self.full_steps = work.total(self.examples, np.arange(len(self.examples)))
        self.with_data = np.flatnonzero(self.full_steps > 0)
        self.before_training = probing.pre_training_signals(
            reported, self.setting.algorithm.local.pre_training
        )
        self.holding = holding_of(self.setting, self.world, self._whole_step_s, states_of)
        self._step_factor = self.setting.step_passes
        self._epochs_beside = self.setting.algorithm.local.extra_epochs

    def chosen(self, cohort: Cohort) -> WorkPlanner:
        """Return a planner for a cohort, whose clients hold what they were chosen for."""
        if self.holding is None:
            return self
        planner = copy.copy(self)
        planner.holding = self.holding.chosen(cohort)
        return planner

    def step_s(self, ids: Ids, round: int) -> Floats:
        """Return the seconds of a pass forward and backward over a batch of the run's size,
        ``[n]``; a slice of the model takes its share of the operations."""
        whole_s = self._whole_step_s(ids, round)
        return whole_s if self.holding is None else whole_s * self.holding.work_share(ids, round)

    def local_step_s(self, ids: Ids, round: int) -> Floats:
        """Return the seconds of a pass forward and backward over a batch of the size that each
        client can hold, ``[n]``."""
        return self.step_s(ids, round) * self._batch_share(ids)

    def _batch_share(self, ids: Ids) -> float | Floats:
        work = self.setting.work
        sizes = work.client_batch_sizes
        return 1.0 if sizes is None else sizes[ids] / work.batch_size

    def step_factor(self, ids: Ids, round: int) -> float | Floats:
        """Return the passes that a local step takes, one number or ``[n]``."""
        if self.holding is None:
            return self._step_factor
        return self._step_factor * self.holding.step_factor(ids, round)

    def full_work_s(self, ids: Ids, round: int) -> Floats:
        """Return the seconds of all local steps, ``[n]``."""
        return self.step_factor(ids, round) * self.local_step_s(ids, round) * self.full_steps[ids]

    def workload(self, cohort: Cohort, up_mbps: Floats, round: int) -> dict[str, Floats]:
        """Return what an allocator may know of a cohort: the work planned before stragglers or a
        deadline cut it short."""
        steps = np.asarray(self._planned_steps(cohort), np.float64)
        seconds = self.step_factor(cohort.ids, round) * self.local_step_s(cohort.ids, round) * steps
        examples = np.asarray(self.examples[cohort.ids], np.float64)
        return {"examples": examples, "steps": steps, "compute_s": seconds, "uplink_mbps": up_mbps}

    def timelines(
        self,
        cohort: Cohort,
        loads: LinkLoads,
        dispatch: Ids,
        version: int,
        round: int,
        now_s: float,
        extra_steps: Floats,
        measured: tuple[Floats, Floats] | None = None,
    ) -> Timelines:
        """Return one timeline per client of a cohort.

        Parameters
        ----------
        dispatch: numbers of the dispatches ``[m]``.
        version: of the model sent.
        extra_steps: time that choosing what to upload takes, in local steps ``[m]``.
        measured: what the server knows of the clients' seconds, and the share of a whole upload
        that each sends, as for :func:`steps_in_time`; None: it knows all.
        """
        config = self.config
        ids = cohort.ids
        key = self.setting.streams.key("fail")
        steps = self._planned_steps(cohort)
        step_s = self.local_step_s(ids, round)
        drop_at = self.world.failures.drop_at(key, ids, round)
        if config.stragglers is not None:
            planned = steps
            steps = np.minimum(steps, self._straggler_steps(config.stragglers, ids, round))
            step_s = step_s * planned / np.maximum(steps, 1)  # slow, not idle
            drop_at = config.stragglers.with_dropped(drop_at, steps < planned)
        extra = self._extra_steps(ids, extra_steps)
        spare_s = -loads.transfers_s() - extra * step_s
        factor = self.step_factor(ids, round)
        if measured is None:
            steps = config.synchrony.steps(steps, spare_s, factor * step_s)
        else:
            steps = steps_in_time(config.synchrony, steps, *measured)
        return plan(
            client=ids,
            dispatch=dispatch,
            version=version,
            steps=steps,
            start_s=now_s,
            # a timeline knows steps alone: other work is spread over them
            step_s=step_s * (factor + extra / np.maximum(steps, 1)),
            bits_down=loads.bits_down,
            down_mbps=loads.down_mbps,
            bits_up=loads.bits_up,
            up_mbps=loads.up_mbps,
            drop_at=np.where(steps > 0, drop_at, 0.0),
        )

    def paper_s(
        self, lines: Timelines, extra_steps: Floats, paper_bits: Ids, up_mbps: Floats, round: int
    ) -> Floats:
        """Return the seconds that the papers count of these timelines, ``[m]``: local steps, and
        the values of the upload.

        Parameters
        ----------
        extra_steps: as for :meth:`timelines`.
        paper_bits: of the uploads, as the papers count them.
        """
        factor = self.step_factor(lines.client, round)
        steps = np.maximum(lines.steps, 1)
        share = factor / (factor + self._extra_steps(lines.client, extra_steps) / steps)
        counted: Floats = (lines.computed_s - lines.downloaded_s) * share + transfer_s(
            paper_bits, up_mbps
        )
        return counted

    def _extra_steps(self, ids: Ids, extra_steps: Floats) -> Floats:
        """Return the time that clients work besides their local steps, in local steps of each
        ``[m]``."""
        batches = self.setting.work.batches(self.examples[ids])
        exchange_batches = self.extra_exchange.own * batches + self.extra_exchange.batches
        passes = exchange_batches
        if self.before_training:
            work = self.setting.work
            passes = passes + probing.passes(self.before_training, self.federation, work, ids)
        beside = self._epochs_beside * batches
        extra: Floats = (passes * FORWARD + beside + extra_steps) / self._batch_share(ids)
        return extra

    def _planned_steps(self, cohort: Cohort) -> Ids:
        if cohort.local_steps is None:
            return self.full_steps[cohort.ids]
        return np.maximum(cohort.local_steps, 1)

    def _straggler_steps(self, stragglers: Stragglers, ids: Ids, round: int) -> Ids:
        """Return the steps of the epochs that each client completes, ``[m]``."""
        work = self.setting.work
        epochs = stragglers.epochs(self.setting.streams.key("device"), ids, round, work.epochs or 1)
        return np.where(
            epochs < (work.epochs or 1),
            epochs * work.batches(self.examples[ids], ids),
            self.full_steps[ids],
        )
