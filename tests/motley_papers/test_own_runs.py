"""What the report says of the runs that were made, and how printed numbers stand beside measured
ones."""

import pytest

from motley.core.errors import ConfigError
from motley.results.measures import Censored
from motley_papers.keeping import keep
from motley_papers.output import show
from motley_papers.own_runs import own_sentences
from motley_papers.recipe import KEPT, read
from motley_papers.recipe_page import exhibit_section, exhibit_tables, page
from motley_papers.reproduce import reproduce
from motley_report.markdown import markdown
from tests.motley_papers.toy import RECIPE, folder

FAST = RECIPE.replace("stop = { rounds = 3 }", "stop = { rounds = 1 }")
OTHER = FAST.replace("minutes = 0.1", 'protocol = "other data: digits for photographs"')
TWICE = 'spread_deviations = 2\nspread = "two deviations"'


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """A recipe with the numbers of its two seeds stored."""
    recipe = folder(tmp_path_factory.mktemp("kept") / "toy", FAST)
    keep(reproduce(recipe, ["table 1"], out=tmp_path_factory.mktemp("runs")))
    return recipe


def test_ones_own_run_stands_beside_the_printed_and_the_stored_number(kept, tmp_path):
    found = reproduce(kept, ["table 1"], seeds=[7], only={"method": ["random"]}, out=tmp_path)
    (said,) = own_sentences(found)
    exhibit = found.exhibits[0]
    values = {seed: one.value for seed, one in found.values(exhibit, "final")["random",].items()}
    off = values[7] - 71.5
    assert said.startswith(
        f"table 1, random, final (%): {values[7]:.2f} with one seed; printed 71.50: {abs(off):.2f} "
    )
    assert f"{'below' if off < 0 else 'above'}; stored " in said
    assert said.endswith("with 2 seeds.")
    assert sorted(values) == [0, 1, 7]


def test_a_run_of_ones_own_that_diverged_is_not_left_out_of_the_mean(kept, tmp_path):
    reproduction = reproduce(
        kept, ["table 1"], seeds=[7, 8], only={"method": ["random"]}, out=tmp_path
    )
    run = reproduction.runs["table 1", ("random",)][8]
    reproduction._known[run.directory, "final", 0.9] = Censored(float("nan"), True)
    (sentence,) = own_sentences(reproduction)
    begins = "table 1, random, final (%): – with 2 seeds; printed 71.50; stored "
    assert sentence.startswith(begins)


def test_a_seed_that_was_not_planned_is_shown_and_decides_nothing(kept, tmp_path):
    found = reproduce(kept, ["table 1"], seeds=[7, 8], out=tmp_path)
    assert {one.contrasts[0].interval.n for one in found.judged} == {2}
    # a plan of one's own
    own = reproduce(kept, ["table 1"], seeds=[7, 8, 9], out=tmp_path, earlier=False)
    assert {one.contrasts[0].interval.n for one in own.judged} == {3}


def test_a_report_without_new_runs_speaks_of_the_stored_ones_alone(kept, tmp_path):
    assert list(own_sentences(reproduce(kept, out=tmp_path, run=False))) == []


def test_only_what_was_chosen_is_told(kept, tmp_path):
    (kept / "result.md").write_text(
        "One: {{small | table 1 | random | final}}.\n\nTwo: {{small | table 2 | 0.3 / random | "
        "final}}.\n"
    )
    found = reproduce(kept, ["table 1"], out=tmp_path, run=False)
    text = str(page(found).blocks[0])
    assert "One: " in text
    assert "Two: " not in text


def test_numbers_of_other_data_stand_apart(tmp_path):
    toy = folder(tmp_path / "toy", OTHER)
    found = reproduce(toy, ["table 1"], seeds=[0], out=tmp_path / "out")
    ours, theirs = exhibit_tables(found, found.exhibits[0])
    assert not any(cell.published for row in ours.rows for cell in row.cells)
    assert theirs.note == "Published, of other data than here (spread: two deviations)."
    assert [(row.label, [cell.text for cell in row.cells]) for row in theirs.rows] == [
        ("random", ["71.50 ± 2.00"])
    ]
    assert next(iter(own_sentences(found))).endswith(
        "with one seed; what is printed is of other data."
    )


@pytest.mark.usefixtures("drawn")
@pytest.mark.parametrize(
    ("protocol", "shared", "words"),
    [("whole", True, "published ("), ("reduced: 1 round of 3", False, "published, of the whole")],
)
def test_printed_numbers_share_an_axis_with_the_whole_protocol_alone(
    kept, tmp_path, protocol, shared, words
):
    """The cells are of the same data, and keep what is printed beside them."""
    text = FAST.replace("minutes = 0.1", f'protocol = "{protocol}"')
    recipe = folder(tmp_path / "toy", text)
    (recipe / "measured").symlink_to(kept / "measured")
    found = reproduce(recipe, ["table 1"], out=tmp_path / "out", run=False)
    (table,) = exhibit_tables(found, found.exhibits[0])
    assert table.rows[0].cells[0].published.startswith("71.50")
    assert f"In brackets: {words}" in table.note
    shown = str(exhibit_section(found, found.exhibits[0]))
    assert "dot: mean, with one standard deviation" in shown
    assert ("diamond: published" in shown) is shared


def test_a_cell_has_one_standard_deviation_on_both_sides(tmp_path):
    toy = folder(tmp_path / "toy", FAST.replace('spread = "two deviations"', TWICE))
    (table,) = exhibit_tables(
        reproduce(toy, ["table 1"], seeds=[0], out=tmp_path / "out"), read(toy).named("table 1")
    )
    assert table.rows[0].cells[0].published == "71.50 ± 1.00"
    assert "two deviations; shown as one standard deviation" in table.note
    unknown = folder(
        tmp_path / "unknown",
        FAST.replace('spread = "two deviations"', TWICE.replace("= 2", "= nan")),
    )
    (table,) = exhibit_tables(
        reproduce(unknown, ["table 1"], seeds=[0], out=tmp_path / "out"),
        read(unknown).named("table 1"),
    )
    assert table.rows[0].cells[0].published == "71.50"


@pytest.mark.parametrize(
    ("was", "now", "message"),
    [
        (
            "minutes = 0.1",
            'protocol = "small"',
            "scale small: got the protocol 'small'; expected whole, theory: WHAT, reduced: WHAT",
        ),
        ("minutes = 0.1", 'protocol = "reduced"', "scale small: got the protocol 'reduced'"),
        (
            "minutes = 0.1",
            "looks = [2, 1]",
            r"scale small: got the looks \[2, 1\] at 2 seeds; expected rising numbers up to it",
        ),
        ("minutes = 0.1", "looks = [1, 3]", r"got the looks \[1, 3\] at 2 seeds"),
        (
            'source = "Table 1"',
            'protocol = "digits"',
            "the claim 'It learns': got the protocol 'digits'",
        ),
    ],
)
def test_a_protocol_or_looks_that_are_none(tmp_path, was, now, message):
    with pytest.raises(ConfigError, match=message):
        read(folder(tmp_path / "toy", RECIPE.replace(was, now)))


def test_the_most_special_protocol_counts(tmp_path):
    text = RECIPE.replace('title = "Skew"', 'title = "Skew"\nprotocol = "reduced: one level"')
    text = text.replace('source = "Table 1"', 'source = "Table 1"\nprotocol = "whole: any data"')
    recipe = read(folder(tmp_path / "toy", text))
    one = recipe.named("table 1")
    two = recipe.named("table 2")
    assert recipe.protocol(one, "paper").words == "whole protocol"
    assert recipe.protocol(two, "paper").words == "reduced: one level"
    assert recipe.protocol(one, "small", recipe.claim[0]).words == "whole protocol: any data"


def test_a_smoke_run_is_on_other_data_whatever_larger_scales_are(tmp_path):
    text = RECIPE.replace('title = "Skew"', 'title = "Skew"\nprotocol = "reduced: one level"')
    text = text.replace('source = "Table 1"', 'source = "Table 1"\nprotocol = "whole: any data"')
    recipe = read(folder(tmp_path / "toy", text))
    found = [
        recipe.protocol(recipe.named(name), "smoke", claim)
        for name, claim in (("table 1", recipe.claim[0]), ("table 2", None))
    ]
    words = "other data: a smoke run, whose numbers mean nothing"
    assert {one.words for one in found} == {words}
    said = text.replace("[scale.small]", 'protocol = "whole"\n\n[scale.small]', 1)
    recipe = read(folder(tmp_path / "said", said))
    assert recipe.protocol(recipe.named("table 2"), "smoke").words == "whole protocol"


def test_a_smoke_run_is_not_held_against_what_is_printed(tmp_path):
    toy = folder(tmp_path / "toy", FAST)
    found = reproduce(toy, ["table 1"], scale="smoke", out=tmp_path / "out")
    assert next(iter(own_sentences(found))).endswith("; what is printed is of other data.")


def text_of(report):
    return markdown(report, "pictures")[0]


NOTED = FAST.replace(
    'title = "Methods"\n', 'title = "Methods"\nnote = "A hundred clients."\n'
).replace(
    "[exhibit.axes.method]", '[exhibit.scale.small]\nkept = "On a GPU."\n[exhibit.axes.method]', 1
)


def test_a_smoke_report_says_so_and_sets_the_larger_scales_apart(tmp_path, capsys):
    """What a note says of the experiment is true above ``smoke`` alone."""
    noted = folder(tmp_path / "toy", NOTED)
    found = reproduce(noted, ["table 1"], scale="smoke", out=tmp_path / "out")
    text = text_of(page(found))
    assert text.index("its numbers mean nothing") < text.index("Table 1.")
    assert text.index("At the larger scales") < text.index("A hundred clients.")
    show(found)
    assert "its numbers mean nothing" in capsys.readouterr().out
    small = text_of(page(reproduce(noted, ["table 1"], out=tmp_path / "out", seeds=[0])))
    assert "A hundred clients." in small
    assert "larger scales" not in small
    assert "mean nothing" not in small


def test_what_is_said_of_kept_runs_is_said_where_they_are_shown(tmp_path):
    noted = folder(tmp_path / "toy", NOTED)
    notes = (noted / "notes.md").read_text()
    (noted / "notes.md").write_text(f"{notes}\n{KEPT}\n\nMade in May.\n")
    own = reproduce(noted, ["table 1"], out=tmp_path / "out")
    assert "On a GPU." not in text_of(page(own))
    keep(own)
    kept_alone = reproduce(noted, ["table 1"], out=tmp_path / "empty", run=False)
    shown = text_of(page(kept_alone))
    assert shown.index("Of the runs kept with the recipe") < shown.index("On a GPU.")
    assert shown.index("not of others") < shown.index("Made in May.")


def test_an_exhibit_without_numbers_is_told_with_its_reason(tmp_path, capsys):
    text = FAST.replace(
        'scale.small.only = { alpha = ["0.3"] }', 'scale.small.skip = "nobody has the data"'
    )
    found = reproduce(folder(tmp_path / "toy", text), ["table 2"], out=tmp_path, run=False)
    show(found)
    assert "No numbers at small: Table 2. Skew: nobody has the data." in " ".join(
        capsys.readouterr().out.split()
    )
