"""MOON's contrastive loss at the clients, FedNova's normalized averaging at the server.

Li, He, Song: *Model-Contrastive Federated Learning*, CVPR 2021 (arXiv:2103.16257), and Wang, Liu,
Liang, Joshi, Poor: *Tackling the Objective Inconsistency Problem in Heterogeneous Federated
Optimization*, NeurIPS 2020 (arXiv:2007.07481).

The loss is MOON's, ``l + mu contrast``; the update that it leads to is uploaded and averaged as
FedNova's, ``(w - x) / ||a||_1`` and ``||a||_1``. One changes what a client minimizes, the other how
much its steps count, so neither knows of the other.

State: with each client that took part, its local model before averaging. Cost: MOON's two forward
passes and FedNova's scalar.

Deviations and readings
-----------------------
* INTERPRETATION-D neither paper has the combination. ``||a||_1`` is that of the local solver,
  whatever the loss: the contrast is part of the gradient, not a pull with a weight of its own.
* ``mu = 0`` is FedNova, bit for bit.
* With equal steps it is MOON to rounding.

>>> MoonFedNova(mu=0.5).temperature
0.5
"""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from motley.algorithms.fednova import NormalisedAverage, NormalisedUpdate
from motley.algorithms.local_optimisers import Solver
from motley.algorithms.moon import Moon, PreviousModel
from motley.algorithms.parts import Algorithm


@dataclass(frozen=True)
class NormalisedPreviousModel(NormalisedUpdate, PreviousModel):
    """Local training after which the client keeps its model and uploads the update divided by
    ``||a||_1``."""

    @override
    def refuses(self, algorithm: Algorithm, solver: Solver, weights: str) -> str | None:
        return PreviousModel.refuses(self, algorithm, solver, weights) or super().refuses(
            algorithm, solver, weights
        )


@dataclass(frozen=True)
class MoonFedNova(Moon):
    """MOON's loss under FedNova's normalized averaging: options ``mu`` (1) and ``temperature``
    (0.5) of the loss."""

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = NormalisedPreviousModel() if self.mu else NormalisedUpdate()
        return super().change(plain).replace(local=local, server=NormalisedAverage())
