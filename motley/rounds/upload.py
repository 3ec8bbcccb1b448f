"""The press: who may send how much, what becomes of an update on its way, and what waits at its client.

Before training the drawing board asks for shares (their bits are known then: no form depends on values); after it every update goes
through :func:`motley.transport.feedback.compress_update`. What a client would keep is taken over when the server steps on its
upload, so a late, lost or rejected upload moves nothing.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.base import ClientState, Parts, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.errors import CodecError
from motley.core.records import Cohort, Reports
from motley.engines.base import Setting, TrainResult
from motley.rounds.channel import Channel
from motley.rounds.client_state import ClientStates
from motley.rounds.compression_error import CompressionError
from motley.rounds.config import RunConfig
from motley.rounds.in_flight import InFlight
from motley.tasks.base import ModelState
from motley.transport.allocators.base import AllocationContext
from motley.transport.feedback import compress_update
from motley.transport.upload_config import UploadConfig, merge_state, split_state

__all__ = ["Shares", "UploadPipeline", "initial_client_state"]


CURVATURE_STEPS = 2.0
"""Local steps that one Hutchinson probe takes: two to three passes more on one batch (C5)."""


class Shares(NamedTuple):
    """For each client of a cohort ``[m]``: its share of the update, the round's budget, bits on the wire and as papers count them,
    and local steps that choosing takes."""

    theta: Floats
    budget: Floats
    bits: Ids
    paper_bits: Ids
    steps: Floats

    @property
    def columns(self) -> dict[str, NDArray[Any]]:
        """What flights take along of it."""
        return {"theta": self.theta, "budget": self.budget, "paper_bits": self.paper_bits}


def initial_client_state(plan: RunConfig, model: ModelState) -> ClientState | None:
    """What a client keeps before it is first accepted: its algorithm's, and its uploads'; None: nothing."""
    setting = plan.setting
    sent = plan.upload_config.initial_state(setting.task.layout, setting.dtype)
    return {**(setting.algorithm.correction.initial_state(model) or {}), **sent} or None


class UploadPipeline:
    """The shares and uploads of one run.

    Parameters
    ----------
    shipping: what was chosen. setting, channel, memories: of the run. horizon: planned rounds, None when nobody knows.
    """

    def __init__(
        self, upload_config: UploadConfig, setting: Setting, channel: Channel, memories: ClientStates, horizon: int | None
    ) -> None:
        self.upload_config, self.setting, self.channel, self.memories = upload_config, setting, channel, memories
        self.horizon, self.layout = horizon, setting.task.layout
        self.key = setting.streams.key("compress")
        self._keeps = bool(upload_config.initial_state(self.layout, setting.dtype))
        self._remembers = bool(
            upload_config.compressor.initial_state(self.layout)
        )  # what it sent before; else there is nothing to read
        self.state: Mapping[str, Any] = upload_config.allocator.init()
        self.mean: Tensor | None = None  # EF21: of all clients' vectors
        self._kept: dict[int, Tensors] = {}  # of this step, by client
        self._changes: Tensor | None = None  # of this step, added up
        self.compression_error: CompressionError | None = None  # where somebody wants to know what is not sent

    def shares(self, cohort: Cohort, step: int, dispatch: int, load: Mapping[str, Floats]) -> Shares:
        """Who may send how much at server step ``step`` (from 1), flights numbered from ``dispatch``; ``load``: columns of
        :class:`~motley.transport.allocators.base.AllocationContext`."""
        ids, n = cohort.ids, len(cohort.ids)
        compressor, budget = self.upload_config.compressor, self.upload_config.budget
        if not compressor.budgeted:
            bits, paper = self._bits(1.0, dispatch, int(ids[0])) if n else (0, 0)
            one = np.ones(n)
            return Shares(one, one, np.full(n, bits), np.full(n, paper), 0.0 * one)
        now = budget.ratio(step, self.horizon)
        question = AllocationContext(
            ids, now, budget.average, budget.warm(step), self.layout.size,
            scores=cohort.scores, upload_ratio=cohort.upload_ratio, **load,
        )  # fmt: skip
        theta = self.upload_config.allocator.ratios(self.state, question) if n else np.zeros(0)
        flights = list(zip(theta.tolist(), range(dispatch, dispatch + n), ids.tolist(), strict=True))
        both = np.array([self._bits(*flight) for flight in flights], np.int64).reshape(n, 2)
        steps = np.array([CURVATURE_STEPS * bool(self.layers(*flight)) for flight in flights])
        return Shares(theta, np.full(n, now), both[:, 0], both[:, 1], steps)

    def _bits(self, theta: float, dispatch: int, client: int) -> tuple[int, int]:
        if self.upload_config.plain:
            return self.channel.upload_bits, self.channel.paper_bits
        key, compressor = self.key.fold(dispatch, client), self.upload_config.compressor
        form = compressor.spec(theta, self.layout, key)
        return self.channel.upload_of(form), self.channel.paper_of(compressor.paper_bits(theta, self.layout, key))

    def layers(self, theta: float, dispatch: int, client: int) -> tuple[str, ...]:
        """Whose curvature must be measured at the end of this client's work; the same until its upload is taken."""
        before = self._sent(client) if self._remembers else {}
        return self.upload_config.compressor.curvature_layers(theta, self.layout, self.key.fold(dispatch, client), before)

    def own(self, clients: Iterable[int]) -> dict[int, ClientState | None]:
        """What the algorithm keeps of these clients."""
        return {client: split_state(memory)[0] for client, memory in self.memories.of(clients).items()}

    def _sent(self, client: int) -> Tensors:
        return split_state(self.memories.of([client]).get(client))[1] if self._keeps else {}

    def through(self, stream: Iterator[TrainResult], flights: InFlight) -> Iterator[tuple[TrainResult, Parts]]:
        """What the server decodes of each upload, as it comes in; and its parts as an update, which under EF21 is not what travels.
        One that cannot be written down (it overflows with what waited) is not finite."""
        theta, budget = flights.columns["theta"], flights.columns["budget"]
        rows = zip(range(len(theta)), theta.tolist(), budget.tolist(), flights.timelines.dispatch.tolist(), strict=True)
        if self.compression_error is not None:
            self.compression_error.among(theta, flights.columns["weight"])
        for trained, row in zip(stream, rows, strict=True):
            if self.upload_config.plain or not trained.finite:
                yield trained, {}
            else:
                yield self._pressed(trained, *row)

    def _pressed(self, trained: TrainResult, i: int, theta: float, budget: float, dispatch: int) -> tuple[TrainResult, Parts]:
        delta, client = trained.parts["delta"], trained.client
        key, before = self.key.fold(dispatch, client), self._sent(client)
        feedback, compressor = self.upload_config.feedback, self.upload_config.compressor
        try:
            sent = compress_update(
                feedback, compressor, delta.value, before, theta, budget, self.layout, key, trained.curvature
            )
        except CodecError:
            return dataclasses.replace(trained, finite=False), {}
        if self.compression_error is not None and not feedback.incremental:
            v = feedback.vector(delta.value, before.get(feedback.state_name or ""))
            self.compression_error.take(
                i, v, sent.update, lambda even: compressor.compress(v, even, self.layout, key, trained.curvature)
            )
        self._kept[client] = sent.client_state
        if feedback.incremental:
            self.heard(sent.update)
        parts = {**trained.parts, "delta": delta._replace(value=sent.update)}
        meant = {"delta": delta._replace(value=sent.client_state["g"])} if feedback.incremental else {}
        return dataclasses.replace(trained, parts=parts, curvature={}), meant

    def heard(self, change: Tensor) -> None:
        """A change of a client's vector has come, for the mean of all of them."""
        new = change.double()
        self._changes = new if self._changes is None else self._changes + new

    def total(self, folded: dict[str, Tensor]) -> dict[str, Tensor]:
        """What the server steps on: under EF21 the mean of all clients' vectors instead of the fold of what came."""
        if not folded or self._changes is None:
            return folded
        mean = torch.zeros_like(self._changes) if self.mean is None else self.mean
        return {
            **folded,
            "delta": self.upload_config.feedback.update_mean(mean, self._changes, len(self.setting.task.federation)),
        }

    def taken(self, own: Mapping[int, ClientState], total: Tensors) -> Mapping[int, ClientState]:
        """The server has stepped on ``total``: what each client keeps from now on. ``own``: what their algorithm keeps of them."""
        if self._changes is not None:
            self.mean = total["delta"].double().cpu()
        if not self._kept:
            return own
        others = {client: memory for client, memory in own.items() if client not in self._kept}
        keeps = split_state(self.memories.first)[0] is not None  # else there is nothing to read
        old = self.memories.of(client for client in self._kept if keeps and client not in own)
        kept = {
            client: merge_state(own.get(client, split_state(old.get(client))[0]), sent) for client, sent in self._kept.items()
        }
        mine = {client: memory for client, memory in kept.items() if memory}
        return {**{client: merge_state(memory, self._sent(client)) for client, memory in others.items()}, **mine}

    def end(self, reports: Reports, folded: Mapping[str, Tensor]) -> None:
        """A server step is over; the allocator hears of it. ``folded``: nothing where nothing was."""
        norm = float(folded["delta"].double().norm()) if "delta" in folded else math.nan
        self.state = self.upload_config.allocator.observe(self.state, self.upload_config.budget, reports, norm)
        self._kept, self._changes = {}, None

    def save(self) -> dict[str, Any]:
        """Everything that evolves, but client memories."""
        return {"state": dict(self.state), "mean": {} if self.mean is None else {"mean": self.mean.numpy()}}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Go on from :meth:`save`."""
        self.state = saved["state"]
        self.mean = torch.from_numpy(saved["mean"]["mean"]) if saved["mean"] else None
