"""The league: every method of the catalogues is an entrant or excused, the environments are a grid,
and some of it runs."""

from itertools import chain

import pytest

from motley.algorithms import CATALOGUE as ALGORITHMS
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.run import run
from motley.selectors.catalogue import CATALOGUE as SELECTORS
from motley_papers.recipe import read
from motley_papers.reproduce import plan
from tests.motley_papers.fewest import distinct


@pytest.fixture(scope="module")
def league():
    return read("league")


RANKED_EXHIBITS = ("shared", "personal", "widths")


def test_every_method_is_an_entrant_or_excused(league):
    """A new method is one row in ``recipe.toml``: an entrant in one of the groups, or a reason in
    ``excused``. The rankings together hold every method, or say why not."""
    exhibits = [league.named(name) for name in RANKED_EXHIBITS]
    cells = [c for e in exhibits for c in e.cells("small") if c.at["environment"] == "even"]
    experiments = [league.experiment(cell, "small", 0) for cell in cells]
    there = {f"selector.{e.selector['name']}" for e in experiments} | {
        f"algorithm.{e.algorithm['name']}" for e in experiments
    }
    known = {f"selector.{name}" for name in SELECTORS.targets if ":" not in name} | {
        f"algorithm.{name}" for name in ALGORITHMS.targets if ":" not in name
    }
    excused = set(league.named("shared").ranks.excused)
    assert known - there == excused - {"algorithm.fedavg"}  # under which selectors enter


def test_each_part_of_a_joint_method_can_be_switched_off(league):
    for cell in league.named("parts").cells("smoke"):
        if cell.at["environment"] == "labels":
            build(league.experiment(cell, "smoke", 0))


def test_each_factor_stands_alone_and_crossed_with_skewed_labels(league):
    exhibit = league.named("shared")
    environments = exhibit.axes["environment"]
    skew = environments["labels"]["partition"]
    for factor in ("sizes", "noise", "features", "concepts", "speeds", "absences", "liars"):
        for strength in ("weak", "strong"):
            alone = environments[f"{factor}-{strength}"]
            crossed = environments[f"{factor}-{strength}, labels"]
            differing = {"partition", "target"}
            assert {k: v for k, v in crossed.items() if k not in differing} == {
                k: v for k, v in alone.items() if k not in differing
            }
            assert crossed["partition"]["alpha"] == skew["alpha"]
            assert "alpha" not in alone.get("partition", {})
    assert league.base["partition"] == "iid"
    # no ranking holds a federation that advice is proved in
    assert not set(environments) & set(league.named("outside").axes["environment"])


def test_each_entrant_is_in_one_group(league):
    for exhibit in league.exhibit:
        grouped = chain(*exhibit.ranks.groups.values())
        assert sorted(grouped) == sorted(exhibit.axes["entrant"]), exhibit.name


def test_kinds_of_models_are_not_mixed(league):
    shared, personal = (set(league.named(n).axes["entrant"]) for n in ("shared", "personal"))
    assert shared & personal == {"uniform FedAvg"}


@pytest.mark.parametrize("place", ["oort", "scaffold", "fedper", "heterofl", "FLASH, whole"])
def test_an_entrant_of_each_kind_runs(league, place, tmp_path):
    only = {"environment": ["concepts-strong, labels"], "entrant": [place]}
    exhibits = [league.named(name) for name in RANKED_EXHIBITS]
    made = plan(league, [e for e in exhibits if place in e.axes["entrant"]], "smoke", only=only)
    assert made
    for experiment in made.values():
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
