"""Uploads on their way: who may send how much, what compression leaves of an update, and what waits
at its client.

Before training, :meth:`UploadPipeline.allocate` fixes each client's share of the update, and with
it the bits of the message (the size of a packet depends on no value). After training every update
goes through :func:`motley.transport.feedback.compress_update`. What the client would keep of that
(error memory) is taken over in :meth:`UploadPipeline.commit`, when the server steps on its upload:
a late, lost or rejected upload changes nothing at its client.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.parts import ClientState, Parts, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.errors import CodecError
from motley.core.records import Cohort, Reports
from motley.engines.engine import Setting, TrainResult
from motley.rounds.channel import Channel
from motley.rounds.client_state import ClientStates
from motley.rounds.diagnostics import CompressionError
from motley.rounds.run_config import RunConfig
from motley.rounds.state import RunState
from motley.tasks.task import ModelState
from motley.transport.allocators.allocator import AllocationContext
from motley.transport.feedback import compress_update
from motley.transport.upload_config import UploadConfig, merge_state, split_state

__all__ = ["Allocation", "ReceivedUpload", "UploadPipeline", "initial_client_state", "kept_of"]

CURVATURE_STEPS = 2.0
"""Local steps that one Hutchinson probe takes: two to three passes more on one batch.

Reference: docs/methods/compression.md#curvature."""


class Allocation(NamedTuple):
    """How much each client of a cohort may upload, ``[m]`` each.

    Parameters
    ----------
    theta: share of the update. budget: the round's mean share. bits: of the message. paper_bits: as
    the papers count it.
    extra_steps: time that choosing the values takes at the client, in local steps.
    """

    theta: Floats
    budget: Floats
    bits: Ids
    paper_bits: Ids
    extra_steps: Floats


class ReceivedUpload(NamedTuple):
    """One client's upload, as the server decodes it.

    Parameters
    ----------
    result: of the training, ``parts`` decoded. model_update: parts that say how the client's model
    moved, where ``result.parts`` do not (under EF21, which sends changes). change: ``[D]``, EF21's.
    client_state: what the client keeps because of this upload."""

    result: TrainResult
    model_update: Parts = {}  # noqa: RUF012 - never written to
    change: Tensor | None = None
    client_state: Tensors | None = None


def initial_client_state(config: RunConfig, model: ModelState) -> ClientState | None:
    """Return what a client keeps before its first accepted upload, for the algorithm and for
    compression; None: nothing."""
    setting = config.setting
    sent = config.upload_config.initial_state(setting.task.layout, setting.dtype)
    return {**(setting.algorithm.local.initial_state(model) or {}), **sent} or None


def kept_of(
    states: ClientStates,
) -> Callable[[Iterable[int]], dict[int, ClientState | None]]:
    """Return the function from ids to what the algorithm keeps of these clients."""
    return lambda clients: {
        client: split_state(kept)[0] for client, kept in states.of(clients).items()
    }


class UploadPipeline:
    """Allocates, compresses and commits uploads. It keeps nothing: what evolves is in
    :class:`~motley.rounds.state.RunState`.

    Parameters
    ----------
    config: compressor, feedback, allocator and budget. setting: what is trained. channel: sizes of
    messages. horizon: planned rounds, None when the run has no planned end.
    """

    def __init__(
        self, config: UploadConfig, setting: Setting, channel: Channel, horizon: int | None
    ) -> None:
        self.config = config
        self.setting = setting
        self.channel = channel
        self.horizon = horizon if config.budget.horizon else None
        self.layout = setting.task.layout
        self.key = setting.streams.key("compress")
        self._keeps_state = bool(config.initial_state(self.layout, setting.dtype))
        self._remembers_choice = bool(config.compressor.initial_state(self.layout))

    @property
    def budgeted(self) -> bool:
        """Whether clients may send different shares of their updates, so that allocation needs to
        know their work."""
        return self.config.compressor.budgeted

    def allocate(
        self, state: RunState, cohort: Cohort, workload: Mapping[str, Floats]
    ) -> Allocation:
        """Return how much each client of a cohort may upload in the coming server step.

        ``workload``: the columns ``examples``, ``steps``, ``compute_s``, ``uplink_mbps`` ``[m]``;
        used where :attr:`budgeted`."""
        ids = cohort.ids
        n = len(cohort.ids)
        step = state.version + 1
        if not self.budgeted:
            bits, paper = self._bits(1.0, state.dispatch, int(ids[0])) if n else (0, 0)
            one = np.ones(n)
            return Allocation(one, one, np.full(n, bits), np.full(n, paper), 0.0 * one)
        budget = self.config.budget
        now = budget.ratio(step, self.horizon)
        context = AllocationContext(
            ids,
            now,
            budget.average,
            budget.warm(step),
            self.layout.size,
            scores=cohort.scores,
            upload_ratio=cohort.upload_ratio,
            **workload,
        )
        theta = self.config.allocator.ratios(state.allocator, context) if n else np.zeros(0)
        rows = list(
            zip(
                theta.tolist(), range(state.dispatch, state.dispatch + n), ids.tolist(), strict=True
            )
        )
        both = np.array([self._bits(*row) for row in rows], np.int64).reshape(n, 2)
        steps = np.array(
            [CURVATURE_STEPS * bool(self.curvature_layers(state, *row)) for row in rows]
        )
        return Allocation(theta, np.full(n, now), both[:, 0], both[:, 1], steps)

    def _bits(self, theta: float, dispatch: int, client: int) -> tuple[int, int]:
        if self.config.plain:
            return self.channel.upload_bits, self.channel.paper_bits
        key = self.key.fold(dispatch, client)
        compressor = self.config.compressor
        spec = compressor.spec(theta, self.layout, key)
        return self.channel.upload_of(spec), self.channel.paper_of(
            compressor.paper_bits(theta, self.layout, key)
        )

    def curvature_layers(
        self, state: RunState, theta: float, dispatch: int, client: int
    ) -> tuple[str, ...]:
        """Return the layers whose curvature this client measures after training, because its
        compressor chooses by it."""
        before = self._compression_state(state, client) if self._remembers_choice else {}
        return self.config.compressor.curvature_layers(
            theta, self.layout, self.key.fold(dispatch, client), before
        )

    def algorithm_states(
        self, state: RunState, clients: Iterable[int]
    ) -> dict[int, ClientState | None]:
        """Return what the algorithm keeps of these clients."""
        return kept_of(state.clients.client_states)(clients)

    def _compression_state(self, state: RunState, client: int) -> Tensors:
        return (
            split_state(state.clients.client_states.of([client]).get(client))[1]
            if self._keeps_state
            else {}
        )

    def compress(
        self,
        state: RunState,
        result: TrainResult,
        dispatch: int,
        theta: float,
        budget: float,
        error: CompressionError | None,
    ) -> ReceivedUpload:
        """Compress and decode one client's update. One that cannot be written down (with what
        waited it overflows) is not finite.

        ``error`` measures what is lost, where diagnostics ask for it."""
        if self.config.plain or not result.finite:
            return ReceivedUpload(result)
        delta = result.parts["delta"]
        client = result.client
        key = self.key.fold(dispatch, client)
        before = self._compression_state(state, client)
        feedback = self.config.feedback
        compressor = self.config.compressor
        try:
            sent = compress_update(
                feedback,
                compressor,
                delta.value,
                before,
                theta,
                budget,
                self.layout,
                key,
                result.curvature,
            )
        except CodecError:
            return ReceivedUpload(dataclasses.replace(result, finite=False))
        if error is not None and not feedback.incremental:
            v = feedback.vector(delta.value, before.get(feedback.state_name or ""))
            error.add(
                client,
                v,
                sent.update,
                lambda even: compressor.compress(v, even, self.layout, key, result.curvature),
            )
        parts = {**result.parts, "delta": delta._replace(value=sent.update)}
        decoded = dataclasses.replace(result, parts=parts, curvature={})
        if not feedback.incremental:
            return ReceivedUpload(decoded, client_state=sent.client_state)
        return ReceivedUpload(
            decoded,
            {"delta": delta._replace(value=sent.client_state["g"])},
            sent.update,
            sent.client_state,
        )

    def add_change(self, changes: Tensor | None, upload: ReceivedUpload) -> Tensor | None:
        """Add one client's error-feedback change to the sum of this step's changes ``[D]`` (EF21);
        None while there is none."""
        if upload.change is None:
            return changes
        new = upload.change.double()
        return new if changes is None else changes + new

    def server_total(
        self, state: RunState, total: dict[str, Tensor], changes: Tensor | None
    ) -> dict[str, Tensor]:
        """Return what the server steps on: under EF21 the mean of all clients' vectors, in place of
        the mean of what arrived."""
        if not total or changes is None:
            return total
        mean = torch.zeros_like(changes) if state.mean_vector is None else state.mean_vector
        return {
            **total,
            "delta": self.config.feedback.update_mean(
                mean, changes, self.setting.task.federation.pool
            ),
        }

    def commit(
        self,
        state: RunState,
        algorithm_states: Mapping[int, ClientState],
        compression_states: Mapping[int, Tensors],
    ) -> Mapping[int, ClientState]:
        """Return what each client of an accepted step keeps from now on.

        Parameters
        ----------
        algorithm_states: by client, what the algorithm keeps of it. compression_states: by client,
        of those whose upload was compressed in this step.
        """
        if not compression_states:
            return algorithm_states
        states = state.clients.client_states
        others = {
            client: kept
            for client, kept in algorithm_states.items()
            if client not in compression_states
        }
        keeps = split_state(states.first)[0] is not None  # else there is nothing to read
        old = states.of(
            client for client in compression_states if keeps and client not in algorithm_states
        )
        new = {
            client: merge_state(algorithm_states.get(client, split_state(old.get(client))[0]), sent)
            for client, sent in compression_states.items()
        }
        return {
            **{
                client: merge_state(kept, self._compression_state(state, client))
                for client, kept in others.items()
            },
            **{client: kept for client, kept in new.items() if kept},
        }

    def kept_after(self, state: RunState, upload: ReceivedUpload) -> Mapping[int, ClientState]:
        """Return what a client keeps after this upload, by client, if the server accepts it; empty
        where that is nothing."""
        result = upload.result
        if not result.finite:
            return {}
        own = {} if result.client_state is None else {result.client: result.client_state}
        return self.commit(
            state, own, {} if upload.client_state is None else {result.client: upload.client_state}
        )

    def observe(
        self, state: RunState, reports: Reports, total: Mapping[str, Tensor]
    ) -> Mapping[str, Any]:
        """Return the allocator's state after a server step on ``total`` (empty where nothing was
        aggregated); an allocator of a private run hears nothing."""
        if state.privacy is not None:
            return state.allocator
        norm = float(total["delta"].double().norm()) if "delta" in total else math.nan
        return self.config.allocator.observe(state.allocator, self.config.budget, reports, norm)
