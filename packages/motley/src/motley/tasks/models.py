"""The models of the papers, adapted to the data's shape and number of classes.

Layers have biases, and no dropout unless asked for. READING: kernels, strides and biases of AlexNet
and ResNet-9 are those that give the parameter counts which HeteRo-Select v2 states or logs. Stacks
of linear layers are plain ``nn.Sequential(Flatten, Linear, ReLU, ...)`` so that the batched engine
recognizes them.
"""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from motley.core.components import Catalogue
from motley.core.errors import ConfigError
from motley.tasks.nn import Dropout, replace_stochastic

MODELS = Catalogue(
    "model",
    {
        "linear": "motley.tasks.models:Linear",
        "logistic_regression": "motley.tasks.models:LogisticRegression",
        "mlp": "motley.tasks.models:MLP",
        "digits_mlp": "motley.tasks.models:DigitsMLP",
        "cnn": "motley.tasks.models:CNN",
        "simple_cnn": "motley.tasks.models:SimpleCNN",
        "lenet": "motley.tasks.models:LeNet",
        "leaf_cnn": "motley.tasks.models:LeafCNN",
        "leaf_lstm": "motley.tasks.sequence_models:LeafLSTM",
        "alexnet": "motley.tasks.models:AlexNet",
        "resnet9": "motley.tasks.models:ResNet9",
        "resnet18": "motley.tasks.models:ResNet18",
        "transformer": "motley.tasks.sequence_models:Transformer",
    },
    base="motley.tasks.models:Model",
)


def factory(
    record: str | Mapping[str, Any] | Model,
    shape: tuple[int, ...],
    outputs: int,
    dropout: float = 0.0,
    sequences: bool = False,
) -> Callable[[], nn.Module]:
    """Return a function that makes fresh modules of a model: a name,
    ``{"name": "mlp", "hidden": [100]}``, or an object.

    Parameters
    ----------
    shape: of one sample.
    outputs: of the last layer.
    dropout: set in the record if above 0; an object says its own.
    sequences: whether samples are sequences of whole numbers, which take models of their own.

    Raises
    ------
    ConfigError: unknown model or option (also dropout for a model without dropout layers), or a
    model that does not fit the shape.
    """
    if isinstance(record, Model):
        model: Model = record
    else:
        full: dict[str, Any] = {"name": record} if isinstance(record, str) else dict(record)
        model = MODELS.build({"dropout": dropout, **full} if dropout else full, "task.model")
    if _sequences(model) != sequences:
        fit = ", ".join(
            name for name in MODELS.names() if _sequences(MODELS.get(name)) == sequences
        )
        kinds = ("sequences of characters", "numbers")
        kind, want = kinds[::-1] if sequences else kinds
        name = MODELS.name_of(type(model))
        raise ConfigError(
            f"got {name!r}, a model of {kind}; this task has {want}, use one of: {fit}",
            "task.model",
        )
    build = partial(_keyed, model, shape, outputs)
    # refuses a model that does not fit, without allocating or drawing anything
    with torch.device("meta"):
        build()
    return build


def _keyed(model: Model, shape: tuple[int, ...], outputs: int) -> nn.Module:
    """Return a fresh module whose random layers draw from keys."""
    return replace_stochastic(model.build(shape, outputs))


def _sequences(model: object) -> bool:
    return bool(getattr(model, "sequences", False))


class Model(ABC):
    """A named architecture: a frozen dataclass of options.

    ``sequences``: whether its inputs are sequences of whole numbers (characters, words), else
    numbers.
    """

    sequences: ClassVar[bool] = False

    @abstractmethod
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        """Return a fresh module for samples of ``shape`` (without the batch; images ``(C, H, W)``)
        with so many outputs.

        Raises
        ------
        ConfigError: the architecture does not fit the shape.
        """


def _check_dropout(dropout: float) -> None:
    if not 0.0 <= dropout < 1.0:
        raise ConfigError(f"dropout: got {dropout}; expected a share of at least 0 and below 1")


def _stack(
    inputs: int,
    hidden: tuple[int, ...],
    outputs: int,
    dropout: float,
    bias: bool = True,
    norm: bool = False,
) -> nn.Sequential:
    """Return Flatten and linear layers with (BatchNorm and) ReLU (and dropout) between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for width in hidden:
        layers += [
            nn.Linear(inputs, width, bias=bias),
            *([nn.BatchNorm1d(width)] if norm else []),
            nn.ReLU(),
        ]
        if dropout:
            layers.append(Dropout(dropout))
        inputs = width
    return nn.Sequential(*layers, nn.Linear(inputs, outputs, bias=bias))


@dataclass(frozen=True)
class Linear(Model):
    """One linear layer; with cross-entropy, logistic regression."""

    bias: bool = True

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _stack(
            inputs=math.prod(shape), hidden=(), outputs=outputs, dropout=0.0, bias=self.bias
        )


@dataclass(frozen=True)
class LogisticRegression(Model):
    """Linear(784, 10) on MNIST: 7,850 parameters."""

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _stack(math.prod(shape), (), outputs, 0.0)


@dataclass(frozen=True)
class MLP(Model):
    """784-200-200-10 with ReLU on MNIST, 199,210 parameters; with ``norm = "batch"``, BatchNorm
    before each ReLU."""

    hidden: tuple[int, ...] = (200, 200)
    dropout: float = 0.0
    norm: Literal["none", "batch"] = "none"

    def __post_init__(self) -> None:
        if any(width < 1 for width in self.hidden):
            raise ConfigError(f"hidden: got {list(self.hidden)}; expected widths of at least 1")
        _check_dropout(self.dropout)

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        return _stack(
            math.prod(shape), self.hidden, outputs, self.dropout, norm=self.norm == "batch"
        )


@dataclass(frozen=True)
class DigitsMLP(MLP):
    """64-32-10 on scikit-learn's digits: 2,410 parameters."""

    hidden: tuple[int, ...] = (32,)


@dataclass(frozen=True)
class _Convolutional(Model):
    """A model of images with a smallest side, below which its pools would leave nothing.

    Pools come before ReLU: the largest number of an area, cut at zero, is the largest of those that
    were cut, to the bit with all gradients, and a quarter of them are cut. A step is up to a tenth
    faster.
    """

    dropout: float = 0.0
    smallest: ClassVar[int]

    def __post_init__(self) -> None:
        _check_dropout(self.dropout)

    @override
    def build(self, shape: tuple[int, ...], outputs: int) -> nn.Module:
        name = type(self).__name__
        if len(shape) != 3:
            message = (
                f"{name} needs images [C, H, W]; this data has samples of shape {list(shape)}; "
                "try mlp"
            )
            raise ConfigError(message, "task.model")
        if min(shape[1:]) < self.smallest:
            least = self.smallest
            message = (
                f"{name} needs images of at least {least} x {least}; got {shape[1]} x "
                f"{shape[2]}; try mlp"
            )
            raise ConfigError(message, "task.model")
        return self._build(shape[0], shape[1], shape[2], outputs)

    @abstractmethod
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module: ...

    def _head(self, *widths: int) -> list[nn.Module]:
        """Return linear layers with ReLU and dropout between them."""
        layers: list[nn.Module] = []
        for inputs, outputs in itertools.pairwise(widths):
            layers += [nn.Linear(inputs, outputs), nn.ReLU(), Dropout(self.dropout)]
        layers = layers[:-2]
        return [layer for layer in layers if not isinstance(layer, Dropout) or self.dropout]


@dataclass(frozen=True)
class CNN(_Convolutional):
    """conv5x5(32)-pool-conv5x5(64)-pool-fc128-fc10 without padding: 259,914 parameters on
    CIFAR-10; with ``kernel = 3`` and ``padding = 1``, as in FedCVR-Bolt's released code,
    545,098."""

    kernel: int = 5
    padding: int = 0

    smallest: ClassVar[int] = 16

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.kernel <= 5:
            raise ConfigError(f"kernel: got {self.kernel}; expected a side from 1 to 5")
        if not 0 <= self.padding < self.kernel:
            raise ConfigError(
                f"padding: got {self.padding} with kernel = {self.kernel}; expected at least 0 and "
                "less than the kernel"
            )

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        lost = self.kernel - 1 - 2 * self.padding
        h, w = (((side - lost) // 2 - lost) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 32, self.kernel, padding=self.padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, self.kernel, padding=self.padding),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            *self._head(64 * h * w, 128, outputs),
        )


@dataclass(frozen=True)
class LeNet(_Convolutional):
    """conv5x5(6)-pool-conv5x5(16)-pool-fc120-fc84-fc10 without padding, of NIID-Bench and Flower's
    baseline of it: 44,426 parameters on MNIST, 62,006 on CIFAR-10."""

    smallest: ClassVar[int] = 16

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        h, w = (((side - 4) // 2 - 4) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 6, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(6, 16, 5),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            *self._head(16 * h * w, 120, 84, outputs),
        )


@dataclass(frozen=True)
class SimpleCNN(_Convolutional):
    """conv3x3(32)-conv3x3(64)-pool-fc128-fc10 without padding, of pfl-research's benchmarks:
    1,626,442 parameters on CIFAR-10."""

    smallest: ClassVar[int] = 6

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        h, w = ((side - 4) // 2 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            *self._head(64 * h * w, 128, outputs),
        )


@dataclass(frozen=True)
class LeafCNN(_Convolutional):
    """conv5x5(32, same)-pool-conv5x5(64, same)-pool-fc2048-fc62: 6,603,710 parameters on
    FEMNIST."""

    smallest: ClassVar[int] = 4

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(channels, 32, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 5, padding=2),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            *self._head(64 * (height // 4) * (width // 4), 2048, outputs),
        )


@dataclass(frozen=True)
class AlexNet(_Convolutional):
    """The small AlexNet of HeteRo-Select v2's logs: 2,781,514 parameters on CIFAR-10.

    READING: 3x3 kernels with padding 1 throughout, the first with stride 2; 2x2 pools (32 -> 16 ->
    8 -> 4 -> 2), so that the first linear layer has the stated 1,024 inputs.
    """

    smallest: ClassVar[int] = 15

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        h, w = (((side + 1) // 2) // 8 for side in (height, width))
        return nn.Sequential(
            nn.Conv2d(channels, 64, 3, stride=2, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(64, 192, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Conv2d(192, 384, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(384, 256, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(256, 256, 3, padding=1),
            nn.MaxPool2d(2),
            nn.ReLU(),
            nn.Flatten(),
            *self._head(256 * h * w, 512, outputs),
        )


def _unit(inputs: int, outputs: int, pool: bool = False) -> nn.Sequential:
    """Return a 3x3 convolution (with bias), batch normalization, ReLU, and optionally a 2x2
    pool."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1),
        nn.BatchNorm2d(outputs),
        *([nn.MaxPool2d(2)] if pool else []),
        nn.ReLU(),
    )


class Residual(nn.Module):
    """A residual connection: ``x + body(x)``, the shape of ``x``."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    @override
    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return x + out


class BasicBlock(nn.Module):
    """Two 3x3 convolutions with normalization and a shortcut, projected where the shape changes."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        same = stride == 1 and inputs == outputs
        project = nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
        )
        self.shortcut = nn.Sequential() if same else project

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Map ``[B, inputs, H, W]`` to ``[B, outputs, H / stride, W / stride]``."""
        out = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(out)) + self.shortcut(x))


@dataclass(frozen=True)
class ResNet9(_Convolutional):
    """conv+BN 64, 128, residual [128 x2], 256, 512, residual [512 x2], Linear(512, C): 6,621,540
    parameters on CIFAR-100.

    READING: HeteRo-Select v2's network; convolutions keep their bias beside the normalization, as
    the stated count implies (6,619,300 without); 2x2 pools after the units of 128, 256 and 512,
    then one maximum over the rest.
    """

    smallest: ClassVar[int] = 8

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        return nn.Sequential(
            _unit(channels, 64),
            _unit(64, 128, pool=True),
            Residual(nn.Sequential(_unit(128, 128), _unit(128, 128))),
            _unit(128, 256, pool=True),
            _unit(256, 512, pool=True),
            Residual(nn.Sequential(_unit(512, 512), _unit(512, 512))),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            *([Dropout(self.dropout)] if self.dropout else []),
            nn.Linear(512, outputs),
        )


@dataclass(frozen=True)
class ResNet18(_Convolutional):
    """ResNet-18 with a 3x3 stem of stride 1 and no first pool: 11,173,962 parameters for 10
    classes, 11,271,432 for 200."""

    smallest: ClassVar[int] = 8

    @override
    def _build(self, channels: int, height: int, width: int, outputs: int) -> nn.Module:
        blocks: list[nn.Module] = []
        inputs = 64
        for size, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            blocks += [BasicBlock(inputs, size, stride), BasicBlock(size, size, 1)]
            inputs = size
        stem = (nn.Conv2d(channels, 64, 3, padding=1, bias=False), nn.BatchNorm2d(64), nn.ReLU())
        dropout = [Dropout(self.dropout)] if self.dropout else []
        return nn.Sequential(
            *stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), *dropout, nn.Linear(512, outputs)
        )
