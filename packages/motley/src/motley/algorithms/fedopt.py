"""FedAdagrad, FedAdam, FedYogi: adaptive steps on the server.

Reddi, Charles, Zaheer, Garrett, Rush, Konecny, Kumar, McMahan: *Adaptive Federated Optimization*,
ICLR 2021 (arXiv:2003.00295).

    m <- beta1 m + (1 - beta1) total,    total = sum_k a_k delta_k
    FedAdagrad  v <- v + total^2
    FedAdam     v <- beta2 v + (1 - beta2) total^2
    FedYogi     v <- v - (1 - beta2) total^2 sign(v - total^2)
    x <- x + lr m / (sqrt(v) + tau)                                           element by element

Symbols: ``tau`` the degree of adaptivity (1e-3); ``beta1`` 0.9 (0 for FedAdagrad), ``beta2`` 0.99;
``lr`` the server's learning rate, which the paper tunes on a logarithmic grid together with the
clients' (here 0.01, INTERPRETATION-D: a place to start).

With ``bias_correction``, t the number of steps until now:

    "adam"      x <- x + lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + tau)
    "flower"    x <- x + lr (sqrt(1 - beta2^(t+1)) / (1 - beta1^(t+1))) m / (sqrt(v) + tau)

State: ``m`` from 0 and ``v`` from tau^2, from 0 with a bias correction, or from ``first_v`` [D];
with a bias correction t.

Deviations and readings
-----------------------
* INTERPRETATION-R v starts at tau^2 (the paper asks for at least that), and there is no bias
  correction: public versions that start at v = 0 and correct make another first step.
* FLamby's code has ``first_v = 0``, beta1 .9 for all three, beta2 .999, tau 1e-8, and no bias
  correction either.
* ``bias_correction = "adam"`` is Kingma and Ba's, as torch.optim.Adam has it. ``"flower"`` is that
  of Flower's FedAdam, whose exponent is one higher: with ``server_lr = 0.1`` its step by default.
  Flower's counts the rounds without uploads too, and takes the same step with buffers.
  Flower's FedYogi and FedAdagrad have ``first_v = 0`` and no correction. Six rounds of Flower
  1.41's three strategies equal these to the rounding of float32.
* Buffers are averaged, never adapted. A round without uploads leaves m and v as they were.
* Under sparse compression v is tiny for coordinates that were rarely sent, and the next step there
  is large: raise tau.

Worked
------
A total of .1, lr = .01, first step: FedAdagrad .00990050, FedAdam .00905028, FedYogi .00904988.
With a bias correction FedAdam's first steps are .00990099 ("adam") and .00674963 ("flower": the
factor .742460 of .00909091). As in FLamby's code: FedAdagrad .001, FedAdam and FedYogi .0316227.

>>> from motley.algorithms.fedopt import ServerAdam
>>> ServerAdam(lr=0.1).beta2
0.99
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar, Literal, get_args

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import (
    Algorithm,
    Method,
    Server,
    ServerContext,
    ServerState,
    Tensors,
    step_model,
)
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState

PAPER = cite("reddi2021adaptive")
BiasCorrection = Literal["adam", "flower"]


@dataclass(frozen=True)
class ServerAdagrad(Server):
    """Adagrad as a server rule, ``v <- v + total^2``; Adam and Yogi differ in :meth:`second`
    alone."""

    paper: ClassVar[Paper] = PAPER
    lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-3
    first_v: float | None = None

    def __post_init__(self) -> None:
        for name in ("lr", "tau"):
            if not 0 < getattr(self, name) < float("inf"):
                raise ConfigError(f"got {name} = {getattr(self, name)}; expected a positive number")
        if self.first_v is not None and not 0 <= self.first_v < float("inf"):
            raise ConfigError(f"got first_v = {self.first_v}; expected a number of at least 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name, 0.0) < 1:
                raise ConfigError(
                    f"got {name} = {getattr(self, name)}; expected at least 0 and less than 1"
                )

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        zero = torch.zeros_like(model.x, dtype=torch.float64)
        first_v = self.tau**2 if self.first_v is None else self.first_v
        return ServerState(model, {"m": zero, "v": torch.full_like(zero, first_v)})

    def second(self, v: Tensor, square: Tensor) -> Tensor:
        """Return the next v from ``total^2``."""
        return v + square

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        delta = total["delta"]
        m = self.beta1 * state.extra["m"] + (1 - self.beta1) * delta
        v = self.second(state.extra["v"], delta.square())
        return ServerState(
            step_model(state, self.lr * m / (v.sqrt() + self.tau), total), {"m": m, "v": v}
        )


@dataclass(frozen=True)
class ServerAdam(ServerAdagrad):
    """Adam as a server rule, ``v <- beta2 v + (1 - beta2) total^2``."""

    beta1: float = 0.9
    beta2: float = 0.99
    bias_correction: BiasCorrection | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bias_correction not in (None, *get_args(BiasCorrection)):
            raise ConfigError(
                f"got bias_correction = {self.bias_correction!r}; expected 'adam' or 'flower', or "
                "leave it out"
            )

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        if self.bias_correction is None:
            return super().init(model, population)
        plain = replace(self, first_v=self.first_v or 0.0, bias_correction=None)
        state = plain.init(model, population)
        return ServerState(model, {**state.extra, "steps": torch.zeros(1, dtype=torch.float64)})

    @override
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        if self.bias_correction is None:
            return super().update(state, total, context)
        steps = state.extra["steps"] + 1
        exponent = steps.item() + (self.bias_correction == "flower")
        of_v = math.sqrt(1 - self.beta2**exponent)
        tau = self.tau if self.bias_correction == "flower" else self.tau * of_v
        lr = self.lr * of_v / (1 - self.beta1**exponent)
        plain = replace(self, lr=lr, tau=tau, bias_correction=None)
        after = plain.update(state, total, context)
        return ServerState(after.model, {**after.extra, "steps": steps})


@dataclass(frozen=True)
class ServerYogi(ServerAdam):
    """Yogi as a server rule, ``v <- v - (1 - beta2) total^2 sign(v - total^2)``: v falls no faster
    than it rises."""

    @override
    def second(self, v: Tensor, square: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * torch.sign(v - square)


@dataclass(frozen=True)
class FedAdagrad(Method):
    """Adagrad on the server. ``first_v``: of every weight; None: tau^2."""

    paper: ClassVar[Paper] = PAPER
    server_lr: float = 0.01
    beta1: float = 0.0
    tau: float = 1e-3
    first_v: float | None = None

    def __post_init__(self) -> None:
        self._server()

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(server=self._server())

    def _server(self) -> Server:
        return ServerAdagrad(self.server_lr, self.beta1, self.tau, self.first_v)


@dataclass(frozen=True)
class FedAdam(FedAdagrad):
    """Adam on the server, without bias correction unless ``bias_correction`` says which.

    Parameters
    ----------
    bias_correction: ``adam``, of Kingma and Ba, or ``flower``, with an exponent one higher; None:
    none.
    """

    rule: ClassVar[type[ServerAdam]] = ServerAdam
    beta1: float = 0.9
    beta2: float = 0.99
    bias_correction: BiasCorrection | None = None

    @override
    def _server(self) -> Server:
        return self.rule(
            lr=self.server_lr,
            beta1=self.beta1,
            tau=self.tau,
            first_v=self.first_v,
            beta2=self.beta2,
            bias_correction=self.bias_correction,
        )


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """Yogi on the server."""

    rule: ClassVar[type[ServerAdam]] = ServerYogi
