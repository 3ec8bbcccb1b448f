"""FedLC: every client lowers the logits of classes of which it has few samples before the loss, so
that it does not push rare and absent classes out of the model.

Zhang, Li, Li, Xu, Wu, Ding, Wu: *Federated Learning with Label Distribution Skew via Logits
Calibration*, ICML 2022 (arXiv:2209.00189).

    l(f(x) - tau n^(-1/4), y)        n_c the client's training samples of class c

Symbols: f the outputs, l the task's loss (or the one that the experiment names), ``tau`` (1) how
much is taken off. Examined and probed is the plain model with l alone. State: none. Cost: none;
traffic as FedAvg. While a client trains it keeps C numbers for each of its samples.

Deviations and readings
-----------------------
* READING the softmax is over all classes, that of the label included, as in two public
  re-implementations (FL-bench, fluke): a sum over the others alone would have no lower bound.
* A class that the client does not have counts as 1e-8 samples, as in FL-bench: its logit is lowered
  by 100 tau, so that its outputs hardly move. fluke takes them out altogether.
* INTERPRETATION-D tau = 1 (FL-bench; fluke has 0.1).
* The counts are of the labels that the client has, wrong ones included.
* A sample with a class per position is refused: counts of a client are over samples.

Worked
------
n = (16, 1, 0), tau = 1: outputs are lowered by (.5, 1, 100). Outputs (0, 0, 0): the probabilities
are (.622459, .377541, 0), the loss of class 0 is .474077, of class 1 .974077.

>>> import torch
>>> from motley.algorithms.losses import CrossEntropy
>>> shift = CalibratedLoss(CrossEntropy()).shift(torch.tensor([16.0, 1.0, 0.0]))
>>> [round(value, 4) for value in shift.tolist()]
[-0.5, -1.0, -100.0]
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from typing_extensions import override

from motley.algorithms.loss_around import LossAround
from motley.algorithms.parts import Algorithm, JobContext, Method, Targets, Tensors
from motley.core.errors import ConfigError
from motley.core.paper import Paper, cite

ABSENT = 1e-8
"""Samples that a class counts for of which the client has none."""


@dataclass(frozen=True)
class ClassShiftedLoss(LossAround):
    """A loss of classes over outputs that are shifted, class by class, by what the client's counts
    say; without counts, in a probe, the loss itself."""

    kind: ClassVar[Targets | None] = "classes"

    @abstractmethod
    def shift(self, counts: Tensor) -> Tensor:
        """Return what is added to the outputs of each class ``[C]``, of a client with so many
        training samples ``[C]`` of each."""

    @override
    def refuses_targets(self, targets: Targets, classes: int | None) -> str | None:
        if targets == "positions":
            return "it counts a client's samples by class, and here each has a class per position"
        return super().refuses_targets(targets, classes) or self.base.refuses_targets(
            targets, classes
        )

    @override
    def prepare(
        self,
        context: JobContext,
        forward: Callable[[Tensor], Tensor],
        inputs: Tensor,
        targets: Tensor,
    ) -> Tensors:
        """Return ``shift`` ``[n, C]``, the same row for every sample; ``[n, 1]`` where one output
        tells two classes apart."""
        outputs = forward(inputs[:1])
        single = outputs.shape[-1] == 1
        classes = 2 if single else outputs.shape[-1]
        shift = self.shift(torch.bincount(targets, minlength=classes).to(outputs.dtype))
        if single:  # the output is the second class's logit minus the first's
            shift = shift[1:] - shift[:1]
        shift = shift.expand(len(targets), -1).contiguous()
        return {**super().prepare(context, forward, inputs, targets), "shift": shift}

    @override
    def loss(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.loss(*self._shifted(outputs, targets, extra))

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.gradient(*self._shifted(outputs, targets, extra))

    @staticmethod
    def _shifted(
        outputs: Tensor, targets: Tensor, extra: Tensors
    ) -> tuple[Tensor, Tensor, Tensors]:
        without_shift = {name: value for name, value in extra.items() if name != "shift"}
        return outputs + extra["shift"] if "shift" in extra else outputs, targets, without_shift


@dataclass(frozen=True)
class CalibratedLoss(ClassShiftedLoss):
    """A loss of classes over outputs lowered by ``tau n_c^(-1/4)``."""

    tau: float = 1.0

    @override
    def shift(self, counts: Tensor) -> Tensor:
        return -self.tau * counts.clamp(min=ABSENT).pow(-0.25)


@dataclass(frozen=True)
class FedLC(Method):
    """Averaging of clients that calibrate their logits by their counts of classes: option ``tau``
    (1)."""

    paper: ClassVar[Paper] = cite("zhang2022fedlc")
    tau: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.tau < float("inf"):
            raise ConfigError(f"got tau = {self.tau}; expected a finite number of at least 0")

    @override
    def change(self, plain: Algorithm) -> Algorithm:
        return plain.replace(loss=CalibratedLoss(plain.loss, self.tau)) if self.tau else plain
