"""Where clients are: the one thing in which a simulated run and a deployed one differ.

:class:`~motley.rounds.loop.RoundLoop` asks a :class:`ClientBackend` who is available, has
candidates measured, sends cohorts out, waits, and collects what came back.
:class:`~motley.rounds.simulated.SimulatedBackend` plans all that in virtual time and trains lazily;
the backend of :mod:`motley_flower.deployed` exchanges messages with real clients in wall time.

What evolves on the clients' side is its attribute ``clients``, which the run's state saves. Of the
server's side it gets a :class:`~motley.rounds.state.Moment`, which nobody changes, and it returns
values; what it sends is billed through the run's :class:`~motley.rounds.channel.Channel`. What
only one kind of backend does in a round beside these methods (claims of dishonest clients, notes of
incidents, statistics estimated anew) is in stages of its own.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Generic, NamedTuple

from motley.algorithms.parts import ClientState, Tensors
from motley.core.arrays import Bools, Floats, Ids
from motley.core.records import Cohort
from motley.engines.engine import RunSum
from motley.rounds.channel import Allocation
from motley.rounds.data_drift import DriftView
from motley.rounds.holdings.holding import Holding
from motley.rounds.in_flight import Landed
from motley.rounds.round import ReceivedUpload
from motley.rounds.state import C, Moment
from motley.timing.synchrony import ServerStep


class DispatchOrder(NamedTuple):
    """What a cohort is sent out with.

    Parameters
    ----------
    cohort: the selector's choice.
    download: the message every client receives.
    allocate: work planned for the cohort -> how much each client may upload. The work is the
    columns ``examples``, ``steps``, ``compute_s`` and ``uplink_mbps`` ``[m]`` of
    :class:`~motley.transport.allocators.allocator.AllocationContext`; None where all send the same
    share.
    columns: the columns of :data:`~motley.rounds.in_flight.DISPATCH_COLUMNS` that the loop knows,
    ``[m]`` or one value for all.
    """

    cohort: Cohort
    download: Tensors
    allocate: Callable[[Callable[[], Mapping[str, Floats]]], Allocation]
    columns: Mapping[str, Any]


class Sizes(NamedTuple):
    """Numbers of samples of all clients, ``[K]`` each.

    Parameters
    ----------
    examples: training samples; 0 for a client that was never met.
    claimed: by which each client's update is weighed.
    """

    examples: Ids
    claimed: Ids


class Uploads(NamedTuple):
    """The uploads of a step: one of the two.

    Parameters
    ----------
    single: (row, upload) in order of the rows.
    sums: of the rows' uploads, whose positions are those of the rows, in their order.
    """

    single: Iterator[tuple[int, ReceivedUpload]] | None
    sums: Iterator[RunSum] | None = None


class ClientBackend(ABC, Generic[C]):
    """What the round loop needs from the clients' side.

    Attributes
    ----------
    clients: what evolves on the clients' side.
    drift: what clients see of their data, where it drifts; None: all of it.
    holding: what clients hold of the model, where that is not all of it.
    """

    holds_client_states: ClassVar[bool] = True
    """Whether the server's process holds what clients keep between rounds, so that personal models
    can be evaluated there."""

    simulated: ClassVar[bool] = True
    """Whether clients are simulated, so that noise that hides them comes from the run's secret and
    can be repeated; in a deployment it comes from the operating system."""

    clients: C
    drift: DriftView | None = None
    holding: Holding | None = None

    @abstractmethod
    def newcomers(self, now: Moment) -> Ids:
        """Return the ids of clients that are met for the first time now, sorted. Asked at the first
        step of a process, where it makes ready, and before every choice."""

    @abstractmethod
    def enrol(self, now: Moment, ids: Ids, wanted: frozenset[str]) -> Mapping[str, Floats]:
        """Return signals ``[n, ...]`` of newly met clients, at least those wanted but
        ``last_layer``; bill what clients sent."""

    @abstractmethod
    def federation_rows(self, now: Moment) -> Iterator[dict[str, Any]]:
        """Yield the columns of the table ``federation`` in blocks: one row per client known before
        round 1."""

    @abstractmethod
    def sizes(self, now: Moment) -> Sizes:
        """Return how many samples clients have, and claim to have."""

    @abstractmethod
    def available(self, now: Moment) -> Ids:
        """Return the ids of the clients that can be asked now, sorted."""

    @abstractmethod
    def back_s(self, now: Moment) -> float:
        """Return when a client can be asked again, where none can now; at present where nothing
        tells."""

    @abstractmethod
    def probe(
        self, now: Moment, ids: Ids, wanted: Mapping[str, int | None], download: Tensors
    ) -> tuple[Ids, Mapping[str, Floats]]:
        """Have candidates measure the model of ``download``; bill it, and let its time pass.

        Parameters
        ----------
        wanted: signal -> number of batches to measure it on (None: all data).

        Returns the ids that answered, sorted, and the signals in that order.
        """

    @abstractmethod
    def dispatch(self, now: Moment, order: DispatchOrder) -> Allocation:
        """Send a cohort out, bill its downloads, and return what it may upload."""

    @abstractmethod
    def wait(self, now: Moment, until_s: float) -> None:
        """Let time pass until ``until_s``, or until something happens before."""

    @abstractmethod
    def collect(self, now: Moment, step: ServerStep, stay: Bools) -> Landed:
        """Take out of flight all rows but ``stay``: the dispatches that end with this server
        step."""

    @abstractmethod
    def uploads(self, now: Moment, landed: Landed, rows: Ids, sums: bool = False) -> Uploads:
        """Return the uploads of these rows of ``landed``.

        Parameters
        ----------
        sums: whether sums will do, where they can be had.
        """

    @abstractmethod
    def commit(
        self, landed: Landed, accepted: Ids, client_states: Mapping[int, ClientState]
    ) -> None:
        """Make an accepted step final for its clients: from now on they keep ``client_states``.

        Parameters
        ----------
        accepted: rows of ``landed``.
        """
