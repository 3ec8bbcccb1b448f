"""Clients of less capacity in a run: how wide their slices are, and what these cost in time and traffic."""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Floats, Ids
from motley.engines.base import Setting
from motley.rounds.channel import Channel
from motley.transport.ledger import VALUE_BITS
from motley.transport.packet import PacketSpec
from motley.world.base import World

__all__ = ["SliceSizes", "SliceWidths"]


class SliceWidths:
    """The widths of clients' slices, and the operations of a local step on them.

    Parameters
    ----------
    setting, world: of the run.

    Attributes
    ----------
    cut: whether any client may hold less than the whole model.
    """

    def __init__(self, setting: Setting, world: World) -> None:
        self.setting, self.capacity, self.cut = setting, world.capacity, world.capacity is not None
        self._key = setting.streams.key("device").fold("capacity")
        self._shares: dict[float, float] = {}

    def of(self, ids: Ids, round: int, step_s: Floats) -> Floats:
        """Return the width of each client's slice in a round ``[n]``; ``step_s``: seconds of a step on the whole model."""
        return np.ones(len(ids)) if self.capacity is None else self.capacity.widths(self._key, ids, max(round, 1), step_s)

    def work_share(self, widths: Floats) -> Floats:
        """Return the operations of a step on slices of these widths, as shares of those on the whole model, ``[n]``."""
        for width in np.unique(widths).tolist():
            self._shares.setdefault(width, self.setting.work_share(width) if width not in self._shares else 1.0)
        return np.array([self._shares[width] for width in widths.tolist()])


class SliceSizes:
    """The messages of clients that train slices; positions are free, for server and client both know width and round.

    Parameters
    ----------
    setting: of the run. channel: sizes of whole messages.
    """

    def __init__(self, setting: Setting, channel: Channel) -> None:
        self.layout, self.channel = setting.task.layout, channel
        self._sizes: dict[float, int] = {1.0: self.layout.size}

    def values(self, widths: Floats) -> Ids:
        """Return the number of parameters of each slice, ``[n]``."""
        for width in set(widths.tolist()) - self._sizes.keys():
            self._sizes[width] = self.layout.kept_size(width)
        return np.array([self._sizes[width] for width in widths.tolist()], np.int64)

    def saved_bits(self, widths: Floats) -> Ids:
        """Return how many bits a slice is smaller than the whole model, ``[n]``."""
        return VALUE_BITS * (self.layout.size - self.values(widths))

    def upload_bits(self, widths: Floats) -> tuple[Ids, Ids]:
        """Return the bits of each upload, and these as papers count them, ``[n]`` each."""
        sizes = self.values(widths).tolist()
        specs = [PacketSpec(size, size, coding="float32") for size in sizes]
        bits = np.array([self.channel.upload_of(spec) for spec in specs], np.int64)
        return bits, np.array([self.channel.paper_of(spec.values_bits()) for spec in specs], np.int64)
