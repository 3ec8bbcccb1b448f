"""FedProx: a proximal term pulls local training toward the received model; it reduces client drift
and allows unequal local work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated Optimization in Heterogeneous Networks*,
MLSys 2020.

    h_k(w; x) = F_k(w) + mu/2 ||w - x||^2,      step  w <- w - lr (grad l(w; b) + mu (w - x))

``x`` is the model received this round. With local momentum the proximal gradient enters before the
momentum, and before clipping when clipping acts on the corrected gradient
(docs/methods/algorithms.md#fedprox). The term acts on trainable parameters only.

Variable local work is the experiment's:
``local = { epochs = 20, stragglers = { share = 0.9, partial = "keep" } }`` (``drop`` is what the
paper's FedAvg does with them).

``adaptive = true`` is the rule of the paper's Appendix C.3.3: mu begins at ``mu`` (the paper: 0 on
data that is alike, 1 else); when the loss of the global model went up it grows by ``step`` (0.1),
and when it went down ``patience`` (5) times in a row it shrinks by ``step``, never below 0. The
server's mu is sent with the model (32 bits), each client sends the received model's loss over all
its training samples, measured before it trains (32 bits, and a forward pass in virtual time).

INTERPRETATION-R: ``patience`` as recalled from the paper. READING: the loss is that of the round's
participants, by the round's weights, so with few of them it jumps; after a step down the count
begins anew; an equal loss neither grows nor shrinks mu.

Deviations: the selector and ``weights`` decide who takes part and counts. ``mu = 0`` is FedAvg, bit
for bit. The stopping rule by gamma-inexactness is not built: an epoch is ended whatever its
gradient.

Stability: plain SGD on a convex F needs lr (L + mu) < 2, L the largest curvature; lr mu > 2
diverges whatever the data (with momentum rho: 2 (1 + rho)).

Worked
------
F = (w - 1)^2 / 2, x = 4, mu = .5, lr = .2, two steps: 3.4, 2.98 (plain 2.92); many steps tend to (1
+ 4 mu) / (1 + mu) = 2; after two steps gamma, the norm of the gradient of h at w over that of F at
x, is .49. The first step is the same for every mu.

>>> from motley.algorithms.fedprox import Proximal
>>> Proximal(mu=0.5).mu
0.5
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    GradientCorrection,
    JobContext,
    LocalRule,
    Method,
    Part,
    ServerContext,
    ServerState,
    Tensors,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

PAPER = cite("li2020fedprox")


@dataclass(frozen=True)
class Proximal(LocalRule):
    """FedProx's local gradient ``g + mu (w - x)`` with a fixed mu."""

    mu: float = 0.1

    def correction(self, context: JobContext) -> GradientCorrection:
        """Return the proximal term, the same for every client and step."""
        return GradientCorrection(proximal=self.mu)


@dataclass(frozen=True)
class AdaptiveProximal(LocalRule):
    """FedProx's local gradient with the mu that the server sends; the client uploads the received
    model's loss."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "loss"})

    @property
    @override
    def pre_training(self) -> frozenset[Literal["loss", "gradient"]]:
        return frozenset({"loss"})

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), "mu": server.extra["mu"]}

    @override
    def correction(self, context: JobContext) -> GradientCorrection:
        return GradientCorrection(proximal=float(context.download["mu"]))

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, client_state = super().finish(after, context)
        return {
            **parts,
            "loss": Part(torch.tensor([context.pre_training.loss], dtype=torch.float64), "mean"),
        }, client_state

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.server, AdaptiveAverage):
            name = type(algorithm.server).__name__
            return (
                f"FedProx's server keeps the adaptive mu, which the server rule {name} does "
                "not; leave server out"
            )
        if weights in ("horvitz_thompson", "selector"):
            return (
                "the adaptive mu follows a mean loss, whose weights must sum to 1; weights = "
                f'"{weights}" do not. Use "examples"'
            )
        return None


@dataclass(frozen=True)
class AdaptiveAverage(Average):
    """Plain averaging and the adaptive mu: state ``mu``, the last ``loss`` (NaN: none yet), and
    ``falls``, decreases in a row."""

    mu: float = 1.0
    step: float = 0.1
    patience: int = 5

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        numbers = {"mu": self.mu, "loss": float("nan"), "falls": 0.0}
        return ServerState(
            model,
            {name: torch.tensor([value], dtype=torch.float64) for name, value in numbers.items()},
        )

    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        """Return the state after one server step; ``total["loss"]`` is the loss of the model before
        it."""
        mu, old, falls = (float(state.extra[name]) for name in ("mu", "loss", "falls"))
        new = float(total["loss"])
        falls = falls + 1 if new < old else 0.0
        if new > old:
            mu += self.step
        elif falls >= self.patience:
            mu = max(mu - self.step, 0.0)
            falls = 0.0
        numbers = {"mu": mu, "loss": new, "falls": falls}
        extra = {
            name: torch.tensor([value], dtype=torch.float64) for name, value in numbers.items()
        }
        return ServerState(super().update(state, total, context).model, extra)


@dataclass(frozen=True)
class FedProx(Method):
    """FedProx: options ``mu`` (0.1, HeteRo-Select's choice; the paper tunes it in {0.001, 0.01,
    0.1, 1}) and ``adaptive`` with ``step`` and ``patience``, which adapts mu to the loss."""

    paper: ClassVar[Paper] = PAPER
    mu: float = 0.1
    adaptive: bool = False
    step: float = 0.1
    patience: int = 5

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ConfigError(f"got mu = {self.mu}; expected a finite number of at least 0")
        if not 0 < self.step < float("inf"):
            raise ConfigError(f"got step = {self.step}; expected a positive number")
        if self.patience < 1:
            raise ConfigError(f"got patience = {self.patience}; expected at least 1")
        if not self.adaptive and (self.step, self.patience) != (0.1, 5):
            raise ConfigError(
                "step and patience belong to adaptive = true, which is not set; set it or leave "
                "them out"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        if self.adaptive:
            server = AdaptiveAverage(mu=self.mu, step=self.step, patience=self.patience)
            return plain.replace(local=AdaptiveProximal(), server=server)
        return plain.replace(local=Proximal(self.mu))
