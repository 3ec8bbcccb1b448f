"""Learning-rate schedules: a factor on the local learning rate in each round (server step that the
local work is for).

>>> LinearSchedule(end=0.5).factor(50, horizon=100)
0.75
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

from torch.optim.lr_scheduler import LRScheduler
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.core.own_code import in_one_line, place_in_own_code
from motley.core.paper import Paper, cite

_CHECKED = 10_000
"""Rounds whose factors a function of one's own is asked for before a run."""


class Schedule(ABC):
    """A learning-rate schedule: a frozen dataclass of options and one function of the round."""

    horizon: ClassVar[bool] = False
    """Whether the factors depend on the planned number of rounds; a longer run is then another run
    from its first round."""

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
    """A linear decrease from 1 to ``end`` at the last round: ``1 - (1 - end) min(t / T, 1)``.
    HeteRo-Select v2 uses ``end = 0.5``."""

    horizon: ClassVar[bool] = True
    end: float = 0.5

    def __post_init__(self) -> None:
        _check_end(self.end)

    def factor(self, round: int, horizon: int | None) -> float:
        """Return the factor; raises ConfigError if the number of planned rounds is not known."""
        return 1.0 - (1.0 - self.end) * min(round / _known(horizon, "linear"), 1.0)


@dataclass(frozen=True)
class CosineSchedule(Schedule):
    """A decrease from 1 along half a cosine:
    ``end + (1 - end) (1 + cos(pi (min(t, T) - 1) / T)) / 2`` in round t of T.

    Loshchilov, Hutter: *SGDR: Stochastic Gradient Descent with Warm Restarts*, ICLR 2017, equation
    5 without restarts. The first round has the factor 1; ``end`` would be reached in the round
    after the last, so that no round is without a learning rate. Training after the last round,
    before an examination, has the factor of the last.

    >>> [round(CosineSchedule().factor(t, horizon=4), 3) for t in (1, 2, 3, 4, 5)]
    [1.0, 0.854, 0.5, 0.146, 0.146]
    """

    paper: ClassVar[Paper] = cite("loshchilov2017sgdr")
    horizon: ClassVar[bool] = True
    end: float = 0.0

    def __post_init__(self) -> None:
        _check_end(self.end)

    def factor(self, round: int, horizon: int | None) -> float:
        """Return the factor; raises ConfigError if the number of planned rounds is not known."""
        last = _known(horizon, "cosine")
        along = (min(round, last) - 1) / last
        return self.end + (1.0 - self.end) * (1.0 + math.cos(math.pi * along)) / 2.0


def _check_end(end: float) -> None:
    if not 0 <= end <= 1:
        raise ConfigError(f"got end = {end}; expected a number from 0 to 1")


def _known(horizon: int | None, name: str) -> int:
    if horizon is None:
        raise ConfigError(
            f"a {name} schedule needs the number of rounds; set stop = {{ rounds = ... }}",
            "stop.rounds",
        )
    return horizon


@dataclass(frozen=True)
class FunctionSchedule(Schedule):
    """A function of one's own from the round (from 1) to the factor.

    >>> FunctionSchedule(lambda round: 1 / round).factor(4, None)
    0.25
    """

    function: Callable[[int], float]

    def check(self, horizon: int | None) -> None:
        """Ask for the factors of the planned rounds, the first thousands of them and the last.

        Raises
        ------
        ConfigError: the function raises an error, or gives no factor, for one of these rounds.
        """
        last = horizon or 1
        for number in (*range(1, min(last, _CHECKED) + 1), last):
            self.factor(number, horizon)

    @override
    def factor(self, round: int, horizon: int | None) -> float:
        try:
            factor = self.function(round)
        except Exception as error:  # a user's function may raise anything
            raise ConfigError(
                f"the function fails for round {round} ({in_one_line(error)}"
                f"{place_in_own_code(error)}); it takes a round, from 1 to the last, and returns a "
                "factor of the learning rate, e.g. lambda round: 0.9 ** (round - 1)",
                "local.lr_schedule",
            ) from error
        if not isinstance(factor, Real) or not 0 <= factor < math.inf:
            raise ConfigError(
                f"the function gives {factor!r} for round {round}; expected a factor of the "
                "learning rate, a number of at least 0",
                "local.lr_schedule",
            )
        return float(factor)


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


@dataclass(frozen=True)
class MilestoneSchedule(Schedule):
    """A decrease by a factor after each of some rounds: round t has ``factor ** (number of
    milestones below t)``, as torch's ``MultiStepLR`` that steps once a round.

    >>> [MilestoneSchedule(rounds=(2, 3)).factor(t, None) for t in (2, 3, 4)]
    [1.0, 0.1, 0.010000000000000002]
    """

    rounds: tuple[int, ...] = ()
    decay: float = 0.1

    def __post_init__(self) -> None:
        if any(milestone < 1 for milestone in self.rounds):
            raise ConfigError(f"got rounds = {list(self.rounds)}; expected rounds from 1 on")
        if not 0 < self.decay <= 1:
            raise ConfigError(f"got decay = {self.decay}; expected a number above 0 and at most 1")

    @override
    def factor(self, round: int, horizon: int | None) -> float:
        return float(self.decay ** sum(milestone < round for milestone in self.rounds))


def as_schedule(value: Any) -> Any:
    """Return a function of the round as a schedule; anything else as it is.

    Raises
    ------
    ConfigError: a scheduler of torch, which belongs to one optimizer.
    """
    kind = value if isinstance(value, type) else type(value)
    if issubclass(kind, LRScheduler):
        raise ConfigError(
            f"got {kind.__name__} of torch, which belongs to one optimizer, and each client begins "
            "a round with a fresh one; a schedule over rounds is a function, lr_schedule = lambda "
            "round: 0.9 ** (round - 1); one over the steps of a round is a hook of the optimizer: "
            "optimizer.register_step_post_hook(lambda *_: scheduler.step())",
            "local.lr_schedule",
        )
    plain = callable(value) and not isinstance(value, type | Schedule)
    return FunctionSchedule(value) if plain else value
