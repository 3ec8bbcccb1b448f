"""The same upload ratio for all clients, the budget of the round: ``theta_k = theta_t``.

The ablation of HeteRo-Select v2 (docs/methods/hetero-select.md#score). There is no ceiling by
bandwidth, as in the authors' code (docs/methods/hetero-select.md#code, row 9).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.transport.allocators.allocator import AllocationContext, Allocator, State


@dataclass(frozen=True)
class UniformAllocator(Allocator):
    """The budget of the round for all clients."""

    looks_at_work: ClassVar[bool] = False

    @override
    def ratios(self, state: State, context: AllocationContext) -> Floats:
        return np.full(len(context.ids), context.budget)
