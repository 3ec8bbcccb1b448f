"""Options that take the form of a published code in place of a method's default, worked by hand."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from motley.algorithms.feddyn import FedDyn
from motley.algorithms.local_optimisers import SGD, Adam
from motley.algorithms.scaffold import Scaffold
from motley.algorithms.torch_optimizer import TorchOptimizer
from motley.core.errors import ConfigError

from ..algorithms.toys import Toy
from .test_both_weightings import values, weighted


@pytest.mark.parametrize(
    ("options", "x", "own"),
    [
        ({}, 0.0, -1.0),
        ({"divisor": "steps"}, 0.0, -1.0),
        ({"corrects": "weights"}, 0.05, -1.2),
        ({"corrects": "weights", "divisor": "steps"}, 0.05, -1.25),
    ],
)
def test_scaffold_under_momentum_by_hand(options, x, own):
    """F = (w - 1)^2 / 2, x = 0, lr .1, momentum .5, two steps, c = 1, c_k = 0. Within the
    gradient: -1 + 1 = 0, the model stays and c_k = -1. Outside: v = -1, w = .1 - .1 = 0; v = -1.5,
    w = .15 - .1 = .05; c_k = -1 - .05 / .25, for ||a||_1 = 1 + 1.5 = 2.5, or -1 - .05 / .2."""
    toy = Toy(Scaffold(**options), targets=(1.0,), solver=SGD(lr=0.1, momentum=0.5))
    toy.server.extra["c"].fill_(1.0)
    (result,) = toy.round(steps=2)
    assert result.parts["delta"].value.item() == pytest.approx(x, abs=1e-12)
    assert result.client_state["c"].item() == pytest.approx(own, rel=1e-12)


def test_scaffold_outside_of_weight_decay_by_hand():
    """w = 1, gradient 1 - 0 = 1, decay .5, c - c_k = 1, lr .1: 1 - .1 * 1.5 - .1 = .75, as within
    the gradient, which decay does not multiply; the second step differs by none either."""
    for corrects in ("gradient", "weights"):
        solver = SGD(lr=0.1, weight_decay=0.5)
        toy = Toy(Scaffold(corrects=corrects), start=(1.0,), targets=(0.0,), solver=solver)
        toy.server.extra["c"].fill_(1.0)
        (result,) = toy.round()
        assert result.parts["delta"].value.item() == pytest.approx(-0.25, rel=1e-12)


@pytest.mark.parametrize(
    "make_solver",
    # a torch optimizer imports torch's compiler: not while tests are collected
    [lambda: Adam(lr=0.1), lambda: TorchOptimizer(partial(torch.optim.Adam, lr=0.1))],
    ids=["own", "torch"],
)
def test_scaffold_outside_of_adam_by_hand(make_solver):
    """Adam's first step is lr in the direction of the sign: 0 + .1 - .1 c = .1 - .05."""
    scaffold = Scaffold(option="I", corrects="weights")
    toy = Toy(scaffold, targets=(1.0,), solver=make_solver())
    toy.server.extra["c"].fill_(0.5)
    (result,) = toy.round()
    assert result.parts["delta"].value.item() == pytest.approx(0.05, abs=1e-8)


def test_scaffold_with_models_by_samples_and_equal_variates():
    """n = (1, 3), minima 1 and 3, two steps of .1 from 0: y = (.19, .57), c_k = (-.95, -2.85), x =
    .475; c is their plain mean -1.9. By samples it would be -2.375."""
    method = {"name": "scaffold", "variates": "uniform"}
    simulation = weighted((1, 3), steps=2, minima=(1.0, 3.0), start=0.0, algorithm=method)
    simulation.step()
    server = simulation.state.server
    assert server.model.x.item() == pytest.approx(0.475, rel=1e-12)
    assert server.extra["c"].item() == pytest.approx(-1.9, rel=1e-12)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"corrects": "model"}, "got corrects = 'model'; expected 'gradient' or 'weights'"),
        ({"divisor": "lr"}, "got divisor = 'lr'; expected 'norm' or 'steps'"),
        ({"variates": "examples"}, "got variates = 'examples'; expected 'weights' or 'uniform'"),
    ],
)
def test_scaffold_refuses_other_forms(option, message):
    with pytest.raises(ConfigError, match=message):
        Scaffold(**option)


def test_feddyn_with_an_alpha_for_each_client_by_hand():
    """n = (1, 3), K p = (.5, 1.5), alpha = 1 / K p = (2, 2/3); m = (0, 10), x = 3, exact solves: w
    = 6 / 3 = 2 and (10 + 2) / (5/3) = 7.2, g = -2 (2 - 3) = 2 and -2/3 (7.2 - 3) = -2.8. Plain
    means: h = -(-1 + 4.2) / 2 = -1.6, x = 4.6 + 1.6 = 6.2."""
    method = {"name": "feddyn", "alpha": 1.0, "alphas": "by_samples"}
    keys = {"minima": (0.0, 10.0), "start": 3.0, "algorithm": method, "weights": "uniform"}
    simulation = weighted((1, 3), steps=400, **keys)
    simulation.step()
    assert values(simulation, "g") == pytest.approx([2.0, -2.8], rel=1e-12)
    assert simulation.state.server.extra["h"].item() == pytest.approx(-1.6, rel=1e-12)
    assert simulation.state.server.model.x.item() == pytest.approx(6.2, rel=1e-12)


def test_feddyn_refuses_other_alphas():
    with pytest.raises(ConfigError, match="got alphas = 'size'; expected 'common' or 'by_samples'"):
        FedDyn(alphas="size")


def test_feddyn_with_alphas_by_samples_takes_no_weights_by_samples():
    method = {"name": "feddyn", "alphas": "by_samples"}
    message = 'the samples are in the alphas; write weights = "uniform"'
    with pytest.raises(ConfigError, match=message):
        weighted((1, 3), minima=(0.0, 10.0), algorithm=method)
