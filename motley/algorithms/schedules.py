"""Learning-rate schedules: a factor on the local learning rate in each round (server step that the local work is for).

>>> LinearSchedule(end=0.5).factor(50, horizon=100)
0.75
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from typing_extensions import override

from motley.core.errors import ConfigError

__all__ = ["ConstantSchedule", "ExponentialSchedule", "LinearSchedule", "Schedule"]


class Schedule(ABC):
    """A learning-rate schedule: a frozen dataclass of options and one function of the round."""

    @abstractmethod
    def factor(self, round: int, horizon: int | None) -> float:
        """Return the factor of round ``round`` (from 1) in a run of ``horizon`` rounds."""


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """The constant factor 1."""

    @override
    def factor(self, round: int, horizon: int | None) -> float:
        return 1.0


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """A linear decrease from 1 to ``end`` at the last round: ``1 - (1 - end) min(t / T, 1)``. HeteRo-Select v2 uses ``end = 0.5``."""

    end: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.end <= 1:
            raise ConfigError(f"got end = {self.end}; expected a number from 0 to 1")

    def factor(self, round: int, horizon: int | None) -> float:
        """Return the factor; raises ConfigError if the number of planned rounds is not known."""
        if horizon is None:
            raise ConfigError("a linear schedule needs the number of rounds; set stop = { rounds = ... }", "stop.rounds")
        return 1.0 - (1.0 - self.end) * min(round / horizon, 1.0)


@dataclass(frozen=True)
class ExponentialSchedule(Schedule):
    """Exponential decay, ``decay ** (t - 1)``."""

    decay: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(f"got decay = {self.decay}; expected a number above 0 and at most 1")

    @override
    def factor(self, round: int, horizon: int | None) -> float:
        return float(self.decay ** (round - 1))
