"""A loss of one's own: one value per sample, or their mean; what is not a loss is refused when the
task is made."""

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as f

import motley
from motley.algorithms.task_loss import loss_of
from motley.core.errors import ConfigError, ModelError
from motley.tasks import from_arrays, from_clients, own_task
from motley.tasks.own_loss import OverBatch, SampleBySample, checked_loss, representative
from motley.tasks.random_samples import with_loss_compared

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


@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_a_loss_that_computes_in_float32_is_compared_in_float32(reduction: str) -> None:
    """Targets made float32, as one output for two classes needs it: of float64 outputs, torch gives
    a value that is rounded to float32."""

    def bce(outputs: Tensor, targets: Tensor) -> Tensor:
        logits = outputs.squeeze(-1)
        return f.binary_cross_entropy_with_logits(logits, targets.float(), reduction=reduction)

    two_classes = from_arrays(X, np.arange(12) % 2, CLIENT)
    loss = own_task(two_classes, lambda: nn.Linear(2, 1), loss=bce).loss
    assert isinstance(loss, SampleBySample) if reduction == "mean" else loss is bce


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
            r"the loss gives \[9, 3\] for a batch of 9; expected one value per sample \[9\]",
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
            r"the loss .*gives float; expected a tensor with one value per sample",
        ),
        (
            lambda outputs, targets: each(outputs.sub_(1.0), targets),
            r"the loss changes the outputs that it is given.*outputs = outputs - 1 for",
        ),
        (
            lambda outputs, targets: each(outputs, targets.clamp_(max=1)),
            r"the loss changes the targets that it is given.*targets = targets - 1 for",
        ),
        (
            nn.BCEWithLogitsLoss(),
            r"the loss cannot take outputs \[9, 3\] and targets \[9\] \(torch.int64\): Target size",
        ),
    ],
)
def test_what_is_not_a_loss_is_refused(loss: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        own_task(CLASSES, model, loss=loss)


def test_one_output_for_two_classes_gets_bce() -> None:
    task = own_task(from_arrays(X, np.arange(12) % 2, CLIENT), lambda: nn.Linear(2, 1))
    assert (task.loss, task.metric) == ("bce", "accuracy")


def test_a_binary_loss_of_torch_is_told_its_form() -> None:
    """The form that the message names trains as ``bce``."""
    pair = from_arrays(X, np.arange(12) % 2, CLIENT)
    bce = nn.BCEWithLogitsLoss()
    with pytest.raises(
        ModelError,
        match=r"the loss cannot take outputs \[9, 1\] and targets \[9\] .*; of one output for "
        r'two classes leave the loss out, which is "bce" then \(BCEWithLogitsLoss\), or write '
        r"loss=lambda outputs, labels: \.\.\.\(outputs\[:, 0\], labels.float\(\)\)",
    ):
        own_task(pair, lambda: nn.Linear(2, 1), loss=bce)
    own = own_task(
        pair,
        lambda: nn.Linear(2, 1),
        loss=lambda outputs, labels: bce(outputs[:, 0], labels.float()),
    )
    plain = own_task(pair, lambda: nn.Linear(2, 1))
    keys = {"cohort": 2, "stop": {"rounds": 2}, "local": {"optimizer": {"lr": 0.1}}}
    runs = [motley.run(keys, task=task) for task in (own, plain)]
    torch.testing.assert_close(*(run.module().state_dict() for run in runs))


def test_outputs_without_a_dimension_of_their_own_are_told_so() -> None:
    class Squeezed(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).squeeze(-1)

    message = (
        r"gives \[2\] for a batch of 2; expected \[2, 2\]; return a row for each sample, without"
    )
    with pytest.raises(ModelError, match=message):
        own_task(from_arrays(X, np.arange(12) % 2, CLIENT), lambda: Squeezed(2, 1))


def test_a_nan_loss_is_left_to_training() -> None:
    nan = checked_loss(
        lambda outputs, targets: (outputs * torch.nan).sum(-1), torch.ones(2, 3), torch.zeros(2)
    )
    assert nan(torch.ones(2, 3), torch.zeros(2)).isnan().all()


def cox(outputs: Tensor, targets: Tensor) -> Tensor:
    """Partial likelihood: who dies (targets above 0) against who was still at risk then."""
    order = torch.argsort(targets.abs().flatten(), descending=True)
    risk = outputs.flatten()[order]
    died = (targets.flatten()[order] > 0).to(outputs.dtype)
    return -((risk - torch.logcumsumexp(risk, 0)) * died).mean()


SURVIVAL = from_arrays(X, np.linspace(-3, 2, 12)[:, None], CLIENT, regression=True)
"""The smallest targets are all censored: there the loss is 0, in any batch and alone."""


@pytest.mark.parametrize(
    ("federation", "loss", "message"),
    [
        (
            CLASSES,
            nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0])),
            "the loss of a sample depends on the other samples of its batch",
        ),
        (
            CLASSES,
            lambda outputs, targets: each(outputs - outputs.mean(0), targets),
            r"depends on the other samples of its batch \(of 9 together",
        ),
        (CLASSES, nn.CrossEntropyLoss(reduction="sum"), "the loss is the sum over its batch"),
        (SURVIVAL, cox, "the loss of a sample depends on the other samples of its batch"),
    ],
)
def test_a_loss_that_looks_at_its_batch_is_told_and_trained_so(
    federation: Any, loss: Any, message: str
) -> None:
    def make() -> nn.Module:
        return nn.Linear(2, 3 if federation is CLASSES else 1)

    with pytest.warns(UserWarning, match=message):
        task = own_task(federation, make, loss=loss)
    assert task.loss == OverBatch(loss)
    assert loss_of(task).over == "batch"
    assert own_task(federation, make, loss=loss, over="batch").loss == OverBatch(loss, True)
    with pytest.raises(ModelError, match=f'{message}.*say over = "batch"'):
        own_task(federation, make, loss=loss, over="sample")


def test_a_batch_loss_is_every_samples_loss() -> None:
    """Two samples, torch's mean divided by class weights: (1 l_0 + 3 l_1) / 4."""
    outputs = torch.tensor([[0.0, 1.0], [0.0, 1.0]], requires_grad=True)
    targets = torch.tensor([0, 1])
    loss = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 3.0]))
    value = OverBatch(loss)(outputs, targets)
    first, second = math.log(1 + math.e), math.log(1 + math.exp(-1))
    torch.testing.assert_close(value, torch.full((2,), (first + 3 * second) / 4))
    (gradient,) = torch.autograd.grad(value.mean(), outputs)
    (expected,) = torch.autograd.grad(loss(outputs, targets), outputs)
    torch.testing.assert_close(gradient, expected)


def test_a_loss_that_takes_no_sample_alone_is_one_of_batches() -> None:
    def ranked(outputs: Tensor, targets: Tensor) -> Tensor:
        first, second = outputs[:-1], outputs[1:]
        return torch.cdist(first, second).diagonal().min()

    with pytest.warns(UserWarning, match="cannot be computed for a sample alone"):
        assert isinstance(own_task(CLASSES, model, loss=ranked).loss, OverBatch)


def test_a_loss_that_vmap_cannot_compute_is_one_of_batches() -> None:
    def branching(outputs: Tensor, targets: Tensor) -> Tensor:
        value = f.cross_entropy(outputs, targets, reduction="none")
        return (value * (2.0 if float(outputs.detach().sum()) == math.inf else 1.0)).mean()

    with pytest.warns(UserWarning, match="cannot compute this loss for many samples at once"):
        assert isinstance(own_task(CLASSES, model, loss=branching).loss, OverBatch)


@pytest.mark.parametrize(
    ("loss", "over", "error", "message"),
    [
        (
            lambda outputs, targets: each(outputs, targets) * torch.rand(()),
            None,
            ModelError,
            "gives another value when it is called again",
        ),
        (
            nn.Sequential(nn.Linear(3, 1)),
            None,
            ModelError,
            "the loss Sequential has parameters of its own",
        ),
        (each, "client", ConfigError, 'got \'client\'; expected "sample" or "batch"'),
        (
            "cross_entropy",
            "batch",
            ConfigError,
            "got 'batch' beside the loss 'cross_entropy'; it is for a loss that is a function",
        ),
    ],
)
def test_a_loss_that_cannot_be_followed_is_refused(
    loss: Any, over: Any, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        own_task(CLASSES, model, loss=loss, over=over)


def test_representative_numbers_begin_with_their_ends_and_both_signs() -> None:
    numbers = torch.tensor([[0.5], [-2.0], [7.0], [math.nan], [-0.1], [3.0]])
    assert representative(numbers, "numbers", 5).tolist() == [1, 2, 4, 0, 3]


def test_random_samples_judge_a_loss_that_nobody_declared() -> None:
    """Of a run whose outcome may say nothing of its rows: the same whatever these are."""
    plain = dataclasses.replace(own_task(CLASSES, model, loss=each), loss=each)
    assert with_loss_compared(plain).loss is each
    weighted = nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0, 3.0]))
    hidden = dataclasses.replace(plain, loss=SampleBySample(weighted))
    with pytest.warns(UserWarning, match="depends on the other samples"):
        assert with_loss_compared(hidden).loss == OverBatch(weighted)
    declared = dataclasses.replace(plain, loss=OverBatch(each, declared=True))
    assert with_loss_compared(declared) is declared
    named = dataclasses.replace(plain, loss="cross_entropy")
    assert with_loss_compared(named) is named


def test_event_and_time_beside_one_output(tmp_path) -> None:
    """One step of rate 1 on x = (1), (2), both events, the later one first in line: risks 0, so the
    loss is (log 2 - 0) / 2 and its gradient by the weight (softmax mean 1.5 - 2) / 2 = -.25."""

    def cox(outputs, targets):
        order = torch.sort(targets[:, 1], descending=True, stable=True).indices
        score = outputs[order, 0]
        return (targets[order, 0] * (torch.logcumsumexp(score, 0) - score)).mean()

    x = np.array([[1.0], [2.0]], np.float32)
    y = np.array([[1.0, 9.0], [1.0, 3.0]], np.float32)
    federation = from_clients([(x, y)], test=[(x, y)], regression=True)

    def at_zero() -> nn.Module:
        model = nn.Linear(1, 1, bias=False)
        nn.init.zeros_(model.weight)
        return model

    task = own_task(federation, at_zero, loss=cox, over="batch")
    keys = {"task": "own", "cohort": 1, "stop": {"rounds": 1}, "dtype": "float64"}
    local = {"steps": 1, "batch_size": 2, "optimizer": {"lr": 1.0}}
    run = motley.run({**keys, "local": local}, task=task, out=tmp_path / "run")
    assert run.module().weight.item() == pytest.approx(0.25, rel=1e-12)
    with pytest.raises(ModelError, match=r"gives \[2, 1\] for a batch of 2; expected \[2, 2\]"):
        own_task(federation, at_zero)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (each, r"\(each \(.*test_own_loss.py, line \d+\)\)"),
        (nn.CrossEntropyLoss(label_smoothing=0.3), r"\(a function\)"),
        ({"name": "cross_entropy", "label_smoothing": 0.3}, r"'label_smoothing': 0.3"),
    ],
)
def test_a_loss_in_place_of_the_tasks_own_is_told(given: Any, words: str) -> None:
    keys = {"cohort": 2, "stop": {"rounds": 1}}
    task = own_task(CLASSES, model, loss=given)
    replaced = {**keys, "loss": {"name": "cross_entropy", "label_smoothing": 0.1}}
    with pytest.warns(UserWarning, match=f"'cross_entropy' is trained in place of the.*{words}"):
        loop = motley.build(replaced, task=task)
    assert loop.setting.algorithm.loss.label_smoothing == 0.1
    motley.build(keys, task=task)  # says nothing
