"""Synchrony: the synchronous mode, its edges, and that the event loop carries buffered modes too.

Worked numbers: docs/methods/timing-and-world.md#fedbuff.
"""

import dataclasses

import numpy as np
import pytest

from motley.core.errors import ConfigError, ContractError
from motley.timing import SYNCHRONY
from motley.timing.buffered import Buffered
from motley.timing.deadline import Deadline
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Synchronous, Wait
from motley.timing.timeline import Timelines, VirtualClock, plan


def sent(arrives, dropped=None):
    n = len(arrives)
    drop = np.full(n, np.nan) if dropped is None else np.where(dropped, 1.0, np.nan)
    return plan(np.arange(n), np.arange(n), 0, 1, 0.0, arrives, 0, np.inf, 0, np.inf, drop)


def test_dispatch_wait_step():
    lines = sent([3.0, 1.0])
    assert Synchronous().decide(ServerView(0.0, 2, 0, False, Timelines.empty())) == Dispatch(2)
    assert Synchronous().decide(ServerView(0.0, 2, 0, True, lines)) == Wait(3.0)
    step = Synchronous().decide(ServerView(3.0, 2, 0, True, lines))
    assert isinstance(step, ServerStep)
    assert step.accept.tolist() == [True, True]
    assert step.cancel.tolist() == [False, False]


def test_the_server_waits_until_a_dropped_client_is_gone_and_folds_the_others():
    lines = sent([1.0, 3.0], [False, True])
    assert Synchronous().decide(ServerView(1.0, 2, 0, True, lines)) == Wait(3.0)
    view = ServerView(3.0, 2, 0, True, lines)
    step = Synchronous().decide(view)
    assert isinstance(step, ServerStep)
    assert step.accept.tolist() == [True, False]
    assert step.remaining(view).tolist() == [False, False]


def test_everybody_dropped_ends_the_round_with_nobody():
    """After 60 s from the dispatch, as a server does that is told that all are lost; at 80 s, where
    the last one breaks off only then."""
    lines = sent([1.0, 3.0], [True, True])
    assert Synchronous().decide(ServerView(3.0, 2, 0, True, lines)) == Wait(60.0)
    late = sent([1.0, 80.0], [True, True])
    assert Synchronous().decide(ServerView(3.0, 2, 0, True, late)) == Wait(80.0)
    view = ServerView(60.0, 2, 0, True, lines)
    step = Synchronous().decide(view)
    assert isinstance(step, ServerStep)
    assert not step.accept.any()
    assert not step.remaining(view).any()


def test_nobody_to_ask_takes_idle_time_and_ends():
    synchrony = Synchronous(idle_s=60)
    assert synchrony.decide(
        ServerView(100.0, 2, 4, True, Timelines.empty(), dispatched_s=100.0)
    ) == Wait(160.0)
    step = synchrony.decide(ServerView(160.0, 2, 4, True, Timelines.empty(), dispatched_s=100.0))
    assert isinstance(step, ServerStep)
    assert len(step.accept) == 0


@pytest.mark.parametrize("synchrony", [Synchronous(), Deadline(), Deadline(seconds=5.0)])
def test_nobody_chosen_of_those_available_is_no_reason_to_wait(synchrony):
    view = ServerView(100.0, 2, 4, True, Timelines.empty(), dispatched_s=100.0, sent=0, available=3)
    step = synchrony.decide(view)
    assert isinstance(step, ServerStep)
    assert len(step.accept) == 0


@pytest.mark.parametrize("synchrony", [Synchronous(idle_s=0), Deadline(idle_s=0)])
def test_without_idle_time_the_server_waits_until_a_client_is_back(synchrony):
    alone = ServerView(7.0, 2, 4, True, Timelines.empty(), dispatched_s=7.0, sent=0, back_s=86.5)
    assert synchrony.decide(alone) == Wait(86.5)
    step = synchrony.decide(dataclasses.replace(alone, now_s=86.5))
    assert isinstance(step, ServerStep)


def test_all_lost_end_a_round_at_its_deadline_or_after_the_idle_time():
    """Whoever was sent out and is lost has left the view of a deployed server."""
    lost = ServerView(100.0, 2, 4, True, Timelines.empty(), dispatched_s=100.0, sent=2, available=9)
    assert Synchronous(idle_s=60).decide(lost) == Wait(160.0)
    assert Deadline(idle_s=60).decide(lost) == Wait(160.0)
    assert Deadline(seconds=10.0, idle_s=60).decide(lost) == Wait(110.0)
    gone = dataclasses.replace(lost, in_flight=sent([101.0, 102.0], [True, True]))
    assert Deadline(idle_s=60).decide(gone) == Wait(160.0)
    assert Deadline(seconds=10.0, idle_s=60).decide(gone) == Wait(110.0)


def test_clients_that_take_no_time_are_replaced_at_once():
    """A buffer of 4 with 2 of 2 arrived at once: two more are asked at the same moment; nobody is
    when a dispatch at this moment has found nobody, and where some are under way."""
    here = ServerView(5.0, 2, 0, True, sent([5.0, 5.0]), dispatched_s=5.0, sent=2, available=8)
    assert Buffered(buffer=4).decide(here) == Dispatch(2)
    none_left = dataclasses.replace(here, sent=0, available=0)
    assert Buffered(buffer=4, idle_s=60).decide(none_left) == Wait(65.0)
    none_chosen = dataclasses.replace(here, sent=0, available=8)
    assert isinstance(Buffered(buffer=4).decide(none_chosen), ServerStep)
    under_way = dataclasses.replace(here, in_flight=sent([5.0, 9.0]))
    assert Buffered(buffer=4).decide(under_way) == Wait(9.0)


def test_who_arrives_during_a_probe_is_replaced_at_once():
    """Asked for at 4 s, measured until 5 s, sent out then; in between one of three arrived."""
    view = ServerView(
        5.0, 3, 0, True, sent([4.5, 9.0, 9.0]), dispatched_s=5.0, sent=2, available=8, asked_s=4.0
    )
    assert Buffered(buffer=4).decide(view) == Dispatch(1)
    assert Buffered(buffer=4).decide(dataclasses.replace(view, asked_s=5.0)) == Wait(9.0)


def test_a_contract_on_steps():
    view = ServerView(2.0, 2, 0, True, sent([1.0, 3.0]))
    yes = np.array([True, True])
    no = np.array([False, False])
    with pytest.raises(
        ContractError, match=r"clients \[1\] are accepted, but have not delivered at 2.0 s"
    ):
        ServerStep(yes, no).remaining(view)
    with pytest.raises(ContractError, match=r"clients \[0, 1\] are both accepted and cancelled"):
        ServerStep(yes, yes).remaining(view)
    assert ServerStep(np.array([True, False]), no).remaining(view).tolist() == [False, True]
    assert ServerStep(no, np.array([False, True])).remaining(view).tolist() == [True, False]


def test_names_and_options():
    assert SYNCHRONY.build("synchronous") == Synchronous()
    assert SYNCHRONY.build({"name": "buffered", "buffer": 3}) == Buffered(3)
    with pytest.raises(ConfigError, match=r"synchrony: got idle_s = -1.0"):
        SYNCHRONY.build({"name": "synchronous", "idle_s": -1})


# ---------------------------------------------------------------- the same loop, other modes


def run(synchrony, cohort, seconds, steps, local, nobody_before=0.0):
    """The simulation's loop in small: local(x, client) is an update. Returns (time, x, clients,
    staleness) of each step."""
    clock = VirtualClock()
    x = 0.0
    version = 0
    asked = False
    asked_s = 0.0
    dispatch = 0
    flights = Timelines.empty()
    starts = {}
    rows = []
    for _ in range(1000):
        view = ServerView(clock.now_s, cohort, version, asked, flights, asked_s)
        decision = synchrony.decide(view)
        if isinstance(decision, Dispatch):
            free = (
                np.setdiff1d(np.arange(len(seconds)), flights.client)
                if clock.now_s >= nobody_before
                else np.zeros(0, int)
            )
            who = free[: decision.count]
            numbers = dispatch + np.arange(len(who))
            lines = plan(
                who,
                numbers,
                version,
                1,
                clock.now_s,
                np.asarray(seconds)[who],
                0,
                np.inf,
                0,
                np.inf,
            )
            flights = Timelines.concat(flights, lines)
            asked = True
            asked_s = clock.now_s
            dispatch = dispatch + len(who)
            starts[version] = x
        elif isinstance(decision, Wait):
            assert decision.until_s > clock.now_s
            clock.advance(decision.until_s)
        else:
            stay = decision.remaining(view)
            folded = flights[decision.accept]
            deltas = [
                local(starts[int(v)], int(c))
                for v, c in zip(folded.version, folded.client, strict=True)
            ]
            x += float(np.mean(deltas)) if deltas else 0.0
            rows.append(
                (clock.now_s, x, folded.client.tolist(), (version - folded.version).tolist())
            )
            flights = flights[stay]
            version = version + 1
            asked = False
            if version == steps:
                return rows
    raise AssertionError("the loop does not end")


def half_way(x, client):
    return 0.5 * (client - x)


@pytest.mark.parametrize("synchrony", [Synchronous(), Buffered(3)], ids=repr)
def test_equal_durations_make_buffered_the_same_as_synchronous(synchrony):
    """Three clients with targets 0, 1, 2 and update (target - x) / 2, everybody in one second. x
    moves half the way to the mean target 1 each time: 0.5, 0.75, 0.875, 0.9375, all staleness 0. A
    server that dispatches replacements between simultaneous arrivals would give 0.5, 0.867851,
    1.056543."""
    rows = run(synchrony, 3, [1.0, 1.0, 1.0], 4, half_way)
    assert [x for _, x, _, _ in rows] == [0.5, 0.75, 0.875, 0.9375]
    assert [t for t, _, _, _ in rows] == [1.0, 2.0, 3.0, 4.0]
    assert all(stale == [0, 0, 0] for _, _, _, stale in rows)


def test_staleness_counts_server_steps():
    """K = C = 2, a step per arrival, durations 1 and 2.5: client 0 at 1 and 2, client 1 at 2.5, 2
    behind."""
    rows = run(Buffered(1), 2, [1.0, 2.5], 3, half_way)
    assert [(t, clients, stale) for t, _, clients, stale in rows] == [
        (1.0, [0], [0]),
        (2.0, [0], [0]),
        (2.5, [1], [2]),
    ]


@pytest.mark.parametrize("synchrony", [Synchronous(idle_s=2.0), Buffered(2, idle_s=2.0)], ids=repr)
def test_nobody_available_does_not_loop_for_ever(synchrony):
    """Nobody before 5 s, asked every 2 s: the first who can be asked leave at 6 s and arrive at 7
    s."""
    rows = run(synchrony, 2, [1.0, 1.0], 4, half_way, nobody_before=5.0)
    first = next(row for row in rows if row[2])
    assert first[0] == 7.0
