"""FedMuon: local steps along the orthogonal factor of the momentum of every weight matrix, which
goes on from round to round, mixed with the last round's step.

Liu, Shang, Zhou, Liu, Liu, Liu: *FedMuon: Accelerating Federated Learning with Matrix
Orthogonalization*, 2025 (arXiv:2510.27403).

    client:   w <- x;  M <- Mbar;   each step, of every matrix
                  M <- beta M + g;    M = U S V^T;    O = U V^T
                  w <- w - lr ((1 - alignment) (matrix_lr O + weight_decay w) + alignment G)
              of every vector Adam's step in place of O, its moments from 0 in every round
              sends w - x and M
    server:   d = sum_k a_k (w_k - x);   G <- -d / (tau lr);   x <- x + d;   Mbar <- mean of M

    form = "code":   M <- beta M + (1 - beta) g;   in place of O five quintic Newton-Schulz
                     iterations from beta M + (1 - beta) g, times sqrt(max(1, p / q)), p and q the
                     last two axes

Symbols: a matrix is a parameter of two axes or more, all but the first taken together; G and Mbar
are 0 at first. O is the nearest matrix whose singular values are all 1, of those that M has.

State: at the server G and Mbar [D]. Traffic: three times the model down, twice up. Cost: a
decomposition of every matrix a step, for which a GPU waits, and which is not counted as time.

Deviations and readings
-----------------------
* The method is the local optimizer, as under :mod:`motley.algorithms.fedadamw`, whose server it is.
* The paper speaks of matrices; vectors are the code's: Adam with moments .9 and .95, eps 1e-10.
* READING the code multiplies lr by 1 - alignment, so that decay is mixed, too, and by ``matrix_lr``
  for matrices, decay included; here ``matrix_lr`` is of O alone.
* Not here: momentum sent as a few singular vectors (FedMuon-SVD), bfloat16 iterations.
* Uploads are weighed equally, as published, and may be weighed otherwise.
* Published: beta .98 and decay .01 in the code, alignment .5, matrix_lr 10 with Adam's lr 3e-4.

Worked
------
M = diag(3, 4): O = diag(1, 1). M = ((3, 0), (0, 0)): O = ((1, 0), (0, 0)). A weight alone is a
matrix of one row: O is the sign. (w - c)^2 / 2, c = (4, 2), x = 0, lr .1, no decay, alignment .5,
beta .5: round 1 w = .05 both, G = -.5, Mbar = -3; round 2 M = -1.5 - (3.95, 1.95), w = .05 +
.1 (.5 + .25) = .125.

>>> from motley.algorithms.fedmuon import orthogonal
>>> orthogonal(torch.diag(torch.tensor([3.0, 4.0])).double())
tensor([[1., 0.],
        [0., 1.]], dtype=torch.float64)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.fedadamw import (
    AlignedTraining,
    GlobalDirection,
    Moments,
    check_between,
    check_one_of,
)
from motley.algorithms.parts import RECEIVED, Algorithm, JobContext, Method, Phase
from motley.algorithms.phases import GradientAt
from motley.core.paper import Paper, cite

NONE = 1e-6
"""A singular value below this share of the largest is none: its vectors are made of rounding."""
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
"""Of Muon's quintic iteration."""
BETA1, BETA2, EPS = 0.9, 0.95, 1e-10
"""Of Adam, for vectors."""


def orthogonal(matrix: Tensor) -> Tensor:
    """Return ``U V^T`` of a matrix ``[m, n]``, of its singular values above 0."""
    u, s, v = torch.linalg.svd(matrix, full_matrices=False)
    product: Tensor = (u * (s > NONE * s[0])) @ v
    return product


def newton_schulz(matrix: Tensor, iterations: int = 5) -> Tensor:
    """Return Muon's approximation of ``U V^T``, whose singular values are near 1."""
    a, b, c = COEFFICIENTS
    wide = len(matrix) > matrix.shape[1]
    x: Tensor = matrix.mT if wide else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(iterations):
        square = x @ x.mT
        x = a * x + (b * square + c * square @ square) @ x
    return x.mT if wide else x


@dataclass(frozen=True)
class AlignedMuon(AlignedTraining):
    """The local steps of FedMuon; see the options of :class:`FedMuon`."""

    moments: Moments = "coordinates"
    beta: float = 0.98
    matrix_lr: float = 1.0
    form: Literal["text", "code"] = "text"

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        values = {
            "moment": self.starting_moments(context).clone(),
            "first": torch.zeros_like(context.x),
            "second": torch.zeros_like(context.x),
            "direction": context.download["direction"],
        }
        matrices = [entry for entry in context.layout if len(entry.shape) >= 2]
        vector = torch.ones_like(context.x, dtype=torch.bool)
        for entry in matrices:
            vector[entry.slice] = False

        def direction(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
            w = values[RECEIVED]
            g = gradient(w)
            new = 1.0 if self.form == "text" else 1.0 - self.beta
            moment = torch.where(vector, 0.0, self.beta * values["moment"] + new * g)
            first = BETA1 * values["first"] + (1.0 - BETA1) * g
            second = BETA2 * values["second"] + (1.0 - BETA2) * g * g
            values.update(moment=moment, first=first, second=second)
            root = (second / (1.0 - BETA2 ** (step + 1))).sqrt() + EPS
            steps = first / (1.0 - BETA1 ** (step + 1)) / root
            turned = moment if self.form == "text" else self.beta * moment + new * g
            for entry in matrices:
                matrix = turned[entry.slice].view(entry.shape[0], -1)
                steps[entry.slice] = self.matrix_lr * self.factor(matrix, entry.shape).reshape(-1)
            own = (1.0 - self.alignment) * (steps + self.weight_decay * w)
            mixed: Tensor = own + self.alignment * values["direction"]
            return mixed

        return (Phase(direction=direction, values=values),)

    def factor(self, matrix: Tensor, shape: tuple[int, ...]) -> Tensor:
        """Return what a step follows of a momentum matrix ``[m, n]`` of a parameter of this
        shape."""
        if self.form == "text":
            return orthogonal(matrix)
        return torch.mul(newton_schulz(matrix), math.sqrt(max(1.0, shape[-2] / shape[-1])))


@dataclass(frozen=True)
class FedMuon(Method):
    """Averaging of local Muon whose momentum goes on: options ``beta`` (0.98), ``weight_decay``
    (0.01), ``alignment`` (0.5) with the last round's step, ``matrix_lr`` (1.0), times the learning
    rate for matrices, and ``form`` ("text" or "code")."""

    paper: ClassVar[Paper] = cite("liu2025fedmuon")
    beta: float = 0.98
    weight_decay: float = 0.01
    alignment: float = 0.5
    matrix_lr: float = 1.0
    form: Literal["text", "code"] = "text"

    def __post_init__(self) -> None:
        check_between(self, ("beta",), 1.0)
        check_between(self, ("alignment",), 1.0, closed=True)
        check_between(self, ("weight_decay", "matrix_lr"), float("inf"))
        check_one_of(self, "form", ("text", "code"))

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        local = AlignedMuon(
            alignment=self.alignment,
            weight_decay=self.weight_decay,
            beta=self.beta,
            matrix_lr=self.matrix_lr,
            form=self.form,
        )
        server = GlobalDirection(moments="coordinates")
        return plain.replace(local=local, server=server, weights="uniform")
