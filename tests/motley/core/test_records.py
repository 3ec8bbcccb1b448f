"""Reports as columns and rows, needs, cohorts."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError, ContractError
from motley.core.records import SIGNALS, Cohort, Outcome, Report, Reports, SignalRequirements


def some():
    return Reports(
        [7, 3, 5],
        np.array([Outcome.ACCEPTED, Outcome.LATE, Outcome.PROBED], np.int8),
        compute_s=np.array([1.0, np.nan, 2.0]),
        signals={"loss": [0.5, np.nan, 0.7], "label_histogram": [[1, 2], [3, 4], [5, 6]]},
    )


def test_absent_columns_are_nan_and_cost_one_number():
    reports = some()
    assert np.isnan(reports.upload_s).all()
    assert reports.upload_s.shape == (3,)
    assert reports.upload_s.strides == (0,)
    assert reports[[0, 2]].upload_s.strides == (0,)
    assert np.isnan(reports.signal("sketch")).all()
    assert reports.signals["label_histogram"].dtype == np.float64


def test_one_outcome_is_repeated():
    assert Reports([1, 2], Outcome.LATE).outcome.tolist() == [3, 3]


def test_outcomes_may_be_given_by_name():
    """The table ``clients`` of a run has them so."""
    assert Reports([1, 2], ["accepted", "late"]).outcome.tolist() == [
        Outcome.ACCEPTED,
        Outcome.LATE,
    ]
    assert Reports([1, 2], "LATE").outcome.tolist() == [Outcome.LATE] * 2
    assert Reports([1, 2], np.array(["dropped", "probed"])).outcome.tolist() == [
        Outcome.DROPPED,
        Outcome.PROBED,
    ]
    assert Reports.from_rows([Report(1, "rejected"), Report(2)]).outcome.tolist() == [
        Outcome.REJECTED,
        Outcome.ACCEPTED,
    ]
    words = "enrolled, probed, accepted, late, dropped, rejected, rehearsed"
    for wrong in ("acepted", ["late", "acepted"]):
        with pytest.raises(
            ConfigError,
            match=rf"^outcome: got 'acepted' \(did you mean 'accepted'\?\); expected one of: "
            rf"{words}$",
        ):
            Reports([1, 2], wrong)
    for number in (7, -1):
        with pytest.raises(
            ConfigError, match=rf"^outcome: got {number}; expected one of: enrolled"
        ):
            Reports([1, 2], np.array([2, number]))


def test_rows_and_columns_say_the_same():
    reports = some()
    rows = list(reports.rows())
    assert rows[1].outcome is Outcome.LATE
    again = Reports.from_rows(rows)
    for name in ("ids", "outcome", "version", "compute_s", "upload_s"):
        np.testing.assert_array_equal(getattr(again, name), getattr(reports, name))
    for name in reports.signals:
        np.testing.assert_array_equal(again.signal(name), reports.signal(name))
    assert len(Reports.from_rows([])) == 0


def test_a_signal_absent_from_a_row_is_nan_there():
    reports = Reports.from_rows(
        [Report(1), Report(2, signals={"sketch": np.ones(3)}), Report(4, signals={"loss": 1.0})]
    )
    np.testing.assert_array_equal(reports.signal("sketch"), [[np.nan] * 3, [1] * 3, [np.nan] * 3])
    np.testing.assert_array_equal(reports.signal("loss"), [np.nan, np.nan, 1])


@pytest.mark.parametrize("which", [slice(0, 2), np.array([True, True, False]), np.array([0, 1])])
def test_taking_some(which):
    part = some()[which]
    assert part.ids.tolist() == [7, 3]
    assert part.outcome.tolist() == [2, 3]
    np.testing.assert_array_equal(part.compute_s, [1, np.nan])
    assert part.signals["label_histogram"].tolist() == [[1, 2], [3, 4]]


def test_by_outcome():
    reports = some()
    assert reports.of(Outcome.LATE, Outcome.PROBED).ids.tolist() == [3, 5]
    assert len(reports.of(Outcome.DROPPED)) == 0
    assert reports.of(*Outcome) is reports


@given(st.lists(st.integers(0, 9), max_size=10, unique=True), st.integers(0, 10))
def test_concat_undoes_a_split(ids, cut):
    whole = Reports(
        ids,
        Outcome.ACCEPTED,
        bits_up=np.arange(len(ids)),
        signals={"loss": np.arange(len(ids)) + 0.5},
    )
    again = Reports.concat([whole[:cut], Reports.empty(), whole[cut:]])
    assert again.ids.tolist() == ids
    assert again.bits_up.tolist() == whole.bits_up.tolist()
    assert again.signal("loss").tolist() == whole.signal("loss").tolist()


def test_concat_fills_what_one_part_lacks():
    both = Reports.concat(
        [
            Reports([1], Outcome.LATE),
            Reports([2], Outcome.ACCEPTED, signals={"sketch": [[1.0, 2.0]]}),
        ]
    )
    np.testing.assert_array_equal(both.signal("sketch"), [[np.nan, np.nan], [1, 2]])
    assert both.outcome.tolist() == [Outcome.LATE, Outcome.ACCEPTED]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Reports([1, 2, 1], Outcome.LATE), "a client reports twice"),
        (
            lambda: Reports([1, 2], Outcome.LATE, signals={"loss": [1.0]}),
            r"signal 'loss' has shape \(1,\); expected \[2\]",
        ),
        (lambda: Reports.concat([Reports([1], 2), Reports([1], 2)]), "a client reports twice"),
        (
            lambda: Reports.from_rows(
                [
                    Report(1, signals={"sketch": np.ones(2)}),
                    Report(2, signals={"sketch": np.ones(3)}),
                ]
            ),
            r"signal 'sketch' comes in several shapes: \(2,\), \(3,\)",
        ),
        (lambda: SignalRequirements(reported=frozenset({"los"})), "unknown signal 'los'; known: "),
        (lambda: SignalRequirements(probed={"grad": 1}), "unknown signal 'grad'"),
    ],
)
def test_what_is_refused(make, message):
    with pytest.raises(ContractError, match=message):
        make()


def test_the_table_of_signals_is_complete():
    for name, signal in SIGNALS.items():
        assert all(
            (signal.kind, signal.shape, signal.model, signal.data, signal.mode, signal.text)
        ), name
    with pytest.raises(TypeError):
        SIGNALS["mine"] = SIGNALS["loss"]


def test_a_cohort_is_bare_by_default():
    cohort = Cohort(np.array([1]))
    assert (cohort.weights, cohort.multiplicity, cohort.rehearsal, dict(cohort.notes)) == (
        None,
        None,
        False,
        {},
    )
