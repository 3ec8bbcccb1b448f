"""Rounds that are planned and never trained: who is online, what is sent, and how long each client
of a cohort takes.

The parts are those of a run: the same planner, channel and world, so that the seconds and bytes are
those that it would count.
"""

from __future__ import annotations

import dataclasses
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from motley.core.arrays import Bools, Floats, Ids
from motley.core.records import Cohort
from motley.experiments.build import Ready
from motley.rounds.backend import DispatchOrder
from motley.rounds.in_flight import DISPATCH_COLUMNS, InFlight
from motley.rounds.loop import RoundLoop
from motley.rounds.simulated import simulation
from motley.timing.synchrony import Synchronous
from motley.timing.timeline import Timelines

OFFLINE_S = 60.0
"""Virtual seconds after which a round in which nobody is online is asked for again."""


class PlannedRounds(NamedTuple):
    """Rounds as they were planned.

    Parameters
    ----------
    lines: timelines of each round's cohort.
    online: clients online at each round's start ``[R]``.
    """

    lines: list[Timelines]
    online: Ids

    @property
    def lengths_s(self) -> Floats:
        """Seconds until the slowest client of each round has delivered or dropped out, ``[R]``."""
        return np.array(
            [
                float((timelines.arrives_s - timelines.start_s).max(initial=0.0))
                for timelines in self.lines
            ]
        )

    @property
    def waiting(self) -> Floats:
        """Share of each round that its clients wait for the slowest, on average over the clients
        that deliver, ``[R]``."""
        waits = []
        for timelines, length_s in zip(self.lines, self.lengths_s.tolist(), strict=True):
            busy = (timelines.arrives_s - timelines.start_s)[~timelines.dropped]
            waits.append(
                max(0.0, 1.0 - float(busy.mean()) / length_s) if len(busy) and length_s > 0 else 0.0
            )
        return np.array(waits)

    def column(self, name: str) -> Floats:
        """Return a column of all timelines of clients that deliver, ``[n]``."""
        return np.concatenate(
            [getattr(timelines, name)[~timelines.dropped] for timelines in self.lines]
            or [np.zeros(0)]
        )

    @property
    def dropped(self) -> Bools:
        """Whether each dispatched client dropped out, ``[n]``."""
        return np.concatenate(
            [timelines.dropped for timelines in self.lines] or [np.zeros(0, bool)]
        )


def synchronous_loop(ready: Ready) -> RoundLoop:
    """Return the round loop of an experiment as it would be with synchronous rounds, before its
    first step."""
    config = dataclasses.replace(ready.config, synchrony=Synchronous())
    return simulation(config, ready.engine, ready.selector, ready.model)


def planned_rounds(loop: RoundLoop, rounds: int) -> PlannedRounds:
    """Plan synchronous rounds with cohorts drawn uniformly from those online, one after the other
    in virtual time.

    Parameters
    ----------
    loop: of :func:`synchronous_loop`, which is used up.
    rounds: how many.
    """
    state = loop.state
    key = loop.setting.streams.key("select").fold("planned")
    clients: Any = state.clients
    lines = []
    online = []
    for number in range(1, rounds + 1):
        state.draw_index = number
        available = loop.backend.available(state.moment)
        online.append(len(available))
        if not len(available):
            loop.backend.wait(state.moment, state.clients.now_s + OFFLINE_S)
            continue
        chosen = key.fold(number).numpy().permutation(len(available))[: loop.config.cohort]
        lines.append(_planned(loop, np.sort(available[chosen])))
        clients.in_flight = InFlight.empty()
        loop.backend.wait(state.moment, float(lines[-1].arrives_s.max()))
    return PlannedRounds(lines, np.array(online, np.int64))


def _planned(loop: RoundLoop, ids: Ids) -> Timelines:
    """Return the timelines of a cohort that is sent out now, and let the server measure them."""
    state = loop.state
    backend: Any = loop.backend  # of a simulation
    cohort = Cohort(ids)
    download = loop.algorithm.local.download(state.server)
    columns: dict[str, Any] = {
        name: np.zeros(len(ids), kind) for name, kind in DISPATCH_COLUMNS.items()
    }
    allocate = partial(loop.choosing.allocated, state, cohort)
    backend.dispatch(state.moment, DispatchOrder(cohort, download, allocate, columns))
    sent: InFlight = state.clients.flying
    backend.learn_speeds(state.moment, sent)
    return sent.timelines
