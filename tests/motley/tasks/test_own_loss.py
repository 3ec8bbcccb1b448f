"""A loss of one's own: one value per sample, or their mean; what is not a loss is refused when the
task is made."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as f

from motley.core.errors import ModelError
from motley.tasks import from_arrays, own_task
from motley.tasks.own_loss import SampleBySample, checked_loss

RNG = np.random.default_rng(0)
X = RNG.normal(size=(12, 2))
CLIENT = np.arange(12) % 3
CLASSES = from_arrays(X, np.arange(12) % 3, CLIENT)


def each(outputs: Tensor, targets: Tensor) -> Tensor:
    return f.cross_entropy(outputs, targets, reduction="none")


def model() -> nn.Module:
    return nn.Linear(2, 3)


def test_a_mean_becomes_one_value_per_sample() -> None:
    outputs = torch.randn(5, 3)
    targets = torch.arange(5) % 3
    mean = own_task(CLASSES, model, loss=nn.CrossEntropyLoss()).loss
    assert isinstance(mean, SampleBySample)
    torch.testing.assert_close(mean(outputs, targets), each(outputs, targets))
    assert own_task(CLASSES, model, loss=each).loss is each


@pytest.mark.parametrize("kind", ["positions", "multilabel", "numbers"])
def test_losses_of_every_kind_of_target(kind: str) -> None:
    y = {
        "positions": RNG.integers(0, 3, (12, 2)),
        "multilabel": RNG.integers(0, 2, (12, 3)),
        "numbers": RNG.normal(size=(12, 3)),
    }
    given: dict[str, Any] = {
        "multilabel": {"multilabel": True},
        "numbers": {"regression": True},
    }.get(kind, {})
    shape = {"positions": (2, 3)}.get(kind, (3,))
    loss: Callable[[Tensor, Tensor], Tensor] = {
        "positions": lambda outputs, targets: f.cross_entropy(outputs.mT, targets),
        "multilabel": f.binary_cross_entropy_with_logits,
        "numbers": f.l1_loss,
    }[kind]
    task = own_task(
        from_arrays(X, y[kind], CLIENT, **given),
        lambda: nn.Sequential(nn.Linear(2, int(np.prod(shape))), nn.Unflatten(1, shape)),
        loss=loss,
    )
    assert isinstance(task.loss, SampleBySample)


@pytest.mark.parametrize(
    ("loss", "message"),
    [
        (
            lambda outputs, targets: outputs.square(),
            r"the loss gives \[4, 3\] for a batch of 4; expected one value per sample \[4\]",
        ),
        (
            lambda outputs, targets: outputs.argmax(-1) == targets,
            "does not depend on the outputs in a way that has a gradient",
        ),
        (
            lambda outputs, targets: each(outputs.detach(), targets),
            "does not depend on the outputs in a way that has a gradient",
        ),
        (
            lambda outputs, targets: 3.0,
            "the loss gives float; expected a tensor with one value per sample",
        ),
        (
            nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])),
            "the loss of a sample depends on the other samples of its batch",
        ),
        (
            lambda outputs, targets: each(outputs - outputs.mean(0), targets),
            "depends on the other samples of its batch",
        ),
        (
            nn.BCEWithLogitsLoss(),
            r"the loss cannot take outputs \[4, 3\] and targets \[4\] \(torch.int64\): Target size",
        ),
    ],
)
def test_what_is_not_a_loss_is_refused(loss: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        own_task(CLASSES, model, loss=loss)


def test_one_output_for_two_classes_gets_bce() -> None:
    task = own_task(from_arrays(X, np.arange(12) % 2, CLIENT), lambda: nn.Linear(2, 1))
    assert (task.loss, task.metric) == ("bce", "accuracy")


def test_a_nan_loss_is_left_to_training() -> None:
    nan = checked_loss(
        lambda outputs, targets: (outputs * torch.nan).sum(-1), torch.ones(2, 3), torch.zeros(2)
    )
    assert nan(torch.ones(2, 3), torch.zeros(2)).isnan().all()
