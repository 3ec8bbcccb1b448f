"""Who may send how much and what made the score: from the right rows, and shown only where it means
something."""

import json
import re

import numpy as np
import pytest

from motley.results import measures
from motley_report import sections, selection_plots
from motley_report.report import report
from tests.motley.results import fake

pytestmark = pytest.mark.usefixtures("drawn")


def sending(theta, mbps=None, score=None, budget=(0.2, 0.1), seed=0, **config):
    """A run of two rounds with these clients (an entry of ``theta`` per round)."""
    rows = [(r, k) for r, one in enumerate(theta, 1) for k in range(len(one))]
    columns = {
        "round": [r for r, _ in rows],
        "client": [k for _, k in rows],
        "outcome": ["accepted"] * len(rows),
        "start_s": [10.0 * r for r, _ in rows],
        "theta": [theta[r - 1][k] for r, k in rows],
        "up_mbps": [(mbps or [1.0, 2.0, 3.0, 4.0])[k] for _, k in rows],
    }
    if score is not None:
        columns["score"] = [score[r - 1][k] for r, k in rows]
    rounds = fake.table("rounds", round=[1, 2], budget=list(budget))
    return fake.run(config, seed=seed, rounds=rounds, clients=fake.table("clients", **columns))


def noting(*notes, seed=0):
    rounds = fake.table(
        "rounds", round=list(range(1, len(notes) + 1)), notes=[n and json.dumps(n) for n in notes]
    )
    return fake.run(seed=seed, rounds=rounds)


# of their means, both 0.5: 1.8, 1.2, .6, .4 and 2, 2, 0, 0
SCORES = [[0.9, 0.6, 0.3, 0.2], [1.0, 1.0, 0.0, 0.0]]


def test_asked_is_the_budget_times_the_score_over_the_mean_of_the_cohort():
    got = measures.shares(
        sending([[0.36, 0.24, 0.12, 0.08], [0.2, 0.2, 0.005, 0.005]], score=SCORES)
    )
    np.testing.assert_allclose(got.wanted, [0.36, 0.24, 0.12, 0.08, 0.2, 0.2, 0, 0])
    assert got.budget.tolist() == [0.2] * 4 + [0.1] * 4
    assert np.isnan(got.ceiling)  # nobody got less than asked; ``least`` gave two of them more


def test_rounds_of_whole_updates_are_left_out():
    got = measures.shares(sending([[1.0] * 4, [0.1] * 4], budget=(1.0, 0.1)))
    assert got.theta.tolist() == [0.1] * 4
    assert np.isnan(got.wanted).all()
    assert len(measures.shares(sending([[1.0] * 4, [1.0] * 4])).theta) == 0
    assert len(measures.shares(fake.run()).theta) == 0


def test_a_ceiling_is_told_where_the_tables_prove_it():
    """0.05 for each Mb/s: of (.36, .24, .12, .08) the first two are held at .05 and .1, of (.2, .2,
    0, 0) both again."""
    held = [[0.05, 0.1, 0.12, 0.08], [0.05, 0.1, 0.005, 0.005]]
    assert measures.shares(sending(held, score=SCORES)).ceiling == pytest.approx(0.05)
    held[0][0] = 0.06  # not in proportion to the uplinks: some other rule
    assert np.isnan(measures.shares(sending(held, score=SCORES)).ceiling)
    # the same for everybody
    assert np.isnan(measures.shares(sending([[0.2] * 4, [0.1] * 4], score=SCORES)).ceiling)


def test_notes_with_a_common_head_belong_together():
    run = noting(
        {"tau": 1.0, "component.value": 0.5, "component.fairness": 0.0},
        None,
        {"component.value": 0.25},
    )
    found = measures.grouped_notes(run)
    assert {head: list(names) for head, names in found.items()} == {
        "component": ["value", "fairness"]
    }
    assert found["component"]["value"].x.tolist() == [1, 3]
    assert found["component"]["value"].y.tolist() == [0.5, 0.25]
    assert measures.grouped_notes(fake.run()) == {}


def methods(picture):
    return set(re.findall(r'class="(method-\d+)"', picture.svg))


def test_each_figure_shows_the_methods_that_have_its_columns():
    plain = sending([[1.0] * 4] * 2)
    cut = sending([[0.2] * 4, [0.1] * 4])
    scored = sending([[0.36, 0.24, 0.12, 0.08], [0.2, 0.2, 0.005, 0.005]], score=SCORES)
    noted = noting({"component.value": 0.5}, {"component.value": 0.4})
    groups = {
        "dense": [plain],
        "flexcom": [cut],
        "hetero_select": [scored, scored],
        "notes": [noted],
    }
    assert methods(selection_plots.shares(groups)) == {"method-1", "method-2"}
    assert methods(selection_plots.shares_by_score(groups)) == {"method-2"}
    (one,) = selection_plots.components(groups)
    assert methods(one) == {"method-3"}
    assert 'aria-label="component: value, of notes"' in one.svg


def test_what_was_diagnosed_has_pictures_of_its_own():
    noted = noting(
        {"component.value": 0.5, "diversity.B2": 2.0, "diversity.G2": 0.5, "error.uniform": 0.1},
        {"diversity.B2": 1.0},
    )
    groups = {"plain": [noting({"component.value": 0.5})], "diagnosed": [noted]}
    assert [picture.name for picture in selection_plots.components(groups)] == ["noted-component"]
    diversity, error = selection_plots.diagnosed(groups)
    assert (diversity.name, error.name) == ("noted-diversity", "noted-error")
    assert methods(diversity) == {"method-1"}
    assert 'aria-label="diversity: B2, G2, of diagnosed"' in diversity.svg
    assert selection_plots.diagnosed({"plain": groups["plain"]}) == []
    assert list(sections.diagnosed(groups).blocks)[1:] == [diversity, error]
    assert not sections.diagnosed({"plain": groups["plain"]}).blocks


def test_notes_of_the_chosen_have_a_picture_of_their_own():
    choices = fake.table(
        "choices",
        round=[1, 1, 2],
        dispatch=[0, 1, 2],
        client=[3, 4, 3],
        name=["component.value"] * 3,
        value=[0.2, 0.4, 0.8],
    )
    groups = {"plain": [fake.run()], "noted": [fake.run(choices=choices)]}
    (picture,) = selection_plots.components(groups)
    assert picture.name == "noted-chosen-component"
    assert "component, mean over the chosen" in picture.svg
    assert methods(picture) == {"method-1"}


def test_nothing_is_drawn_of_what_is_not_there():
    groups = {"dense": [sending([[1.0] * 4] * 2)], "empty": [fake.run()]}
    assert selection_plots.shares(groups) is selection_plots.shares_by_score(groups) is None
    assert selection_plots.components(groups) == []
    no_links = {"cut": [sending([[0.2] * 4, [0.1] * 4], mbps=[float("inf")] * 4)]}
    assert selection_plots.shares(no_links) is None


def test_two_notes_and_many_clients_have_their_places_in_the_page(tmp_path):
    many = sending([[0.2] * 1000, [0.1] * 1000], mbps=[1.0, 100.0] * 500)
    notes = noting(
        {"component.value": 0.5, "share.mean": 0.1}, {"component.value": 0.4, "share.mean": 0.2}
    ).tables["rounds"]
    many = type(many)(many.directory, many.meta, {**many.tables, "rounds": _with_budget(notes)})
    page = report([many], tmp_path / "r.html").read_text(encoding="utf-8")
    assert "What made the score" in page
    assert "Who may send how much" in page
    assert "Share and score" not in page
    # of 2,000; letters are <use> as well
    assert 300 <= selection_plots.shares({"many": [many]}).svg.count("<use ") < 600
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids)), sorted({i for i in ids if ids.count(i) > 1})
    assert "Who may send how much" not in report([fake.run()], tmp_path / "empty.html").read_text(
        encoding="utf-8"
    )


def _with_budget(rounds):
    return rounds.set_column(rounds.column_names.index("budget"), "budget", [[0.2, 0.1]])


def test_the_same_bytes_twice():
    groups = {"cut": [sending([[0.36, 0.24, 0.12, 0.08], [0.2, 0.2, 0.005, 0.005]], score=SCORES)]}
    for figure in (selection_plots.shares, selection_plots.shares_by_score):
        assert figure(groups) == figure(groups)
