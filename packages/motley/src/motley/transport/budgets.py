"""Upload budgets: theta_t, the mean share of an update that a client of the cohort may send in a
round.

HeteRo-Select v2, equation 7 (docs/methods/hetero-select.md#score;
docs/methods/compression.md#schedule, docs/methods/hetero-select.md#code, row 6):

    theta_t = max(theta_avg (1 + a cos(pi (t - 1) / (T - 1))), floor);    1 while t <= warm_up

Symbols: ``t`` the round from 1; ``T`` the planned rounds; ``theta_avg`` the ``average``; ``a`` the
``amplitude``. Without a warm-up and a floor that binds, the mean over t = 1..T is ``average``
exactly.

Deviations and readings
-----------------------
* The text's cosine begins in round 1 though round 1 belongs to the warm-up: with 100 rounds the
  mean is 0.207200. ``as_published = "code"`` begins after the warm-up: 0.2 over t >= 2, 0.208 over
  all.
* Rounds after T (modes that overlap) stay at the budget of T.

>>> [round(CosineBudget().ratio(t, horizon=100), 6) for t in (1, 2, 20, 51, 100)]
[1.0, 0.27996, 0.265894, 0.198731, 0.12]
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from typing_extensions import override

from motley.core.errors import ConfigError


@dataclass(frozen=True)
class Budget(ABC):
    """An upload budget: a frozen dataclass of options and one function of the round.

    Parameters
    ----------
    average: theta_avg, in (0, 1].
    warm_up: number of first rounds in which all clients send whole updates.
    """

    horizon: ClassVar[bool] = False
    """Whether the budget depends on the planned number of rounds; a longer run is then another run
    from its first round."""
    average: float = 1.0
    warm_up: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.average <= 1:
            raise ConfigError(
                f"got average = {self.average}; expected a share in (0, 1] (1 sends whole updates)"
            )
        if self.warm_up < 0:
            raise ConfigError(
                f"got warm_up = {self.warm_up}; expected a number of rounds, at least 0"
            )

    def warm(self, round: int) -> bool:
        """Return whether this round belongs to the warm-up."""
        return round <= self.warm_up

    def ratio(self, round: int, horizon: int | None) -> float:
        """Return theta_t of round ``round`` (from 1) in a run of ``horizon`` rounds."""
        return 1.0 if self.warm(round) else self.after(round, horizon)

    @abstractmethod
    def after(self, round: int, horizon: int | None) -> float:
        """Return theta_t of a round after the warm-up."""


@dataclass(frozen=True)
class ConstantBudget(Budget):
    """The same budget in every round."""

    @override
    def after(self, round: int, horizon: int | None) -> float:
        return self.average


@dataclass(frozen=True)
class CosineBudget(Budget):
    """A budget that falls along half a cosine period.

    Parameters
    ----------
    average, warm_up: see :class:`Budget`.
    amplitude: a, in [0, 1], such that ``average (1 + amplitude)`` is at most 1.
    floor: smallest theta_t; at most ``average``.
    as_published: start of the cosine, see above.
    """

    horizon: ClassVar[bool] = True
    average: float = 0.2
    warm_up: int = 1
    amplitude: float = 0.4
    floor: float = 0.08
    as_published: Literal["text", "code"] = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.amplitude <= 1:
            raise ConfigError(
                f"got amplitude = {self.amplitude}; expected a number from 0 (constant) to 1"
            )
        if self.average * (1 + self.amplitude) > 1:
            most = 1 / self.average - 1
            raise ConfigError(
                f"got average = {self.average} and amplitude = {self.amplitude}: more than whole "
                f"updates at the start; expected an amplitude of at most {most:g}"
            )
        if not 0 <= self.floor <= self.average:
            raise ConfigError(
                f"got floor = {self.floor}; expected a share from 0 to average = {self.average}"
            )

    def after(self, round: int, horizon: int | None) -> float:
        """Return theta_t; raises ConfigError if the number of planned rounds is not known."""
        if horizon is None:
            raise ConfigError(
                "a cosine budget needs the number of rounds; set stop = { rounds = ... }",
                "stop.rounds",
            )
        late = self.warm_up if self.as_published == "code" else 0
        along = min(max(round - late - 1, 0) / max(horizon - late - 1, 1), 1.0)
        return max(self.average * (1 + self.amplitude * math.cos(math.pi * along)), self.floor)
