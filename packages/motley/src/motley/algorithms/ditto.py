"""Ditto: every client trains the shared model, and beside it a model of its own that is pulled
towards the shared one.

Li, Hu, Beirami, Smith: *Ditto: Fair and Robust Federated Learning Through Personalization*, ICML
2021 (arXiv:2012.04221).

    receive x;   w <- x;   tau times:  w <- w - lr g(w)
                 the shared model: FedAvg
    own v_k;               tau times:  v_k <- v_k - lr (g(v_k) + lam (v_k - x))
                 x as received, the same batches
    send         w - x;    keep v_k

Symbols: lam the strength of the pull. State: v_k with each client that took part, buffers included;
the initial model for the others.
Cost: two passes a step; traffic as FedAvg. A client is examined with v_k, the shared model beside
it.

Deviations and readings
-----------------------
* The two models do not meet within a round, so they take their steps one after the other, on the
  same batches (the authors alternate).
* ``lam = 0`` leaves v_k to local training, bit for bit. The shared model is FedAvg's for every
  ``lam``, bit for bit.
* ``weights`` count for the shared model: by default ``uniform``, as in the authors' code.
* Published: lam 0.1, 1 or 2. lr lam above 1 overshoots, and a run warns of it.

Worked
------
Toy A (docs/methods/algorithms.md#personalisation), v = 1. lam = 1: v = 1.2, then 1.36; w = .4, then
.76. lam = 0: v = 1.3, then 1.57.

>>> from motley.algorithms.ditto import Ditto
>>> Ditto(lam=0.1)
Ditto(lam=0.1)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from typing_extensions import override

from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    GradientCorrection,
    JobContext,
    Method,
    Part,
    PersonalRule,
    Phase,
    Tensors,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

_OWN = "own"


@dataclass(frozen=True)
class OwnModel(PersonalRule):
    """Plain local training of the received model, and of the client's own one with a pull of
    ``lam`` towards the received one."""

    step_cost: ClassVar[float] = 2.0
    lam: float = 1.0

    def initial_state(self, state: ModelState) -> ClientState:
        """Return the initial model."""
        return {"x": state.x, "buffers": state.buffers, "counters": state.counters}

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        return self.start(download, None) if client_state is None else ModelState(**client_state)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        own = self.examined(context.download, context.client_state)
        return (Phase(), Phase(model=_OWN, start=own, correction=GradientCorrection(self.lam)))

    @override
    def adaptation(self, context: JobContext) -> tuple[Phase, ...]:
        return (Phase("tune", correction=GradientCorrection(self.lam)),)

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        """Return the plain update, and the client's own model as the next state."""
        parts, next_state = super().finish(after, context)
        if _OWN in context.models:
            next_state = self.initial_state(context.models[_OWN])
        return parts, next_state

    @override
    def cautions(self, solver: Solver) -> str | None:
        if solver.lr * self.lam <= 1:
            return None
        return (
            f"lr = {solver.lr:g} times lam = {self.lam:g} is above 1: the pull overshoots its "
            "anchor"
        )


@dataclass(frozen=True)
class Ditto(Method):
    """FedAvg, and beside it a model of every client's own, pulled towards the shared one with
    strength ``lam`` (1)."""

    paper: ClassVar[Paper] = cite("li2021ditto")
    lam: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.lam < float("inf"):
            raise ConfigError(f"got lam = {self.lam}; expected a finite number of at least 0")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(local=OwnModel(self.lam), weights="uniform")
