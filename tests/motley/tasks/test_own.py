"""What is said of a model that gives other outputs each time: decided by what happened."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ModelError
from motley.tasks import from_clients, own_task

NUMBERS = itertools.count()


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(x)


class InPlace(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x -= 1.0
        return self.o(x)


class InPlaceBeforeNorm(InPlace):
    """Outputs that do not show it: BatchNorm takes the mean away."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x -= 1.0
        return self.o(self.norm(x))


class Noisy(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(x + float(np.random.default_rng().normal()))


class Numbered(Linear):
    def __init__(self) -> None:
        super().__init__()
        self.number = next(NUMBERS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(x) + self.number


def drawn() -> nn.Module:
    module = Linear()
    module.o.weight.data = torch.from_numpy(np.random.default_rng().normal(size=(3, 3))).float()
    return module


def made(model: Callable[[], nn.Module], transform: Any = None) -> Any:
    rng = np.random.default_rng(0)
    data: Any = [(rng.normal(size=(n, 3)).astype(np.float32), np.arange(n) % 3) for n in (8, 5, 6)]
    return own_task(from_clients(data, test=data), model, transform=transform)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (InPlace, "changes its input in place .* write x = x - 1"),
        (InPlaceBeforeNorm, "changes its input in place"),
        (drawn, "draws 'o.weight' anew each time, from another generator than torch's"),
        (Noisy, "gives other outputs for the same batch each time: it draws random numbers"),
        (Numbered, "with the same weights .* another attribute or constant"),
    ],
)
def test_why_outputs_differ(model: Callable[[], nn.Module], expected: str) -> None:
    with pytest.raises(ModelError, match=expected):
        made(model)


def test_an_input_changed_in_place_behind_a_transform_is_named_too() -> None:
    with pytest.raises(ModelError, match="changes its input in place"):
        made(InPlace, lambda batch, key: batch / 4.0)


def test_a_second_pass_may_leave_the_input_as_the_first_one_did() -> None:
    task = made(lambda: nn.Sequential(nn.ReLU(inplace=True), nn.Linear(3, 3)))
    assert task.layout.size == 12


class Both(Linear):
    """Scores in training, scores and features in evaluation, as detectors give them."""

    def forward(self, x: torch.Tensor) -> Any:
        return self.o(x) if self.training else (self.o(x), x)


class Fails(Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            raise ValueError("no weights for evaluation")
        return self.o(x)


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            Both,
            "gives tuple in evaluation mode and \\[2, 3\\] in training; return the scores alone",
        ),
        (Fails, "cannot take a batch of shape .* in evaluation mode: no weights for evaluation"),
    ],
)
@pytest.mark.parametrize("loss", [None, nn.CrossEntropyLoss()])
def test_outputs_in_evaluation_are_those_of_training(
    model: Callable[[], nn.Module], expected: str, loss: Any
) -> None:
    rng = np.random.default_rng(0)
    federation = from_clients([(rng.normal(size=(9, 3)), np.arange(9) % 3)], test_fraction=0.25)
    with pytest.raises(ModelError, match=expected):
        own_task(federation, model, loss=loss)
