"""Refused steps: whose uploads stand out in them, and which clients are set aside.

Where the guard refuses a step, the uploads whose norms stand out from those of the others
(:mod:`motley.core.outliers`; by the square root of the guard's factor) are dropped, and the server
steps on the rest. Where none stands out, as in a step of one upload, all are rejected and nobody is
blamed. A client whose uploads were dropped :data:`MOST_REFUSALS` times, without an accepted one
between, is set aside: no later round asks it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from motley.algorithms.parts import Parts, Tensors
from motley.core.arrays import Ids
from motley.core.outliers import outlying
from motley.core.records import Outcome
from motley.engines.base import TrainResult
from motley.rounds.backend import ClientBackend, Landed
from motley.rounds.config import RunConfig
from motley.rounds.guard import norm
from motley.rounds.state import RunState

__all__ = ["MOST_REFUSALS", "Gathered", "Refusals"]

MOST_REFUSALS = 3
"""Refusals in a row after which a client is set aside."""
_ALONE = (
    "the step would have ruined the model, and no upload could be told apart from the "
    "others: all are rejected"
)
_DROPPED = (
    "its upload stands out in a step that would have ruined the model, which is made without it"
)
_ASIDE = (
    f"its uploads were dropped {MOST_REFUSALS} times in a row from steps that they would "
    "have ruined; this run asks it no more"
)


class Gathered(NamedTuple):
    """What the accepted uploads of a step come to.

    Parameters
    ----------
    results: of the training, by row, without uploads. compressed: by client, what compression
    leaves with it. total: that the server steps on; empty where there was nothing to aggregate.
    changes: their sum under EF21, else None."""

    results: dict[int, TrainResult]
    compressed: dict[int, Tensors]
    total: dict[str, Tensor]
    changes: Tensor | None


class Refusals:
    """Drops the uploads that stand out in refused steps, and counts whose they are; the counts are
    in the run's state.

    Parameters
    ----------
    config: of the run. backend: gives the uploads once more, and is told whom it is about.
    """

    def __init__(self, config: RunConfig, backend: ClientBackend) -> None:
        self.guard = config.guard
        self.backend = backend
        self.names = config.privacy is None  # else an upload alone is nobody's to look at
        # of the step under way: uploads dropped, clients set aside
        self._counts: dict[int, tuple[int, int]] = {}

    def allowed(self, state: RunState, ids: Ids) -> Ids:
        """Return those of the clients that are not set aside."""
        aside = [client for client, times in state.refusals.items() if times >= MOST_REFUSALS]
        return ids[~np.isin(ids, aside)] if aside else ids

    def drop(
        self,
        state: RunState,
        landed: Landed,
        outcome: NDArray[np.int8],
        note: Callable[[dict[str, float]], None],
    ) -> bool:
        """Reject the uploads of a refused step that stand out or, where none does, all; return
        whether it is to be tried again.

        ``outcome``: of the rows of ``landed``; changed in place."""
        accepted = np.flatnonzero(outcome == Outcome.ACCEPTED)
        rows = self._outlying(state, landed, accepted) if self.names else []
        if not rows:
            outcome[accepted] = Outcome.REJECTED
            self.backend.blame(state, landed, accepted, "rejected", _ALONE)
            return False
        outcome[rows] = Outcome.REJECTED
        self.backend.blame(state, landed, np.array(rows), "rejected", _DROPPED)
        clients = landed.dispatches.timelines.client
        aside = [row for row in rows if _count(state.refusals, int(clients[row])) == MOST_REFUSALS]
        self.backend.blame(state, landed, np.array(aside, np.int64), "set aside", _ASIDE)
        dropped, gone = self._counts.get(state.version, (0, 0))  # where the step was refused before
        self._counts = {state.version: (dropped + len(rows), gone + len(aside))}
        for name, number in zip(
            ("uploads_dropped", "set_aside"), self._counts[state.version], strict=True
        ):
            note({name: float(number)} if number else {})
        return True

    def accepted(self, state: RunState, clients: Iterable[int]) -> None:
        """Forget the refusals of clients whose uploads were accepted, but of those that are set
        aside."""
        for client in clients:
            if state.refusals.get(client, MOST_REFUSALS) < MOST_REFUSALS:
                del state.refusals[client]

    def _outlying(self, state: RunState, landed: Landed, accepted: Ids) -> list[int]:
        """Return the rows whose uploads stand out by the norms of their parts, rising; a few
        numbers of each upload are held."""
        uploads = self.backend.uploads(state, landed, accepted, None)
        norms = {row: _norms(upload.result.parts) for row, upload in uploads}
        factor = math.inf if self.guard is None else math.sqrt(self.guard.factor)
        rows = list(norms)
        return [rows[i] for i in outlying(list(norms.values()), factor)]


def _norms(parts: Parts) -> NDArray[Any]:
    """Return the norms of an upload's parts, where the client holds them, in order of their
    names."""
    values = [
        part.value if part.held is None else part.value[part.held]
        for _, part in sorted(parts.items())
    ]
    return np.array([norm(value) for value in values if value.is_floating_point()])


def _count(refusals: MutableMapping[int, int], client: int) -> int:
    refusals[client] = refusals.get(client, 0) + 1
    return refusals[client]
