"""BatchNorm statistics estimated anew after a server step, where uploads leave them out.

Reference: docs/methods/compression.md#recalibration, docs/methods/hetero-select.md#code, row 11.

The new model is passed along a chain: the first accepted client runs it in training mode over its
own batches, the next continues from the statistics that this left, until so many batches are done.
Momentum is the model's (torch: 0.1), nothing is reset, weights stay.

Deviations and readings
-----------------------
* HeteRo-Select v2's text averages what all the selected report; its code runs the clients' loaders
  at the server, one after the other, "20 batches" in total from the first three. READING: the
  code's chain, as messages: model and statistics down, statistics up, bits and seconds charged (the
  published figures charge neither).
* A client's batches are those of one epoch, drawn by its own key of this step, without
  augmentation.
* The first clients are those sent out first.

With ``cumulative`` the old statistics are forgotten, and all batches weigh the same (momentum None
in torch). So are statistics collected before an examination where training has none (static
BatchNorm, docs/methods/algorithms.md#slices).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Protocol

import numpy as np
from typing_extensions import override

from motley.algorithms.parts import ServerState, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.keys import Key
from motley.engines.engine import DataViews, Engine
from motley.rounds.data_drift import DriftView, data_views_now
from motley.rounds.round import Round
from motley.rounds.run_config import Recalibrate, RunConfig
from motley.rounds.stage import Stage
from motley.rounds.state import Moment, RunState
from motley.rounds.stopwatch import Stopwatch
from motley.tasks.task import ModelState


class ClientChain(Protocol):
    """Where the clients of a chain are."""

    drift: DriftView | None
    watch: Stopwatch

    def pass_along(self, now: Moment, ids: Ids, batches: Floats, download: Tensors) -> None:
        """Let the time of a chain of clients pass, and bill its messages."""


class Recalibration(Stage):
    """Passes each new model along a chain of the accepted clients; seconds and bits are charged.

    Parameters
    ----------
    config, engine: of the run.
    backend: where the clients are.
    """

    def __init__(self, config: RunConfig, engine: Engine, backend: ClientChain) -> None:
        self.config = config
        self.engine = engine
        self.backend = backend

    @override
    def after(self, state: RunState[Any], step: Round) -> None:
        """Take the statistics that the chain leaves into the server's model."""
        options = self.config.recalibrate
        if options is None:
            return
        setting = self.config.setting
        lines = step.landed.dispatches.timelines[np.array(step.usable, np.int64)]
        counts = batch_counts(self.config, options, lines.client[np.argsort(lines.dispatch)])
        key = setting.streams.key("server").fold("recalibrate", step.number)
        with self.backend.watch("measure"):
            views = data_views_now(self.backend.drift, state)
            model = recalibrated(
                config=self.config,
                engine=self.engine,
                model=state.server.model,
                counts=counts,
                key=key,
                data_views=views,
                cumulative=options.cumulative,
            )
        state.server = ServerState(model, state.server.extra)
        ids = np.array(list(counts), np.int64)
        batches = np.array(list(counts.values()), np.float64)
        self.backend.pass_along(
            state.moment, ids, batches, setting.algorithm.local.download(state.server)
        )


def recalibrates(config: RunConfig) -> bool:
    """Return whether statistics are estimated anew after each step; where training has none, that
    is done before an examination instead."""
    slicing = config.setting.algorithm.local.slicing
    return config.recalibrate is not None and not (slicing is not None and slicing.static_norm)


def batch_counts(config: RunConfig, options: Recalibrate, clients: Ids) -> dict[int, int]:
    """Return how many batches each client of the chain runs; ``clients``: the accepted, in the
    order in which they were sent out."""
    work = config.setting.work
    examples = config.setting.task.federation.seen
    counts: dict[int, int] = {}
    for client in clients[: options.clients].tolist():
        counts[client] = min(
            int(work.batches(examples[client])), options.batches - sum(counts.values())
        )
    return {client: count for client, count in counts.items() if count}


def recalibrated(
    config: RunConfig,
    engine: Engine,
    model: ModelState,
    counts: dict[int, int],
    key: Key,
    data_views: DataViews | None,
    cumulative: bool,
) -> ModelState:
    """Return the model with the statistics that the chain of clients leaves.

    Parameters
    ----------
    counts: client -> batches, in order of the chain.
    key: of this server step.
    data_views: what clients see of their data now.
    cumulative: forget the model's statistics, and weigh all batches of the chain alike.
    """
    if cumulative:
        # The caller's model keeps its counters.
        counters = model.counters.clone()
        for entry in config.setting.task.layout.counters:
            if entry.batch_norm:
                counters[entry.slice] = 0
        model = dataclasses.replace(model, counters=counters)
    for client, count in counts.items():
        view = None if data_views is None else data_views(np.array([client]))
        model = engine.recalibrate(
            model, client, count, key.fold(client), data_view=view, cumulative=cumulative
        )
    return model


def collected(
    config: RunConfig,
    engine: Engine,
    model: ModelState,
    version: int,
    data_views: DataViews | None = None,
) -> ModelState:
    """Return a model that was trained without running statistics with those that its clients'
    training batches have.

    Every client with at least two samples (one, where torch takes a batch of one) passes the
    batches of an epoch, or as many clients and batches as the experiment says, clients drawn anew
    for every version. It belongs to the examination: nothing is sent or kept, and no virtual time
    passes.
    """
    setting = config.setting
    options = config.recalibrate
    seen = setting.task.federation.seen
    key = setting.streams.key("server").fold("collect", version)
    clients = np.flatnonzero(seen > int(setting.work.drop_single))
    if options is not None:
        # Each client has a number of its own: another client that joins changes no pair's order.
        drawn = np.argsort(key.fold("clients").uniform(clients)[:, 0], kind="stable")
        clients = np.sort(clients[drawn[: options.clients]])
    if options is None:
        limit = Recalibrate(int(setting.work.batches(seen).sum()) + 1, len(seen))
    else:
        limit = options
    return recalibrated(
        config=config,
        engine=engine,
        model=model,
        counts=batch_counts(config, limit, clients),
        key=key,
        data_views=data_views,
        cumulative=True,
    )
