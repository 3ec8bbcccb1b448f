"""The ledger of privacy: how often each client sent a signal, was chosen, and entered a sum, and
who has reached a cap."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from motley.core.arrays import Ids
from motley_privacy.privacy_plan import PrivacyPlan


@dataclass
class PrivacyState:
    """What evolves of a run's privacy.

    Parameters
    ----------
    clip: the clip of the coming sum.
    choices, sums: int64 ``[K]``, how often each client was in a cohort and in a sum.
    signals: name -> int64 ``[K]``, how often each client sent it.
    step: sums so far.
    entered: int64 ``[K]``, the newest sum that each client entered, from 1; 0 for none.
    past: part -> noise of the newest sums in steps, the newest first, where noise is correlated: a
    secret of the server.
    """

    clip: float
    choices: Ids
    sums: Ids
    signals: dict[str, Ids] = field(default_factory=dict)
    step: int = 0
    entered: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    past: dict[str, list[Ids]] = field(default_factory=dict)

    @classmethod
    def begin(cls, plan: PrivacyPlan, population: int) -> PrivacyState:
        """Return the state before round 1."""
        zeros = np.zeros(population, np.int64)
        signals = {name: zeros.copy() for name in plan.options.signal_noise}
        return cls(plan.options.clip, zeros, zeros.copy(), signals, entered=zeros.copy())

    def below_caps(self, plan: PrivacyPlan, ids: Ids) -> Ids:
        """Return the clients that may be asked now: those at no cap, and in none of the newest
        ``min_separation - 1`` sums.

        Enrolment happens once, and does not count here."""
        free = self.sums[ids] < plan.max_rounds
        recent = self.step + 1 - self.entered[ids] < plan.options.min_separation
        free &= ~(recent & (self.entered[ids] > 0))
        for name in {*plan.needs.probed, *plan.needs.reported} & self.signals.keys():
            free &= self.signals[name][ids] < plan.max_signals
        return ids[free]

    def sendable(self, plan: PrivacyPlan, names: Sequence[str], client: int) -> tuple[str, ...]:
        """Return those signals of which a client has not reached its cap."""
        return tuple(name for name in names if self.signals[name][client] < plan.signal_cap(name))

    def asked(self, names: Iterable[str], ids: Ids) -> None:
        """Count one value of each signal for these clients, which are asked for it now, whether or
        not they will answer."""
        for name in self.signals.keys() & set(names):
            self.signals[name][ids] += 1

    def enter(self, ids: Ids) -> None:
        """Count the coming sum for these clients."""
        self.sums[ids] += 1
        self.entered[ids] = self.step + 1

    def rows(self) -> dict[str, Any]:
        """Return the columns of the table ``privacy`` but the round: one row per client."""
        total = sum(self.signals.values(), np.zeros_like(self.sums))
        return {
            "client": np.arange(len(self.sums)),
            "signals": total,
            "choices": self.choices,
            "sums": self.sums,
        }
