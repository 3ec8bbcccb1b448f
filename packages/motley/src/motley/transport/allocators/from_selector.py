"""The selector's own upload ratios: ``theta_k`` is ``Cohort.upload_ratio`` (FedCG, PyramidFL).

The round's budget is not used, and one that is not the default is refused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats
from motley.core.errors import ContractError
from motley.transport.allocators.allocator import (
    LEAST,
    AllocationContext,
    Allocator,
    State,
    check_least,
)
from motley.transport.budgets import Budget, ConstantBudget


@dataclass(frozen=True)
class FromSelector(Allocator):
    """The selector's own upload ratios, at least ``least``."""

    least: float = LEAST

    requires: ClassVar[frozenset[str]] = frozenset({"upload_ratio"})
    looks_at_work: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_least(self.least)

    @override
    def refuses(self, budget: Budget) -> str | None:
        if budget == ConstantBudget():
            return None
        return (
            "the selector's ratios would not follow this budget; leave it out, or use the "
            'allocator "uniform"'
        )

    def ratios(self, state: State, context: AllocationContext) -> Floats:
        """As the selector says.

        Raises
        ------
        ContractError: the selector said nothing.
        """
        if context.upload_ratio is None:
            raise ContractError("this selector gives no upload_ratio; use another allocator")
        return np.clip(context.upload_ratio, self.least, 1.0)
