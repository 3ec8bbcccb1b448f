"""FIARSE: which weights clients hold, their steps and their average, worked by hand and beside a
plain loop of torch; the numbers of the page are those of tests here."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.functional import cross_entropy

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.fiarse import FIARSE, LargestWeights, largest
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.parts import (
    RECEIVED,
    Algorithm,
    JobContext,
    LocalRule,
    Upload,
    aggregate,
    step_model,
)
from motley.core.layout import Entry, Layout
from motley.engines.engine import Job
from motley.engines.local import Sequential
from motley.experiments.build import build
from motley.tasks import from_clients, own_task
from motley.tasks.task import ModelState
from motley.testing.algorithms import Play

X = torch.tensor([3.0, -1.0, 0.5, -2.0], dtype=torch.float64)
NONE = torch.zeros(0, dtype=torch.float64)
LAYERS = Layout((Entry("a.weight", "a", (2,), 0), Entry("b.weight", "b", (2,), 2)))


def rule(**options) -> LargestWeights:
    return FIARSE(**options).change(plain()).local.bound(LAYERS)


def plain() -> Algorithm:
    return Algorithm(CrossEntropy(), LocalRule(), Mean(), Average())


def trained(local: LargestWeights, width: float, gradients, lr=0.1) -> Upload:
    """Return the upload of a client of this width after plain steps with these gradients of the
    loss by the effective weights, from X."""
    download = {"x": X, "buffers": NONE, "counters": NONE}
    if width < 1:
        held = local.held(X, width)
        download |= {"x": X * held, "held": held}
    context = JobContext(
        x=download["x"],
        download=download,
        client_state=None,
        steps=len(gradients),
        lr=lr,
        num_examples=1,
        solver_norm=1.0,
        layout=LAYERS,
    )
    (phase,) = local.phases(context)
    w = context.x.clone()
    for step, gradient in enumerate(gradients):
        slope = torch.tensor(gradient, dtype=torch.float64)
        values = {**phase.values, RECEIVED: w.clone()}
        w = w - lr * phase.direction(lambda at, slope=slope: slope, values, step)
    return Upload(local.finish(ModelState(w, NONE, NONE), context)[0], 1.0)


def moved(*uploads: Upload) -> list[float]:
    total = aggregate(Mean(), uploads, "weight")
    state = Average().init(ModelState(X, NONE, NONE), 2)
    return (step_model(state, total["delta"], total).x - X).tolist()


ONES = [1.0, 1.0, 1.0, 1.0]


def test_masks_steps_and_average_of_two_clients() -> None:
    local = rule()
    assert local.held(X, 0.75).tolist() == [True, False, False, True]
    narrow = trained(local, 0.75, [ONES])
    # factors 1 + 2 * 2 * 3 / 25 = 1.48 and 1 + 2 * 2 * 2 / 16 = 1.5
    assert narrow.parts["delta"].value.tolist() == pytest.approx([-0.148, 0, 0, -0.15])
    whole = trained(local, 1.0, [ONES])
    factors = [1 + 3 / 12.25, 1 + 1 / 2.25, 1.5, 1 + 2 / 6.25]
    assert factors == pytest.approx([61 / 49, 13 / 9, 1.5, 1.32])
    assert whole.parts["delta"].value.tolist() == pytest.approx([-0.1 * f for f in factors])
    mean = [-(0.148 + 6.1 / 49) / 2, -1.3 / 9, -0.15, -0.141]
    assert mean == pytest.approx([-0.136245, -0.144444, -0.15, -0.141], abs=1e-6)
    assert moved(narrow, whole) == pytest.approx(mean)
    # what nobody holds stands still
    assert moved(narrow)[1:3] == [0.0, 0.0]


@pytest.mark.parametrize(("average", "fourth"), [("held", -0.066), ("moved", -0.132)])
def test_who_counts_at_a_weight_without_a_gradient(average: str, fourth: float) -> None:
    local = rule(average=average)
    uploads = trained(local, 0.75, [[1.0, 1.0, 1.0, 0.0]]), trained(local, 1.0, [ONES])
    assert moved(*uploads)[3] == pytest.approx(fourth)


def test_a_weight_that_falls_below_the_threshold_stands_still() -> None:
    """-2 goes to -1.85 by 1.5 * .1; the next step leaves it, and 3 has theta = 2 still."""
    push = [1.0, 0.0, 0.0, -1.0]
    delta = trained(rule(), 0.75, [push, push]).parts["delta"]
    second = 1 + 4 * 2.852 / 4.852**2
    assert delta.value.tolist() == pytest.approx([-0.148 - 0.1 * second, 0.0, 0.0, 0.15])
    assert delta.held.tolist() == [True, False, False, True]


@pytest.mark.parametrize(
    ("scope", "held", "thresholds"),
    [("model", [1, 1, 0, 0], [3, 3, 3, 3]), ("layer", [1, 0, 1, 0], [4, 4, 2, 2])],
)
def test_the_largest_of_the_model_or_of_each_layer(scope, held, thresholds) -> None:
    local = rule(scope=scope)
    x = torch.tensor([4.0, -3.0, -2.0, 1.0])
    mask = local.held(x, math.sqrt(0.5))
    assert mask.tolist() == [bool(one) for one in held]
    context = JobContext(
        x=x * mask,
        download={"held": mask},
        client_state=None,
        steps=1,
        lr=0.1,
        num_examples=1,
        solver_norm=1.0,
        layout=LAYERS,
    )
    assert local.phases(context)[0].values["thresholds"].tolist() == thresholds


def test_of_equal_weights_the_first_are_held_and_normalization_layers_are_whole() -> None:
    assert largest(torch.tensor([1.0, 2.0, 1.0, 1.0]), 3).tolist() == [True, True, True, False]
    assert largest(torch.zeros(4), 2).tolist() == [True, True, False, False]
    entries = (
        Entry("a.weight", "a", (4,), 0),
        Entry("n.weight", "n", (2,), 4, norm=True),
        Entry("b.weight", "b", (1,), 6),
    )
    local = rule(scope="layer").bound(Layout(entries))
    x = torch.tensor([1.0, 4.0, 3.0, 2.0, 0.1, 0.2, 0.3])
    assert local.held(x, 0.5).int().tolist() == [0, 1, 0, 0, 1, 1, 1]
    # 0.36 * 25 weights are 9
    for share in (0.6, 1 - 0.4):
        many = rule().bound(Layout((Entry("a.weight", "a", (25,), 0),)))
        assert many.held(torch.arange(25.0), share).sum() == 9


def test_with_a_threshold_of_zero_the_direction_is_the_gradient() -> None:
    """With theta = 0 every factor is 1: a model with a zero among its weights, held whole."""
    download = {"x": torch.tensor([0.0, 2.0]), "buffers": NONE, "counters": NONE}
    context = JobContext(
        x=download["x"],
        download=download,
        client_state=None,
        steps=1,
        lr=0.1,
        num_examples=1,
        solver_norm=1.0,
        layout=LAYERS,
    )
    local = rule().bound(Layout((Entry("a.weight", "a", (2,), 0),)))
    (phase,) = local.phases(context)
    values = {**phase.values, RECEIVED: download["x"]}
    slope = torch.tensor([5.0, 7.0])
    assert phase.direction(lambda at: slope, values, 0).tolist() == [5.0, 7.0]


class Masked(torch.autograd.Function):
    """The mask of weights, with a derivative in place of its own."""

    @staticmethod
    def forward(ctx, sizes, threshold, held):
        mask = (sizes >= threshold) & held
        ctx.save_for_backward(sizes, threshold, mask)
        return mask.to(sizes)

    @staticmethod
    def backward(ctx, gradient):
        sizes, threshold, mask = ctx.saved_tensors
        return gradient * mask * 2 * threshold / (sizes + threshold) ** 2, None, None


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 6), nn.Tanh(), nn.Linear(6, 3))


def plainly(x: torch.Tensor, clients, widths, rounds: int, steps: int, lr: float) -> torch.Tensor:
    """Train as a plain loop of torch does, by autograd through the masks, one full batch a step."""
    module = network().double()
    names = [name for name, _ in module.named_parameters()]
    shapes = [p.shape for p in module.parameters()]
    cuts = np.cumsum([shape.numel() for shape in shapes])[:-1].tolist()
    for _ in range(rounds):
        total, count = torch.zeros_like(x), torch.zeros_like(x)
        for width, (inputs, labels) in zip(widths, clients, strict=True):
            k = int(width**2 * len(x) + 1e-6)
            order = sorted(range(len(x)), key=lambda i: -abs(float(x[i])))[:k]
            held = torch.zeros(len(x), dtype=torch.bool)
            held[order] = True
            threshold = x[held].abs().min()
            w = (x * held).clone().requires_grad_()
            for _ in range(steps):
                effective = w * Masked.apply(w.abs(), threshold, held)
                parts = torch.tensor_split(effective, cuts)
                parameters = {
                    name: part.view(shape)
                    for name, part, shape in zip(names, parts, shapes, strict=True)
                }
                outputs = torch.func.functional_call(module, parameters, (inputs,))
                (slope,) = torch.autograd.grad(cross_entropy(outputs, labels), w)
                w = (w - lr * slope).detach().requires_grad_()
            total += (w.detach() - x) * held
            count += held
        x = x + torch.where(count > 0, total / count.clamp(min=1), 0.0)
    return x


def test_two_rounds_of_four_clients_are_those_of_a_plain_loop() -> None:
    draw = np.random.default_rng(5)
    data = [(draw.normal(size=(6, 3)).astype(np.float32), draw.integers(0, 3, 6)) for _ in range(4)]
    lists = [(x, y.tolist()) for x, y in data]
    federation = from_clients(lists, test=lists, classes=3)
    loop = build(
        {
            "task": {"name": "own"},
            "cohort": 4,
            "stop": {"rounds": 2},
            "algorithm": "fiarse",
            "dtype": "float64",
            "local": {"batch_size": 6, "steps": 3, "optimizer": {"name": "sgd", "lr": 0.5}},
            "capacity": {"name": "levels", "levels": [1.0, 0.8, 0.5], "per": "round"},
            "engine": "sequential",
        },
        task=own_task(federation, network),
    )
    widths = [loop.backend.holding.widths(np.arange(4), number) for number in (1, 2)]
    assert {*widths[0], *widths[1]} == {1.0, 0.8, 0.5}
    x = loop.state.server.model.x.clone()
    clients = [(torch.from_numpy(a).double(), torch.from_numpy(b)) for a, b in data]
    while not loop.done:
        loop.step()
    for of_round in widths:
        x = plainly(x, clients, of_round, rounds=1, steps=3, lr=0.5)
    assert loop.state.server.model.x.tolist() == pytest.approx(x.tolist(), rel=1e-9, abs=1e-12)


def test_a_client_of_half_the_width_moves_a_quarter_of_the_weights() -> None:
    play = Play(FIARSE(), "uniform", SGD(lr=0.1, momentum=0.9, weight_decay=0.01))
    download = play.algorithm.local.download(play.server)
    (done,) = Sequential(play.setting).train([Job(2, 0, 3, 0.1, width=0.5)], download, {})
    delta = done.parts["delta"]
    assert delta.held.sum() == play.setting.held_size(0.5) == int(0.25 * len(delta.value))
    assert not delta.value[~delta.held].any()
    assert play.setting.work_share(0.5) == pytest.approx(float(delta.held.double().mean()))
