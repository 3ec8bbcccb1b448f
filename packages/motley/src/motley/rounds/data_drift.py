"""Which of its samples each client sees at a moment, and what it calls their classes, where the
data distribution drifts.

A function of the seed, the round and the clock: nothing is saved. What a client saw when it was
sent out is computed again, from the round and the second of its dispatch, when its upload lands.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from motley.core.arrays import Ids
from motley.core.keys import Key
from motley.engines.engine import DataView, DataViews
from motley.rounds.in_flight import InFlight
from motley.rounds.state import RunState
from motley.tasks.task import Federation
from motley.world.interfaces import Drift


class DriftView:
    """The data views that a drift gives the clients of one federation.

    Parameters
    ----------
    drift: the component.
    key: of the drift.
    federation: each client's samples, in the order in which windows pass over them.
    """

    def __init__(self, drift: Drift, key: Key, federation: Federation) -> None:
        self.drift = drift
        self.key = key
        self.federation = federation

    def at(self, ids: Ids, round: int, now_s: float) -> DataView | None:
        """Return the data views of these clients now, one row each; None where nothing drifts."""
        if not (self.drift.moves_window or self.drift.renames_classes):
            return None
        # by position, as own components may name their arguments otherwise
        sizes = self.federation.train.sizes[ids]
        first, _ = self.drift.window(self.key, ids, sizes, round, now_s)
        return DataView(first, self.class_names(ids, round, now_s))

    def class_names(self, ids: Ids, round: int, now_s: float) -> Ids | None:
        """Return what these clients call each class now, ``[n, C]``; None where classes keep their
        meaning."""
        if not self.drift.renames_classes:
            return None
        return self.drift.tables(self.key, ids, self.federation.classes or 0, round, now_s)

    def at_dispatch(self, dispatches: InFlight) -> list[DataView | None]:
        """Return the data view of each row's client at the moment it was sent out; None for clients
        that see everything."""
        ids = dispatches.timelines.client
        rounds = dispatches.columns["draw_index"]
        start_s = dispatches.timelines.start_s
        views: list[DataView | None] = [None] * len(ids)
        for number in np.unique(rounds):
            # one round's clients are sent out at one moment
            rows = np.flatnonzero(rounds == number)
            view = self.at(ids[rows], int(number), float(start_s[rows[0]]))
            if view is not None:
                for i, row in enumerate(rows.tolist()):
                    views[row] = view[i : i + 1]
        return views


def data_views_now(drift: DriftView | None, state: RunState[Any]) -> DataViews | None:
    """Return the function of client ids to what they see of their data now; None: all of it."""
    if drift is None:
        return None
    return lambda ids: drift.at(ids, state.draw_index, state.clients.now_s)


def class_names_now(drift: DriftView | None, state: RunState[Any]) -> Ids | None:
    """Return what every client calls each class now, ``[K, C]``; None: classes are what they
    are."""
    if drift is None:
        return None
    everybody = np.arange(len(drift.federation))
    return drift.class_names(everybody, state.draw_index, state.clients.now_s)
