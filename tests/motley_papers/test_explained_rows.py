"""Rows of recipes as sides of ``motley explain``."""

from __future__ import annotations

import tomllib
from importlib import metadata
from pathlib import Path

import pytest

from motley.core import extensions
from motley.core.components import imports
from motley.core.errors import ConfigError
from motley_advice.explanation.explaining import explain
from motley_advice.explanation.explanation_plan import plan_of
from motley_papers.published_table import read
from motley_papers.referee import referee
from tests.places import ROOT

TABLE = '''
title = "A table whose data are of the seed"
seeds = [3, 4]
printed = """
method | accuracy
FedAvg | .5
FedSGD | .5
Rate   | .5
"""
task = "theirs_data.py:make"
options = { seed = "{seed}" }
[base]
participation = 1.0
stop = { rounds = 1 }
local = { steps = 1, batch_size = 4 }
[method]
FedAvg = {}
FedSGD = { weights = "uniform", "pin.init" = "{seed}" }
Rate = { "task.slope" = 2.0 }
[columns]
accuracy = "final"
'''
HEAD = "method | accuracy | uniform"
MADE = """
import numpy as np
from torch import nn
from motley.tasks import from_clients, own_task

def make(folder, *, seed, slope=1.0):
    x = np.full((8, 1), slope * seed, np.float32)
    federation = from_clients([(x, np.arange(8) % 2)] * 2, test_fraction=0.5)
    return own_task(federation, lambda: nn.Linear(1, 2), name=f"own {seed}")
"""


def _declared(folder: str) -> dict[str, dict[str, str]]:
    text = (ROOT / "packages" / folder / "pyproject.toml").read_text()
    return dict(tomllib.loads(text)["project"]["entry-points"])


@pytest.fixture(autouse=True)
def declared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The entry points that the distributions declare, whatever is installed."""
    points = metadata.EntryPoints(
        metadata.EntryPoint(name, value, group)
        for folder in ("motley-papers", "motley-data")
        for group, named in _declared(folder).items()
        for name, value in named.items()
    )
    monkeypatch.setattr(extensions, "_entry_points", lambda: points)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "theirs.toml").write_text(TABLE)
    (tmp_path / "theirs_data.py").write_text(MADE)
    return tmp_path


def test_released_and_repaired_rule_differ_in_four_causes() -> None:
    cells = ("as released", "repaired one by one")
    planned = plan_of(*(f"recipe:fedbench_scaffold@smoke/{cell}" for cell in cells))
    assert [cause.name for cause in planned.causes] == [
        "clipping",
        *(f"algorithm.{option}" for option in ("reads", "sign", "sends")),
    ]
    assert planned.number_of_runs == 16
    one = planned.experiment(frozenset({0, 2}), 7)
    assert (one.local.clip, one.seed) == (None, 7)
    assert one.resolved()["algorithm"] == {
        "name": "motley_papers.rules.fedbench:FedbenchScaffold",
        "reads": False,
        "sign": -1,
        "sends": "displacement",
    }
    with_exhibit = plan_of("recipe:fedbench_scaffold@smoke/scaffold/fedavg", changes=["cohort=5"])
    assert with_exhibit.a.experiment.stop.rounds == 2


def test_every_seed_has_the_data_of_its_own(here: Path) -> None:
    with imports(True):
        planned = plan_of("recipe:theirs.toml/FedAvg", "recipe:theirs.toml/FedSGD")
    assert planned.seeds == (3, 4)
    assert [cause.name for cause in planned.causes] == ["pin.init", "weights"]
    for combination in planned.combinations:
        for seed in planned.seeds:
            experiment = planned.experiment(combination, seed)
            assert experiment.own_task.name == f"own {seed}"
            assert experiment.own_task.federation.x.max().item() == seed
            assert experiment.pin.get("init") == (seed if 0 in combination else None)
    with imports(True):
        other = plan_of("recipe:theirs.toml/FedAvg", "recipe:theirs.toml/Rate", seeds=[4])
        changed = plan_of("recipe:theirs.toml/FedAvg", changes=["weights=uniform"])
    assert [cause.name for cause in other.causes] == ["task"]
    assert other.b.experiment.own_task.federation.x.max().item() == 8.0
    assert changed.experiment(frozenset({0}), 4).own_task.name == "own 4"


PINNED = '''
title = "A partition that is another one with each seed, beside a fixed one"
seeds = [0, 1, 2]
printed = """
method  | accuracy
same    | .5
fixed   | .5
fixedlr | .5
"""
[base]
task = { name = "image", data = "digits", model = "linear" }
partition = { name = "dirichlet", alpha = 0.1, min_size = 4 }
population = 10
cohort = 3
stop = { rounds = 1 }
[method]
same = { pin = { partition = "{seed}" } }
fixed = { pin = { partition = 0 } }
fixedlr = { pin = { partition = 0 }, "local.optimizer.lr" = 0.02 }
[columns]
accuracy = "final"
'''


@pytest.mark.parametrize("seeds", [None, [1, 2, 0]])
def test_what_differs_with_a_later_seed_is_a_cause(here: Path, seeds: list[int] | None) -> None:
    """With seed 0 the partitions are alike, so that A and B share its runs: of two combinations of
    one cause with three seeds five runs, of four of two causes ten."""
    (here / "pinned.toml").write_text(PINNED)
    alone = plan_of("recipe:pinned.toml/same", "recipe:pinned.toml/fixed", seeds=seeds)
    (cause,) = alone.causes
    by_seed = {None: "0, 1, 2 by seed", (1, 2, 0): "1, 2, 0 by seed"}[seeds and tuple(seeds)]
    assert [(row.key, row.a, row.b) for row in cause.rows] == [("pin.partition", by_seed, 0)]
    assert alone.number_of_runs == 5
    both = plan_of("recipe:pinned.toml/same", "recipe:pinned.toml/fixedlr", seeds=seeds)
    assert {cause.name for cause in both.causes} == {"pin.partition", "learning rate"}
    assert both.number_of_runs == 10
    partition = next(i for i, cause in enumerate(both.causes) if cause.name == "pin.partition")
    for combination in both.combinations:
        pins = [both.experiment(combination, seed).pin["partition"] for seed in (0, 1, 2)]
        assert pins == ([0, 0, 0] if partition in combination else [0, 1, 2])
    back = plan_of("recipe:pinned.toml/fixed", "recipe:pinned.toml/same", seeds=seeds)
    assert alone.identity != back.identity


def test_runs_of_the_recipe_are_there_already(here: Path) -> None:
    with imports(True):
        refereed = referee(read("theirs.toml"), methods=["FedAvg", "FedSGD"], allow_import=True)
    lines: list[str] = []
    explanation = explain(
        "recipe:theirs.toml/FedAvg",
        "recipe:theirs.toml/FedSGD",
        allow_import=True,
        say=lines.append,
    )
    assert "4 of 8 runs are there already" in lines
    a, b = explanation.plan.ends
    for row, combination in (("FedAvg", a), ("FedSGD", b)):
        for run in explanation.runs[combination]:
            assert run.directory == refereed.runs[row, "accuracy"][run.seed].directory


def test_a_column_with_settings_is_named_after_the_row(here: Path) -> None:
    columns = 'accuracy = "final"\nuniform = { measure = "final", weights = "uniform" }'
    text = TABLE.replace('accuracy = "final"', columns).replace("method | accuracy", HEAD)
    (here / "theirs.toml").write_text(text.replace("| .5", "| .5 | .5"))
    with imports(True):
        planned = plan_of("recipe:theirs.toml/FedAvg/accuracy", "recipe:theirs.toml/FedAvg/uniform")
    assert [cause.name for cause in planned.causes] == ["weights"]
    with pytest.raises(ConfigError, match=r"the row 'FedAvg', .* of: FedAvg/accuracy; FedAvg/u"):
        plan_of("recipe:theirs.toml/FedAvg", changes=["cohort=3"])


def test_a_print_of_another_measure_than_is_read_is_refused(here: Path) -> None:
    """The last figure was held against the number of any column."""

    def planned(measure: str, **options: str) -> None:
        (here / "theirs.toml").write_text(TABLE.replace('"final"', f'"{measure}"'))
        with imports(True):
            plan_of(
                "recipe:theirs.toml/FedAvg", changes=["weights=uniform"], printed=0.5, **options
            )

    message = (
        "the columns of recipe:theirs.toml/FedAvg are {}, and what is read off its runs here is "
        "{}; write --round best for peak, --scope mean for client_mean; other measures"
    )
    for measure, read_off, options in (
        ("pooled", "client_mean", {}),
        ("worst_tenth", "client_mean", {}),
        ("peak", "client_mean", {}),
        ("final", "peak", {"round": "best"}),
        ("final", "client_mean", {"scope": "mean"}),
    ):
        with pytest.raises(ConfigError, match=message.format(measure, read_off)):
            planned(measure, **options)
    for measure, options in (
        ("final", {}),
        ("client_mean", {}),
        ("client_mean", {"scope": "mean"}),
        ("peak", {"round": "best"}),
        ("loss", {"metric": "loss"}),
    ):
        planned(measure, **options)


def test_an_option_of_a_tables_function_is_a_row_and_no_change(here: Path) -> None:
    message = r'got task.slope, .* made by code, .* write a row with "task.slope", and'
    with imports(True), pytest.raises(ConfigError, match=message):
        plan_of("recipe:theirs.toml/FedAvg", changes=["task.slope=2.0"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("flamby_hart/FedAvg", r"there is no recipe 'flamby_hart' \(did you mean 'flamby_heart'"),
        ("theirs.toml/FedAvgg", r"the row 'FedAvgg', which theirs.toml has not \(did you mean 'Fe"),
        ("theirs.toml", "got no row of theirs.toml; expected recipe:theirs.toml/ROW, one of: FedA"),
        ("theirs.toml/FedAvg", "which runs code of the table's author.*--allow-import"),
        ("theirs.toml@paper/FedAvg", "got @paper, and theirs.toml is one published table, which"),
        ("fedbench_scaffold@big/fedavg", "scale: got 'big'; expected one of: smoke, small, paper"),
        (
            "niid_bench",
            "no row of niid_bench; .* one of: dirichlet 0.5/fedavg; dirichlet 0.5/scaff",
        ),
    ],
)
def test_rows_that_there_are_not(text: str, message: str, here: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(f"recipe:{text}", changes=["cohort=3"])
