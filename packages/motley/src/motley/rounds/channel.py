"""The channel: how large every message of a run is, and its entry in the traffic ledger.

A client that was sent this version's model for a probe in the same round is not sent it again. An
upload costs as many bits as its :mod:`~motley.transport.wire` message is long, headers included;
models and single numbers count 32 bits a value.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from torch import Tensor

from motley.algorithms.parts import (
    UPDATES,
    ExtraExchange,
    JobContext,
    LocalRule,
    Parts,
    ServerState,
    Tensors,
)
from motley.core.arrays import Floats, Ids
from motley.core.layout import Layout
from motley.engines.engine import TrainResult
from motley.tasks.task import ModelState
from motley.transport.ledger import VALUE_BITS, Ledger, message_bits, paper_bits
from motley.transport.packet import PacketSpec
from motley.transport.wire import length

Shapes = Mapping[str, tuple[int, ...]]


def shapes_of(parts: Parts) -> Shapes:
    """Return the shape of each part by name."""
    return {name: tuple(part.value.shape) for name, part in parts.items()}


@dataclass(frozen=True)
class UploadCheck:
    """The check of what leaves a client.

    Parameters
    ----------
    shapes: of the method's parts, by name.
    without: names of parts that stay at the clients.
    """

    shapes: Shapes
    without: frozenset[str]

    def __call__(self, result: TrainResult) -> TrainResult:
        """Return what leaves the client of a training result; one with other parts or shapes than
        the method's is not finite."""
        finite = result.finite and shapes_of(result.parts) == self.shapes
        if not self.without and finite == result.finite:
            return result  # nothing to change in most uploads, and a copy costs each of them
        parts = {name: part for name, part in result.parts.items() if name not in self.without}
        return dataclasses.replace(result, parts=parts, finite=finite)


class Allocation(NamedTuple):
    """How much each client of a cohort may upload, ``[m]`` each.

    Parameters
    ----------
    theta: share of the update.
    budget: the round's mean share.
    bits: of the message.
    paper_bits: as the papers count it.
    extra_steps: time that choosing the values takes at the client, in local steps.
    """

    theta: Floats
    budget: Floats
    bits: Ids
    paper_bits: Ids
    extra_steps: Floats


def whole_shares(n: int, bits: int, paper_bits: int) -> Allocation:
    """Return the allocation of ``n`` clients that send whole updates.

    Parameters
    ----------
    bits: of the message of each.
    paper_bits: as the papers count it.
    """
    ones = np.ones(n)
    return Allocation(
        theta=ones,
        budget=ones,
        bits=np.full(n, bits),
        paper_bits=np.full(n, paper_bits),
        extra_steps=np.zeros(n),
    )


class Channel:
    """Sizes messages and posts them to a ledger, whose rounds are server steps (numbered from 1).

    Parameters
    ----------
    parts: of a whole upload.
    extra_exchange: what the server rule asks of participants besides.
    without: names of parts that stay at the clients.

    Attributes
    ----------
    ledger: the run's traffic.
    parts: those given.
    checked: the check of what leaves a client.
    upload_bits: of a whole upload, buffers and counters included.
    paper_bits: 32 for each value of its update.
    """

    def __init__(
        self, parts: Parts, extra_exchange: ExtraExchange, without: Iterable[str] = ()
    ) -> None:
        self.ledger = Ledger()
        self.without = frozenset(without)
        self.parts = parts
        self.checked = UploadCheck(shapes_of(parts), self.without)
        parts = {name: part for name, part in parts.items() if name not in self.without}
        self.specs = {name: _spec(part.value) for name, part in parts.items() if part.value.numel()}
        self._answer_bits = VALUE_BITS * extra_exchange.down
        self._extra_bits = VALUE_BITS * extra_exchange.up
        self.upload_bits = self.upload_of()
        update = {name: part.value for name, part in parts.items() if part.fold in UPDATES}
        self.paper_bits = paper_bits(update) + self._extra_bits

    def upload_of(
        self, delta: PacketSpec | None = None, other_specs: Mapping[str, PacketSpec] | None = None
    ) -> int:
        """Return the bits of an upload whose update is written like ``delta``; None: of a whole
        one. ``other_specs``: all other parts;
        None: whole."""
        added_specs = other_specs
        if added_specs is None:
            added_specs = {name: spec for name, spec in self.specs.items() if name != "delta"}
        specs = {
            name: self.specs["delta"] if delta is None else delta
            for name in self.specs
            if name == "delta"
        } | dict(added_specs)
        return 8 * length(specs) * bool(specs) + self._extra_bits

    def paper_of(self, delta_bits: int) -> int:
        """Return the bits of an upload as papers count them, whose update counts ``delta_bits``."""
        return self.paper_bits - self.specs["delta"].values_bits() + delta_bits

    def download_bits(self, download: Tensors, ids: Ids, holding: Ids) -> Ids:
        """Return the bits sent to each client of a cohort ``[n]``; clients ``holding`` the model
        get only the server rule's answer."""
        bits = np.where(np.isin(ids, holding), 0, message_bits(download))
        return bits + self._answer_bits

    def whole_download(self, download: Tensors) -> int:
        """Return the bits down to a client that holds nothing yet."""
        return message_bits(download) + self._answer_bits

    def enrol(self, ids: Ids, count: int) -> None:
        """Bill ``count`` numbers that each client sends once, before round 1."""
        if not count:  # of millions of clients every column counts
            return
        self.ledger.post("enrol", "up", ids, VALUE_BITS * count, round=0)

    def exchange_statistics(self, ids: Ids, down_bits: int, up_bits: Ids) -> None:
        """Bill the statistics of a table's columns: what clients send of their training rows,
        ``up_bits`` ``[K]``, also counts on the papers' account; what the server makes of it goes
        down to each client, ``down_bits``."""
        self.ledger.post("enrol", "up", ids, up_bits[ids], round=0, paper_bits=up_bits[ids])
        self.ledger.post("enrol", "down", ids, down_bits, round=0)

    def probe(
        self,
        ids: Ids,
        download: Tensors,
        step: int,
        count: int,
        saved: tuple[Ids, Ids] | None = None,
    ) -> tuple[Ids, Ids]:
        """Bill a probe in which each client sends ``count`` numbers, after the model was sent to it
        if ``count`` is above 0.

        ``saved``: bits down and numbers up that a slice of the model takes less, ``[n]`` each.
        Returns the bits down and up."""
        less, fewer = (np.zeros(len(ids), np.int64),) * 2 if saved is None else saved
        down = (message_bits(download) - less) * bool(count)
        up = VALUE_BITS * (count - fewer)
        self.ledger.post(kind="probe", direction="down", ids=ids, bits=down, round=step)
        self.ledger.post(kind="probe", direction="up", ids=ids, bits=up, round=step)
        return down, up

    def send(self, ids: Ids, bits: Ids, step: int) -> None:
        """Bill the model that goes out to a cohort."""
        self.ledger.post(kind="model", direction="down", ids=ids, bits=bits, round=step)

    def receive(
        self,
        ids: Ids,
        bits: Ids,
        paper_bits: Ids,
        step: int,
        kind: Literal["upload", "late"] = "upload",
    ) -> None:
        """Bill what was sent of uploads, whether or not it is used: whole ones, and of one that was
        cut what had left its client. ``kind``: ``late`` where the dispatch ended in an earlier
        step."""
        self.ledger.post(
            kind=kind, direction="up", ids=ids, bits=bits, round=step, paper_bits=paper_bits
        )

    def recalibrate(self, ids: Ids, download: Tensors, step: int) -> tuple[Ids, Ids]:
        """Bill the new model going to each of these clients, and its statistics coming back; return
        the bits down and up."""
        down = np.full(len(ids), message_bits(download))
        up = np.full(
            len(ids), message_bits({name: download[name] for name in ("buffers", "counters")})
        )
        self.ledger.post(kind="recalibrate", direction="down", ids=ids, bits=down, round=step)
        self.ledger.post(kind="recalibrate", direction="up", ids=ids, bits=up, round=step)
        return down, up


def traffic_row(ledger: Ledger) -> dict[str, int]:
    """Return the traffic columns of the table ``rounds``."""
    return {
        "down_bits": ledger.current("model", "down"),
        "up_bits": ledger.current("upload", "up"),
        "probe_down_bits": ledger.current("probe", "down"),
        "probe_up_bits": ledger.current("probe", "up"),
        "up_paper_bits": ledger.round_paper_bits,
        "total_bits": ledger.total_bits,
        "total_up_bits": ledger.total(direction="up"),
        "total_up_paper_bits": ledger.paper_bits,
    }


def empty_upload(rule: LocalRule, server: ServerState, first: ModelState, layout: Layout) -> Parts:
    """Return the upload of a client whose model did not move; every upload of the method has these
    parts and shapes.

    ``first``: the initial model."""
    download = rule.download(server)
    memory = rule.initial_state(first)
    start = rule.start(download, memory)
    return rule.finish(
        start,
        JobContext(
            x=start.x,
            download=download,
            client_state=memory,
            steps=1,
            lr=1.0,
            num_examples=1,
            solver_norm=1.0,
            layout=layout,
        ),
    )[0]


def _spec(value: Tensor) -> PacketSpec:
    """Return how a whole part is written; real numbers always in 32 bits, whatever a run computes
    in."""
    n = value.numel()
    return PacketSpec(n, n, coding="float32" if value.is_floating_point() else "int64")
