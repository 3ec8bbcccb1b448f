"""Where clients are: the one thing in which a simulated run and a deployed one differ.

:class:`~motley.rounds.loop.RoundLoop` asks a :class:`ClientBackend` who is available, has
candidates measured, sends cohorts out, waits, and collects what came back.
:class:`~motley.rounds.simulated.SimulatedBackend` plans all that in virtual time and trains lazily;
the backend of :mod:`motley_flower.deployed` exchanges messages with real clients in wall time.

A backend holds nothing that is saved: what evolves on the clients' side is ``RunState.clients``, an
object of the backend's making.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.algorithms.parts import ClientState, ServerState, Tensors
from motley.core.arrays import Bools, Floats, Ids
from motley.core.records import Cohort, Reports
from motley.engines.engine import DataView, RunSum
from motley.rounds.diagnostics import CompressionError
from motley.rounds.in_flight import InFlight
from motley.rounds.state import BackendState, RunState
from motley.rounds.upload_pipeline import Allocation, ReceivedUpload
from motley.timing.synchrony import ServerStep

__all__ = ["Blame", "ClientBackend", "DispatchOrder", "Landed"]

Blame = Literal["rejected", "set aside"]
"""What becomes of a client's upload in a refused step, or of the client."""


class DispatchOrder(NamedTuple):
    """What a cohort is sent out with.

    Parameters
    ----------
    cohort: the selector's choice. download: the message every client receives. allocation: how much
    each may upload.
    columns: the columns of :data:`~motley.rounds.in_flight.DISPATCH_COLUMNS` that the loop knows,
    ``[m]`` or one value for all.
    """

    cohort: Cohort
    download: Tensors
    allocation: Allocation
    columns: Mapping[str, Any]


@dataclass(frozen=True)
class Landed:
    """The dispatches that end with a server step, in order of client id.

    Parameters
    ----------
    dispatches: ``[n]`` rows. outcome: int8 ``[n]``, values of
    :class:`~motley.core.records.Outcome`. sent: bool ``[n]``, whether any of an upload was sent,
    which is billed by the columns ``bits_up`` and ``paper_bits``. scale: ``[n]`` staleness factors,
    None for none. mix: whether uploads are mixed in as models (FedAsync).
    """

    dispatches: InFlight
    outcome: NDArray[np.int8]
    sent: Bools
    scale: Floats | None = None
    mix: bool = False

    def __len__(self) -> int:
        return len(self.dispatches)


class ClientBackend(ABC):
    """What the round loop needs from the clients' side; every method takes the run's state."""

    holds_client_states: ClassVar[bool] = True
    """Whether the server's process holds what clients keep between rounds, so that personal models
    can be evaluated there."""

    simulated: ClassVar[bool] = True
    """Whether clients are simulated, so that noise that hides them comes from the run's secret and
    can be repeated; in a deployment it comes from the operating system."""

    @abstractmethod
    def new_state(self) -> BackendState:
        """Return the clients' side before round 1."""

    @abstractmethod
    def open(self, state: RunState) -> Ids:
        """Make ready, at the first step of this process; return the ids of clients that are met for
        the first time, sorted."""

    def newcomers(self, state: RunState) -> Ids:
        """Return the ids of clients that are met for the first time now, sorted. Asked before every
        choice."""
        return np.zeros(0, np.int64)

    @abstractmethod
    def enrol(self, state: RunState, ids: Ids, wanted: frozenset[str]) -> Mapping[str, Floats]:
        """Return signals ``[n, ...]`` of newly met clients, at least those wanted but
        ``last_layer``; bill what clients sent."""

    @abstractmethod
    def federation_rows(self, state: RunState) -> Iterator[dict[str, Any]]:
        """Yield the columns of the table ``federation`` in blocks: one row per client known before
        round 1."""

    @abstractmethod
    def examples(self, state: RunState) -> Ids:
        """Return the number of training samples of every client, ``[K]``; 0 for a client that was
        never met."""

    def claimed_examples(self, state: RunState) -> Ids:
        """Return the number of samples by which each client's update is weighed, ``[K]``."""
        return self.examples(state)

    def told(
        self, state: RunState, draw_index: int, reports: Reports
    ) -> tuple[Reports, dict[str, Any]]:
        """Return the reports as clients send them, which the selector hears, and rows of the table
        ``claims``.

        ``draw_index``: of the state; 0 at enrolment."""
        return reports, {}

    @abstractmethod
    def available(self, state: RunState) -> Ids:
        """Return the ids of the clients that can be asked now, sorted."""

    def back_s(self, state: RunState) -> float:
        """Return when a client can be asked again, where none can now; at present where nothing
        tells."""
        return state.clients.now_s

    def drawn(self, state: RunState, available: Ids, count: int) -> Cohort | None:
        """Return the available clients of a cohort that clients can recompute; None where the
        selector chooses, as in simulations."""
        return None

    @abstractmethod
    def probe(
        self, state: RunState, ids: Ids, wanted: Mapping[str, int | None], download: Tensors
    ) -> tuple[Ids, Mapping[str, Floats]]:
        """Have candidates measure the model of ``download``; bill it, and let its time pass.

        Parameters
        ----------
        wanted: signal -> number of batches to measure it on (None: all data).

        Returns the ids that answered, sorted, and the signals in that order.
        """

    @abstractmethod
    def workload(self, state: RunState, cohort: Cohort) -> Mapping[str, Floats]:
        """Return the columns ``examples``, ``steps``, ``compute_s``, ``uplink_mbps`` ``[m]`` of
        :class:`~motley.transport.allocators.allocator.AllocationContext`: the work that is planned
        for a cohort."""

    @abstractmethod
    def dispatch(self, state: RunState, order: DispatchOrder) -> None:
        """Send a cohort out, and bill its downloads."""

    @abstractmethod
    def in_flight(self, state: RunState) -> InFlight:
        """Return the dispatches under way, arrived ones included, as the synchrony sees them."""

    def widths(self, state: RunState) -> Floats | None:
        """Return the share of the model's width that each client holds now, ``[K]``; None where all
        hold the whole model."""
        return None

    @property
    def listed_widths(self) -> tuple[float, ...]:
        """The widths that a client may have or train, falling; empty where all hold the whole
        model."""
        return ()

    @abstractmethod
    def wait(self, state: RunState, until_s: float) -> None:
        """Let time pass until ``until_s``, or until something happens before."""

    @abstractmethod
    def collect(self, state: RunState, step: ServerStep, stay: Bools) -> Landed:
        """Take out of ``in_flight`` all rows but ``stay``: the dispatches that end with this server
        step."""

    @abstractmethod
    def uploads(
        self, state: RunState, landed: Landed, rows: Ids, error: CompressionError | None
    ) -> Iterator[tuple[int, ReceivedUpload]]:
        """Yield (row, upload) of these rows of ``landed``, in their order.

        ``error``: measures what compression loses, where diagnostics ask for it."""

    def upload_sums(self, state: RunState, landed: Landed, rows: Ids) -> Iterator[RunSum] | None:
        """Return the sums of these rows' uploads, whose positions are those of the rows, in their
        order; None where only :meth:`uploads` gives them."""
        return None

    @abstractmethod
    def commit(
        self,
        state: RunState,
        landed: Landed,
        accepted: Ids,
        client_states: Mapping[int, ClientState],
    ) -> None:
        """Make an accepted step final for its clients: from now on they keep ``client_states``.
        ``accepted``: rows of ``landed``."""

    def recalibrate(self, state: RunState, landed: Landed, accepted: Ids) -> ServerState:
        """Return the server's state with BatchNorm statistics estimated anew, where the experiment
        asks for it."""
        return state.server

    def incidents(self, state: RunState) -> dict[str, Any]:
        """Return the columns of the table ``incidents`` since the last call, where something can go
        wrong; else nothing."""
        return {}

    def blame(self, state: RunState, landed: Landed, rows: Ids, event: Blame, reason: str) -> None:  # noqa: B027 - as below
        """Take note of what a refused step has shown of the clients in these rows of ``landed``, in
        words."""

    def observe(self, state: RunState, reports: Reports) -> None:  # noqa: B027 - only real clients are timed
        """Take in how long clients took."""

    def data_view(self, state: RunState, ids: Ids) -> DataView | None:
        """Return what these clients see of their data now, where the distribution drifts; None: all
        of it."""
        return None

    def class_names(self, state: RunState) -> Ids | None:
        """Return what every client calls each class now, ``[K, C]``, where meanings drift; None:
        classes are what they are."""
        return None
