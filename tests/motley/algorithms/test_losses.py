"""The plain losses: values and gradients worked out by hand."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

from motley.algorithms.losses import BinaryCrossEntropy, CrossEntropy, Huber
from motley.algorithms.parts import Loss
from motley.algorithms.positions import PositionMean, per_position
from motley.algorithms.symmetric import SymmetricLoss
from motley.core.errors import ConfigError


def numbers(*values: object) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def by_autograd(loss: Loss, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return Loss.gradient(loss, outputs, targets, {})


def test_bce_by_hand() -> None:
    # outputs 0 and log 3: sigmoid 1/2 and 3/4. Losses -log 1/2 (y = 1) and -log 1/4 (y = 0), mean
    # (log 2 + log 4) / 2 = 1.5 log 2. Gradient (sigmoid - y) / 2 = (1/2 - 1)/2 and (3/4)/2.
    outputs = numbers([0.0, math.log(3)])
    targets = numbers([1.0, 0.0])
    torch.testing.assert_close(
        BinaryCrossEntropy().loss(outputs, targets, {}), numbers(1.5 * math.log(2))
    )
    torch.testing.assert_close(
        BinaryCrossEntropy().gradient(outputs, targets, {}), numbers([-0.25, 0.375])
    )


def test_the_mean_over_positions_by_hand() -> None:
    # Probabilities (1/4, 3/4), (1/2, 1/2) and (1/8, 7/8), targets 0, 1 and none: loss (log 4 + log
    # 2) / 2 = 1.5 log 2. Gradient (p - onehot) / 2 at the first two positions, 0 at the third.
    outputs = numbers([[1 / 4, 3 / 4], [1 / 2, 1 / 2], [1 / 8, 7 / 8]]).log()
    targets = torch.tensor([[0, 1, -100]])
    loss = PositionMean(CrossEntropy())
    torch.testing.assert_close(loss.loss(outputs, targets, {}), numbers(1.5 * math.log(2)))
    expected = numbers([[-3 / 8, 3 / 8], [1 / 4, -1 / 4], [0.0, 0.0]])
    torch.testing.assert_close(loss.gradient(outputs, targets, {}), expected)


def test_class_weights_and_smoothing_by_hand() -> None:
    # p = (1/2, 1/4, 1/4), class 1, weights (1, 2, 4), smoothing 0.3 (0.1 per class). -log p = (1,
    # 2, 2) log 2. 0.7 * 2 * 2 log 2 + 0.1 * (1 + 2 * 2 + 4 * 2) log 2 = (2.8 + 1.3) log 2.
    # Gradient: (0.7 * 2) (p - onehot_1) + 0.1 (7 p - w) = (0.7, -1.05, 0.35) + (0.25, -0.025,
    # -0.225).
    outputs = numbers([0.5, 0.25, 0.25]).log()
    targets = torch.tensor([1])
    loss = CrossEntropy(class_weights=(1.0, 2.0, 4.0), label_smoothing=0.3)
    torch.testing.assert_close(loss.loss(outputs, targets, {}), numbers(4.1 * math.log(2)))
    torch.testing.assert_close(loss.gradient(outputs, targets, {}), numbers([0.95, -1.075, 0.125]))


@pytest.mark.parametrize(
    "options", [{"label_smoothing": 0.2}, {"class_weights": (1.0, 0.0, 2.0)}, {}]
)
def test_cross_entropy_is_torchs(options: dict[str, Any]) -> None:
    outputs = torch.randn(4, 5, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    targets = torch.arange(20).view(4, 5) % 3
    loss = CrossEntropy(**options)
    weight = numbers(*options["class_weights"]) if "class_weights" in options else None
    ours = loss.loss(outputs, targets, {})
    smooth = options.get("label_smoothing", 0.0)
    torchs = cross_entropy(
        outputs.flatten(0, 1), targets.flatten(), weight, reduction="none", label_smoothing=smooth
    )
    torch.testing.assert_close(ours.flatten(), torchs)
    torch.testing.assert_close(
        loss.gradient(outputs, targets, {}), by_autograd(loss, outputs, targets)
    )


def test_huber_by_hand() -> None:
    # Residuals 0.5 and -3 with delta 2: 0.125 and 2 (3 - 1) = 4; gradient 0.5 and -2.
    outputs = numbers([1.5, 0.0])
    targets = numbers([1.0, 3.0])
    torch.testing.assert_close(Huber(2.0).loss(outputs, targets, {}), numbers(4.125))
    torch.testing.assert_close(Huber(2.0).gradient(outputs, targets, {}), numbers([0.5, -2.0]))


def test_bce_of_two_classes_by_hand() -> None:
    # One output log 3 of class 0: -log(1 - 3/4) = 2 log 2, gradient 3/4. Outputs (1, 1 + log 3) say
    # the same.
    for outputs in (numbers([math.log(3)]), numbers([1.0, 1.0 + math.log(3)])):
        loss = BinaryCrossEntropy().loss(outputs, torch.tensor([0]), {})
        torch.testing.assert_close(loss, numbers(2 * math.log(2)))
        assert BinaryCrossEntropy().gradient(outputs, torch.tensor([0]), {})[
            0, -1
        ].item() == pytest.approx(3 / 4)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CrossEntropy(label_smoothing=1.0),
            "label_smoothing: got 1.0; expected a share of at least 0 and below 1",
        ),
        (
            lambda: CrossEntropy(class_weights=(1.0, -1.0)),
            r"class_weights: got \[1.0, -1.0\]; expected finite numbers of at least 0",
        ),
        (
            lambda: CrossEntropy(class_weights=(0.0, 0.0)),
            "expected finite numbers of at least 0, not all 0",
        ),
        (lambda: Huber(0.0), "got delta = 0.0; expected a number above 0"),
    ],
)
def test_options_out_of_range(make: Callable[[], Loss], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        make()


def test_targets_that_do_not_fit() -> None:
    assert CrossEntropy().refuses_targets("positions", 3) is None
    assert CrossEntropy((1.0, 2.0)).refuses_targets("classes", 3) == (
        "class_weights has 2 numbers, and there are 3 classes; give one for each"
    )
    assert (
        CrossEntropy().refuses_targets("multilabel", 3)
        == "the targets of this task are several labels per sample"
    )
    assert BinaryCrossEntropy().refuses_targets("classes", 2) is None
    assert (
        BinaryCrossEntropy().refuses_targets("classes", 3) == "the targets of this task are classes"
    )


@pytest.mark.parametrize("loss", [PositionMean(CrossEntropy()), PositionMean(SymmetricLoss())])
def test_gradients_over_positions_are_those_of_autograd(loss: Loss) -> None:
    outputs = torch.randn(
        2, 3, 4, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(0)
    )
    targets = torch.tensor([[[0, 1, 2, -100]] * 3, [[4, -100, -100, -100]] * 3])
    torch.testing.assert_close(
        loss.gradient(outputs, targets, {}), by_autograd(loss, outputs, targets)
    )


def test_a_loss_for_classes_is_averaged_once() -> None:
    loss = per_position(CrossEntropy(), "positions")
    assert loss == PositionMean(CrossEntropy())
    assert per_position(loss, "positions") is loss
    assert per_position(CrossEntropy(), "classes") == CrossEntropy()
    assert loss.within() == CrossEntropy()
