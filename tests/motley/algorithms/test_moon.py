"""MOON: the contrast by hand, training against a loop written out, who remembers what, and who
refuses it.

Worked numbers: docs/methods/algorithms.md#moon.
"""

from __future__ import annotations

import math

import pytest
import torch

from motley.algorithms.flash_robust import FlashRobust
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.moon import ContrastiveLoss, Moon, contrast
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.testing.algorithms import COHORTS, Play


@pytest.mark.parametrize(
    ("near", "far", "want"),
    [
        (1.0, 0.0, 0.126928),
        (0.8, 0.2, 0.263282),
        (0.0, 1.0, 2.126928),
        (0.3, 0.3, 0.693147),
        (-1.0, -1.0, math.log(2)),
    ],
)
def test_the_contrast_by_hand(near, far, want):
    """T = .5: log(1 + e^((s- - s+) / T)); equal cosines give ln 2."""
    found = contrast(torch.tensor([near]).double(), torch.tensor([far]).double(), 0.5)
    assert found.item() == pytest.approx(want, abs=5e-7)


def test_features_are_compared_by_their_cosines():
    """z = (3, 4) and (1, 0); received (4, 3), (2, 0); previous (0, 2), (0, -1). Cosines .96 and 1,
    .8 and 0: contrasts at T = .5 log(1 + e^-.32) = .546, log(1 + e^-2) = .126928. Outputs are even:
    cross-entropy ln 2."""
    loss = ContrastiveLoss(CrossEntropy(), mu=5.0, temperature=0.5)
    z, near, far = torch.tensor([[[3.0, 4], [1, 0]], [[4, 3], [2, 0]], [[0, 2], [0, -1]]]).double()
    found = loss.compare(torch.zeros(2, 2).double(), torch.tensor([0, 1]), {}, z, (near, far))
    wanted = [
        math.log(2) + 5 * math.log1p(math.exp(-0.32)),
        math.log(2) + 5 * math.log1p(math.exp(-2.0)),
    ]
    assert found.tolist() == pytest.approx(wanted, rel=1e-12)


def test_models_that_agree_pull_nowhere():
    """Previous and received models equal: the contrast is ln 2 whatever z, its gradient 0."""
    z = torch.randn(4, 3).double().requires_grad_()
    other = torch.randn(4, 3).double()
    loss = ContrastiveLoss(CrossEntropy(), mu=1.0).compare(
        torch.zeros(4, 2), torch.zeros(4, dtype=torch.int64), {}, z, (other, other)
    )
    (slope,) = torch.autograd.grad(loss.sum(), z)
    assert slope.abs().max() < 1e-15


def test_zero_features_have_no_cosine():
    z = torch.zeros(1, 3).double().requires_grad_()
    other = torch.ones(1, 3).double()
    loss = ContrastiveLoss(CrossEntropy()).compare(
        torch.zeros(1, 2).double(), torch.tensor([0]), {}, z, (other, -other)
    )
    (slope,) = torch.autograd.grad(loss.sum(), z)
    assert loss.item() == pytest.approx(2 * math.log(2))
    assert slope.isfinite().all()


def test_the_first_participation_is_plain_and_the_second_is_not():
    plays = [Play(method, "examples", SGD(lr=0.1)) for method in (Moon(mu=0.0), Moon(mu=5.0))]
    for play in plays:
        play.round(0, COHORTS[0])
    assert torch.equal(plays[0].server.model.x, plays[1].server.model.x)
    assert sorted(plays[1].client_states) == sorted(COHORTS[0])
    assert not plays[0].client_states
    for play in plays:
        play.round(1, COHORTS[0])
    assert not torch.equal(plays[0].server.model.x, plays[1].server.model.x)


def test_two_more_passes_take_two_thirds_of_a_step():
    keys = {
        "task": {"name": "tabular"},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 1},
        "local": {"steps": 3},
        "device": {"name": "constant", "seconds": 1.0},
    }
    took = [
        build({**keys, "algorithm": {"name": "moon", "mu": mu}}).step().time_s for mu in (0.0, 1.0)
    ]
    assert took == pytest.approx([3.0, 5.0])


def _experiment(**keys):
    base = {
        "task": {"name": "tabular"},
        "population": 4,
        "cohort": 2,
        "stop": {"rounds": 2},
        "algorithm": "moon",
    }
    return Experiment(**{**base, **keys})


def test_it_adds_to_the_named_loss():
    loss = build(_experiment(loss={"name": "flash_robust", "beta": 1.0})).algorithm.loss
    assert loss == ContrastiveLoss(FlashRobust(beta=1.0))
    assert loss.kind is None
    build(_experiment(loss="flash_robust")).step()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"engine": "batched"},
            "'batched' cannot run this experiment.*ContrastiveLoss compares features",
        ),
        (
            {"algorithm": {"name": "moon", "mu": -1}},
            "got mu = -1.0; expected a finite number of at least 0",
        ),
        (
            {"algorithm": {"name": "moon", "temperature": 0}},
            "got temperature = 0.0; expected a positive number",
        ),
        (
            {"loss": "half_squared_error"},
            "loss: got 'half_squared_error', but the targets of this task are classes",
        ),
    ],
)
def test_refused(keys, message):
    with pytest.raises(ConfigError, match=message):
        build(_experiment(**keys))


def _two_rounds(algorithm, **local):
    task = {"name": "image", "data": "digits", "model": "digits_mlp"}
    keys = {
        "task": task,
        "population": 4,
        "cohort": 4,
        "partition": {"name": "dirichlet", "alpha": 1.0},
        "stop": {"rounds": 2},
    }
    loop = build(
        Experiment(**keys, algorithm=algorithm, dtype="float64", local={"batch_size": 32, **local})
    )
    loop.step()
    loop.step()
    return loop.state.server.model.x


def test_with_normalised_averaging_it_is_moon_where_all_take_the_same_steps_and_else_another():
    plain, normalised = (
        _two_rounds({"name": name, "mu": 2.0}, steps=3) for name in ("moon", "moon_fednova")
    )
    assert torch.allclose(plain, normalised, rtol=1e-12, atol=1e-14)
    plain, normalised = (
        _two_rounds({"name": name, "mu": 2.0}, epochs=1) for name in ("moon", "moon_fednova")
    )
    assert not torch.allclose(plain, normalised, rtol=1e-6)


def test_with_normalised_averaging_and_no_contrast_it_is_fednova_bit_for_bit():
    assert torch.equal(
        _two_rounds({"name": "moon_fednova", "mu": 0.0}, epochs=1), _two_rounds("fednova", epochs=1)
    )
    assert not torch.equal(_two_rounds("moon_fednova", epochs=1), _two_rounds("fednova", epochs=1))


def test_with_normalised_averaging_its_server_is_fednovas():
    with pytest.raises(ConfigError, match="does not undo"):
        build(_experiment(algorithm="moon_fednova", server="momentum"))
