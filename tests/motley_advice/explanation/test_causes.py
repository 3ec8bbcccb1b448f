"""What differs between two experiments as they are executed, and what changes together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.tasks import from_clients, own_task
from motley_advice.explanation.explanation_plan import ExplanationPlan, plan_of

KEYS: dict[str, Any] = {
    "name": "a",
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 2},
    "task": {"name": "image", "data": "digits", "model": "linear"},
}


def plan(changes: Mapping[str, Any], base: Mapping[str, Any] = KEYS, **options: Any) -> Any:
    return plan_of({**KEYS, **base}, {**KEYS, **base, **changes}, **options)


def names(planned: ExplanationPlan) -> list[str]:
    return [cause.name for cause in planned.causes]


def rows(planned: ExplanationPlan) -> dict[str, tuple[Any, Any]]:
    return {row.key: (row.a, row.b) for cause in planned.causes for row in cause.rows}


def test_a_default_that_one_side_leaves_out_is_visible() -> None:
    planned = plan({"local": {"optimizer": {"momentum": 0.9}}})
    assert rows(planned) == {"local.optimizer.momentum": (0.0, 0.9)}
    assert names(planned) == ["momentum"]


def test_a_default_that_one_side_writes_out_is_no_difference() -> None:
    written = {"weights": "examples", "dtype": "float32", "algorithm": {"server_lr": 1.0}}
    with pytest.raises(ConfigError, match=r"A and B are the same experiment \(run id \w{12}\)"):
        plan(written)


def test_a_default_that_follows_another_key_is_a_cause_of_its_own() -> None:
    """SCAFFOLD weighs clients alike unless told otherwise, FedAvg by samples."""
    planned = plan({"algorithm": "scaffold"})
    assert names(planned) == ["algorithm", "weights"]
    assert rows(planned)["weights"] == ("examples", "uniform")
    only_algorithm = planned.experiment(frozenset({0}), 3)
    assert only_algorithm.algorithm["name"] == "scaffold"
    assert only_algorithm.weighting() == "examples"
    assert only_algorithm.seed == 3


def test_a_component_of_another_name_comes_with_its_options() -> None:
    planned = plan(
        {"partition": {"name": "dirichlet", "alpha": 0.1, "min_size": 2}, "seed": 0},
    )
    assert names(planned) == ["partition"]
    assert rows(planned)["partition.alpha"] == (None, 0.1)
    twin = plan(
        {"partition": {"name": "dirichlet", "alpha": 0.1}},
        {"partition": {"name": "dirichlet", "alpha": 0.5}},
    )
    assert rows(twin) == {"partition.alpha": (0.5, 0.1)}


def test_epochs_and_steps_are_one_setting() -> None:
    planned = plan({"local": {"steps": 5}})
    assert [cause.keys for cause in planned.causes] == [("local.epochs", "local.steps")]
    assert names(planned) == ["local work"]


def test_a_probe_goes_with_its_selector() -> None:
    planned = plan({"selector": {"name": "power_of_choice", "d": 3}})
    assert [cause.keys for cause in planned.causes] == [("selector", "probe.batches")]


def test_the_same_cohort_written_otherwise_is_no_difference() -> None:
    without = {key: value for key, value in KEYS.items() if key != "cohort"}
    other = {**without, "participation": 0.5, "local": {"batch_size": 8}}
    planned = plan_of(KEYS, other)
    assert names(planned) == ["batch size"]
    assert {row.key for row in planned.harmless} == {"cohort", "participation"}
    assert names(plan_of(KEYS, {**other, "participation": 0.75})) == ["cohort", "batch size"]


def test_what_cannot_change_a_result_is_listed_apart() -> None:
    planned = plan({"name": "b", "engine": "sequential", "local": {"batch_size": 8}})
    assert [row.key for row in planned.harmless] == ["name", "engine.name"]
    with pytest.raises(ConfigError, match=r"same experiment .*; beside it differ name"):
        plan({"name": "b"})


def test_how_often_is_evaluated_counts_where_the_best_round_is_looked_for() -> None:
    changes = {"evaluate": {"every": 1}, "local": {"batch_size": 8}}
    assert names(plan(changes)) == ["batch size"]
    assert names(plan(changes, round="best")) == ["batch size", "evaluate.every"]
    with pytest.raises(ConfigError, match=r"differ only in evaluate.every.*--round best"):
        plan({"evaluate": {"every": 1}})


@pytest.mark.parametrize(
    ("base", "changes", "expected"),
    [
        (
            {"stop": {"rounds": 9, "target": {"accuracy": 0.7}}},
            {"evaluate": {"every": 1}},
            ["every"],
        ),
        ({"stop": {"rounds": 9, "patience": 1}}, {"evaluate": {"every": 1}}, ["every"]),
        (
            {"stop": {"rounds": 9, "patience": 1}},
            {"metrics": ["macro_f1", "accuracy"]},
            ["metrics"],
        ),
        (
            {"stop": {"rounds": 9, "patience": 1, "metric": "loss"}},
            {"metrics": ["macro_f1", "accuracy"]},
            [],
        ),
        (
            {"stop": {"rounds": 9, "patience": 1}, "metrics": ["accuracy"]},
            {"metrics": ["accuracy", "macro_f1"]},
            [],
        ),
        (
            {},
            {"evaluate": {"every": 1, "diagnostics": True}, "metrics": ["accuracy", "macro_f1"]},
            [],
        ),
    ],
)
def test_what_is_measured_counts_where_it_ends_a_run(
    base: dict[str, Any], changes: dict[str, Any], expected: list[str]
) -> None:
    held = {"split": {"test": "global", "validation": 0.1}, **base}
    planned = plan({**changes, "weights": "uniform"}, held, metric="loss")
    assert [name.removeprefix("evaluate.") for name in names(planned)] == ["weights", *expected]


def test_a_stop_of_one_side_makes_evaluations_count() -> None:
    """B ends at an evaluation, so that a run with the end of B needs to know when these are."""
    target = {"stop": {"rounds": 2, "target": {"accuracy": 0.7}}, "evaluate": {"every": 1}}
    assert names(plan(target)) == ["end of the run", "evaluate.every"]


def test_a_batch_of_the_evaluation_is_a_cause_where_the_model_looks_at_it() -> None:
    def model() -> torch.nn.Module:
        norm = torch.nn.BatchNorm1d(3, track_running_stats=False)
        return torch.nn.Sequential(norm, torch.nn.Linear(3, 2))

    rows = np.random.default_rng(0).normal(size=(12, 3)).astype("float32")
    task = own_task(from_clients([(rows, np.arange(12) % 2)] * 3), model)
    keys = {"task": task, "cohort": 3, "stop": {"rounds": 1}}
    planned = plan_of(keys, {**keys, "evaluate": {"batch_size": 4}})
    assert names(planned) == ["evaluate.batch_size"]


def test_which_round_is_a_cause_that_needs_no_run() -> None:
    planned = plan({"local": {"batch_size": 8}}, round="last,best", scope="mean", seeds=[0, 1])
    assert names(planned) == ["batch size", "which round"]
    assert len(planned.combinations) == 4
    assert planned.number_of_runs == 4  # of two experiments with two seeds
    assert planned.reading(frozenset({1})).round == "best"


def test_a_common_test_set_that_is_not_there_is_said_before_any_run() -> None:
    split = {"split": {"test": "client"}}
    smaller = {"local": {"batch_size": 8}}
    with pytest.raises(
        ConfigError, match=r"--scope: got 'global', and A has no .* test = \"global"
    ):
        plan(smaller, split, scope="global,mean")
    with pytest.raises(ConfigError, match=r"--scope: got 'global', and B has no common test set"):
        plan({**smaller, **split}, {"split": {"test": "global"}}, scope="global")
    assert plan(smaller, split, scope="mean").a.reading.scope == "mean"


def test_pinned_seeds_are_taken_and_left_out() -> None:
    planned = plan({"pin": {"init": 7}})
    assert rows(planned) == {"pin.init": (None, 7)}
    assert "init" not in planned.experiment(frozenset(), 0).pin
    back = plan({"pin": {}, "local": {"batch_size": 8}}, {"pin": {"init": 7}})
    (pin,) = (number for number, name in enumerate(names(back)) if name == "pin.init")
    assert back.experiment(frozenset({pin}), 0).pin == {}


def test_causes_that_make_no_experiment_alone_change_together() -> None:
    """Stragglers end whole epochs; A counts its work in steps."""
    slow = {"epochs": 2, "stragglers": {"share": 0.5}}
    planned = plan({"local": {**slow, "batch_size": 8}}, {"local": {"steps": 4}})
    assert names(planned) == ["local work with local.stragglers", "batch size"]
    (reason,) = (cause.reason for cause in planned.causes if cause.reason)
    assert "is no experiment (local.stragglers: stragglers end whole epochs" in reason
    assert reason in planned.sentences()


def test_seeds_of_both_sides() -> None:
    grids = [{**KEYS, "grid": {"seed": seeds}} for seeds in ([0, 1, 2], [1, 2, 3])]
    grids[1]["weights"] = "uniform"
    planned = plan_of(*grids)
    assert planned.seeds == (1, 2)
    assert any("the seeds differ: A has 0, 1, 2, B 1, 2, 3" in line for line in planned.sentences())
    assert plan_of(*grids, seeds=[7]).seeds == (7,)
    apart = plan_of({**KEYS, "seed": 4}, {**KEYS, "seed": 5, "weights": "uniform"})
    assert apart.seeds == (4, 5)
    with pytest.raises(ConfigError, match=r"differ in their seeds alone \(4 and 5\), so .* chance"):
        plan_of({**KEYS, "seed": 4}, {**KEYS, "seed": 5})


def test_more_than_five_causes_go_from_both_ends() -> None:
    six = {
        "weights": "uniform",
        "local": {"batch_size": 8, "epochs": 2, "optimizer": {"lr": 0.02, "momentum": 0.5}},
        "cohort": 3,
    }
    planned = plan(six)
    assert len(planned.causes) == 6
    assert len(planned.combinations) == 14
    assert not planned.exact
    assert "14 combinations: one cause at a time from A and from B" in planned.sentences()[0]
    message = r"takes 28 runs \(14 combinations, 2 seeds\); it allows 1 of the 2 seeds"
    with pytest.raises(ConfigError, match=message):
        plan(six, seeds=[0, 1], runs=20)


def test_a_budget_chooses_the_plan() -> None:
    four = {
        "weights": "uniform",
        "local": {"batch_size": 8, "optimizer": {"lr": 0.02, "momentum": 0.5}},
    }
    assert plan(four, seeds=[0, 1]).number_of_runs == 32
    fewer = plan(four, seeds=[0, 1], runs=20)
    assert fewer.number_of_runs == 20
    assert "all combinations are more runs than --runs allows" in fewer.sentences()[1]
    message = "--runs: got 19; of the causes .* takes 20 runs .* 32; it allows 1 of the 2 seeds"
    with pytest.raises(ConfigError, match=message):
        plan(four, seeds=[0, 1], runs=19)
    with pytest.raises(ConfigError, match="one seed takes 10"):
        plan(four, seeds=[0, 1], runs=3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"metric": "acuracy"}, r"--metric: A does not measure 'acuracy' \(did you mean 'accuracy"),
        ({"round": "lst"}, r"--round: got 'lst' \(did you mean 'last'\?\); expected last or best"),
        ({"round": "last,best,last"}, "--round: got .*; expected one value, or A's and B's"),
        ({"scope": "mean,"}, "--scope: got 'mean,'; expected one value, or A's and B's"),
        ({"scope": "all"}, "--scope: got 'all'; expected global or mean, or A's and B's, e.g. gl"),
        ({"scope": "mean,clobal"}, r"--scope: got 'clobal' \(did you mean 'global'\?\); expected"),
        ({"scope": "client"}, "--scope: got 'client'; expected global or mean"),
        ({"seeds": [1, 1]}, "--seeds: got '1, 1'; expected each seed once"),
        ({"printed": float("nan"), "metric": "loss"}, "--printed: got nan; expected the number"),
        ({"printed": "many"}, "--printed: got many; expected the number that was printed"),
        ({"printed": "1e999"}, "--printed: got 1e999; expected the number that was printed"),
        ({"printed": float("-inf")}, "--printed: got -inf; expected the number that was printed"),
        ({"printed": 61.99}, "--printed: got 61.99, and accuracy lies between 0 and 1; .* 0.6199"),
        ({"printed": 0.5, "printed_runs": 0}, "--printed-runs: got 0; expected the runs that"),
        ({"printed_runs": 3}, "--printed-runs: got 3 and no printed number"),
        ({"overrides": ["cohorts=3"]}, r"cohorts: there is no such key \(did you mean 'cohort'"),
    ],
)
def test_options_that_make_no_sense(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan({"weights": "uniform"}, **options)


def test_sides_that_cannot_be_compared() -> None:
    with pytest.raises(
        ConfigError, match=r"a is 2 experiments \(batch_size=1 and .*leave its \[grid"
    ):
        plan_of({**KEYS, "grid": {"local.batch_size": [1, 2]}}, KEYS)
    with pytest.raises(ConfigError, match="expected either a second experiment or changes of the"):
        plan_of(KEYS, KEYS, changes=["cohort=3"])
    with pytest.raises(ConfigError, match="weights = examples is what a has already"):
        plan_of(KEYS, changes=["weights=examples"])
    with pytest.raises(ConfigError, match=r"B, b, cannot run: .*bce"):
        plan({"name": "b", "loss": "bce"})
    with pytest.raises(ConfigError, match=r"--metric: A is measured by accuracy, B by macro_f1"):
        plan({"metrics": ["macro_f1"], "weights": "uniform"})
    private = {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5, "max_rounds": 2}
    with pytest.raises(ConfigError, match=r"is private, and each run .* privacy.noise_seed = 0"):
        plan({"privacy": private, "cohort": 4}, {"selector": "uniform"})
    changes = [f"privacy.{key}={value}" for key, value in private.items()]
    with pytest.raises(ConfigError, match=r"A with privacy.* is private, and each run of an expl"):
        plan_of(KEYS, changes=[*changes, "cohort=4"])


def test_changes_that_are_no_causes() -> None:
    with pytest.raises(ConfigError, match="--change: got seed; what differs between seeds is chan"):
        plan_of(KEYS, changes=["seed=3"])
    with pytest.raises(ConfigError, match="--change: name = other cannot change the figure"):
        plan_of(KEYS, changes=["name=other"])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            ["local.epochs=2", "weights=uniform", "local.steps=30"],
            "--change: local.epochs = 2 is lost beside weights = uniform and local.steps = 30; lea",
        ),
        (
            ["weights=uniform", "weights=examples"],
            "--change: got weights more than once; give it once",
        ),
    ],
)
def test_changes_that_take_each_other_back(changes: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        plan_of(KEYS, changes=changes)


def test_changes_that_belong_together_are_kept() -> None:
    planned = plan_of(KEYS, changes=["algorithm.name=scaffold", "algorithm.divisor=steps"])
    assert planned.b.experiment.resolved()["algorithm"]["divisor"] == "steps"
    assert "weights" in names(plan_of(KEYS, changes=["algorithm=scaffold", "weights=uniform"]))


def test_changes_name_what_follows_from_them() -> None:
    planned = plan_of(KEYS, changes=["algorithm.name=scaffold", "local.batch_size=8"])
    assert names(planned) == ["batch size", "algorithm", "weights"]
    assert planned.b.label == "A with algorithm.name = scaffold, local.batch_size = 8"
