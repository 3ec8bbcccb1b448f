"""The channel: every message passes here and is billed where it passes.

A client that already holds the model of this version (it was probed in this round) is not sent it again. An upload costs what its
:mod:`~motley.transport.wire` message is long, heads and places included; models and single numbers 32 bits a value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.base import Correction, ExtraExchange, JobContext, Parts, ServerState, Tensors
from motley.core.arrays import Ids
from motley.core.layout import Layout
from motley.engines.base import TrainResult
from motley.tasks.base import ModelState
from motley.transport.ledger import VALUE_BITS, Ledger, message_bits, paper_bits
from motley.transport.packet import PacketSpec
from motley.transport.wire import length

__all__ = ["Channel", "Sizes", "empty_upload"]

Shapes = Mapping[str, tuple[int, ...]]


class Sizes(NamedTuple):
    """Bits down and up per client ``[n]``."""

    down: Ids
    up: Ids


class Channel:
    """Sizes messages and posts them to the ledger; the ledger's rounds are server steps (what was posted before which step).

    Parameters
    ----------
    parts: of a whole upload. exchange: what the server rule asks beside it. without: names of parts that stay at the clients.
    ledger: to go on with.

    Attributes
    ----------
    upload_bits: of a whole upload, buffers and counters included. paper_bits: 32 for each of its ``mean`` and ``sum`` values.
    """

    def __init__(
        self, parts: Parts, extra_exchange: ExtraExchange, without: Iterable[str] = (), ledger: Ledger | None = None
    ) -> None:
        self.without = frozenset(without)
        self.shapes = _shapes(parts)
        parts = {name: part for name, part in parts.items() if name not in self.without}
        self.forms = {name: _form(part.value) for name, part in parts.items() if part.value.numel()}
        self.answer_bits, self._more = VALUE_BITS * extra_exchange.down, VALUE_BITS * extra_exchange.up
        self.upload_bits = self.upload_of()
        update = {name: part.value for name, part in parts.items() if part.fold in ("mean", "sum")}
        self.paper_bits = paper_bits(update) + self._more
        self.ledger = ledger or Ledger()
        self._holders: tuple[int, Ids] = (-1, np.zeros(0, np.int64))  # a version, and who was sent it in this round

    @classmethod
    def between(
        cls, correction: Correction, server: ServerState, first: ModelState, layout: Layout, extra_exchange: ExtraExchange,
        without: Iterable[str] = (),
    ) -> Channel:  # fmt: skip
        """The channel for a method's messages: an upload's size is that of :func:`unmoved`, and of what the server rule asks beside
        it. ``first``: the model that clients begin with."""
        return cls(empty_upload(correction, server, first, layout), extra_exchange, without)

    def upload_of(self, delta: PacketSpec | None = None) -> int:
        """Bits of an upload whose update has this form; None: of a whole one."""
        forms = self.forms if delta is None else {**self.forms, "delta": delta}
        return 8 * length(forms) * bool(forms) + self._more

    def paper_of(self, delta_bits: int) -> int:
        """Bits of an upload whose update is worth so many, as papers count."""
        return self.paper_bits - self.forms["delta"].values_bits() + delta_bits

    def checked(self, stream: Iterable[TrainResult]) -> Iterator[TrainResult]:
        """What clients send; an upload with other parts or shapes than the method's is rejected like one that is not finite."""
        for trained in stream:
            parts = {name: part for name, part in trained.parts.items() if name not in self.without}
            yield dataclasses.replace(trained, parts=parts, finite=trained.finite and _shapes(trained.parts) == self.shapes)

    def sizes(self, download: Tensors, ids: Ids, version: int, up: Ids) -> Sizes:
        """What sending ``download`` and the server's answer to these clients, and getting uploads of ``up`` bits back, takes."""
        return Sizes(self._model(download, ids, version) + self.answer_bits, up)

    def _model(self, download: Tensors, ids: Ids, version: int) -> Ids:
        """Bits of the model to who does not hold it."""
        held, who = self._holders
        needs = ~np.isin(ids, who) if held == version else np.ones(len(ids), bool)
        return np.where(needs, message_bits(download), 0)

    def whole(self, download: Tensors) -> tuple[int, int]:
        """Bits down of a client that holds nothing yet, and bits up of a whole update."""
        return message_bits(download) + self.answer_bits, self.upload_bits

    def enrol(self, ids: Ids, numbers: int) -> None:
        """Every client tells so many numbers once, before round 1."""
        self.ledger.post("enrol", "up", ids, VALUE_BITS * numbers, round=0)

    def probe(self, ids: Ids, download: Tensors, version: int, round: int, numbers: int) -> Sizes:
        """Bill a probe: so many numbers measured on the model by each and sent up, the model first sent to who does not hold it."""
        down = self._model(download, ids, version) if numbers else np.zeros(len(ids), np.int64)
        up = np.full(len(ids), VALUE_BITS * numbers)
        self.ledger.post("probe", "down", ids, down, round)
        self.ledger.post("probe", "up", ids, up, round)
        if numbers:
            self._holders = (version, ids)
        return Sizes(down, up)

    def send(self, ids: Ids, bits: Ids, round: int) -> None:
        """Bill the model going out to a cohort; what a probe sent out is forgotten, the next round has another version."""
        self.ledger.post("model", "down", ids, bits, round)
        self._holders = (-1, np.zeros(0, np.int64))

    def receive(self, ids: Ids, bits: Ids, paper_bits: Ids, sent: NDArray[np.bool_], round: int) -> None:
        """Bill the updates that came. A late or rejected one is paid for; a dropped client sent nothing."""
        self.ledger.post("upload", "up", ids[sent], bits[sent], round, paper_bits=paper_bits[sent])

    def recalibrate(self, ids: Ids, download: Tensors, round: int) -> Sizes:
        """Bill the new model going to each of these clients, and its statistics coming back."""
        down = np.full(len(ids), message_bits(download))
        up = np.full(len(ids), message_bits({name: download[name] for name in ("buffers", "counters")}))
        self.ledger.post("recalibrate", "down", ids, down, round)
        self.ledger.post("recalibrate", "up", ids, up, round)
        return Sizes(down, up)

    def round_row(self) -> dict[str, int]:
        """The traffic columns of the table ``rounds``."""
        ledger = self.ledger
        return {
            "down_bits": ledger.current("model", "down"), "up_bits": ledger.current("upload", "up"),
            "probe_down_bits": ledger.current("probe", "down"), "probe_up_bits": ledger.current("probe", "up"),
            "up_paper_bits": ledger.round_paper_bits, "total_bits": ledger.total_bits,
            "total_up_bits": ledger.total(direction="up"), "total_up_paper_bits": ledger.paper_bits,
        }  # fmt: skip


def empty_upload(correction: Correction, server: ServerState, first: ModelState, layout: Layout) -> Parts:
    """The upload of a client whose model did not move: no other has other parts or shapes. ``first``: the model that clients begin
    with."""
    download, memory = correction.download(server), correction.initial_state(first)
    start = correction.start(download, memory)
    return correction.finish(start, JobContext(start.x, download, memory, 1, 1.0, 1, 1.0, layout))[0]


def _form(value: Tensor) -> PacketSpec:
    """How a whole part is written; real numbers always in 32 bits, whatever a run computes in."""
    n = value.numel()
    return PacketSpec(n, n, coding="float32" if value.is_floating_point() else "int64")


def _shapes(parts: Parts) -> Shapes:
    return {name: tuple(part.value.shape) for name, part in parts.items()}
