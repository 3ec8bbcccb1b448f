"""Which methods are held against each other, and with what verdict."""

from __future__ import annotations

import csv
from dataclasses import replace
from math import isnan
from pathlib import Path
from typing import Any

import pytest

from motley.core.errors import ConfigError
from motley.results import measures
from motley.results.columns import of_group
from motley.results.labels import group_runs
from motley.results.load import Run
from motley.results.method_rows import (
    TargetRow,
    differences,
    method_rows,
    metric_rows,
    not_compared,
    references,
)
from motley.results.tables import fairness, pairs, summary
from motley.results.terminal import terminal_tables
from motley_report.report import report, warnings
from tests.motley.results import fake

APART = "scaffold is not compared: no other method has the same data, clients and devices."


def curves(ends: tuple[float, ...], algorithm: str, **world: Any) -> list[Run]:
    """A run for each seed, evaluated once, in a world."""
    return [
        fake.run(
            {"algorithm": {"name": algorithm}, **world},
            seed=seed,
            evaluations=fake.table(
                "evaluations", round=[1], scope=["global"], client=[-1], accuracy=[end]
            ),
        )
        for seed, end in enumerate(ends)
    ]


def dirichlet(alpha: float) -> dict[str, Any]:
    return {"partition": {"name": "dirichlet", "alpha": alpha}}


def grid() -> list[Run]:
    """On alpha 0.1 scaffold gains 10, 12, 14 points, on alpha 10 it loses 1, 3, 5."""
    return [
        *curves((0.5, 0.5, 0.5), "fedavg", **dirichlet(0.1)),
        *curves((0.6, 0.62, 0.64), "scaffold", **dirichlet(0.1)),
        *curves((0.8, 0.8, 0.8), "fedavg", **dirichlet(10.0)),
        *curves((0.79, 0.77, 0.75), "scaffold", **dirichlet(10.0)),
    ]


def test_a_method_is_compared_on_its_own_data() -> None:
    """Two comparisons: t(1 - .05 / 4, 2) = 6.205347, 2 / sqrt(3) times it 7.1653."""
    groups = group_runs(grid())
    assert references(groups) == {
        "scaffold, alpha 0.1": "fedavg, alpha 0.1",
        "scaffold, alpha 10.0": "fedavg, alpha 10.0",
    }
    found = differences(groups)
    assert [(one.label, one.base, one.verdict) for one in found] == [
        ("scaffold, alpha 0.1", "fedavg, alpha 0.1", "better"),
        ("scaffold, alpha 10.0", "fedavg, alpha 10.0", "no clear difference"),
    ]
    assert [round(one.interval.mean, 6) for one in found] == [12.0, -3.0]
    assert round(found[0].interval.high, 4) == 19.1653
    table = pairs(groups)
    assert table is not None
    assert table.heads == (
        "final accuracy against the reference of the same data, clients and devices",
        "against",
        "difference",
        "95% interval",
        "seeds",
        "verdict",
    )
    assert table.title == (
        "final accuracy against the reference of the same data, clients and devices in points, "
        "paired by seed"
    )


def test_the_table_names_every_reference(tmp_path: Path) -> None:
    report(grid(), tmp_path, format="latex")
    assert (
        "scaffold, alpha 0.1 & fedavg, alpha 0.1 & $12.00"
        in (tmp_path / "differences.tex").read_text()
    )


def test_a_csv_says_that_its_intervals_hold_together(tmp_path: Path) -> None:
    """It has no caption: a bound of two comparisons, 7.17 away, would pass for a plain one, 4.97
    away."""
    for plain, head, high in ((False, "95% high (2 together)", 19.17), (True, "95% high", 16.97)):
        report(grid(), tmp_path, format="csv", plain_intervals=plain)
        first, _ = csv.DictReader((tmp_path / "differences.csv").read_text().splitlines())
        assert round(float(first[f"Difference (points), {head}"]), 2) == high


def test_a_method_alone_on_its_data_has_no_verdict() -> None:
    runs = [
        *curves((0.5, 0.5), "fedavg", **dirichlet(0.1)),
        *curves((0.8, 0.9), "scaffold", **dirichlet(10.0)),
    ]
    groups = group_runs(runs)
    assert differences(groups) == []
    assert pairs(groups) is None
    both = not_compared(groups)
    assert both == (
        "fedavg, alpha 0.1; scaffold, alpha 10.0 are not compared: no other method has the same "
        "data, clients and devices."
    )
    assert both in warnings(groups)


def test_one_method_alone_beside_others_counts_in_no_correction() -> None:
    runs = [
        *curves((0.5, 0.5), "fedavg"),
        *curves((0.6, 0.7), "fedprox"),
        *curves((0.8, 0.9), "scaffold", population=9),
    ]
    groups = group_runs(runs)
    (only,) = differences(groups)
    assert (only.label, only.base) == ("fedprox", "fedavg")
    assert not_compared(groups) == APART
    table = pairs(groups)
    assert table is not None
    assert APART in table.note
    assert "Left out" not in table.note


def test_data_are_compared_where_the_method_is_one() -> None:
    runs = [
        *curves((0.5, 0.5), "fedavg", **dirichlet(0.1)),
        *curves((0.7, 0.8), "fedavg", **dirichlet(10.0)),
    ]
    groups = group_runs(runs)
    (only,) = differences(groups)
    assert (only.label, only.base, round(only.interval.mean, 6)) == (
        "alpha 10.0",
        "alpha 0.1",
        25.0,
    )
    table = pairs(groups)
    assert table is not None
    assert "It is one method on several data, clients or devices" in table.note
    assert not_compared(groups) == ""


def test_a_run_that_ended_in_ruin_has_no_end_and_is_in_no_pair() -> None:
    """Losses 2, 1, 0.5 and no number: 0.5 is not how the run ended."""

    def run(method: str, seed: int, losses: list[float]) -> Run:
        rounds = list(range(1, len(losses) + 1))
        rows = fake.table(
            "evaluations",
            round=rounds,
            scope=["mean"] * len(rounds),
            client=[-1] * len(rounds),
            loss=losses,
        )
        config = {"algorithm": {"name": method}}
        return fake.run(config, {"metric": "loss"}, seed, evaluations=rows)

    runs = [run("fedavg", seed, [2.0, 1.0, 0.6 + 0.1 * seed, 0.5]) for seed in range(3)]
    runs += [run("fedprox", seed, [2.0, 1.0, 0.5, 0.4 + 0.05 * seed]) for seed in range(2)]
    runs.append(run("fedprox", 2, [2.0, 1.0, 0.5, float("nan")]))
    assert isnan(measures.ends_of(runs[-1]).final)
    assert measures.ends_of(runs[-1]).peak == 0.5
    groups = group_runs(runs)
    rows = {row.label: row for row in method_rows(groups)}
    assert isnan(rows["fedprox"].end("final").mean)
    assert rows["fedprox"].end("peak").n == 3
    assert rows["fedavg"].end("final").mean == 0.5
    (only,) = differences(groups)
    assert (only.end, only.interval.n) == ("final", 2)
    assert round(only.interval.mean, 6) == -0.075
    table = pairs(groups)
    assert table is not None
    assert "In no pair, for their loss was not finite at the end: fedprox, seed 2." in table.note


def test_clients_of_a_method_that_was_ruined_in_a_seed_have_no_figures() -> None:
    """Of ten clients one has no loss in seed 0: nine with 0.02 and the other seed would flatter
    ditto, and a line left out would hide it."""
    nan = float("nan")
    runs = [fake.of_losses([2.0, 0.04], [0.04] * 10, "fedavg", seed) for seed in range(2)]
    runs += [
        fake.of_losses([2.0, nan], [0.02] * 9 + [nan], "ditto", 0),
        fake.of_losses([2.0, 0.02], [0.02] * 10, "ditto", 1),
    ]
    groups = group_runs(runs)
    rows = {row.label: row for row in method_rows(groups)}
    assert rows["fedavg"].served("worst_decile").mean == pytest.approx(0.04)
    assert isnan(rows["ditto"].served("mean").mean)
    table = fairness(groups)
    assert table is not None
    shown = {row.label: [cell.text for cell in row.cells] for row in table.rows}
    assert shown["ditto"] == ["–"] * 4
    (by_domain,) = [of_group("domain", 0).of(rows["ditto"])]
    assert isnan(by_domain.mean)  # type: ignore[union-attr]


def test_a_metric_of_a_ruined_seed_has_no_end() -> None:
    """AUROC 0.9 in seed 0, none in seed 1, where the loss is none either; where the loss is a
    number, the metric is undefined, and the other seed counts."""

    def run(seed: int, auroc: float | None, loss: float | None) -> Run:
        at = {"round": [1], "scope": ["mean"], "client": [-1]}
        metrics = [{"name": name, "share": True} for name in ("accuracy", "auroc")]
        return fake.run(
            {"split": {"test": "client"}},
            {"metric": "accuracy", "metrics": metrics},
            seed,
            evaluations=fake.table("evaluations", **at, loss=[loss], accuracy=[0.5]),
            metrics=fake.table("metrics", **at, metric=["auroc"], value=[auroc]),
        )

    _, lost = metric_rows([run(0, 0.9, 0.3), run(1, None, None)])
    assert isnan(lost.numbers[0].mean)
    assert lost.numbers[1].mean == pytest.approx(90.0)  # its best
    _, undefined = metric_rows([run(0, 0.9, 0.3), run(1, None, 0.2)])
    assert (undefined.numbers[0].mean, undefined.numbers[0].n) == (pytest.approx(90.0), 1)


def test_a_run_that_missed_the_target_counts_with_all_it_spent() -> None:
    """Loss 0.5 after round 2 of 10, and no number from round 3 on: not two minutes, all ten."""
    nan = float("nan")
    runs = [
        fake.of_losses([2.0, 1.0, 0.5, *[0.1] * 8], seed=0),
        fake.of_losses([2.0, 1.0, 0.5, *[nan] * 8], seed=1),
    ]
    row = TargetRow("fedavg", runs, 0.2)
    assert [(cost.value, cost.reached) for cost in row.cost("time_s", 60.0).each] == [
        (180.0, True),
        (600.0, False),
    ]
    assert row.cost("rounds").mean == measures.Censored(6.5, False)


def test_the_title_says_how_many_seeds_a_method_has() -> None:
    runs = [*curves((0.5, 0.6), "fedavg"), *curves((0.5, 0.6, 0.7), "scaffold")]
    runs[0] = replace(runs[0], meta={**runs[0].meta, "seed": 7})
    assert summary(group_runs(runs)).title.endswith("mean ± deviation over 2 to 3 seeds")


def test_the_terminal_compares_one_metric() -> None:
    runs = [*curves((0.5,), "fedavg"), fake.of_losses([2.0, 1.0], method="scaffold")]
    with pytest.raises(ConfigError, match="compared in one metric, got accuracy, loss"):
        terminal_tables(runs)
