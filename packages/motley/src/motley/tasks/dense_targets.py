"""Targets per pixel or per voxel, ``[n, H, W]``: stored as positions ``[n, H * W]``, for which
modules and losses that know pictures are adapted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor, nn
from typing_extensions import override

from motley.core.errors import ModelError
from motley.tasks.own_loss import LossFunction


class DenseOutputs(nn.Module):
    """A module with outputs per place of a picture as one with outputs per position.

    Classes: from ``[B, C, H, W]``, as torch has them, or ``[B, H, W, C]`` to ``[B, H * W, C]``.
    Numbers: from ``[B, H, W]``, also with an axis of one, to ``[B, H * W]``.

    Parameters
    ----------
    shape: of a sample's targets, e.g. ``(H, W)``.
    classes: whether these are classes.
    """

    adapts: ClassVar[bool] = True
    """Messages name the class of :attr:`model`."""

    def __init__(self, model: nn.Module, shape: tuple[int, ...], classes: bool) -> None:
        super().__init__()
        self.model = model
        self.shape = tuple(shape)
        self.classes = classes

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map samples ``[B, ...]`` to outputs per position.

        Raises
        ------
        ModelError: outputs of another shape.
        """
        out = self.model(x)
        scores: Tensor = getattr(out, "logits", out)
        sizes = tuple(scores.shape)
        if self.classes and sizes[2:] == self.shape:
            return scores.flatten(2).transpose(1, 2)
        if self.classes and sizes[1:-1] == self.shape:
            return scores.flatten(1, -2)
        sides = [side for side in self.shape if side > 1]
        if not self.classes and [side for side in sizes[1:] if side > 1] == sides:
            return scores.reshape(len(scores), math.prod(self.shape))
        want = [str(side) for side in self.shape]
        expected = ", ".join(["B", "C", *want] if self.classes else ["B", *want])
        raise ModelError(
            f"the {type(self.model).__name__} gives {list(sizes)} for a batch of {len(x)} whose "
            f"targets are {list(self.shape)} each; expected [{expected}]"
        )


@dataclass(frozen=True)
class DenseLoss:
    """A user's loss of pictures as one of positions: it gets outputs ``[B, C, H, W]`` (numbers:
    ``[B, H, W]``) and targets ``[B, H, W]``.

    Parameters
    ----------
    function: the user's.
    shape: of a sample's targets.
    classes: whether these are classes.
    """

    function: LossFunction
    shape: tuple[int, ...]
    classes: bool

    def __call__(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return what the user's function does."""
        pictures = outputs.transpose(1, 2) if self.classes else outputs
        return self.function(
            pictures.reshape(*pictures.shape[:-1], *self.shape),
            targets.reshape(len(targets), *self.shape),
        )
