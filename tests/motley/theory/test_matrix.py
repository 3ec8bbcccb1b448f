"""The cross-algorithm table (docs/methods/algorithms.md#equalities): what must equal what, bit for
bit or to rounding (1e-12 in float64)."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from motley.algorithms.fedavg import FedAvg, plain_fedavg
from motley.algorithms.fedavgm import FedAvgM
from motley.algorithms.fedbio import FedBiO
from motley.algorithms.fedbn import FedBN
from motley.algorithms.feddf import FedDF
from motley.algorithms.fednova import FedNova
from motley.algorithms.fedopt import FedAdam
from motley.algorithms.fedprox import FedProx
from motley.algorithms.fedrolex import FedRolex
from motley.algorithms.heterofl import HeteroFL
from motley.algorithms.local_optimisers import SGD, Adam
from motley.algorithms.moon import Moon
from motley.algorithms.qfedavg import QFedAvg
from motley.algorithms.rhfl import RHFL
from motley.algorithms.scaffold import Scaffold
from motley.engines.engine import Job
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.testing.algorithms import COHORTS, MODELS, Play

SGDS = {"plain": SGD(lr=0.1), "momentum": SGD(lr=0.1, momentum=0.9), "adam": Adam(lr=0.1)}
PLAIN, NORMED = MODELS
BITWISE = [
    ("FedProx mu=0", FedProx(mu=0.0), (PLAIN, NORMED)),
    ("MOON mu=0", Moon(mu=0.0), (PLAIN, NORMED)),
    ("FedAvgM beta=0", FedAvgM(momentum=0.0), (PLAIN, NORMED)),
    ("FedDF without distillation", FedDF(steps=0), (PLAIN, NORMED)),
    ("FedBN without BatchNorm", FedBN(), (PLAIN,)),
]
ROUNDED = [
    ("SCAFFOLD II, round 1", Scaffold(), "uniform", ("plain", "momentum")),
    ("SCAFFOLD II by samples, round 1", Scaffold(), "examples", ("momentum",)),
    ("SCAFFOLD I, round 1", Scaffold(option="I"), "uniform", tuple(SGDS)),
    ("q-FedAvg q=0", QFedAvg(q=0.0), "uniform", tuple(SGDS)),
    ("q-FedAvg q=0 by samples", QFedAvg(q=0.0), "examples", ("plain",)),
    ("FedBiO lambda=0, log n_k", FedBiO(steps=0, floor=0.0), "examples", ("plain",)),
    ("FedBiO lambda=0, psi=0", FedBiO(steps=0, floor=0.0), "uniform", ("plain",)),
    ("RHFL beta=0, no alignment", RHFL(beta=0.0, align=False), "uniform", ("plain",)),
    ("RHFL beta=0 by samples", RHFL(beta=0.0, align=False), "examples", ("plain",)),
]


class Even(Play):
    """Everybody takes the same number of steps."""

    def jobs(self, number: int, cohort: tuple[int, ...]) -> list[Job]:
        return [Job(job.client, job.dispatch, 3, job.lr) for job in super().jobs(number, cohort)]


def _models(play: Play, rounds: int) -> dict[str, torch.Tensor]:
    for number in range(rounds):
        play.round(number, COHORTS[number])
    model = play.server.model
    return {"x": model.x, "buffers": model.buffers, "counters": model.counters}


@functools.cache
def _averaged(weights: str, solver: str, model: str, rounds: int) -> dict[str, torch.Tensor]:
    """Return the models of FedAvg, which many methods must equal."""
    return _models(Play(FedAvg(), weights, SGDS[solver], model), rounds)


@pytest.mark.parametrize("solver", SGDS)
@pytest.mark.parametrize(("name", "method", "models"), BITWISE, ids=[row[0] for row in BITWISE])
def test_is_averaging_bit_for_bit(name, method, models, solver):
    """Over four rounds of changing cohorts."""
    for model in models:
        found = _models(Play(method, "examples", SGDS[solver], model), 4)
        wanted = _averaged("examples", solver, model, 4)
        assert all(torch.equal(found[part], wanted[part]) for part in wanted), model


@pytest.mark.parametrize(
    ("method", "weights", "solver"),
    [pytest.param(m, w, s, id=f"{n}, {s}") for n, m, w, solvers in ROUNDED for s in solvers],
)
def test_is_averaging_to_rounding(method, weights, solver):
    """After one round, from the same state, with the same local loss; statistics too, with and
    without BatchNorm."""
    for model in MODELS:
        play = Play(method, weights, SGDS[solver], model)
        wanted = _averaged(weights, solver, model, 1)
        if play.algorithm.loss != plain_fedavg().loss:  # RHFL brings one
            plain = Play(FedAvg(), weights, SGDS[solver], model)
            object.__setattr__(plain.setting.algorithm, "loss", play.algorithm.loss)
            wanted = _models(plain, 1)
        found = _models(play, 1)
        for part, value in wanted.items():
            torch.testing.assert_close(found[part], value, rtol=1e-12, atol=1e-14)


class Whole(Play):
    """Everybody holds the whole model."""

    def jobs(self, number: int, cohort: tuple[int, ...]) -> list[Job]:
        jobs = super().jobs(number, cohort)
        return [dataclasses.replace(job, width=1.0, offset=0) for job in jobs]


@pytest.mark.parametrize("weights", ["uniform", "examples"])
@pytest.mark.parametrize("method", [HeteroFL(mask=False), FedRolex(mask=False)])
def test_slices_of_the_whole_model_are_averaging_bit_for_bit(method, weights):
    found, wanted = (
        _models(Whole(m, weights, SGDS["plain"], PLAIN), 2) for m in (method, FedAvg())
    )
    assert all(torch.equal(found[part], wanted[part]) for part in wanted)


@pytest.mark.parametrize("solver", SGDS)
@pytest.mark.parametrize("mu", [0.0, 0.3])
def test_fednova_with_equal_work_is_averaging(solver, mu):
    """Equal ||a||, whatever the solver; with a pull, averaging of FedProx."""
    for model in MODELS:
        found = _models(Even(FedNova(mu=mu), "examples", SGDS[solver], model), 1)
        wanted = _models(Even(FedProx(mu=mu), "examples", SGDS[solver], model), 1)
        for part, value in wanted.items():
            torch.testing.assert_close(found[part], value, rtol=1e-12, atol=1e-14)


def test_an_adaptive_server_without_its_denominator_is_averaging():
    """beta1 = 0, and v that stays what it was, tau^2: with tau = .5 the denominator is sqrt(.25) +
    .5 = 1."""
    still = FedAdam(server_lr=1.0, beta1=0.0, beta2=1.0 - 1e-15, tau=0.5)
    found, wanted = (
        _models(Play(method, "examples", SGDS["plain"], NORMED), 4) for method in (still, FedAvg())
    )
    for part, value in wanted.items():
        torch.testing.assert_close(found[part], value, rtol=1e-12, atol=1e-14)


def _run(**keys):
    base = {
        "task": "tabular",
        "population": 6,
        "cohort": 6,
        "stop": {"rounds": 3},
        "dtype": "float64",
        "engine": "sequential",
        "partition": {"name": "iid"},
        "local": {"steps": 4},
        "weights": "uniform",
        "evaluate": {"every": 1000},
    }
    simulation = build(Experiment(**{**base, **keys}))
    while not simulation.done:
        simulation.step()
    return simulation.state.server.model.x


def test_a_deadline_that_nobody_misses_is_synchronous():
    device = {"name": "uniform", "low": 0.1, "high": 1.0}
    plain = _run(cohort=3, device=device)
    assert torch.equal(
        _run(cohort=3, device=device, synchrony={"name": "deadline", "seconds": float("inf")}),
        plain,
    )
    over = {"name": "deadline", "seconds": float("inf"), "over_select": 1.0}
    assert torch.equal(_run(cohort=3, device=device, synchrony=over), plain)


def test_a_buffer_of_everybody_under_way_is_averaging():
    """FedBuff, K_b = C = K, equal durations: nobody is ever stale, and s(0) = 1."""
    found = _run(synchrony={"name": "buffered", "buffer": 6})
    torch.testing.assert_close(found, _run(), rtol=1e-12, atol=1e-14)
