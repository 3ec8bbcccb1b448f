"""The recipes of the package: each is whole, each builds at every scale, and together they run once
in every way they know."""

import re
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import motley
import motley_papers.recipe
from motley.core.errors import DataError
from motley.experiments.run import run
from motley.results.measures import Censored
from motley_papers.earlier import read_rows
from motley_papers.recipe import SCALES, names
from motley_papers.reproduce import plan
from motley_papers.telling import rows_of_text
from motley_papers.verdicts import _sides, comparisons
from tests.motley_papers.fewest import distinct
from tests.places import ROOT

MEASURED = ROOT / "benchmarks" / "measured" / "recipes"
PAPERS = {
    "chapter": [],
    "fedbench_scaffold": [],
    "fedcvr_bolt": ["table 1", "table 2", "table 3", "table 4"],
    "flash": ["table 1", "figure 2", "figure 3", "figure 4", "figure 5"],
    "heterofl_baseline": [],
    "hetero_select": [*(f"table {n}" for n in (1, 2, 3)), *(f"figure {n}" for n in range(1, 8))],
    "hetero_select_v1": [
        *(f"table {n}" for n in (1, 2, 3, 4)),
        *(f"figure {n}" for n in range(2, 8)),
    ],
    "league": [],
    "niid_bench": [],
    "pfl_cifar10": [],
}
MOST = 62
"""Runs of two rounds in which every code path of all recipes occurs."""

read = cache(motley_papers.recipe.read)
"""No test changes a recipe, which keeps the experiments that were made of it."""
NUMBER = "a|one|two|three|four|five|six|seven|eight|nine|ten|thirteen|twenty|[0-9]+"
"""Words before "seeds" that a report with other seeds contradicts."""


@cache
def smoke():
    """The fewest runs at ``smoke`` that use every component, word and switch of any recipe but the
    league (``test_league.py``)."""
    experiments = [
        e
        for name in names()
        if name != "league"
        for e in plan(read(name), read(name).exhibit, "smoke").values()
    ]
    return distinct(experiments)


def test_there_is_a_recipe_for_each_paper():
    assert names() == sorted(PAPERS)


@pytest.mark.parametrize("name", PAPERS)
def test_every_table_and_figure_is_there(name):
    recipe = read(name)
    for wanted in PAPERS[name]:
        assert recipe.choose([wanted])
    assert recipe.notes
    assert recipe.expected or name in ("chapter", "league", "pfl_cifar10")  # which print no figures
    assert recipe.scale["small"].minutes


@pytest.mark.parametrize("name", PAPERS)
@pytest.mark.parametrize("scale", SCALES)
def test_every_cell_is_an_experiment(name, scale):
    recipe = motley_papers.recipe.read(name)  # whose thousands of experiments nobody keeps
    made = plan(recipe, recipe.exhibit, scale, seeds=[0])
    assert made
    if scale == "smoke":
        assert {e.stop.rounds for e in made.values()} <= {1, 2}
        assert all(e.task.get("data", "digits") == "digits" for e in made.values())


def test_smoke_is_small():
    assert 0 < len(smoke()) <= MOST


@pytest.mark.filterwarnings("ignore:.*has no instructions for bfloat16")
@pytest.mark.filterwarnings("ignore:'fedbn' leaves layers")  # a smoke run's model has no BatchNorm
def test_every_way_runs(tmp_path):
    for experiment in smoke():
        assert run(experiment, out=tmp_path / experiment.run_id()).finished


@pytest.mark.parametrize(
    "path", sorted(MEASURED.glob("*/*/measured.csv")), ids=lambda p: "-".join(p.parts[-3:-1])
)
def test_what_was_measured_names_its_runs(path):
    rows = read_rows(path)
    assert rows
    assert all(len(row.run) == 12 for row in rows)  # a row counts while the recipe plans this run
    assert (path.parent / "report.html").is_file()
    assert (path.parent / "verdicts.csv").is_file()


@pytest.mark.parametrize("name", names())
def test_smoke_needs_no_data_and_other_scales_say_what_they_need(name: str) -> None:
    found = read(name)
    assert found.data("smoke") == {}
    assert found.data("small")
    assert found.data("paper")


@pytest.mark.parametrize(
    "path", sorted(MEASURED.glob("*/*/verdicts.csv")), ids=lambda p: "-".join(p.parts[-3:-1])
)
def test_stored_verdicts_are_those_of_the_recipes_claims(path):
    recipe = read(path.parents[1].name)
    scale = path.parent.name
    claims = {claim.text: claim for claim in recipe.claim}
    for row in rows_of_text(path.read_text()):
        claim = claims[row["claim"]]
        protocol = recipe.protocol(recipe.named(claim.exhibit), scale, claim)
        assert (row["source"], row["protocol"]) == (claim.source, protocol.words)
        if protocol.kind == "other data":
            assert "contradicted" not in (row["verdict"], row["sign"])
            assert row["size"] == ""


@pytest.mark.parametrize("name", names())
def test_statements_of_theory_are_told_apart(name):
    """They are about any data, and no experiment of the paper tests them. Lemma A.4's mu is not
    among them: its number comes from the paper's data."""
    recipe = read(name)
    for claim in recipe.claim:
        words = claim.source.partition(" ")[0], claim.text.partition(" ")[0]
        stated = {"Theorem", "Lemma", "Lemmas", "Proposition"}.intersection(words)
        theory = (stated and "Lemma A.4" not in claim.source) or "the bound on" in claim.source
        at = recipe.protocol(recipe.named(claim.exhibit), "small", claim)
        assert (at.kind == "theory") == bool(theory), claim.text


def test_what_a_worked_example_refutes_is_false_as_stated():
    """Runs test neither these nor the corrected bound, which holds by construction."""
    claims = read("hetero_select_v1").claim
    broken = {claim.source for claim in claims if claim.counterexample}
    theorems = {"Theorem III.3, Equation 14", "Theorem A.3"}
    assert broken == theorems | {"Lemma A.2", "Proposition A.5"}
    untested = [claim.text for claim in claims if claim.untested.startswith("by construction: ")]
    assert untested == ["Theorem III.3, corrected: no client's probability is below its bound"]


@pytest.mark.parametrize("name", names())
def test_a_source_says_where_and_does_not_repeat_the_claim(name):
    for claim in read(name).claim:
        assert not claim.source or claim.source.lower() != claim.text.lower()
        if claim.source and name == "chapter":  # which is read without its pages
            assert claim.source.startswith(("on ", "list of pitfalls: "))


def test_figure_6a_is_claimed_as_the_paper_has_it():
    """Over the selected clients, on the paper's data and on MNIST."""
    recipe = read("hetero_select")
    claims = [claim for claim in recipe.claim if claim.exhibit == "figure 6a"]
    assert [claim.source for claim in claims] == 2 * [
        "Section VI-C: fairness dominates at cold start",
        "Section VI-C: diversity takes over near round 20",
    ]
    measures = [name for claim in claims for name in claim.measures([""])[1:]]
    assert measures
    assert all(name.startswith("chosen.component.") for name in measures)


def test_seeds_that_were_added_after_a_look_are_admitted_to():
    assert read("hetero_select_v1").named("table 1").scale["small"].looks == [5, 13, 20]
    assert read("flash").named("cifar-10, fedavg column").scale["small"].looks == [1, 3]


@pytest.mark.parametrize(
    "path", sorted(MEASURED.glob("*/*/verdicts.csv")), ids=lambda p: "-".join(p.parts[-3:-1])
)
def test_a_claim_that_no_draw_can_change_is_by_construction(path):
    """In its comparisons each side, their difference or their ratio is the same with every seed."""
    recipe = read(path.parents[1].name)
    rows = {row["claim"]: row for row in rows_of_text(path.read_text())}
    kept = read_rows(path.parent / "measured.csv")
    fixed = []
    for claim in recipe.claim:
        if claim.tuned is None and rows.get(claim.text, {}).get("verdict", "not tested") != (
            "not tested"
        ):
            pairs = both_sides(claim, recipe.named(claim.exhibit), kept)
            if pairs and all(x.size > 2 and is_fixed(x, y) for x, y in pairs):
                fixed.append(claim.text)
    assert fixed == []
    marked = {c.text for c in recipe.claim if c.untested.startswith("by construction: ")}
    assert marked.isdisjoint(rows)


def both_sides(claim, exhibit, kept):
    """The numbers of both sides of a claim's comparisons, paired."""
    cells = {cell.name: cell.values for cell in exhibit.all_cells()}
    seen = {}
    for row in kept:
        if row.exhibit == exhibit.name and row.cell in cells:
            one = Censored(float(row.value), row.exact == "true")
            seen.setdefault((row.measure, cells[row.cell]), {})[row.seed] = one
    return [
        [
            np.array([unit.value for unit in side.values()])
            for side in _sides(claim, exhibit, seen, one.where, one.ours, one.rival)
        ]
        for one in comparisons(claim)
        if one.rival is not None
    ]


def is_fixed(x, y):
    """A ratio, to be fixed, moves little beside how far it is from 1, too: accuracies near 100 %
    have one of about 1 whatever they are."""
    gap = x - y
    ratio = x / y if y.all() else np.zeros_like(x)
    spans = [
        (gap, np.abs(gap).max()),
        (ratio, min(np.abs(ratio).max(), np.abs(ratio - 1).max())),
    ]
    return bool((x == y).all()) or any(
        np.ptp(values) <= 1e-3 * scale for values, scale in spans if values.any()
    )


def test_the_papers_title_is_whole():
    title = (
        "HeteRo-Select: Informativeness as the Participation Driver in Heterogeneous "
        "Federated Learning"
    )
    assert read("hetero_select").title == title
    assert f"{{{title}}}" in (Path(motley.__file__).parent / "core" / "papers.bib").read_text()
    kept = sorted(MEASURED.glob("*/*/report.html"))
    assert [p for p in kept if "Driver in Federated" in p.read_text(encoding="utf-8")] == []


def test_whoever_has_tiny_imagenet_can_run_its_rows(tmp_path):
    """A folder as it is unpacked: 200 classes, here of two pictures each."""
    classes = [f"n{number:08}" for number in range(200)]
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    listed = []
    for number, name in enumerate(classes):
        (folder / "train" / name / "images").mkdir(parents=True)
        for i in (0, 1):
            shade = Image.new("RGB", (4, 4), (number, i, 0))
            shade.save(folder / "train" / name / "images" / f"{name}_{i}.png")
        shade.save(folder / "val" / "images" / f"{number}.png")
        listed.append(f"{number}.png\t{name}\t0\t0\t3\t3\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(listed))
    recipe = read("hetero_select")
    row = recipe.named("table 3").cells("paper")[3]
    assert (row.name, row.target) == ("tiny_imagenet", 0.3)
    printed = recipe.experiment(row, "paper", 42)
    assert (printed.task["model"], printed.partition["missing"]) == ("resnet18", 80)
    model = 'task.model={ name = "mlp", hidden = [4], norm = "batch" }'
    small = ["population=2", "cohort=1", model, "precision=float32", "local.steps=1"]
    with pytest.raises(DataError, match="tiny-imagenet-200"):
        run(printed, out=tmp_path / "missing", data=tmp_path / "val")
    small += ["recalibrate.batches=1", "stop.rounds=1"]
    found = run(recipe.experiment(row, "paper", 42, small), out=tmp_path / "run", data=tmp_path)
    assert found.finished
    assert len(found.meta["task"]["classes"]) == 200


def notes_of(recipe):
    """Where a note stands -> what a report of any runs shows there."""
    notes = {f"scale {name}": scale.note for name, scale in recipe.scale.items()}
    notes["notes.md"] = recipe.notes_apart()[0]
    for exhibit in recipe.exhibit:
        notes[exhibit.name] = f"{exhibit.name}. {exhibit.title}. {exhibit.note}"
        notes |= {f"{exhibit.name} at {name}": at.note for name, at in exhibit.scale.items()}
    return notes


@pytest.mark.parametrize("name", names())
def test_no_note_counts_the_seeds_that_a_table_counts(name):
    """A number of seeds is the paper's, or stands among what is said of the runs kept."""
    counted = {
        where: sentence
        for where, note in notes_of(read(name)).items()
        for sentence in re.split(r"(?<=[.;:])\s", note)
        if re.search(rf"\b({NUMBER})\s+seeds?\b", sentence, re.IGNORECASE)
        and where != "notes.md"  # which speaks of the printed tables
    }
    assert not counted


@pytest.mark.parametrize("name", names())
def test_what_is_said_of_kept_runs_alone_stands_apart(name):
    said = re.compile(r"H100|\bran on\b|[Rr]un on an?\b|\(`looks`\)|had been seen|were planned")
    assert not {where: note for where, note in notes_of(read(name)).items() if said.search(note)}


@pytest.mark.parametrize("name", ["flash", "hetero_select_v1"])
def test_no_title_names_data_that_another_scale_replaces(name):
    recipe = read(name)
    replaced = [
        e
        for e in recipe.exhibit
        if recipe.protocol(e, "small").kind == "other data" and e.cells("small")
    ]
    assert replaced
    assert not [exhibit.name for exhibit in replaced if "CIFAR" in exhibit.title]
