"""The tides: which of its samples each client sees at a moment, and what it calls them, where the distribution drifts.

A function of the seed, the round and the clock, so nothing of it is saved: a flight says when it began, and what its client saw
then is found again when it lands.
"""

from __future__ import annotations

import numpy as np

from motley.core.arrays import Ids
from motley.core.keys import Key
from motley.engines.base import DataView
from motley.rounds.in_flight import InFlight
from motley.tasks.base import Federation
from motley.world.base import Drift

__all__ = ["DriftView"]


class DriftView:
    """A drift, and whose data it moves.

    Parameters
    ----------
    drift: the model. key: of the drift. federation: each client's samples in the order in which windows pass over them.
    """

    def __init__(self, drift: Drift, key: Key, federation: Federation) -> None:
        self.drift, self.key, self.federation = drift, key, federation

    def at(self, ids: Ids, round: int, now_s: float) -> DataView | None:
        """What these clients see now; None where nothing drifts."""
        if not (self.drift.moves_window or self.drift.renames_classes):
            return None
        first, _ = self.drift.window(self.key, ids, self.federation.train.sizes[ids], round, now_s)
        return DataView(first, self.names(ids, round, now_s))

    def names(self, ids: Ids, round: int, now_s: float) -> Ids | None:
        """What these clients call each class now ``[n, C]``, training or testing; None: what it is."""
        if not self.drift.renames_classes:
            return None
        return self.drift.tables(self.key, ids, self.federation.classes or 0, round, now_s)

    def seen(self, landed: InFlight) -> list[DataView | None]:
        """What each of these clients saw when it was sent out, one row each."""
        ids, rounds, start_s = landed.timelines.client, landed.columns["round"], landed.timelines.start_s
        data_views: list[DataView | None] = [None] * len(ids)
        for number in np.unique(rounds):
            rows = np.flatnonzero(rounds == number)  # of one round: sent out at one moment
            data_view = self.at(ids[rows], int(number), float(start_s[rows[0]]))
            if data_view is not None:
                for i, row in enumerate(rows.tolist()):
                    data_views[row] = data_view[i : i + 1]
        return data_views
