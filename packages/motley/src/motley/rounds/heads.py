"""Heads of groups of clients in a run: which rows of the last layer a client holds, and what they
cost.

A client holds the heads of the classes that occur among its training samples. Its upload counts in
the mean of these heads and of all that lies before the last layer; so a head is averaged over the
clients that hold it, and the base over everybody.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.core.arrays import Ids
from motley.engines.base import Setting, TrainResult
from motley.rounds.channel import Channel
from motley.rounds.holding import Bits, Holding, View
from motley.rounds.prototypes import own_classes
from motley.transport.ledger import VALUE_BITS
from motley.transport.packet import PacketSpec

__all__ = ["HeldHeads"]


class HeldHeads(Holding):
    """The heads of the classes that each client has; a probe is billed with all of them.

    Parameters
    ----------
    setting: of the run, its task has several heads.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        data = setting.task.federation
        heads = np.array(setting.task.heads)
        self.layout = setting.task.layout
        own = own_classes(data, np.arange(len(data)))
        self.classes = np.stack([own[:, heads == heads[c]].any(1) for c in range(len(heads))], 1)
        self._last = [entry for entry in self.layout if entry.linear][-1].layer
        self._row = sum(entry.size for entry in self.layout if entry.layer == self._last) // len(
            heads
        )

    def held(self, client: int) -> Tensor:
        """Return which parameters of the model a client holds, bool ``[D]``."""
        out = torch.ones(self.layout.size, dtype=torch.bool)
        classes = torch.from_numpy(self.classes[client])
        for entry in self.layout:
            if entry.layer == self._last:
                out[entry.slice] = classes.repeat_interleave(entry.size // len(classes))
        return out

    @override
    def cover(self, result: TrainResult) -> TrainResult:
        delta = result.parts["delta"]._replace(fold="covered", held=self.held(result.client))
        return dataclasses.replace(result, parts={**result.parts, "delta": delta})

    def _left_out(self, ids: Ids) -> Ids:
        """Return how many parameters fewer than the whole model each client holds, ``[n]``."""
        numbers: Ids = self._row * (~self.classes[ids]).sum(1)
        return numbers

    @override
    def bits_down(self, ids: Ids, round: int, whole: Ids) -> Ids:
        return np.where(whole > 0, whole - VALUE_BITS * self._left_out(ids), 0)

    @override
    def bits_up(self, channel: Channel, ids: Ids, round: int, view: View, whole: Bits) -> Bits:
        sizes = (self.layout.size - self._left_out(ids)).tolist()
        specs = [PacketSpec(size, size, coding="float32") for size in sizes]
        bits = [(channel.upload_of(spec), channel.paper_of(spec.values_bits())) for spec in specs]
        up, paper = np.array(bits, np.int64).reshape(-1, 2).T
        return up, paper
