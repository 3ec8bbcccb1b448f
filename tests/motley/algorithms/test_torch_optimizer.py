"""Optimizers of torch as local optimizers: the steps of Motley's own, by a class or function."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import motley
from motley.core.errors import ConfigError
from motley.experiments.config import Experiment

DIGITS = {"name": "image", "data": "digits", "model": "digits_mlp"}
KEYS: dict[str, Any] = {
    "task": {"name": "synthetic"},
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 2},
    "dtype": "float64",
    "engine": {"name": "sequential"},
}


def trained(local: dict[str, Any], **keys: Any) -> Tensor:
    loop = motley.build({**KEYS, **keys, "local": {"epochs": 2, "batch_size": 8, **local}})
    while not loop.done:
        loop.step()
    return loop.state.server.model.x


def momentum(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)


@pytest.mark.parametrize(
    ("torchs", "ours", "keys"),
    [
        (torch.optim.AdamW, {"name": "adamw", "lr": 0.001, "weight_decay": 0.01}, {}),
        (momentum, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01}, {}),
        (
            momentum,
            {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01},
            # both clients of round 1 come again in round 2, with heads of their own
            {"algorithm": "fedrep", "task": DIGITS, "population": 16, "seed": 4},
        ),
        (
            partial(torch.optim.SGD, lr=0.1),
            {"lr": 0.1},
            {"algorithm": {"name": "fedprox", "mu": 1.0}},
        ),
    ],
    ids=["AdamW", "momentum", "phases", "fedprox"],
)
def test_torchs_optimizers_take_the_steps_of_our_own(
    torchs: Any, ours: dict[str, Any], keys: dict[str, Any]
) -> None:
    """Clipping, correction and a schedule included; state begins anew in every round."""
    more = {"clip": {"norm": 0.5}, "lr_schedule": {"name": "exponential", "decay": 0.5}}
    expected = trained({"optimizer": ours, **more}, **keys)
    got = trained({"optimizer": torchs, **more}, **keys)
    torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)
    assert not torch.equal(expected, trained({"optimizer": {"lr": 0.02}, **more}, **keys))


def test_a_function_of_the_round_is_a_schedule() -> None:
    ours = {"optimizer": {"lr": 0.1}, "lr_schedule": {"name": "exponential", "decay": 0.5}}
    mine = {"optimizer": {"lr": 0.1}, "lr_schedule": lambda number: 0.5 ** (number - 1)}
    assert torch.equal(trained(mine), trained(ours))
    with pytest.raises(ConfigError, match=r"lr_schedule: the function gives -1 for round 1; expec"):
        trained({"lr_schedule": lambda number: -number})


def test_a_schedule_is_asked_for_every_round_before_the_first() -> None:
    """A table of three factors is too short for four rounds; an error in round 4 lost three."""
    rates = np.array([1.0, 0.5, 0.25], np.float32)

    def made(rounds: int, schedule: Any) -> Experiment:
        keys = {**KEYS, "stop": {"rounds": rounds}, "local": {"lr_schedule": schedule}}
        return Experiment(**keys)

    assert made(3, lambda number: rates[number - 1]).run_id()
    short = r"lr_schedule: the function fails for round 4 \(IndexError: .*, in .*test_torch_opt"
    with pytest.raises(ConfigError, match=short):
        made(4, lambda number: rates[number - 1])
    with pytest.raises(ConfigError, match=r"lr_schedule: the function gives -0.5 for round 3"):
        made(3, lambda number: 1 - number / 2)
    with pytest.raises(ConfigError, match=r"for round 20000 \(ZeroDivisionError"):
        made(20_000, lambda number: 1 / (20_000 - number))


def test_a_scheduler_of_torch_is_answered_with_what_to_write() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=0.1)
    schedulers = torch.optim.lr_scheduler
    for given in (schedulers.StepLR, schedulers.StepLR(optimizer, 1)):
        with pytest.raises(ConfigError, match=r"lr_schedule: got StepLR of torch, .* = lambda"):
            Experiment(**KEYS, local={"lr_schedule": given})
    plateau = schedulers.ReduceLROnPlateau(optimizer)
    with pytest.raises(ConfigError, match=r"got ReduceLROnPlateau of torch, .*_post_hook\(lambda"):
        Experiment(**KEYS, local={"lr_schedule": plateau})


def test_every_parameter_group_keeps_its_share_of_the_rate() -> None:
    """w <- w - lr factor g with g = 1 in two groups: rates 1 and 1/10, factor 1/2."""
    from motley.algorithms.torch_optimizer import TorchOptimizer

    def two(parameters: Any) -> torch.optim.Optimizer:
        first, *others = parameters
        groups = [{"params": [first], "lr": 1.0}, {"params": others, "lr": 0.1}]
        return torch.optim.SGD(groups if others else groups[:1])

    solver = TorchOptimizer(two)
    assert solver.lr == 1.0
    assert solver.moments == 0
    assert TorchOptimizer(torch.optim.Adam).moments == 2
    weights = [nn.Parameter(torch.zeros(1)) for _ in range(3)]
    optimizer = solver.made(weights)
    gradients = [(weights[0], torch.ones(1)), (weights[1], torch.ones(1)), (weights[2], None)]
    solver.step_module(optimizer, gradients, 0.5)
    assert [w.item() for w in weights] == pytest.approx([-0.5, -0.05, 0.0])
    assert [group["lr"] for group in optimizer.param_groups] == [1.0, 0.1]


def halving(parameters: Any) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
    optimizer.register_step_post_hook(lambda *_: schedule.step())
    return optimizer


def test_a_scheduler_in_a_hook_changes_the_rate_from_step_to_step() -> None:
    """Weights go to -0.1, -0.15, -0.175 under a gradient of 1, as in torch."""
    from motley.algorithms.torch_optimizer import TorchOptimizer

    solver = TorchOptimizer(halving)
    weight = nn.Parameter(torch.zeros(1))
    optimizer = solver.made([weight])
    at = []
    for _ in range(3):
        solver.step_module(optimizer, [(weight, torch.ones(1))], solver.lr)
        at.append(weight.item())
    assert at == pytest.approx([-0.1, -0.15, -0.175])
    with pytest.raises(ConfigError, match=r"in a hook\), and lr_schedule .* leave one out"):
        trained({"optimizer": halving, "lr_schedule": "cosine"})


def test_an_optimizer_may_take_a_part_of_the_parameters() -> None:
    def weights_alone(parameters: Any) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for p in parameters if p.ndim > 1], lr=0.1)

    trained({"optimizer": weights_alone}, task=DIGITS)
    matrices = motley.algorithms.torch_optimizer.TorchOptimizer(torch.optim.Muon)
    assert matrices.moments == 1
    with pytest.raises(
        ConfigError, match=r"Muon only supports 2D parameters .*; write optimizer ="
    ):
        trained({"optimizer": torch.optim.Muon}, task=DIGITS)


def test_the_optimizers_code_is_part_of_the_run_id(tmp_path: Path) -> None:
    makers = [torch.optim.AdamW, torch.optim.Adam, momentum, partial(torch.optim.SGD, lr=0.1)]
    made = [Experiment(**{**KEYS, "local": {"optimizer": maker}}) for maker in makers]
    assert len({one.run_id() for one in made}) == len(made)
    auto = {**KEYS, "engine": {"name": "auto"}, "local": {"optimizer": momentum}}
    run = motley.run(auto, out=tmp_path / "run")
    assert run.meta["numerics"]["engine"] == "threads"


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (
            torch.optim.LBFGS,
            r"^local.optimizer: got .*LBFGS.*missing 1 .*; write optimizer =",
        ),
        (torch.optim.SparseAdam, "does not support dense gradients"),
        (lambda parameters: 3, "the function that makes the optimizer gave int; write optimizer"),
        (lambda parameters: 1 / 0, r"ZeroDivisionError: .*, in .*test_torch_optimizer.py, line"),
        (
            partial(torch.optim.SGD, lr=0.0),
            r"got lr = 0.0 in the first group of parameters, .* positive",
        ),
    ],
)
def test_what_makes_no_optimizer_is_refused(optimizer: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Experiment(**{**KEYS, "local": {"optimizer": optimizer}})


def test_an_optimizer_of_one_model_is_refused() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))])  # torch loads its compiler for it
    line = r"got an optimizer of one model's parameters; .*, optimizer = torch.optim.SGD"
    with pytest.raises(ConfigError, match=line):
        Experiment(**{**KEYS, "local": {"optimizer": optimizer}})


def test_engines_that_step_many_clients_at_once_refuse() -> None:
    keys = {**KEYS, "engine": {"name": "vmap"}, "local": {"optimizer": momentum}}
    with pytest.raises(ConfigError, match="an optimizer of torch steps one module, which sequenti"):
        motley.build(keys)
