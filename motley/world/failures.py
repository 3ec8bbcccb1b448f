"""Who breaks off after being asked."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.core.keys import Key
from motley.world.base import Failures, Floats, Ids

__all__ = ["Never"]


@dataclass(frozen=True)
class Never(Failures):
    """Nobody."""

    def drop_at(self, key: Key, ids: Ids, moment: int) -> Floats:
        """NaN for all: they stay."""
        return np.full(len(ids), np.nan)
