"""Who can be asked now."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from motley.core.keys import Key
from motley.world.base import Availability, Ids

__all__ = ["Always"]


@dataclass(frozen=True)
class Always(Availability):
    """Everybody, at any time."""

    def online(self, key: Key, ids: Ids, moment: int, time_s: float) -> NDArray[np.bool_]:
        """True for all."""
        return np.ones(len(ids), bool)
