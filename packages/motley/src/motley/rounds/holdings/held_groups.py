"""The models of groups of clients in a run: a client receives and sends that of its own group
alone."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ids
from motley.engines.engine import Setting
from motley.rounds.channel import Channel
from motley.rounds.holdings.holding import Bits, Holding, View
from motley.transport.ledger import message_bits
from motley.transport.packet import PacketSpec


class HeldGroups(Holding):
    """The model of each client's group, of those that the server holds; which one is free on the
    wire, for both sides know it.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        models = [kind.zeros() for kind in setting.kinds]
        self._bits = np.array([message_bits(vars(model)) for model in models], np.int64)
        self._sizes = [
            {name: value.numel() for name, value in vars(model).items()} for model in models
        ]

    def _numbers(self, ids: Ids) -> Ids:
        return np.array([self.setting.kind_of(client) for client in ids.tolist()], np.int64)

    @override
    def bits_down(self, ids: Ids, round: int, full_bits: Ids) -> Ids:
        others = self._bits.sum() - self._bits[self._numbers(ids)]
        return np.where(full_bits > 0, full_bits - others, 0)

    @override
    def spared(self, ids: Ids, round: int, gradient: bool) -> tuple[Ids, Ids]:
        others = self._bits.sum() - self._bits[self._numbers(ids)]
        return others, np.zeros(len(ids), np.int64)

    @override
    def bits_up(self, channel: Channel, ids: Ids, round: int, view: View, full_bits: Bits) -> Bits:
        each = [self._upload_bits(channel, sizes) for sizes in self._sizes]
        up, paper = np.array(each, np.int64)[self._numbers(ids)].reshape(-1, 2).T
        return up, paper

    def _upload_bits(self, channel: Channel, sizes: dict[str, int]) -> tuple[int, int]:
        """Return the bits of an upload of a model of this size, and these as papers count them."""
        delta = PacketSpec(sizes["x"], sizes["x"], coding="float32")
        beside = {
            "buffers": PacketSpec(sizes["buffers"], sizes["buffers"], coding="float32"),
            "counters": PacketSpec(sizes["counters"], sizes["counters"], coding="int64"),
        }
        beside = {name: spec for name, spec in beside.items() if spec.size}
        return channel.upload_of(delta, beside), channel.paper_of(delta.values_bits())
