"""FedAdamW: local AdamW that goes on with the mean second moments of all and leans towards the
last round's step.

Liu, Shang, Tian, Liu, Liu, Zhu, Lin: *FedAdamW: A Communication-Efficient Optimizer with
Convergence and Generalization Guarantees for Federated Large Models*, AAAI 2026 (arXiv:2510.27486).

    client:   w <- x;  m <- 0;  v <- V;   for k = 1, ..., tau, with t = T + k
                  m <- beta1 m + (1 - beta1) g;   v <- beta2 v + (1 - beta2) g^2
                  w <- w - lr (m / (1 - beta1^k) / (sqrt(v / (1 - beta2^t)) + eps)
                               + alignment G + weight_decay w)
              sends w - x and the mean of v over each block
    server:   d = sum_k a_k (w_k - x);   G <- -d / (tau lr);   x <- x + d
              V <- mean of the clients' blocks;   T <- T + tau

Symbols: V, T and G are 0 at first; a block is a parameter tensor, whose weights share one V at the
start of a round; ``G``, a step's mean direction, is the last round's. Under ``moments =
"coordinates"`` every weight has its own V.

State: at the server G [D] and V. Traffic: twice the model down; up the model and a number for each
block, or twice the model.

Deviations and readings
-----------------------
* The method is the local optimizer: ``local.optimizer`` gives the learning rate and is plain SGD
  (no momentum, decay or clipping). Its steps are directions of its own, which the batched engines
  do not compute.
* READING the paper divides attention by heads and takes other layers whole; blocks are parameter
  tensors here, as in the authors' code for language models.
* READING weights decay as under AdamW and in the code; a summary of the paper has the other sign.
* ``first_moment = "run"``: m is divided by 1 - beta1^t, as in the code, whose first steps of a
  round are shorter therefore; ``"round"`` is the text's.
* Where clients take different numbers of steps, tau and lr are means over the cohort.
* Uploads are weighed equally, as published, and may be weighed otherwise. In a private run it is
  refused: noise would make second moments negative.

Worked
------
(w - c)^2 / 2, c = (4, 2), x = 0, lr .1, no decay, one step a round. Round 1: g = (-4, -2), both w
= .1, v = (.016, .004): x = .1, G = -1, V = .01. Round 2: v = (.0252, .0136) over 1 - .999^2 =
.001999; steps (-3.9 / 3.550528, -1.9 / 2.608334) - .5 = (-1.598427, -1.228434): w = (.2598427,
.2228434), x = .2413431, V = .0194.

>>> from motley.algorithms.fedadamw import FedAdamW
>>> FedAdamW().alignment
0.5
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import SGD, Solver
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Method,
    Part,
    Phase,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.algorithms.phases import GradientAt
from motley.core.errors import ConfigError
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

Moments = Literal["blocks", "coordinates"]
"""Whether the server keeps a moment of each parameter tensor, or of each weight."""


def refuses_but_plain_sgd(name: str, solver: Solver) -> str | None:
    """Return why a method that brings its own local steps does not go with this solver; None for
    plain SGD, of which it takes the learning rate."""
    if isinstance(solver, SGD) and solver.plain:
        return None
    return (
        f"{name} brings its own local steps and takes the learning rate alone; write "
        'local.optimizer = { name = "sgd", lr = ... }, without momentum, decay or clip'
    )


def check_between(
    options: object, names: tuple[str, ...], high: float, closed: bool = False
) -> None:
    """Raise ConfigError where an option is below 0 or not below ``high``; ``closed``: it may be
    ``high``."""
    for name in names:
        value = getattr(options, name)
        if not (0 <= value < high or (closed and value == high)):
            limit = "at most" if closed else "below"
            raise ConfigError(f"got {name} = {value}; expected at least 0 and {limit} {high:g}")


def check_one_of(options: object, name: str, allowed: tuple[str, ...]) -> None:
    """Raise ConfigError where an option is none of the allowed words."""
    if getattr(options, name) not in allowed:
        words = " or ".join(map(repr, allowed))
        raise ConfigError(f"got {name} = {getattr(options, name)!r}; expected {words}")


@dataclass(frozen=True)
class AlignedTraining(LocalRule):
    """Local steps that start with moments from the server and lean towards its last step; a method
    says which in :meth:`phases`, and leaves the moments in the value ``moment``."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "moments", "path"})
    alignment: float = 0.5
    weight_decay: float = 0.01
    moments: Moments = "blocks"

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), **server.extra}

    @override
    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState | None]:
        parts, state = super().finish(after, context)
        # absent in a job that only shows the form of an upload
        moment = context.values.get("moment", torch.zeros_like(after.x))
        if self.moments == "blocks":
            moment = torch.stack([moment[entry.slice].mean() for entry in context.layout])
        path = [1.0, context.steps, context.steps * context.lr]
        counted = torch.tensor(path, dtype=torch.float64, device=moment.device)
        return {**parts, "moments": Part(moment, "mean"), "path": Part(counted, "mean")}, state

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if not isinstance(algorithm.server, GlobalDirection):
            name = type(algorithm.server).__name__
            return (
                "local steps begin with moments of the server, which the server rule "
                f"{name} does not keep; leave server out"
            )
        return refuses_but_plain_sgd(type(self).__name__, solver)

    def starting_moments(self, context: JobContext) -> Tensor:
        """Return the moment ``[D]`` with which a client begins."""
        kept = context.download["moments"]
        if self.moments == "coordinates":
            return kept
        sizes = torch.tensor([entry.size for entry in context.layout], device=kept.device)
        return kept.repeat_interleave(sizes)


@dataclass(frozen=True)
class AlignedAdamW(AlignedTraining):
    """The local steps of FedAdamW; see the options of :class:`FedAdamW`."""

    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    first_moment: Literal["round", "run"] = "round"

    @override
    def refuses_privacy(self) -> str | None:
        return "noise would make the mean of second moments negative"

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        values = {
            "first": torch.zeros_like(context.x),
            "moment": self.starting_moments(context).clone(),
            "direction": context.download["direction"],
        }
        before = float(context.download["steps"])

        def direction(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
            w = values[RECEIVED]
            g = gradient(w)
            first = self.beta1 * values["first"] + (1.0 - self.beta1) * g
            second = self.beta2 * values["moment"] + (1.0 - self.beta2) * g * g
            values["first"], values["moment"] = first, second
            in_run = before + step + 1
            counted = step + 1 if self.first_moment == "round" else in_run
            root = (second / (1.0 - self.beta2**in_run)).sqrt() + self.eps
            adam: Tensor = first / (1.0 - self.beta1**counted) / root
            return adam + self.alignment * values["direction"] + self.weight_decay * w

        return (Phase(direction=direction, values=values),)


@dataclass(frozen=True)
class GlobalDirection(Average):
    """The plain server step, which also keeps its mean local direction, the mean of the clients'
    moments, and the number of local steps so far; ``layout`` is set by :meth:`bound`."""

    moments: Moments = "blocks"
    layout: Layout = Layout(())  # noqa: RUF009 - a frozen value

    @override
    def bound(self, layout: Layout, draw: Callable[[int], ModelState]) -> Server:
        return dataclasses.replace(self, layout=layout)

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, AlignedTraining):
            return None
        name = type(algorithm.local).__name__
        return f"the server keeps moments of local steps, and {name} sends none"

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        kept = len(model.x) if self.moments == "coordinates" else len(self.layout.entries)
        extra = {
            "direction": torch.zeros_like(model.x),
            "moments": model.x.new_zeros(kept),
            "steps": torch.zeros(1, dtype=torch.float64),
        }
        return ServerState(model, extra)

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        weight, steps, path = total["path"].tolist()
        x = state.model.x
        extra = dict(state.extra)
        if path > 0:
            extra = {
                "direction": (-total["delta"] / path).to(x.dtype),
                "moments": (total["moments"] / weight).to(x.dtype),
                "steps": extra["steps"] + steps / weight,
            }
        return ServerState(step_model(state, self.lr * total["delta"], total), extra)


@dataclass(frozen=True)
class FedAdamW(Method):
    """Averaging of local AdamW with second moments of all clients: options ``beta1``, ``beta2``,
    ``eps``, ``weight_decay`` (0.01), ``alignment`` (0.5) with the last round's step, ``moments``
    ("blocks" or "coordinates") and ``first_moment`` ("round" or "run")."""

    paper: ClassVar[Paper] = cite("liu2026fedadamw")
    beta1: float = 0.9
    beta2: float = 0.999
    eps: float = 1e-8
    weight_decay: float = 0.01
    alignment: float = 0.5
    moments: Moments = "blocks"
    first_moment: Literal["round", "run"] = "round"

    def __post_init__(self) -> None:
        check_between(self, ("beta1", "beta2"), 1.0)
        check_between(self, ("eps", "weight_decay", "alignment"), float("inf"))
        check_one_of(self, "moments", ("blocks", "coordinates"))
        check_one_of(self, "first_moment", ("round", "run"))

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = AlignedAdamW(
            alignment=self.alignment,
            weight_decay=self.weight_decay,
            moments=self.moments,
            beta1=self.beta1,
            beta2=self.beta2,
            eps=self.eps,
            first_moment=self.first_moment,
        )
        server = GlobalDirection(moments=self.moments)
        return plain.replace(local=local, server=server, weights="uniform")
