"""Which numbers of a report are a client's own word."""

import numpy as np

from motley.core.claims import TOPICS, row_sizes, said, with_values
from motley.core.records import SIGNALS, Outcome, Reports

THREE = np.arange(3)


def test_every_name_is_a_signal_or_a_column_of_reports():
    names = {name for names in TOPICS.values() for name in names}
    assert names - SIGNALS.keys() == {"download_s", "compute_s", "upload_s"}


def test_signals_and_columns_that_clients_say():
    """The gradient of a probe is the client's word; the pseudo-gradient of an upload and its sketch
    are made by the server."""
    probed = Reports(
        THREE, Outcome.PROBED, signals={"loss": [1, 2, 3], "gradient": np.ones((3, 2))}
    )
    reported = Reports(
        THREE,
        Outcome.ACCEPTED,
        compute_s=[1, 2, 3],
        signals={"gradient": np.ones((3, 2)), "sketch": np.ones((3, 2))},
    )
    assert (said(probed)[0], set(said(probed)[1])) == ("probed", {"loss", "gradient"})
    assert (said(reported)[0], set(said(reported)[1])) == ("reported", {"compute_s"})
    assert said(Reports(THREE, Outcome.ENROLLED, num_examples=[4, 5, 6]))[0] == "enrolled"


def test_values_are_put_back_where_they_came_from():
    reports = Reports(
        THREE,
        Outcome.ENROLLED,
        num_examples=[4, 5, 6],
        local_steps=1.0,
        signals={"num_examples": [4, 5, 6]},
    )
    changed = with_values(reports, {"num_examples": np.array([7.0, 8.0, 9.0])})
    assert changed.num_examples.tolist() == changed.signal("num_examples").tolist() == [7, 8, 9]
    assert changed.local_steps.tolist() == [1, 1, 1]


def test_lengths_do_not_overflow_before_they_must():
    assert row_sizes(np.array([[3e307, 4e307], [0.0, 0.0]])).tolist() == [5e307, 0.0]
    assert row_sizes(np.array([[1.5e308, 1.5e308]])).tolist() == [np.inf]
