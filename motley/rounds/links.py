"""Links: how fast clients send and receive in a round, and what an inverted link wants to know for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

from motley.algorithms.base import ClientState, Tensors
from motley.core.arrays import Floats, Ids
from motley.core.keys import Key
from motley.engines.base import DataViews, Engine
from motley.world.base import Network

__all__ = ["Links"]


Memories = Callable[[Ids], Mapping[int, ClientState | None]]


class Links:
    """A network, and the losses it was last told.

    Parameters
    ----------
    network: the model. key: of purpose ``network``. has_data: who can be measured ``[K]``.

    Losses are measured once per version, of everybody with data, by a key of the version: a run that is resumed measures the same.
    They are the world's own business: nobody is charged, and no time passes.
    """

    def __init__(self, network: Network, key: Key, has_data: NDArray[np.bool_]) -> None:
        self.network, self.key, self.has_data = network, key, has_data
        self._losses: tuple[int, Floats] = (-1, np.zeros(0))

    def mbps(
        self,
        ids: Ids,
        round: int,
        version: int,
        engine: Engine,
        download: Tensors | None,
        memories: Memories,
        data_views: DataViews | None = None,
    ) -> tuple[Floats, Floats]:
        """Megabits a second up and down; at enrolment (round 0) those of round 1, before any loss is known.

        ``engine`` measures losses on ``download``, the newest model, where links want them; clients keep ``memories(ids)``
        and see ``data_views(ids)``."""
        now, wants = max(round, 1), self.network.wants()
        down = self.network.downlink_mbps(self.key, ids, now)
        if not wants or not round or download is None:
            return self.network.uplink_mbps(self.key, ids, now), down
        if self._losses[0] != version:
            losses, who = np.full(len(self.has_data), np.nan), np.flatnonzero(self.has_data)
            key, seen = self.key.fold("losses", version), None if data_views is None else data_views(who)
            losses[who] = engine.measure(who, download, memories(who), wants, key, seen)["loss"]
            self._losses = (version, losses)
        everybody = np.arange(len(self.has_data))
        return self.network.coupled_mbps(self.key, everybody, now, self._losses[1])[ids], down
