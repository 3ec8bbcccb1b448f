"""What trains together with clients of other runs, and what does not."""

from __future__ import annotations

import dataclasses
import weakref
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from motley.engines import joint_chunks
from motley.engines.batches import BatchPlan
from motley.engines.chunk import PhaseJob
from motley.engines.joint_chunks import JointComputation, _fitting, kind_of
from motley.engines.samples import Samples
from motley.engines.vmapped import Vmapped
from motley.experiments.build import build
from motley.experiments.config import Experiment

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "population": 6,
    "cohort": 3,
    "partition": "iid",
    "stop": {"rounds": 1},
    "engine": {"name": "vmap", "threads": 1},
}


def setting(model: Any = None, **keys: Any) -> Any:
    made = build(Experiment(**{**KEYS, **keys})).setting
    return made if model is None else dataclasses.replace(made, task=made.task.with_model(model))


def kind(of: Any) -> Any:
    return kind_of(Vmapped(of), of)


class Plain(nn.Module):
    """64 numbers to 10, with an option."""

    def __init__(self, option: Any, still: bool = False) -> None:
        super().__init__()
        self.option = option
        self.layer = nn.Linear(64, 10)
        self.layer.bias.requires_grad_(not still)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x.flatten(1))


def test_seeds_and_corrections_are_of_one_kind() -> None:
    first = kind(setting())
    assert first is not None
    assert first == kind(setting(seed=1))
    assert first == kind(setting(algorithm="fedprox"))
    assert kind(setting(lambda: Plain(2))) == kind(setting(lambda: Plain(2)))


@pytest.mark.parametrize(
    "keys",
    [
        {"task": {**KEYS["task"], "model": "linear"}},
        {"local": {"optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.9}}},
        {"loss": "symmetric"},
        {"dtype": "float64"},
        {"precision": "bfloat16"},
    ],
)
def test_other_layers_optimizers_losses_and_numbers_are_of_another(keys: dict[str, Any]) -> None:
    assert kind(setting()) != kind(setting(**keys))


def test_modules_of_the_same_parameters_that_compute_otherwise_are_of_another() -> None:
    def activated(activation: type[nn.Module]) -> Any:
        layers = nn.Flatten(), nn.Linear(64, 10), activation()
        return lambda: nn.Sequential(*layers)

    assert kind(setting(activated(nn.Tanh))) != kind(setting(activated(nn.Sigmoid)))
    assert kind(setting(lambda: Plain(2))) != kind(setting(lambda: Plain(3)))


@pytest.mark.parametrize(
    "make",
    [lambda: Plain(object()), lambda: Plain(torch.ones(3)), lambda: Plain(2, still=True)],
)
def test_what_cannot_be_compared_equals_itself_alone(make: Any) -> None:
    """An option that is an object, tensors, and weights that stand still, which no state
    replaces."""
    assert kind(setting(make)) != kind(setting(make))


def test_a_module_with_an_option_without_a_hash_trains_alone() -> None:
    assert kind(setting(lambda: Plain({"a": 1}))) is None


def test_augmented_and_transformed_samples_train_alone() -> None:
    assert kind(setting(task={**KEYS["task"], "augment": "crop_flip"})) is None
    own = setting()
    task = dataclasses.replace(own.task, transform=lambda x, key: x)
    assert kind_of(Vmapped(own), dataclasses.replace(own, task=task)) is None


def test_equal_samples_lie_in_memory_once() -> None:
    computation = JointComputation()
    first, second, other = (
        Samples(setting(seed=seed).task, torch.float32, "cpu") for seed in (0, 1, 2)
    )
    second.x = second.x.clone()
    other.x = other.x + 1.0
    numbers = [computation._shared(samples) for samples in (first, second, other, second)]
    assert numbers[0] == numbers[1] == numbers[3] != numbers[2]
    assert second.x is first.x


def test_samples_of_runs_that_have_ended_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs on each of two sets of samples; then the two on the first have ended."""
    computation = JointComputation()
    works = []
    for number in range(4):
        samples = SimpleNamespace(x=torch.full((2,), float(number // 2)))
        works.append(SimpleNamespace(samples=samples, key=lambda: "key", alone=lambda: ([], [])))
    monkeypatch.setattr(JointComputation, "_together", lambda self, key, works: works)
    computation.compute(works)  # type: ignore[arg-type]
    assert computation.sizes == [2, 2]
    first = weakref.ref(works[0].samples.x)
    computation._samples = {work.samples.x[0].item(): work.samples for work in works}
    del works[:2], samples
    computation.compute(works)  # type: ignore[arg-type]
    assert computation.sizes == [2]
    assert first() is None
    assert list(computation._samples) == [1.0]


def _client(steps: int, batch: int) -> PhaseJob:
    plan = BatchPlan.of([np.arange(batch)] * steps)
    return PhaseJob(None, None, plan, None, None, {})  # type: ignore[arg-type]


def test_chunks_hold_what_fits_those_with_most_steps_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients of 1, 4, 2 and 3 steps, batches of 2; models of 10 weights, of which 20 fit; then
    places of the longest times the clients: 4 x 2 x 2 = 16 fit, 24 do not."""
    clients = [_client(steps, 2) for steps in (1, 4, 2, 3)]
    assert list(_fitting(clients, 10)) == [[1, 3, 2, 0]]
    monkeypatch.setattr(joint_chunks, "WINDOW_WEIGHTS", 20)
    assert list(_fitting(clients, 10)) == [[1, 3], [2, 0]]
    monkeypatch.setattr(joint_chunks, "WINDOW_WEIGHTS", 1000)
    monkeypatch.setattr(joint_chunks, "SCHEDULE_PLACES", 16)
    assert list(_fitting(clients, 10)) == [[1, 3], [2, 0]]
    monkeypatch.setattr(joint_chunks, "SCHEDULE_PLACES", 1)
    assert list(_fitting(clients, 10)) == [[1], [3], [2], [0]]
    assert list(_fitting([], 10)) == []


def test_a_wide_batch_of_a_short_client_counts_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """4 steps of 2 places, and 1 step of 5: 2 clients x 4 steps x 5 places are 40."""
    clients = [_client(4, 2), _client(1, 5)]
    monkeypatch.setattr(joint_chunks, "SCHEDULE_PLACES", 40)
    assert list(_fitting(clients, 1)) == [[0, 1]]
    monkeypatch.setattr(joint_chunks, "SCHEDULE_PLACES", 39)
    assert list(_fitting(clients, 1)) == [[0], [1]]
