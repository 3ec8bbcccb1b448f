"""HeteRo-Select v1: the settings of its recipe at the scale ``paper``, written out by hand from the
paper, and the sums of what the paper prints."""

from __future__ import annotations

import pytest

from tests.motley_papers.settings_by_hand import (
    Axis,
    Keys,
    Row,
    Sums,
    check_settings,
    check_shown,
    recipe,
    spreads,
    sums,
)

PROTOCOL: Keys = {
    # 12 clients, half of them a round, CIFAR-10 at Dirichlet 0.1, ResNet-18, 100 rounds
    "population": 12,
    "cohort": 6,
    "stop.rounds": 100,
    "split.test": "global",
    "task": {"name": "image", "data": "cifar10", "model": "resnet18"},
    "partition": {"name": "dirichlet", "alpha": 0.1},
    # FedProx with mu 0.1 for every selector, 5 epochs at rate 0.01, the plain mean of the models
    "algorithm": {"name": "fedprox", "mu": 0.1},
    "weights": "uniform",
    "local.epochs": 5,
    "local.batch_size": 32,
    "local.optimizer": {"name": "sgd", "lr": 0.01},
    "selector": {"name": "hetero_select_v1"},
    "evaluate.every": 1,
    "evaluate.per_client": False,
}
ADDITIVE: Keys = {"selector": {"name": "hetero_select_v1", "form": "additive"}}
MULTIPLICATIVE: Keys = {"selector": {"name": "hetero_select_v1", "form": "multiplicative"}}
RANDOM: Keys = {"selector": {"name": "uniform"}}
POWER: Keys = {"selector": {"name": "power_of_choice"}}
OORT: Keys = {"selector": {"name": "oort", "alpha": 0.0}}
FOUR: Axis = {
    "random": RANDOM,
    "power_of_choice": POWER,
    "oort": OORT,
    "hetero_select_v1": ADDITIVE,
}
FIVE: Axis = {**FOUR, "hetero_select_v1_multiplicative": MULTIPLICATIVE}
ALL: Keys = {"cohort": 12, **RANDOM}
"""All 12 clients in every round; 25 % are 3, 80 % are 9.6, rounded to 10."""
FEDAVG: Keys = {"algorithm": {"name": "fedavg"}}
BY_SAMPLES: Keys = {"weights": "examples"}
SHORT: Keys = {"stop.rounds": 50, "local.epochs": 2}
"""The ablations: 50 rounds of two epochs."""


def scored(gamma: float, eta: float, tau0: float, mu: float = 0.01, cohort: int = 6) -> Keys:
    """Return what a row of Table III sets."""
    strengths = {"selector.gamma": gamma, "selector.eta": eta, "selector.tau0": tau0}
    return {**strengths, "algorithm.mu": mu, "cohort": cohort}


TABLE_3: Axis = {
    **{f"gamma {gamma}": scored(gamma, 0.3, 1.0) for gamma in (0.0, 0.3, 0.7, 1.0)},
    **{f"eta {eta}": scored(0.7, eta, 1.0) for eta in (0.0, 0.3, 0.7, 1.0)},
    **{f"temperature {tau0}": scored(0.7, 0.3, tau0) for tau0 in (0.1, 0.5, 1.0, 2.0, 5.0)},
    "participation 25 %": scored(0.7, 0.3, 1.0, cohort=3),
    "participation 50 %": scored(0.7, 0.3, 1.0, cohort=6),
    "participation 80 %": scored(0.7, 0.3, 1.0, cohort=10),
    "explorative, mu 0.01": scored(0.7, 0.3, 2.0, mu=0.01),
    "explorative, mu 0.1": scored(0.7, 0.3, 2.0, mu=0.1),
    "exploitative, mu 0.01": scored(0.05, 0.1, 2.0, mu=0.01),
    "exploitative, mu 0.1": scored(0.05, 0.1, 2.0, mu=0.1),
}
TABLE_4: Axis = {
    "fedavg": {**ALL, **FEDAVG},
    "fedprox": ALL,
    "hetero_select_v1, 50 %": ADDITIVE,
    "hetero_select_v1, 80 %": {"cohort": 10, **ADDITIVE},
}
EXAMINED: Keys = {"evaluate.every": 5, "evaluate.diagnostics": True}
SMALLER: Keys = {"task.model": "resnet9", "precision": "bfloat16", "split.server": 0.9}
MLP: Keys = {"task.model": {"name": "mlp", "hidden": [100, 100]}, "local.batch_size": 64}
ROWS = {
    **dict.fromkeys(("table 1", "figure 3", "figure 4", "figure 5", "figure 6"), Row([FIVE])),
    "samples and reports": Row(
        [
            {
                "random": RANDOM,
                "random_by_samples": {**RANDOM, **BY_SAMPLES},
                "hetero_select_v1": ADDITIVE,
                "hetero_select_v1_by_samples": {**ADDITIVE, **BY_SAMPLES},
                "hetero_select_v1_last_report": {**ADDITIVE, "selector.probe": "last_report"},
            }
        ]
    ),
    "CIFAR-10, ResNet-9": Row([FOUR], {**SMALLER, **SHORT, "evaluate.every": 2}),
    "Power-of-Choice, two forms": Row(
        [{"power_of_choice": POWER, "in_proportion": {**POWER, "selector.variant": "proportional"}}]
    ),
    "corrected drift": Row(
        [
            {
                "fedprox": RANDOM,
                "scaffold": {**RANDOM, "algorithm": {"name": "scaffold"}},
                "fednova": {**RANDOM, "algorithm": {"name": "fednova"}, **BY_SAMPLES},
            }
        ]
    ),
    "table 2": Row(
        [
            {
                "fedavg": {**ALL, **FEDAVG},
                "fedprox": ALL,
                "fedavg_by_samples": {**ALL, **FEDAVG, **BY_SAMPLES},
                "fedprox_by_samples": {**ALL, **BY_SAMPLES},
                "random_half": RANDOM,
                "hetero_select_v1": ADDITIVE,
            }
        ]
    ),
    "table 3": Row([TABLE_3], SHORT),
    "table 4": Row([{name: {"task.data": name} for name in ("fashion_mnist", "mnist")}, TABLE_4]),
    "table 4, mlp": Row([{**TABLE_4, "random, 50 %": RANDOM}], {"task.data": "mnist", **MLP}),
    "figure 2": Row([{"hetero_select_v1": ADDITIVE}]),
    "figure 7": Row(
        [{f"{alpha}": {"partition.alpha": alpha} for alpha in (0.05, 0.1, 0.5, 1.0)}, FOUR]
    ),
    "lemma A.4": Row(
        [
            {f"{mu:g}": {"algorithm.mu": mu} for mu in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0)},
            {"explorative": {"selector.gamma": 0.7, "selector.eta": 0.3}},
        ],
        SHORT,
    ),
    "proposition A.5": Row(
        [{"hetero_select_v1": ADDITIVE, "hetero_select_v1_multiplicative": MULTIPLICATIVE}]
    ),
    "theorems III.3 and A.3": Row([{"6": {}}, {"hetero_select_v1": ADDITIVE}]),
    "theorem III.2": Row([FIVE], {**SHORT, **EXAMINED}),
    "lemma A.4, measured": Row(
        [
            {f"{steps}": {"local.steps": steps, "local.epochs": None} for steps in (2, 50)},
            {"random": RANDOM, "hetero_select_v1": ADDITIVE},
        ],
        {"stop.rounds": 50, **EXAMINED},
    ),
}


@pytest.mark.parametrize("exhibit", ROWS)
def test_settings_of_every_cell(exhibit: str) -> None:
    """At ``paper``; what stands in no table here is Motley's default."""
    check_settings("hetero_select_v1", exhibit, ROWS[exhibit], PROTOCOL)


def test_every_exhibit_has_a_row() -> None:
    assert {exhibit.name for exhibit in recipe("hetero_select_v1").exhibit} == ROWS.keys()


@pytest.mark.parametrize(
    ("exhibit", "measures", "pictures"),
    [
        ("table 1", "peak final stable drop", ""),
        ("table 2", "peak final stable drop", ""),
        ("table 3", "peak final", ""),
        ("table 4", "peak stable", ""),
        ("figure 2", "", "classes"),
        ("figure 3", "peak final", "bars"),
        ("figure 4", "", "curves"),
        ("figure 5", "participation_least participation_most", "participation"),
        ("figure 6", "participation_std", "beside:participation_std"),
        ("figure 7", "peak", "line:peak"),
    ],
)
def test_what_the_paper_shows_is_shown(exhibit: str, measures: str, pictures: str) -> None:
    """What it prints or draws, and as which pictures."""
    check_shown("hetero_select_v1", exhibit, measures, pictures)


PRINTED: Sums = {
    # of Table I, peak: 73.98 + 74.42 + 74.75 + 74.56 + 74.05 = 371.76, and 73.98 + 2 * 74.42 +
    # 3 * 74.75 + 4 * 74.56 + 5 * 74.05 = 1115.56
    # Oort, Power-of-Choice, additive, multiplicative, random
    **dict.fromkeys([("table 1", "peak"), ("figure 3", "peak")], (5, 371.76, 1115.56)),
    **dict.fromkeys([("table 1", "final"), ("figure 3", "final")], (5, 349.32, 1041.9)),
    ("table 1", "stable"): (5, 347.63, 1036.86),
    ("table 1", "drop"): (5, 22.44, 73.66),
    # 6.94 of HeteRo-Select, 29.80 of Power-of-Choice
    **dict.fromkeys(
        [("table 1", "participation_std"), ("figure 6", "participation_std")],
        (2, 36.74, 66.54),
    ),
    # FedAvg and FedProx with everybody, HeteRo-Select
    ("table 2", "peak"): (3, 211.06, 430.87),
    ("table 2", "final"): (3, 205.52, 419.99),
    ("table 2", "stable"): (3, 204.23, 415.36),
    ("table 2", "drop"): (3, 5.54, 10.88),
    # gamma, eta, temperature, participation, then mu, which has no finals
    ("table 3", "peak"): (20, 1308.29, 13869.23),
    ("table 3", "final"): (16, 908.91, 7669.45),
    ("lemma A.4", "peak"): (2, 134.79, 204.80),  # 64.78, 70.01
    # row by row, Fashion-MNIST before MNIST; the perceptron's exhibit has MNIST alone
    ("table 4", "peak"): (8, 729.85, 3318.88),
    ("table 4", "stable"): (8, 712.39, 3235.81),
    ("table 4, mlp", "peak"): (4, 394.85, 987.0),
    ("table 4, mlp", "stable"): (4, 392.18, 980.99),
}


def test_sums_of_what_was_printed() -> None:
    found = sums("hetero_select_v1")
    assert found.keys() == PRINTED.keys()
    assert not {key for key in found if found[key] != pytest.approx(PRINTED[key], rel=1e-9)}
    assert not spreads("hetero_select_v1")
