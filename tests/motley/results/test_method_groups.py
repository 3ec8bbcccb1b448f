"""The reference of a comparison: which method it is, and what it looks like."""

from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.colors import to_hex

from motley.core.errors import ConfigError
from motley.results.comparison_file import record_comparison
from motley.results.labels import group_runs
from motley.results.method_groups import (
    labels_by_number,
    method_numbers,
    reference_of,
)
from motley_report import plots
from motley_report.report import printable_groups, report
from tests.motley.results import fake


def runs_of(*selectors, folder=Path("nowhere")):
    return [
        replace(fake.run({"selector": {"name": name}}), directory=folder / name / "0")
        for name in selectors
    ]


def test_the_reference_is_what_is_asked_for_else_remembered_else_usual(tmp_path):
    runs = runs_of("oort", "flash", "uniform", folder=tmp_path)
    assert group_runs(runs).reference == "uniform"
    assert group_runs(runs[:2]).reference == "oort"
    record_comparison(tmp_path, [run.directory for run in runs], [runs[1].directory])
    assert group_runs(runs).reference == "flash"
    assert group_runs(runs, against="oort").reference == "oort"
    assert group_runs([runs[0], runs[2]]).reference == "uniform"  # flash has no run here
    assert reference_of(dict(group_runs(runs))) == "flash"
    assert printable_groups(runs, "oort").reference == "oort"


def test_the_usual_reference_is_made_of_usual_names_alone():
    def made(*pairs):
        return group_runs(
            [
                fake.run({"algorithm": {"name": algorithm}, "selector": {"name": selector}})
                for algorithm, selector in pairs
            ]
        )

    grid = [(a, s) for a in ("fedprox", "fedavg") for s in ("oort", "uniform")]
    assert made(*grid).reference == "fedavg, uniform"
    assert made(*reversed(grid)).reference == "fedavg, uniform"


def test_a_name_that_no_method_has_is_refused():
    message = (
        r"got 'unifrom' \(did you mean 'uniform'\?\); expected one of the methods: oort; uniform"
    )
    with pytest.raises(ConfigError, match=message):
        group_runs(runs_of("oort", "uniform"), against="unifrom")
    with pytest.raises(ConfigError, match=message):
        report(runs_of("oort", "uniform"), "report.html", against="unifrom")


def test_what_is_neither_true_nor_false_and_a_number_as_a_name_are_refused():
    with pytest.raises(ConfigError, match=r"^plain_intervals: got 'x'; expected true or false$"):
        report(runs_of("oort", "uniform"), "report.html", plain_intervals="x")
    with pytest.raises(ConfigError, match=r"^against: got 3; expected one of the methods: oort; "):
        report(runs_of("oort", "uniform"), "report.html", against=3)


def test_the_reference_keeps_its_colour_and_rows_their_order():
    few = group_runs(runs_of("oort", "uniform"))
    many = group_runs(runs_of("flash", "oort", "flude", "uniform", "greedy"))
    assert method_numbers(few) == [1, 0]
    assert method_numbers(many) == [1, 2, 3, 0, 4]
    assert list(many) == ["flash", "oort", "flude", "uniform", "greedy"]
    assert labels_by_number(many) == ["uniform", "flash", "oort", "flude", "greedy"]


def test_pictures_have_the_reference_in_the_first_colour():
    rows = fake.table("evaluations", round=[1], scope=["global"], client=[-1], accuracy=[0.5])
    runs = [
        replace(run, tables={**run.tables, "evaluations": rows}) for run in runs_of("a", "uniform")
    ]
    bars = plots.headline_bars(group_runs(runs))
    legend = bars.figure.legends[0]
    assert [text.get_text() for text in legend.get_texts()] == ["a", "uniform"]
    colours = [to_hex(patch.get_facecolor()) for patch in legend.get_patches()]
    assert colours == ["#d55e00", "#0072b2"]
