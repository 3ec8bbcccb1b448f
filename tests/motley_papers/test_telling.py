"""Results in words: numbers come from cells, and a sentence without its number is left out."""

import itertools

import pytest

from motley.core.errors import ConfigError
from motley_papers.earlier import MeasuredRow
from motley_papers.recipe import names, read
from motley_papers.recipe_page import page
from motley_papers.reproduce import reproduce
from motley_papers.telling import ScaleNumbers, fill, kept_numbers
from tests.motley_papers.toy import folder

LEARNS = {
    "claim": "It learns",
    "comparison": "above 1 (random)",
    "sign": "confirmed",
    "verdict": "confirmed",
    "measure": "final",
    "ours": "10.5",
    "other": "nan",
    "difference": "9.5",
    "low": "-8.25",
    "high": "27.25",
    "pairs": "2",
    "published": "70 %",
    "size": "",
    "looks": "",
    "alone": "confirmed",
}


def row(seed, value, exact="true"):
    return MeasuredRow("table 1", "random", "final", seed, value, exact, "0" * 12, "")


@pytest.fixture
def toy(tmp_path):
    return folder(tmp_path / "toy")


def told(toy, text, *rows, verdicts=(LEARNS,)):
    (toy / "result.md").write_text(text)
    return fill(read(toy), lambda scale: ScaleNumbers(rows, verdicts) if scale == "small" else None)


def test_numbers_of_cells(toy):
    text = (
        "It has {{small | table 1 | random | final}} % ({{ small | table 1 |\nrandom | final | "
        "seeds }} seeds)."
    )
    assert told(toy, text, row(0, "71.504"), row(1, "72.5")) == "It has 72.00 % (2 seeds)."
    assert told(toy, text, row(0, "71.5", "false")) == "It has more than 71.50 % (1 seeds)."


def test_half_of_an_interval_and_a_difference_paired_by_seed(toy):
    ours = [row(0, "71"), row(1, "72"), row(2, "73")]
    theirs = [row(0, "70"), row(1, "70.5"), row(2, "72"), row(3, "90")]
    rows = [*ours, *(one._replace(cell="power_of_choice") for one in theirs)]
    place = "small | table 1 | random | final"
    # 72 +- 4.3027 / sqrt(3); differences 1, 1.5, 1 of mean 1.1667 and deviation 0.2887
    assert told(toy, f"{{{{{place} | half}}}}", *rows) == "2.48"
    over = f"{{{{{place} | over power_of_choice}}}}"
    assert told(toy, over, *rows) == "+1.17 ± 0.72"
    swapped = "{{small | table 1 | power_of_choice | final | over random}}"
    assert told(toy, swapped, *rows) == "−1.17 ± 0.72"
    assert told(toy, over, *ours, rows[3]) == ""
    assert told(toy, over, *ours[:2], *rows[3:5], rows[2]._replace(exact="false")) == ""
    assert told(toy, f"{{{{{place} | half}}}}", ours[0]) == ""


def test_a_cell_with_a_seed_that_diverged_has_no_number(toy):
    """The other seeds would flatter it. Equal differences have no interval."""
    ours = [row(0, "71"), row(1, "nan"), row(2, "73")]
    theirs = [row(0, "70"), row(1, "71"), row(2, "72")]
    rows = [*ours, *(held._replace(cell="power_of_choice") for held in theirs)]
    place = "small | table 1 | random | final"
    for statistic in ("", " | half", " | over power_of_choice"):
        assert told(toy, f"{{{{{place}{statistic}}}}}", *rows) == ""
    assert told(toy, "{{small | table 1 | power_of_choice | final | over random}}", *rows) == ""
    assert told(toy, f"{{{{{place} | seeds}}}}", *rows) == "3"
    equal = [rows[0], rows[2], rows[3], rows[5]]
    assert told(toy, f"{{{{{place} | over power_of_choice}}}}", *equal) == ""


def test_a_claim_with_what_came_of_it(toy):
    text = "Found:\n\n- {{small | claim | it learns}}"
    assert told(toy, text) == (
        "Found:\n\n- **It learns.** It was so: 10.50 %, +9.50 points [−8.25, +27.25] over 2 pairs "
        "from 1 (final, random); published: 70 %. *Confirmed*."
    )


def test_a_claim_whose_runs_missed_the_target_says_so(toy):
    (toy / "recipe.toml").write_text(
        (toy / "recipe.toml").read_text()
        + """
[[claim]]
text = "It is fast"
exhibit = "table 1"
measure = "seconds_to_target"
lower = { method = "power_of_choice" }
than = { method = "random" }
"""
    )
    fast = {
        **LEARNS,
        "claim": "It is fast",
        "measure": "seconds_to_target",
        "comparison": "power_of_choice against random",
        "ours": "100",
        "other": "90",
        "difference": "10",
        "low": "4",
        "high": "16",
        "sign": "undecided",
        **dict.fromkeys(("resolves", "decided_by"), "nan"),
        "published": "",
        **dict.fromkeys(("verdict", "alone"), "undecided"),
    }
    seconds = [
        row(0, "90")._replace(measure="seconds_to_target"),
        row(0, "100", "false")._replace(measure="seconds_to_target", cell="power_of_choice"),
    ]
    said = told(toy, "{{small | claim | it is fast}}", *seconds, verdicts=(fast,))
    assert said == (
        "**It is fast.** It cannot be told; the mean leans the other way: 100.0 s "
        "(power_of_choice) against 90.00 s (random), "
        "difference +10.00 s [+4.00, +16.00] over 2 pairs (virtual s to target); some runs missed "
        "the target, and their numbers are lower bounds. *Undecided*."
    )
    other = [one._replace(exact="true") for one in seconds]
    assert "missed" not in told(toy, "{{small | claim | it is fast}}", *other, verdicts=(fast,))


def test_a_paragraph_without_its_number_is_left_out(toy):
    text = (
        "Plain.\n\nIt has {{small | table 1 | random | final}}.\n\nAt paper {{paper | table 1 "
        "| random | final}}."
    )
    assert told(toy, text) == "Plain."
    items = "- It has {{small | table 1 | random | final}}.\n- Plain,\n  twice."
    assert told(toy, items) == "- Plain,\n  twice."
    assert told(toy, text, row(0, "1")) == "Plain.\n\nIt has 1.00."
    assert (
        told(toy, "{{small | claim | it learns}}", verdicts=[{**LEARNS, "verdict": "not tested"}])
        == ""
    )


def test_what_announces_a_list_goes_with_the_list(toy):
    text = (
        "Found:\n\n- {{small | claim | it learns}}\n\nIn full:\n\n- {{paper | claim | it learns}}"
    )
    assert told(toy, text).startswith("Found:\n\n- **It learns.** It was so")
    assert "In full" not in told(toy, text)


@pytest.mark.parametrize(
    "place",
    [
        "tiny | table 1 | random | final",
        "small | table 9 | random | final",
        "small | table 1 | oort | final",
        "small | table 1 | random | mse",
        "small | table 1 | random | final | mean",
        "small | table 1 | random | final | over oort",
        "small | table 1",
        "small",
        "small | claim | nothing of the kind",
        "small | claim | e",
        "small | claim | it learns | above",
    ],
)
def test_a_place_that_is_not_there_is_refused(toy, place):
    with pytest.raises(
        ConfigError,
        match=r"toy/result\.md: got \{\{.*; expected SCALE \| EXHIBIT \| CELL \| MEASURE",
    ):
        told(toy, f"{{{{{place}}}}}")


def test_the_report_opens_with_the_result(toy, tmp_path):
    (toy / "result.md").write_text(
        "Random selection ends at {{small | table 1 | random | final}} %.\n"
    )
    found = reproduce(toy, ["table 1"], out=tmp_path / "out", overrides=["stop.rounds=1"])
    result = page(found).blocks[0]
    assert result.title == "Result"
    beside, *_ = result.blocks
    said, picture = beside.blocks
    own, told, counts, words = said.blocks
    assert own.blocks[0].items[0].startswith("table 1, random, final (%): ")
    assert told.text.startswith("Random selection ends at ")
    assert sum(number for number, *_ in counts.counts) == 1
    assert words.text.startswith(
        "The paper's own claims, after Holm's correction: on a reduced scale 1 "
    )
    assert "Claims of ours, corrected apart: 1 " in words.text
    assert picture.about.startswith("Where the comparisons of 2 claims lie: ")


@pytest.mark.parametrize("name", names())
def test_the_recipes_tell_their_results(name):
    recipe = read(name)
    assert recipe.result
    fill(recipe, lambda scale: kept_numbers(recipe, scale))


@pytest.mark.parametrize("name", names())
def test_what_announces_a_list_can_go_with_it(name):
    paragraphs = read(name).result.split("\n\n")
    before = [one for one, after in itertools.pairwise(paragraphs) if after.startswith("- ")]
    assert [one for one in before if not one.endswith(":")] == []
