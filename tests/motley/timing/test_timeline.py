"""Virtual time: the clock only advances, timelines are columns, and plans follow from bits, links
and steps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from motley.core.errors import ConfigError, ContractError
from motley.timing.timeline import Timelines, VirtualClock, plan, probe_s, transfer_s


def test_a_clock_continues_where_another_stopped():
    clock = VirtualClock()
    clock.advance(2.5)
    clock.advance(2.5)
    again = VirtualClock(clock.now_s)
    again.advance(3)
    assert (clock.now_s, again.now_s) == (2.5, 3.0)


def test_a_clock_never_goes_back():
    clock = VirtualClock(2.0)
    with pytest.raises(ContractError, match=r"clock at 2.0 s was asked to go back to 1.5 s"):
        clock.advance(1.5)
    assert clock.now_s == 2.0


@pytest.mark.parametrize("moment", [float("nan"), float("inf")])
def test_a_clock_refuses_a_time_that_is_not_finite(moment):
    with pytest.raises(ConfigError, match="expected a finite time"):
        VirtualClock().advance(moment)


def lines(ids):
    return plan(ids, ids, 3, 2, 1.0, 0.5, 0, np.inf, 1e6, 2.0)


def test_rows_are_taken_by_mask_slice_and_index():
    three = lines([4, 7, 9])
    assert three[np.array([True, False, True])].client.tolist() == [4, 9]
    assert three[1:].client.tolist() == [7, 9]
    assert three[[2, 0]].arrives_s.tolist() == [2.5, 2.5]


def test_joining():
    both = Timelines.concat(lines([4]), lines([7, 9]))
    assert (len(both), both.client.tolist(), both.dropped.dtype) == (3, [4, 7, 9], np.dtype(bool))
    alone = Timelines.concat(Timelines.empty(), lines([4]))
    assert alone.client.dtype == np.int64
    assert len(Timelines.empty()) == 0


def test_a_megabit_is_a_million_bits():
    assert transfer_s(3_000_000, 1.5) == 2.0


def test_the_time_model_of_the_protocol():
    """50 steps of 0.3 s and 0.2 * 32 * 2.78e6 bits at 3 Mb/s: 15 + 5.930667 = 20.930667 s
    (published as 20.931)."""
    lines = plan([0], 0, 0, 50, 0.0, 0.3, 0, np.inf, 0.2 * 32 * 2.78e6, 3.0)
    assert round(lines.arrives_s[0], 3) == 20.931


def test_a_dropped_client_is_gone_in_the_middle_of_its_work():
    """Download 1 s, 4 steps of 2 s, gone after a quarter of them: at 3 s; the other arrives at 1 +
    8 + 2 = 11 s."""
    lines = plan([7, 8], [0, 1], 5, 4, 0.0, 2.0, 1e6, 1.0, 2e6, 1.0, drop_at=[0.25, np.nan])
    assert lines.dropped.tolist() == [True, False]
    assert lines.arrives_s.tolist() == [3.0, 11.0]
    assert lines.computed_s.tolist() == [3.0, 9.0]
    assert lines.version.tolist() == [5, 5]
    assert lines.steps.tolist() == [4, 4]


def test_gone_at_the_very_end_is_gone_before_the_upload():
    lines = plan([7], 0, 0, 4, 0.0, 2.0, 0, np.inf, 2e6, 1.0, drop_at=1.0)
    assert lines.arrives_s.tolist() == [8.0]
    assert lines.dropped.tolist() == [True]


def test_nobody():
    assert len(plan(np.zeros(0, np.int64), 0, 0, 1, 0.0, 0.1, 1e6, 1.0, 1e6, 1.0)) == 0
    assert (
        probe_s(np.zeros(0), np.zeros(0) + 1, 3, np.zeros(0), 32, np.zeros(0) + 1).max(initial=0.0)
        == 0.0
    )


def test_holders_of_the_model_skip_the_download():
    took = probe_s([0, 1e6], 1.0, [3, 3], 0.5, 0, np.inf)
    assert took.tolist() == [0.5, 1.5]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 50),
            st.floats(0, 10),
            st.floats(0, 1e9),
            st.floats(0.1, 100),
            st.one_of(st.just(np.nan), st.floats(0, 1)),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_time_only_goes_forward_and_rows_are_independent(rows):
    steps, step_s, bits, mbps, drop = (np.array(column) for column in zip(*rows, strict=True))
    ids = np.arange(len(rows))
    lines = plan(ids, ids, 0, steps, 1.0, step_s, bits, mbps, bits, mbps, drop)
    assert (lines.start_s <= lines.downloaded_s).all()
    assert (lines.downloaded_s <= lines.computed_s).all()
    assert (lines.computed_s <= lines.arrives_s).all()
    one = plan(
        ids[:1],
        ids[:1],
        0,
        steps[:1],
        1.0,
        step_s[:1],
        bits[:1],
        mbps[:1],
        bits[:1],
        mbps[:1],
        drop[:1],
    )
    assert one.arrives_s[0] == lines.arrives_s[0]


def test_columns_are_not_views_of_the_arguments():
    steps = np.array([3, 4])
    lines = plan([0, 1], 0, 0, steps, 0.0, 1.0, 0, np.inf, 0, np.inf)
    steps[0] = 99
    assert lines.steps.tolist() == [3, 4]
    assert lines.start_s.flags.writeable


def test_columns_of_another_length_are_refused():
    with pytest.raises(ValueError, match="shape"):
        plan([0, 1], 0, 0, [1, 2, 3], 0.0, 1.0, 0, np.inf, 0, np.inf)
