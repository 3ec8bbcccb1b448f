"""The state of a run: everything that evolves, with one :meth:`RunState.save` and one
:meth:`RunState.restore`.

What is not in here is either frozen for the whole run
(:class:`~motley.rounds.run_config.RunConfig`, the message sizes, the upload pipeline, the backend)
or lives within one server step only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from motley.algorithms.parts import ServerState, Tensors
from motley.core.arrays import Ids
from motley.core.last_updates import LastUpdates
from motley.core.saved_state import FIXED, restore_fields, save, save_fields
from motley.privacy.privacy_ledger import PrivacyState
from motley.rounds.client_state import ClientStates
from motley.selectors.selector import Selector
from motley.tasks.task import ModelState
from motley.transport.ledger import Ledger

__all__ = ["BackendState", "BestRound", "RunState"]


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


@dataclass(frozen=True)
class BestRound:
    """The best round so far by validation: the ``scope`` and its ``score``, when it was, and what a
    client starts from then."""

    scope: str
    score: float
    round: int
    model: ModelState


@dataclass
class RunState:
    """Everything that evolves in a run.

    Parameters
    ----------
    server: the server's side of the algorithm, the global model among it. selector: who chooses
    clients, with its own state.
    clients: the backend's part. ledger: all traffic so far.
    downloads: the message sent to clients, by model version; versions that nobody in flight works
    on are forgotten.
    allocator: state of the upload allocator. mean_vector: EF21's mean of all clients' vectors
    ``[D]``, None before the first.
    consensus: the running consensus update ``[D]`` of :mod:`~motley.rounds.upload_signals`, None
    before the first.
    last_updates: each participant's last update, where the selector compares it with the consensus
    update; empty otherwise.
    candidates: ids probed last, ``[n]``.
    version: rounds (server steps) so far. selections: calls of ``select`` so far. dispatch: clients
    sent out so far.
    draw_index: number under which the selector and the world draw, their argument ``round``: it
    grows with every call of ``select`` and with every server step without one, so where a server
    waits for its cohort it is the round.
    model_updates: server steps that changed the model (a step in which nothing was aggregated does
    not).
    refusals: by client, how often its upload was dropped from a refused step since its last
    accepted one; set aside from :data:`~motley.rounds.refusals.MOST_REFUSALS` on.
    step_norms: norms of the last aggregates that moved the model, newest last, as many as the guard
    looks at.
    good: the server's state at the last evaluation whose loss was finite; None before the first and
    without a guard. ends_at_good: whether it is the run's result, because the last evaluation, only
    at the end of the run, had no finite loss; a longer run goes on from ``server``.
    begun: whether enrolment and the evaluation before round 1 are done. asked: whether a cohort was
    asked for since the last server step, found or not. start_s: when the current round began.
    asked_s: when a cohort was last asked for. sent_s: when it was sent out, after its probe.
    still_steps, idle_steps: server steps since one brought a limit of ``stop`` nearer, with
    somebody to ask and with nobody, see :mod:`motley.rounds.standstill`.
    evaluated: all metrics by name, on the common test set or the mean over clients, of the last
    evaluation that was due; neither that of the untrained model nor one only because the run ended
    is one of them. peaks: the best value of each metric in all evaluations that were due.
    newest: those of the newest evaluation. untrained: those of the untrained model. metric: the
    headline.
    best: the best round by validation; None before the first, and without validation samples.
    validation_peaks: the best value of each metric on validation samples, in all evaluations that
    were due. waited: evaluations since each of them. longest_waits: the most that there were
    between two of them, or are since the last.
    privacy: clip and counts of a private run; None otherwise.
    """

    server: ServerState
    selector: Selector[Any]
    clients: BackendState
    ledger: Ledger = field(default_factory=Ledger)
    downloads: dict[int, Tensors] = field(default_factory=dict)
    allocator: Mapping[str, Any] = field(default_factory=dict)
    mean_vector: Tensor | None = None
    consensus: Tensor | None = None
    last_updates: LastUpdates = field(default_factory=LastUpdates)
    step_norms: list[float] = field(default_factory=list)
    refusals: dict[int, int] = field(default_factory=dict)
    good: ServerState | None = None
    ends_at_good: bool = False
    candidates: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    version: int = 0
    selections: int = 0
    draw_index: int = 0
    dispatch: int = 0
    model_updates: int = 0
    begun: bool = field(default=False, metadata=FIXED)
    asked: bool = False
    start_s: float = 0.0
    asked_s: float = 0.0
    sent_s: float = field(default=0.0, metadata=FIXED)
    still_steps: int = 0
    idle_steps: int = 0
    best: BestRound | None = None
    evaluated: dict[str, float] = field(default_factory=dict)
    peaks: dict[str, float] = field(default_factory=dict)
    validation_peaks: dict[str, float] = field(default_factory=dict)
    waited: dict[str, int] = field(default_factory=dict)
    longest_waits: dict[str, int] = field(default_factory=dict)
    newest: dict[str, float] = field(default_factory=dict, metadata=FIXED)
    untrained: dict[str, float] = field(default_factory=dict)
    metric: str = field(default="accuracy", metadata=FIXED)
    privacy: PrivacyState | None = None

    @property
    def score(self) -> float:
        """The newest headline metric; NaN before the first evaluation."""
        return self.newest.get(self.metric, math.nan)

    @property
    def final_server(self) -> ServerState:
        """The server's state, at the end of a run the last good one."""
        return self.good if self.ends_at_good and self.good is not None else self.server

    def save(self) -> dict[str, Any]:
        """Return the state between two server steps as plain values and arrays."""
        good = "server" if self.good is self.server else save(self.good)  # is saved already
        return {**save_fields(self), "good": good}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned.

        Raises
        ------
        CodecError, StoreError: a selector whose state is of another kind, client states that lie
        elsewhere, or a state that an earlier version of Motley wrote.
        """
        same = saved.get("good") == "server"
        # an earlier checkpoint lacks what was not kept then
        waits: dict[str, Any] = {"validation_peaks": {}, "waited": {}, "longest_waits": {}}
        saved = {"still_steps": 0, "idle_steps": 0, "untrained": {}, **waits, **saved}
        restore_fields(self, {**saved, "good": None} if same else saved)
        if same:
            self.good = self.server
        self.begun = True
        self.newest = self.evaluated or self.untrained
