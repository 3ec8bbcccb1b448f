"""The convolutional network of Ji's code of federated averaging (shaoxiongji/federated-learning
``5a9da1a``, ``models/Nets.py``) and of AshwinRJ/Federated-Learning-PyTorch ``26eaec4``,
``src/models.py``, both after PyTorch's first example on MNIST."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn
from typing_extensions import override

from motley.core.errors import ConfigError
from motley.tasks.models import Model
from motley.tasks.nn import Dropout


@dataclass(frozen=True)
class JiCNN(Model):
    """conv5x5(10)-pool-ReLU-conv5x5(20)-dropped channels-pool-ReLU-fc50-ReLU-dropout-fc10, both
    shares a half: 21,840 parameters on MNIST."""

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        if shape[1:] != (28, 28):
            raise ConfigError(
                f"JiCNN needs images [C, 28, 28]; got {list(shape)}",
                "task.model",
            )
        return nn.Sequential(
            nn.Conv2d(shape[0], 10, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(10, 20, 5),
            Dropout(channels=True),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(320, 50),
            nn.ReLU(),
            Dropout(),
            nn.Linear(50, outputs),
        )
