"""Models of different architectures in a run: what a local step on each takes."""

from __future__ import annotations

import numpy as np
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.engines.engine import Setting
from motley.rounds.holdings.holding import Holding

__all__ = ["HeldArchitectures"]


class HeldArchitectures(Holding):
    """The model of each client's architecture, whole. A device's seconds per step are those of the
    first model; another takes its share of the operations.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        operations = np.array([kind.forward_operations() for kind in setting.kinds], np.float64)
        self._share = operations / operations[0]

    @override
    def work_share(self, ids: Ids, round: int) -> float | Floats:
        unlike = self.setting.task.architectures
        return 1.0 if unlike is None else np.asarray(self._share[unlike.numbers[ids]], np.float64)
