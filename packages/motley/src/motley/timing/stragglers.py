"""Stragglers: clients that finish only a part of their local work.

FedProx's simulation of systems heterogeneity (Li et al., MLSys 2020): a share of every cohort are
stragglers, which finish a number of whole epochs that is uniform from 1 to E - 1, while the others
finish all E. FedProx aggregates the partial results (``keep``), FedAvg drops them (``drop``). The
stragglers and their epochs are a function of the seed, the round and the client, so that all
methods meet the same ones.

A straggler is slow, not idle: its partial work takes as long as the whole work would
(INTERPRETATION-D; the authors do not model time). With one epoch there is nothing between 1 and E -
1: an experiment with stragglers of one epoch is refused.

>>> rule = Stragglers(share=0.5)
>>> sorted((rule.epochs(Key(0), np.arange(4), 1, 20) < 20).tolist())
[False, False, True, True]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from motley.core.arrays import Bools, Floats, Ids
from motley.core.bounds import Proportion
from motley.core.errors import ConfigError
from motley.core.keys import Key


@dataclass(frozen=True, slots=True)
class Stragglers:
    """Clients that finish only part of their epochs, FedProx's variable local work."""

    share: Proportion = 0.5
    """Share of every cohort; they end a uniform number of whole epochs below ``epochs``, the same
    under every method."""
    partial: Literal["keep", "drop"] = "keep"
    """What becomes of their results: FedProx keeps them, FedAvg drops them."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"got share = {self.share}; expected a number from 0 to 1")
        if self.partial not in ("keep", "drop"):
            raise ConfigError(f"got partial = {self.partial!r}; expected 'keep' or 'drop'")

    def epochs(self, key: Key, ids: Ids, round: int, epochs: int) -> Ids:
        """Return the number of whole epochs that each client of a cohort finishes, ``[n]``."""
        finished = np.full(len(ids), epochs)
        if epochs > 1 and len(ids):
            rank, progress = key.fold("straggler", round).uniform(ids, 2).T
            late = np.argsort(rank, kind="stable")[: int(self.share * len(ids) + 0.5)]
            finished[late] = 1 + np.floor(progress[late] * (epochs - 1)).astype(np.int64)
        return finished

    def with_dropped(self, drop_at: Floats, late: Bools) -> Floats:
        """Return the share of its work after which each client drops out, ``[n]``, with those who
        are ``late`` where their results are dropped; NaN: it does not."""
        if self.partial == "keep":
            return drop_at
        # fmin: NaN is a client that would not have dropped out
        return np.where(late, np.fmin(drop_at, 1.0), drop_at)
