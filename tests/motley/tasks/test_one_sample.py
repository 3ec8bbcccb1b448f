"""Of which models torch refuses a batch of one sample: found by trying, not by kinds of layers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.tasks import from_clients, own_task
from motley.tasks.one_sample import refuses_one_sample


class KeptInEvaluation(nn.Module):
    """BatchNorm of a pretrained part, which users keep in evaluation mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(32)
        self.o = nn.Linear(32, 3)

    def train(self, mode: bool = True) -> KeptInEvaluation:
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.o(self.norm(x.flatten(1)))


class Functional(nn.Module):
    """Normalization without a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(32, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x.flatten(1)
        normal = nn.functional.batch_norm(x, None, None, training=True) if self.training else x
        return self.o(normal)


def features(*norm: nn.Module) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(*norm, nn.Flatten(), nn.Linear(32, 3))


def pooled() -> nn.Module:
    return nn.Sequential(
        nn.AdaptiveAvgPool2d(1), nn.BatchNorm2d(2), nn.Flatten(), nn.Linear(2, 3), nn.Dropout(0.5)
    )


@pytest.mark.parametrize(
    ("make", "refused"),
    [
        (features(nn.BatchNorm2d(2)), False),  # 16 pixels
        (features(nn.Flatten(), nn.BatchNorm1d(32)), True),
        (pooled, True),  # one pixel
        (KeptInEvaluation, False),
        (Functional, True),
        (features(nn.InstanceNorm2d(2)), False),
        (features(), False),
    ],
)
def test_what_torch_refuses(make: Callable[[], nn.Module], refused: bool) -> None:
    rng = np.random.default_rng(0)
    data: Any = [(rng.normal(size=(4, 2, 4, 4)).astype(np.float32), np.arange(4) % 3)] * 3
    task = own_task(from_clients(data, test=data), make)
    before = torch.default_generator.get_state()
    assert refuses_one_sample(task) is refused
    assert torch.equal(before, torch.default_generator.get_state())
    # the reference: torch itself
    module = task.model().train()
    module.apply(lambda layer: layer.eval() if "Dropout" in type(layer).__name__ else None)
    sample = torch.from_numpy(data[0][0][:1])
    if refused:
        with pytest.raises(ValueError, match="more than 1 value per channel"):
            module(sample)
    else:
        module(sample)
