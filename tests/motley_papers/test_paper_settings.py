"""What the experiments of recipes have at the scale ``paper``, beside what the papers print: the
settings of their tables and figures, of which ``paper_settings.toml`` is written by hand, and the
sums of the figures in ``expected.csv``."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

from motley import selectors
from motley.algorithms import LOSSES
from motley.algorithms.losses import HalfSquaredError
from motley.core.records import Outcome, Reports
from motley.experiments.config import Experiment
from motley.selectors.common.client_features import ContextualBandit
from motley.selectors.selector import Selector
from motley.tasks import TASKS
from motley.tasks.clustered_regression import ClusteredRegression
from motley.tasks.models import factory
from motley.world import DEVICES, LABEL_NOISE, PARTITIONS
from motley_papers.recipe import Recipe, read
from tests.places import ROOT

PAPERS = tomllib.loads((ROOT / "tests/motley_papers/paper_settings.toml").read_text("utf-8"))
BUILD = {
    "selector": lambda record: selectors.build(record).rule,
    "loss": LOSSES.build,
    "task": TASKS.build,
    "partition": PARTITIONS.build,
    "label_noise": LABEL_NOISE.build,
    "device": DEVICES.build,
}
"""How the components are made whose options count with their defaults."""


@cache
def recipe(name: str) -> Recipe:
    return read(name)


def experiments(name: str, exhibit: str) -> dict[tuple[str, ...], Experiment]:
    """Return the experiments of an exhibit at ``paper`` by the values of its axes."""
    found = recipe(name)
    cells = found.named(exhibit).cells("paper")
    return {cell.values: found.experiment(cell, "paper", 42) for cell in cells}


def flat(tables: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield dotted keys and values of nested tables."""
    for key, value in tables.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def over(under: dict[str, Any], tables: Mapping[str, Any]) -> dict[str, Any]:
    """Return flat settings with those of ``tables`` over them; another component takes none of the
    options of the one before."""
    upper = dict(flat(tables))
    named = {key.removesuffix("name") for key in upper if key.endswith(".name")}
    kept = {k: v for k, v in under.items() if not any(k.startswith(name) for name in named)}
    return kept | upper


def wanted(row: Mapping[str, Any], at: int) -> dict[tuple[str, ...], dict[str, Any]]:
    """Return the settings of the cells of the exhibit ``at`` among those of a row, by hand."""
    axes: list[dict[str, Any]] = []
    for blocks in row["axes"]:
        axes.append({k: v for block in blocks.split("+") for k, v in PAPERS["axes"][block].items()})
    common = over(dict(flat(PAPERS["common"][row["use"]])), row.get("set", {}))
    common = {key: value for key, value in common.items() if key not in row.get("drop", ())}
    if "population" in row:
        common["population"] = row["population"][at]
    cells = {}
    for values in itertools.product(*axes):
        cells[values] = common
        for axis, value in zip(axes, values, strict=True):
            cells[values] = over(cells[values], axis[value])
            changed = row.get("rows", {}).get(value, {})
            cells[values] = cells[values] | dict(flat(changed))
    return cells


def setting(made: Experiment, key: str) -> Any:
    """Return what an experiment has under a dotted key, an option's default where it says none."""
    head, _, rest = key.partition(".")
    value: Any = getattr(made, head)
    if head in BUILD and rest not in ("", "name"):
        value = getattr(BUILD[head](dict(value)), rest)
        return list(value) if isinstance(value, tuple) else value
    for part in rest.split(".") if rest else ():
        value = value[part] if isinstance(value, Mapping) else getattr(value, part)
    return value


def differences(name: str, exhibit: str) -> list[str]:
    """Return how an exhibit of a recipe differs from the table by hand: its cells, what they have
    under each key, and keys that the table does not have."""
    ((row, at),) = (
        (row, row["names"].index(exhibit))
        for row in PAPERS["exhibit"]
        if row["recipe"] == name and exhibit in row["names"]
    )
    found = recipe(name)
    named = found.named(exhibit)
    cells, made = wanted(row, at), experiments(name, exhibit)
    out = [f"cell {' / '.join(cell)}" for cell in cells.keys() ^ made.keys()]
    if (shown := named.measures[: len(row["measures"])]) != row["measures"]:
        out.append(f"measures {shown}")
    if "picture" in row and named.pictures[0] != row["picture"]:
        out.append(f"picture {named.pictures[0]}")
    if "seeds" in row and found.seeds(named, "paper") != row["seeds"][at]:
        out.append(f"seeds {found.seeds(named, 'paper')}")
    for cell in cells.keys() & made.keys():
        dump = made[cell].model_dump(exclude_defaults=True, exclude={"name", "seed"})
        extra = dict(flat(dump)).keys() - cells[cell].keys()
        out += [f"{' / '.join(cell)}: {key} is set" for key in extra]
        for key, value in cells[cell].items():
            if (has := setting(made[cell], key)) != value:
                out.append(f"{' / '.join(cell)}: {key} is {has!r}, not {value!r}")
    return out


def exhibits(name: str) -> list[str]:
    """Return the names of a paper's exhibits in the table by hand."""
    rows = [row["names"] for row in PAPERS["exhibit"] if row["recipe"] == name]
    return list(itertools.chain(*rows))


def sums(name: str, pattern: str) -> list[float]:
    """Return the sums of the printed values and of their spreads, over the cells whose ``exhibit /
    cell / measure`` matches."""
    found = [
        both
        for key, both in recipe(name).expected.items()
        if re.fullmatch(pattern, " / ".join(key))
    ]
    return [float(np.nansum(column)) for column in zip(*found, strict=True)]


@pytest.mark.parametrize("exhibit", exhibits("flash"))
def test_flash_setting(exhibit: str) -> None:
    assert not differences("flash", exhibit)


def test_flash_latency() -> None:
    """lambda_T is 1, 10 and 100."""
    for (given, _), made in experiments("flash", "latency").items():
        assert (made.device["a_t"], made.device["lambda_t"]) == (1.0, float(given))


FLASH_SUMS = """
                  noniid30      noise15       noniid30_noise15
random            453.9 19.6    425.4 19.4    348.5 20.5
oort              470.5  9.2    463.7  9.8    388.2 16.2
pyramidfl         478.8  9.0    462.5  9.2    380.1 15.6
restless_bandit   453.4 15.9    427.7 15.9    349.4 21.4
neural_bandit     486.9 15.9    469.7 15.3    381.8 17.2
fedcor            496.0 10.3    475.3 10.7    390.2 15.0
feel              472.2  9.6    452.9 12.1    382.3 15.2
flash             503.2  8.7    496.8  9.4    416.2 13.9
fedavg            531.3 14.2    504.3 15.2    409.3 22.1
fedprox           548.1 13.2    528.7 14.8    427.2 19.1
fedbio            550.7 13.9    521.4 14.7    443.5 19.4
feddf             553.0 15.0    517.5 14.2    427.4 18.9
fednova           551.4 14.4    516.2 14.4    431.7 19.3
scaffold          554.5 13.3    523.0 14.0    432.6 18.2
rhfl              525.9 14.2    562.9 14.5    465.0 18.0
"""
"""Sums of the accuracies and of the spreads of Table I as it is printed, panel by panel: of each
row over the seven aggregations, then of each column over the eight selectors."""


def test_flash_table_1_has_the_printed_rows_and_columns() -> None:
    """The printed cells, their figures, and the settings of each; FLASH's loss in its own row
    alone, but for the row that the paper does not have."""
    made = experiments("flash", "table 1")
    printed = {
        tuple(cell.split(" / "))
        for exhibit, cell, _ in recipe("flash").expected
        if exhibit == "table 1"
    }
    assert len(printed) == 3 * 7 * 8
    assert {cell for cell in made if cell[2] != "random_robust"} == printed
    panels, *lines = (line.split() for line in FLASH_SUMS.strip().splitlines())
    for line, *figures in lines:
        for at, panel in enumerate(panels):
            pattern = rf"table 1 / {panel} / (\w+ / )?{line}( / \w+)? / peak"
            by_hand = [float(figure) for figure in figures[2 * at : 2 * at + 2]]
            assert sums("flash", pattern) == pytest.approx(by_hand, abs=1e-9), (panel, line)
    expected = recipe("flash").expected
    for rule in PAPERS["axes"]["rules"]:
        cell = f"noniid30_noise15 / fedavg / {rule}"
        again = expected["cifar-10, fedavg column", cell, "peak"]
        assert again == expected["table 1", cell, "peak"]
    assert not differences("flash", "table 1")


def test_flash_and_the_neural_bandit_score_contexts_of_the_received_model() -> None:
    """In every table and figure of the paper. Round 1 measures w^0, of which all ratios are 1;
    round 2 measures w^1 with half the losses, and its cohort is chosen by w^0's."""
    ids = np.arange(3)
    rules = [
        (exhibit, cell, made.selector)
        for exhibit in exhibits("flash")
        for cell, made in experiments("flash", exhibit).items()
        if made.selector["name"] in ("flash", "neural_bandit")
    ]
    assert len(rules) == 2 * 3 * 7 + 4 * 9 + 2 * 9 + 20 + 2 * 2 + 20 + 25 + 3 * 6
    for record in {repr(record): record for _, _, record in rules}.values():
        selector = selectors.build(dict(record))
        assert isinstance(selector, Selector)
        rule = selector.rule
        assert isinstance(rule, ContextualBandit)
        for t, loss in ((1, 4.0), (2, 2.0)):
            assert selector.probe(t, ids, 3).tolist() == [0, 1, 2]
            signals = {name: np.full(3, loss) for name in ("robust_loss", "val_loss")}
            selector.observe(t, Reports(ids, Outcome.PROBED, signals=signals))
            if t == 1:
                selector.select(1, ids, 3)
                seconds = {"duration": np.ones(3)}
                selector.observe(1, Reports(ids, Outcome.ACCEPTED, signals=seconds))
        scored = rule.features(selector.state.clients, ids)
        losses = [name.endswith("loss") for name in rule.feature_names]
        assert (scored[:, losses] == 1.0).all()


BOLT_SUMS = {
    "1": [
        (r"table 1 / slope / iid / \w+ / mse", 29.4810, 0),
        (r"table 1 / slope / noniid / \w+ / mse", 291.3134, 0),
        (r"table 1 / intercept / iid / \w+ / mse", 0.2335, 0),
        (r"table 1 / intercept / noniid / \w+ / mse", 8.2386, 0),
        (r"table 1 / \w+ / \w+ / random / mse", 82.9432, 0),
        (r"table 1 / \w+ / \w+ / power_of_choice / mse", 82.7733, 0),
        (r"table 1 / \w+ / \w+ / active_fl / mse", 82.7246, 0),
        (r"table 1 / \w+ / \w+ / fedcvr_bolt / mse", 80.8254, 0),
    ],
    "2": [
        (r"table 2a / synthetic / \w+ / final", 303.35, 0),
        (r"table 2b / mnist / \w+ / final", 346.42, 0),
        (r"table 2c / cifar10 / \w+ / final", 214.77, 0),
        (r"table 2\w / (synthetic|mnist|cifar10) / random / final", 210.32, 0),
        (r"table 2\w / (synthetic|mnist|cifar10) / power_of_choice / final", 207.30, 0),
        (r"table 2\w / (synthetic|mnist|cifar10) / active_fl / final", 221.08, 0),
        (r"table 2\w / (synthetic|mnist|cifar10) / fedcvr_bolt / final", 225.84, 0),
    ],
    "3": [
        (r"table 3 / slope / iid / \w+ / mse", 24.5550, 9.6155),
        (r"table 3 / slope / noniid / \w+ / mse", 225.6467, 99.5978),
        (r"table 3 / intercept / iid / \w+ / mse", 0.8504, 1.3942),
        (r"table 3 / intercept / noniid / \w+ / mse", 6.4767, 2.9089),
        (r"table 3 / \w+ / \w+ / random / mse", 64.9524, 27.7030),
        (r"table 3 / \w+ / \w+ / power_of_choice / mse", 65.2173, 27.8468),
        (r"table 3 / \w+ / \w+ / active_fl / mse", 64.9141, 29.4801),
        (r"table 3 / \w+ / \w+ / fedcvr_bolt / mse", 62.4450, 28.4865),
    ],
    "4": [
        (r"table 4a / synthetic / \w+ / final", 308.21, 8.34),
        (r"table 4b / mnist / \w+ / final", 352.68, 8.88),
        (r"table 4c / cifar10 / \w+ / final", 210.45, 9.99),
        (r"table 4\w / (synthetic|mnist|cifar10) / random / final", 212.44, 4.72),
        (r"table 4\w / (synthetic|mnist|cifar10) / power_of_choice / final", 212.91, 9.39),
        (r"table 4\w / (synthetic|mnist|cifar10) / active_fl / final", 219.26, 10.33),
        (r"table 4\w / (synthetic|mnist|cifar10) / fedcvr_bolt / final", 226.73, 2.77),
    ],
}
"""Sums of the errors or accuracies, and of the two deviations behind them, of each row and column
of a table as it is printed."""
AGAIN = [
    ("table 2a", "synthetic", "final", "table 2a", "synthetic_equal", "final"),
    ("table 2a", "synthetic", "final", "table 2a", "synthetic", "pooled"),
    ("table 4a", "synthetic", "final", "table 4a", "synthetic_equal", "final"),
    ("table 4a", "synthetic", "final", "table 4a", "synthetic", "pooled"),
    ("table 4b", "mnist", "final", "released code, MNIST", "mnist", "final"),
    ("table 4c", "cifar10", "final", "released code, CIFAR-10", "cifar10", "final"),
]
"""Where a printed row stands once more."""


@pytest.mark.parametrize("table", "1234")
def test_fedcvr_bolt_table(table: str) -> None:
    """The settings of a table's cells and the figures printed for them."""
    for exhibit in exhibits("fedcvr_bolt"):
        if exhibit.startswith(f"table {table}"):
            assert not differences("fedcvr_bolt", exhibit)
    for pattern, *by_hand in BOLT_SUMS[table]:
        assert sums("fedcvr_bolt", pattern) == pytest.approx(by_hand, abs=1e-9), pattern
    expected = recipe("fedcvr_bolt").expected
    for exhibit, first, measure, *(other, second, also) in AGAIN:
        for method in PAPERS["axes"]["methods"] if exhibit.startswith(f"table {table}") else ():
            a = expected[exhibit, f"{first} / {method}", measure]
            assert expected[other, f"{second} / {method}", also] == pytest.approx(a, nan_ok=True)


def test_fedcvr_bolt_networks() -> None:
    """784-200-200-10; two convolutions of 5x5 with pools, which leave 64 x 5 x 5 numbers of 32 x
    32, and two linear layers, 259,914 numbers in all; pixels in [0, 1]."""
    wanted = {
        "b": [(200, 784), (200, 200), (10, 200)],
        "c": [(32, 3, 5, 5), (64, 32, 5, 5), (128, 64 * 5 * 5), (10, 128)],
    }
    for part, shape in (("b", (1, 28, 28)), ("c", (3, 32, 32))):
        for made in experiments("fedcvr_bolt", f"table 4{part}").values():
            assert made.task["scale"] == "unit"
            weights = factory(made.task["model"], shape, 10)().parameters()
            assert [tuple(p.shape) for p in weights if p.ndim > 1] == wanted[part]
            assert made.partition == {"name": "dirichlet", "alpha": 0.1}


@pytest.mark.parametrize(
    ("exhibit", "layer", "coordinates"),
    [
        ("table 3", 1, 1),
        ("table 3", 2, 2),
        ("table 4a", 60 * 10 + 10, 610),
        ("table 4b", 200 * 10 + 10, 2010),
        ("table 4c", 128 * 10 + 10, 300),
        ("table 4b", 2011, 300),
    ],
)
def test_fedcvr_bolt_coordinates(exhibit: str, layer: int, coordinates: int) -> None:
    """How many numbers of a last layer the rule of an exhibit looks at: all of them, but 300 on
    CIFAR-10, and of a layer larger than MNIST's."""
    for cell, made in experiments("fedcvr_bolt", exhibit).items():
        if cell[-1] == "fedcvr_bolt":
            selector = selectors.build(dict(made.selector))
            last = {"num_examples": np.ones(2), "last_layer": np.zeros((2, layer))}
            selector.observe(0, Reports(np.arange(2), Outcome.ENROLLED, signals=last))
            assert len(selector.state.initial) == coordinates


@pytest.mark.parametrize("exhibit", exhibits("fedcvr_bolt"))
def test_fedcvr_bolt_power_of_choice(exhibit: str) -> None:
    """Of 100 clients d = 2m = 20 are asked for the loss of the global model on their test part, and
    the ten highest of these are chosen."""
    ids = np.arange(100)
    (record,) = {
        repr(made.selector): made.selector
        for cell, made in experiments("fedcvr_bolt", exhibit).items()
        if cell[-1] == "power_of_choice"
    }.values()
    selector = selectors.build(dict(record))
    sizes = {"num_examples": np.ones(100)}
    selector.observe(0, Reports(ids, Outcome.ENROLLED, signals=sizes))
    asked = selector.probe(1, ids, 10)
    assert len(asked) == 20
    assert selector.rule.needs().probed == {"test_loss": None}
    losses = {"test_loss": asked.astype(float)}
    selector.observe(1, Reports(asked, Outcome.PROBED, signals=losses))
    assert sorted(selector.select(1, ids, 10).ids) == sorted(asked)[10:]


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
