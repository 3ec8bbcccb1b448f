"""Everybody may send the same share of the update, the budget of the round: ``theta_k = theta_t``.

The ablation of HeteRo-Select v2 (methods 4). There is no ceiling by bandwidth, as in the authors' code
(optimisation-and-compression G 9).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from motley.transport.allocators.base import Allocator, Floats, Load, State

__all__ = ["Uniform"]


@dataclass(frozen=True)
class Uniform(Allocator):
    """The same for everybody."""

    def ratios(self, state: State, load: Load) -> Floats:
        """The budget."""
        return np.full(len(load.ids), load.theta)
