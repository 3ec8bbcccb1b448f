"""BatchNorm statistics estimated anew after a server step, where uploads leave them out (optimisation-and-compression C0, G 11).

The new model goes round: the first of the accepted runs it in training mode over its own batches, the next goes on from the
statistics it left, until so many batches are done. Momentum as the model has it (torch: 0.1), nothing is reset. Weights stand still.

Deviations and readings
-----------------------
* HeteRo-Select v2's text averages what all the selected report; its code runs the clients' loaders at the server, one after the
  other, "20 batches" in total from the first three. READING: the code's chain, as messages: model and statistics down, statistics
  up, bits and seconds charged (the published figures charge neither).
* A client's batches are those of one epoch, drawn by its own key of this step, without augmentation.
* The first are those sent out first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from motley.algorithms.base import ServerState
from motley.core.arrays import Ids
from motley.engines.base import DataViews, Engine
from motley.rounds.channel import Channel
from motley.rounds.config import Recalibrate, RunConfig
from motley.rounds.planning import WorkPlanner
from motley.timing.timeline import Timelines, probe_s

__all__ = ["Recalibrator"]

Speeds = Callable[[Ids], tuple[NDArray[np.float64], NDArray[np.float64]]]


class Recalibrator:
    """Whoever makes the statistics of one run.

    Parameters
    ----------
    plan, engine, channel, board: of the run.
    """

    def __init__(self, plan: RunConfig, engine: Engine, channel: Channel, board: WorkPlanner) -> None:
        self.asked, self.world, self.setting = plan.recalibrate, plan.world, plan.setting
        self.engine, self.channel, self.board = engine, channel, board

    def after(
        self, server: ServerState, lines: Timelines, step: int, round: int, speeds: Speeds, data_views: DataViews
    ) -> tuple[ServerState, float]:
        """The state after step ``step`` (from 1) with new statistics, and the seconds it took; ``lines``: of the accepted. As it was,
        where nobody asked for it."""
        if self.asked is None:
            return server, 0.0
        setting, counts = self.setting, self.counts(self.asked, lines.client[np.argsort(lines.dispatch)])
        model, key = server.model, setting.streams.key("server").fold("recalibrate", step)
        for client, count in counts.items():
            model = self.engine.recalibrate(model, client, count, key.fold(client), data_views(np.array([client])))
        server = dataclasses.replace(server, model=model)
        ids = np.array(list(counts), np.int64)
        (up, down), bits = speeds(ids), self.channel.recalibrate(ids, setting.algorithm.correction.download(server), step)
        batches = np.array(list(counts.values()), np.float64)
        took = probe_s(bits.down, down, batches, self.board.step_s(self.world, ids, round), bits.up, up)
        return server, float(took.sum())

    def counts(self, asked: Recalibrate, clients: Ids) -> dict[int, int]:
        """Batches of each client that is needed; ``clients``: as sent out."""
        out: dict[int, int] = {}
        for client in clients[: asked.clients].tolist():
            whole = int(self.setting.work.batches(self.board.examples[client]))
            out[client] = min(whole, asked.batches - sum(out.values()))
        return {client: count for client, count in out.items() if count}
