"""Numbers that outlive the runs they come from: kept with the recipe, and taken from there where a
run is missing."""

import csv
import gzip
import io
import re
import shutil

import pytest

from motley.cli import call
from motley.core.errors import ConfigError, DataError
from motley.results.measures import curve
from motley_papers import recipe as recipes
from motley_papers.keeping import keep
from motley_papers.number_files import measured_rows, verdicts_csv
from motley_papers.output import write
from motley_papers.recipe_page import exhibit_section, exhibit_tables, page
from motley_papers.reproduce import reproduce
from motley_papers.telling import kept_numbers
from motley_report.print_files import pictures_of
from tests.motley_papers.toy import RECIPE, folder
from tests.places import ROOT


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """The runs of the toy at small, and what they measured."""
    here = tmp_path_factory.mktemp("earlier runs")
    with pytest.MonkeyPatch.context() as patch:
        typed = ["motley", "reproduce", "toy", "--data", "/data", "--out", str(here / "out")]
        patch.setattr("sys.argv", typed)
        return reproduce(folder(here / "toy"), out=here / "out")


@pytest.fixture(scope="module")
def kept(runs, tmp_path_factory):
    """The toy with the runs' numbers in its folder."""
    recipe = folder(tmp_path_factory.mktemp("kept") / "toy")
    keep(reproduce(recipe, out=runs.directory, run=False))
    return recipe


@pytest.fixture
def toy(kept, tmp_path):
    """A copy of that."""
    return shutil.copytree(kept, tmp_path / "toy")


def test_numbers_stand_without_the_runs(runs, toy, tmp_path):
    found = reproduce(toy, out=tmp_path / "none", run=False)
    assert not found.all_runs()
    assert len(found.all_earlier()) == 4
    assert found.earlier.dropped == 0
    assert not any("runs are finished" in str(block) for block in page(found).blocks)
    assert measured_rows(found) == measured_rows(runs)
    assert [row.split(",")[-1] for row in verdicts_csv(found).splitlines()] == [
        row.split(",")[-1] for row in verdicts_csv(runs).splitlines()
    ]


def test_what_is_kept_stays_beside_runs_that_left_it_out(toy, tmp_path):
    """--no-earlier takes one's own runs alone, and --keep puts them beside what is kept."""
    path = toy / "measured" / "small" / "measured.csv"
    before = set(path.read_text().splitlines())
    keep(reproduce(toy, ["table 1"], seeds=[7], earlier=False, out=tmp_path / "out"))
    after = set(path.read_text().splitlines())
    assert before < after
    assert {row.split(",")[3] for row in after - before} == {"7"}


def test_a_kept_page_names_no_folder_of_the_machine(runs, kept):
    (report,) = kept.rglob("report.html")
    text = report.read_text(encoding="utf-8")
    assert "motley reproduce toy --data FOLDER --out FOLDER\n" in text.replace("<", "\n")
    assert "earlier runs" not in text
    assert "earlier runs" in str(page(runs).blocks)


def test_no_stored_page_names_a_folder_of_a_machine():
    stored = sorted((ROOT / "benchmarks" / "measured").rglob("report.html"))
    assert stored
    for path in stored:
        assert not re.search(r"--(data|out)[ =]/", path.read_text(encoding="utf-8")), path


def test_a_table_says_what_was_measured_earlier(runs, toy, tmp_path):
    found = reproduce(toy, out=tmp_path / "none", run=False)
    assert exhibit_tables(found, found.exhibits[0])[0].note.startswith(
        "Mean ± standard deviation over 2 seeds (0, 1). Measured earlier: all runs."
    )
    assert ("runs", "0, and 4 measured earlier") in page(found).facts
    name = next(
        run
        for run in runs.all_runs()
        if run.config["selector"]["name"] == "uniform" and run.seed == 0
    ).directory
    shutil.copytree(name, tmp_path / "some" / "runs" / name.name)
    some = reproduce(toy, out=tmp_path / "some", run=False)
    assert "Measured earlier: 3 of 4 runs." in exhibit_tables(some, some.exhibits[0])[0].note
    assert ("runs", "1, and 3 measured earlier") in page(some).facts


def test_only_what_was_not_measured_is_run(toy, tmp_path):
    """Rows of all four runs are there; without those of one cell's seed 1, its run alone is made,
    though another exhibit, that shows it in a picture alone, lacks nothing."""
    assert not reproduce(toy, out=tmp_path / "none", unmeasured=True).all_runs()
    rows = toy / "measured" / "small" / "measured.csv"
    lines = rows.read_text().splitlines(keepends=True)
    rows.write_text(
        "".join(
            line
            for line in lines
            if not line.startswith("table 1,random,") or line.split(",")[3] != "1"
        )
    )
    found = reproduce(toy, out=tmp_path / "out", unmeasured=True)
    assert [(run.config["selector"]["name"], run.seed) for run in found.all_runs()] == [
        ("uniform", 1)
    ]
    assert found.planned == 1
    assert sorted(found.values(found.exhibits[0], "final")["random",]) == [0, 1]


def test_only_what_was_measured_is_run_anew(toy, tmp_path):
    """Of one cell the row of seed 1 is gone: its run is not made, the three others are; and what is
    finished in the folder stays."""
    rows = toy / "measured" / "small" / "measured.csv"
    lines = rows.read_text().splitlines(keepends=True)
    gone = ("table 1,random,", "figure 1,random,")
    rows.write_text(
        "".join(line for line in lines if not line.startswith(gone) or line.split(",")[3] != "1")
    )
    found = reproduce(toy, out=tmp_path / "out", measured=True)
    made = {(run.config["selector"]["name"], run.seed) for run in found.all_runs()}
    assert made == {("uniform", 0), ("power_of_choice", 0), ("power_of_choice", 1)}
    only = {"method": ["random"]}
    told: list[str] = []
    reproduce(toy, out=tmp_path / "out", only=only, measured=True, tell=told.append)
    assert told == ["0 of 1 runs are missing. Stop when you like: the same command goes on."]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--unmeasured", "--no-earlier"], "it asks which numbers are kept"),
        (["--measured", "--no-earlier"], "it asks which numbers are kept"),
        (["--measured", "--unmeasured"], "together they run nothing"),
    ],
)
def test_skipping_numbers_that_do_not_count_is_refused(toy, capsys, options, said):
    assert call(["reproduce", str(toy), *options]) == 2
    assert f"{' '.join(options)}: {said}" in capsys.readouterr().err


def test_seeds_of_another_day_are_added(runs, toy, tmp_path):
    found = reproduce(toy, ["table 1"], out=tmp_path / "out", seeds=[7])
    assert {run.seed for run in found.all_runs()} == {7}
    exhibit = found.exhibits[0]
    assert list(found.values(exhibit, "final")["random",]) == [0, 1, 7]
    # the third was not planned: shown, not judged
    assert {one.contrasts[0].interval.n for one in found.judged} == {2}
    keep(found)
    again = reproduce(toy, out=tmp_path / "none", run=False)
    assert sorted(again.values(exhibit, "final")["random",]) == [0, 1, 7]
    assert sorted(again.values(again.recipe.named("table 2"), "final")["0.3", "random"]) == [0, 1]


def test_wall_times_of_two_machines_are_not_compared(runs, tmp_path):
    recipe = folder(tmp_path / "toy", RECIPE.replace('"participation_std"]', '"wall_s"]'))
    keep(reproduce(recipe, out=runs.directory, run=False))
    name = runs.runs["table 1", ("random",)][0].directory
    shutil.copytree(name, tmp_path / "some" / "runs" / name.name)
    found = reproduce(recipe, out=tmp_path / "some", run=False)
    exhibit = found.exhibits[0]
    assert {cell: sorted(seeds) for cell, seeds in found.values(exhibit, "wall_s").items()} == {
        ("random",): [0, 1],
        ("power_of_choice",): [1],
    }


def test_rows_of_runs_that_are_planned_no_longer_are_dropped(toy, tmp_path):
    text = RECIPE.replace(
        'name = "power_of_choice", d = 8', 'name = "power_of_choice", d = 6'
    ).replace("target = 0.9", "target = 0.8")
    (toy / "recipe.toml").write_text(text)
    found = reproduce(toy, out=tmp_path / "none", run=False)
    # power_of_choice has three measures of two seeds in table 1; the other cell loses the two to a
    # target
    assert found.earlier.dropped == 6 + 2
    assert sorted(found.values(found.exhibits[0], "final")) == [("random",)]
    assert (
        "8 rows measured earlier left out: the recipe plans other runs in their cells now."
        in page(found).blocks[1].items
    )


def test_earlier_numbers_can_be_left_out(toy, tmp_path):
    assert not reproduce(toy, out=tmp_path / "none", run=False, earlier=False).all_earlier()
    assert not reproduce(
        toy, out=tmp_path / "none", run=False, overrides=["stop.rounds=1"]
    ).all_earlier()


def test_every_round_is_kept_and_drawn(runs, toy, tmp_path):
    with gzip.open(toy / "measured" / "small" / "curves.csv.gz", "rt", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4 * (1 + 3)  # rounds 0 to 3 of four runs
    first = [row for row in rows if row["cell"] == "random" and row["seed"] == "0"]
    run = runs.runs["table 1", ("random",)][0]
    assert [row["round"] for row in first] == ["0", "1", "2", "3"]
    assert [float(row["accuracy"]) for row in first if row["accuracy"]] == pytest.approx(
        curve(run).y.tolist(), rel=1e-6
    )
    ends = [0.0, *run.column("rounds", "time_s").tolist()]
    assert [float(row["virtual_s"]) for row in first] == pytest.approx(ends, rel=1e-6)
    assert {row["run"] for row in first} == {run.directory.name}
    found = reproduce(toy, out=tmp_path / "none", run=False)
    kept = found.earlier.curves(run.directory.name)
    assert curve(kept).y == pytest.approx(curve(run).y, rel=1e-6)
    drawn = [name for name, _ in pictures_of([exhibit_section(found, found.exhibits[0])])]
    assert drawn == ["curve-round", "beside"]  # who took part is not known of these runs


@pytest.mark.usefixtures("drawn")
def test_the_same_runs_give_the_same_bytes(runs, toy, tmp_path):
    again = folder(tmp_path / "again" / "toy")
    keep(reproduce(again, out=runs.directory, run=False))
    for name in ("measured.csv", "verdicts.csv", "curves.csv.gz", "report.html"):
        assert (toy / "measured" / "small" / name).read_bytes() == (
            again / "measured" / "small" / name
        ).read_bytes()


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "measured.csv",
            b"exhibit,cell\ntable 1,random\n",
            "measured.csv, line 2: got .*expected the columns exhibit, cell",
        ),
        (
            "measured.csv",
            b"exhibit,cell,measure,seed,value\nt,r,final,0,high\n",
            "the seed a whole number and the value a number",
        ),
        ("curves.csv.gz", b"no gzip", "curves.csv.gz is damaged .*restore the file, or remove it"),
        ("curves.csv.gz", gzip.compress(b"run,round\na,1\n", mtime=0), "curves.csv.gz is damaged"),
        ("curves.csv.gz", gzip.compress(b"x" * 100, mtime=0)[:-9], "curves.csv.gz is damaged"),
    ],
)
def test_damaged_files_are_told(toy, tmp_path, name, content, message):
    (toy / "measured" / "small" / name).write_bytes(content)
    with pytest.raises(DataError, match=message):
        write(reproduce(toy, out=tmp_path / "out", run=False))


def test_rows_without_the_name_of_a_run_are_dropped(toy, tmp_path):
    path = toy / "measured" / "small" / "measured.csv"
    rows = list(csv.reader(io.StringIO(path.read_text())))
    path.write_text("\n".join(",".join(row[:6]) for row in rows))
    assert reproduce(toy, out=tmp_path / "none", run=False).earlier.dropped == len(rows) - 1


def test_the_command_keeps(runs, tmp_path, capsys):
    recipe = folder(tmp_path / "toy")
    assert call(["reproduce", str(recipe), "--out", str(runs.directory), "--no-run", "--keep"]) == 0
    assert str(recipe / "measured" / "small" / "curves.csv.gz") in capsys.readouterr().out
    assert (
        call(
            [
                "reproduce",
                str(recipe),
                "--out",
                str(runs.directory),
                "--keep",
                "--set",
                "stop.rounds=1",
            ]
        )
        == 2
    )
    assert (
        "--set --keep: runs with other settings are not the recipe's; leave out --set"
        in capsys.readouterr().err
    )


def test_numbers_of_the_package_lie_in_the_checkout():
    assert recipes.read("flash").measured == ROOT / "benchmarks" / "measured" / "recipes" / "flash"
    assert kept_numbers(recipes.read("flash"), "small") is not None


def test_outside_a_checkout_it_is_told_where_numbers_lie(tmp_path, monkeypatch):
    """All but what asks for them works."""
    monkeypatch.setattr(recipes, "MEASURED", "of/no/checkout")
    recipe = recipes.read("pfl_cifar10")
    assert recipe.measured is None
    assert kept_numbers(recipe, "small") is None
    said = []
    found = reproduce(recipe, out=tmp_path, run=False, tell=said.append)
    (sentence,) = said
    assert sentence.startswith(
        "numbers measured earlier lie in benchmarks/measured/recipes of a ch"
    )
    assert sentence.endswith("pip install --editable ./packages/motley-papers")
    assert page(found).blocks
    reproduce(recipe, out=tmp_path, run=False, tell=said.append, earlier=False)
    assert said == [sentence]
    for option in ("measured", "unmeasured"):
        with pytest.raises(ConfigError, match=f"^--{option}: {sentence}$"):
            reproduce(recipe, out=tmp_path, run=False, **{option: True})
    with pytest.raises(ConfigError, match=f"^--keep: {sentence}; or keep numbers with a copy of"):
        keep(found)
