"""Residual networks with batch normalisation for small images (He et al., CVPR 2016, arXiv 1512.03385)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from motley.tasks.nn import Dropout

__all__ = ["BasicBlock", "Residual", "resnet9", "resnet18"]


def _unit(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    """3x3 convolution (with bias), batch normalisation, ReLU, and a 2x2 pool if asked."""
    layers: list[nn.Module] = [nn.Conv2d(inputs, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers, *([nn.MaxPool2d(2)] if pool else []))


class Residual(nn.Module):
    """``x + body(x)``."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        """The shape of ``x``."""
        out: Tensor = self.body(x)
        return x + out


def resnet9(channels: int, outputs: int, dropout: float = 0.0) -> nn.Module:
    """The nine-layer residual network of HeteRo-Select v2; 6,621,540 parameters for RGB and 100 classes.

    READING: convolutions keep their bias beside the normalisation, which is what the stated count gives (6,619,300 without);
    2x2 pools after the units of 128, 256 and 512, then one maximum over what is left, so that any image of 8 x 8 or more fits.
    """
    return nn.Sequential(
        _unit(channels, 64),
        _unit(64, 128, pool=True),
        Residual(nn.Sequential(_unit(128, 128), _unit(128, 128))),
        _unit(128, 256, pool=True),
        _unit(256, 512, pool=True),
        Residual(nn.Sequential(_unit(512, 512), _unit(512, 512))),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        *([Dropout(dropout)] if dropout else []),
        nn.Linear(512, outputs),
    )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with normalisation and a shortcut, projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        project = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
        self.shortcut = nn.Sequential() if same else project

    def forward(self, x: Tensor) -> Tensor:
        """``[B, inputs, H, W]`` to ``[B, outputs, H / stride, W / stride]``."""
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


def resnet18(channels: int, outputs: int, dropout: float = 0.0) -> nn.Module:
    """ResNet-18 for small images: a 3x3 stem of stride 1, no first pool; convolutions without bias, as in the paper."""
    blocks: list[nn.Module] = []
    inputs = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        blocks += [BasicBlock(inputs, width, stride), BasicBlock(width, width, 1)]
        inputs = width
    return nn.Sequential(
        nn.Conv2d(channels, 64, 3, 1, 1, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        *([Dropout(dropout)] if dropout else []),
        nn.Linear(512, outputs),
    )
