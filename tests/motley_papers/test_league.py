"""The league: every method of the catalogues is an entrant or excused, the environments are a grid,
and some of it runs."""

from itertools import chain
from pathlib import Path

import pytest

from motley.algorithms import CATALOGUE as ALGORITHMS
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.run import run
from motley.selectors.catalogue import CATALOGUE as SELECTORS
from motley_papers.advice import PERSONAL
from motley_papers.recipe import read
from motley_papers.reproduce import distinct, plan

PLANNED = Path(__file__).resolve().parents[2] / "benchmarks" / "league_plan"


@pytest.fixture(scope="module")
def league():
    return read("league")


def test_every_method_is_an_entrant_or_excused(league):
    """A new method is one row in ``recipe.toml``: an entrant in one of the groups, or a reason in
    ``excused``."""
    exhibit = league.named("league")
    (environment, *_) = exhibit.axes["environment"]
    made = [cell for cell in exhibit.cells("small") if cell.at["environment"] == environment]
    experiments = [league.experiment(cell, "small", 0) for cell in made]
    there = {f"selector.{e.selector['name']}" for e in experiments} | {
        f"algorithm.{e.algorithm['name']}" for e in experiments
    }
    known = {f"selector.{name}" for name in SELECTORS.targets} | {
        f"algorithm.{name}" for name in ALGORITHMS.targets
    }
    excused = set(exhibit.ranks.excused)
    assert known - there - excused == set()
    assert excused <= known
    assert excused & there <= {"algorithm.fedavg"}  # under which selectors enter


def test_the_planned_league_has_every_method_and_its_cells_are_experiments():
    """``benchmarks/league_plan``: the three rankings together hold every method, or say why not."""
    planned = read(PLANNED)
    first = {exhibit.name: next(iter(exhibit.axes["environment"])) for exhibit in planned.exhibit}
    cells = [
        c
        for exhibit in planned.exhibit
        for c in exhibit.cells("small")
        if c.at["environment"] == first[exhibit.name]
    ]
    experiments = [planned.experiment(cell, "small", 0) for cell in cells]
    there = {f"selector.{e.selector['name']}" for e in experiments} | {
        f"algorithm.{e.algorithm['name']}" for e in experiments
    }
    known = {f"selector.{name}" for name in SELECTORS.targets} | {
        f"algorithm.{name}" for name in ALGORITHMS.targets
    }
    assert known - there == set(planned.named("shared").ranks.excused) - {"algorithm.fedavg"}
    for cell in planned.named("parts").cells("smoke"):
        if cell.at["environment"] == "labels":
            # a part may need another that is switched off
            build(planned.experiment(cell, "smoke", 0))


def test_the_environments_are_a_grid(league):
    exhibit = league.named("league")
    environments = exhibit.axes["environment"]
    assert len(environments) >= 16
    for factor in (
        "labels",
        "sizes",
        "noise",
        "features",
        "concepts",
        "speeds",
        "absences",
        "liars",
    ):
        assert {f"{factor}-weak", f"{factor}-strong"} <= set(environments)
    data = {
        league.experiment(cell, "small", 0).task["data"]
        for cell in exhibit.cells("small")
        if cell.at["entrant"] == "uniform FedAvg"
    }
    assert data == {"fashion_mnist", "femnist"}


def test_each_entrant_is_in_one_group(league):
    exhibit = league.named("league")
    assert sorted(chain(*exhibit.ranks.groups.values())) == sorted(exhibit.axes["entrant"])
    assert PERSONAL in exhibit.ranks.groups


@pytest.mark.parametrize("entrant", ["oort", "scaffold", "fedper", "HeteRo-Select"])
def test_an_entrant_of_each_group_runs_where_everything_differs(league, entrant, tmp_path):
    place = {"environment": ["all-strong"], "entrant": [entrant]}
    for experiment in plan(league, league.exhibit, "smoke", only=place).values():
        assert run(experiment, out=tmp_path / "run").finished


@pytest.mark.slow
def test_every_entrant_and_every_environment_runs(league, tmp_path):
    for experiment in distinct(plan(league, league.exhibit, "smoke").values()):
        assert run(experiment, out=tmp_path / experiment.run_id()).finished


def test_an_entrant_of_no_group_is_refused(tmp_path):
    text = RANKED.replace('"random", "all"', '"random"')
    with pytest.raises(ConfigError, match="'all' is in 0 groups; expected one"):
        read(_folder(tmp_path, text))
    with pytest.raises(ConfigError, match="method has no value 'nobody'"):
        read(_folder(tmp_path, RANKED.replace('against = "random"', 'against = "nobody"')))


def test_tuned_settings_go_on_top(tmp_path):
    folder = _folder(tmp_path, RANKED)
    (folder / "tuned.toml").write_text('[method."all"]\n"local.optimizer.lr" = 0.5\n')
    recipe = read(folder)
    rates = [
        recipe.experiment(cell, "small", 0).resolved()["local"]["optimizer"]["lr"]
        for cell in recipe.exhibit[0].cells("small")
    ]
    assert rates == [0.05, 0.5] * 2
    (folder / "tuned.toml").write_text('[method."al"]\n"local.optimizer.lr" = 0.5\n')
    with pytest.raises(ConfigError, match=r"no exhibit has method 'al' \(did you mean 'all'\?\)"):
        read(folder)
    (folder / "tuned.toml").write_text("method = 3\n")
    with pytest.raises(ConfigError, match="expected a table"):
        read(folder)


RANKED = """
title = "A small league"

[base]
population = 6
cohort = 3
stop = { rounds = 2 }
task = { name = "image", data = "digits", model = "digits_mlp" }
local = { steps = 2, batch_size = 16, optimizer = { name = "sgd", lr = 0.05 } }

[scale.smoke]
[scale.small]
seeds = [0, 1]
minutes = 0.2
[scale.paper]

[[exhibit]]
name = "ranks"
title = "Two in two"
measures = ["stable", "worst_tenth", "traffic_mb_to_target"]
target = 0.9
[exhibit.ranks]
of = "method"
over = "world"
against = "random"
excused = { "selector.tifl" = "has no tiers here" }
groups = { "rules" = ["random", "all"] }
[exhibit.axes.world]
"iid" = {}
"skewed" = { partition = { name = "dirichlet", alpha = 0.1 } }
[exhibit.axes.method]
random = {}
all = { cohort = 6 }
"""


def _folder(where, recipe):
    where.mkdir(parents=True, exist_ok=True)
    (where / "recipe.toml").write_text(recipe)
    return where


def test_cells_without_runs_are_said(tmp_path):
    text = RANKED.replace(
        "[exhibit.ranks]",
        'without = { "is too slow" = { world = "iid", method = "all" } }\n[exhibit.ranks]',
    )
    recipe = read(_folder(tmp_path, text))
    assert [cell.name for cell in recipe.exhibit[0].cells("small")] == [
        "iid / random",
        "skewed / random",
        "skewed / all",
    ]
    with pytest.raises(ConfigError, match="world has no value 'moon'"):
        read(_folder(tmp_path, text.replace('world = "iid", method', 'world = "moon", method')))


@pytest.mark.usefixtures("drawn")
def test_a_report_with_ranks(tmp_path, capsys):
    from motley_papers.output import show, write
    from motley_papers.reproduce import reproduce

    said = []
    found = reproduce(_folder(tmp_path / "toy", RANKED), out=tmp_path / "out", tell=said.append)
    assert said == [
        "8 of 8 runs are missing; 5 to 30 s by what they took on two cores with --jobs 2, which "
        "the first rounds here correct. Stop when you like: the same command goes on."
    ]
    html, text, *_ = write(found)
    assert "has the best mean rank" in text.read_text()
    assert "selector.tifl: has no tiers here." in text.read_text()
    assert "<svg" in html.read_text()
    show(found)
    assert "mean rank" in capsys.readouterr().out
    again = []
    reproduce(tmp_path / "toy", out=tmp_path / "out", tell=again.append)
    assert again == ["0 of 8 runs are missing. Stop when you like: the same command goes on."]
