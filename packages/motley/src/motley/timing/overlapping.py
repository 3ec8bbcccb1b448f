"""What buffered and asynchronous servers share: m clients always in flight, and a discount on stale
updates.

The discount ``s(tau)``, where tau counts the model updates since the client received the model:

    constant    1
    polynomial  (1 + tau)^-a                        a = 0.5: 1, .707107, .577350, .5, .447214, ...
    hinge       1 if tau <= b else 1 / (a (tau - b) + 1)
"""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from motley.core.arrays import Bools, Floats, Ints
from motley.core.errors import ConfigError
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Synchrony, Wait, check_idle

Discount = Literal["constant", "polynomial", "hinge"]


class Overlapping(Synchrony):
    """A synchrony that keeps m clients in flight, each from the model version that was newest when
    it was dispatched.

    A subclass is a frozen dataclass with these options.

    Parameters
    ----------
    staleness, a, b: the discount, see the module.
    max_staleness: older updates are discarded; None: none are.
    idle_s: virtual seconds a round lasts when no client is available.
    """

    overlaps: ClassVar[bool] = True

    staleness: Discount
    a: float
    b: float
    max_staleness: int | None
    idle_s: float

    def check_options(self) -> None:
        """Raise ConfigError for options outside their ranges."""
        if self.staleness not in ("constant", "polynomial", "hinge"):
            raise ConfigError(
                f"got staleness = {self.staleness!r}; expected 'constant', 'polynomial' or 'hinge'"
            )
        if not 0 < self.a < np.inf:
            raise ConfigError(f"got a = {self.a}; expected a positive number")
        if not 0 <= self.b < np.inf:
            raise ConfigError(f"got b = {self.b}; expected at least 0 server steps")
        if self.max_staleness is not None and self.max_staleness < 0:
            raise ConfigError(
                f"got max_staleness = {self.max_staleness}; expected at least 0 server steps, or "
                "none for no limit"
            )
        check_idle(self.idle_s, zero=False)

    def discounts(self, view: ServerView) -> Floats:
        """Return ``s(tau)`` of each update in flight, ``[n]``."""
        return discount(self.staleness, view.staleness, self.a, self.b)

    def too_stale(self, view: ServerView) -> Bools:
        """Return which updates in flight are older than ``max_staleness``, ``[n]``."""
        return np.asarray(
            view.staleness > (np.inf if self.max_staleness is None else self.max_staleness)
        )


def arrival_order(view: ServerView, which: Bools) -> Ints:
    """Return the rows marked in ``which``, in order of arrival; ties by number of dispatch."""
    rows = np.flatnonzero(which)
    return rows[np.lexsort((view.in_flight.dispatch[rows], view.in_flight.arrives_s[rows]))]


def discount(kind: Discount, tau: Ints, a: float, b: float) -> Floats:
    """Return ``s(tau)``, ``[n]``."""
    tau = np.asarray(tau, np.float64)
    if kind == "constant":
        return np.ones_like(tau)
    if kind == "polynomial":
        return np.asarray((1.0 + tau) ** -a)
    return np.asarray(1.0 / (a * np.maximum(tau - b, 0.0) + 1.0))


def refill(
    view: ServerView, idle_s: float, waits: Bools | None = None, timers: Floats | None = None
) -> Dispatch | Wait | ServerStep:
    """Return the decision that keeps ``view.cohort`` clients in flight: dispatch those missing,
    else wait for the next arrival. Clients that take no time are replaced at once.

    If no client is in flight and a dispatch finds none, the server takes a step without any update,
    so that a run ends: after ``idle_s`` where none is available.

    Parameters
    ----------
    waits: ``[n]``, which arrived updates keep their clients from being asked; None: none does.
    timers: when the server looks again, too.
    """
    in_flight = view.in_flight
    on_the_way = in_flight.arrives_s > view.now_s
    coming = in_flight.arrives_s[on_the_way]
    busy = int(on_the_way.sum())
    without: tuple[int, ...] = ()
    if waits is not None and waits.any():
        busy += int(waits.sum())
        without = tuple(in_flight.client[waits].tolist())
    if timers is not None:
        coming = np.append(coming, timers)
    idle_until = view.idle_until_s(idle_s)
    if view.found_none and not busy and view.now_s >= idle_until:
        nothing = np.zeros(len(view.in_flight), bool)
        return ServerStep(nothing, nothing)
    over_already = not busy and not view.found_none
    if busy < view.cohort and (not view.asked_now or over_already):
        return Dispatch(view.cohort - busy, without)
    return Wait(float(coming.min()) if len(coming) else idle_until)
