"""PyramidFL: the check of docs/methods/selectors.md#pyramidfl, worked by hand, and its
invariants."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.selectors import Selector, build
from motley.selectors.oort import Oort
from motley.selectors.pyramidfl import PyramidFL

IDS = np.array([5, 6, 9])


def told(rule, compute, upload, sizes=(1, 1, 1), steps=10.0, **signals):
    n = len(compute)
    ids = IDS if n == 3 else np.arange(n)
    selector = Selector(rule, 0)
    times = {
        "compute_estimate_s": np.asarray(compute, float),
        "upload_estimate_s": np.asarray(upload, float),
        **signals,
    }
    column = None if steps is None else np.full(n, steps)
    selector.observe(
        0,
        Reports(
            ids, Outcome.ENROLLED, num_examples=np.asarray(sizes), local_steps=column, signals=times
        ),
    )
    return selector


def by_id(cohort, column):
    return getattr(cohort, column)[np.argsort(cohort.ids)]


def test_check_worked_by_hand():
    """E = 10, tau_cmp = (4, 2, 1), tau_up = (6, 4, 2), GU = (5, 9, 1) (n_k here), m = 3: ranks (1,
    0, 2).

    dr = .1 + r * .5 / 3 = (.266667, .1, .433333); tau = (4 + 4.4, 2 + 3.6, 1 + 1.133333) = (8.4,
    5.6, 2.133333).
    Steps: 0; 2.8 / .2 = 14; floor(6.266667 / .1) = 62: 10 + (0, 14, 62). Finish times 8.4, 8.4,
    8.333."""
    selector = told(PyramidFL(), (4, 2, 1), (6, 4, 2), (5, 9, 1))
    cohort = selector.select(1, IDS, 3)
    np.testing.assert_allclose(
        1 - by_id(cohort, "upload_ratio"), [0.266667, 0.1, 0.433333], atol=1e-6
    )
    assert by_id(cohort, "local_steps").tolist() == [10, 24, 72]
    assert cohort.notes["round_s"] == pytest.approx(8.4)
    finish = np.array([4, 2, 1]) * by_id(cohort, "local_steps") / 10 + by_id(
        cohort, "upload_ratio"
    ) * np.array([6, 4, 2])
    np.testing.assert_allclose(finish, [8.4, 8.4, 8.333333], atol=1e-6)


def test_half_beta():
    """beta = .5: 14 / 2 = 7 and 62 / 2 = 31 more steps."""
    cohort = told(PyramidFL(beta=0.5), (4, 2, 1), (6, 4, 2), (5, 9, 1)).select(1, IDS, 3)
    assert by_id(cohort, "local_steps").tolist() == [10, 17, 41]


def test_cap_of_five_epochs():
    """Batches of 1: epochs of (5, 9, 1) steps, caps max(10, 25, 45, 5) = (25, 45, 10)."""
    cohort = told(PyramidFL(batch_size=1), (4, 2, 1), (6, 4, 2), (5, 9, 1)).select(1, IDS, 3)
    assert by_id(cohort, "local_steps").tolist() == [10, 24, 10]


def test_cap_of_five_epochs_binds():
    """Batches of 1 and n_k = (50, 90, 4): the third may take 5 epochs of 4 steps, 20, not 72."""
    cohort = told(PyramidFL(batch_size=1), (4, 2, 1), (6, 4, 2), (50, 90, 4)).select(1, IDS, 3)
    assert by_id(cohort, "local_steps").tolist() == [10, 24, 20]


def test_floors_are_of_decimals():
    """(.3 - .1) 10 / .1 is 19.999999999999996 and 3 (1 + 4 / 3) is 6.999999999999999 in floats."""
    rule = PyramidFL(drop_low=0.0, drop_high=0.0)
    assert by_id(
        told(rule, (0.3, 0.1, 0.3), (0, 0, 0)).select(1, IDS, 3), "local_steps"
    ).tolist() == [10, 30, 10]
    assert by_id(
        told(rule, (7, 3, 7), (0, 0, 0), steps=3.0).select(1, IDS, 3), "local_steps"
    ).tolist() == [3, 7, 3]


def test_off_is_oort():
    selector = told(PyramidFL(beta=0.0, drop_low=0.0, drop_high=0.0), (4, 2, 1), (6, 4, 2))
    cohort = selector.select(1, IDS, 3)
    assert cohort.local_steps.tolist() == [10] * 3
    assert cohort.upload_ratio.tolist() == [1.0] * 3


def test_score_identical_to_oort():
    same = {"window": 2, "batch_size": 4}
    pyramid = Selector(PyramidFL(**same), 3)
    oort = Selector(Oort(**same), 3)
    ids = np.arange(20)
    for t in range(1, 12):
        mine = pyramid.select(t, ids, 5)
        theirs = oort.select(t, ids, 5)
        assert mine.ids.tolist() == theirs.ids.tolist()
        losses = {"loss_rms": 1 + np.sin(mine.ids + t), "update_norm": np.ones(5)}
        for selector in (pyramid, oort):
            selector.observe(
                t, Reports(mine.ids, Outcome.ACCEPTED, compute_s=mine.ids + 1.0, signals=losses)
            )


def test_equal_gains_share_the_first_rank_and_m_is_the_divisor():
    selector = told(PyramidFL(), (1, 1, 1), (1, 1, 1), (7, 7, 3))
    np.testing.assert_allclose(
        selector.rule.drops(selector.state.clients, IDS), [0.1, 0.1, 0.1 + 2 * 0.5 / 3]
    )


def test_gain_is_of_the_update_and_the_samples():
    """(i): the norm of the update, 3, times min(n, 4 steps of 2) = 8, over 100; without a report
    n_k = 50."""
    selector = told(PyramidFL(batch_size=2), (1, 1, 1), (1, 1, 1), (50, 50, 50))
    signals = {"loss_rms": [1.0], "update_norm": [3.0]}
    selector.observe(1, Reports([5], Outcome.ACCEPTED, local_steps=[4.0], signals=signals))
    assert selector.state.clients.get("gain", [5])[0] == pytest.approx(0.24)
    assert selector.state.clients.get("utility", [5])[0] == 8.0  # Oort's utility: the same samples
    assert selector.rule.drops(selector.state.clients, IDS).argmax() == 0


def test_zero_compute_time_is_eleven_times_and_one_client_has_no_slack():
    """rho = 1 + min(10, inf) = 11; alone, nobody waits."""
    selector = told(PyramidFL(), (4, 0, 1), (6, 0, 2))
    assert by_id(selector.select(1, IDS, 3), "local_steps")[1] == 110
    assert selector.select(1, [6], 1).local_steps.tolist() == [10]


def test_filled_time_does_not_make_a_client_slow():
    """24 steps in 4.8 s are 2 s for 10; 1.8 s for 9 of 10 Mbit are 2 s: the duration stays 4, not
    6.6."""
    selector = told(PyramidFL(), (4, 2, 1), (6, 2, 2), uplink_mbps=np.full(3, 5.0))
    done = {"compute_s": [4.8], "upload_s": [1.8], "local_steps": [24.0], "bits_up": [9e6]}
    selector.observe(
        1, Reports([6], Outcome.ACCEPTED, **done, signals={"loss_rms": [1.0], "update_norm": [1.0]})
    )
    get = selector.state.clients.get
    assert [get(name, [6])[0] for name in ("compute", "upload", "duration")] == pytest.approx(
        [2.0, 2.0, 4.0]
    )


def test_full_steps_are_learned_from_reports_if_unknown():
    """Nobody's, or somebody's, E_k unknown: the cohort does its full work, and whoever had not told
    it tells it now.

    Trap: the mean of the others, 12, for client 9 that has 2 steps of half a second: 5 x 12 / 1 =
    60 of them to fill 5 s."""
    selector = told(PyramidFL(), (4, 2, 1), (6, 4, 2), steps=None)
    assert selector.select(1, IDS, 3).local_steps is None
    signals = {"loss_rms": [1.0, 1.0], "update_norm": [1.0, 1.0]}
    selector.observe(
        1, Reports(IDS[:2], Outcome.ACCEPTED, local_steps=[10.0, 14.0], signals=signals)
    )
    assert selector.select(2, IDS[:2], 2).local_steps.sum() >= 24
    assert selector.select(2, IDS, 3).local_steps is None
    selector.observe(
        2,
        Reports(
            IDS, Outcome.ACCEPTED, local_steps=[10.0, 14.0, 2.0], signals={"loss_rms": [1.0] * 3}
        ),
    )
    assert selector.rule.full_steps(selector.state.clients, IDS).tolist() == [10, 14, 2]
    selector.observe(
        3,
        Reports(
            IDS, Outcome.ACCEPTED, local_steps=[10.0, 99.0, 20.0], signals={"loss_rms": [1.0] * 3}
        ),
    )
    # 99 and 20 were asked for
    assert selector.rule.full_steps(selector.state.clients, IDS).tolist() == [10, 14, 2]


@given(
    st.lists(
        st.tuples(st.floats(0.1, 9), st.floats(0, 9), st.floats(0, 3)), min_size=1, max_size=8
    ),
    st.integers(1, 30),
    st.floats(0, 1),
)
def test_no_client_outlasts_the_slowest(times, full, beta):
    """With beta <= 1 nobody exceeds T_R, and the slowest takes exactly E steps; never fewer than
    E."""
    compute, upload, download = (np.array(column) for column in zip(*times, strict=True))
    n = len(times)
    ids = np.arange(len(times)) if len(times) != 3 else IDS
    selector = told(
        PyramidFL(beta=beta),
        compute,
        upload,
        np.arange(1, n + 1),
        float(full),
        download_estimate_s=download,
    )
    cohort = selector.select(1, ids, n)
    steps = by_id(cohort, "local_steps")
    ratio = by_id(cohort, "upload_ratio")
    nominal = download + compute + upload * ratio
    assert (download + compute * steps / full + upload * ratio <= nominal.max() + 1e-6).all()
    assert steps[nominal.argmax()] == full
    assert (steps >= full).all()
    assert (steps <= 11 * full).all()


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"beta": 2.0}, "got beta = 2.0"),
        ({"drop_low": 0.7}, "expected 0 <= drop_low <= drop_high < 1"),
        ({"drop_high": 1.0}, "expected 0 <= drop_low <= drop_high < 1"),
        ({"window": 0}, "got window = 0"),
    ],
)
def test_bad_options(record, message):
    with pytest.raises(ConfigError, match=message):
        build({"name": "pyramidfl", **record})
