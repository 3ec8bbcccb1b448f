"""A round on its way: what one server step has so far, and the reports on those who took part.

A :class:`Round` passes through the parts of :meth:`motley.rounds.loop.RoundLoop.step`, ``choose ->
dispatch -> wait -> collect -> learn -> report``. Each returns a new one with what it adds; nothing
else of a step is remembered anywhere. What evolves from step to step is
:class:`~motley.rounds.state.RunState`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.parts import ClientState, Parts, Tensors
from motley.core.arrays import Ids, Ints
from motley.core.records import Cohort, Outcome, Reports
from motley.engines.engine import TrainResult
from motley.rounds.in_flight import InFlight, Landed

_NOBODY = Landed(InFlight.empty(), np.zeros(0, np.int8), np.zeros(0, np.bool_))


class ReceivedUpload(NamedTuple):
    """One client's upload, as the server decodes it.

    Parameters
    ----------
    result: of the training, ``parts`` decoded.
    model_update: parts that say how the client's model moved, where ``result.parts`` do not (under
    EF21, which sends changes).
    change: ``[D]``, EF21's.
    client_state: what the client keeps because of this upload.
    """

    result: TrainResult
    model_update: Parts = {}  # noqa: RUF012 - never written to
    change: Tensor | None = None
    client_state: Tensors | None = None


@dataclass(frozen=True)
class Round:
    """What a server step has so far; empty where it has nothing yet.

    Parameters
    ----------
    number: of the server step, from 1.
    cohort: the newest choice.
    dispatched: clients sent out, in order of their dispatches.
    nobody_there: whether no client could be asked at the newest choice.
    row: columns of the table ``rounds`` that a choice tells.
    notes: of its column ``notes``.
    choices: rows of the table ``choices``, for each choice of which the rule noted numbers of
    clients.
    landed: ``[n]`` dispatches that end with this step.
    outcome: int8 ``[n]``, values of :class:`~motley.core.records.Outcome`.
    staleness: ``[n]``, updates of the model since each of them was sent out.
    results: of the training, by row of ``landed``, without uploads.
    total: that the server steps on; empty where there is nothing to aggregate.
    """

    number: int
    cohort: Cohort = field(default_factory=lambda: Cohort(np.zeros(0, np.int64)))
    dispatched: tuple[int, ...] = ()
    nobody_there: bool = False
    row: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, float] = field(default_factory=dict)
    choices: tuple[Mapping[str, Any], ...] = ()
    landed: Landed = _NOBODY
    outcome: NDArray[np.int8] = field(default_factory=lambda: _NOBODY.outcome)
    staleness: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    results: Mapping[int, TrainResult] = field(default_factory=dict)
    total: dict[str, Tensor] = field(default_factory=dict)

    def noted(self, notes: Mapping[str, float]) -> Round:
        """Return the round with further notes; one of the same name takes the place of the
        first."""
        return dataclasses.replace(self, notes={**self.notes, **notes}) if notes else self

    def told(self, rows: Ids, outcome: Outcome) -> Round:
        """Return the round with another outcome of these rows."""
        changed = self.outcome.copy()
        changed[rows] = outcome
        return dataclasses.replace(self, outcome=changed)

    @cached_property
    def accepted(self) -> Ids:
        """Rows of ``landed`` that are accepted, rising."""
        return np.flatnonzero(self.outcome == Outcome.ACCEPTED)

    @cached_property
    def usable(self) -> list[int]:
        """Accepted rows whose uploads are finite, rising."""
        return [row for row in self.accepted.tolist() if self.results[row].finite]

    def client_states(self) -> dict[int, ClientState]:
        """Return what the algorithm keeps of each client whose upload is accepted and finite, where
        that is something."""
        trained = [self.results[row] for row in self.usable]
        return {
            result.client: result.client_state
            for result in trained
            if result.client_state is not None
        }

    def reports(self) -> LandedReports:
        """Return the reports on all clients whose dispatch ended with this step."""
        columns = self.landed.dispatches.columns
        lines = self.landed.dispatches.timelines
        shapes = {
            name: np.shape(value)
            for trained in self.results.values()
            for name, value in trained.signals.items()
        }
        signals = {name: np.full((len(lines), *shape), np.nan) for name, shape in shapes.items()}
        for i, trained in self.results.items():
            for name, value in trained.signals.items():
                signals[name][i] = value
        gone = lines.dropped
        # what a server hears from no client that has not delivered
        there: NDArray[np.float64] = np.where(gone | np.isnan(lines.arrives_s), np.nan, 1.0)
        return LandedReports(
            lines.client,
            self.outcome,
            version=lines.version.astype(np.float64),
            num_examples=columns["examples"],
            local_steps=lines.steps.astype(np.float64) * there,
            staleness=self.staleness.astype(np.float64),
            download_s=(lines.downloaded_s - lines.start_s) * there,
            compute_s=(lines.computed_s - lines.downloaded_s) * there,
            upload_s=(lines.arrives_s - lines.computed_s) * there,
            bits_up=np.where(self.landed.sent, columns["bits_up"], np.where(gone, np.nan, 0.0)),
            bits_down=columns["bits_down"],
            signals=signals,
        )


@dataclass(frozen=True)
class LandedReports(Reports):
    """Reports on dispatches that ended with a server step, by client; one that was sent out twice
    has two rows."""

    distinct: ClassVar[bool] = False

    def heard(self) -> Reports:
        """Return one report per client, which the selector hears: of its last accepted dispatch,
        else of its last. What came of an upload that was cut is in the ledger alone."""
        away = np.isnan(self.upload_s)
        reports = dataclasses.replace(self, bits_up=np.where(away, np.nan, self.bits_up))
        # rows are in order of client id
        last = np.append(self.ids[1:] != self.ids[:-1], True)[: len(self)]
        if last.all():
            return reports
        # the last key counts first: by client, then those accepted behind the others, then by row
        order = np.lexsort((np.arange(len(self)), self.outcome == Outcome.ACCEPTED, self.ids))
        return reports[order[last]]
