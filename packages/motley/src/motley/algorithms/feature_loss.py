"""The base of losses that add to another loss a term of the model's features, the inputs of its
last linear layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from typing_extensions import override

from motley.algorithms.loss_around import LossAround
from motley.algorithms.parts import Tensors


@dataclass(frozen=True)
class FeatureLoss(LossAround):
    """A loss ``base`` plus a term of features, which subclasses add in :meth:`compare`; probes
    measure ``base`` alone."""

    whole_model: ClassVar[bool] = True

    @override
    def gradient(self, outputs: Tensor, targets: Tensor, extra: Tensors) -> Tensor:
        return self.base.gradient(outputs, targets, extra)
