"""Heads of groups of clients in a run: which rows of the last layer a client holds, and what they
cost.

A head is the rows of the last linear layer for its classes. In training and examination a sample is
told from the classes of its own head alone (the other outputs are minus infinity). A client holds
the heads of the classes that occur among its training samples, usually one, and only these travel
beside the base, which is all that lies before the last layer. The base is averaged over everybody,
a head over the clients that hold it, with the same weights; a head that nobody in a round holds
stays. With one head for all classes it is FedAvg, bit for bit.

It goes with methods whose clients send one update of the whole model (FedAvg, FedProx, Ditto, APFL,
pFedMe, Per-FedAvg, FedALA, fine-tuning), plain averaging and cross-entropy without label smoothing;
other parts are refused by name, and so are compression and deployments. Left out: a loss or a depth
of its own for each head, and the choice of a head in a stored model's ``predict``, which gives the
outputs of all heads: take the largest among the group's classes.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.core.arrays import Ids
from motley.engines.engine import Setting, TrainResult
from motley.rounds.channel import Channel
from motley.rounds.holdings.holding import Bits, Holding, View
from motley.rounds.holdings.prototypes import own_classes
from motley.transport.ledger import VALUE_BITS
from motley.transport.packet import PacketSpec


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
    def bits_down(self, ids: Ids, round: int, full_bits: Ids) -> Ids:
        return np.where(full_bits > 0, full_bits - VALUE_BITS * self._left_out(ids), 0)

    @override
    def bits_up(self, channel: Channel, ids: Ids, round: int, view: View, full_bits: Bits) -> Bits:
        sizes = (self.layout.size - self._left_out(ids)).tolist()
        specs = [PacketSpec(size, size, coding="float32") for size in sizes]
        bits = [(channel.upload_of(spec), channel.paper_of(spec.values_bits())) for spec in specs]
        up, paper = np.array(bits, np.int64).reshape(-1, 2).T
        return up, paper
