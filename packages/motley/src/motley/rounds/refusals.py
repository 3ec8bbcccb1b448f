"""Refused steps, a stage of runs with a guard: whose uploads stand out in them, and which clients
are set aside.

Where the guard refuses a step, the uploads whose norms stand out from those of the others
(:mod:`motley.core.outliers`; by the square root of the guard's factor) are dropped, and the server
steps on the rest. Where none stands out, as in a step of one upload, all are rejected and nobody is
blamed. A client whose uploads were dropped :data:`MOST_REFUSALS` times, without an accepted one
between, is set aside: no later round asks it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Parts, ServerState
from motley.core.arrays import Ids
from motley.core.outliers import outlying
from motley.core.records import Outcome
from motley.rounds.backend import ClientBackend, Landed
from motley.rounds.guard import Guard, norm, total_norm
from motley.rounds.round import Round
from motley.rounds.stage import Stage
from motley.rounds.state import RunState
from motley.tasks.finite import without_constants

__all__ = ["Refusals"]

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


class Refusals(Stage):
    """Drops the uploads that stand out in refused steps, and counts whose they are; the counts are
    in the run's state.

    Parameters
    ----------
    guard: which steps are refused. backend: gives the uploads once more, and is told whom it is
    about. names: whether clients may be named; False in a private run, where an upload alone is
    nobody's to look at.
    """

    def __init__(self, guard: Guard, backend: ClientBackend, names: bool) -> None:
        self.guard = guard
        self.backend = backend
        self.names = names

    @override
    def available(self, state: RunState, ids: Ids) -> Ids:
        """Return those of the clients that are not set aside."""
        aside = [client for client, times in state.refusals.items() if times >= MOST_REFUSALS]
        return ids[~np.isin(ids, aside)] if aside else ids

    @override
    def after(self, state: RunState, step: Round) -> None:
        """Forget the refusals of clients whose uploads were accepted, but of those that are set
        aside."""
        for client in {step.results[row].client for row in step.usable}:
            if state.refusals.get(client, MOST_REFUSALS) < MOST_REFUSALS:
                del state.refusals[client]

    def judged(self, state: RunState, step: Round, server: ServerState) -> tuple[Round, bool]:
        """Return the round, and whether the guard refuses its step to a new server state, which is
        noted with the total's norm."""
        norm = total_norm(step.total, state.server.model.buffers)
        if self.guard.refuses(norm, state.step_norms, state.server, server):
            noted = {"step_refused": 1.0, **({"step_norm": norm} if np.isfinite(norm) else {})}
            return step.noted(noted), True
        if norm:
            state.step_norms = [*state.step_norms, norm][-self.guard.window :]
        return step, False

    def dropped(self, state: RunState, step: Round) -> Round:
        """Return the round of a refused step without its total and without the uploads that stand
        out or, where none does, without all: nothing is accepted then."""
        step = dataclasses.replace(step, total={}, compressed={}, changes=None)
        landed = step.landed
        accepted = step.accepted
        rows = self._outlying(state, landed, accepted) if self.names else []
        if not rows:
            self.backend.blame(state, landed, accepted, "rejected", _ALONE)
            return step.told(accepted, Outcome.REJECTED)
        self.backend.blame(state, landed, np.array(rows), "rejected", _DROPPED)
        clients = landed.dispatches.timelines.client
        aside = [row for row in rows if _count(state.refusals, int(clients[row])) == MOST_REFUSALS]
        self.backend.blame(state, landed, np.array(aside, np.int64), "set aside", _ASIDE)
        counted = {"uploads_dropped": len(rows), "set_aside": len(aside)}
        # where the step was refused before, to those of then
        notes = {name: step.notes.get(name, 0.0) + n for name, n in counted.items()}
        step = step.noted({name: float(n) for name, n in notes.items() if n})
        return step.told(np.array(rows), Outcome.REJECTED)

    def _outlying(self, state: RunState, landed: Landed, accepted: Ids) -> list[int]:
        """Return the rows whose uploads stand out by the norms of their parts, rising; a few
        numbers of each upload are held."""
        uploads = self.backend.uploads(state, landed, accepted, None)
        norms = {
            row: _norms(upload.result.parts, state.server.model.buffers) for row, upload in uploads
        }
        rows = list(norms)
        found = outlying(list(norms.values()), math.sqrt(self.guard.factor))
        return [rows[i] for i in found]


def _norms(parts: Parts, buffers: Tensor) -> NDArray[Any]:
    """Return the norms of an upload's parts, where the client holds them, in order of their names,
    without numbers of the server's ``buffers`` that are not finite and stay."""
    known = {
        name: without_constants(part.value, buffers) if name == "buffers" else part.value
        for name, part in sorted(parts.items())
    }
    held = {name: parts[name].held for name in known}
    values = [value if held[name] is None else value[held[name]] for name, value in known.items()]
    return np.array([norm(value) for value in values if value.is_floating_point()])


def _count(refusals: MutableMapping[int, int], client: int) -> int:
    refusals[client] = refusals.get(client, 0) + 1
    return refusals[client]
