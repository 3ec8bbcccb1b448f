"""The file of a published table: what is read, what is refused, and the skeleton."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from motley import cli
from motley.core.errors import ConfigError, DataError
from motley.experiments.skeleton import skeleton
from motley_papers.measuring import measure_of
from motley_papers.published_table import names, printed_numbers, read
from motley_papers.referee import (
    cell_table,
    cells_csv,
    counted,
    keep,
    kept,
    outside,
    referee,
    remarks,
    write,
)

TABLE = '''
title = "A table"
seeds = [0, 1]
unit = 100
printed_seeds = 2
printed = """
method | accuracy  | again
FedAvg | {cell}    | -
FedSGD | .10 ± .00 | .20
"""
[base]
task = {{ name = "image", data = "digits", model = "digits_mlp" }}
population = 4
cohort = 2
stop = {{ rounds = 1 }}
local = {{ steps = 1, batch_size = 4 }}
evaluate = {{ every = 1000 }}
[method.FedAvg]
[method.FedSGD]
"local.optimizer.lr" = 1e-9
[columns]
accuracy = "final"
again = "final"
{more}
'''


@pytest.fixture
def table(tmp_path: Path):
    def make(cell: str = ".10 (.00)", more: str = "", **changes: str) -> Path:
        text = TABLE.format(cell=cell, more=more)
        for old, new in changes.items():
            text = text.replace(old, new)
        path = tmp_path / "theirs.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return make


@pytest.mark.parametrize("name", names())
def test_tables_of_the_package_are_short_and_whole(name):
    table = read(name)
    assert {row for row, _ in table.numbers} <= set(table.method)
    text = (Path(__file__).parents[2] / "packages/motley-papers/src/motley_papers/tables").joinpath(
        f"{name}.toml"
    )
    assert len(text.read_text(encoding="utf-8").splitlines()) < 100


def test_printed_numbers_as_they_are_written():
    numbers = printed_numbers("| m | a | b |\n|---|---|---|\n| x | 1.50±.2 | 3e1 +- 2 |")
    assert (numbers["x", "a"].mean, numbers["x", "a"].deviation) == (1.5, 0.2)
    assert numbers["x", "a"].rounding == pytest.approx(0.005)
    assert (numbers["x", "b"].mean, numbers["x", "b"].deviation) == (30.0, 2.0)


@pytest.mark.parametrize(
    ("text", "mean", "deviation"),
    [
        ("92.71%", 92.71, None),
        ("**92.71**", 92.71, None),
        ("92.71% ± 0.2%", 92.71, 0.2),
        (r"$\mathbf{92.71} \pm 0.2$", 92.71, 0.2),
        (r"\textbf{92.71\%} (.2)", 92.71, 0.2),
        ("−1.5", -1.5, None),
        (r"\underline{92.71}", 92.71, None),
        ("92.71_{0.2}", 92.71, 0.2),
        (r"$92.71_{\pm 0.2}$", 92.71, 0.2),
        ("92.71 (±.2)", 92.71, 0.2),
        ("92.71 +/- .2", 92.71, 0.2),
        ("92.71 +- .2", 92.71, 0.2),
        (r"$92.71^{\pm 0.2}$", 92.71, 0.2),
        (r"92.71\,$\pm$\,0.2", 92.71, 0.2),
        (r"92.71~$\pm$~0.2", 92.71, 0.2),
        (r"{\bf 92.71} {\scriptsize $\pm$ 0.2}", 92.71, 0.2),
    ],
)
def test_numbers_as_pages_and_latex_write_them(text, mean, deviation):
    number = printed_numbers(f"m | a\nx | {text}")["x", "a"]
    assert number.mean == mean
    assert number.decimals == (1 if text == "−1.5" else 2)
    assert number.deviation == deviation if deviation else np.isnan(number.deviation)


@pytest.mark.parametrize(
    ("text", "mean", "rounding", "decimals"),
    [
        (".61", 0.61, 0.005, 2),
        ("6.1e-1", 0.61, 0.005, 2),
        ("9e-1", 0.9, 0.05, 1),
        ("9E-1 +/- 1e-2", 0.9, 0.05, 1),
        ("1.25e3", 1250.0, 5.0, 0),
        ("1250", 1250.0, 0.5, 0),
        ("61.0", 61.0, 0.05, 1),
    ],
)
def test_the_last_printed_digit_says_how_a_number_was_rounded(text, mean, rounding, decimals):
    number = printed_numbers(f"m | a\nx | {text}")["x", "a"]
    assert number.mean == pytest.approx(mean)
    assert number.rounding == pytest.approx(rounding)
    assert number.decimals == decimals


def test_a_table_of_latex_has_its_own_lines():
    text = r"""
    method & acc & loss \\[2pt] \toprule
    \textbf{FedAvg} & $80.8_{\pm 0.9}$ & -- \\
    \cmidrule(lr){2-3}
    A \& B & 79.0\% $\pm$ 1.2 & 1.5 \\ \hline
    """
    numbers = printed_numbers(text)
    assert [(*key, number.mean) for key, number in numbers.items()] == [
        ("FedAvg", "acc", 80.8),
        (r"A \& B", "acc", 79.0),
        (r"A \& B", "loss", 1.5),
    ]
    assert numbers[r"A \& B", "acc"].deviation == 1.2


def test_a_table_of_latex_may_be_pasted_whole():
    """With its frame, whose columns have lines between them, and what is commented out."""
    text = r"""
    \begin{tabular}{l|cc}
    method & acc & loss \\
    % old & 1 & 2 \\
    FedAvg & 80.8 & -- \\ Ditto & 79.0\% & 1.5 \\ \hdashline
    \end{tabular}
    """
    numbers = printed_numbers(text)
    assert [(*key, number.mean) for key, number in numbers.items()] == [
        ("FedAvg", "acc", 80.8),
        ("Ditto", "acc", 79.0),
        ("Ditto", "loss", 1.5),
    ]


def test_an_empty_cell_at_the_border_is_not_printed():
    numbers = printed_numbers("||a|b|\n|-|-|-|\n|x|1||\n|y||2|")
    assert list(numbers) == [("x", "a"), ("y", "b")]


@pytest.mark.parametrize(
    "text", ["1e400", "1 ± 1e400", "$10^{3}$", "$92.7^{*}$", "~92.7", "92.7 [92.1, 93.3]"]
)
def test_what_is_no_number_is_refused(text):
    """A power is no deviation, and what is about a number is not the number."""
    with pytest.raises(ConfigError, match=r"at x, a; expected MEAN ± DEVIATION, MEAN \(DEV"):
        printed_numbers(f"m | a\nx | {text}")


def test_what_is_not_printed_and_bold_names():
    text = "m | **a** | \\textbf{b}\n**x** | − | n/a\n\\textbf{y} | 1 | 2"
    assert list(printed_numbers(text)) == [("y", "a"), ("y", "b")]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cell": "much"}, "got 'much' at FedAvg, accuracy; expected MEAN ± DEVIATION"),
        ({"[method.FedSGD]": "[method.FedSDG]"}, r"printed has 'FedSGD' \(did you mean 'FedSDG'\?"),
        ({'again = "final"': 'agian = "final"'}, "printed has 'again'.*no such key"),
        ({'"final"\nagain': '"finale"\nagain'}, "there is no measure 'finale'"),
        (
            {'again = "final"': 'again = { partition = "shards" }'},
            r"columns.again: got {'partition': 'shards'}; expected settings and the measure",
        ),
        ({"seeds = [0, 1]": "seeds = []"}, "seeds is empty"),
        ({"seeds = [0, 1]": "seeds = [0, 1, 0]"}, "seeds has 0 twice"),
        ({"cell": ".1 ± -.02"}, "got '.1 ± -.02' at FedAvg, accuracy"),
        ({"| again": "| accuracy"}, "printed: got the column 'accuracy' twice"),
        ({"\nFedSGD |": "\nFedAvg |"}, "printed: got the row 'FedAvg' twice"),
        ({"unit = 100": "unit = 0"}, "unit: got 0; expected .*above 0"),
        ({"unit = 100": "unit = inf"}, "unit: got inf"),
        ({"unit = 100": "unit = 100\nmatters = -1"}, "matters: got -1; expected .*above 0"),
        ({"unit = 100": "unit = 100\nwithin = nan"}, "within: got nan"),
        (
            {"printed_seeds = 2": "printed_seeds = -3"},
            "printed_seeds: got -3; expected .*at least 1",
        ),
        (
            {"printed_seeds = 2": 'printed_seeds = 1\nspread = "interval"'},
            "spread: got 'interval'.*write printed_seeds, two or more",
        ),
        ({"FedSGD | .10 ± .00 | .20": "FedSGD | .10"}, "2 cells; expected 3"),
        ({"title": "titel"}, "title"),
        (
            {"[method.FedAvg]": "[method]\nFedAvg = 'fedavg'"},
            "method.FedAvg: got 'fedavg'; .*row s",
        ),
        ({"more": "matters = 0.1"}, "columns.matters: got 0.1; .*stand above .base."),
        (
            {"[method.FedAvg]": "[method.FedAvg]\nseed = 9"},
            "method.FedAvg.seed: got 9; the table's",
        ),
        ({"[base]": "[base]\ngrid = { seed = [0] }"}, "base.grid: got .*a row for each method"),
        ({"[base]": "[base]\nseed = 9"}, "base.seed: got 9; .*write seeds = "),
        ({"unit = 100": "options = { a = 1 }"}, "options: .*write task = .my_data.py:make"),
        ({'again = "final"': 'again = "client.²"'}, "there is no measure 'client.²'"),
        (
            {"more": '[[deviation]]\nwhat = "x"\nmethods = ["FedAvgg"]'},
            "a deviation has 'FedAvgg' .*FedAvg",
        ),
    ],
)
def test_mistakes_are_named(table, changes, message):
    with pytest.raises(ConfigError, match=message):
        read(table(**changes))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"does not exist.*expected a file of a table, or one of"):
        read(tmp_path / "none.toml")


def test_a_table_is_run_and_judged(table, tmp_path):
    """Two runs each of a model that hardly learns, printed with a tenth right, and far too much."""
    more = '[[deviation]]\nwhat = "they took the best round"\nmethods = ["FedAvg"]'
    path = table(cell=".99 ± .00", more=more)
    refereed = referee(read(path), out=tmp_path / "runs")
    assert refereed.counts["printed"] == refereed.counts["measured"] == 3
    cell = refereed.cells["FedAvg", "accuracy"]
    assert len(cell.values) == 2
    assert all(0 < value < 0.5 for value in cell.values)
    assert ("!" in cell_table(refereed).rows[0].cells[0].text) == (cell.verdict == "outside")
    assert refereed.causes("FedAvg", "accuracy") == ["they took the best round"]
    assert not refereed.causes("FedSGD", "accuracy")
    assert all("they took the best round" in line for line in outside(refereed) if "FedAvg" in line)
    assert not any("counts as one run" in line for line in outside(refereed))
    single = replace(refereed, table=refereed.table.model_copy(update={"printed_seeds": None}))
    values = {("FedSGD", "accuracy"): {0: 0.5, 1: 0.5001}}
    (line,) = outside(replace(single, values=values))
    assert line.endswith("is known of your runs alone: add seeds, --seeds")
    assert "3 printed, 3 measured" in counted(refereed)
    assert cells_csv(refereed).count("\n") == 4
    assert [path.name for path in write(refereed)] == ["report.html", "report.md", "cells.csv"]
    again = referee(read(path), out=tmp_path / "runs", run=False)
    assert again.cells == refereed.cells
    with pytest.raises(ConfigError, match="got the method 'Nobody'; expected some of: FedAvg"):
        referee(read(path), methods=["Nobody"])


def test_seeds_are_added_and_rows_that_are_not_asked_for_count(table, tmp_path):
    """Whoever could leave out the runs that came first would choose the verdict."""
    out = tmp_path / "runs"
    read_table = read(table())
    referee(read_table, out=out, seeds=[0])
    added = referee(read_table, out=out, seeds=[5, 6], methods=["FedAvg"])
    assert added.chosen == {("FedAvg", "accuracy", 5), ("FedAvg", "accuracy", 6)}
    assert added.finished == 2  # of what was asked for
    assert list(added.runs["FedAvg", "accuracy"]) == [0, 5, 6]
    assert list(added.runs["FedSGD", "accuracy"]) == [0]
    assert len(added.cells["FedAvg", "accuracy"].values) == 3
    assert len(list((out / "runs").glob("*/run.json"))) == 4
    again = referee(read_table, out=out, run=False)
    assert again.cells == added.cells


def test_one_cell_of_a_table_is_judged_as_one_of_all(table, tmp_path):
    """Two runs of two printed, a deviation of .01 each: the error is .01, and the interval of 95 %
    among three cells is 7.6488 of it wide, alone 4.3027 (t of two degrees of freedom)."""
    values = {("FedAvg", "accuracy"): {0: 0.5, 1: 0.5 + 0.01 * 2**0.5}}
    mean = 0.5 + 0.01 * 2**-0.5
    for away, verdict in ((0.07, "undecided"), (0.08, "outside")):
        cell = f"{mean - away:.9f} ± .01"
        refereed = replace(referee(read(table(cell=cell)), out=tmp_path, run=False), values=values)
        judged = refereed.cells["FedAvg", "accuracy"]
        assert judged.half == pytest.approx(0.043027, rel=1e-4)
        assert judged.verdict == verdict


def test_a_printed_standard_error_or_interval_is_made_a_deviation(table, tmp_path):
    """Of 4 runs: the deviation is twice the standard error, and .628 of half the interval. With two
    measured runs that do not differ s is the printed deviation times sqrt(3 / 4), and the error
    times sqrt(1 / 2 + 1 / 4)."""
    values = {("FedAvg", "accuracy"): {0: 0.5, 1: 0.5}}
    halves = {}
    for spread in ("deviation", "standard_error", "interval"):
        keys = {"printed_seeds = 2": f'printed_seeds = 4\nspread = "{spread}"'}
        path = table(cell=".5 ± .02", **keys)
        refereed = replace(referee(read(path), out=tmp_path, run=False), values=values)
        halves[spread] = refereed.cells["FedAvg", "accuracy"].half
    assert halves["deviation"] == pytest.approx(0.02 * 0.75 * 2.776445, rel=1e-6)
    assert halves["standard_error"] == pytest.approx(2 * halves["deviation"])
    assert halves["interval"] == pytest.approx(2 / 3.182446 * halves["deviation"], rel=1e-6)


def test_what_makes_verdicts_say_less_is_told(table, tmp_path):
    ruinous = {'"local.optimizer.lr" = 1e-9': '"local.optimizer.lr" = 1e30'}
    learned = referee(read(table(cell=".12 ± .01", **ruinous)), out=tmp_path / "runs")
    assert any(
        "FedSGD seed 1: " in line and "nothing was learned" in line for line in remarks(learned)
    )
    assert all(line in page_markdown(learned) for line in remarks(learned))
    values = {("FedAvg", "accuracy"): {0: 11.0, 1: 12.0}, ("FedSGD", "again"): {0: 0.2}}
    told = remarks(replace(learned, values=values, runs={}))
    assert told == [
        "again: its printed numbers do not differ, so that nothing says how near is near, and no "
        "interval is narrow enough; write matters, in the printed unit",
        "accuracy: measured numbers are about 100 times the printed ones; write unit = 10000 "
        "beside the measure, as it is of this column alone",
    ]
    alone = {("FedAvg", "accuracy"): values["FedAvg", "accuracy"]}
    (told,) = remarks(replace(learned, values=alone, runs={}))
    assert told.endswith("about 100 times the printed ones; write unit = 10000")
    column = {'accuracy = "final"': 'accuracy = { measure = "final", unit = 1 }'}
    own = read(table(cell=".12 ± .01", **column))
    (told,) = remarks(replace(learned, table=own, values=alone, runs={}))
    assert told.endswith("write unit = 100 beside the measure, as it is of this column alone")
    unsaid = read(table(**{"printed_seeds = 2": ""}))
    (line,) = remarks(replace(learned, table=unsaid, values={}, runs={}))
    assert line.endswith("and so they count for nothing: write printed_seeds")
    nobody = read(table(**{'again = "final"': 'again = "client.99"'}))
    told = remarks(referee(nobody, out=tmp_path / "runs"))
    assert "again: none of 4 runs has the measure 'client.99'" in told


def test_a_column_has_a_unit_of_its_own(table, tmp_path):
    """Shares beside a loss; the column shares the runs of the others."""
    own = {'again = "final"': 'again = { measure = "loss", unit = 1 }'}
    refereed = referee(read(table(**own)), out=tmp_path / "runs", seeds=[0])
    runs = refereed.runs["FedAvg", "accuracy"]
    assert (
        refereed.values["FedAvg", "accuracy"][0]
        == measure_of("final").of(runs[0], None).value / 100
    )
    assert refereed.values["FedAvg", "again"][0] == measure_of("loss").of(runs[0], None).value
    for unit in ("0", "true", '"%"'):
        with pytest.raises(
            ConfigError, match=r"columns.again.unit: got .*expected a number above 0"
        ):
            read(table(**{'again = "final"': f'again = {{ measure = "loss", unit = {unit} }}'}))


def test_equal_printed_numbers_that_come_out_are_inside_and_no_remark(table, tmp_path):
    """100.0 ± 0.0 in every row, as the best tenth of clients has it."""
    same = {"FedSGD | .10 ± .00 | .20": "FedSGD | .10 ± .00 | 1.000", "| -": "| 1.000 ± .000"}
    values = {(row, "again"): {0: 1.0, 1: 1.0} for row in ("FedAvg", "FedSGD")}
    refereed = referee(read(table(**same)), out=tmp_path, run=False)
    refereed = replace(refereed, values=values)
    assert {cell.verdict for cell in refereed.cells.values()} == {"inside"}
    assert remarks(refereed) == []


def test_rounds_to_a_target_are_of_stop_target_and_a_bound_is_not_judged(table, tmp_path):
    """Every model has a tenth right at once, and none 99 %."""

    def refereed(target: str):
        keys = {
            'again = "final"': 'again = "rounds_to_target"',
            "stop = { rounds = 1 }": f"stop = {{ rounds = 1{target} }}",
            "unit = 100\n": "",
        }
        path = table(**keys)
        return referee(read(path), out=tmp_path / "runs", methods=["FedSGD"])

    key = "FedSGD", "again"
    reached = refereed(", target = { accuracy = 0.001 }")
    assert reached.values[key] == {0: 1.0, 1: 1.0}
    missed = refereed(", target = { accuracy = 0.999 }")
    assert key not in missed.values
    assert key not in missed.cells
    assert any(
        line == "FedSGD, again: 2 of 2 runs did not reach stop.target, and of a bound there is no "
        "verdict"
        for line in remarks(missed)
    )
    aimless = remarks(refereed(""))
    assert any("rounds_to_target is of stop.target, which 2 of 2 runs lack" in x for x in aimless)
    some = dict(reached.runs[key[0], "accuracy"])
    some[1] = missed.runs[key[0], "accuracy"][1]
    mixed = replace(reached, runs={(key[0], "accuracy"): some})
    assert any("1 of 2 runs did not reach stop.target" in line for line in remarks(mixed))


def test_a_row_whose_runs_lack_a_measure_that_others_have_is_told(table, tmp_path):
    """Of four clients none is the tenth."""
    keys = {
        'again = "final"': 'again = "client.9"',
        "[method.FedAvg]": "[method.FedAvg]\npopulation = 12",
    }
    refereed = referee(read(table(**keys)), out=tmp_path / "runs", seeds=[0])
    assert ("FedAvg", "again") in refereed.values
    sentence = "FedSGD, again: 1 of 1 runs have no client.9, and there is no verdict"
    assert sentence in remarks(refereed)


def test_what_is_run_and_how_long_the_whole_table_takes(table, tmp_path):
    told: list[str] = []
    read_table = read(table(**{"unit = 100": "unit = 100\nminutes = 90"}))
    referee(read_table, out=tmp_path / "runs", seeds=[0], methods=["FedSGD"], tell=told.append)
    assert told == [
        "1 run of A table, in all about 90 min on two cores; what is finished is not run again"
    ]


def test_a_large_number_in_brackets_is_told(table, tmp_path):
    """The mean and the worst tenth of clients, as some papers print them."""
    sentence = (
        "FedAvg .80 (.50): the number in brackets is taken as the deviation; of another figure "
        "make a column"
    )
    for cell, expected in ((".80 (.50)", [sentence]), (".80 (.30)", []), (".80 ± .50", [])):
        refereed = referee(read(table(cell=cell)), out=tmp_path, run=False)
        assert [line for line in remarks(refereed) if "brackets" in line] == expected


def test_a_range_that_is_one_rows_is_told(table, tmp_path):
    """Of .70, .71 and .10 the range is .61, without the last .01; three seeds with a deviation of
    .05 against one printed run have an interval of 4.3027 x .05 x sqrt(4 / 3), that is .25."""
    rows = {
        "FedAvg | {cell}    | -\n": "FedAvg | .70 | -\nFedProx | .71 | -\n",
        "FedSGD | .10 ± .00 | .20": "FedSGD | .10 | .20",
        "[method.FedAvg]": "[method.FedAvg]\n[method.FedProx]",
        "printed_seeds = 2": "printed_seeds = 1",
    }
    text = TABLE
    for old, new in rows.items():
        text = text.replace(old, new)
    path = tmp_path / "theirs.toml"
    path.write_text(text.format(more=""))
    near = {0: 0.65, 1: 0.7, 2: 0.75}
    values = {("FedAvg", "accuracy"): near, ("FedProx", "accuracy"): near}
    refereed = replace(referee(read(path), out=tmp_path, run=False), values=values)
    assert {cell.verdict for cell in refereed.cells.values()} == {"inside"}
    assert remarks(refereed) == [
        "accuracy: without FedSGD, .10, the printed numbers differ by 0.01, and the intervals are "
        "wider of FedAvg and FedProx, inside for that row alone; with matters = 0.01 undecided"
    ]
    path.write_text(path.read_text().replace("unit = 100", "unit = 100\nmatters = 0.01"))
    said = replace(refereed, table=read(path))
    path.write_text(path.read_text().replace("FedProx | .71", "FedProx | .70"))
    path.write_text(path.read_text().replace("matters = 0.01", ""))
    (none,) = remarks(replace(refereed, table=read(path)))
    assert none.endswith("with a smaller matters undecided")  # 0, their difference, is refused
    assert {cell.verdict for cell in said.cells.values()} == {"undecided"}
    assert remarks(said) == []


def test_the_runs_of_a_column_with_settings_are_told_apart(table, tmp_path):
    """At this rate nothing is learned, in one partition and in the other."""
    ruinous = {'"local.optimizer.lr" = 1e-9': '"local.optimizer.lr" = 1e30'}
    path = table(**{'again = "final"': SETTINGS}, **ruinous)
    learned = referee(read(path), out=tmp_path / "runs", seeds=[0], methods=["FedSGD"])
    told = [line.partition(": ")[0] for line in remarks(learned)]
    assert {"FedSGD seed 0", "FedSGD, again seed 0"} <= {*told}


def page_markdown(refereed):
    return " ".join((write(refereed)[1]).read_text(encoding="utf-8").split())


def test_the_folder_of_a_tables_runs_may_be_below_the_home_folder(table, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    done = referee(read(table()), out="~/mine", data="~/packs", methods=["FedSGD"], seeds=[0])
    assert done.directory == tmp_path / "home" / "mine"
    assert not done.failures
    assert not (tmp_path / "~").exists()


SETTINGS = """again = { measure = "final", partition = "label_count" }
third = { measure = "peak", partition = "label_count" }"""


def test_columns_with_settings_have_runs_of_their_own(table, tmp_path):
    """FedAvg has no number in the second column, so it is not run there; the third, of the same
    settings as the second, needs no runs of its own."""
    read_table = read(table(**{'again = "final"': SETTINGS}))
    assert read_table.columns_run("FedAvg") == ["accuracy"]
    assert read_table.columns_run("FedSGD") == ["accuracy", "again"]
    assert read_table.run_for("third") == "again"
    partitions = [
        read_table.experiment("FedSGD", 0, None, column).partition["name"]
        for column in ("accuracy", "again")
    ]
    assert partitions == ["iid", "label_count"]
    refereed = referee(read_table, out=tmp_path / "runs", seeds=[0])
    assert refereed.counts["measured"] == 3
    assert list(refereed.runs) == [
        ("FedAvg", "accuracy"),
        ("FedSGD", "accuracy"),
        ("FedSGD", "again"),
    ]
    assert len({run.directory for runs in refereed.runs.values() for run in runs.values()}) == 3
    assert set(refereed.values) == {*refereed.cells, ("FedSGD", "third")}
    again = referee(read_table, out=tmp_path / "runs", seeds=[0], columns=["third"], run=False)
    assert again.chosen == {("FedSGD", "again", 0)}
    assert again.cells == refereed.cells  # what is asked for now changes no verdict
    given = referee(read_table, out=tmp_path / "runs", seeds=iter([0]), run=False)
    assert list(given.runs) == list(refereed.runs)  # an iterator can be gone through once alone
    with pytest.raises(ConfigError, match=r"^seeds: got no values; give at least one"):
        referee(read_table, out=tmp_path / "runs", seeds=[], run=False)


def test_rows_are_kept_one_by_one_with_all_their_seeds(table, tmp_path, monkeypatch):
    path = tmp_path / "kept" / "theirs.csv"
    path.parent.mkdir()
    monkeypatch.setattr("motley_papers.referee._kept_in", lambda table: path)
    read_table = read(table(**{'again = "final"': SETTINGS}))
    runs = {"out": tmp_path / "runs", "methods": ["FedSGD"]}
    with pytest.raises(
        ConfigError, match=r"2 runs are missing \(FedSGD, accuracy, seed 1\).*--only"
    ):
        keep(referee(read_table, seeds=[0], **runs))
    with pytest.raises(ConfigError, match=r"6 runs are missing \(FedAvg, accuracy, seed 0\)"):
        keep(referee(read_table, out=tmp_path / "others", run=False))
    keep(referee(read_table, columns=["again"], **runs))
    lines = path.read_text().splitlines()
    assert [line.rsplit(",", 2)[0] for line in lines] == [
        "method,column,seed",
        "FedSGD,again,0",
        "FedSGD,again,1",
        "FedSGD,third,0",
        "FedSGD,third,1",
    ]
    keep(referee(read_table, columns=["accuracy"], **runs))
    with pytest.raises(ConfigError, match=r"2 runs are missing \(FedAvg, accuracy, seed 0\)"):
        keep(referee(read_table, out=tmp_path / "runs", run=False))  # a row without any run
    assert [line for line in path.read_text().splitlines() if ",accuracy," not in line] == lines
    assert len(kept(read_table).cells) == 2
    path.write_text(path.read_text() + "FedSGD,of before,0,1,old\nOf before,again,0,1,old\n")
    keep(referee(read_table, columns=["again"], **runs))
    assert "before" not in path.read_text()  # a row or column that the table has no more
    path.write_text(path.read_text().replace("FedSGD,again,0", "FedSGD,again,none"))
    with pytest.raises(DataError, match=r"theirs.csv, line 4: .*the seed a whole number"):
        kept(read_table)


def test_a_setting_of_a_column_that_is_none_names_it(table):
    settings = 'again = { measure = "final", cohrot = 3 }'
    with pytest.raises(ConfigError, match=r"theirs, FedSGD, again: .*cohrot"):
        read(table(**{'again = "final"': settings})).experiment("FedSGD", 0, None, "again")


def test_the_command_runs_a_table_and_refuses_what_is_of_recipes(table, tmp_path, capfd):
    path = table()
    out = str(tmp_path / "runs")
    words = ["reproduce", str(path), "--only", "method=FedSGD", "--seeds", "3", "--out", out]
    assert cli.call(words) == 0
    assert (tmp_path / "runs" / "cells.csv").read_text().count("FedSGD") == 2
    capfd.readouterr()
    for more, message in [
        (["--scale", "paper"], "it is one published table"),
        (["--keep"], "--keep: it is for tables of the package, in a checkout of M"),
        (
            ["--only", "rule=x"],
            "got rule; a published table has methods and columns, --only method=",
        ),
        (["--only", "column=agian"], "the column 'agian' (did you mean 'again'?); expected some"),
        (["--only", "again"], "--only: got 'again'; expected key=value, e.g. method=fedavg,fedpr"),
        (["--only", "method=FedSGD", "--only", "method=FedAvg"], "--only: got 'method' twice; exp"),
    ]:
        assert cli.call(["reproduce", str(path), *more]) != 0
        assert message in capfd.readouterr().err
    assert cli.call(["run", str(path)]) == 2
    assert f"is a published table; expected an experiment file. motley reproduce {path}" in (
        " ".join(capfd.readouterr().err.split())
    )
    experiment = tmp_path / "experiment.toml"
    experiment.write_text('cohort = 2\nstop = { rounds = 1 }\ntask = "image"\n')
    assert cli.call(["reproduce", str(experiment)]) == 2
    assert "is an experiment; expected a published table. motley run" in capfd.readouterr().err
    assert cli.call(["reproduce"]) == 0
    assert "flamby_heart" in capfd.readouterr().out


OWN = """
import numpy as np
from torch import nn
from motley.tasks import from_clients, own_task

def make(folder, *, seed, slope=1.0):
    x = np.full((8, 1), slope, np.float32)
    federation = from_clients([(x, np.arange(8) % 2)] * 2, test_fraction=0.5)
    return own_task(federation, lambda: nn.Linear(1, 2), name=f"own {seed}")
"""


def test_a_table_brings_its_task(table, tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "theirs_slope.py").write_text("DOUBLE = 2.0\n", encoding="utf-8")
    (tmp_path / "theirs_data.py").write_text(f"import theirs_slope\n{OWN}", encoding="utf-8")
    base = 'task = { name = "image", data = "digits", model = "digits_mlp" }\npopulation = 4\n'
    own = 'task = "theirs_data.py:make"\noptions = { seed = "{seed}" }\nseeds = [0, 1]'
    path = table(**{base: "", "seeds = [0, 1]\n": own + "\n"})
    path.write_text(
        path.read_text().replace('"local.optimizer.lr" = 1e-9', '"task.slope" = 2.0'),
        encoding="utf-8",
    )
    refused = "which runs code of the table's author; if you trust it, say so: --allow-import"
    with pytest.raises(ConfigError, match=refused):
        referee(read(path))
    made = read(path)
    tasks = [made.experiment(row, 1).own_task for row in ("FedAvg", "FedSGD")]
    assert [task.name for task in tasks] == ["own 1"] * 2
    assert [task.federation.x.max().item() for task in tasks] == [1.0, 2.0]


def test_an_option_that_the_tables_function_does_not_take_is_told(table, tmp_path, monkeypatch):
    """It was called a fault of Motley."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "theirs_slope.py").write_text("DOUBLE = 2.0\n", encoding="utf-8")
    (tmp_path / "theirs_data.py").write_text(f"import theirs_slope\n{OWN}", encoding="utf-8")
    base = 'task = { name = "image", data = "digits", model = "digits_mlp" }\npopulation = 4\n'
    own = 'task = "theirs_data.py:make"\noptions = { sead = 1 }\nseeds = [0, 1]'
    path = table(**{base: "", "seeds = [0, 1]\n": own + "\n"})
    with pytest.raises(ConfigError) as error:
        referee(read(path), allow_import=True)
    assert str(error.value) == (
        "theirs, FedAvg: options: got the option 'sead' (did you mean 'seed'?); "
        "theirs_data.py:make takes folder, seed, slope"
    )
    path.write_text(path.read_text().replace("options = { sead = 1 }\n", ""), encoding="utf-8")
    with pytest.raises(ConfigError, match=r"missing a required.* 'seed'; theirs_data\.py:make"):
        referee(read(path), allow_import=True)


RULE = """
from dataclasses import dataclass
from motley.algorithms.losses import CrossEntropy

@dataclass(frozen=True)
class Theirs(CrossEntropy):
    pass
"""


def test_components_beside_a_table_are_found(table, tmp_path, monkeypatch, capfd):
    """Whatever the working directory is; the file's name in place of the module's is told."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "theirs_rule.py").write_text(RULE, encoding="utf-8")
    path = table(**{"[base]": '[base]\nloss = { name = "theirs_rule:Theirs" }'})
    words = ["reproduce", str(path), "--seeds", "0", "--out", str(tmp_path / "runs")]
    assert cli.call(words) != 0
    assert "--allow-import at the command line" in capfd.readouterr().err
    assert cli.call([*words, "--allow-import"]) == 0
    path = table(**{"[base]": '[base]\nloss = { name = "theirs_rule.py:Theirs" }'})
    assert cli.call([*words, "--allow-import"]) != 0
    assert "a module, not its file: 'theirs_rule:Theirs'" in capfd.readouterr().err


def test_the_skeleton_is_a_table_that_loads(tmp_path):
    (text,) = skeleton("recipe", "my_table").values()
    (tmp_path / "my_table.toml").write_text(text, encoding="utf-8")
    table = read(tmp_path / "my_table.toml")
    assert table.experiment("FedProx", 0).algorithm == {"name": "fedprox", "mu": 0.01}
    with pytest.raises(ConfigError, match="a recipe is one file; leave it out"):
        skeleton("recipe", "my_table", package=True)


def test_data_that_is_not_there_says_what_to_download(tmp_path, monkeypatch):
    monkeypatch.setattr("motley_papers.flamby.places", lambda folder: iter([folder]))
    message = (
        r"download processed.cleveland.data, .* from https://archive.ics.uci"
        r".*into a folder heart of a folder DIR, and write --data DIR"
    )
    with pytest.raises(DataError, match=message):
        read("flamby_heart").experiment("FedAvg", 42, tmp_path)
    (tmp_path / "heart").mkdir()
    (tmp_path / "heart" / "processed.cleveland.data").write_text("1,2", encoding="utf-8")
    with pytest.raises(DataError, match=r"md5 sum [0-9a-f]{32}, not 2d91a8ff69cfd9616aa47b59d6f8"):
        read("flamby_heart").experiment("FedAvg", 42, tmp_path)
