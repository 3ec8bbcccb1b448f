"""The convolutional network of HeteroFL's code and of Flower's baseline ``heterofl`` (adap/flower
``fdef7af``, ``heterofl/models.py``)."""

from __future__ import annotations

import itertools
from dataclasses import dataclass

from torch import nn
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.tasks.models import Model


@dataclass(frozen=True)
class HeteroFLCNN(Model):
    """conv3x3-BatchNorm-ReLU-pool for each width, without the last pool, then the mean over the
    image and a linear layer whose bias begins at 0: 1,556,874 parameters on MNIST, 6,594 at a
    sixteenth of the width.

    Parameters
    ----------
    hidden: channels of the convolutions.
    """

    hidden: tuple[int, ...] = (64, 128, 256, 512)

    def __post_init__(self) -> None:
        if not self.hidden or min(self.hidden) < 1:
            raise ConfigError(f"got hidden = {list(self.hidden)}; expected channels, at least 1")

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        least = 2 ** (len(self.hidden) - 1)
        if len(shape) != 3 or min(shape[1:]) < least:
            raise ConfigError(
                f"HeteroFLCNN needs images [C, H, W] of at least {least} x {least}; got "
                f"{list(shape)}",
                "task.model",
            )
        layers: list[nn.Module] = []
        for inputs, width in itertools.pairwise((shape[0], *self.hidden)):
            layers += [
                nn.Conv2d(inputs, width, 3, padding=1),
                nn.BatchNorm2d(width),
                nn.ReLU(),
                nn.MaxPool2d(2),
            ]
        last = nn.Linear(self.hidden[-1], outputs)
        nn.init.zeros_(last.bias)
        return nn.Sequential(*layers[:-1], nn.AdaptiveAvgPool2d(1), nn.Flatten(), last)
