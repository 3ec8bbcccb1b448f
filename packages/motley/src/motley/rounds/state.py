"""The state of a run: what every run has that evolves, with one :meth:`RunState.save` and one
:meth:`RunState.restore`.

What a stage remembers is its own (:class:`~motley.rounds.stage.Stage`). What is not in here either
is frozen for the whole run (:class:`~motley.rounds.run_config.RunConfig`, the message sizes, the
backend) or lives within one server step only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from motley.algorithms.parts import ServerState, Tensors
from motley.core.arrays import Ids
from motley.core.saved_state import FIXED, restore_fields, save_fields
from motley.core.table import ClientTable
from motley.rounds.client_state import ClientStates
from motley.rounds.in_flight import InFlight
from motley.selectors.selector import Selector
from motley.tasks.task import ModelState
from motley.transport.ledger import Ledger


class BackendState(Protocol):
    """What evolves on the clients' side of a run; each backend has a class of its own."""

    @property
    def now_s(self) -> float:
        """Seconds since the run began, virtual or of the wall clock."""

    @property
    def paper_s(self) -> float:
        """Seconds as the papers count them: of local steps and of the values of uploads on the way
        to each server step, without downloads, probes and whatever else takes time; a step waits
        for its accepted uploads alone. NaN where time is real."""

    @property
    def client_states(self) -> ClientStates:
        """What clients keep between rounds, as far as the server's process holds it."""

    @property
    def flying(self) -> InFlight:
        """The dispatches under way, arrived ones included, as the synchrony sees them."""


C = TypeVar("C", bound=BackendState, covariant=True)
"""The clients' side of a run."""


@dataclass(frozen=True)
class BestRound:
    """The best round so far by validation.

    Parameters
    ----------
    scope: of the rows that decide.
    score: there.
    round: when it was.
    model: what a client started from then.
    """

    scope: str
    score: float
    round: int
    model: ModelState


@dataclass
class UnderWay:
    """The server step under way.

    Parameters
    ----------
    asked: whether a cohort was asked for since the last server step, found or not.
    candidates: ids probed last, ``[n]``.
    start_s: when the step began.
    asked_s: when a cohort was last asked for.
    sent_s: when it was sent out, after its probe.
    """

    asked: bool = False
    candidates: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    start_s: float = 0.0
    asked_s: float = 0.0
    sent_s: float = field(default=0.0, metadata=FIXED)


@dataclass
class Scores:
    """What evaluations have shown so far: metrics by name, on the common test set or the mean over
    clients.

    Parameters
    ----------
    metric: the headline.
    newest: of the newest evaluation.
    untrained: of the model before round 1.
    evaluated: of the last evaluation that was due; neither that of the untrained model nor one only
    because the run ended is one of them.
    peaks: the best value of each metric in all evaluations that were due.
    validation_peaks: the same on validation samples.
    waited: evaluations since each of them.
    longest_waits: the most that there were between two of them, or are since the last.
    best: the best round by validation; None before the first, and without validation samples.
    """

    metric: str = field(default="accuracy", metadata=FIXED)
    newest: dict[str, float] = field(default_factory=dict, metadata=FIXED)
    untrained: dict[str, float] = field(default_factory=dict)
    evaluated: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    validation_peaks: dict[str, float] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    longest_waits: dict[str, int] = field(default_factory=dict)
    best: BestRound | None = None

    @property
    def headline(self) -> float:
        """The newest headline metric; NaN before the first evaluation."""
        return self.newest.get(self.metric, math.nan)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what was saved."""
        restore_fields(self, saved)
        self.newest = self.evaluated or self.untrained


class Moment(NamedTuple):
    """What the clients' side may know of the server's at one moment.

    Parameters
    ----------
    version: server steps so far.
    draw_index: number under which the world draws.
    dispatch: clients sent out so far.
    begun: whether round 1 has begun.
    server: the server's state.
    downloads: messages by the version of the model.
    candidates: ids probed last, ``[n]``.
    sent_s: when a cohort was last sent out.
    """

    version: int
    draw_index: int
    dispatch: int
    begun: bool
    server: ServerState
    downloads: Mapping[int, Tensors]
    candidates: Ids
    sent_s: float


@dataclass
class RunState(Generic[C]):
    """What evolves in every run.

    Parameters
    ----------
    server: the server's side of the algorithm, the global model among it.
    selector: who chooses clients, with its own state.
    clients: the backend's part.
    scores: what evaluations have shown.
    under_way: the server step under way.
    ledger: all traffic so far.
    downloads: the message sent to clients, by model version; versions that nobody in flight works
    on are forgotten.
    version: rounds (server steps) so far.
    selections: calls of ``select`` so far.
    draw_index: number under which the selector and the world draw: it grows with every call of
    ``select`` and with every server step without one, so where a server waits for its cohort it is
    the round.
    dispatch: clients sent out so far.
    model_updates: server steps that changed the model (a step in which nothing was aggregated does
    not).
    remembered: by the synchrony; None: it has no memory.
    begun: whether enrolment and the evaluation before round 1 are done.
    """

    server: ServerState
    selector: Selector[Any]
    clients: C
    scores: Scores
    under_way: UnderWay = field(default_factory=UnderWay)
    ledger: Ledger = field(default_factory=Ledger)
    downloads: dict[int, Tensors] = field(default_factory=dict)
    version: int = 0
    selections: int = 0
    draw_index: int = 0
    dispatch: int = 0
    model_updates: int = 0
    remembered: ClientTable | None = None
    begun: bool = field(default=False, metadata=FIXED)

    @property
    def moment(self) -> Moment:
        """What the clients' side may know now."""
        return Moment(
            version=self.version,
            draw_index=self.draw_index,
            dispatch=self.dispatch,
            begun=self.begun,
            server=self.server,
            downloads=self.downloads,
            candidates=self.under_way.candidates,
            sent_s=self.under_way.sent_s,
        )

    def save(self) -> dict[str, Any]:
        """Return the state between two server steps as plain values and arrays."""
        return save_fields(self)

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned.

        Raises
        ------
        CodecError, StoreError: a selector whose state is of another kind, client states that lie
        elsewhere, or a state that an earlier version of Motley wrote.
        """
        restore_fields(self, saved)
        self.begun = True
