"""FedLC: calibrated logits worked by hand, and classes that a client does not have."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.fedlc import CalibratedLoss, FedLC
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import BinaryCrossEntropy, CrossEntropy
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.testing.algorithms import Play

LOSS = CalibratedLoss(CrossEntropy())
TARGETS = torch.tensor([0] * 16 + [1])


def prepared(loss=LOSS, classes=3):
    return loss.prepare(None, lambda x: x.new_zeros(len(x), classes), torch.zeros(17, 2), TARGETS)


def test_the_loss_and_its_gradient_by_hand() -> None:
    """Counts (16, 1, 0): shifts (-.5, -1, -100), probabilities (.622459, .377541, 0)."""
    extra = prepared()
    assert extra["shift"].shape == (17, 3)
    assert torch.equal(extra["shift"][0], extra["shift"][16])
    assert extra["shift"][0].tolist() == pytest.approx([-0.5, -1.0, -100.0])
    outputs = torch.zeros(17, 3)
    found = LOSS.loss(outputs, TARGETS, extra)
    assert found[[0, 16]].tolist() == pytest.approx([0.474077, 0.974077], abs=1e-6)
    gradient = LOSS.gradient(outputs, TARGETS, extra)
    assert gradient[16].tolist() == pytest.approx([0.622459, -0.622459, 0.0], abs=1e-6)


def test_one_output_for_two_classes_is_calibrated_as_two_outputs_are() -> None:
    """Counts (16, 1): -1 + .5 is added to the logit of the second class; without that class,
    -100 + 17^(-1/4)."""
    single = CalibratedLoss(BinaryCrossEntropy())
    extra = prepared(single, 1)
    assert extra["shift"].shape == (17, 1)
    assert extra["shift"][3].tolist() == pytest.approx([-0.5])
    outputs = torch.linspace(-2, 2, 17)[:, None]
    two = torch.cat([torch.zeros(17, 1), outputs], 1)
    wanted = LOSS.loss(two, TARGETS, prepared(classes=2))
    assert torch.allclose(single.loss(outputs, TARGETS, extra), wanted)
    alone = single.prepare(None, lambda x: x.new_zeros(len(x), 1), torch.zeros(17, 2), 0 * TARGETS)
    assert alone["shift"][0].tolist() == pytest.approx([-100.0 + 17**-0.25])


def test_the_gradient_is_that_of_the_loss() -> None:
    extra = {"shift": torch.randn(17, 3, dtype=torch.float64, generator=torch.Generator())}
    outputs = torch.linspace(-2, 2, 51, dtype=torch.float64).view(17, 3).requires_grad_()
    (wanted,) = torch.autograd.grad(LOSS.loss(outputs, TARGETS, extra).sum(), outputs)
    assert torch.allclose(LOSS.gradient(outputs.detach(), TARGETS, extra), wanted, rtol=1e-12)


def test_a_probe_measures_the_plain_loss() -> None:
    outputs = torch.linspace(-2, 2, 51).view(17, 3)
    wanted = CrossEntropy().loss(outputs, TARGETS, {})
    assert torch.equal(LOSS.loss(outputs, TARGETS, {}), wanted)


def test_equal_counts_change_no_probability() -> None:
    even = LOSS.shift(torch.full((4,), 9.0))
    outputs = torch.tensor([1.0, -2.0, 0.5, 3.0])
    assert torch.allclose((outputs + even).softmax(-1), outputs.softmax(-1))


def test_a_class_that_the_client_does_not_have_hardly_moves() -> None:
    """Client 1 of the contract has one sample, of one class: it takes nothing from the other three,
    and so has nothing to learn; under plain training it pushes them down."""
    moved = {}
    for method in (FedLC(), FedLC(tau=0.0)):
        play = Play(method, "examples", SGD(lr=0.1))
        (entry,) = [e for e in play.setting.task.layout if e.name.endswith("2.bias")]
        (trained,) = play.train(0, (1,))
        moved[method.tau] = trained.parts["delta"].value[entry.slice].abs().max().item()
    assert moved[1.0] < 1e-30
    assert moved[0.0] > 1e-3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"algorithm": {"name": "fedlc", "tau": -1}}, "got tau = -1.0; expected a finite number"),
        ({"task": "quadratic", "partition": "by_writer"}, "the targets of this task are numbers"),
    ],
)
def test_what_has_no_classes_is_refused(keys, message) -> None:
    given = {
        "task": {"name": "image", "data": "digits"},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "algorithm": "fedlc",
    }
    with pytest.raises(ConfigError, match=message):
        build(Experiment(**{**given, **keys}))


def test_a_class_per_position_is_refused() -> None:
    assert "each has a class per position" in (LOSS.refuses_targets("positions", 3) or "")
    assert LOSS.refuses_targets("classes", 3) is None
