"""The page is whole in one file, asks for nothing, and survives whatever is in the tables."""

import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from math import isnan
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from motley.core.errors import ConfigError, StoreError
from motley.results.labels import group_runs
from motley.results.load import Run, load_all
from motley.results.measures import Spread
from motley.results.method_rows import method_rows, target_of
from motley.results.number_text import plus_minus, short_number
from motley.results.terminal import terminal_tables
from motley_report import sections
from motley_report.client_by_client import by_client
from motley_report.report import facts, report, warnings
from tests.motley.results import fake
from tests.places import PYTHONPATH


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("compare")
    for selector in ("uniform", "power_of_choice"):
        for seed in (0, 1):
            rejected = 2 if (selector, seed) == ("uniform", 1) else 0
            path = fake.write(
                root / selector / str(seed), selector, seed, rounds=20, rejected=rejected
            )
            (path / "run.json").write_text(json.dumps(fake.meta(selector, seed)))
    return root


@pytest.fixture(scope="module")
def page(folder):
    return report(folder, folder / "out" / "report.html").read_text(encoding="utf-8")


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.attributes = []
        self.open = []

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]
        if tag not in ("meta", "input", "path", "use", "link", "image", "br", "wbr"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *pair) for pair in attrs]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_nothing_is_fetched(page):
    """No element loads an address, no style does; links in BibTeX are plain text. Namespaces are
    names, not addresses."""
    tags = Tags()
    tags.feed(page)
    assert tags.open == []
    loading = {
        "src",
        "href",
        "xlink:href",
        "srcset",
        "data",
        "action",
        "poster",
        "background",
        "style",
    }
    for tag, name, value in tags.attributes:
        if name in loading:
            assert "//" not in (value or "") or (value or "").startswith("data:"), (
                tag,
                name,
                value,
            )
    assert not re.search(r"@import|url\((?!#)", page)
    assert not re.search(r"<(link|iframe|img|base|object|embed)\b", page)
    assert not re.search(r"fetch\(|XMLHttpRequest|WebSocket|import\(", page)


def test_ids_are_unique(page):
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))


def test_it_says_what_is_asked_of_it(page):
    for words in (
        "who to ask on digits",
        "uniform",
        "power_of_choice",
        "participation std",
        "virtual hours",
        "worst tenth",
        "rejected 2 times",
        "McMahan, H. Brendan",
        "AVX2",
        "motley compare demo.toml --set seed=1",
        "&#34;candidates&#34;: 12",
        "95% interval",
        "clients left out: 2",
    ):
        assert words in page, words
    assert page.count("<svg ") == 8
    assert 'class="no-script"' in page


@pytest.mark.usefixtures("drawn")
def test_the_same_page_twice(folder, page):
    assert (
        report(load_all(folder), folder / "out" / "again.html").read_text(encoding="utf-8") == page
    )


@pytest.mark.usefixtures("drawn")
def test_names_are_escaped(tmp_path, folder):
    run = load_all(folder)[0]
    named = type(run)(
        run.directory, dict(run.meta) | {"name": "<script>alert(1)</script> & $x_1$"}, run.tables
    )
    page = report([named], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)" in page
    Tags().feed(page)


@pytest.mark.usefixtures("drawn")
def test_an_empty_unfinished_run_has_a_page(tmp_path):
    run = fake.run()
    empty = type(run)(run.directory, {"name": "just begun"}, run.tables)
    page = report([empty], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "not finished" in page
    assert "no evaluation after round 0" in page
    assert not re.search(r"\bnan\b", page.replace('data-value="nan"', ""))


def with_curve(method, seed, values, metric="accuracy", finished=True, first=1):
    """A run with these values of the metric on a global test set, one a round from round
    ``first``."""
    rounds = list(range(first, first + len(values)))
    columns = {
        "round": rounds,
        "scope": ["global"] * len(values),
        "client": [-1] * len(values),
        metric: values,
    }
    made = fake.run(
        {"selector": {"name": method}},
        {"metric": metric},
        seed,
        evaluations=fake.table("evaluations", **columns),
    )
    return type(made)(made.directory, {**made.meta, "finished": finished}, made.tables)


def bare(page):
    """Cells without what they are sorted by and how they look."""
    return re.sub(r"<td [^>]*>", "<td>", page)


def test_the_difference_is_a_paired_t_interval(tmp_path):
    """Differences of stable: 10, 12, 14 points; mean 12, deviation 2, t(.975, 2) = 4.302653: 12 -+
    4.9683."""
    ours = [
        with_curve("ours", seed, [0.5 + gain] * 20) for seed, gain in enumerate((0.10, 0.12, 0.14))
    ]
    runs = [*(with_curve("base", seed, [0.5] * 20) for seed in range(3)), *ours]
    page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<td>+12.00</td><td>+7.03 to +16.97</td><td>3</td><td>better</td>" in bare(page)


def test_seeds_that_differ_by_the_same_give_no_interval_and_no_verdict(tmp_path):
    """Two seeds, each ahead by one of 90 test samples: 1.11 points twice, no variance."""
    runs = [
        with_curve(name, seed, [(72 + seed + more) / 90] * 20)
        for name, more in (("base", 0), ("ours", 1), ("same", 0))
        for seed in (0, 1)
    ]
    page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<td>+1.11</td><td>–</td><td>2</td><td>not estimable</td>" in bare(page)
    assert "<td>+0.00</td><td>–</td><td>2</td><td>no clear difference</td>" in bare(page)
    said = "No interval of ours; same can be estimated: all seeds differ by the same, which"
    assert said in page
    assert said in " ".join(terminal(terminal_tables(runs)[1]).split())
    report(runs, tmp_path / "paper", format="latex")
    latex = (tmp_path / "paper" / "differences.tex").read_text()
    assert said in latex
    assert "ours & $1.11$ & 2 & not estimable" in latex


def three_against(base):
    """Three methods against a base with 50 %, whose seeds gain 10, 12, 14; 8, 12, 16; 1, 1, -2
    points."""
    gains = {"sure": (0.10, 0.12, 0.14), "near": (0.08, 0.12, 0.16), "none": (0.01, 0.01, -0.02)}
    runs = [with_curve(base, seed, [0.5] * 20) for seed in range(3)]
    return runs + [
        with_curve(name, seed, [0.5 + gain] * 20)
        for name, each in gains.items()
        for seed, gain in enumerate(each)
    ]


def test_the_intervals_of_a_table_hold_together(tmp_path):
    """Three comparisons: each at 1 - .05 / 3, t(1 - .05 / 6, 2) = 7.648852 (scipy and, for the
    adjusted p values .0274, .1053 and 1, statsmodels' multipletests). Half of the intervals: 2, 4
    and sqrt(3) points / sqrt(3) * 7.6489 = 8.8322, 17.6643 and 7.6489. Plain ones have 4.302653:
    4.9683, 9.9366 and 4.3027."""
    runs = three_against("base")
    page = bare(report(runs, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "<td>+12.00</td><td>+3.17 to +20.83</td><td>3</td><td>better</td>" in page
    assert "<td>+12.00</td><td>−5.66 to +29.66</td><td>3</td><td>no clear difference</td>" in page
    assert "The 95 % intervals of the 3 comparisons hold together (Bonferroni)." in page
    plain = bare(
        report(runs, tmp_path / "r.html", plain_intervals=True).read_text(encoding="utf-8")
    )
    assert "<td>+12.00</td><td>+7.03 to +16.97</td><td>3</td><td>better</td>" in plain
    assert "<td>+12.00</td><td>+2.06 to +21.94</td><td>3</td><td>better</td>" in plain
    said = "Plain 95 % intervals, each of one comparison alone: of 3, one or more miss more often"
    assert said in plain
    assert said in report(runs, tmp_path / "r.md", plain_intervals=True).read_text(encoding="utf-8")


def test_every_place_says_of_how_many_comparisons_intervals_hold_together(tmp_path):
    runs = three_against("base")
    said = "The 95 % intervals of the 3 comparisons hold together (Bonferroni)."
    assert said in report(runs, tmp_path / "r.md").read_text(encoding="utf-8")
    assert said in " ".join(terminal(terminal_tables(runs)[1]).split())
    report(runs, tmp_path / "paper", format="latex")
    latex = said.replace("%", "\\%")
    assert latex in (tmp_path / "paper" / "differences.tex").read_text()
    # of one comparison there is nothing to say
    assert "hold together" not in report(runs[:6], tmp_path / "r.md").read_text(encoding="utf-8")


def test_a_method_without_two_common_seeds_is_named_and_counts_in_no_correction(tmp_path):
    """Two comparisons are left: t(1 - .05 / 4, 2) = 6.205347, 2 / sqrt(3) times it 7.1653."""
    runs = three_against("base")[:-2]
    page = bare(report(runs, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "<td>+12.00</td><td>+4.83 to +19.17</td><td>3</td><td>better</td>" in page
    assert "of the 2 comparisons hold together" in page
    assert "Left out, without two finished seeds in common: none." in page


def test_a_bound_beside_zero_shows_its_side(tmp_path):
    """Gains of .001, .002 and .0034 points: the plain interval is .0021 -+ .0030 points."""
    runs = [with_curve("base", seed, [0.5] * 20) for seed in range(3)] + [
        with_curve("ours", seed, [0.5 + gain] * 20)
        for seed, gain in enumerate((0.00001, 0.00002, 0.000034))
    ]
    page = bare(report(runs, tmp_path / "r.html").read_text(encoding="utf-8"))
    assert "<td>+0.002</td><td>−0.0009 to +0.01</td>" in page


def test_the_untrained_model_counts_in_no_verdict(tmp_path):
    """Round 0 and two more, too few for a stable value: methods are judged by the final one, 60 %
    for base and 70, 72, 74 % for ours, so that the paired interval is that of 10, 12, 14 points as
    above, whatever the untrained models have."""
    ours = [
        with_curve("ours", seed, [0.9 * seed, 0.5 + gain, 0.7 + gain], first=0)
        for seed, gain in enumerate((0.0, 0.02, 0.04))
    ]
    runs = [*(with_curve("base", seed, [0.1, 0.4, 0.6], first=0) for seed in range(3)), *ours]
    page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<td>+12.00</td><td>+7.03 to +16.97</td><td>3</td><td>better</td>" in bare(page)
    assert "final accuracy against base" in page
    assert all(isnan(row.end("stable").mean) for row in method_rows(group_runs(runs)))


def test_the_best_round_by_validation_stands_beside_the_final_one(tmp_path):
    """Validation is best at round 2 of 3, where the test accuracy is 70 %; a method without
    validation samples shows none."""
    columns = {
        "round": [1, 2, 3] * 2,
        "scope": ["global"] * 3 + ["validation"] * 3,
        "client": [-1] * 6,
    }
    rows = fake.table("evaluations", accuracy=[0.5, 0.7, 0.6, 0.4, 0.8, 0.5], **columns)
    held = fake.run({"selector": {"name": "a"}}, evaluations=rows)
    runs = [held, with_curve("b", 0, [0.5] * 3)]
    page = bare(report(runs, tmp_path / "r.html").read_text(encoding="utf-8"))
    # final, by validation, peak, stable, drop
    assert "<td>60.00</td><td>70.00</td><td>70.00</td><td>–</td><td>10.00</td>" in page
    assert "<td>50.00</td><td>–</td><td>50.00</td>" in page
    assert "the round that is best on the clients" in page
    assert (
        "by validation"
        not in report([runs[1]], tmp_path / "r.html").read_text(encoding="utf-8").lower()
    )


def test_round_0_alone_shows_no_number(tmp_path):
    runs = [with_curve("a", 0, [0.1], first=0), with_curve("b", 0, [0.1], first=0)]
    page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "all methods: no evaluation after round 0" in page
    assert bare(page).count("<td>–</td>" * 4) >= 2  # final, peak, stable and drop
    assert isnan(method_rows(group_runs(runs))[0].end("stable").mean)


def test_methods_are_compared_with_the_reference_whatever_their_order(tmp_path):
    runs = [
        with_curve(method, seed, [0.5] * 20)
        for method in ("active_fl", "uniform")
        for seed in (0, 1)
    ]
    assert "stable accuracy against uniform" in report(runs, tmp_path / "r.html").read_text(
        encoding="utf-8"
    )


def test_no_verdict_without_two_finished_pairs(tmp_path):
    """One seed is not finished, or has no evaluations: one pair is left, and one pair has no
    interval."""
    base = [with_curve("base", seed, [0.5] * 20) for seed in (0, 1)]
    for second in (with_curve("ours", 1, [0.1] * 20, finished=False), with_curve("ours", 1, [])):
        runs = [*base, with_curve("ours", 0, [0.9] * 20), second]
        page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
        assert "Is the difference more than the seeds?" not in page


def test_small_differences_keep_their_digits(tmp_path):
    """Losses of 1e-4 and 3e-4: the difference is not 0.00."""
    runs = [
        with_curve(name, seed, [loss + seed * 1e-7] * 20, "loss")
        for name, loss in (("a", 3e-4), ("b", 1e-4))
        for seed in (0, 1)
    ]
    page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<td>−0.0002</td>" in bare(page)


def test_notes_of_all_runs_are_shown(tmp_path):
    runs = [with_curve("a", seed, [0.5] * 20) for seed in (0, 1)]
    for seed, run in enumerate(runs):
        run.meta["task"]["notes"] = {"data": "MNIST", "min_size": f"redrawn {seed} times"}
    page = report(runs, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "<li>data: MNIST</li><li>min_size: redrawn 0 times / redrawn 1 times</li>" in page


def test_few_evaluations_are_said(tmp_path):
    page = report([with_curve("a", 0, [0.5] * 4)], tmp_path / "r.html").read_text(encoding="utf-8")
    assert (
        "fewer than ten evaluations past half of a run: it has no stable value; set a smaller "
        "evaluate.every" in page
    )
    assert (
        "There is no stable value (–) where a run has fewer than ten evaluations past its half."
        in page
    )
    page = report([with_curve("a", 0, [0.5] * 20)], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "fewer than ten" not in page


def test_costs_to_a_target_are_censored(tmp_path, folder):
    """Both methods pass 50% and none 99%: every run of 20 rounds then counts with all of them, as a
    lower bound."""
    runs = load_all(folder)
    page = report(runs, tmp_path / "r.html", target=0.5).read_text(encoding="utf-8")
    assert "Until 50%" in page
    assert page.count(">2 of 2<") == 2
    page = report(runs, tmp_path / "r.html", target=0.99).read_text(encoding="utf-8")
    assert page.count(">0 of 2<") == 2
    assert page.count(">&gt; 20<") == 2


def test_a_loss_has_no_percent(tmp_path):
    path = fake.write(tmp_path / "run", rounds=5, metric="loss", per_client=False)
    (path / "run.json").write_text(json.dumps(fake.meta(metric="loss")))
    page = report(path, tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Loss averaged over the clients" in page
    assert "accuracy" not in page.lower()


@pytest.mark.parametrize("name", ["x.pdf", "x.tex", "x.svg", "x.csv", "x.png", "x", "x.html.gz"])
def test_a_suffix_that_is_no_page_is_refused(tmp_path, name):
    with pytest.raises(
        ConfigError,
        match=rf"^out: got '{name}'; expected a name that ends in .html, .htm, .md, e.g. "
        rf"report.html; --format pdf",
    ):
        report([fake.run()], tmp_path / name)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["x.htm", "x.HTML"])
def test_a_page_has_any_of_its_suffixes(tmp_path, name):
    assert (
        report([fake.run()], tmp_path / name)
        .read_text(encoding="utf-8")
        .startswith("<!doctype html>")
    )


def test_bad_input_is_one_sentence(tmp_path):
    with pytest.raises(StoreError, match="there are no runs in"):
        report(tmp_path, tmp_path / "r.html")
    with pytest.raises(StoreError, match="needs at least one run"):
        report([], tmp_path / "r.html")
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot write .*file/r.html"):
        report([fake.run()], tmp_path / "file" / "r.html")


def terminal(table):
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(table)
    console.file.close()
    return console.export_text()


def test_both_accounts_of_the_target_fit_a_hundred_columns(folder):
    """uniform: one model of 55,050 values is 0.2202 MB; a round takes six up and six down, so 20
    rounds are 26.42 MB as papers count and twice as much in all; power_of_choice measures six
    clients more each round."""
    text = terminal(terminal_tables(load_all(folder), 1.0)[3])
    assert max(map(len, text.splitlines())) <= 100
    assert "rounds   virtual h   uplink, papers MB   all traffic MB" in text
    rows = {line.split()[0]: line.split()[-4:] for line in text.splitlines() if ">" in line}
    assert rows == {
        "uniform": [">", "26.42", ">", "52.85"],
        "power_of_choice": [">", "26.42", ">", "79.27"],
    }


def test_the_target_is_the_experiments_own_where_none_is_given(folder, tmp_path):
    run = load_all(folder)[0]
    own = {**run.config, "stop": {"rounds": 20, "target": {"accuracy": 0.3}}}
    run = type(run)(run.directory, {**run.meta, "config": own}, run.tables)
    assert (target_of(run), target_of(run, 0.5)) == (0.3, 0.5)
    assert "Until 30%" in report([run], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "Until 50%" in report([run], tmp_path / "r.html", target=0.5).read_text(encoding="utf-8")
    for wrong in (90.0, 0.0, float("nan")):
        with pytest.raises(
            ConfigError,
            match=r"target: got .* for accuracy; expected a share above 0 and at most 1, e.g. 0.9",
        ):
            report([run], tmp_path / "r.html", target=wrong)


def test_numbers_line_up():
    assert short_number(86.934) == "86.93"
    assert short_number(1204.4) == "1\u202f204"
    assert short_number(0.01234) == "0.012"
    assert short_number(0.0) == "0.00"
    assert short_number(0.000345) == "0.00034"
    assert short_number(-1.26e-7) == "-1.3e-07"
    assert short_number(float("nan")) == "–"
    assert plus_minus(Spread(86.934, 0.5678, 3)) == "86.93 ± 0.57"
    assert plus_minus(Spread(86.934, float("nan"), 1)) == "86.93"
    assert plus_minus(Spread(2768.23, 1041.5, 3), 1) == "2\u202f768.2 ± 1\u202f041.5"


def test_what_holds_of_all_methods_is_said_once(tmp_path):
    """Three methods of one seed each are one line, not three."""
    runs = [with_curve(method, 0, [0.1 * i for i in range(12)]) for method in fake.METHODS]
    text = report(runs, tmp_path / "report.html").read_text(encoding="utf-8")
    assert text.count("one seed only") == 1
    assert "all methods: one seed only" in text
    text = report(
        [*runs, with_curve("uniform", 1, [0.1] * 12)], tmp_path / "report.html"
    ).read_text(encoding="utf-8")
    assert "power_of_choice, hetero_select_v1: one seed only" in text


def test_single_runs_are_linked_from_where_the_report_lies(folder, tmp_path):
    """A run's own report where it has one, else its folder; signs that an address cannot hold are
    encoded."""
    strange = fake.write(tmp_path / "runs" / "alpha=0.1 #%", "uniform", 0, rounds=3)
    (strange / "run.json").write_text(json.dumps(fake.meta("uniform", 0, finished=False)))
    page = report(tmp_path / "runs", tmp_path / "out" / "r.html").read_text(encoding="utf-8")
    assert '<a href="../runs/alpha%3D0.1%20%23%25/">unif0</a>' in page
    assert ">3 of 60, not finished<" in page
    (strange / "report.html").write_text("")
    assert (
        '<a href="../runs/alpha%3D0.1%20%23%25/report.html">'
        in report(tmp_path / "runs", tmp_path / "out" / "r.html").read_text()
    )
    assert (
        "[unif0](<alpha%3D0.1%20%23%25/report.html>)"
        in report(tmp_path / "runs", tmp_path / "runs" / "r.md").read_text()
    )
    assert (
        "<a href="
        not in report([fake.run()], tmp_path / "none.html").read_text().partition("<main>")[2]
    )


def test_a_backend_that_matplotlib_lacks_is_named(tmp_path: Path) -> None:
    """The environment of a notebook or of another matplotlib, which no page needs."""
    code = (
        "import sys, motley\n"
        "try:\n    motley.report([], sys.argv[1])\n"
        "except motley.ConfigError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "x.html")],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "MPLBACKEND": "nonsense"},
    )
    assert done.stdout.startswith("MPLBACKEND: ")
    assert "'nonsense'" in done.stdout
    assert done.stdout.endswith("; unset it\n")


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        (Run(Path(), {}, {}), r"^runs: got a run; expected a list of runs, \[run\]$"),
        (SimpleNamespace(runs=[]), "^runs: got a comparison; give its runs, comparison.runs$"),
        (3, "^runs: got int; expected a list of runs"),
        ([3], "^runs: got list; expected a list of runs"),
    ],
)
def test_what_is_no_list_of_runs_is_refused(runs: Any, words: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=words):
        report(runs, tmp_path / "x.html")


def test_an_iterator_of_runs_is_a_list_of_them(tmp_path: Path) -> None:
    runs = [with_curve("uniform", seed, [0.5, 0.6]) for seed in (0, 1)]
    page = report(runs, tmp_path / "listed.md").read_text(encoding="utf-8")
    again = report((run for run in runs), tmp_path / "again.md").read_text(encoding="utf-8")
    assert again.replace("again_pictures", "listed_pictures") == page
    with pytest.raises(ConfigError, match=r"^runs: got list_iterator; expected a list"):
        report(iter([3]), tmp_path / "x.html")


def test_facts_that_differ_between_methods_are_all_told() -> None:
    def run(cohort: int, model: str) -> Run:
        keys = {"population": 1200, "cohort": cohort, "task": {"data": "digits", "model": model}}
        return fake.run(keys)

    groups = {"a": [run(5, "mlp")], "b": [run(10, "mlp"), run(5, "cnn")]}
    assert facts(groups) == [
        ("task", "digits, mlp / digits, cnn"),
        ("clients", "1\u202f200"),
        ("per round", "5 / 10"),
        ("methods", "2"),
        ("seeds", "0"),
    ]
    many = {str(n): [run(n, "mlp")] for n in range(1, 9)}
    assert ("per round", "1 / 2 / 3 / 4 / 5 / 3 more") in facts(many)


def test_several_runs_of_a_seed_are_told() -> None:
    """As of a class of one's own before and after a change: the two are no two seeds."""
    runs = [fake.of_losses([2.0, loss], run_id=str(loss)) for loss in (0.3, 0.5)]
    (line,) = [line for line in warnings(group_runs(runs)) if "several runs" in line]
    assert line.startswith("by hand: several runs of seed 0, such as of other code, data or noise")
    other_seed = fake.of_losses([2.0, 0.5], seed=1)
    assert "several runs" not in "".join(warnings(group_runs([runs[0], other_seed])))


@pytest.mark.usefixtures("drawn")
def test_the_picture_of_the_data_names_its_method_where_others_have_other_data() -> None:
    def run(seed: int, *labels: list[int]) -> Run:
        held = fake.table("federation", client=[0, 1], labels=labels)
        return fake.run(seed=seed, federation=held)

    alike = {"a": [run(0, [5, 0], [0, 5]), run(1, [3, 2], [2, 3])], "b": [run(0, [5, 0], [0, 5])]}
    (picture,) = sections.federation(alike).blocks
    assert "Who holds what (seed 0)" in picture.svg  # type: ignore[union-attr]
    (picture,) = sections.federation({**alike, "c": [run(0, [3, 2], [2, 3])]}).blocks
    assert "Who holds what (a, seed 0)" in picture.svg  # type: ignore[union-attr]


def test_a_seed_that_was_ruined_leaves_no_figure_of_its_clients() -> None:
    """Client by client, too: the mean of the other seed alone would be shown as that of both."""
    names = {"0": "Graz", "1": "Linz"}
    runs = [
        fake.of_losses([2.0, 0.3], [0.2, 0.4], seed=0, clients=names),
        fake.of_losses([2.0, float("nan")], [float("nan")] * 2, seed=1, clients=names),
    ]
    for given, shown in ((runs[:1], ["0.200", "0.400"]), (runs, ["–", "–"])):
        table = by_client({"fedavg": given})
        assert table is not None
        assert [row.cells[1].text for row in table.rows] == shown
