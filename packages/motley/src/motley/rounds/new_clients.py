"""New clients: those that no round asked, examined at the end of a run with the model that they
would receive then.

For each number of ``evaluate.adapt_epochs`` E every new client (``split.holdout_clients``) begins
at the received model, adapts it to its own training samples for E epochs as the method says
(:meth:`~motley.algorithms.parts.PersonalRule.adaptation`), and is examined on its own test samples.
Rows have the scopes ``new_mean_E`` (the unweighted mean) and ``new_client_E`` (one row each), and
of metrics beside loss and accuracy ``new_pooled_E``, too.

Nothing of it goes into the run: the server learns nothing of these clients, no virtual time passes,
and a run that is extended goes on without. The final download is billed in these rows: their
traffic is the run's and one download for each new client.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from motley.algorithms.parts import ServerState, Slicing
from motley.core.arrays import Floats, Ids
from motley.engines.base import AdaptInputs, Engine, Job
from motley.rounds.channel import Channel
from motley.rounds.config import RunConfig
from motley.rounds.data_drift import DriftView
from motley.rounds.evaluation import Evaluation, Personal, evaluate
from motley.rounds.slices import SliceModels, SliceSizes
from motley.rounds.state import RunState
from motley.tasks.base import ModelState

__all__ = ["NEW", "NewClients"]

NEW: Final = "new_"
"""How the scopes of new clients begin."""


class NewClients:
    """The new clients of a run, with an engine of their own on their samples alone.

    Parameters
    ----------
    config: of the run, whose federation has clients held out. channel: sizes of messages. widths:
    share of the model's width that each client holds, ``[K]``; None: all of it.
    """

    def __init__(self, config: RunConfig, channel: Channel, widths: Floats | None) -> None:
        self.config = config
        self.channel = channel
        self.ids = config.setting.task.federation.new_clients
        task = config.setting.task
        self.federation = task.federation.held_out or task.federation
        self.setting = dataclasses.replace(
            config.setting, task=dataclasses.replace(task, federation=self.federation)
        )
        self.widths = np.ones(len(self.ids)) if widths is None else widths[self.ids]
        self.drift = DriftView(
            config.world.drift, self.setting.streams.key("shift").fold("drift"), self.federation
        )

    def examine(
        self, engine: Engine, state: RunState, models: SliceModels, names: Ids | None
    ) -> Iterator[Evaluation]:
        """Yield the rows of each number of epochs.

        Parameters
        ----------
        engine: of the run. state: of the run at its end. models: the final ones. names: what each
        client calls each class, ``[K, C]``;
        None: classes are what they are.
        """
        own = engine.alike(self.setting)
        schedule = self.config.evaluate
        try:
            begun = self._received(own, state, models)
            jobs = self._jobs(state)
            for epochs in schedule.adapt_epochs:
                found = evaluate(
                    own,
                    models.at(1.0),
                    self.federation,
                    schedule.per_client,
                    _adapted(own, begun, jobs, epochs),
                    False,
                    names,
                    self.setting.task.metrics,
                )
                yield Evaluation(_renamed(found.rows, epochs), _renamed(found.metrics, epochs), {})
        finally:
            own.close()

    def _received(
        self, engine: Engine, state: RunState, models: SliceModels
    ) -> Mapping[int, ModelState]:
        """Return the model from which each new client begins: of several, the one that fits its
        training samples best."""
        rule = self.setting.algorithm.local
        view = self.drift.at(self.ids, state.draw_index, state.clients.now_s)
        chosen = engine.choose(self.ids, models.download, {}, view)
        return {
            k: rule.start(models.download, {**(models.memory or {}), **(chosen[k] or {})})
            if k in chosen
            else models.at(float(width))
            for k, width in zip(self.ids.tolist(), self.widths, strict=True)
        }

    def _jobs(self, state: RunState) -> Mapping[int, Job]:
        """Return the work of one epoch of each new client."""
        algorithm = self.setting.algorithm
        rate = self.config.lr(state.version)
        rate = (
            rate if algorithm.tuning is None or algorithm.tuning.lr is None else algorithm.tuning.lr
        )
        view = self.drift.at(self.ids, state.draw_index, state.clients.now_s)
        offset = (algorithm.local.slicing or Slicing()).offset(state.version)
        batches = self.setting.work.batches(self.federation.seen[self.ids], self.ids).tolist()
        return {
            k: Job(
                k,
                state.version,
                batches[i],
                rate,
                None if view is None else view[i : i + 1],
                width=float(self.widths[i]),
                offset=offset,
            )
            for i, k in enumerate(self.ids.tolist())
        }

    def download_bits(self, server: ServerState) -> int:
        """Return the bits of one download of the final model for each new client, with the
        statistics of a table's columns."""
        download = self.setting.algorithm.local.download(server)
        statistics = self.federation.statistics
        bits = self.channel.download_bits(download, self.ids, np.zeros(0, np.int64)) + (
            statistics.down_bits if statistics else 0
        )
        if (self.widths < 1).any():
            bits = bits - SliceSizes(self.setting).saved_bits(self.widths)
        return int(bits.sum())


def _adapted(
    engine: Engine, begun: Mapping[int, ModelState], jobs: Mapping[int, Job], epochs: int
) -> Personal:
    """Return the function of client ids that yields their models after so many epochs."""

    def personal(clients: Sequence[int]) -> Iterator[ModelState]:
        received = (begun[k] for k in clients)
        work = [dataclasses.replace(jobs[k], steps=epochs * jobs[k].steps) for k in clients]
        return engine.adapt(work, map(AdaptInputs, received), "new") if epochs else received

    return personal


def _renamed(rows: Mapping[str, Any], epochs: int) -> dict[str, Any]:
    """Return rows in the scopes of new clients."""
    return {**rows, "scope": [f"{NEW}{scope}_{epochs}" for scope in rows["scope"]]}
