"""Figures and tables for a paper: which files there are, what is in them, and that LaTeX sets
them."""

import json
import re
import shutil
import subprocess

import pytest

from motley.core.errors import ConfigError, StoreError
from motley.results.labels import group_runs
from motley.results.measures import Censored, Interval
from motley_report.print_tables import PrintTable, as_csv, print_tables
from motley_report.report import report
from tests.motley.results import fake

CURVES = ["curve-round", "curve-seconds", "curve-bits", "curve-paper-bits"]
AWKWARD = r"50 % of $x_1 & #2 ~ ^ \input{a} α 方 --x"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    for selector in ("uniform", "power_of_choice"):
        for seed in (0, 1):
            path = fake.write(root / selector / str(seed), selector, seed, rounds=20)
            meta = fake.meta(selector, seed)
            meta["config"]["selector"]["about"] = AWKWARD
            meta["config"]["partition"]["name"] = AWKWARD
            (path / "run.json").write_text(json.dumps(meta))
    return root


@pytest.fixture(scope="module")
def paper(folder):
    return report(folder, folder / "paper", 0.5, ["pdf", "svg", "latex", "csv"])


def test_there_is_a_file_for_every_figure_and_table(paper):
    names = {path.name for path in paper.iterdir()}
    figures = [*CURVES, "bars", "target", "participation", "clients"]
    assert {f"{name}.{kind}" for name in figures for kind in ("pdf", "svg")} <= names
    tables = ["summary", "costs", "served", "target", "differences"]
    assert {f"{name}.{kind}" for name in tables for kind in ("tex", "csv")} <= names
    assert {"references.bib", "example.tex"} <= names


@pytest.mark.parametrize(
    ("format", "kinds"),
    [("pdf", {".pdf"}), (["csv", "csv"], {".csv"}), ("latex", {".tex", ".bib"})],
)
def test_only_what_was_asked_for(folder, tmp_path, format, kinds):
    made = report(folder, tmp_path / "only", format=format)
    assert {path.suffix for path in made.iterdir()} == kinds
    if format == "latex":  # nothing that is not there is shown
        assert "includegraphics{" not in (made / "example.tex").read_text()
        assert not (made / "target.tex").exists()  # no target


def test_letters_are_vectors_and_widths_those_of_a_column_and_a_page(paper):
    """Points are 1/72 inch: 3.4 inches are 244.8, 7 are 504."""
    widths = {
        name: re.search(rb"/MediaBox \[ ?0 0 ([\d.]+)", (paper / f"{name}.pdf").read_bytes())
        for name in ("curve-round", "bars")
    }
    assert {name: float(found[1]) for name, found in widths.items()} == {
        "curve-round": 244.8,
        "bars": 504.0,
    }
    for path in paper.glob("*.pdf"):
        content = path.read_bytes()
        assert b"/FontFile2" in content, "an embedded TrueType font"
        assert b"/Type3" not in content
        assert b"/CreationDate" not in content
    for path in paper.glob("*.svg"):
        text = path.read_text(encoding="utf-8")
        assert "<text" not in text
        assert "<image" not in text
        assert text.startswith("<?xml")


@pytest.mark.usefixtures("drawn")
def test_the_same_runs_give_the_same_bytes(folder, paper, tmp_path):
    again = report(folder, tmp_path / "again", 0.5, ["pdf", "svg", "latex", "csv"])
    assert {path.name for path in again.iterdir()} == {path.name for path in paper.iterdir()}
    assert [
        path.name
        for path in paper.iterdir()
        if path.read_bytes() != (again / path.name).read_bytes()
    ] == []


def test_intervals_by_hand():
    """Final accuracies of 60, 62 and 64 %: mean 62, deviation 2, t(.975, 2) = 4.302653, so 62 -+
    4.302653 * 2 / sqrt(3) = 4.968. Rounds to 61 %: the first seed never got there and counts with
    its 2 rounds, so the mean (2 + 2 + 2) / 3 is a lower bound."""
    columns = {"scope": ["global"] * 2, "client": [-1] * 2, "round": [1, 2]}
    runs = [
        fake.run(
            {"selector": {"name": "a"}},
            seed=seed,
            evaluations=fake.table("evaluations", accuracy=[0.5, end], **columns),
        )
        for seed, end in enumerate((0.60, 0.62, 0.64))
    ]
    tables = {table.name: table for table in print_tables(group_runs(runs), target=0.61)}
    # one method has no difference, and no client was evaluated
    assert set(tables) == {"summary", "costs", "target"}
    final = tables["summary"].rows[0][1][0]
    assert final == Interval(
        pytest.approx(62.0), pytest.approx(57.0317, abs=1e-4), pytest.approx(66.9683, abs=1e-4), 3
    )
    assert tables["summary"].heads == [
        ("Final", "%"),
        ("Peak", "%"),
        ("Stable", "%"),
        ("Drop", "points"),
    ]
    reached, rounds = tables["target"].rows[0][1][:2]
    assert (reached, rounds) == ("2 of 3", Censored(2.0, False))


def test_every_metric_has_a_row_with_its_unit(tmp_path):
    """A share is in percent, a perplexity is not; both are of the last evaluation, the second of
    two, and one seed has no interval."""
    metrics = [
        {"name": "macro_f1", "share": True, "higher_is_better": True},
        {"name": "perplexity", "share": False, "higher_is_better": False},
    ]
    columns = {
        "round": [1, 2] * 2,
        "scope": ["global"] * 4,
        "client": [-1] * 4,
        "time_s": [1.0, 2.0] * 2,
    }
    rows = fake.table(
        "metrics",
        metric=["macro_f1"] * 2 + ["perplexity"] * 2,
        value=[0.5, 0.75, 9.0, 8.0],
        **columns,
    )
    evaluations = fake.table("evaluations", round=[1, 2], scope=["global"] * 2, accuracy=[0.1, 0.2])
    run = fake.run(
        {}, {"metric": "macro_f1", "metrics": metrics}, metrics=rows, evaluations=evaluations
    )
    tables = {table.name: table for table in print_tables(group_runs([run]))}
    cells = tables["metrics"].rows
    assert [(cell[0], cell[1].mean, cell[2].mean) for _, cell in cells] == [
        ("macro_f1 (%)", 75.0, 75.0),
        ("perplexity", 8.0, 8.0),
    ]


def test_the_bibliography_has_what_was_used(paper):
    text = (paper / "references.bib").read_text(encoding="utf-8")
    entries = re.findall(r"^@\w+\{([^,]+),", text, re.MULTILINE)
    assert entries == ["mcmahan2017", "motley", "paszke2019pytorch"]
    assert "{Version 0.1.0}" in text
    assert r"\bibliography{references}" in (paper / "example.tex").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("out", "format", "message"),
    [
        (
            "paper",
            "png",
            r"^format: got 'png'; expected some of pdf, svg, latex, csv, e.g. pdf,latex",
        ),
        ("paper", ["pdf", "latx"], r"^format: got 'latx' \(did you mean 'latex'\?\)"),
        ("paper.pdf", "pdf", "^out: got 'paper.pdf'; expected a folder"),
        ("paper.html", ["csv"], "^out: got 'paper.html'; expected a folder"),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(tmp_path, out, format, message):
    with pytest.raises(ConfigError, match=message):
        report([fake.run()], tmp_path / out, format=format)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "paper").write_text("")
    with pytest.raises(StoreError, match="cannot write"):
        report([fake.run()], tmp_path / "paper", format="csv")


@pytest.mark.skipif(
    shutil.which("pdflatex") is None, reason="needs pdflatex (texlive-latex-recommended)"
)
def test_the_example_compiles(paper, tmp_path):
    for path in paper.iterdir():
        shutil.copy(path, tmp_path)
    latex = [
        "pdflatex",
        "-interaction=nonstopmode",
        "-halt-on-error",
        "-no-shell-escape",
        "example",
    ]
    steps = [latex, ["bibtex", "example"], latex, latex] if shutil.which("bibtex") else [latex]
    for step in steps:
        done = subprocess.run(step, cwd=tmp_path, capture_output=True, timeout=120)
        assert done.returncode == 0, done.stdout.decode("latin-1")[-2000:]
    log = (tmp_path / "example.log").read_text(encoding="latin-1")
    assert len(steps) == 1 or not re.search(r"(Citation|Reference) .* undefined", log)
    assert (tmp_path / "example.pdf").stat().st_size > 50_000


def test_labels_of_a_stranger_are_no_formulas_in_csv():
    table = PrintTable(
        "x", "", [("=1+1", "%")], [("=HYPERLINK(cell)", ["@b"]), ("FedAvg", ["-3.5"])], {}
    )
    assert as_csv(table) == "method,'=1+1 (%)\n'=HYPERLINK(cell),'@b\nFedAvg,-3.5\n"
