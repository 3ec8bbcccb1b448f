"""When the server takes a step: a pure decision on the state of the clients in flight. Time is
planned before training.

The round loop asks :meth:`Synchrony.decide` again and again. The answer is a :class:`Dispatch` (ask
the selector for so many clients now), a :class:`Wait` (advance the clock) or a :class:`ServerStep`
(aggregate these updates, discard those). A synchronous round is one Dispatch, Waits, and one
ServerStep.

Events at the same time are processed in the order finish, timer, start
(docs/methods/timing-and-world.md#clock): every update with ``arrives_s <= now_s`` can be
aggregated, so a mode that steps on arrivals returns ServerStep before Dispatch, and a client that
is dispatched as a replacement starts from the newest version.

A Dispatch may find no client. ``dispatched_s`` records that it was tried at this time, so that a
mode does not ask for ever. Where nobody can be asked, the round lasts ``idle_s``, so that clients
may come back; with ``idle_s = 0`` it lasts until one is back. Where clients could be asked and the
selector has chosen none, there is nothing to wait for, and the round ends at once. Where all that
were sent out have dropped out, the server waits ``idle_s`` from the dispatch at least.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from typing_extensions import override

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.errors import ConfigError, ContractError
from motley.core.table import ClientTable
from motley.timing.timeline import Timelines


@dataclass(frozen=True)
class ServerView:
    """The state of the server and of its clients in flight, from which a synchrony decides.

    Parameters
    ----------
    now_s: the clock.
    cohort: m, the number of clients wanted in flight.
    version: number of server steps done.
    dispatched: whether a Dispatch was answered since the last server step (also if it found no
    client).
    in_flight: timelines of all clients whose updates are under way or have arrived but are not
    aggregated, dropped ones included.
    dispatched_s: when the cohort of the last Dispatch was sent out.
    asked_s: when it was asked for, before it was probed; None: at the same time.
    changes: how often the model changed since each client was dispatched, ``[n]``; None: at every
    server step.
    sent, available: how many clients the last Dispatch sent out, and could have; ``sent`` None:
    those in flight that began then.
    back_s: when a client can be asked again, where none was available.
    memory: what the synchrony remembers (:meth:`Synchrony.init`).
    """

    now_s: float
    cohort: int
    version: int
    dispatched: bool
    in_flight: Timelines
    dispatched_s: float = 0.0
    changes: Ints | None = None
    sent: int | None = None
    available: int = 0
    back_s: float = 0.0
    asked_s: float | None = None
    memory: ClientTable | None = None

    @property
    def asked_now(self) -> bool:
        """Whether the last Dispatch since the last server step was decided at this very moment."""
        asked_s = self.dispatched_s if self.asked_s is None else self.asked_s
        return self.dispatched and asked_s == self.now_s

    @property
    def found_none(self) -> bool:
        """Whether the last Dispatch since the last server step sent out no client."""
        if self.sent is None:
            return self.dispatched and not (self.in_flight.start_s >= self.dispatched_s).any()
        return self.dispatched and not self.sent

    def idle_until_s(self, idle_s: float) -> float:
        """Return until when the server waits for nobody, after a Dispatch of which nobody is left:
        see the module."""
        if self.found_none and self.available:
            return self.dispatched_s
        if self.found_none and not idle_s:
            return max(self.dispatched_s, self.back_s)
        return self.dispatched_s + idle_s

    @property
    def staleness(self) -> Ints:
        """tau, ``[n]``: how often the model changed since the client received it; a server step
        without any update does not count."""
        return self.version - self.in_flight.version if self.changes is None else self.changes

    @property
    def arrived(self) -> Bools:
        """Whether each client's update has arrived, ``[n]``."""
        return np.asarray((self.in_flight.arrives_s <= self.now_s) & ~self.in_flight.dropped)


@dataclass(frozen=True)
class Dispatch:
    """The decision to ask the selector for ``count`` clients now, none of those in ``without``."""

    count: int
    without: tuple[int, ...] = ()


@dataclass(frozen=True)
class Wait:
    """The decision to advance the clock to ``until_s``, later than now."""

    until_s: float


@dataclass(frozen=True)
class ServerStep:
    """The decision to take a server step.

    Parameters
    ----------
    accept: the updates to aggregate ``[n]``. If there are none, the model stays as it is and the
    round counts.
    cancel: the updates to discard (too late, too stale) ``[n]``. Clients that have dropped out by
        now leave the view without a mark; all others remain in flight.
    scale: factor on each update ``[n]`` (staleness; not in the divisor of the mean); None: 1.
    mix: the aggregated update is ``scale`` times the way from the *newest* model to the client's
    model; buffers are mixed likewise.
    """

    accept: Bools
    cancel: Bools
    scale: Floats | None = None
    mix: bool = False

    def remaining(self, view: ServerView) -> Bools:
        """Return which clients remain in flight after this step, ``[n]``.

        Raises
        ------
        ContractError: an update that is both accepted and cancelled, or accepted without having
        arrived.
        """
        in_flight = view.in_flight
        if (both := self.accept & self.cancel).any():
            raise ContractError(
                f"clients {in_flight.client[both].tolist()} are both accepted and cancelled"
            )
        if (early := self.accept & ~view.arrived).any():
            raise ContractError(
                f"clients {in_flight.client[early].tolist()} are accepted, but have not delivered "
                f"at {view.now_s} s"
            )
        gone = in_flight.dropped & (in_flight.arrives_s <= view.now_s)
        return np.asarray(~(self.accept | self.cancel | gone))


class Synchrony(ABC):
    """The rule that decides when clients are dispatched and when the server steps: a frozen
    dataclass of options.

    ``overlaps``: clients that train from different model versions are in flight at once.
    ``published_weights``: the weighting of updates that the rule was published with; None: that of
    the algorithm.
    """

    overlaps: ClassVar[bool] = False
    published_weights: ClassVar[str | None] = None

    @property
    def asks_again(self) -> bool:
        """Whether a client may be sent out again while its update still waits for a server step."""
        return False

    @property
    def limits_work(self) -> bool:
        """Whether a client that would be too slow is asked for fewer steps, see :meth:`steps`."""
        return False

    @property
    def min_population(self) -> int:
        """The fewest clients a federation must have for the server ever to step."""
        return 1

    def asked(self, cohort: int) -> int:
        """Return how many clients are sent out to fill a cohort."""
        return cohort

    def max_uploads(self, cohort: int) -> int:
        """Return the most uploads that one server step can aggregate."""
        return cohort

    def refuses(self, uploads: frozenset[str], weights: str) -> str | None:
        """Return why it cannot be used with the algorithm's upload parts or with this weighting;
        None if it can."""
        return None

    def steps(self, planned: Ints, spare_s: Floats, step_s: Floats) -> Ints:
        """Return the local steps of each client of a cohort, ``[n]``; 0 for a client that cannot
        deliver in time.

        Parameters
        ----------
        planned: the full local work in steps.
        spare_s: minus the seconds of the client's transfers.
        step_s: seconds per step.
        """
        return planned

    def init(self) -> ClientTable | None:
        """Return what it remembers of clients before the first; None: it has no memory, and the
        two functions below are never called."""
        return None

    def observed(self, view: ServerView) -> ClientTable | None:
        """Return the memory after a look at the clients in flight; called before each decision. The
        server knows nothing of a client that has not arrived."""
        return view.memory

    def assigned(
        self, view: ServerView, ids: Ids, dispatch: int
    ) -> tuple[Ints, ClientTable | None]:
        """Return the local steps of clients that are sent out now, ``[m]``, in place of the
        experiment's, and the memory after it.

        Parameters
        ----------
        ids: in the order of their dispatches.
        dispatch: number of the first.
        """
        raise ContractError(
            f"{type(self).__name__} has a memory and does not say what clients do; write assigned"
        )

    @abstractmethod
    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        """Return what to do now; a pure function of the view."""


@dataclass(frozen=True)
class Synchronous(Synchrony):
    """Dispatch m clients, wait for all of them, and step.

    Parameters
    ----------
    idle_s: virtual seconds a round lasts when no client is available, so that time passes and
    clients may come back, or when all have dropped out; 0: until a client is back.
    """

    idle_s: float = 60.0

    def __post_init__(self) -> None:
        check_idle(self.idle_s, zero=True)

    @override
    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        """Dispatch once per server step, wait until the slowest client has delivered or dropped
        out, aggregate all arrivals."""
        if not view.dispatched:
            return Dispatch(view.cohort)
        end = view.in_flight.arrives_s.max(initial=-np.inf)
        if view.in_flight.dropped.all():
            end = max(end, view.idle_until_s(self.idle_s))
        if end > view.now_s:
            return Wait(float(end))
        return ServerStep(accept=view.arrived, cancel=np.zeros(len(view.in_flight), bool))


def check_idle(idle_s: float, zero: bool) -> None:
    """Raise ConfigError unless ``idle_s`` is a finite number of seconds above 0 (``zero``: or
    0)."""
    if not (0 < idle_s < np.inf or (zero and idle_s == 0)):
        expected = (
            "a finite number of seconds, at least 0" if zero else "a positive number of seconds"
        )
        raise ConfigError(f"got idle_s = {idle_s}; expected {expected}")
