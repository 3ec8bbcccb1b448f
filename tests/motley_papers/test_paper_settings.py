"""What the experiments of recipes have at the scale ``paper``, beside what the papers print."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from motley.algorithms.losses import HalfSquaredError
from motley.experiments.config import Experiment
from motley.tasks.clustered_regression import ClusteredRegression
from motley.tasks.models import factory
from motley_papers.recipe import Recipe, read

ROBUST = {"name": "flash_robust"}
RULES = {
    *("random", "oort", "pyramidfl", "restless_bandit"),
    *("neural_bandit", "fedcor", "feel", "flash"),
}
"""The selectors of FLASH's Table I."""
PAIRS = {
    "cifar10": {(0.1, 4.0), (0.5, 4.0), (1.0, 4.0), (0.1, 2.0), (0.1, 1.0), (1.0, 1.0)},
    "femnist": {(0.1, 8.0), (0.5, 8.0), (1.0, 8.0), (1.0, 4.0), (1.0, 2.0), (5.0, 1.0)},
}
"""The pairs of alpha and beta of FLASH's Figure 5."""


@cache
def recipe(name: str) -> Recipe:
    return read(name)


def experiments(name: str, exhibit: str) -> dict[tuple[str, ...], Experiment]:
    """Return the experiments of an exhibit at ``paper`` by the values of its axes."""
    found = recipe(name)
    cells = found.named(exhibit).cells("paper")
    return {cell.values: found.experiment(cell, "paper", 42) for cell in cells}


def test_flash_setting() -> None:
    """CIFAR-10 has 50 clients, FEMNIST 3,550; a fifth is selected for up to 1,500 rounds of five
    local epochs of Adam with ResNet-18; lambda_T is 1, 10 and 100."""
    figures = ("table 1", *(f"figure {name}" for name in ("2a", "2b", "3", "4a", "4b", "4c", "4d")))
    for exhibit in (*figures, "figure 5a and 5b", "figure 2d, all writers"):
        for made in experiments("flash", exhibit).values():
            femnist = made.task["data"] == "femnist"
            assert (made.population, made.participation) == (3550 if femnist else 50, 0.2)
            assert made.stop.rounds == 1500
            assert made.task["model"] == "resnet18"
            assert (made.local.epochs, made.local.optimizer["name"]) == (5, "adam")
            assert (made.device["a_t"], made.device["lambda_t"]) == (1.0, 10.0)
            assert made.split.validation == 0.2  # a reading: V_i is a fifth
    assert {made.device["lambda_t"] for made in experiments("flash", "latency").values()} == {
        1.0,
        10.0,
        100.0,
    }


def test_flash_table_1_has_the_printed_rows_and_columns() -> None:
    """The printed selectors and aggregations in the three settings; FLASH's loss in its own row
    alone, but for the row that the paper does not have."""
    made = experiments("flash", "table 1")
    printed = {
        tuple(cell.split(" / "))
        for exhibit, cell, _ in recipe("flash").expected
        if exhibit == "table 1"
    }
    assert len(printed) == 3 * 7 * 8
    assert {cell for cell in made if cell[2] != "random_robust"} == printed
    assert {cell[2] for cell in printed} == RULES
    for (setting, _, rule), experiment in made.items():
        share = 0.3 if setting.startswith("noniid30") else 0.0
        assert experiment.partition == {"name": "skewed_share", "share": share}
        noisy = setting.endswith("noise15")
        assert experiment.label_noise.get("mean") == (0.15 if noisy else None)
        assert (experiment.loss == ROBUST) == (rule in ("flash", "random_robust"))


def levels(exhibit: str) -> set[tuple[float, float]]:
    """Return the noise levels and shares of skewed clients of an exhibit, in percent."""
    return {
        (
            round(100 * made.label_noise.get("mean", 0.0)),
            round(100 * made.partition.get("share", 0.0)),
        )
        for made in experiments("flash", exhibit).values()
    }


def test_flash_levels_and_rules_of_figures_2_and_3() -> None:
    """Noise from 5 to 25 %, skew up to the paper's 40 %, one of them at a time in Figure 2 with all
    eight rules, both in Figure 3 with FLASH and FedCor."""
    noise, skew = (5, 10, 15, 20, 25), (10, 20, 30, 40)
    for part, wanted in (
        ("a", {(level, 0) for level in noise}),
        ("b", {(0, level) for level in skew}),
        ("c", {(level, 0) for level in noise}),
        ("d", {(0, level) for level in skew}),
    ):
        assert levels(f"figure 2{part}") == wanted
        assert {cell[1] for cell in experiments("flash", f"figure 2{part}")} == RULES
    assert levels("figure 3") == {(a, b) for a in noise for b in skew}
    assert {cell[2] for cell in experiments("flash", "figure 3")} == {"flash", "fedcor"}
    assert {
        made.population for made in experiments("flash", "figure 2d, all writers").values()
    } == {3550}


def test_flash_figure_4_changes_one_thing() -> None:
    """In 4a and 4b the learner alone: all train with FLASH's loss and begin with everybody. In 4c
    and 4d one element of the context is left out at a time."""
    for part, wanted in (("a", {(15, 0)}), ("b", {(0, 30)})):
        made = experiments("flash", f"figure 4{part}")
        assert levels(f"figure 4{part}") == wanted
        rules = {values: dict(experiment.selector) for values, experiment in made.items()}
        assert rules.pop(("linear",)) == {"name": "flash", "measured_on": "received"}
        assert {rule.pop("first_round") for rule in rules.values()} == {"all"}
        assert {rule["name"] for rule in rules.values()} == {"neural_bandit", "restless_bandit"}
        assert len({repr(e.replace({"selector": "uniform"})) for e in made.values()}) == 1
        assert all(experiment.loss == ROBUST for experiment in made.values())
    for part in "cd":
        made = experiments("flash", f"figure 4{part}")
        dropped = {
            cell[1]: experiment.selector.get("drop", "none") for cell, experiment in made.items()
        }
        assert dropped == {
            name: name for name in ("none", "robust_loss", "val_loss", "duration", "reward")
        }
        assert levels(f"figure 4{part}") == levels(f"figure 2{'ba'['cd'.index(part)]}")


@pytest.mark.parametrize(
    ("exhibit", "data"),
    [
        ("figure 5a and 5b", "cifar10"),
        ("figure 5c and 5d", "femnist"),
        ("figure 5c and 5d, all writers", "femnist"),
    ],
)
def test_flash_six_pairs_of_weights(exhibit: str, data: str) -> None:
    made = experiments("flash", exhibit)
    weights = {
        (experiment.loss.get("alpha", 0.1), experiment.loss.get("beta", 4.0))
        for experiment in made.values()
    }
    assert len(made) == 6
    assert weights == PAIRS[data]
    assert {experiment.task["data"] for experiment in made.values()} == {data}


def test_fedcvr_bolt_setting() -> None:
    """100 clients, 10 a round, batches of 100, rate 0.01, ten local epochs of SGD, 100 rounds
    (MNIST 200), the mean over the clients' own test sets; d = 2m; 30 random rounds."""
    for part, rounds in (("a", 100), ("b", 200), ("c", 100)):
        for cell, made in experiments("fedcvr_bolt", f"table 4{part}").items():
            assert (made.population, made.cohort, made.stop.rounds) == (100, 10, rounds)
            local = made.local
            assert (local.epochs, local.batch_size, local.optimizer["lr"]) == (10, 100, 0.01)
            assert local.optimizer["name"] == "sgd"
            assert made.split.test == "client"
            assert made.weights == "examples"
            if cell[1] == "power_of_choice":
                assert (made.selector["d"], made.cohort) == (20, 10)
            if cell[1] == "active_fl":
                assert [made.selector[f"alpha{i}"] for i in (1, 2, 3)] == [0.8, 1.0, 0.0]
    assert recipe("fedcvr_bolt").measures(recipe("fedcvr_bolt").named("table 4b"))[0] == "final"


def test_fedcvr_bolt_networks() -> None:
    """Dirichlet 0.1; a perceptron 784-200-200-10, whose last layer has 2,010 numbers; two
    convolutions with pools and two linear layers; 610 numbers on Synthetic."""
    found = {
        part: next(iter(experiments("fedcvr_bolt", f"table 4{part}").values())) for part in "bc"
    }
    shapes = {"b": (1, 28, 28), "c": (3, 32, 32)}
    kinds = {}
    for part, made in found.items():
        assert made.partition == {"name": "dirichlet", "alpha": 0.1}
        module = factory(made.task["model"], shapes[part], 10)()
        layers = [layer for layer in module.modules() if list(layer.parameters(recurse=False))]
        kinds[part] = [type(layer).__name__ for layer in layers]
        last = sum(p.numel() for p in layers[-1].parameters())
        assert last == (2010 if part == "b" else 1290)
    assert kinds == {"b": ["Linear"] * 3, "c": ["Conv2d"] * 2 + ["Linear"] * 2}


@pytest.mark.parametrize("exhibit", ["table 1", "table 3", "table 3, fitted"])
def test_ten_epochs_of_the_regression_are_ten_steps_of_the_squared_error(exhibit: str) -> None:
    """80 of a client's 100 samples train in one batch of 100, so that an epoch is one step. A step
    of half the squared error at rate 0.02 is the paper's of the whole at 0.01: from 0 towards y = 2
    at x = 1 both go 0.02 * 2 = 0.01 * 4."""
    for made in experiments("fedcvr_bolt", exhibit).values():
        assert (made.local.steps, made.local.batch_size, made.split.test_fraction) == (10, 100, 0.2)
        assert made.local.optimizer == {"name": "sgd", "lr": 0.02}
        assert made.task.get("examples", ClusteredRegression().examples) == 100
    slope = HalfSquaredError().gradient(torch.tensor([[0.0]]), torch.tensor([[2.0]]), {})
    assert -0.02 * slope.item() == 0.04


def test_chapter_settings() -> None:
    """Drift in time, smaller models and smaller batches, one at a time; tasks of clients' own are
    the concept shift of ``remedies``."""
    plain = experiments("chapter", "settings")[("plain",)]
    changed = {
        values[0]: {
            key
            for key, value in made.model_dump().items()
            if value != plain.model_dump()[key] and key != "name"
        }
        for values, made in experiments("chapter", "settings").items()
    }
    assert changed == {
        "plain": set(),
        "drifting": {"drift"},
        "small_models": {"algorithm", "capacity"},
        "small_batches": {"capacity"},
    }
