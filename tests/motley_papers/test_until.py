"""Seeds that are added until a claim is decided: which comes next, where it ends, and what every
later report says of it."""

import json
from dataclasses import replace

import pytest

from motley.cli import call
from motley.core.errors import ConfigError, DataError
from motley_papers.earlier import Earlier, MeasuredRow
from motley_papers.keeping import keep
from motley_papers.number_files import verdicts_csv
from motley_papers.recipe import read
from motley_papers.recipe_page import page
from motley_papers.reproduce import reproduce
from motley_papers.sequential import SpendingPlan, level_at
from motley_papers.sequential_plan import SequentialPlan, read_plan
from motley_papers.telling import rows_of_text
from motley_papers.until import open_comparisons, seconds_of, until_decided
from motley_papers.verdict_tables import verdict_table
from tests.motley_papers.toy import RECIPE, folder

FAST = RECIPE.replace("stop = { rounds = 3 }", "stop = { rounds = 1 }")


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("until") / "toy", FAST)


@pytest.fixture(scope="module")
def decided(toy, tmp_path_factory):
    """The claim that the toy learns, which six seeds at most decide, and what was said."""
    said = []
    out = tmp_path_factory.mktemp("out")
    found = until_decided(
        read(toy), budget_s=600, claims=["it learns"], most=6, out=out, tell=said.append
    )
    return found, said


def test_seeds_are_added_until_the_claim_is_decided(decided):
    found, said = decided
    judged = next(one for one in found.judged if one.claim.text == "It learns")
    seeds = sorted({run.seed for run in found.all_runs()})
    assert seeds == list(range(len(seeds)))  # the recipe's 0 and 1 first, then those that follow
    assert judged.verdict == "confirmed"
    (one,) = judged.contrasts
    assert (one.looks, one.interval.n, one.sides.confirms <= 0.025) == (
        SpendingPlan((6,)),
        len(seeds),
        True,
    )
    assert 2 < len(seeds) <= 6  # the level of two of six pairs is below one in a million
    assert said[0].startswith("1 of 1 claims are open, with 1 comparisons; ")
    assert "at most 6 a comparison" in said[0]
    assert "the budget is 10.0 min" in said[1]
    assert said[2].startswith("seed 0 for table 1, above 1 (random): 0 pairs so far")
    assert said[-1] == "every claim is decided, or has the most seeds"


def test_only_the_cells_of_the_claim_are_run(decided):
    found, _ = decided
    assert {run.config["selector"]["name"] for run in found.all_runs()} == {"uniform"}


def test_every_later_report_allows_for_the_looks(toy, decided):
    found, _ = decided
    again = reproduce(toy, out=found.directory, run=False)
    learns, ahead = again.judged
    assert len(again.all_runs()) == len(found.all_runs())
    assert (learns.contrasts[0].looks, ahead.contrasts[0].looks) == (SpendingPlan((6,)), None)
    assert learns.contrasts[0].interval == found.judged[0].contrasts[0].interval
    table = verdict_table(again.judged)
    assert (
        "Looks: at most 6 pairs, seen after every pair; the last may spend 5 % of chance"
        in table.note
    )
    assert table.rows[0].cells[5].text.endswith("(looks)")
    assert rows_of_text(verdicts_csv(again))[0]["looks"] == "6"
    assert not [
        line for line in getattr(page(found).blocks[1], "items", []) if "runs are finished" in line
    ]


def test_it_goes_on_where_it_was_stopped(toy, tmp_path):
    out = tmp_path / "out"
    first = until_decided(read(toy), budget_s=1e-9, claims=["it learns"], most=6, out=out)
    assert not first.all_runs()  # no seed fits the budget
    assert json.loads((out / "sequential.json").read_text())["claims"] == ["It learns"]
    said = []
    plan = json.loads((out / "sequential.json").read_text())
    # killed while seed 0 ran
    (out / "sequential.json").write_text(json.dumps({**plan, "seeds": {"table 1": [0]}}))
    until_decided(read(toy), budget_s=1e-9, claims=["it learns"], most=4, out=out, tell=said.append)
    assert "at most 6 a comparison" in said[0]  # what was said first stays
    assert (
        said[-1]
        == "the budget ends before the next seed; 1 comparisons are open; the same command goes on"
    )


def test_a_plan_that_is_lengthened_remembers_the_shorter_one(tmp_path):
    short, long = (SequentialPlan(most=most, claims=["It learns"]) for most in (6, 12))
    both = short.joined(long)
    assert both.looks_of("It learns") == SpendingPlan((6, 12))
    assert both.joined(both) == both
    assert both.joined(short).looks_of("It learns") == SpendingPlan((6, 12))
    assert SequentialPlan().joined(long) == long  # nothing had been planned
    both.write(tmp_path)
    assert read_plan([tmp_path]) == both


def test_it_stays_sequential_when_numbers_are_kept(decided, tmp_path):
    found, _ = decided
    recipe = folder(tmp_path / "toy", FAST)
    keep(reproduce(recipe, out=found.directory, run=False))
    alone = reproduce(recipe, out=tmp_path / "none", run=False)
    assert not alone.all_runs()
    assert alone.judged[0].contrasts[0].looks.most == 6
    assert alone.judged[0].contrasts[0].interval.n == found.judged[0].contrasts[0].interval.n


def test_what_is_nearest_comes_first_and_what_is_decided_never(decided):
    found, _ = decided
    assert open_comparisons(found) == []
    both = until_decided(found.recipe, budget_s=1e-9, most=6, out=found.directory)
    (one,) = open_comparisons(both)
    assert (one.claim.text, one.seed, one.seeds_left) == ("Power-of-Choice beats random", 0, 2)
    assert one.seed_s > 0
    assert {cell.name for cell in one.cells} == {"random", "power_of_choice"}
    assert level_at(6, 6) > 0.02


@pytest.mark.parametrize(
    ("numbers", "exact", "openings"),
    [
        (("1", "2"), ("true", "true"), 1),
        (("1", "nan"), ("true", "true"), 0),  # a run diverged
        (("2", "2"), ("false", "false"), 0),  # both are lower bounds
        (("1", "2"), ("true", "false"), 1),
    ],
)
def test_what_no_seed_can_decide_is_not_open(toy, tmp_path, numbers, exact, openings):
    names = ("random", "power_of_choice")
    rows = [
        MeasuredRow("table 1", cell, "final", seed, value, reached, "0" * 12, "")
        for cell, value, reached in zip(names, numbers, exact, strict=True)
        for seed in (0, 1)
    ]
    reproduction = replace(
        reproduce(toy, ["table 1"], out=tmp_path / "out", run=False),
        earlier=Earlier(rows=rows),
        sequential=SequentialPlan(most=9, claims=["Power-of-Choice beats random"]),
    )
    assert len(open_comparisons(reproduction)) == openings


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("4h", 14400), ("90m", 5400), ("1h30m", 5400), ("45s", 45), ("0.5h", 1800), ("10min", 600)],
)
def test_budgets(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "4", "h", "-1h", "4 hours", "0h", "1e3s", "four", "999999999h"]
)
def test_what_is_no_budget(text):
    with pytest.raises(
        ConfigError,
        match=r"--budget: got .*expected hours, minutes or seconds, e\.g\. 4h, 90m or 1h30m",
    ):
        seconds_of(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--budget", "4h"],
            "--budget without --until: it belongs to --until decided; leave out --budget",
        ),
        (["--claims", "it"], "--claims without --until"),
        (["--most-seeds", "9"], "--most-seeds without --until"),
        (
            ["--until", "decided"],
            "--until decided: got no budget; say how long it may take, e.g. --budget 4h",
        ),
        (
            ["--until", "decide", "--budget", "1s"],
            "--until: got 'decide' (did you mean 'decided'?); expected decided",
        ),
        (["--until", "decided", "--budget", "4"], "--budget: got '4'; expected hours"),
        (
            ["--until", "decided", "--budget", "1s", "--seeds", "1"],
            "--seeds --until: it chooses seeds and runs itself; leave out --seeds",
        ),
        (["--until", "decided", "--budget", "1s", "--no-run"], "--no-run --until"),
        (["--until", "decided", "--budget", "1s", "--set", "seed=1"], "--set --until"),
        (
            ["--until", "decided", "--budget", "1s", "--claims", "world"],
            "--claims: no claim holds 'world'; expected part of one of: It learns",
        ),
        (
            ["--until", "decided", "--budget", "1s", "--most-seeds", "1"],
            "--most-seeds: got 1; expected at least 2",
        ),
    ],
)
def test_nonsense_is_refused(toy, tmp_path, capsys, options, message):
    assert call(["reproduce", str(toy), "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_damaged_record_is_told(toy, tmp_path):
    (tmp_path / "sequential.json").write_text('{"most": 0}')
    with pytest.raises(
        DataError,
        match=r"sequential\.json is damaged .*restore it, or remove it to test each claim once",
    ):
        reproduce(toy, out=tmp_path, run=False)


def test_a_run_that_fails_is_tried_once(tmp_path, capsys):
    text = FAST.replace(
        'selector = "uniform" }\npower',
        'selector = "uniform", "task.data" = "nowhere/at.all" }\npower',
    )
    recipe = folder(tmp_path / "toy", text)
    options = [
        "--until",
        "decided",
        "--budget",
        "1h",
        "--claims",
        "learns",
        "--out",
        str(tmp_path / "out"),
    ]
    assert call(["reproduce", str(recipe), *options]) == 2
    assert "failed: table 1 random seed 0:" in capsys.readouterr().err
