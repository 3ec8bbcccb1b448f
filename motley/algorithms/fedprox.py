"""FedProx: a proximal pull toward the received model damps drift and admits unequal local work.

Li, Sahu, Zaheer, Sanjabi, Talwalkar, Smith: *Federated Optimization in Heterogeneous Networks*, MLSys 2020.

    h_k(w; x) = F_k(w) + mu/2 ||w - x||^2,      step  w <- w - lr (grad l(w; b) + mu (w - x))

``x`` is the model received this round. With local momentum the proximal gradient enters before the momentum, and before
clipping when clipping acts on the corrected gradient (optimisation-and-compression A2). The pull acts on trainable parameters only.

Deviations: the paper samples clients with probability p_k and averages uniformly; its code samples uniformly and weights by
n_k. Here the selector and ``weights`` decide. ``mu = 0`` is FedAvg, bit for bit.

>>> from motley.algorithms.fedprox import Proximal
>>> Proximal(mu=0.5).mu
0.5
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from motley.algorithms.base import Affine, Algorithm, Context, Correction, Method
from motley.core.errors import ConfigError
from motley.core.paper import Paper

__all__ = ["FedProx", "Proximal"]

PAPER = Paper(
    "li2020fedprox",
    "Federated Optimization in Heterogeneous Networks",
    ("Tian Li", "Anit Kumar Sahu", "Manzil Zaheer", "Maziar Sanjabi", "Ameet Talwalkar", "Virginia Smith"),
    "Conference on Machine Learning and Systems (MLSys)",
    2020,
    "https://arxiv.org/abs/1812.06127",
)


@dataclass(frozen=True)
class Proximal(Correction):
    """``g + mu (w - x)``."""

    mu: float = 0.1

    def affine(self, ctx: Context) -> Affine:
        """The pull, the same for every client and step."""
        return Affine(pull=self.mu)


@dataclass(frozen=True)
class FedProx(Method):
    """FedProx with option ``mu`` (0.1, HeteRo-Select's choice; the paper tunes it in {0.001, 0.01, 0.1, 1})."""

    paper: ClassVar[Paper] = PAPER
    mu: float = 0.1

    def __post_init__(self) -> None:
        if not 0 <= self.mu < float("inf"):
            raise ConfigError(f"got mu = {self.mu}; expected a finite number of at least 0")

    def change(self, plain: Algorithm) -> Algorithm:
        """Plain averaging with the proximal pull."""
        return plain.replace(correction=Proximal(self.mu))
