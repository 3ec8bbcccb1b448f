"""Targets per pixel, against plain torch."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import motley
from motley.core.errors import ModelError
from motley.tasks import from_clients, own_task

DRAWS = torch.Generator().manual_seed(0)
X = torch.randn(12, 2, 4, 5, generator=DRAWS)
CLASSES = (X[:, 0] > 0).long() + (X[:, 1] > 0.5).long()  # [12, 4, 5], three classes
NUMBERS = X.sum(1)


def convolution(outputs: int, last: bool = False) -> nn.Module:
    layer = nn.Conv2d(2, outputs, 1)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.zero_()
    return nn.Sequential(layer, ChannelsLast()) if last else layer


class ChannelsLast(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.permute(0, 2, 3, 1)


class Flat(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Tensor:
        flat: Tensor = self.layer(x).flatten(1)
        return flat


def trained(task: Any, out: Path) -> list[Tensor]:
    keys = {
        "name": "dense",
        "cohort": 1,
        "stop": {"rounds": 2},
        "local": {"epochs": 3, "batch_size": 12, "optimizer": {"name": "sgd", "lr": 0.5}},
    }
    return [*motley.run(keys, task=task, out=out).module().parameters()]


def plain(module: nn.Module, loss: Callable[[Tensor], Tensor]) -> list[Tensor]:
    """Six steps of plain torch over all samples."""
    optimizer = torch.optim.SGD(module.parameters(), lr=0.5)
    for _ in range(6):
        optimizer.zero_grad()
        loss(module(X)).backward()
        optimizer.step()
    return [*module.parameters()]


def dice(outputs: Tensor, targets: Tensor) -> Tensor:
    """One minus the overlap of each sample, ``[B]``; asserts that it sees pictures."""
    assert outputs.shape[1:] == (3, 4, 5)
    assert targets.shape[1:] == (4, 5)
    shares = outputs.softmax(1)
    wanted = F.one_hot(targets, 3).movedim(-1, 1)
    return 1 - (2 * (shares * wanted).sum((1, 2, 3)) / (shares + wanted).sum((1, 2, 3)))


@pytest.mark.parametrize("last", [False, True])
def test_classes_per_pixel_train_as_in_torch(tmp_path: Path, last: bool) -> None:
    federation = from_clients([(X, CLASSES)], test=[(X, CLASSES)])
    task = own_task(federation, lambda: convolution(3, last))
    expected = plain(convolution(3), lambda out: F.cross_entropy(out, CLASSES))
    for mine, other in zip(trained(task, tmp_path / "a"), expected, strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    module = convolution(3)
    module.load_state_dict(dict(zip(module.state_dict(), expected, strict=True)))
    predicted = motley.load(tmp_path / "a", task=task).predict(X)
    assert predicted.shape == (12, 4, 5)
    assert np.array_equal(predicted, module(X).argmax(1).numpy())


def test_a_loss_of_ones_own_sees_pictures(tmp_path: Path) -> None:
    federation = from_clients([(X, CLASSES)], test=[(X, CLASSES)])
    for k, (given, loss) in enumerate(
        (
            (dice, lambda out: dice(out, CLASSES).mean()),
            (nn.CrossEntropyLoss(), lambda out: F.cross_entropy(out, CLASSES)),
        )
    ):
        task = own_task(federation, lambda: convolution(3), loss=given)
        mine = trained(task, tmp_path / str(k))
        for one, other in zip(mine, plain(convolution(3), loss), strict=True):
            torch.testing.assert_close(one.detach(), other.detach(), rtol=1e-4, atol=1e-5)


def test_numbers_per_pixel(tmp_path: Path) -> None:
    """Half the squared error of a sample is the sum over its pixels."""
    federation = from_clients([(X, NUMBERS)], test=[(X, NUMBERS)], regression=True)
    task = own_task(federation, lambda: convolution(1), loss=lambda a, b: ((a - b) ** 2).mean())
    expected = plain(convolution(1), lambda out: ((out[:, 0] - NUMBERS) ** 2).mean())
    for mine, other in zip(trained(task, tmp_path / "a"), expected, strict=True):
        torch.testing.assert_close(mine.detach(), other.detach(), rtol=1e-4, atol=1e-5)
    assert motley.load(tmp_path / "a", task=task).predict(X).shape == (12, 4, 5)


def test_outputs_of_other_shapes_are_refused() -> None:
    federation = from_clients([(X, CLASSES)])
    with pytest.raises(
        ModelError,
        match=r"the Flat gives \[2, 40\] for a batch of 2 whose targets are \[4, 5\] each; "
        r"expected \[B, C, 4, 5\]",
    ):
        own_task(federation, lambda: Flat(convolution(2)))
