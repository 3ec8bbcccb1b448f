"""FIARSE: clients of less capacity train the largest weights of the model, wherever they lie, and
each weight is averaged over the clients that hold it.

Wu, Wang, Wang, Liu, Su, Gao: *FIARSE: Model-Heterogeneous Federated Learning via Importance-Aware
Submodel Extraction*, NeurIPS 2024 (arXiv:2407.19389).

    client k  of width r holds the k = floor(r^2 n) largest |x_c| of the received model x;
              theta the least of them, for the whole round;
              each step   m = 1 if |w| >= theta, else 0;   g the gradient at w m;
                          w <- w - lr g m (1 + 2 theta |w| / (|w| + theta)^2);
              sends delta_k = w - x
    server    x_c <- x_c + (sum over clients k that hold c of a_k delta_kc)
                     / (sum over the same clients of a_k)

Symbols: c a weight, n their number, a_k the raw weight: 1 by default (``uniform``, as published),
n_k under ``examples``. The term with theta is the mask's own part of the gradient, by a stand-in
for its derivative; it is 1/2 at the threshold and falls to 0 above. A weight that falls below theta
in training counts as 0 and stands still until the round ends. ``scope = "layer"`` takes the largest
of each layer, weights and biases together, with a theta of its own. Normalization layers are whole
and not counted in n. Needs: ``capacity``; without it theta is the least of all weights. State:
none. Traffic: the values held, both ways, and their positions down, the shorter of a list and a
bitmap; up they are free, for the server made them. BatchNorm is static, as under
:mod:`motley.algorithms.heterofl`.

Deviations and readings
-----------------------
* The equations are those of the authors' code (commit 281519c), which the paper's abstract and
  introduction agree with; the rest of its text could not be looked up, so no equation is cited by
  number.
* READING the published sizes 1, 1/4, 1/16, 1/64 and 1, .64, .36, .16, .04 are shares of the
  weights, and squares of the widths of HeteroFL. So a width r means r^2 of the weights, about as
  many as there, where most layers lie between hidden ones. A slice of a network of one hidden layer
  has r of them: compare at equal bytes, with sqrt(r) here.
* READING of weights with the same |x| the first are held, so that nobody holds more than he can;
  the code holds all of them. A layer has one at least, where the code fails.
* ``average = "moved"``: the code counts a client at the weights that its training changed, also by
  rounding, in place of those that it holds.
* READING ``layer`` is each layer; the code's layers are six groups of ResNet-18.
* INTERPRETATION a step takes the held share of the operations, as sparse products would; dense
  ones, as here, spare nothing. ``by_memory`` is refused, for the module is whole.
* Published: SGD .1 without momentum, 100 steps, batches of 20.

Worked
------
x = (3, -1, .5, -2), r = 3/4: k = floor(2.25) = 2, held 3 and -2, theta = 2, factors 1.48 and 1.5.
With g = (1, 1, 1, 1) and lr .1, delta = (-.148, 0, 0, -.15). A client of width 1 has theta = .5,
factors 61/49, 13/9, 1.5 and 1.32, delta = (-.124490, -.144444, -.15, -.132). Together x moves by
(-.136245, -.144444, -.15, -.141). Where the fourth weight of the first client has no gradient, it
moves by -.066, and by -.132 with ``average = "moved"``. Layers (4, 3) and (2, 1), r^2 = 1/2: held
are 4 and 3, under ``layer`` 4 and 2.

>>> from motley.algorithms.fiarse import FIARSE
>>> FIARSE()
FIARSE(scope='model', average='held')
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    ClientState,
    JobContext,
    Method,
    Part,
    Parts,
    Phase,
    Slicing,
)
from motley.algorithms.phases import GradientAt
from motley.algorithms.sliced import SlicedTraining
from motley.core.layout import Layout
from motley.core.paper import Paper, cite
from motley.tasks.task import ModelState


def largest(sizes: Tensor, k: int) -> Tensor:
    """Return which ``k`` entries of ``sizes`` ``[n]`` are the largest, bool ``[n]``; of equal ones
    the first."""
    least = sizes.topk(k).values[-1]
    above = sizes > least
    equal = sizes == least
    return above | (equal & (equal.cumsum(0) <= k - above.sum()))


@dataclass(frozen=True)
class LargestWeights(SlicedTraining):
    """Local training of the largest weights of the received model, by the gradient of weights and
    mask.

    Parameters
    ----------
    scope: whether the largest are those of the whole ``model`` or of each ``layer``.
    average: whether a client counts at the weights that it has ``held`` or at those that it has
    ``moved``.
    layout: of the model, once it is bound.
    """

    scope: Literal["model", "layer"] = "model"
    average: Literal["held", "moved"] = "held"
    layout: Layout = field(default_factory=lambda: Layout(()))

    @property
    @override
    def slicing(self) -> Slicing:
        return Slicing(static_norm=True, masks=True)

    @override
    def bound(self, layout: Layout) -> LargestWeights:
        return dataclasses.replace(self, layout=layout)

    def _groups(self) -> list[Tensor]:
        """Return the positions of the weights that are compared with each other, ``[n]`` each."""
        layers: dict[str, list[Tensor]] = {}
        for entry in self.layout:
            if not entry.norm and entry.size:
                name = entry.layer if self.scope == "layer" else ""
                at = torch.arange(entry.slice.start, entry.slice.stop)
                layers.setdefault(name, []).append(at)
        return [torch.cat(parts) for parts in layers.values()]

    @override
    def held(self, x: Tensor, width: float) -> Tensor:
        held = torch.ones_like(x, dtype=torch.bool)
        for group in self._groups():
            at = group.to(x.device)
            # 1e-6: 0.6 * 0.6 * 25 is a bit less than 9 in some floats.
            k = max(1, int(width * width * len(at) + 1e-6))
            held[at] = largest(x[at].abs(), k)
        return held

    @staticmethod
    def _received(context: JobContext) -> Tensor:
        """Return which weights the client received, bool ``[D]``."""
        return context.download.get("held", torch.ones_like(context.x, dtype=torch.bool))

    @override
    def phases(self, context: JobContext) -> tuple[Phase, ...]:
        held = self._received(context)
        sizes = context.x.abs()
        thresholds = torch.zeros_like(sizes)
        for group in self._groups():
            at = group.to(sizes.device)
            thresholds[at] = sizes[at][held[at]].min()
        values = {"held": held, "thresholds": thresholds}
        return (Phase(direction=self._direction, values=values),)

    @staticmethod
    def _direction(gradient: GradientAt, values: dict[str, Tensor], step: int) -> Tensor:
        w = values[RECEIVED]
        thresholds = values["thresholds"]
        sizes = w.abs()
        mask = values["held"] & (sizes >= thresholds)
        stand_in = 2 * thresholds * sizes / (sizes + thresholds).square()
        return gradient(w * mask) * mask * (1 + stand_in.nan_to_num(0.0))

    @override
    def finish(self, after: ModelState, context: JobContext) -> tuple[Parts, ClientState | None]:
        delta = after.x - context.x
        held = self._received(context)
        if self.average == "moved":
            held = delta != 0
        return {"delta": Part(delta, "covered", held)}, context.client_state


@dataclass(frozen=True)
class FIARSE(Method):
    """Averaging of the largest weights: each client trains as many as it can hold.

    Parameters
    ----------
    scope: whether the largest are those of the whole ``model`` or of each ``layer``.
    average: whether a client counts in the average of a weight that it has ``held``, or of one that
    it has ``moved``, as in the authors' code.
    """

    paper: ClassVar[Paper] = cite("wu2024fiarse")
    scope: Literal["model", "layer"] = "model"
    average: Literal["held", "moved"] = "held"

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(
            local=LargestWeights(False, self.scope, self.average), weights="uniform"
        )
