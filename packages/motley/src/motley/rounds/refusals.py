"""Refused steps, a stage of runs with a guard: whose uploads stand out in them, which clients are
set aside, and the last good model.

Where the guard refuses a step, the uploads whose norms stand out from those of the others
(:mod:`motley.core.outliers`; by the square root of the guard's factor) are dropped, and the server
steps on the rest. Where none stands out, as in a step of one upload, all are rejected and nobody is
blamed. A client whose uploads were dropped :data:`MOST_REFUSALS` times, without an accepted one
between, is set aside: no later round asks it.

After an evaluation with a finite loss the server's state is remembered as good; after another one
the server goes back to the last good state.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import Parts, ServerState
from motley.core.arrays import Ids
from motley.core.outliers import outlying
from motley.core.records import Outcome
from motley.core.saved_state import built, save
from motley.rounds.backend import ClientBackend
from motley.rounds.guard import Guard, norm, total_norm
from motley.rounds.in_flight import Landed
from motley.rounds.round import Round
from motley.rounds.stage import Blamed, Stage
from motley.rounds.state import RunState
from motley.tasks.finite import without_constants

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
    """Drops the uploads that stand out in refused steps, counts whose they are, and goes back to
    the last good model.

    Parameters
    ----------
    guard: which steps are refused.
    backend: gives the uploads once more.
    private: whether the run is: then no client is named, for an upload alone is nobody's to look
    at, and evaluations decide nothing, for they look at clear data.

    Attributes
    ----------
    counts: by client, how often its upload was dropped from a refused step since its last accepted
    one; set aside from :data:`MOST_REFUSALS` on.
    step_norms: norms of the last aggregates that moved the model, newest last, as many as the guard
    looks at.
    good: the server's state at the last evaluation whose loss was finite; None before the first.
    ends_at_good: whether it is the run's result, because the last evaluation, only at the end of
    the run, had no finite loss; a longer run goes on from the server's state.
    """

    name = "guard"

    def __init__(self, guard: Guard, backend: ClientBackend[Any], private: bool) -> None:
        self.guard = guard
        self.backend = backend
        self.private = private
        self.counts: dict[int, int] = {}
        self.step_norms: list[float] = []
        self.good: ServerState | None = None
        self.ends_at_good = False

    @override
    def save(self, state: RunState[Any]) -> Mapping[str, Any]:
        # most often it is in the checkpoint already
        good = "server" if self.good is state.server else save(self.good)
        return {
            "counts": dict(self.counts),
            "step_norms": list(self.step_norms),
            "good": good,
            "ends_at_good": self.ends_at_good,
        }

    @override
    def restore(self, state: RunState[Any], saved: Mapping[str, Any]) -> None:
        good = saved["good"]
        self.good = state.server if good == "server" else built(ServerState | None, good, "good")
        self.counts = built(dict[int, int], saved["counts"], "counts")
        self.step_norms = built(list[float], saved["step_norms"], "step_norms")
        self.ends_at_good = bool(saved["ends_at_good"])

    @override
    def available(self, state: RunState[Any], ids: Ids) -> Ids:
        """Return those of the clients that are not set aside."""
        aside = [client for client, times in self.counts.items() if times >= MOST_REFUSALS]
        return ids[~np.isin(ids, aside)] if aside else ids

    @override
    def gather(self, state: RunState[Any], step: Round) -> None:
        self.ends_at_good = False

    @override
    def after(self, state: RunState[Any], step: Round) -> None:
        """Forget the refusals of clients whose uploads were accepted, but of those that are set
        aside."""
        if not self.counts:
            return
        for client in {step.results[row].client for row in step.usable}:
            if self.counts.get(client, MOST_REFUSALS) < MOST_REFUSALS:
                del self.counts[client]

    @override
    def evaluated(
        self, state: RunState[Any], scores: Mapping[str, float], due: bool
    ) -> Mapping[str, float]:
        """Remember the server's state as good after an evaluation with a finite loss; go back to
        the last good one otherwise, which is noted.

        After an evaluation only because the run ended (not ``due``), the state stays what a longer
        run would go on from."""
        if self.private:
            return {}
        if math.isfinite(scores["loss"]):
            self.good = state.server if due else self.good
        elif self.good is not None and due:
            state.server = self.good
            return {"model_restored": 1.0}
        elif self.good is not None:
            self.ends_at_good = True
        return {}

    @override
    def result(self, server: ServerState) -> ServerState:
        """Return the last good state, where the run ends at that."""
        return self.good if self.ends_at_good and self.good is not None else server

    def judged(self, state: RunState[Any], step: Round, server: ServerState) -> tuple[Round, bool]:
        """Return the round, and whether the guard refuses its step to a new server state, which is
        noted with the total's norm."""
        norm = total_norm(step.total, state.server.model.buffers)
        if self.guard.refuses(norm, self.step_norms, state.server, server):
            noted = {"step_refused": 1.0, **({"step_norm": norm} if np.isfinite(norm) else {})}
            return step.noted(noted), True
        if norm:
            self.step_norms = [*self.step_norms, norm][-self.guard.window :]
        return step, False

    def dropped(self, state: RunState[Any], step: Round) -> tuple[Round, list[Blamed]]:
        """Return the round of a refused step without its total and without the uploads that stand
        out or, where none does, without all: nothing is accepted then; and what that shows of
        clients."""
        step = dataclasses.replace(step, total={})
        landed = step.landed
        accepted = step.accepted
        outlying = [] if self.private else self._outlying(state, landed, accepted)
        if not outlying:
            blamed = Blamed(accepted, "rejected", _ALONE)
            return step.told(accepted, Outcome.REJECTED), [blamed]
        rows = np.array(outlying)
        clients = landed.dispatches.timelines.client
        aside = [row for row in outlying if _count(self.counts, int(clients[row])) == MOST_REFUSALS]
        counted = {"uploads_dropped": len(outlying), "set_aside": len(aside)}
        # where the step was refused before, to those of then
        notes = {name: step.notes.get(name, 0.0) + n for name, n in counted.items()}
        step = step.noted({name: float(n) for name, n in notes.items() if n})
        return step.told(rows, Outcome.REJECTED), [
            Blamed(rows, "rejected", _DROPPED),
            Blamed(np.array(aside, np.int64), "set aside", _ASIDE),
        ]

    def _outlying(self, state: RunState[Any], landed: Landed, accepted: Ids) -> list[int]:
        """Return the rows whose uploads stand out by the norms of their parts, rising; a few
        numbers of each upload are held."""
        uploads = self.backend.uploads(state.moment, landed, accepted).single or ()
        norms = {
            row: _norms(upload.result.parts, state.server.model.buffers) for row, upload in uploads
        }
        rows = list(norms)
        outliers = outlying(list(norms.values()), math.sqrt(self.guard.factor))
        return [rows[i] for i in outliers]


def _norms(parts: Parts, buffers: Tensor) -> NDArray[Any]:
    """Return the norms of an upload's parts, where the client holds them, in order of their names,
    without numbers of the server's ``buffers`` that are not finite and stay."""
    cleaned = {
        name: without_constants(part.value, buffers) if name == "buffers" else part.value
        for name, part in sorted(parts.items())
    }
    held = {name: parts[name].held for name in cleaned}
    values = [value if held[name] is None else value[held[name]] for name, value in cleaned.items()]
    return np.array([norm(value) for value in values if value.is_floating_point()])


def _count(refusals: MutableMapping[int, int], client: int) -> int:
    refusals[client] = refusals.get(client, 0) + 1
    return refusals[client]
