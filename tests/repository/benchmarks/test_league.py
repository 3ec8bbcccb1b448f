"""What advice looks at is what the league's numbers give, and its page says no other figures."""

import re
from functools import cache
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks import league
from motley.results.measures import Interval, interval, spread
from motley_papers.advice import LEFT_OUT, evidence_texts
from motley_papers.earlier import MeasuredRow, read_rows
from motley_papers.naming import differences
from motley_papers.recipe import Cell

DOCS = Path(__file__).resolve().parents[3] / "docs"
PAGE = (DOCS / "league.md").read_text(encoding="utf-8")
RULES = (DOCS / "selection-rules.csv").read_text(encoding="utf-8")


@pytest.fixture(scope="module", autouse=True)
def numbers_read_once():
    """No test writes them, and each reading takes as long as a test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(league, "rows_of", cache(league.rows_of))
        yield


@pytest.fixture(scope="module")
def evidence():
    return league.proved_evidence()


@pytest.fixture(scope="module")
def left_out(evidence):
    return league.left_out(evidence)


def test_the_stored_evidence_is_that_of_the_measured_numbers(evidence):
    for name, text in evidence_texts(evidence).items():
        assert (league.FOLDER / name).read_text(encoding="utf-8") == text, name


def test_the_stored_proof_with_environments_left_out_is_that_of_the_measured_numbers(
    evidence, left_out
):
    assert (league.FOLDER / LEFT_OUT).read_text(encoding="utf-8") == league.left_out_text(evidence)
    for personal, shown in left_out.items():
        there = evidence.gains[personal]
        assert [one.federation for one in shown.advised] == list(there)
        for one in shown.advised:
            if one.entrant:  # scored by the seeds that its page counts
                points = there[one.federation][one.entrant].points
                assert one.gain == pytest.approx(fmean(points))


def test_what_was_measured_again_is_what_was_chosen():
    asked = {(cell.exhibit.name, cell.name, seed) for cell, seed in league.to_measure_again()}
    rows = league.rows_of(league.MEASURED_AGAIN)
    assert {(row.exhibit, row.cell, row.seed) for row in rows} == asked


def test_the_figures_in_sentences_of_the_page():
    rows = league.rows_of(league.MEASURED)
    found = differences(rows, "shared", league.HEADLINE, league.CHOICE)
    lost = -fmean(found["features-strong, labels"]["pyramidfl"])
    assert f"loses {lost:.1f} points where labels are skewed, too" in PAGE
    lost = -fmean(found["writers"]["mifa"])
    assert f"`mifa` loses {lost:.0f} points among writers" in PAGE


def test_the_figures_of_flash_beside_its_rule():
    found = differences(league.rows_of(league.MEASURED), "shared", league.HEADLINE, league.CHOICE)[
        "speeds-strong, labels"
    ]
    behind = -fmean(found["flash, selection only"])
    loss = -fmean(found["flash_robust"])
    assert f"it was {behind:.1f} points behind uniform where labels and speeds differ" in RULES
    assert f"its robust loss alone (`flash_robust`) {loss:.1f}" in RULES


def test_what_the_page_says_of_the_proof(evidence, left_out):
    one, own = (evidence.proofs[personal] for personal in (False, True))
    assert one.gain.low < 0 < one.gain.mean
    assert sum(bool(each.entrant) for each in own.advised) == 2
    assert len(own.advised) == 9
    assert "for own models two of nine were advised" in PAGE
    shared, personal = (left_out[kind].gain.mean for kind in (False, True))
    assert f"gain {shared:.1f} and {personal:.1f} points by advice" in PAGE
    winners = (left_out[kind].winners_gain.mean for kind in (False, True))
    said = "by always one method {:.1f} (`feddyn`, surely more) and {:.1f} (`fedrod` but once"
    assert said.format(*winners) in PAGE
    less = [
        interval(spread([one.gain - one.winners_gain for one in left_out[kind].advised]))
        for kind in (False, True)
    ]
    assert less[0].high < 0 < less[1].high
    assert [{one.winner for one in left_out[kind].advised} for kind in (False, True)] == [
        {"feddyn"},
        {"fedrod", "FedAvg, fine-tuned"},
    ]


def test_plain_fine_tuning_is_measured_where_own_models_stand_on_the_first_screen(
    evidence, monkeypatch
):
    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    only = league.RECIPE.named("fine-tuning alone").scale["small"].only["environment"]
    told = [place for place in evidence.gains[True] if from_league._told(evidence, place, True)]
    assert set(told) <= set(only)
    personal = differences(league.rows_of(league.MEASURED), "personal", "stable", league.CHOICE)
    lost = -fmean(personal["speakers"]["FedAvg, fine-tuned"])
    assert "speakers" not in only
    assert f"Among speakers it lost {lost:.0f} points (two seeds)" in PAGE


def test_agreements_by_hand(monkeypatch):
    """Surely up beside up and down beside down agree, surely down beside up does not; an interval
    around 0, and a mean of 0, say neither."""
    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    up, down, unsure = (Interval(mid, mid - 1, mid + 1, 3) for mid in (2.0, -2.0, 0.5))
    found = from_league._agreed([up, down, down, unsure, up], [1.0, -3.0, 1.0, 1.0, 0.0])
    assert found == (2, 1, 2)


def test_what_the_rate_of_the_cnn_costs_alone():
    exhibit = league.RECIPE.named("cnn")
    seeds = [10, 11, 12]  # those of which every run is there
    found = differences(
        league.rows_of(league.MEASURED), "cnn", "stable", seeds, exhibit.ranks.against
    )
    costs = sorted(
        -fmean(found[place]["uniform FedAvg, rate 0.03, CNN"]) for place in ("even", "noise-strong")
    )
    measured = (DOCS / "measured.md").read_text(encoding="utf-8")
    said = "0.03 alone costs uniform FedAvg {:.1f} to {:.1f} points where labels are alike"
    assert said.format(*costs) in measured


def test_what_comes_with_hetero_select_gains_as_much_without_its_selection(evidence):
    rows = league.rows_of(league.MEASURED)
    exhibit = league.RECIPE.named("controls")
    found = differences(
        rows, exhibit.name, league.HEADLINE, league.RECIPE.seeds(exhibit, league.SCALE)
    )
    for place in ("features-strong, labels", "writers", "speakers"):
        gain = evidence.gains[False][place]["HeteRo-Select v2, whole"].interval
        assert fmean(found[place]["FedAvg, HeteRo-Select's settings"]) > gain.low


def test_holm_over_a_column_leaves_what_is_told(evidence, monkeypatch):
    """By hand from the stored points: the smallest of 35 p values counts 35 times, the next 34."""
    from scipy.stats import ttest_1samp

    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    left = {}
    for personal in (False, True):
        named = {
            place: from_league._again(evidence, personal, place)
            for place in evidence.gains[personal]
        }
        p = sorted((ttest_1samp(gain.points, 0.0).pvalue, at) for at, (_, gain) in named.items())
        sure = []
        for rank, (one, place) in enumerate(p):
            if one * (len(p) - rank) > 0.05:
                break
            sure.append(place)
        signs = {place: evidence.sign(personal, place, named[place][0]) for place in named}
        assert {place for place, sign in signs.items() if sign} == set(sure)
        left[personal] = len(sure)
    assert left == {False: 15, True: 22}  # one of the 22 is a loss
    assert from_league._counted(evidence, True)[:3] == (21, 1, 35)


@pytest.mark.parametrize(
    ("here", "there", "told"),
    [
        ((1, 3), [], True),  # nothing has run elsewhere
        ((1, 3), [(1, 3), (-1, 1)], True),
        ((1, 3), [(-1, 1), (-1, 2)], False),  # seen on one set alone
        ((1, 3), [(1, 3), (-3, -1)], False),  # reversed on one
        ((1, 3), [(-1, 1)], False),
    ],
)
def test_a_gain_is_told_if_two_sets_of_data_show_it_and_none_denies_it(
    here, there, told, monkeypatch
):
    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    def ends(low, high):
        return Interval((low + high) / 2, low, high, 5)

    found = {str(i): ends(*one) for i, one in enumerate(there)}
    assert from_league._travels(ends(*here), found) == told


def test_the_rows_that_advise_are_planned_on_other_data(evidence, monkeypatch):
    """Every row of the first screen but those of natural clients is planned on MNIST, with what is
    named there; a control at the rate of each named method that has another is planned, too."""
    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    mnist, rates = (league.RECIPE.named(name) for name in ("on MNIST", "rates"))
    for personal in (False, True):
        for place in evidence.gains[personal]:
            entrant = from_league._again(evidence, personal, place)[0]
            if from_league._told(evidence, place, personal) and place not in (
                "writers",
                "speakers",
            ):
                assert place in mnist.scale["small"].only["environment"]
                assert entrant in mnist.axes["entrant"]
            rate = from_league._chosen().get(entrant, {}).get("local.optimizer.lr", 0.1)
            if rate != 0.1:
                assert place in rates.scale["small"].only["environment"]
                assert f"FedAvg, rate {rate:g}" in rates.axes["entrant"]


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("concepts-strong", "+33.7 [+30.5, +37.0]; on MNIST: +38.1 [+34.5, +41.7]; on a table: "),
        ("labels-weak", ""),  # 1.2 points, and reversed on both
        ("sizes-weak, labels", ""),  # reversed on the table
        ("noise-strong, labels", ""),  # seen on neither
        ("sizes-strong, labels", ""),  # tried on neither
        ("writers", ""),  # never measured
    ],
)
def test_plain_fine_tuning_is_told_by_the_rule_of_all_gains(place, told, monkeypatch):
    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    made = from_league._fine(place)
    assert made.startswith(told)
    assert bool(made) == bool(told)


def test_the_page_of_ten_minutes_names_what_the_league_tells(evidence, monkeypatch):
    """Whatever it names stands on the league's first screen: a method, fine-tuning where it surely
    gains, or the settings that gain half as much without the method."""
    monkeypatch.syspath_prepend(str(DOCS))
    import from_league

    told = {
        from_league._again(evidence, personal, place)[0]
        for personal in (False, True)
        for place in evidence.gains[personal]
        if from_league._told(evidence, place, personal)
    }
    made = from_league.which_method()
    named = set(re.findall(r"`([a-z_]+)`", made)) - {"fedavg", "fine_tuned"}
    assert named
    assert named <= told
    settings = {words for words in from_league._SETTINGS.values() if words in made}
    assert settings == set(from_league._SETTINGS.values())
    assert made.splitlines()[-1].endswith("alone | `fedavg` | `fedavg` |")
    assert from_league._where(["noise-weak, labels", "noise-strong, labels"]) == (
        " (with skewed labels)"
    )
    assert from_league._where(["features-strong, labels"]) == " (strong, with skewed labels)"
    assert from_league._where(["labels", "labels-strong"]) == from_league._where(["writers"]) == ""
    # a cell whose environments all have skewed labels says so, a setting like a method
    rows = {line.split(" | ")[0].strip("| "): line for line in made.splitlines()}
    assert (
        "`local.lr_schedule` ([values](measured.md#league-controls)) (strong, with skewed"
        in (rows["features"])
    )
    assert '`weights = "uniform"` (with skewed labels)' in rows["lies about themselves"]
    assert rows["sizes"].endswith("| `fedrod` (weak, with skewed labels) |")
    assert rows["labels"].endswith("| `fedrod` (weak); `fine_tuned` |")
    data = from_league.which_method_data()
    assert "gains are seen on two of three data sets at least, and reversed on none" in data
    page = (DOCS / "which-algorithm.md").read_text(encoding="utf-8")
    assert data in page
    paid = any(proof.holds for proof in evidence.proofs.values())
    assert ("following such advice has not yet paid" in page) == (not paid)


def test_what_was_measured_again_is_measured_anew_where_asked(monkeypatch, tmp_path):
    """Of two environments whose rows are there, one is asked for: its run alone is made, and the
    other's rows stay."""
    exhibit = league.RECIPE.named("shared")
    cells = [Cell(exhibit, (place, league.CONTROL)) for place in ("even", "labels")]
    rows = [
        MeasuredRow("shared", cell.name, "stable", 10, "84.5", "true", "0" * 12, "")
        for cell in cells
    ]
    made = []

    def run(points, folders, *_, **__):
        made.extend(point.label for point in points)
        return [], []

    kept = tmp_path / league.SCALE
    kept.mkdir()
    monkeypatch.setattr(league, "KEPT", tmp_path)
    monkeypatch.setattr(league, "rows_of", lambda name: list(rows))
    monkeypatch.setattr(league, "to_measure_again", lambda: [(cell, 10) for cell in cells])
    monkeypatch.setattr(league, "run_points", run)
    league.measure_again(tmp_path / "out", 1, ["labels"])
    assert made == [f"shared labels / {league.CONTROL}"]
    assert read_rows(kept / league.MEASURED_AGAIN) == [rows[0]]
