"""Availability: stationary laws, runs, days, traces; pure in (key, client, time), whatever the
order of questions.

Worked numbers: docs/methods/timing-and-world.md#availability.
"""

import numpy as np
import pytest

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Streams
from motley.world import AVAILABILITY
from motley.world.availability import (
    AlwaysOnline,
    BernoulliAvailability,
    DayNight,
    MarkovAvailability,
    TraceAvailability,
)
from motley.world.measured import MeasuredAvailability

KEY = Streams(0).key("available")
MANY = np.arange(20_000)
DRAWN = [
    BernoulliAvailability(0.3),
    BernoulliAvailability(0.9, low=0.1),
    MarkovAvailability(),
    MarkovAvailability(0.2, 0.1, slot_s=60.0, amplitude=0.5),
    DayNight(0.3),
    MeasuredAvailability(),
]


def online(model, round_index=1, time_s=0.0, ids=MANY, key=KEY):
    return model.online(key, ids, round_index, time_s)


def near(share, p, n=20_000):
    return abs(share - p) < 4 * np.sqrt(p * (1 - p) / n)


def history(model, slots, ids=MANY):
    """Flags ``[slots, len(ids)]``, one slot per round."""
    return np.array([online(model, round_index, 0.0, ids) for round_index in range(1, slots + 1)])


def test_always():
    assert online(AlwaysOnline()).all()


@pytest.mark.parametrize("model", DRAWN, ids=repr)
def test_availability_is_pure(model):
    """Asked later, earlier, again, alone or with others: the same answer; another seed, another
    answer."""
    late = online(model, 500, 90_000.0)
    early = online(model, 3, 180.0)
    assert (online(model, 500, 90_000.0) == late).all()
    assert (online(model, 500, 90_000.0, np.array([9, 4])) == late[[9, 4]]).all()
    assert (online(model, 3, 180.0) == early).all()
    assert (late != early).any()
    assert (online(model, 3, 180.0, key=Streams(1).key("available")) != early).any()


def test_bernoulli_is_its_share_anew_in_each_slot():
    first = online(BernoulliAvailability(0.3), 1)
    second = online(BernoulliAvailability(0.3), 2)
    assert near(first.mean(), 0.3)
    assert near((first & second).mean(), 0.09)


def test_bernoulli_shares_of_clients_differ():
    """Shares U(0.1, 0.9): mean 0.5, and both of two rounds with chance E[share^2] = 0.25 + 0.64 /
    12."""
    model = BernoulliAvailability(0.9, low=0.1)
    assert near(online(model, 1).mean(), 0.5)
    assert near((online(model, 1) & online(model, 2)).mean(), 0.25 + 0.64 / 12)


@pytest.mark.parametrize(
    "model", [BernoulliAvailability(0.3, slot_s=60.0), MarkovAvailability(slot_s=60.0)], ids=repr
)
def test_slots_of_seconds_forget_the_round(model):
    assert (online(model, 1, 119.0) == online(model, 9, 60.0)).all()
    assert (online(model, 1, 119.0) != online(model, 1, 120.0)).any()


def test_markov_by_the_checked_numbers():
    """p = 0.1, q = 0.3: 1/4 online, runs of 1/q = 3.33 slots on and 1/p = 10 off, lag-1
    autocorrelation 1 - p - q = 0.6."""
    states = history(MarkovAvailability(0.1, 0.3), 200, np.arange(2000))
    # 400 000 flags, worth (1 - 0.6) / (1 + 0.6) = 1/4 of independent ones: 4 errors
    assert abs(states.mean() - 0.25) < 0.005
    stays_on = states[1:][states[:-1]].mean()
    stays_off = 1 - states[1:][~states[:-1]].mean()
    assert abs(1 - stays_on - 0.3) < 4 * np.sqrt(0.21 / 100_000)
    assert abs(1 - stays_off - 0.1) < 4 * np.sqrt(0.09 / 300_000)
    assert 1 / (1 - stays_on) == pytest.approx(3.33, rel=0.03)
    assert 1 / (1 - stays_off) == pytest.approx(10, rel=0.03)
    centred = states - 0.25
    assert (centred[1:] * centred[:-1]).mean() / (0.25 * 0.75) == pytest.approx(0.6, abs=0.015)
    assert (centred[3:] * centred[:-3]).mean() / (0.25 * 0.75) == pytest.approx(0.6**3, abs=0.015)


def test_markov_starts_from_stationarity():
    assert near(online(MarkovAvailability(0.1, 0.3), 0).mean(), 0.25)


def test_a_slow_chain_is_as_exact_across_its_blocks():
    """p = q = 0.001: neighbours differ in 1 of 1000, a half is online, and 2000 slots apart
    correlate by 0.998^2000 = 0.018."""
    chain = MarkovAvailability(0.001, 0.001)
    # blocks of 2000 slots end between the first two
    a = online(chain, 1999)
    b = online(chain, 2000)
    far = online(chain, 4000)
    assert near(a.mean(), 0.5)
    assert near((a != b).mean(), 0.001)
    assert abs(np.corrcoef(b, far)[0, 1] - 0.998**2000) < 4 / np.sqrt(len(MANY))


def test_p_plus_q_of_one_is_a_coin():
    first = online(MarkovAvailability(0.3, 0.7), 1)
    second = online(MarkovAvailability(0.3, 0.7), 2)
    assert near((first & second).mean(), 0.09)


def test_the_amplitude_of_a_day():
    """A slot a second, days of 400 s, p = 0.1 (1 + 0.5 sin), q = 0.3, all clients together near p /
    (p + q) = 1/4; each follows its own hour. The chain reaches its momentary law within a few
    slots: at the top 0.15 / 0.45 = 1/3, at the bottom 0.05 / 0.35 = 1/7; the lag of 1 / (p + q)
    slots takes 1 - cos(2 pi 2.5 / 400) of it, nothing that 20 000 clients show."""
    model = MarkovAvailability(0.1, 0.3, slot_s=1.0, amplitude=0.5, day_s=400.0)
    phase = KEY.fold("phase").uniform(MANY)[:, 0]
    states = online(model, 1, 4000.0)
    top = np.abs(phase - 0.25) < 0.05
    bottom = np.abs(phase - 0.75) < 0.05
    assert abs(states[top].mean() - 1 / 3) < 4 * np.sqrt(2 / 9 / top.sum()) + 0.01
    assert abs(states[bottom].mean() - 1 / 7) < 4 * np.sqrt(6 / 49 / bottom.sum()) + 0.01


def test_day_and_night():
    """A quarter of the clients at any time; a client is there for one stretch of a quarter day, at
    the same hour every day."""
    model = DayNight(0.25, day_s=100.0)
    states = np.array([online(model, 1, float(t)) for t in range(200)])
    assert all(near(share, 0.25) for share in states.mean(axis=1)[::10])
    assert (states[:100] == states[100:]).all()
    assert ((states[:100] != np.roll(states[:100], 1, axis=0)).sum(axis=0) == 2).all()
    assert (np.abs(states[:100].sum(axis=0) - 25) <= 1).all()


def test_one_time_zone_is_all_or_nobody():
    assert online(DayNight(0.5, spread=0.0), time_s=1000.0).all()
    assert not online(DayNight(0.5, spread=0.0), time_s=50_000.0).any()


def traced(tmp_path, text, **options):
    path = tmp_path / "trace.csv"
    path.write_text(text)
    return TraceAvailability(str(path), **options)


def test_a_trace_by_hand(tmp_path):
    """Trace 0: online in [0, 10] and [30, 40], anew after 50 s; trace 1: in [5, 20], anew after 25
    s. Clients 0, 2 follow trace 0."""
    model = traced(
        tmp_path, "trace,active_s,inactive_s,finish_s\n1,5,20,25\n0,30,40,50\n0,0,10,50\n"
    )
    expected = {
        0: "101",
        5: "111",
        10: "111",
        11: "010",
        20: "010",
        21: "000",
        30: "111",
        41: "010",
        45: "010",
        46: "000",
        50: "101",
    }
    expected |= {80: "111", 1000.0: "101"}
    found = {
        t: "".join("01"[flag] for flag in online(model, 1, float(t), np.arange(3)).astype(int))
        for t in expected
    }
    assert found == expected


def test_a_trace_ends_with_its_last_stretch_where_nothing_else_is_said(tmp_path):
    model = traced(tmp_path, "trace,active_s,inactive_s\n7,2,4\n7,6,8\n")
    flags = [bool(online(model, 1, t, np.array([5]))[0]) for t in (1.0, 3.0, 5.0, 7.0, 9.0, 11.0)]
    assert flags == [False, True, False, True, False, True]


def test_bisection_agrees_with_looking_at_every_stretch(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for trace in range(7):
        times = np.sort(rng.choice(1000, 2 * rng.integers(1, 30), replace=False))
        rows += [(trace, a, b, 1000) for a, b in times.reshape(-1, 2)]
    text = (
        "trace,active_s,inactive_s,finish_s\n"
        + "\n".join(",".join(map(str, row)) for row in rows)
        + "\n"
    )
    model = traced(tmp_path, text)
    for time in range(0, 2500, 13):
        slow = [any(t == k % 7 and a <= time % 1000 <= b for t, a, b, _ in rows) for k in range(20)]
        assert online(model, 1, float(time), np.arange(20)).tolist() == slow


def test_traces_at_random(tmp_path):
    model = traced(
        tmp_path, "trace,active_s,inactive_s,finish_s\n0,0,10,10\n1,20,30,30\n", assign="random"
    )
    assert near(online(model, 1, 5.0).mean(), 0.5)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("trace,active_s\n0,1\n", "there is no column 'inactive_s'"),
        ("trace,active_s,inactive_s\n0,5,4\n", "must begin at 0 or later, and end after it begins"),
        ("trace,active_s,inactive_s\n0,0,5\n0,4,6\n", "two intervals of one trace overlap"),
        (
            "trace,active_s,inactive_s,finish_s\n0,0,5,4\n",
            "finish_s must be above 0 and not before the last",
        ),
        ("trace,active_s,inactive_s\n0,0,0\n", "finish_s must be above 0"),
    ],
)
def test_a_bad_trace_is_refused(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        traced(tmp_path, text)


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"name": "bernoulli", "p": 0}, "got p = 0.0; expected a share in \\(0, 1\\]"),
        (
            {"name": "bernoulli", "p": 0.2, "low": 0.4},
            "got low = 0.4 above p = 0.2; expected low <= p",
        ),
        ({"name": "bernoulli", "slot_s": 0}, "got slot_s = 0.0; expected a finite number above 0"),
        (
            {"name": "markov", "p": 0.8, "q": 0.3},
            "expected p \\(1 \\+ amplitude\\) \\+ q of at most 1",
        ),
        ({"name": "markov", "amplitude": 0.5}, "without slot_s; a day needs slots of seconds"),
        ({"name": "day_night", "share": 1.5}, "got share = 1.5"),
        ({"name": "day_night", "day_s": 0}, "got day_s = 0.0"),
        ({"name": "trace"}, "'trace' needs this option"),
        ({"name": "day_and_night"}, "did you mean 'day_night'"),
    ],
)
def test_bad_options_are_named(record, message):
    with pytest.raises(ConfigError, match=message):
        AVAILABILITY.build(record)


# ---------------------------------------------------------------- when somebody is back


def back_s(model, time_s, ids=MANY, round_index=1):
    """When one is back, and whether one is there then and none at three moments before."""
    found = model.back_s(KEY, ids, round_index, time_s)
    before = time_s + (found - time_s) * np.array([0.0, 0.5, 0.999])
    return (
        found,
        online(model, round_index, found, ids).any(),
        any(online(model, round_index, moment, ids).any() for moment in before),
    )


def test_the_first_is_back_when_the_day_begins():
    """One time zone, a quarter of the day: away from 6 h on, back at 24 h; a moment within the
    interval is its own answer."""
    night = DayNight(share=0.25, spread=0.0)
    found, there, earlier = back_s(night, 7 * 3600.0)
    assert found == pytest.approx(86_400.0, abs=1e-6)
    assert there
    assert not earlier
    assert night.back_s(KEY, MANY, 1, 5 * 3600.0) == 5 * 3600.0


@pytest.mark.parametrize("time_s", [0.3, 1e4, 1e7 + 0.1, 1e9 / 3])
def test_rounding_hides_nobody_who_is_back(time_s):
    ids = np.arange(3)
    night = DayNight(share=1e-4, spread=1.0, day_s=777.7)
    for _ in range(20):
        found, there, earlier = back_s(night, time_s, ids)
        assert there
        assert not earlier or found == time_s
        time_s = found + 0.1  # the interval of .08 s is over


@pytest.mark.parametrize(
    "model",
    [
        BernoulliAvailability(p=0.05, slot_s=10.0),
        MarkovAvailability(p=0.02, q=0.3, slot_s=10.0),
    ],
    ids=["bernoulli", "markov"],
)
def test_the_first_slot_with_a_client_is_found(model):
    ids = np.arange(2)
    away = next(t for t in range(5, 10_000, 10) if not online(model, 1, float(t), ids).any())
    found, there, _ = back_s(model, float(away), ids)
    assert there
    assert found % 10 == 0
    slots = range(away - away % 10, int(found), 10)
    assert not any(online(model, 1, slot + 1.0, ids).any() for slot in slots)


def test_where_the_round_counts_the_next_one_is_looked_at_at_once():
    assert BernoulliAvailability(p=1e-9).back_s(KEY, np.arange(3), 1, 5.0) == 5.0


def test_a_trace_says_when_the_next_stretch_begins(tmp_path):
    """Of 100 s the trace is online from 10 to 20 and from 50 to 60."""
    text = "trace,active_s,inactive_s,finish_s\n0,10,20,100\n0,50,60,100\n"
    model = traced(tmp_path, text)
    ids = np.arange(2)
    moments = [0.0, 15.0, 21.0, 61.0, 125.0]
    assert [model.back_s(KEY, ids, 1, moment) for moment in moments] == pytest.approx(
        [10.0, 15.0, 50.0, 110.0, 150.0]
    )
