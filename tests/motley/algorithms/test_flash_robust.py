"""FLASH's local loss: the worked numbers, its gradient, its pseudo labels, and training with it on
every engine."""

import math

import pytest
import torch
from torch import nn

from motley.algorithms import LOSSES
from motley.algorithms.flash_robust import FlashRobust
from motley.algorithms.losses import CrossEntropy
from motley.core.errors import ConfigError
from motley.experiments.build import build


@pytest.mark.parametrize(
    ("alpha", "beta", "wanted", "gradient"),
    [
        (0.1, 4.0, 5.249384, [-3.65, 2.43, 1.22]),
        (1.0, 8.0, 10.883770, [-6.92, 4.58, 2.34]),
        (0.0, 0.0, 0.356675, [-0.3, 0.2, 0.1]),
    ],
)
def test_the_worked_numbers(alpha, beta, wanted, gradient):
    """p = (.7, .2, .1), y = 0, z = (.6, .3, .1): CE = -ln .7 = .356675, CE(z) = -.6 ln .7 - .3 ln
    .2 - .1 ln .1 = .927095, RCE = 4 (1 - .7) = 1.2; then .356675 + .1 * .927095 + 4 * 1.2 =
    5.249384 and .356675 + .927095 + 8 * 1.2 = 10.883770. By the outputs: CE p - (1, 0, 0) = (-.3,
    .2, .1), CE(z) p - z = (.1, -.1, 0), RCE -4 p_0 ((1, 0, 0) - p) = (-.84, .56, .28); so -.3 + .01
    - 3.36 = -3.65 and so on."""
    assert -0.6 * math.log(0.7) - 0.3 * math.log(0.2) - 0.1 * math.log(0.1) == pytest.approx(
        0.927095, abs=5e-7
    )
    outputs = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log() + 3.0
    z = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    robust = FlashRobust(alpha, beta)
    loss = robust.loss(outputs, torch.tensor([0]), {"pseudo": z})
    assert loss.item() == pytest.approx(wanted, abs=5e-7)
    slope = robust.gradient(outputs, torch.tensor([0]), {"pseudo": z})
    assert slope.tolist() == [pytest.approx(gradient, abs=1e-12)]


def test_without_its_extra_terms_it_is_cross_entropy():
    outputs = torch.randn(3, 5, 4, dtype=torch.float64)
    targets = torch.randint(0, 4, (3, 5))
    ours = FlashRobust(0.0, 0.0)
    plain = CrossEntropy()
    torch.testing.assert_close(ours.loss(outputs, targets, {}), plain.loss(outputs, targets, {}))
    torch.testing.assert_close(
        ours.gradient(outputs, targets, {}), plain.gradient(outputs, targets, {})
    )


@pytest.mark.parametrize("prepared", [True, False])
def test_the_gradient_by_hand_is_autograds(prepared):
    """No gradient flows through z, whether it was prepared or is the model's own softmax."""
    outputs = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=True)
    targets = torch.randint(0, 4, (3, 5))
    loss = FlashRobust(0.7, 3.0)
    extra = {"pseudo": torch.randn(3, 5, 4, dtype=torch.float64).softmax(-1)} if prepared else {}
    (wanted,) = torch.autograd.grad(loss.loss(outputs, targets, extra).sum(), outputs)
    torch.testing.assert_close(loss.gradient(outputs.detach(), targets, extra), wanted)
    own = {"pseudo": outputs.detach().softmax(-1)}
    same = torch.allclose(loss.loss(outputs, targets, extra), loss.loss(outputs, targets, own))
    assert same is not prepared


def test_pseudo_labels_are_the_received_models():
    """The received model says (.6, .3, .1) of a sample of class 0. A model that has moved on to
    (.7, .2, .1) is pulled by p - z = (.1, -.1, 0) with alpha, and by nothing where z is its own
    p."""
    forward = nn.Linear(3, 4)
    inputs = torch.randn(6, 3)
    with torch.no_grad():
        extra = FlashRobust().prepare(None, forward, inputs, torch.zeros(6, dtype=torch.long))
        torch.testing.assert_close(extra["pseudo"], forward(inputs).softmax(-1))
    targets = torch.tensor([0])
    z = torch.tensor([[0.6, 0.3, 0.1]], dtype=torch.float64)
    for pseudo, pull in (({"pseudo": z}, [0.1, -0.1, 0.0]), ({}, [0.0, 0.0, 0.0])):
        outputs = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log().requires_grad_()
        (whole, plain) = (
            torch.autograd.grad(FlashRobust(alpha, 0.0).loss(outputs, targets, pseudo), outputs)[0]
            for alpha in (1.0, 0.0)
        )
        assert (whole - plain).tolist() == [pytest.approx(pull, abs=1e-12)]


def test_confident_mistakes_stay_bounded():
    """The reverse term of a sample whose label the model finds impossible is 4, not infinite."""
    outputs = torch.tensor([[0.0, -1e4]], dtype=torch.float64)
    reverse = FlashRobust(0.0, 1.0).loss(outputs, torch.tensor([1]), {}) - CrossEntropy().loss(
        outputs, torch.tensor([1]), {}
    )
    assert reverse.item() == pytest.approx(4.0)


@pytest.mark.parametrize(
    "options", [{"alpha": -0.1}, {"beta": float("inf")}, {"beta": float("nan")}]
)
def test_weights_out_of_range_are_refused(options):
    with pytest.raises(ConfigError, match="expected a weight of at least 0"):
        FlashRobust(**options)


def test_it_is_in_the_catalogue():
    assert LOSSES.build({"name": "flash_robust", "alpha": 1.0, "beta": 8.0}) == FlashRobust(
        1.0, 8.0
    )


def test_as_an_algorithm_it_is_the_loss_and_nothing_else():
    keys = {"task": "tabular", "population": 4, "cohort": 2, "stop": {"rounds": 1}}
    method = build(
        {**keys, "algorithm": {"name": "flash_robust", "alpha": 1.0, "beta": 8.0}}
    ).algorithm
    plain = build({**keys, "loss": {"name": "flash_robust", "alpha": 1.0, "beta": 8.0}}).algorithm
    assert (method.loss, method.server, method.weights) == (plain.loss, plain.server, plain.weights)
    assert type(method.local) is type(plain.local)
    with pytest.raises(
        ConfigError, match="algorithm: got 'flash_robust', but the targets of this task are numbers"
    ):
        build({**keys, "task": "quadratic", "partition": "by_writer", "algorithm": "flash_robust"})
    with pytest.raises(ConfigError, match="expected a weight of at least 0"):
        build({**keys, "algorithm": {"name": "flash_robust", "alpha": -1}})
