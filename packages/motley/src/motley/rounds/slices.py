"""Clients of less capacity in a run: how wide their slices are, what these cost in time and
traffic, and the models of each width."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache

import numpy as np
import torch

from motley.algorithms.base import ClientState, ServerState, Slicing
from motley.core.arrays import Floats, Ids
from motley.engines.base import Setting
from motley.rounds.channel import Channel
from motley.rounds.evaluation import Personal
from motley.tasks.base import ModelState
from motley.transport.ledger import VALUE_BITS
from motley.transport.packet import PacketSpec
from motley.world.base import World

__all__ = ["SliceModels", "SliceSizes", "SliceWidths"]

COUNTER_BITS = 64
"""Bits of an integer buffer on the wire."""


class SliceWidths:
    """The widths of clients' slices, and the operations of a local step on them.

    Parameters
    ----------
    setting, world: of the run.

    Attributes
    ----------
    cut: whether any client may hold less than the whole model. listed: the widths that a client may
    have or train, falling.
    """

    def __init__(self, setting: Setting, world: World) -> None:
        capacity = (
            None if world.capacity is not None and world.capacity.batch_sizes else world.capacity
        )
        self.setting = setting
        self.capacity = capacity
        self.cut = capacity is not None
        self.slicing = setting.algorithm.local.slicing or Slicing()
        self._ordered = self.slicing.widths
        self.listed = self._ordered or (() if capacity is None else tuple(capacity.levels))
        self._key = setting.streams.key("device").fold("capacity")
        self._share = cache(setting.work_share)

    def of(self, ids: Ids, round: int, step_s: Floats) -> Floats:
        """Return the width of each client's slice in a round ``[n]``; ``step_s``: seconds of a step
        on the whole model.

        A method that lists widths gives a client the widest of them that it can hold."""
        if self.capacity is None:
            return np.ones(len(ids))
        held = self.capacity.widths(self._key, ids, max(round, 1), step_s)
        if not self._ordered:
            return held
        rising = np.array(self._ordered[::-1])
        return np.asarray(
            rising[np.maximum(np.searchsorted(rising, held + 1e-9, side="right") - 1, 0)],
            np.float64,
        )

    def work_share(self, widths: Floats) -> Floats:
        """Return the operations of a pass through slices of these widths, as shares of those
        through the whole model, ``[n]``."""
        return np.array([self._share(width) for width in widths.tolist()])

    def step_factor(self, widths: Floats) -> Floats:
        """Return how many passes through a client's whole slice a local step takes, ``[n]``: 1, but
        where each batch draws a width."""
        return np.array([self._passes(width) for width in widths.tolist()])

    def _passes(self, width: float) -> float:
        drawn = [self._share(p) / self._share(width) for p in self._ordered if p <= width]
        if not drawn:
            return 1.0
        return (sum(drawn) + self.slicing.distils * (len(drawn) - 1)) / len(drawn)


class SliceSizes:
    """The messages of clients that train slices; positions are free, for server and client both
    know width and round.

    Parameters
    ----------
    setting: of the run. channel: sizes of whole messages.
    """

    def __init__(self, setting: Setting, channel: Channel) -> None:
        self.layout = setting.task.layout
        self.channel = channel
        self.slicing = setting.algorithm.local.slicing or Slicing()
        self._parts: dict[float, tuple[int, int, int]] = {}
        sets = max(1, len(self.slicing.widths))
        whole = self.layout
        self._whole = _bits(
            whole.size,
            sets * sum(e.size for e in whole.buffers),
            sets * sum(e.size for e in whole.counters),
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
        sets = (
            [p for p in ordered if p <= width]
            if ordered
            else []
            if self.slicing.static_norm
            else [width]
        )
        buffers = sum(len(self.layout.kept_buffers(p)) for p in sets)
        return self.layout.kept_size(width), buffers, len(sets) * counters

    def saved_bits(self, widths: Floats) -> Ids:
        """Return how many bits a slice is smaller than the whole message of the model, ``[n]``."""
        return np.array(
            [self._whole - _bits(*self.parts(width)) for width in widths.tolist()], np.int64
        )

    def saved_values(self, widths: Floats) -> Ids:
        """Return how many parameters fewer than the whole model a slice has, ``[n]``."""
        return np.array(
            [self.layout.size - self.parts(width)[0] for width in widths.tolist()], np.int64
        )

    def upload_bits(self, widths: Floats) -> tuple[Ids, Ids]:
        """Return the bits of each upload, and these as papers count them, ``[n]`` each."""
        bits = []
        papers = []
        for width in widths.tolist():
            size, buffers, counters = self.parts(width)
            delta = PacketSpec(size, size, coding="float32")
            others = {
                "buffers": PacketSpec(buffers, buffers, coding="float32"),
                "counters": PacketSpec(counters, counters, coding="int64"),
            }
            specs = {name: spec for name, spec in others.items() if spec.size}
            bits.append(self.channel.upload_of(delta, specs))
            papers.append(self.channel.paper_of(delta.values_bits()))
        return np.array(bits, np.int64), np.array(papers, np.int64)


def _bits(values: int, buffers: int, counters: int) -> int:
    return VALUE_BITS * (values + buffers) + COUNTER_BITS * counters


class SliceModels:
    """The model at each width, as a whole model that is 0 outside of the slice, and so computes
    what the slice does.

    Parameters
    ----------
    setting: of the run. server: state of the server. version: number of its model. memory: what a
    client keeps that never took part.
    collected: returns a model with BatchNorm statistics; None: those that it has.
    """

    def __init__(
        self,
        setting: Setting,
        server: ServerState,
        version: int,
        memory: ClientState | None,
        collected: Callable[[ModelState], ModelState] | None,
    ) -> None:
        self.setting = setting
        self.version = version
        self.memory = memory
        self.collected = collected
        self.download = setting.algorithm.local.download(server)
        self._models: dict[float, ModelState] = {}

    def at(self, width: float) -> ModelState:
        """Return the model of this width; 1: the whole one."""
        if width not in self._models:
            self._models[width] = self._made(width)
        return self._models[width]

    def _made(self, width: float) -> ModelState:
        slicing = self.setting.algorithm.local.slicing or Slicing()
        layout = self.setting.task.layout
        whole = self.setting.algorithm.local.start(self.download, self.memory)
        if width < 1.0:
            kept = torch.from_numpy(layout.kept_positions(width, slicing.offset(self.version))).to(
                whole.x.device
            )
            whole = dataclasses.replace(
                whole, x=torch.zeros_like(whole.x).index_copy_(0, kept, whole.x[kept])
            )
        if slicing.widths:
            rows = (
                self.download[name].view(len(slicing.widths), -1)
                for name in ("buffers", "counters")
            )
            buffers, counters = (row[slicing.widths.index(width)] for row in rows)
            whole = dataclasses.replace(whole, buffers=buffers, counters=counters)
        return whole if self.collected is None else self.collected(whole)

    def of(self, widths: Floats) -> Personal:
        """Return the models of clients at their own widths ``[K]``."""
        return lambda clients: (self.at(float(widths[k])) for k in clients)
