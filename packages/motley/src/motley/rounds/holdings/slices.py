"""Clients of less capacity in a run: how wide their slices are, what these cost in time and
traffic, and the models of each width."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterable
from functools import cache

import numpy as np
import torch
from typing_extensions import override

from motley.algorithms.parts import Slicing
from motley.core.adapters import merged_of
from motley.core.arrays import Floats, Ids
from motley.core.records import Cohort
from motley.engines.engine import Setting
from motley.rounds.channel import Channel
from motley.rounds.examined_models import ExaminedModels
from motley.rounds.holdings.holding import Bits, Holding, StatesOf, StepSeconds, View
from motley.tasks.task import ModelState
from motley.timing.timeline import transfer_s
from motley.transport.ledger import VALUE_BITS
from motley.transport.packet import PacketSpec
from motley.transport.wire import length
from motley.world.interfaces import World

COUNTER_BITS = 64
"""Bits of an integer buffer on the wire."""


class HeldSlices(Holding):
    """Slices, as wide as each client can hold; positions are free on the wire, for server and
    client both know width and round. Those of single weights, which follow from the server's model,
    travel with the download.

    Parameters
    ----------
    setting, world: of the run.
    step_s: the seconds of a step on the whole model, of clients in a round.
    states_of: returns what clients keep now; None: nobody has taken part.
    """

    def __init__(
        self,
        setting: Setting,
        world: World,
        step_s: StepSeconds,
        states_of: StatesOf | None = None,
    ) -> None:
        super().__init__(setting)
        self.slicing = setting.algorithm.local.slicing or Slicing()
        limited = world.capacity is not None and not world.capacity.batch_sizes
        self.capacity = world.capacity if limited else None
        self._chain = self.capacity.chain if self.capacity is not None else []
        self._chosen: dict[int, float] = {}
        self._network = world.network
        self.cut = limited or self.slicing.prunes
        self._states_of = states_of if self.slicing.prunes else None
        levels = {level for capacity in self._chain for level in capacity.levels}
        self.listed = self.slicing.widths or tuple(sorted(levels, reverse=True))
        self.sizes = SliceSizes(setting)
        self._step_s = step_s
        self._key = setting.streams.key("device").fold("capacity")
        self._share = cache(setting.work_share)
        self._known: dict[tuple[str, tuple[float, ...]], Floats | None] = {}
        if any(capacity.measure == "bytes" for capacity in self._chain):
            self.widths(np.arange(len(setting.task.federation)), 1)  # refuses who holds nothing

    @override
    def widths(self, ids: Ids, round: int) -> Floats:
        """See :meth:`Holding.widths`. A method that lists widths gives a client the widest of them
        that it can hold; who gave some of it up holds what is left."""
        held = self._given(ids, round)
        if self._states_of is None:
            return held
        share = self.setting.algorithm.local.held_share
        states = self._states_of(ids.tolist())
        return np.minimum(held, [share(states.get(k)) for k in ids.tolist()])

    @override
    def chosen(self, cohort: Cohort) -> Holding:
        """See :meth:`Holding.chosen`. A cohort without scores, of a plan, holds what it can."""
        if self.capacity is None or cohort.scores is None:
            return self
        shares = self.capacity.chosen(cohort.ids, cohort.scores)
        holding = copy.copy(self)
        holding._chosen = dict(zip(cohort.ids.tolist(), shares.tolist(), strict=True))
        return holding

    def _given(self, ids: Ids, round: int) -> Floats:
        """Return the width that each client can hold in a round, or is given if it is chosen."""
        held = np.ones(len(ids))
        for capacity in self._chain:
            if capacity.measure != "round":
                cost = self._cost(capacity.measure, capacity.levels)
            else:
                cost = self.round_s(ids, round, capacity.levels)
            step_s = self._step_s(ids, round)
            held = np.minimum(held, capacity.widths(self._key, ids, max(round, 1), step_s, cost))
        if self._chosen:
            held = np.minimum(held, [self._chosen.get(k, 1.0) for k in ids.tolist()])
        if self.capacity is None or not self.slicing.widths:
            return held
        rising = np.array(self.slicing.widths[::-1])
        return np.asarray(
            # 1e-9: shares of the width come from divisions, and one that is a width but for its
            # last bit must not fall to the width below.
            rising[np.maximum(np.searchsorted(rising, held + 1e-9, side="right") - 1, 0)],
            np.float64,
        )

    def level_costs(self, levels: Iterable[float]) -> tuple[Floats, Floats]:
        """Return what each level takes, ``[levels]`` each: the operations of a step, as a share of
        those on the whole model, and the bits of a message one way, without headers."""
        levels = list(levels)
        # a product of stacks stays where it is, and nobody sends it
        if self.slicing.merges:
            merged = sum(entry.size for entry in merged_of(self.setting.task.layout))
        else:
            merged = 0
        sizes = [self.sizes.parts(level) for level in levels]
        bits = [_bits(x, buffers - merged, counters) for x, buffers, counters in sizes]
        shares = [self._share(level) for level in levels]
        return np.array(shares, np.float64), np.array(bits, np.float64)

    def round_s(self, ids: Ids, round: int, levels: tuple[float, ...]) -> Floats:
        """Return the seconds of each client's round at each level, ``[n, levels]``."""
        shares, bits = self.level_costs(levels)
        work = self.setting.work.total(self.setting.task.federation.seen[ids])
        steps_s = self._step_s(ids, round) * work * self.setting.step_passes
        key = self.setting.streams.key("network")
        now = max(round, 1)
        links = (
            self._network.downlink_mbps(key, ids, now),
            self._network.uplink_mbps(key, ids, now),
        )
        places = np.array([self.sizes.place_bits(level) for level in levels], np.float64)
        messages = (bits + places, bits)
        travels_s = sum(
            transfer_s(sent[None, :], mbps[:, None])
            for sent, mbps in zip(messages, links, strict=True)
        )
        seconds: Floats = steps_s[:, None] * shares + travels_s
        return seconds

    def _cost(self, measure: str, levels: tuple[float, ...]) -> Floats | None:
        """See :meth:`_costs`; a cache of this object's own method would keep the run's data."""
        if (measure, levels) not in self._known:
            self._known[measure, levels] = self._costs(measure, levels)
        return self._known[measure, levels]

    def _costs(self, measure: str, levels: tuple[float, ...]) -> Floats | None:
        """Return the bytes that training takes at each level, or the share of a step's seconds: for
        ranks it is far from the square, for most of a step is the base model; None for widths."""
        if measure == "bytes":
            return np.array([self.setting.memory(level).total for level in levels])
        if not self.slicing.ranks:
            return None
        return np.array([self._share(level) for level in levels])

    @override
    def offset(self, version: int) -> int:
        return self.slicing.offset(version)

    @override
    def work_share(self, ids: Ids, round: int) -> float | Floats:
        if not self.cut:
            return 1.0
        return np.array([self._share(width) for width in self.widths(ids, round).tolist()])

    @override
    def step_factor(self, ids: Ids, round: int) -> float | Floats:
        """See :meth:`Holding.step_factor`: 1, but where each batch draws a width."""
        if not self.slicing.widths:
            return 1.0
        return np.array([self._passes(width) for width in self.widths(ids, round).tolist()])

    def _passes(self, width: float) -> float:
        drawn = [self._share(p) / self._share(width) for p in self.slicing.widths if p <= width]
        return (sum(drawn) + self.slicing.distils * (len(drawn) - 1)) / len(drawn)

    @override
    def bits_down(self, ids: Ids, round: int, full_bits: Ids) -> Ids:
        return np.where(
            full_bits > 0, full_bits - self.sizes.saved_bits(self.widths(ids, round)), 0
        )

    @override
    def bits_up(self, channel: Channel, ids: Ids, round: int, view: View, full_bits: Bits) -> Bits:
        return self.sizes.upload_bits(channel, self.widths(ids, round))

    @override
    def spared(self, ids: Ids, round: int, gradient: bool) -> tuple[Ids, Ids]:
        widths = self.widths(ids, round)
        return self.sizes.saved_bits(widths), gradient * self.sizes.saved_values(widths)


class SliceSizes:
    """The lengths of slices of each width.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.layout = setting.task.layout
        self.slicing = setting.algorithm.local.slicing or Slicing()
        self._parts: dict[float, tuple[int, int, int]] = {}
        sets = max(1, len(self.slicing.widths))
        layout = self.layout
        self._whole = _bits(
            layout.size,
            sets * sum(e.size for e in layout.buffers),
            sets * sum(e.size for e in layout.counters),
        )

    def parts(self, width: float) -> tuple[int, int, int]:
        """Return how many parameters, floating and integer buffers travel with a slice of this
        width: statistics of BatchNorm for each listed width up to its own, none where it is
        static."""
        if width not in self._parts:
            self._parts[width] = self._count(width)
        return self._parts[width]

    def _count(self, width: float) -> tuple[int, int, int]:
        ordered = self.slicing.widths
        counters = sum(entry.size for entry in self.layout.counters)
        if ordered:
            sets = [p for p in ordered if p <= width]
        else:
            sets = [] if self.slicing.static_norm else [width]
        buffers = sum(len(self.layout.kept_buffers(p)) for p in sets)
        return self.setting.held_size(width), buffers, len(sets) * counters

    def place_bits(self, width: float) -> int:
        """Return the bits of the positions that travel to a client with its slice."""
        if not self.slicing.masks:
            return 0
        sent = self.parts(width)[0]
        sparse = PacketSpec(self.layout.size, sent, "indices")
        return 8 * (length({"x": sparse}) - length({"x": PacketSpec(sent, sent)}))

    def saved_bits(self, widths: Floats) -> Ids:
        """Return how many bits a slice is smaller than the whole message of the model, ``[n]``."""
        return np.array(
            [
                self._whole - _bits(*self.parts(width)) - self.place_bits(width)
                for width in widths.tolist()
            ],
            np.int64,
        )

    def saved_values(self, widths: Floats) -> Ids:
        """Return how many parameters fewer than the whole model a slice has, ``[n]``."""
        return np.array(
            [self.layout.size - self.parts(width)[0] for width in widths.tolist()], np.int64
        )

    def upload_bits(self, channel: Channel, widths: Floats) -> tuple[Ids, Ids]:
        """Return the bits of each upload, and these as papers count them, ``[n]`` each."""
        bits = []
        papers = []
        for width in widths.tolist():
            size, buffers, counters = self.parts(width)
            delta = PacketSpec(size, size, coding="float32")
            buffer_specs = {
                "buffers": PacketSpec(buffers, buffers, coding="float32"),
                "counters": PacketSpec(counters, counters, coding="int64"),
            }
            specs = {name: spec for name, spec in buffer_specs.items() if spec.size}
            # of fewer ranks all else is whole
            bits.append(channel.upload_of(delta, None if self.slicing.ranks else specs))
            papers.append(channel.paper_of(delta.values_bits()))
        return np.array(bits, np.int64), np.array(papers, np.int64)


def _bits(values: int, buffers: int, counters: int) -> int:
    return VALUE_BITS * (values + buffers) + COUNTER_BITS * counters


class SliceModels(ExaminedModels):
    """The model at each width, as a whole model that is 0 outside of the slice, and so computes
    what the slice does."""

    @override
    def of_width(self, width: float) -> ModelState:
        slicing = self.setting.algorithm.local.slicing or Slicing()
        layout = self.setting.task.layout
        state = super().of_width(width)
        if width < 1.0 and slicing.masks:
            held = self.setting.algorithm.local.held(state.x, width)
            state = dataclasses.replace(state, x=state.x * held)
        elif width < 1.0:
            positions = layout.kept_positions(width, slicing.offset(self.version))
            index = torch.from_numpy(positions).to(state.x.device)
            x = torch.zeros_like(state.x).index_copy_(0, index, state.x[index])
            state = dataclasses.replace(state, x=x)
        if slicing.widths:
            rows = (
                self.download[name].view(len(slicing.widths), -1)
                for name in ("buffers", "counters")
            )
            buffers, counters = (row[slicing.widths.index(width)] for row in rows)
            state = dataclasses.replace(state, buffers=buffers, counters=counters)
        return state
