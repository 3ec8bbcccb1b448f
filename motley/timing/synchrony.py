"""When the server steps: a pure decision on a view of who is under way. Time is planned before learning.

``decide`` is asked again and again; it answers :class:`Dispatch` (ask the selector for so many clients now), :class:`Wait` (let
virtual time run to a moment) or :class:`Step` (fold these, forget those). A round is one Dispatch, and ends with its Step in
synchronous runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from motley.timing.timeline import Timelines

__all__ = ["Dispatch", "Step", "Synchronous", "Synchrony", "View", "Wait"]


@dataclass(frozen=True)
class View:
    """What a synchrony sees: the clock, the cohort size, whether this version sent anybody out yet, and the flights."""

    now_s: float
    cohort: int
    version: int
    asked: bool
    flights: Timelines


@dataclass(frozen=True)
class Dispatch:
    """Ask the selector for ``count`` clients now."""

    count: int


@dataclass(frozen=True)
class Wait:
    """Let virtual time run to ``until_s``."""

    until_s: float


@dataclass(frozen=True)
class Step:
    """Take a server step: fold the flights marked ``accept``; those marked ``cancel`` came too late. The others stay under way.
    A dropped client is neither."""

    accept: NDArray[np.bool_]
    cancel: NDArray[np.bool_]


class Synchrony(ABC):
    """A frozen dataclass of options and one decision."""

    @abstractmethod
    def decide(self, view: View) -> Dispatch | Wait | Step:
        """What to do now; a pure function of the view."""


@dataclass(frozen=True)
class Synchronous(Synchrony):
    """Ask m clients, wait for all of them, step."""

    def decide(self, view: View) -> Dispatch | Wait | Step:
        """Dispatch once per version, wait for the slowest, fold everybody who delivered."""
        if not view.asked:
            return Dispatch(view.cohort)
        end = float(view.flights.arrives_s.max(initial=view.now_s))
        if end > view.now_s:
            return Wait(end)
        return Step(accept=~view.flights.dropped, cancel=np.zeros(len(view.flights), bool))
