"""pFedMe: every client's model is the best one near the shared model, which moves towards these
models.

T Dinh, Tran, Nguyen: *Personalized Federated Learning with Moreau Envelopes*, NeurIPS 2020
(arXiv:2006.08848).

    receive x;   w <- x;   theta <- x
    step         on one batch, ``inner_steps`` times:
                     theta <- theta - lr_p (g(theta) + lam (theta - w))
                 then
                     w <- w - lr lam (w - theta)
    send         w - x;    keep theta
    server       x <- x + beta mean (w - x)

Symbols: lr is the learning rate of the experiment's local optimizer (the paper's eta), lr_p that of
theta. State: theta, with buffers, of each client that took part, for examinations alone; the
initial model for the others. Cost: ``inner_steps`` passes a step; traffic as FedAvg. A client is
examined with theta, the shared model beside it.

Deviations and readings
-----------------------
* From step to step theta goes on from where it was (``theta = "carried"``); ``"restarted"`` begins
  at w.
* With one inner step, beta 1 and theta restarted, it is FedAvg with the learning rate
  ``lr lam lr_p``.
* The published lr is .005. The published lr_p = .09 with lam = 15 overshoots, and a run warns of
  it.

Worked
------
Toy A (docs/methods/algorithms.md#personalisation), lam = 2, lr_p = .1, two inner steps, lr = .05:
theta = .4, .68; w = .068. Second step: theta = 1.03632, w = .164832; restarted .73644 and .134844.

>>> from motley.algorithms.pfedme import PFedMe
>>> PFedMe().lam
15.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    Method,
    Part,
    PersonalRule,
    Phase,
    Tensors,
)
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


@dataclass(frozen=True)
class MoreauEnvelope(PersonalRule):
    """Steps of the received model towards ``theta``, the client's own model near it."""

    lam: float = 15.0
    lr_p: float = 0.09
    inner_steps: int = 5
    theta: Literal["carried", "restarted"] = "carried"

    @property
    @override
    def step_cost(self) -> float:
        return float(self.inner_steps)

    def initial_state(self, state: ModelState) -> ClientState:
        """Return the initial model."""
        return dict(vars(state))

    @override
    def examined(self, download: Tensors, client_state: ClientState | None) -> ModelState:
        return self.start(download, None) if client_state is None else ModelState(**client_state)

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        return (Phase(direction=self._direction, values={"theta": context.x}),)

    def _direction(self, gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        """Return ``lam (w - theta)`` after theta's steps."""
        w = values[RECEIVED]
        theta = values["theta"] if self.theta == "carried" else w
        for _ in range(self.inner_steps):
            theta = theta - self.lr_p * (gradient(theta) + self.lam * (theta - w))
        values["theta"] = theta
        return self.lam * (w - theta)

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        """Return the plain update; theta is the next state."""
        parts, next_state = super().finish(after, context)
        if "theta" not in context.values:
            return parts, next_state
        return parts, {
            "x": context.values["theta"],
            "buffers": after.buffers,
            "counters": after.counters,
        }

    @override
    def cautions(self, solver: Solver) -> str | None:
        for name, rate in (("lr_p", self.lr_p), ("lr", solver.lr)):
            if rate * self.lam > 1:
                return (
                    f"{name} = {rate:g} times lam = {self.lam:g} is above 1: the pull "
                    "overshoots its anchor"
                )
        return None


@dataclass(frozen=True)
class PFedMe(Method):
    """Models of the clients' own near the shared one, which moves towards them: options ``lam``
    (15), ``lr_p`` (0.09) and ``inner_steps`` (5) of a client's model, ``theta`` ("carried") and the
    server's ``beta`` (1)."""

    paper: ClassVar[Paper] = cite("dinh2020pfedme")
    lam: float = 15.0
    lr_p: float = 0.09
    inner_steps: int = 5
    theta: Literal["carried", "restarted"] = "carried"
    beta: float = 1.0

    def __post_init__(self) -> None:
        for name in ("lam", "lr_p", "beta"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected a positive number")
        if self.inner_steps < 1:
            raise ConfigError(
                f"got inner_steps = {self.inner_steps}; expected a whole number of at least 1"
            )
        if self.theta not in ("carried", "restarted"):
            raise ConfigError(f"got theta = {self.theta!r}; expected 'carried' or 'restarted'")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = MoreauEnvelope(self.lam, self.lr_p, self.inner_steps, self.theta)
        return plain.replace(local=local, server=Average(self.beta))
