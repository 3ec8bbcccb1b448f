"""The state of a run: everything that evolves, with one :meth:`RunState.save` and one
:meth:`RunState.restore`.

What is not in here is either frozen for the whole run (:class:`~motley.rounds.config.RunConfig`,
the message sizes, the upload pipeline, the backend) or lives within one server step only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.parts import ServerState, Tensors
from motley.core import codec
from motley.core.arrays import Ids
from motley.core.errors import StoreError
from motley.core.last_updates import LastUpdates
from motley.core.table import ClientTable
from motley.privacy.ledger import PrivacyState
from motley.rounds.checkpoint import pack_server, pack_tensors, unpack_server, unpack_tensors
from motley.rounds.client_state import ClientStates
from motley.rounds.validation import BestRound
from motley.selectors.base import Selector
from motley.transport.ledger import Ledger

__all__ = ["BackendState", "RunState"]


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

    def save(self) -> dict[str, Any]:
        """Return the state as plain values and arrays."""

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned."""


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
    consensus: the running consensus update ``[D]`` of :mod:`~motley.rounds.server_signals`, None
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
    without a guard.
    begun: whether enrolment and the evaluation before round 1 are done. asked: whether a cohort was
    sent out since the last server step. start_s: when the current round began. asked_s: when a
    cohort was last asked for.
    evaluated: all metrics by name, on the common test set or the mean over clients, of every
    evaluation that was due, oldest first; an evaluation only because the run ended is none of them.
    newest: those of the newest evaluation. metric: the headline.
    best: the best round by validation; None before the first, and without validation samples.
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
    candidates: Ids = field(default_factory=lambda: np.zeros(0, np.int64))
    version: int = 0
    selections: int = 0
    draw_index: int = 0
    dispatch: int = 0
    model_updates: int = 0
    begun: bool = False
    asked: bool = False
    start_s: float = 0.0
    asked_s: float = 0.0
    best: BestRound | None = None
    evaluated: list[dict[str, float]] = field(default_factory=list)
    newest: dict[str, float] = field(default_factory=dict)
    metric: str = "accuracy"
    privacy: PrivacyState | None = None

    @property
    def score(self) -> float:
        """The newest headline metric; NaN before the first evaluation."""
        return self.newest.get(self.metric, math.nan)

    def save(self) -> dict[str, Any]:
        """Return the state between two server steps as plain values and arrays."""
        vectors = {"mean_vector": self.mean_vector, "consensus": self.consensus}
        return {
            "server": pack_server(self.server),
            "selector": codec.encode(self.selector.state),
            "memory": codec.encode(self.selector.memory),
            "clients": self.clients.save(),
            "ledger": self.ledger.save(),
            "downloads": {version: pack_tensors(sent) for version, sent in self.downloads.items()},
            "allocator": dict(self.allocator),
            "vectors": {name: v.numpy() for name, v in vectors.items() if v is not None},
            "candidates": self.candidates,
            "last_updates": self.last_updates.save(),
            "best": None if self.best is None else self.best.save(),
            "step_norms": np.array(self.step_norms, np.float64),
            "good": self._save_good(),
            "evaluated": [dict(one) for one in self.evaluated],
            **({"refusals": dict(self.refusals)} if self.refusals else {}),
            **({} if self.privacy is None else {"privacy": self.privacy.save()}),
            **{name: getattr(self, name) for name in _NUMBERS},
        }

    def _save_good(self) -> dict[str, Any] | str | None:
        """Return ``good`` as plain arrays; the word ``server`` where it is the newest state, which
        is saved already."""
        return (
            None
            if self.good is None
            else "server"
            if self.good is self.server
            else pack_server(self.good)
        )

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what :meth:`save` returned.

        Raises
        ------
        CodecError, StoreError: a selector whose state is of another kind, client states that lie
        elsewhere, or a state that an earlier version of Motley wrote.
        """
        missing = _PARTS - saved.keys()
        if missing:
            said = f"it has no {', '.join(sorted(missing))}"
            raise StoreError(
                f"this checkpoint is of another version of Motley ({said}); remove the run's "
                "folder and begin again"
            )
        self.server = unpack_server(saved["server"])
        self.selector.state = codec.decode(
            saved["selector"], ClientTable, type(self.selector.state)
        )
        self.selector.memory = codec.decode(saved["memory"], ClientTable)
        self.clients.restore(saved["clients"])
        self.ledger = Ledger.restore(saved["ledger"])
        self.downloads = {
            version: unpack_tensors(sent) for version, sent in saved["downloads"].items()
        }
        self.allocator = saved["allocator"]
        vectors = {name: torch.from_numpy(value) for name, value in saved["vectors"].items()}
        self.mean_vector = vectors.get("mean_vector")
        self.consensus = vectors.get("consensus")
        self.last_updates.restore(saved["last_updates"])
        self.candidates = saved["candidates"]
        self.begun = True
        self.step_norms = saved["step_norms"].tolist()
        good = saved["good"]
        self.good = (
            self.server if good == "server" else None if good is None else unpack_server(good)
        )
        self.best = None if saved["best"] is None else BestRound.restore(saved["best"])
        self.refusals = dict(saved.get("refusals", {}))
        self.privacy = PrivacyState.restore(saved["privacy"]) if "privacy" in saved else None
        for name in _NUMBERS:
            setattr(self, name, saved[name])
        self.evaluated = [dict(one) for one in saved["evaluated"]]
        self.newest = self.evaluated[-1] if self.evaluated else {}


_NUMBERS = (
    "version",
    "selections",
    "draw_index",
    "dispatch",
    "model_updates",
    "start_s",
    "asked_s",
)
_PARTS = {
    "server",
    "selector",
    "memory",
    "clients",
    "ledger",
    "downloads",
    "allocator",
    "vectors",
    "candidates",
    "last_updates",
    "step_norms",
    "good",
    "best",
    "evaluated",
    *_NUMBERS,
}
