"""FedMuon: orthogonal factors and momenta by hand."""

from __future__ import annotations

import math

import pytest
import torch

from motley.algorithms.fedmuon import FedMuon, newton_schulz, orthogonal
from motley.algorithms.local_optimisers import SGD
from motley.core.errors import ConfigError
from motley.testing.algorithms import Play
from tests.motley.algorithms.toys import Toy
from tests.motley.theory.test_algorithms import simulate

PLAIN = {"weight_decay": 0.0, "beta": 0.5}


def test_the_factor_has_the_singular_values_of_one():
    turn = torch.tensor([[0.6, -0.8], [0.8, 0.6]]).double()
    wanted = turn @ torch.tensor([[0.0, 1.0], [1.0, 0.0]]).double()
    torch.testing.assert_close(
        orthogonal(wanted @ torch.diag(torch.tensor([3.0, 4.0]).double())), wanted
    )
    alone = torch.tensor([[3.0, 0.0], [0.0, 0.0]]).double()
    torch.testing.assert_close(orthogonal(alone), alone / 3)
    assert not orthogonal(torch.zeros(2, 3)).any()


def test_the_iteration_is_muons():
    """One number: 3.4445 x - 4.775 x^3 + 2.0315 x^5 from 1, twice; a matrix of more rows than
    columns is turned."""
    x = 1.0
    for _ in range(2):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    found = newton_schulz(torch.tensor([[5.0]]).double(), 2)
    assert found.item() == pytest.approx(x, rel=1e-6)
    tall = torch.arange(6.0).view(3, 2).double()
    torch.testing.assert_close(newton_schulz(tall), newton_schulz(tall.mT).mT)
    values = torch.linalg.svdvals(newton_schulz(torch.eye(4).double() + 0.1))
    assert 0.6 < values.min() < values.max() < 1.3


def test_two_rounds_of_one_step():
    """A weight of a linear layer is a matrix: its factor is the sign. Momentum -4, -2, mean -3;
    then -1.5 - 3.95, -1.5 - 1.95, mean -4.45; a step of .5 and .25."""
    toy = Toy(FedMuon(**PLAIN), targets=(4.0, 2.0))
    toy.round()
    assert toy.x == pytest.approx([0.05], rel=1e-12)
    assert toy.server.extra["direction"].item() == pytest.approx(-0.5, rel=1e-12)
    assert toy.server.extra["moments"].tolist() == pytest.approx([-3.0], rel=1e-12)
    toy.round()
    assert toy.x == pytest.approx([0.125], rel=1e-12)
    assert toy.server.extra["moments"].tolist() == pytest.approx([-4.45], rel=1e-12)


def test_decay_is_mixed_and_the_rate_of_matrices_is_not_its():
    """From 1, c = 4, decay .2, alignment .25, matrix_lr 3: 1 - .1 * .75 (-3 + .2)."""
    method = FedMuon(weight_decay=0.2, alignment=0.25, matrix_lr=3.0)
    toy = Toy(method, start=(1.0,))
    toy.round()
    assert toy.x == pytest.approx([1.21], rel=1e-12)


def test_the_codes_form():
    """M = .02 g; five iterations from 1 of the sign, with no step before."""
    x = 1.0
    for _ in range(5):
        x = 3.4445 * x - 4.7750 * x**3 + 2.0315 * x**5
    toy = Toy(FedMuon(weight_decay=0.0, form="code"))
    toy.round()
    assert toy.x == pytest.approx([0.1 * 0.5 * x], rel=1e-5)
    assert toy.server.extra["moments"].tolist() == pytest.approx([-0.08], rel=1e-12)


def test_in_the_codes_form_the_last_two_axes_scale_the_factor():
    """A linear layer of 4 outputs and 1 input: twice; a kernel of 3 by 3: once."""
    rule = FedMuon(form="code").change(Toy(FedMuon()).algorithm).local
    matrix = torch.arange(4.0).view(4, 1).double()
    torch.testing.assert_close(rule.factor(matrix, (4, 1)), 2 * newton_schulz(matrix))
    kernels = torch.arange(18.0).view(2, 9).double()
    torch.testing.assert_close(rule.factor(kernels, (2, 1, 3, 3)), newton_schulz(kernels))


def test_vectors_take_adams_first_step_and_leave_no_momentum():
    """Of an MLP, two steps of a client of one sample: a bias moves by lr / 2 of Adam's step, at
    most sqrt(2) of its sign."""
    play = Play(FedMuon(weight_decay=0.0), "uniform", SGD(lr=0.1))
    before = play.server.model.x
    play.round(0, (1,))
    entries = list(play.setting.task.layout)
    moved = (play.server.model.x - before).abs()
    biases = [entry for entry in entries if len(entry.shape) == 1]
    assert len(biases) == 2
    for entry in biases:
        assert not play.server.extra["moments"][entry.slice].any()
        assert moved[entry.slice].max() <= 0.1 * 2 * 0.5 * math.sqrt(2)
    assert play.server.extra["moments"].any()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"server": "momentum"}, "which the server rule Momentum does not keep; leave server out"),
        (
            {"local": {"optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}},
            "AlignedMuon brings its own local steps and takes the learning rate alone; write",
        ),
        (
            {"algorithm": {"name": "fedmuon", "beta": 1.0}},
            "got beta = 1.0; expected at least 0 and",
        ),
        ({"algorithm": {"name": "fedmuon", "alignment": 1.5}}, "expected at least 0 and at most 1"),
    ],
)
def test_what_does_not_go_together_is_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**{"algorithm": "fedmuon", **keys})
