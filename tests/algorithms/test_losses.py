"""The plain losses: values and gradients worked out by hand."""

import math

import pytest
import torch

from motley.algorithms.base import Loss
from motley.algorithms.losses import BinaryCrossEntropy, CrossEntropy
from motley.algorithms.positions import PositionMean, fits, per_position
from motley.algorithms.symmetric import SymmetricLoss


def numbers(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def by_autograd(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return Loss.gradient(loss, outputs, targets, {})


def test_bce_by_hand() -> None:
    # outputs 0 and log 3: sigmoid 1/2 and 3/4. Losses -log 1/2 (y = 1) and -log 1/4 (y = 0), mean (log 2 + log 4) / 2 = 1.5 log 2.
    # Gradient (sigmoid - y) / 2 = (1/2 - 1)/2 and (3/4)/2.
    outputs, targets = numbers([0.0, math.log(3)]), numbers([1.0, 0.0])
    torch.testing.assert_close(BinaryCrossEntropy().loss(outputs, targets, {}), numbers(1.5 * math.log(2)))
    torch.testing.assert_close(BinaryCrossEntropy().gradient(outputs, targets, {}), numbers([-0.25, 0.375]))


def test_the_mean_over_positions_by_hand() -> None:
    # Probabilities (1/4, 3/4), (1/2, 1/2) and (1/8, 7/8), targets 0, 1 and none: loss (log 4 + log 2) / 2 = 1.5 log 2.
    # Gradient (p - onehot) / 2 at the first two positions, 0 at the third.
    outputs = numbers([[1 / 4, 3 / 4], [1 / 2, 1 / 2], [1 / 8, 7 / 8]]).log()
    targets, loss = torch.tensor([[0, 1, -100]]), PositionMean(CrossEntropy())
    torch.testing.assert_close(loss.loss(outputs, targets, {}), numbers(1.5 * math.log(2)))
    expected = numbers([[-3 / 8, 3 / 8], [1 / 4, -1 / 4], [0.0, 0.0]])
    torch.testing.assert_close(loss.gradient(outputs, targets, {}), expected)


@pytest.mark.parametrize("loss", [PositionMean(CrossEntropy()), PositionMean(SymmetricLoss())])
def test_gradients_over_positions_are_those_of_autograd(loss: Loss) -> None:
    outputs = torch.randn(2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.tensor([[[0, 1, 2, -100]] * 3, [[4, -100, -100, -100]] * 3])
    torch.testing.assert_close(loss.gradient(outputs, targets, {}), by_autograd(loss, outputs, targets))


def test_a_loss_for_classes_is_averaged_once() -> None:
    loss = per_position(CrossEntropy(), "positions")
    assert loss == PositionMean(CrossEntropy())
    assert per_position(loss, "positions") is loss
    assert per_position(CrossEntropy(), "classes") == CrossEntropy()
    assert loss.within() == CrossEntropy()
    assert fits(CrossEntropy, "positions")
    assert not fits(CrossEntropy, "multilabel")
