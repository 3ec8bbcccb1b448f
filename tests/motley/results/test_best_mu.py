"""The proximal weight of HeteRo-Select v1's Lemma A.4 from a run's notes, by hand."""

import json
import sys
from pathlib import Path

import pytest

from motley.results import measures
from motley.results.measures import best_mu

sys.path.insert(0, str(Path(__file__).parent))
import fake


def noting(*notes):
    rounds = fake.table(
        "rounds", round=list(range(1, len(notes) + 1)), notes=[n and json.dumps(n) for n in notes]
    )
    return fake.run(rounds=rounds)


def told(square, spread, moved, rate=0.02):
    notes = {
        "diversity.G2": square,
        "diversity.B2_selected": spread,
        "moved_squared": moved,
        "local_rate": rate,
    }
    return {name: value for name, value in notes.items() if value is not None}


def test_each_round_over_the_way_of_the_whole_run():
    """E = 2, lr = .01, and the last model at a squared distance of .8: .02 (3 + 1) / .8 = .1, and
    .02 (2 + 2.4) / .8 = .11. The round between was not diagnosed; in the fourth the cohort had no
    common rate; the last one has the distance alone."""
    run = noting(
        told(3.0, 1.0, 0.1),
        None,
        told(2.0, 2.4, 0.5),
        told(1.0, 1.0, 0.7, rate=None),
        {"moved_squared": 0.8},
    )
    along = best_mu(run)
    assert along.x.tolist() == [1, 3]
    assert along.y == pytest.approx([0.1, 0.11])
    assert measures.note(run, "moved_squared").y.tolist() == [0.1, 0.5, 0.7, 0.8]


def test_the_bound_holds_for_mini_batches_too():
    """Where gradients of mini-batches were measured, the larger counts: .02 (5 + 1) / .8 = .15, and
    .02 (2 + 2.4) / .8 = .11 where they are smaller."""
    notes = [told(3.0, 1.0, 0.1), told(2.0, 2.4, 0.8)]
    run = noting(
        *(
            note | {"diversity.G2_batches": largest}
            for note, largest in zip(notes, (5.0, 1.0), strict=True)
        )
    )
    assert best_mu(run).y == pytest.approx([0.15, 0.11])


def test_nothing_is_said_of_a_run_that_was_not_diagnosed():
    assert len(best_mu(noting({"tau": 1.0}, None)).y) == 0
    assert len(best_mu(fake.run()).y) == 0


def test_a_model_that_never_moved_wants_no_end_of_pull():
    assert best_mu(noting(told(1.0, 1.0, 0.0))).y.tolist() == [float("inf")]
