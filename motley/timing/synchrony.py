"""When the server steps: a pure decision on a view of who is under way. Time is planned before learning.

``decide`` is asked again and again; it answers :class:`Dispatch` (ask the selector for so many clients now), :class:`Wait` (let
virtual time run to a moment) or :class:`Step` (fold these, forget those). A round is one Dispatch, and ends with its Step in
synchronous runs.

The order of things that happen at one moment (optimisation-and-compression B0: finish, then timer, then start) is in the
hands of ``decide``: everybody with ``arrives_s <= now_s`` is there to be folded, so a mode that steps on arrivals answers
Step before Dispatch, and a replacement starts from the newest version.

A dispatch may come back with nobody (all clients away). ``asked_s`` tells that it was tried at this moment, so that a mode
waits for a later one instead of asking for ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError, ContractError
from motley.timing.timeline import Timelines

__all__ = ["Dispatch", "Step", "Synchronous", "Synchrony", "View", "Wait", "fill_up"]


@dataclass(frozen=True)
class View:
    """What a synchrony sees.

    Parameters
    ----------
    now_s: the clock. cohort: m, the clients wanted under way. version: server steps done.
    asked: whether a Dispatch was answered since the last Step (also by nobody).
    flights: everybody under way or arrived and not yet folded, dropped ones included.
    asked_s: when the last Dispatch was answered. updates: of the model since each flight began, ``[n]``; None: one every step.
    """

    now_s: float
    cohort: int
    version: int
    asked: bool
    flights: Timelines
    asked_s: float = 0.0
    updates: NDArray[np.int64] | None = None

    @property
    def tau(self) -> NDArray[np.int64]:
        """Staleness, ``[n]``: how often the model moved since; a step in which nobody was folded does not count."""
        return self.version - self.flights.version if self.updates is None else self.updates

    @property
    def arrived(self) -> NDArray[np.bool_]:
        """Whose update is here, ``[n]``."""
        return np.asarray((self.flights.arrives_s <= self.now_s) & ~self.flights.dropped)


@dataclass(frozen=True)
class Dispatch:
    """Ask the selector for ``count`` clients now."""

    count: int


@dataclass(frozen=True)
class Wait:
    """Let virtual time run to ``until_s``, later than now."""

    until_s: float


@dataclass(frozen=True)
class Step:
    """Take a server step: fold the flights marked ``accept``, forget those marked ``cancel`` (too late, too stale), both
    ``[n]``.

    The dropped whose moment has come leave the view too, without a mark. The others stay under way. Nobody accepted: the model
    stays as it is and the round counts.

    ``scale`` ``[n]``, if given, is a factor on each update (staleness; not in the divisor of the mean). ``mix``: the update is
    ``scale`` times the way from the *newest* model to the client's model, and buffers are mixed likewise.
    """

    accept: NDArray[np.bool_]
    cancel: NDArray[np.bool_]
    scale: NDArray[np.float64] | None = None
    mix: bool = False

    def stay(self, view: View) -> NDArray[np.bool_]:
        """Who is under way still, ``[n]``.

        Raises
        ------
        ContractError: a flight both accepted and cancelled, or accepted without having arrived.
        """
        flights = view.flights
        if (self.accept & self.cancel).any():
            raise ContractError(f"clients {flights.client[self.accept & self.cancel].tolist()} are both accepted and cancelled")
        if (early := self.accept & ~view.arrived).any():
            raise ContractError(
                f"clients {flights.client[early].tolist()} are accepted, but have not delivered at {view.now_s} s"
            )
        gone = flights.dropped & (flights.arrives_s <= view.now_s)
        return np.asarray(~(self.accept | self.cancel | gone))


class Synchrony(ABC):
    """A frozen dataclass of options and one decision. ``overlaps``: clients of several versions are under way at once."""

    overlaps: ClassVar[bool] = False

    @property
    def least(self) -> int:
        """Fewest clients in the federation with which the server ever steps."""
        return 1

    def most(self, cohort: int) -> int:
        """Most uploads in a server step."""
        return cohort

    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Why it cannot go with what this algorithm uploads or with this weighting; None when it can."""
        return None

    def steps(self, whole: NDArray[np.int64], spare_s: NDArray[np.float64], step_s: NDArray[np.float64]) -> NDArray[np.int64]:
        """Local steps each client of a cohort takes, ``[n]``; 0 for one that will not make it. ``spare_s``: minus its transfers."""
        return whole

    @abstractmethod
    def decide(self, view: View) -> Dispatch | Wait | Step:
        """What to do now; a pure function of the view."""


def fill_up(view: View, idle_s: float) -> Dispatch | Wait | Step:
    """Keep ``view.cohort`` clients under way: ask for as many as are missing, else wait for the next arrival. Nobody under way and
    nobody to ask: after ``idle_s`` a round without an update, so that a run ends."""
    flying = view.flights.arrives_s[view.flights.arrives_s > view.now_s]
    idle_until = view.asked_s + idle_s
    nobody_came = view.asked and not (view.flights.start_s >= view.asked_s).any()
    if nobody_came and not len(flying) and view.now_s >= idle_until:
        nobody = np.zeros(len(view.flights), bool)
        return Step(nobody, nobody)
    if len(flying) < view.cohort and not (view.asked and view.asked_s == view.now_s):
        return Dispatch(view.cohort - len(flying))
    return Wait(float(flying.min()) if len(flying) else idle_until)


@dataclass(frozen=True)
class Synchronous(Synchrony):
    """Ask m clients, wait for all of them, step.

    Parameters
    ----------
    idle_s: virtual seconds a round lasts when nobody could be asked, so that time goes on and somebody may come back.
    """

    idle_s: float = 60.0

    def __post_init__(self) -> None:
        if not 0 <= self.idle_s < np.inf:
            raise ConfigError(f"got idle_s = {self.idle_s}; expected a finite number of seconds, at least 0")

    def decide(self, view: View) -> Dispatch | Wait | Step:
        """Dispatch once per server step, wait until the slowest is there or gone, fold everybody who delivered."""
        if not view.asked:
            return Dispatch(view.cohort)
        end = float(view.flights.arrives_s.max()) if len(view.flights) else view.asked_s + self.idle_s
        if end > view.now_s:
            return Wait(end)
        return Step(accept=view.arrived, cancel=np.zeros(len(view.flights), bool))
