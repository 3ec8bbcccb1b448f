"""Objectives of runs, worked by hand, and the order in which trials come."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from motley.results.load import Run
from motley.results.schema import TABLES
from motley_advice.tuning.objectives import (
    DIVERGED,
    MISSED,
    ObjectiveValue,
    Samples,
    mean_value,
    parse_objective,
)
from motley_advice.tuning.outcome import (
    StepResult,
    TunedMethod,
    TuningTrial,
    best_of,
    better_before,
)
from tests.motley.results import fake


def table(name: str, rows: list[dict[str, Any]]) -> pa.Table:
    """A recorded table with gaps where a row has no value."""
    whole = [{column: row.get(column) for column in TABLES[name].names} for row in rows]
    return pa.Table.from_pylist(whole, schema=TABLES[name])


def run(
    validation: list[float | None],
    test: list[float],
    clients: list[float] | None = None,
    metric: str = "accuracy",
) -> Run:
    """A run with an evaluation after rounds 0, 1, 2, ... at 10 s and 16 Mbit each, on clients' own
    test samples."""
    rows: list[dict[str, Any]] = []
    for scope, values in (("validation_mean", validation), ("mean", test)):
        rows += [
            {"round": i, "scope": scope, "client": -1, metric: value}
            for i, value in enumerate(values)
        ]
    last = len(test) - 1
    rows += [
        {"round": last, "scope": "validation_client", "client": i, "accuracy": one}
        for i, one in enumerate(clients or [])
    ]
    rows = [
        {"time_s": 10.0 * row["round"], "total_bits": 16e6 * row["round"], "loss": 1.0, **row}
        for row in rows
    ]
    rounds = [{"round": i, "time_s": 10.0 * i, "total_bits": 16e6 * i} for i in range(1, len(test))]
    tables = {"evaluations": table("evaluations", rows), "rounds": table("rounds", rounds)}
    return Run(
        Path("."), {"config": {"split": {"test": "client"}}, "task": {"metric": metric}}, tables
    )


def test_a_metric_is_the_mean_of_the_evaluations_after_round_0_on_validation_samples() -> None:
    found = parse_objective("headline").measured(
        run([0.1, 0.4, 0.6], [0.1, 0.9, 0.9]), "validation"
    )
    assert (found.value, found.order) == (pytest.approx(0.5), pytest.approx(-0.5))
    assert parse_objective("accuracy").measured(
        run([0.1, 0.4, 0.6], [0.1, 0.9, 0.9]), "test"
    ).value == pytest.approx(0.9)


def test_less_of_a_loss_is_better() -> None:
    assert parse_objective("loss").measured(run([0.1, 0.4], [0.1, 0.9]), "validation").order == 1.0


def test_the_worst_tenth_is_the_mean_of_the_lowest_tenth_of_clients() -> None:
    """Of eleven clients a tenth, rounded up, is two: 0.1 and 0.3."""
    values = [0.9] * 9 + [0.3, 0.1]
    assert parse_objective("worst_tenth").measured(
        run([0.1, 0.4], [0.1, 0.9], values), "validation"
    ).value == pytest.approx(0.2)


def test_time_and_traffic_to_a_target() -> None:
    """0.8 is reached on validation samples in round 2: 20 virtual seconds, 32 Mbit or 4 MB. On test
    samples it is in round 1."""
    given = run([0.1, 0.5, 0.8, 0.7], [0.1, 0.9, 0.9, 0.9])
    time = parse_objective("time_to:0.8")
    traffic = parse_objective("traffic_to:0.8")
    assert time.measured(given, "validation") == ObjectiveValue(20.0, True, 20.0)
    assert traffic.measured(given, "validation") == ObjectiveValue(4.0, True, 4.0)
    assert time.measured(given, "test").value == 10.0


def test_a_broken_run_missed_its_target_with_all_that_it_had_spent() -> None:
    """0.5 after 10 s, and no number from then until the end at 30 s."""
    broken = run([0.1, 0.5, None, None], [0.1, 0.9, 0.9, 0.9])
    time = parse_objective("time_to:0.8").measured(broken, "validation")
    traffic = parse_objective("traffic_to:0.8").measured(broken, "validation")
    assert (time.value, time.reached) == (30.0, False)
    assert (traffic.value, traffic.reached) == (6.0, False)


def test_a_missed_target_comes_after_every_one_reached_and_nearer_ones_before_farther() -> None:
    time = parse_objective("time_to:0.8")
    near, far = (time.measured(run([0.1, best], [0.1, 0.9]), "validation") for best in (0.7, 0.2))
    assert (near.value, near.reached) == (10.0, False)
    assert MISSED < near.order < far.order < DIVERGED
    reached = ObjectiveValue(1e6, True, 1e6)
    one = mean_value([reached, near])
    two = mean_value([near, near])
    assert reached.order < one.order < two.order
    assert (one.value, one.reached) == ((1e6 + 10.0) / 2, False)


def test_a_loss_far_from_its_target_has_missed_and_not_diverged() -> None:
    """A squared error of 1,500 mmHg^2 that should be 100."""
    time = parse_objective("time_to:100")
    near, far = (
        time.measured(run([9e3, best], [9e3, 9e3], metric="loss"), "validation")
        for best in (1500.0, 8000.0)
    )
    assert not near.diverged
    assert MISSED < near.order < far.order < DIVERGED
    # two runs that missed come after one, however far that one was
    reached = ObjectiveValue(10.0, True, 10.0)
    assert mean_value([reached, far]).order < mean_value([near, near]).order


def test_a_trial_without_a_number_is_the_worst() -> None:
    gone = parse_objective("headline").measured(run([None, None], [0.1, 0.2]), "validation")
    assert gone.diverged
    assert mean_value([gone, ObjectiveValue(0.9, True, -0.9)]).diverged
    assert (
        parse_objective("time_to:0.8")
        .measured(run([None, None], [0.1, 0.2]), "validation")
        .diverged
    )


def test_a_trial_that_was_ruined_in_the_end_is_not_judged_by_what_it_was_before() -> None:
    """Losses 1 and 0.2, then none: 0.2 would make a rate at which training breaks the best."""
    for scope in ("mean", "validation_mean"):
        ended = fake.of_losses([2.0, 1.0, 0.2, float("nan")], scopes={"validation_mean": 0.3})
        rows = ended.tables["evaluations"].to_pylist()
        rows = [{**row, "scope": scope} for row in rows if row["scope"] == "mean"]
        table = pa.Table.from_pylist(rows, schema=TABLES["evaluations"])
        keys = {"split": {"test": "client"}}
        run = fake.run(keys, {"metric": "loss"}, evaluations=table)
        samples: Samples = "test" if scope == "mean" else "validation"
        assert parse_objective("headline").measured(run, samples).diverged


def _trial(number: int, *orders: float) -> TuningTrial:
    return TuningTrial(
        number, {}, (StepResult(tuple(ObjectiveValue(-one, True, one) for one in orders), 1.0),)
    )


def test_the_best_of_several_objectives_has_the_lowest_sum_of_ranks() -> None:
    """Ranks: trial 0 has 0 + 2, trial 1 has 1 + 0, trial 2 has 2 + 1."""
    trials = [_trial(0, -0.9, 30.0), _trial(1, -0.8, 10.0), _trial(2, -0.1, 20.0)]
    assert [one.number for one in best_of(trials, 0)] == [1, 0, 2]
    # of equals the earlier
    assert [one.number for one in best_of([_trial(0, -0.5), _trial(1, -0.5)], 0)] == [0, 1]


def _halved(number: int, *accuracy: float) -> TuningTrial:
    """A trial with an accuracy after each part of its run."""
    return TuningTrial(
        number, {}, tuple(StepResult((ObjectiveValue(one, True, -one),), 1.0) for one in accuracy)
    )


@pytest.mark.parametrize(
    ("trials", "expected"),
    [
        # the chosen one itself fell
        ([_halved(0, 0.6), _halved(1, 0.7, 0.8, 0.2), _halved(2, 0.7, 0.75)], (1, 1)),
        # another led before it was stopped
        ([_halved(0, 0.6), _halved(1, 0.7, 0.8, 0.85), _halved(2, 0.9, 0.75)], (2, 0)),
        ([_halved(0, 0.6), _halved(1, 0.7, 0.8, 0.8), _halved(2, 0.7, 0.75)], None),
        ([_halved(0, 0.6), _halved(1, 0.7)], None),  # whole runs alone
    ],
)
def test_training_that_gets_worse_after_a_part_is_noticed(
    trials: list[TuningTrial], expected: tuple[int, int] | None
) -> None:
    found = better_before(TunedMethod(None, tuple(trials), trials[1], ()))  # type: ignore[arg-type]
    assert expected == (None if found is None else (found[0].number, found[1]))
