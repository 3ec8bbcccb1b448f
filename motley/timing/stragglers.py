"""Clients that get through part of their local work only: variable local work (optimisation-and-compression A2).

FedProx's simulation of systems heterogeneity (Li et al., MLSys 2020): of every cohort a share are stragglers, which end a uniform
number of whole epochs from 1 to E - 1, while the others end all E. FedProx takes what they have (``keep``), FedAvg drops it
(``drop``). Who straggles, and how far it comes, is a function of the seed, the round and the client, so that all methods see the same.

>>> rule = Stragglers(share=0.5)
>>> sorted((rule.epochs(Key(0), np.arange(4), 1, 20) < 20).tolist())
[False, False, True, True]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from motley.core.arrays import Ids
from motley.core.errors import ConfigError
from motley.core.keys import Key

__all__ = ["Stragglers"]


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Who works less in a round.

    Parameters
    ----------
    share: of a cohort that straggles, in [0, 1], rounded to the nearest client. partial: what becomes of their results.

    A straggler is slow, not idle: what it ends takes it as long as the whole work would (INTERPRETATION-D; the authors do not model
    time). With one epoch there is nothing between 1 and E - 1, and nobody straggles.
    """

    share: float = 0.5
    partial: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"got share = {self.share}; expected a number from 0 to 1")
        if self.partial not in ("keep", "drop"):
            raise ConfigError(f"got partial = {self.partial!r}; expected 'keep' or 'drop'")

    def epochs(self, key: Key, ids: Ids, round: int, epochs: int) -> Ids:
        """Whole epochs that each client of a cohort ends, ``[n]``."""
        ended = np.full(len(ids), epochs)
        if epochs > 1 and len(ids):
            place, far = key.fold("straggler", round).uniform(ids, 2).T
            late = np.argsort(place, kind="stable")[: int(self.share * len(ids) + 0.5)]
            ended[late] = 1 + np.floor(far[late] * (epochs - 1)).astype(np.int64)
        return ended
