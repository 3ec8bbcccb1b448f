import csv
import re

import pytest

from motley.cli import call
from motley.core.errors import ConfigError
from motley.results.load import load_all
from motley_papers import recipe_page as pages
from motley_papers.keeping import keep
from motley_papers.output import write, write_for_print
from motley_papers.power import pairs_needed
from motley_papers.recipe_page import exhibit_tables, page
from motley_papers.reproduce import reproduce
from motley_papers.standings import lower_is_better
from motley_papers.verdict_tables import verdict_table
from tests.motley_papers.toy import EXPECTED, RECIPE, folder


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    return folder(tmp_path_factory.mktemp("recipe") / "toy")


@pytest.fixture(scope="module")
def made(toy, tmp_path_factory):
    """All of the toy at small, run once."""
    return reproduce(toy, out=tmp_path_factory.mktemp("out") / "small")


def test_the_folder_of_all_may_be_below_the_home_folder(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    found = reproduce(toy, ["table 2"], scale="smoke", out="~/mine", data="~/packs")
    assert found.directory == tmp_path / "home" / "mine"
    assert not found.failures
    assert not (tmp_path / "~").exists()


def test_every_run_is_made_once(made):
    assert len(load_all(made.directory)) == made.planned == 4
    assert len(made.runs["table 1", ("random",)]) == 2
    assert (
        made.runs["table 2", ("0.3", "random")][0].directory
        == made.runs["table 1", ("random",)][0].directory
    )
    assert not made.failures


def test_what_is_finished_is_not_run_again(toy, made):
    before = {path: path.stat().st_mtime_ns for path in made.directory.rglob("run.json")}
    again = reproduce(toy, out=made.directory)
    assert {path: path.stat().st_mtime_ns for path in made.directory.rglob("run.json")} == before
    assert len(again.all_runs()) == 4


def test_each_exhibit_shows_its_own_seeds_and_those_asked_for(made, tmp_path):
    text = RECIPE.replace(
        'scale.small.only = { alpha = ["0.3"] }',
        'scale.small = { only = { alpha = ["0.3"] }, seeds = [0] }',
    )
    recipe = folder(tmp_path / "toy", text)

    def shown(**options):
        found = reproduce(recipe, out=made.directory, run=False, **options)
        notes = [exhibit_tables(found, exhibit)[0].note for exhibit in found.exhibits[:2]]
        return [re.search(r"Mean.*?\).|One seed.*?\).", note)[0] for note in notes], list(
            found.runs["table 2", ("0.3", "random")]
        )

    both = "Mean ± standard deviation over 2 seeds (0, 1)."
    # seed 1 of table 2 is there, for table 1 shares the run
    assert shown() == ([both, "One seed (0)."], [0])
    assert shown(seeds=[1]) == ([both, both], [0, 1])
    assert shown(seeds=iter([1])) == shown(seeds=[1])


def test_a_table_says_when_its_cells_are_of_unequally_many_seeds(toy, tmp_path):
    reproduce(
        toy, ["table 1"], out=tmp_path, only={"method": ["random"]}, overrides=["stop.rounds=1"]
    )
    found = reproduce(toy, ["table 1"], out=tmp_path, seeds=[1], overrides=["stop.rounds=1"])
    (table,) = exhibit_tables(found, found.exhibits[0])
    assert table.note.startswith("Mean ± standard deviation over 1 to 2 seeds (0, 1).")


def claims_of_two_tables(where):
    """A recipe with kept numbers and a claim on each of two tables. The first is confirmed, but not
    beside the second."""
    text = RECIPE[: RECIPE.index("[[claim]]")].replace('{ alpha = ["0.3"] }', "{}")
    for number in (1, 2):
        text += f"""
[[claim]]
text = "Claim {number}"
source = "Table {number}"
exhibit = "table {number}"
where = {{ method = "random" }}
above = 1
"""
    recipe = folder(where, text)
    keep(reproduce(recipe, out=where / "runs"))
    kept = recipe / "measured" / "small" / "measured.csv"
    # above 1 by 7.5 and 8.5 (t = 16 of one degree of freedom, one-sided p = 0.02), by 1 and 3
    lines = kept.read_text().splitlines()
    numbers = {("table 1", "0"): "8.5", ("table 1", "1"): "9.5"}
    numbers |= {("table 2", "0"): "2", ("table 2", "1"): "4"}
    rows = [line.split(",") for line in lines]
    for row in rows[1:]:
        row[4] = numbers.get((row[0], row[3]), row[4])
    kept.write_text("\n".join(",".join(row) for row in rows) + "\n")
    return recipe


def test_a_verdict_is_the_same_whatever_is_asked_for(tmp_path):
    recipe = claims_of_two_tables(tmp_path / "toy")
    whole = reproduce(recipe, out=tmp_path / "none", run=False).judged
    (one,) = reproduce(recipe, ["table 1"], out=tmp_path / "none", run=False).judged
    assert [(c.claim.text, c.verdict, c.alone) for c in whole] == [
        ("Claim 1", "undecided", "confirmed"),
        ("Claim 2", "undecided", "undecided"),
    ]
    assert (one.verdict, one.alone, one.after_holm) == (
        whole[0].verdict,
        whole[0].alone,
        whole[0].after_holm,
    )
    assert "over the paper's 2 claims" in verdict_table([one]).note


def test_a_printed_difference_is_of_the_cells_that_were_run(made, tmp_path):
    """Table 1 prints three cells more than the column of it that is run: their differences of 30
    points say nothing about a column with one of 4."""
    grid = """
[[exhibit]]
name = "table 3"
title = "Skew and methods"
measures = ["final"]
[exhibit.axes.alpha]
"0.3" = {}
"1.0" = { "partition.alpha" = 1.0 }
[exhibit.axes.method]
random = { selector = "uniform" }
power_of_choice = { selector = { name = "power_of_choice", d = 8 } }

[[exhibit]]
name = "column"
title = "A column of table 3"
like = "table 3"
measures = ["final"]
scale.small.only = { alpha = "0.3" }
"""
    claim = RECIPE[RECIPE.rindex("[[claim]]") :].replace("table 1", "column")
    rows = {"0.3": (70, 74), "1.0": (40, 70)}
    printed = "".join(
        f"table 3,{alpha} / {method},final,{value},\n"
        for alpha, values in rows.items()
        for method, value in zip(("random", "power_of_choice"), values, strict=True)
    )
    text = RECIPE[: RECIPE.index("[[claim]]")] + grid + claim
    recipe = folder(tmp_path / "toy", text, EXPECTED + printed)
    found = reproduce(recipe, ["column"], out=made.directory, run=False)
    (one,) = found.judged
    (contrast,) = one.contrasts
    assert contrast.interval.n == 2
    assert (one.printed, contrast.printed) == (4, 4)
    assert contrast.needs == pairs_needed(4, contrast.std)


def test_only_leaves_out_exhibits_and_claims_without_the_value(made, tmp_path):
    text = RECIPE.replace('"0.3" = { "partition.alpha" = 0.3 }\n', "").replace(
        'scale.small.only = { alpha = ["0.3"] }', ""
    )
    text = text.replace('where = { method = "random" }', 'where = { method = "power_of_choice" }')
    recipe = folder(tmp_path / "toy", text)
    (recipe / "result.md").write_text(
        "Two: {{small | table 2 | 1.0 / random | final}}.\n\n{{small | claim | it learns}}\n"
    )
    keep(reproduce(recipe, out=tmp_path / "kept"))

    def asked(*exhibits, **only):
        return reproduce(recipe, exhibits, only=only, out=tmp_path / "none", run=False)

    choice = asked(method=["power_of_choice"])
    assert [exhibit.name for exhibit in choice.exhibits] == ["table 1", "figure 1"]
    assert "Two: " not in str(page(choice).blocks[0])
    random = asked(method=["random"])
    assert [exhibit.name for exhibit in random.exhibits] == ["table 1", "table 2", "figure 1"]
    assert [one.claim.text for one in random.judged] == ["Power-of-Choice beats random"]
    assert "It learns" not in str(page(random).blocks[0])
    assert [one.verdict for one in random.judged] == [choice.judged[1].verdict]
    with pytest.raises(
        ConfigError, match="none of the chosen exhibits has method=power_of_choice: table 2"
    ):
        asked("table 2", method=["power_of_choice"])


def test_what_another_exhibit_shows_as_printed_is_not_repeated(made, tmp_path):
    text = RECIPE.replace(
        'like = "table 1"',
        'like = "table 1"\nmeasures = ["final"]\nscale.small.only = { method = ["power_of_choice"] '
        "}",
    )

    def rows(name, expected):
        found = reproduce(
            folder(tmp_path / name, text, expected), ["figure 1"], out=made.directory, run=False
        )
        return [row.label for row in exhibit_tables(found, found.exhibits[0])[0].rows]

    assert rows("toy", EXPECTED) == ["power_of_choice"]
    assert rows("own", EXPECTED + "figure 1,random,final,70,\n") == ["random", "power_of_choice"]


@pytest.mark.usefixtures("drawn")
def test_an_exhibit_comes_apart_for_a_paper(made):
    folder = write_for_print(made, ["pdf", "latex", "csv"])
    names = {path.name for path in folder.iterdir()}
    assert {"verdicts.tex", "references.bib", "measured.csv", "verdicts.csv"} <= names
    assert "table-1.tex" in names
    assert any(name.startswith("figure-1-") and name.endswith(".pdf") for name in names)
    assert {path.suffix for path in folder.iterdir()} <= {".pdf", ".tex", ".bib", ".csv"}
    with pytest.raises(
        ConfigError, match="format: got 'png'; expected some of pdf, svg, latex, csv"
    ):
        write_for_print(made, ["png"])


def test_nothing_is_run_when_only_a_report_is_wanted(toy, tmp_path):
    found = reproduce(toy, out=tmp_path / "none", run=False)
    assert (found.all_runs(), found.planned, list(tmp_path.iterdir())) == ([], 4, [])
    assert {one.verdict for one in found.judged} == {"not tested"}


def test_claims_without_runs_are_folded_away(toy, made, tmp_path):
    def titles(found):
        said = next(
            block for block in page(found).blocks if getattr(block, "title", "") == "Claims"
        )
        return [(block.title, block.folded) for block in said.blocks if block.kind == "section"]

    assert titles(reproduce(toy, out=tmp_path, run=False)) == [("Not tested: 2 claims", True)]
    assert titles(made) == [("Every comparison", True)]


def test_part_of_it(toy, tmp_path):
    found = reproduce(
        toy,
        ["table 1"],
        out=tmp_path,
        seeds=[5],
        only={"method": ["random"]},
        overrides=["stop.rounds=1"],
    )
    assert [run.seed for run in found.all_runs()] == [5]
    assert found.cells(found.exhibits[0])[0].name == "random"
    assert found.all_runs()[0].tables["rounds"].num_rows == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"scale": "tiny"}, "scale: got 'tiny'; expected one of: smoke, small, paper"),
        (
            {"only": {"methods": ["random"]}},
            "only: no exhibit has the axis 'methods' (did you mean 'method'?); there are: method, "
            "alpha",
        ),
        (
            {"only": {"method": ["oort"]}},
            "only: method has no value 'oort'; it has: power_of_choice, random",
        ),
        ({"exhibits": ["table 9"]}, "toy has no table 9"),
        ({"overrides": ["seed=5"]}, "--set: got seed, which all seeds would have; write --seeds 5"),
    ],
)
def test_what_is_not_there_is_said_before_anything_runs(toy, tmp_path, options, message):
    with pytest.raises(ConfigError) as error:
        reproduce(toy, out=tmp_path / "none", **options)
    assert message in str(error.value)
    assert not (tmp_path / "none").exists()


def test_a_target_in_percent_is_refused_before_anything_runs(tmp_path):
    recipe = folder(tmp_path / "toy", RECIPE.replace("target = 0.9", "target = 90"))
    with pytest.raises(ConfigError, match="got 90 for accuracy; expected a share above 0"):
        reproduce(recipe, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_values_of_an_axis_may_look_like_numbers(tmp_path, capsys):
    text = RECIPE.replace("random = {", '"0.10" = {', 1).replace(
        "power_of_choice = {", '"true" = {'
    )
    text = text.split("[[claim]]")[0]
    recipe = folder(tmp_path / "toy", text, "exhibit,cell,measure,value,spread\n")
    for value in ("0.10", "true"):
        words = ["reproduce", str(recipe), "--table", "1", "--only", f"method={value}", "--no-run"]
        assert call([*words, "--out", str(tmp_path / "out")]) == 0, capsys.readouterr().err


def test_a_class_of_ones_own_runs_where_that_is_allowed(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_rules.py").write_text(
        "from dataclasses import dataclass\n\nfrom motley.selectors.uniform import Uniform\n\n\n"
        "@dataclass(frozen=True)\nclass Mine(Uniform):\n    pass\n"
    )
    recipe = folder(tmp_path / "toy", RECIPE.replace('"uniform" }', '"my_rules:Mine" }', 1))
    words = ["reproduce", str(recipe), "--table", "1", "--seeds", "0", "--only", "method=random"]
    assert call(words) == 2
    assert "--allow-import" in capsys.readouterr().err
    assert call([*words, "--allow-import", "--keep"]) == 0, capsys.readouterr().err


SMALL = """
title = "One table"
[base]
population = 4
cohort = 2
stop = { rounds = 1 }
task = "quadratic"
partition = "by_writer"
[scale.smoke]
[scale.small]
[scale.paper]
[[exhibit]]
name = "table 1"
title = "Rates"
measures = ["final"]
[exhibit.axes.rate]
low = { "local.optimizer.lr" = 0.01 }
high = { "local.optimizer.lr" = 0.1 }
"""
NONE_PRINTED = "exhibit,cell,measure,value,spread\n"


def test_ranks_by_a_headline_of_which_less_is_better_are_refused(tmp_path):
    ranks = '[exhibit.ranks]\nof = "rate"\nover = "all"\nagainst = "low"\n'
    ranks += 'groups = { "rates" = ["low", "high"] }\n[exhibit.axes.all]\n"all" = {}\n'
    reproduction = reproduce(
        folder(tmp_path / "toy", SMALL + ranks, NONE_PRINTED), out=tmp_path / "out"
    )
    with pytest.raises(
        ConfigError, match="table 1: got final, whose highest value counts as the best, and less of"
    ):
        page(reproduction)
    by_loss = folder(tmp_path / "loss", (SMALL + ranks).replace("final", "loss"), NONE_PRINTED)
    page(reproduce(by_loss, out=tmp_path / "out"))
    assert lower_is_better("mse")
    assert not lower_is_better("final")


def test_runs_that_learned_nothing_are_told(tmp_path, capsys):
    """The model is the untrained one, whose figure stands in the table."""
    text = SMALL.replace('lr" = 0.1', 'lr" = 1e30').replace("rounds = 1", "rounds = 12")
    recipe = folder(tmp_path / "toy", text, NONE_PRINTED)
    assert call(["reproduce", str(recipe), "--out", str(tmp_path / "out")]) == 0
    assert "Note: table 1: high, seed 0: " in " ".join(capsys.readouterr().out.split())
    report = (tmp_path / "out" / "report.md").read_text()
    assert "table 1: high, seed 0: " in report
    assert "table 1: low, seed 0: " not in report


def test_the_claim_of_private_runs_is_told(tmp_path, capsys):
    task = 'task = { name = "image", data = "digits", model = "linear", scale = "unit" }'
    private = "privacy = { clip = 0.5, noise_multiplier = 4.0, delta = 1e-5 }"
    text = SMALL.replace('task = "quadratic"', f'{task}\nweights = "uniform"\n{private}')
    text = text.replace("by_writer", "iid").split("high = ")[0]
    recipe = folder(tmp_path / "toy", text, NONE_PRINTED)
    assert call(["reproduce", str(recipe), "--out", str(tmp_path / "out")]) == 0
    claim = "differential privacy of one client's whole data"
    assert claim in " ".join(capsys.readouterr().out.split())
    assert claim in (tmp_path / "out" / "report.md").read_text()


def test_a_run_that_fails_is_told_and_the_rest_goes_on(tmp_path):
    text = RECIPE.replace('"partition.alpha" = 1.0', '"task.data" = "nowhere/at.all"').replace(
        'scale.small.only = { alpha = ["0.3"] }', ""
    )
    found = reproduce(folder(tmp_path / "toy", text), out=tmp_path / "out", seeds=[0])
    assert len(found.all_runs()) == 2
    (failure,) = found.failures
    assert failure.point.label == "table 2 1.0 / random"
    (_, warned, *_) = page(found).blocks
    assert any("table 2 1.0 / random, seed 0, failed: " in line for line in warned.items)
    assert "2 of 3 runs are finished; the same command goes on." in warned.items


def test_the_files(made):
    html, markdown, table, verdicts, _ = write(made)
    text = html.read_text()
    assert not re.search(r"""(?:src|href)\s*=\s*["']https?:|url\(\s*["']?https?:|@import""", text)
    for words in (
        "A toy: published and measured",
        "Table 1. Methods",
        ">(71.50 ± 2.00)<",
        "table 1, random, final (%): ",
        "It learns",
        "undecided",
        "READING: 16",
    ):
        assert words in text
    assert "The batch size, see the code, is not said." in text
    # table 1 compares two methods; table 2 is cut to one, figure 1 has none
    assert text.count('<nav class="methods"') == 1
    assert re.search(
        r'<section id="table-1-methods" data-methods>.*?<tr class="method-1"><th scope="row">',
        text,
        re.DOTALL,
    )
    prose = markdown.read_text()
    assert "## Table 2. Skew" in prose
    assert "| random |" in prose
    rows = table.read_text().splitlines()
    assert rows[0] == "exhibit,cell,measure,seed,value,exact,run,target"
    # three measures of two cells and one of one, two seeds each; 90 % is not reached in three
    # rounds
    assert len(rows) == 1 + 2 * (3 * 2 + 1)
    claims = list(csv.DictReader(verdicts.read_text().splitlines()))
    assert [row["sign"] for row in claims] == [
        c.verdict for one in made.judged for c in one.contrasts
    ]
    assert [(row["verdict"], row["alone"]) for row in claims] == [
        (one.verdict, one.alone) for one in made.judged
    ]
    assert [row["source"] for row in claims] == ["Table 1", ""]
    assert {row["protocol"] for row in claims} == {"reduced: see the notes"}
    assert all(
        (",false," in row) == row.endswith(",0.9") == ("seconds_to_target" in row)
        for row in rows[1:]
    )


def test_numbers_are_those_of_the_runs(made):
    exhibit = made.recipe.named("table 1")
    final = made.values(exhibit, "final")["random",]
    run = made.runs["table 1", ("random",)][0]
    last = [row for row in run.tables["evaluations"].to_pylist() if row["scope"] == "mean"][-1]
    assert final[0].value == pytest.approx(100 * last["accuracy"])
    (learns, _) = verdict_table(made.judged).rows
    assert learns.label == "It learns"
    assert [cell.text for cell in learns.cells[:2]] == ["Table 1", "reduced: see the notes"]
    assert learns.cells[4].text == "more than chance"


def test_the_command(toy, made, capsys):
    assert (
        call(["reproduce", str(toy), "--table", "1", "--out", str(made.directory), "--no-run"]) == 0
    )
    out = capsys.readouterr().out
    assert "table 1. Methods" in out
    assert "table 2" not in out
    assert "report.html" in out.splitlines()[-5]


def test_the_command_says_what_is_wrong(toy, tmp_path, capsys):
    assert call(["reproduce", "nothing"]) == 2
    assert "there is no recipe 'nothing'" in capsys.readouterr().err
    assert call(["reproduce", str(toy), "--only", "method=oort", "--out", str(tmp_path)]) == 2
    assert "method has no value 'oort'" in capsys.readouterr().err


def test_a_failed_run_ends_the_command_with_its_code(tmp_path, capsys):
    text = RECIPE.replace(
        'selector = "uniform" }\npower',
        'selector = "uniform", "task.data" = "nowhere/at.all" }\npower',
    )
    recipe = folder(tmp_path / "toy", text, EXPECTED)
    assert (
        call(
            [
                "reproduce",
                str(recipe),
                "--table",
                "1",
                "--seeds",
                "0",
                "--out",
                str(tmp_path / "out"),
            ]
        )
        == 2
    )
    said = capsys.readouterr()
    assert "failed: table 1 random seed 0:" in said.err
    assert "1 of 2 runs finished" in said.err
    assert "report.html" in said.out


def test_a_page_has_no_marks_of_markdown():
    told = (
        "It is *undecided*; **bold**, `x`, [a page](b.md), mu* = 2 * 3 with w* and f(w*); "
        "*contradicted*."
    )
    assert (
        pages._plain(told)
        == "It is undecided; bold, x, a page, mu* = 2 * 3 with w* and f(w*); contradicted."
    )
