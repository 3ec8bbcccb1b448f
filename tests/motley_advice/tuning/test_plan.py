"""Plans: budgets worked by hand, seeds that do not overlap, and what is refused before anything is
run."""

from __future__ import annotations

from typing import Any

import pytest

from motley.core.errors import ConfigError
from motley.experiments.config import Experiment
from motley_advice.tuning.plan import Halving, plan_of

KEYS: dict[str, Any] = {
    "name": "iris",
    "task": {"name": "tabular", "data": "iris"},
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 9},
    "split": {"validation": 0.25},
    "evaluate": {"every": 1},
}
RATE = {"local.optimizer.lr": "log:0.001..1"}
PER = "algorithm.name=fedavg,fedprox"


def plan(over: Any = RATE, keys: Any = KEYS, **options: Any) -> Any:
    given = {
        "per": PER,
        "trials": 9,
        "objective": "headline",
        "seeds": None,
        "test_seeds": None,
        "rounds_first": None,
    }
    given |= {"hours_first": None, "factor": 3, **options}
    return plan_of([Experiment(**keys)] if isinstance(keys, dict) else keys, over, **given)


def test_halving_by_hand() -> None:
    """Nine trials of 1 of 9 rounds cost 1 run; three of them go on to 3: 3 * 2/9; one to 9: 6/9.
    Together 2 1/3 runs, not 9."""
    made = plan(rounds_first=1)
    assert made.halving.shares == (1 / 9, 3 / 9, 1.0)
    assert made.halving.counts(9) == (9, 3, 1)
    assert made.run_equivalents(made.methods[0]) == pytest.approx(7 / 3)
    stops = [made.halving.stop(made.bases[0], rung) for rung in range(3)]
    assert stops == [{"stop.rounds": 1}, {"stop.rounds": 3}, {}]


def test_with_two_seeds_a_trial_is_two_runs() -> None:
    made = plan(rounds_first=1, seeds=[0, 1])
    assert made.run_equivalents(made.methods[0]) == pytest.approx(14 / 3)
    # a method keeps its own number of trials
    assert plan(trials=5).run_equivalents(made.methods[0]) == 9


def test_halving_of_a_factor_of_two() -> None:
    """Of 5 trials 2 and then 1 go on. 5 * 2/8 + 2 * 2/8 + 1 * 4/8 = 2 1/4."""
    halving = Halving("stop.rounds", (0.25, 0.5, 1.0), 2)
    assert halving.counts(5) == (5, 2, 1)
    assert halving.run_equivalents(5) == 2.25


def test_parts_end_at_evaluations() -> None:
    """With an evaluation every 4 rounds of 20, runs that shall end after 1, 3 and 9 rounds end
    after 4 and 12."""
    made = plan(keys={**KEYS, "stop": {"rounds": 20}, "evaluate": {"every": 4}}, rounds_first=1)
    assert [made.halving.stop(made.bases[0], rung) for rung in range(3)] == [
        {"stop.rounds": 4},
        {"stop.rounds": 12},
        {},
    ]


def test_halving_by_virtual_time() -> None:
    made = plan(keys={**KEYS, "stop": {"virtual_hours": 9.0}}, hours_first=1.0)
    assert made.run_equivalents(made.methods[0]) == pytest.approx(7 / 3)
    assert made.halving.stop(made.bases[0], 1) == {"stop.virtual_hours": pytest.approx(3.0)}


def test_every_method_has_the_same_budget() -> None:
    made = plan({**RATE, "fedprox:algorithm.mu": "log:0.01..1"}, rounds_first=1, seeds=[0, 1])
    assert [sorted(method.spaces) for method in made.methods] == [
        ["local.optimizer.lr"],
        ["algorithm.mu", "local.optimizer.lr"],
    ]
    assert len({made.run_equivalents(method) for method in made.methods}) == 1
    assert "4.667 run-equivalents a method, 9.333 in all; then 6 test runs" in made.sentences()[0]


def test_no_more_trials_than_there_are_values() -> None:
    made = plan({"local.batch_size": [8, 16], "fedprox:algorithm.mu": "0.1..1"})
    assert [method.trials for method in made.methods] == [2, 9]
    assert (
        made.sentences()[1] == "all values of fedavg are tried in fewer trials: there are no more"
    )


def test_a_choice_by_clear_figures_of_private_data_is_said() -> None:
    pytest.importorskip("dp_accounting")
    private = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 8.0}
    said = "[privacy]: values are chosen by clear figures of the clients' validation samples"
    assert any(
        line.startswith(said) for line in plan(keys={**KEYS, "privacy": private}).sentences()
    )
    assert not any("[privacy]" in line for line in plan().sentences())


def test_validation_samples_are_added_and_said() -> None:
    made = plan(keys={**KEYS, "split": {}})
    assert made.bases[0].split.validation == 0.2
    assert made.sentences()[-1].startswith("split.validation = 0.2 was added to every run")
    assert plan().bases[0].split.validation == 0.25


def test_the_test_has_other_seeds() -> None:
    assert plan(seeds=[0, 11]).test_seeds == (10, 12, 13)
    with pytest.raises(
        ConfigError,
        match=r"--test-seeds: 1 would tune and test; a test needs seeds that tuning never saw, "
        r"e.g. 10, 11",
    ):
        plan(seeds=[0, 1], test_seeds=[1, 2])


def test_methods_of_the_files_grid() -> None:
    grid = {"algorithm": ["fedavg", {"name": "fedprox", "mu": 0.5}], "seed": [0, 1]}
    made = plan(keys={**KEYS, "grid": grid}, per="algorithm.name")
    assert [method.label for method in made.methods] == ["fedavg", "fedprox mu=0.5"]
    assert made.methods[1].experiment(made.bases[0], {}).part("algorithm").mu == 0.5
    named = plan(per={"slow": {"cohort": 1}, "wide": {"cohort": 4, "selector.name": "uniform"}})
    assert [method.experiment(named.bases[0], {}).cohort for method in named.methods] == [1, 4]


def test_a_study_is_known_by_what_decides_its_outcome() -> None:
    assert plan().study_id() == plan().study_id()
    others = [
        plan(seeds=[1]),
        plan(trials=8),
        plan({"local.optimizer.lr": "log:0.001..2"}),
        plan(objective="worst_tenth"),
    ]
    assert len({one.study_id() for one in (plan(), *others)}) == 5


@pytest.mark.parametrize(
    ("over", "options", "said"),
    [
        ({}, {}, "--over: there is nothing to tune"),
        (
            {"local.optimizer.momentun": "0.1..1"},
            {},
            r"--over local.optimizer.momentun: fedavg: .*did you mean 'momentum'[^;]*;[^;]*$",
        ),
        (
            {"algorithm.mu": "0.1..1"},
            {},
            "fedavg: .*; for one method alone write --over fedprox:algorithm.mu=0.1..1",
        ),
        ({"local.epochs": "0.5..2"}, {}, "--over local.epochs: fedavg: .*local.epochs: got 0.5"),
        ({"cohort": "int:1..9"}, {}, "cohort: got 9, more than the population of 4"),
        ({"seed": [0, 1]}, {}, "--over seed: says how a run is measured or stored"),
        ({"pin.split": [0, 1]}, {}, "--over pin.split: says how a run is measured or stored"),
        ({"stop.rounds": [3, 4]}, {}, "cannot be tuned"),
        ({"partition.alpha": [3, 4]}, {}, "--over partition.alpha: fedavg: "),
        (
            {"fedporx:algorithm.mu": "0.1..1"},
            {},
            r"there is no method 'fedporx' \(did you mean 'fedprox'\?\)",
        ),
        ({"fedprox:algorithm.mu": "0.1..1"}, {}, "nothing is tuned for 'fedavg'"),
        (RATE, {"trials": 0}, "--trials: got 0; expected at least 1"),
        (
            RATE,
            {"per": "algorithm.name"},
            "no grid of the file has values for it; write algorithm.name=a,b,c",
        ),
        (RATE, {"per": "algorithm.name=fedavg,fedporx"}, "did you mean 'fedprox'"),
        (RATE, {"objective": "acuracy"}, r"objective: got 'acuracy' \(did you mean 'accuracy'\?\)"),
        (RATE, {"objective": "time_to"}, "expected a target after a colon, e.g. time_to:0.8"),
        (
            RATE,
            {"objective": "time_to:80"},
            "target: got 80 for accuracy; expected a share above 0",
        ),
        (RATE, {"objective": "time_at:0.8"}, r"got 'time_at:0.8' \(did you mean 'time_to'\?\)"),
        (
            RATE,
            {"objective": ["accuracy", "accuracy"]},
            "expected one objective, or several different ones",
        ),
        (
            RATE,
            {"rounds_first": 9},
            "--rounds-first: got 9 of 9; expected more than 0 and less than the whole run",
        ),
        (
            RATE,
            {"hours_first": 1.0},
            "--hours-first: needs a run with an end in the same unit; write stop.virtual_hours",
        ),
        (RATE, {"rounds_first": 1, "hours_first": 1.0}, "halve by one of the two"),
        (RATE, {"rounds_first": 1, "factor": 1}, "--factor: got 1; expected at least 2"),
        (RATE, {"seeds": [0, 0]}, "--seeds: got 0, 0; expected different whole numbers"),
        (RATE, {"seeds": []}, "--seeds: got none"),
    ],
)
def test_what_cannot_be_tuned(over: Any, options: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan(over, **options)


def test_halving_by_rounds_that_nobody_examines_is_refused() -> None:
    """Every trial would run to its end."""
    with pytest.raises(
        ConfigError,
        match=r"--rounds-first: got 2 of 9, and evaluate.every = 10 examines no round between "
        r"them.*set evaluate.every = 2 or less",
    ):
        plan(keys={**KEYS, "evaluate": {"every": 10}}, rounds_first=2)


def test_trials_that_end_at_a_test_figure_are_refused() -> None:
    """The rate that is on target by its test samples first would be validated after fewer
    rounds."""
    ended_by_test = {**KEYS, "stop": {"rounds": 9, "target": {"accuracy": 0.6}}}
    with pytest.raises(ConfigError, match=r"stop.target: ends a run by its test figure.*patience"):
        plan(keys=ended_by_test)


def test_a_component_that_looks_at_the_last_round_is_not_halved_by_rounds() -> None:
    keys = {**KEYS, "local": {"lr_schedule": "cosine"}}
    with pytest.raises(
        ConfigError,
        match=r"local.lr_schedule looks at the planned number of rounds.*leave --rounds-first out",
    ):
        plan(keys=keys, rounds_first=1)
    assert plan(keys=keys).halving.shares == (1.0,)


def test_the_worst_tenth_needs_figures_of_clients() -> None:
    with pytest.raises(ConfigError, match=r"write evaluate = \{ per_client = true \}"):
        plan(keys={**KEYS, "evaluate": {"per_client": False}}, objective="worst_tenth")


def test_methods_whose_files_would_have_the_same_name_are_refused() -> None:
    methods = {"mu 0.1": {"algorithm": "fedprox"}, "mu/0.1": {"algorithm": "fedavg"}}
    with pytest.raises(
        ConfigError,
        match=r"the methods 'mu 0\.1' and 'mu/0\.1' would be written into the same folder mu-0\.1; "
        "name them otherwise",
    ):
        plan(per=methods)
