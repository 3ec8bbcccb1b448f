"""A convolutional network of 8,910 parameters on FEMNIST: noise falls on every weight, so a private
model is small.

motley compare private_femnist.toml --seeds 0,1,2 --allow-import
"""

from dataclasses import dataclass

from torch import nn

from motley.tasks.models import Model


@dataclass(frozen=True)
class SmallCNN(Model):
    """conv5x5(4)-pool-conv5x5(8)-pool-fc, with as many channels as asked for."""

    channels: tuple[int, int] = (4, 8)

    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Return a fresh network for images ``[channels, height, width]``."""
        first, second = self.channels
        height, width = (((side - 4) // 2 - 4) // 2 for side in shape[1:])
        return nn.Sequential(
            nn.Conv2d(shape[0], first, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(first, second, 5),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(second * height * width, outputs),
        )
