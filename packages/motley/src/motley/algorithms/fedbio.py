"""FedBiO: the server learns the clients' weights on its own validation samples (instance A).

Li, Huang, Huang: *Communication-Efficient Federated Bilevel Optimization with Global and Local
Lower Level Problems*, NeurIPS 2023 (arXiv:2302.06701).

The bilevel problem chooses upper variables psi so that the model trained with them does well on
validation data. Here psi are the logits of the clients' weights, and the lower level is one
aggregation, ``w(psi) = x + sum_k p_k Delta_k`` with ``p = softmax(psi)``:

    J(psi) = L_val(w(psi)),    G = grad L_val(w(psi)),
    dJ/dpsi_k = p_k (<G, Delta_k> - sum_j p_j <G, Delta_j>)
    R times:   psi <- psi - lambda dJ/dpsi,
               G computed anew and scaled so that max_k |<G, Delta_k>| = 1 (all zero: stop)
    x <- w(psi)

Symbols: M accepted clients; R ``steps``, lambda ``rate``. ``p_k >= floor / M`` (then renormalised)
keeps the weights from collapsing onto one client. psi_k begins at the logarithm of the client's
weight, log n_k with ``weights = "examples"`` (so that lambda = 0 is FedAvg), and the server keeps
it by client; ``reset`` restarts it every round.

State: ``psi`` [K], and ``seen`` [K], whether a client took part before. Needs: labelled validation
samples of the server (``split.server``), never test data. Gives: a convex combination. Cost: R
gradients on the validation samples and M D numbers of memory at the server; traffic as FedAvg. The
server's work takes wall time and no virtual time. The rule needs every single upload.

Deviations and readings
-----------------------
* INTERPRETATION-D throughout: the papers' per-sample upper variables are another instance; this is
  the one that fits a comparison of aggregators. Constants R = 5, lambda = 1, floor 0.1.
* READING L_val is the task's own loss on samples that the server holds with their clean labels. The
  paper's validation sets are the clients', label noise included.
* L_val is taken in eval mode with the buffers averaged by p.

Worked
------
x = 0, Delta = (1, 0), (0, 1), (-1, -1), L = ||w - (1, 1)||^2 / 2, psi = 0, unscaled, no floor:
gradient (-1/3, -1/3, 2/3); after one step p = (.422319, .422319, .155362).

>>> from motley.algorithms.fedbio import FedBiO
>>> FedBiO(steps=3).rate
1.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.aggregators.gather import Gather, needs_gather
from motley.algorithms.local_optimisers import Solver
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

PAPER = cite("li2023fedbio")
_CHUNK = 256
"""Validation samples in one forward and backward pass."""


@dataclass(frozen=True)
class FedBiO(Method, Server):
    """Averaging with client weights that the server learns on its validation samples; the method is
    its own server rule.

    Parameters
    ----------
    steps: R, steps on the weights in a round.
    rate: lambda.
    floor: a client's weight is at least ``floor / M``; 0: off.
    rescale: scale the gradient so that the largest inner product is 1.
    reset: restart the weights every round.
    """

    paper: ClassVar[Paper] = PAPER
    upload_visibility: ClassVar[Literal["sum", "each"]] = "each"
    steps: int = 5
    rate: float = 1.0
    floor: float = 0.1
    rescale: bool = True
    reset: bool = False

    def __post_init__(self) -> None:
        if self.steps < 0:
            raise ConfigError(f"got steps = {self.steps}; expected at least 0")
        if not 0 <= self.rate < float("inf"):
            raise ConfigError(f"got rate = {self.rate}; expected a finite number of at least 0")
        if not 0 <= self.floor < 1:
            raise ConfigError(
                f"got floor = {self.floor}; expected at least 0 (off) and less than 1, in units of "
                "1 / M"
            )

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(aggregator=Gather(), server=self)

    @property
    @override
    def needs(self) -> frozenset[str]:
        return frozenset({"validation"})

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        if weights not in ("examples", "uniform"):
            return (
                "FedBiO learns the weights, from n_k or from equal ones; got weights = "
                f'"{weights}", use "examples" or "uniform"'
            )
        return needs_gather("FedBiO", algorithm)

    @override
    def init(self, model: ModelState, population: int) -> ServerState:
        return ServerState(
            model,
            {
                "psi": torch.zeros(population, dtype=torch.float64),
                "seen": torch.zeros(population, dtype=torch.bool),
            },
        )

    @override
    def update(self, state: ServerState, total: Tensors, context: ServerContext) -> ServerState:
        if context.network is None or context.validation is None or context.criterion is None:
            raise ConfigError("FedBiO was given no network, or no validation samples of the server")
        deltas = total["each.delta"]
        clients = total["each.client"]
        psi = total["each.weight"].log()
        if not self.reset:
            psi = torch.where(state.extra["seen"][clients], state.extra["psi"][clients], psi)
        for _ in range(self.steps):
            p = self.shares(psi)
            g = _validation_gradient(context, self._mixed(state, total, p)).to(deltas.device)
            inner = torch.stack([delta.double() @ g for delta in deltas])
            psi, moved = self.stepped(psi, p, inner)
            if not moved:
                break
        extra = {name: value.clone() for name, value in state.extra.items()}
        extra["psi"][clients], extra["seen"][clients] = psi, True
        return ServerState(self._mixed(state, total, self.shares(psi)), extra)

    def shares(self, psi: Tensor) -> Tensor:
        """Return the clients' weights p with their floor, ``[M]``."""
        p = psi.softmax(0)
        if self.floor:
            p = p.clamp(min=self.floor / len(p))
            p = p / p.sum()
        return p

    def stepped(self, psi: Tensor, p: Tensor, inner: Tensor) -> tuple[Tensor, bool]:
        """Return the next psi from ``inner[k] = <G, Delta_k>``, and whether it changed."""
        top = float(inner.abs().max())
        if not 0 < top < float("inf"):
            return psi, False
        if self.rescale:
            inner = inner / top
        return psi - self.rate * p * (inner - p @ inner), True

    @staticmethod
    def _mixed(state: ServerState, total: Tensors, p: Tensor) -> ModelState:
        """``x + sum p_k Delta_k``, buffers likewise."""
        folded = {
            name: _weighted(total[f"each.{name}"], p)
            for name in ("delta", "buffers")
            if f"each.{name}" in total
        }
        return step_model(state, folded["delta"], {**total, **folded})


def _weighted(rows: Tensor, p: Tensor) -> Tensor:
    """``sum p_k rows[k]`` in float64, in order."""
    out = torch.zeros_like(rows[0], dtype=torch.float64)
    for row, share in zip(rows, p.tolist(), strict=True):
        out.add_(row, alpha=share)
    return out


def _validation_gradient(context: ServerContext, model: ModelState) -> Tensor:
    """Gradient of the mean validation loss in eval mode, float64 ``[D]``."""
    inputs, labels = context.validation  # type: ignore[misc]  # asked for by needs
    total = torch.zeros_like(model.x, dtype=torch.float64)
    for batch, wanted in zip(torch.split(inputs, _CHUNK), torch.split(labels, _CHUNK), strict=True):
        slope = context.network.loss_gradient(model, batch, _mean_loss(context, wanted))  # type: ignore[union-attr]
        total.add_(slope.gradient.to(total.device), alpha=len(batch) / len(inputs))
    return total


def _mean_loss(context: ServerContext, labels: Tensor) -> Callable[[Tensor], Tensor]:
    return lambda outputs: context.criterion.loss(outputs, labels, {}).mean()  # type: ignore[union-attr]
