"""SCAFFOLD: control variates cancel the drift of local training.

Karimireddy, Kale, Mohri, Reddi, Stich, Suresh: *SCAFFOLD: Stochastic Controlled Averaging for
Federated Learning*, ICML 2020 (arXiv:1910.06378).

    receive x, c;   w <- x;   tau times:  w <- w - lr (g(w) - c_k + c)
    option I:   c_k+ = grad F_k(x)          over all training samples, at the received x
    option II:  c_k+ = c_k - c + (x - w) / (||a||_1 lr)      (the default)
    send        delta_k = w - x,   dc_k = c_k+ - c_k
    server:     x <- x + lr_server sum_S a_k delta_k,     c <- c + sum_S p_k dc_k

Options: ``corrects = "weights"`` leaves g(w) as it is and steps w <- w - lr (c - c_k) after each
step of the optimizer, outside of its momentum and decay; ``divisor = "steps"`` divides by tau lr in
option II, whatever the momentum; ``variates = "uniform"`` has p_k = 1/K while the models keep the
run's weights. The first two are how the codes of NIID-Bench, Flower's baseline and FLamby have it;
NIID-Bench has all three with ``weights = "examples"``.

Symbols: K all registered clients, M the cohort; ``a_k = 1/M`` and ``p_k = 1/K`` under
``weights = "uniform"`` (the default, as published), ``n_k / sum_S n`` and ``n_k / n`` under
``"examples"``, n the samples of all clients; ``||a||_1`` the number of steps under plain SGD,
and what the local solver makes of it under momentum (``tau`` there would inflate c_k, 4.138106
times at momentum 0.9 and 10 steps). Under plain SGD option II's ``c_k+`` is the mean of the local
gradients.

State: ``c`` [D] at the server and ``c_k`` [D] at each client, both from 0. A client's variate
changes only when its upload is accepted. Cost: twice the traffic both ways; one vector per client
that ever took part; option I also one pass forward and back over the client's data before it
trains, in batches as large as are fast (the gradient of a mean does not depend on how the samples
are cut), several clients at once in every engine but ``sequential``. It takes the time of an epoch,
for it is as much work.

Deviations and readings
-----------------------
* READING ``weights = "examples"`` minimizes ``sum p_k F_k``. The corrected step ``g - c_k + c``
  follows its gradient if c estimates it, ``c = sum p_k c_k`` over all clients; so a client's change
  moves c by ``p_k dc_k``, once however often it was drawn, and local work stays as it is. The fixed
  point is the minimum of ``sum p_k F_k``, with ``uniform`` that of the plain mean. The paper's
  rates are proved for the plain mean and cohorts drawn uniformly, whose mean is unbiased;
  ``n_k / sum_S n`` is so only approximately. Other weightings, under which an absent client has no
  p_k, are refused.
* A deployed server divides c anew by n when it meets further clients.
* INTERPRETATION-D clipping shortens g alone, before the correction is added; clipping the corrected
  gradient is refused. Under ``corrects = "weights"`` both are the same.
* Under ``variates = "uniform"`` and weights by samples c is not ``sum p_k c_k`` of the models'
  weights, and the fixed point is the minimum of neither objective.
* The variates cover trainable parameters only; buffers are averaged
  (docs/methods/index.md#model-state).
* Option II computes a gradient from the local update, which is not possible under Adam (entries of
  its steps are near 1 or -1): it is refused there, option I is not
  (docs/methods/algorithms.md#flash-columns). The correction enters before the moments.
* READING option I's gradient is taken in eval mode: BatchNorm uses the received statistics, no
  buffer changes, nothing is dropped out. Training steps use the batch's statistics, so under
  BatchNorm c_k is not quite the mean of the local gradients.
* Variates of clients that take part rarely grow stale; this is the method's known weakness.

Worked
------
g = 6, c_k = 4.5, c = 2, lr = .1, w = 3: 2.65 (FedAvg 2.4). F_1 = (w - 1)^2 / 2, F_2 = (w - 3)^2 /
2, x = 0, lr = .1, tau = 2: round 1 w = (.19, .57), c_k = (-.95, -2.85), x = .38, c = -1.9; round 2
w = (.6783, .6973), x = .6878, c = -1.539: the two models now differ by .019 instead of .38. With
``examples`` and n = (1, 3): x = .475, c = -2.375; round 2 w = (.8455, .8645), c_k = (-.4275,
-2.4225), x = .85975, c = -1.92375. Round 1 equals FedAvg of the same weights. With ``examples`` and
``variates = "uniform"``: x = .475, c = -1.9 after round 1.

Momentum .5, two steps from x = 0, F = (w - 1)^2 / 2, lr .1, c = 1, c_k = 0: steps along 0, -.1 (w =
0, 0; the corrected gradient is 0), c_k+ = -1. With ``corrects = "weights"``: v = -1, w = .1 - .1 =
0; v = -1.5, w = .15 - .1 = .05, and c_k+ = -1 - .05 / .25 = -1.2; with ``divisor = "steps"`` too -1
- .05 / .2 = -1.25.

>>> from motley.algorithms.scaffold import Scaffold
>>> Scaffold().server_lr
1.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, get_args

import torch
from typing_extensions import override

from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    Fold,
    GradientCorrection,
    JobContext,
    LocalRule,
    Method,
    Part,
    ServerContext,
    ServerState,
    Tensors,
    kept_mean,
    step_model,
)
from motley.algorithms.weights import refuses_but_both
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

Corrects = Literal["gradient", "weights"]
Divisor = Literal["norm", "steps"]
Variates = Literal["weights", "uniform"]


@dataclass(frozen=True)
class ControlVariates(LocalRule):
    """SCAFFOLD's local gradient ``g - c_k + c``; the client keeps c_k, renewed by ``option`` I or
    II."""

    uploads: ClassVar[frozenset[str]] = frozenset({"delta", "dc"})
    option: Literal["I", "II"] = "II"
    corrects: Corrects = "gradient"
    divisor: Divisor = "norm"
    variates: Variates = "weights"

    def __post_init__(self) -> None:
        for name, kind in (("corrects", Corrects), ("divisor", Divisor), ("variates", Variates)):
            if getattr(self, name) not in get_args(kind):
                expected = " or ".join(map(repr, get_args(kind)))
                raise ConfigError(f"got {name} = {getattr(self, name)!r}; expected {expected}")
        if self.option not in ("I", "II"):
            raise ConfigError(
                f"got option = {self.option!r}; expected 'I' (a gradient at the received model) or "
                "'II' (the path)"
            )

    @property
    @override
    def pre_training(self) -> frozenset[Literal["loss", "gradient"]]:
        return frozenset({"gradient"} if self.option == "I" else ())

    def initial_state(self, state: ModelState) -> ClientState:
        """c_k = 0."""
        return {"c": torch.zeros_like(state.x)}

    @override
    def download(self, server: ServerState) -> Tensors:
        return {**super().download(server), "c": server.extra["c"]}

    def correction(self, context: JobContext) -> GradientCorrection:
        """Return ``c - c_k``, the same at every step, as :attr:`corrects` says."""
        correction = context.download["c"] - self._own(context)
        if self.corrects == "weights":
            return GradientCorrection(drift=correction)
        return GradientCorrection(offset=correction)

    def finish(
        self, after: ModelState, context: JobContext
    ) -> tuple[Mapping[str, Part], ClientState]:
        """Return the update and the change of c_k (zero for a job without steps under option II),
        and the next c_k."""
        parts, _ = super().finish(after, context)
        own = self._own(context)
        steps = context.solver_norm if self.divisor == "norm" else float(context.steps)
        path = steps * context.lr
        if context.pre_training.gradient is not None:
            moved = context.pre_training.gradient - own
        else:
            if path:
                moved = -context.download["c"] - parts["delta"].value / path
            else:
                moved = torch.zeros_like(own)
        fold: Fold = "weighted_sum" if self.variates == "weights" else "sum"
        return {**parts, "dc": Part(moved, fold)}, {"c": own + moved}

    @staticmethod
    def _own(context: JobContext) -> torch.Tensor:
        if context.client_state is None:
            return torch.zeros_like(context.x)
        return context.client_state["c"]

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if reason := refuses_but_both("SCAFFOLD", weights):
            return reason
        if self.option == "II" and not solver.linear:
            return (
                "SCAFFOLD's option II computes a gradient from the local update, which is not "
                "possible under "
                f'{type(solver).__name__}; use algorithm = {{ name = "scaffold", option = "I" }}'
            )
        clips_corrected = solver.clip is not None and solver.clip.of == "corrected"
        if clips_corrected and self.corrects == "gradient":
            return (
                "SCAFFOLD clips the gradient before it is corrected; use clip = { norm = ..., "
                'of = "gradient" }'
            )
        if not isinstance(algorithm.server, ControlVariatesAverage):
            name = type(algorithm.server).__name__
            return (
                f"SCAFFOLD's server keeps c, which the server rule {name} does not; leave "
                "server out"
            )
        return None


@dataclass(frozen=True)
class ControlVariatesAverage(Average):
    """SCAFFOLD's server step: ``x <- x + lr mean delta;  c <- c + sum p_k dc_k``."""

    weighs_all: ClassVar[bool] = True
    variates: Variates = "weights"

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        total = torch.tensor([population], dtype=torch.float64)
        return ServerState(model, {"c": torch.zeros_like(model.x), "total_weight": total})

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if isinstance(algorithm.local, ControlVariates):
            return None
        name = type(algorithm.local).__name__
        return (
            "SCAFFOLD's control variates must cover the same parameters at server and clients, "
            f"and under {name} clients keep none"
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        _, everybody = context.weight_sums
        if self.variates == "uniform":
            everybody = float(context.population)
        c = kept_mean(state, "c", everybody) + total["dc"] / everybody
        extra = {
            "c": c.to(state.extra["c"].dtype),
            "total_weight": torch.tensor([everybody], dtype=torch.float64),
        }
        return ServerState(step_model(state, self.lr * total["delta"], total), extra)


@dataclass(frozen=True)
class Scaffold(Method):
    """SCAFFOLD: options ``server_lr`` (1.0) and ``option`` ("II"), the rule that renews a client's
    variate.

    Parameters
    ----------
    corrects: ``gradient``, before momentum and decay, or ``weights``, after each step.
    divisor: of option II: ``norm``, ``||a||_1`` of the local optimizer, or ``steps``.
    variates: whose weights a client's change of variate has: the model ``weights``' or ``uniform``.
    """

    paper: ClassVar[Paper] = cite("karimireddy2020scaffold")
    server_lr: float = 1.0
    option: Literal["I", "II"] = "II"
    corrects: Corrects = "gradient"
    divisor: Divisor = "norm"
    variates: Variates = "weights"

    def __post_init__(self) -> None:
        ControlVariatesAverage(self.server_lr)
        self._local()

    def _local(self) -> ControlVariates:
        return ControlVariates(self.option, self.corrects, self.divisor, self.variates)

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=self._local(),
            server=ControlVariatesAverage(self.server_lr, self.variates),
            weights="uniform",
        )
