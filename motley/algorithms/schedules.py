"""Learning-rate schedules: a factor on the local learning rate, by round (the server step that the work is for).

>>> LinearSchedule(end=0.5).factor(50, horizon=100)
0.75
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from motley.core.errors import ConfigError

__all__ = ["ConstantSchedule", "ExponentialSchedule", "LinearSchedule", "Schedule"]


class Schedule(ABC):
    """A frozen dataclass of options and one function of the round."""

    @abstractmethod
    def factor(self, round: int, horizon: int | None) -> float:
        """Factor of round ``round`` (from 1) in a run of ``horizon`` rounds."""


@dataclass(frozen=True)
class ConstantSchedule(Schedule):
    """Always 1."""

    def factor(self, round: int, horizon: int | None) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class LinearSchedule(Schedule):
    """From 1 down to ``end`` at the last round: ``1 - (1 - end) min(t / T, 1)``. HeteRo-Select v2 uses ``end = 0.5``."""

    end: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.end <= 1:
            raise ConfigError(f"got end = {self.end}; expected a number from 0 to 1")

    def factor(self, round: int, horizon: int | None) -> float:
        """The straight line; needs the number of planned rounds."""
        if horizon is None:
            raise ConfigError("a linear schedule must know the last round; set stop = { rounds = ... }", "stop.rounds")
        return 1.0 - (1.0 - self.end) * min(round / horizon, 1.0)


@dataclass(frozen=True)
class ExponentialSchedule(Schedule):
    """``decay ** (t - 1)``."""

    decay: float = 0.99

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise ConfigError(f"got decay = {self.decay}; expected a number above 0 and at most 1")

    def factor(self, round: int, horizon: int | None) -> float:
        """The power."""
        return float(self.decay ** (round - 1))
