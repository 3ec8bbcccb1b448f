"""Compressed uploads on their way, a stage of runs that compress: who may send how much, what
compression leaves of an update, and what waits at its client.

Before training, :meth:`UploadPipeline.allocate` fixes each client's share of the update, and with
it the bits of the message (the size of a packet depends on no value). After training every update
goes through
:func:`motley.transport.feedback.compress_update`. What the client would keep of that (error memory)
is taken over in :meth:`UploadPipeline.commit`, when the server steps on its upload: a late, lost or
rejected upload changes nothing at its client. The server remembers the state of the allocator and,
under EF21, the mean of all clients' vectors.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import ClientState, ServerState, Tensors
from motley.core.arrays import Floats
from motley.core.errors import CodecError
from motley.core.records import Cohort
from motley.core.saved_state import built, save
from motley.engines.engine import Job, Setting, TrainResult
from motley.rounds.channel import Allocation, Channel, whole_shares
from motley.rounds.client_state import ClientStates
from motley.rounds.compression_error import CompressionError
from motley.rounds.in_flight import InFlight
from motley.rounds.round import LandedReports, ReceivedUpload, Round
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import Arrived, Stage
from motley.rounds.state import RunState
from motley.tasks.task import ModelState
from motley.transport.allocators.allocator import AllocationContext
from motley.transport.feedback import compress_update
from motley.transport.upload_config import UploadConfig, merge_state, split_state

CURVATURE_STEPS = 2.0
"""Local steps that one Hutchinson probe takes: two to three passes more on one batch.

Reference: docs/methods/compression.md#curvature."""


def initial_client_state(config: RunConfig, model: ModelState) -> ClientState | None:
    """Return what a client keeps before its first accepted upload, for the algorithm and for
    compression; None: nothing."""
    setting = config.setting
    sent = config.upload_config.initial_state(setting.task.layout, setting.dtype)
    return {**(setting.algorithm.local.initial_state(model) or {}), **sent} or None


def first_states(config: RunConfig) -> Callable[[int], ClientState] | None:
    """Return the function from a client's id to what it keeps before its first accepted upload,
    where clients hold models of different architectures; None: all keep the same."""
    setting = config.setting
    if setting.task.architectures is None:
        return None
    firsts = [kind.algorithm.local.initial_state(kind.initial()) or {} for kind in setting.kinds]
    return lambda client: firsts[setting.kind_of(client)]


def kept_after(
    pipeline: UploadPipeline | None, states: ClientStates, upload: ReceivedUpload
) -> Mapping[int, ClientState]:
    """Return what a client keeps after this upload, by client, if the server accepts it; empty
    where that is nothing."""
    result = upload.result
    if not result.finite:
        return {}
    own = {} if result.client_state is None else {result.client: result.client_state}
    if pipeline is None or upload.client_state is None:
        return own
    return pipeline.commit(states, own, {result.client: upload.client_state})


class UploadPipeline(Stage):
    """Allocates, compresses and commits uploads.

    Parameters
    ----------
    config: compressor, feedback, allocator and budget.
    setting: what is trained.
    channel: sizes of messages.
    horizon: planned rounds, None when the run has no planned end.

    Attributes
    ----------
    allocator: what the allocator remembers.
    mean_vector: EF21's mean of all clients' vectors ``[D]``, None before the first.
    error: measures what compression loses in this step; None where nobody asks.
    """

    name = "uploads"

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
        self._hears = True
        self.allocator: Mapping[str, Any] = config.allocator.init()
        self.mean_vector: Tensor | None = None
        self.error: CompressionError | None = None
        # of the step under way: what compression leaves with each client; EF21's sum of changes
        # and the mean after them, not as later stages change it on its way to the server
        self._compressed: dict[int, Tensors] = {}
        self._changes: Tensor | None = None
        self._next_mean: Tensor | None = None

    @override
    def init(self, config: RunConfig, server: ServerState) -> None:
        self._hears = config.privacy is None
        self._numbers = config.dispatch_numbers

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        return {"allocator": save(self.allocator), "mean_vector": save(self.mean_vector)}

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        self.allocator = saved["allocator"]
        self.mean_vector = built(Tensor | None, saved["mean_vector"], "mean_vector")

    def allocate(
        self,
        state: RunState[Any],
        cohort: Cohort,
        workload: Callable[[], Mapping[str, Floats]],
    ) -> Allocation:
        """Return how much each client of a cohort may upload in the coming server step.

        Parameters
        ----------
        workload: returns the columns ``examples``, ``steps``, ``compute_s``, ``uplink_mbps``
        ``[m]``; asked where clients may send different shares of their updates.
        """
        ids = cohort.ids
        n = len(cohort.ids)
        step = state.version + 1
        if not self.config.compressor.budgeted:
            bits, paper_bits = self._bits(1.0, state.dispatch, int(ids[0])) if n else (0, 0)
            return whole_shares(n, bits, paper_bits)
        budget = self.config.budget
        now = budget.ratio(step, self.horizon)
        context = AllocationContext(
            ids=ids,
            budget=now,
            average=budget.average,
            warm=budget.warm(step),
            size=self.layout.size,
            scores=cohort.scores,
            upload_ratio=cohort.upload_ratio,
            **workload(),
        )
        theta = self.config.allocator.ratios(self.allocator, context) if n else np.zeros(0)
        numbers = self._numbers(state.dispatch, state.draw_index, ids)
        rows = list(zip(theta.tolist(), numbers.tolist(), ids.tolist(), strict=True))
        states = state.clients.client_states
        both = np.array([self._bits(*row) for row in rows], np.int64).reshape(n, 2)
        steps = np.array(
            [CURVATURE_STEPS * bool(self._curvature_layers(states, *row)) for row in rows]
        )
        return Allocation(
            theta=theta,
            budget=np.full(n, now),
            bits=both[:, 0],
            paper_bits=both[:, 1],
            extra_steps=steps,
        )

    def _bits(self, theta: float, dispatch: int, client: int) -> tuple[int, int]:
        key = self.key.fold(dispatch, client)
        compressor = self.config.compressor
        spec = compressor.spec(theta, self.layout, key)
        return self.channel.upload_of(spec), self.channel.paper_of(
            compressor.paper_bits(theta, self.layout, key)
        )

    def _curvature_layers(
        self, states: ClientStates, theta: float, dispatch: int, client: int
    ) -> tuple[str, ...]:
        """Return the layers whose curvature this client measures after training, because its
        compressor chooses by it."""
        before = self._kept(states, client) if self._remembers_choice else {}
        return self.config.compressor.curvature_layers(
            theta, self.layout, self.key.fold(dispatch, client), before
        )

    def with_curvature(self, states: ClientStates, jobs: list[Job], theta: Floats) -> list[Job]:
        """Return local work with the layers whose curvature each client measures.

        Parameters
        ----------
        states: what clients keep.
        theta: share of each upload, ``[n]``.
        """
        return [
            dataclasses.replace(
                job, layers=self._curvature_layers(states, share, job.dispatch, job.client)
            )
            for job, share in zip(jobs, theta.tolist(), strict=True)
        ]

    def _kept(self, states: ClientStates, client: int) -> Tensors:
        """Return what compression keeps of a client."""
        return split_state(states.of([client]).get(client))[1] if self._keeps_state else {}

    def compressed(
        self, states: ClientStates, results: Iterable[TrainResult], group: InFlight
    ) -> Iterator[ReceivedUpload]:
        """Compress the updates of clients that received one version, and yield each as the server
        decodes it.

        Parameters
        ----------
        states: what clients keep.
        results: of the training, in the order of ``group``.
        group: their dispatches.
        """
        columns = group.columns
        theta = columns["theta"]
        if self.error is not None:
            self.error.begin(group.timelines.client, theta, columns["weight"])
        rows = zip(
            group.timelines.dispatch.tolist(),
            theta.tolist(),
            columns["budget"].tolist(),
            strict=True,
        )
        for result, (dispatch, share, budget) in zip(results, rows, strict=True):
            before = self._kept(states, result.client)
            yield self.compress(
                before=before, result=result, dispatch=dispatch, theta=share, budget=budget
            )

    def compress(
        self, before: Tensors, result: TrainResult, dispatch: int, theta: float, budget: float
    ) -> ReceivedUpload:
        """Compress and decode one client's update. One that cannot be written down (with what
        waited it overflows) is not finite.

        Parameters
        ----------
        before: what compression keeps of the client.
        result: of its training.
        dispatch: its number.
        theta: share of the update that may be sent.
        budget: mean share in its round.
        """
        if not result.finite:
            return ReceivedUpload(result)
        delta = result.parts["delta"]
        client = result.client
        key = self.key.fold(dispatch, client)
        feedback = self.config.feedback
        compressor = self.config.compressor
        try:
            sent = compress_update(
                feedback=feedback,
                compressor=compressor,
                delta=delta.value,
                client_state=before,
                ratio=theta,
                budget=budget,
                layout=self.layout,
                key=key,
                curvature=result.curvature,
            )
        except CodecError:
            return ReceivedUpload(dataclasses.replace(result, finite=False))
        if self.error is not None and not feedback.incremental:
            v = feedback.vector(delta.value, before.get(feedback.state_name or ""))
            self.error.add(
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

    @override
    def gather(self, state: RunState[Any], step: Round) -> None:
        self._compressed = {}
        self._changes = None
        self._next_mean = None

    @override
    def upload(self, state: RunState[Any], step: Round, arrived: Arrived) -> Arrived:
        """Take in what compression leaves with a client, and under EF21 how its vector changes."""
        received = arrived.received
        if received.client_state is not None:
            self._compressed[received.result.client] = received.client_state
        if received.change is not None:
            change = received.change.double()
            self._changes = change if self._changes is None else self._changes + change
        return arrived

    @override
    def total(self, state: RunState[Any], step: Round) -> Round:
        """Return the round with what the server steps on: under EF21 the mean of all clients'
        vectors, in place of the mean of what arrived."""
        self.error = None
        if not step.total or self._changes is None:
            return step
        changes = self._changes
        mean = torch.zeros_like(changes) if self.mean_vector is None else self.mean_vector
        clients = self.setting.task.federation.pool
        self._next_mean = self.config.feedback.update_mean(mean, changes, clients)
        return dataclasses.replace(step, total={**step.total, "delta": self._next_mean})

    @override
    def after(self, state: RunState[Any], step: Round) -> None:
        if self._next_mean is not None:
            self.mean_vector = self._next_mean.double().cpu()

    @override
    def ended(self, state: RunState[Any], step: Round, reports: LandedReports) -> Round:
        """Let the allocator hear of a server step; that of a private run hears nothing."""
        if self._hears:
            total = step.total
            norm = float(total["delta"].double().norm()) if "delta" in total else math.nan
            heard = reports.heard()
            self.allocator = self.config.allocator.observe(
                self.allocator, self.config.budget, heard, norm
            )
        return step

    def commit(
        self,
        states: ClientStates,
        algorithm_states: Mapping[int, ClientState],
        compression_states: Mapping[int, Tensors] | None = None,
    ) -> Mapping[int, ClientState]:
        """Return what each client of an accepted step keeps from now on.

        Parameters
        ----------
        states: what clients keep before.
        algorithm_states: by client, what the algorithm keeps of it.
        compression_states: by client, what compression leaves with it; None: with all whose upload
        was compressed in this step.
        """
        if compression_states is None:
            compression_states = self._compressed
        if not compression_states:
            return algorithm_states
        uncompressed = {
            client: algorithm_state
            for client, algorithm_state in algorithm_states.items()
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
                client: merge_state(algorithm_state, self._kept(states, client))
                for client, algorithm_state in uncompressed.items()
            },
            **{client: merged for client, merged in new.items() if merged},
        }
