"""Memory of training: what is estimated from the model beside what torch's profiler measures."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.profiler import ProfilerActivity, profile

from motley.algorithms.local_optimisers import SGD, Adam
from motley.engines.memory import training_memory
from motley.tasks.sequence_models import Transformer


def measured(module: nn.Module, step: Callable[[], Any], moments: int, folder: Path) -> int:
    """Return the bytes at the peak of a step, by the events of torch's allocator: weights,
    gradients and moments that were there before, and what the step allocates."""
    held = {t.data_ptr(): t.nbytes for t in [*module.parameters(), *module.buffers()]}
    gradients = 0
    for p in module.parameters():
        if p.requires_grad:
            p.grad = torch.zeros_like(p)
            gradients += p.nbytes
    step()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        step()
    profiled.export_chrome_trace(str(folder / "trace.json"))
    events = json.loads((folder / "trace.json").read_text())["traceEvents"]
    now = most = 0
    for event in sorted((e for e in events if e.get("name") == "[memory]"), key=lambda e: e["ts"]):
        now += event["args"]["Bytes"]
        most = max(most, now)
    return sum(held.values()) + (1 + moments) * gradients + most


def cross_entropy(outputs: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(8 * 14 * 14, 10),
    )


def linear() -> nn.Module:
    return nn.Sequential(nn.Linear(64, 256), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, 10))


CASES = [
    (linear, torch.randn(64, 64), 10, Adam(lr=0.1)),
    (convolutions, torch.randn(16, 1, 28, 28), 10, SGD(lr=0.1)),
    (
        lambda: Transformer(width=32, layers=2).build((16,), 50),
        torch.arange(8 * 16).view(8, 16) % 50,
        50,
        SGD(lr=0.1, momentum=0.9),
    ),
]


@pytest.mark.parametrize(("model", "inputs", "classes", "solver"), CASES)
def test_the_estimate_is_within_15_percent_of_the_measured_peak(
    model, inputs, classes, solver, tmp_path
):
    module = model()
    shape = inputs.shape if inputs.dtype == torch.int64 else inputs.shape[:1]
    targets = torch.arange(shape.numel()).view(shape) % classes

    def loss(outputs: Tensor) -> Tensor:
        return cross_entropy(outputs, targets)

    found = training_memory(module, solver, inputs, loss)
    moments = {SGD: int(bool(getattr(solver, "momentum", 0))), Adam: 2}[type(solver)]
    peak = measured(module, lambda: loss(module(inputs)).backward(), moments, tmp_path)
    assert found.total == pytest.approx(peak, rel=0.15)
    assert found.step > found.weights


def test_frozen_weights_have_neither_gradients_nor_moments():
    """Linear layers of 6 x 4 and 4 x 2 numbers and biases: 28 and 10 numbers of 4 bytes."""
    module = nn.Sequential(nn.Linear(6, 4).requires_grad_(False), nn.Linear(4, 2))
    found = training_memory(module, Adam(lr=0.1), torch.zeros(3, 6), lambda outputs: outputs.sum())
    assert found[:3] == (4 * 38, 4 * 10, 2 * 4 * 10)
    assert all(p.grad is None for p in module.parameters())


def test_a_tensor_that_is_gone_does_not_count():
    """Ten numbers are made and dropped 50 times: two of them are there at a time."""

    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.bias = nn.Parameter(torch.zeros(1))

        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                for _ in range(50):
                    x = x + 1.0
            return x + self.bias

    found = training_memory(Chain(), SGD(lr=0.1), torch.zeros(1, 1000), lambda out: out.sum())
    assert 2 * 4000 <= found.step < 4 * 4000
