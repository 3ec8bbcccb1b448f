"""Deadline, buffered and asynchronous rounds: the worked numbers of
docs/methods/timing-and-world.md, and what must coincide."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.parts import Part, Upload, aggregate
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.aggregation import scaled
from motley.rounds.loop import RoundLoop
from motley.rounds.staleness import mixed
from motley.tasks.task import ModelState
from motley.timing.asynchronous import Asynchronous
from motley.timing.buffered import Buffered
from motley.timing.deadline import Deadline
from motley.timing.overlapping import discount
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Wait
from motley.timing.timeline import plan
from tests.rows import Rows


def flights(seconds, drop_at=np.nan, version=0):
    n = len(seconds)
    return plan(
        np.arange(n),
        np.arange(n),
        version,
        1,
        0.0,
        np.asarray(seconds, float),
        0,
        np.inf,
        0,
        np.inf,
        drop_at,
    )


def view(lines, now, cohort=3, version=0, asked=True):
    return ServerView(now, cohort, version, asked, lines, 0.0)


# ---------------------------------------------------------------- decisions


def test_over_selection_keeps_the_first_m():
    """T = (4, 7, 9, 12, 30), ask 5, keep 3: the round takes 9 s and has clients 0, 1, 2."""
    sync = Deadline(over_select=5 / 3)
    lines = flights([4, 7, 9, 12, 30])
    assert sync.decide(view(lines[:0], 0.0, asked=False)) == Dispatch(5)
    assert sync.decide(view(lines, 0.0)) == Wait(9.0)
    step = sync.decide(view(lines, 9.0))
    assert step.accept.tolist() == [True, True, True, False, False]
    assert step.cancel.tolist() == [False, False, False, True, True]


def test_a_hard_deadline_is_waited_for_since_nobody_says_that_he_is_late():
    """D = 10 with everybody asked for: the same three, but after 10 s; with D = 40 the last one's
    30 s."""
    sync = Deadline(seconds=10.0)
    lines = flights([4, 7, 9, 12, 30])
    assert sync.decide(view(lines, 0.0, cohort=5)) == Wait(10.0)
    assert sync.decide(view(lines, 10.0, cohort=5)).accept.tolist() == [
        True,
        True,
        True,
        False,
        False,
    ]
    assert Deadline(seconds=40.0).decide(view(lines, 0.0, cohort=5)) == Wait(30.0)


def test_over_selection_counts_decimals_as_they_are_meant():
    """1.1 * 50 is 55.00000000000001 in binary: 55 are asked, not 56."""
    assert Deadline(over_select=1.1).decide(
        view(flights([1])[:0], 0.0, cohort=50, asked=False)
    ) == Dispatch(55)


def test_who_is_gone_looks_like_who_is_late():
    """Client 1 fails after 2 s of 4: without a deadline the server steps when the others are in,
    with one it waits for it."""
    lines = flights([3, 4], drop_at=[np.nan, 0.5])
    assert Deadline().decide(view(lines, 0.0, cohort=2)) == Wait(3.0)
    assert Deadline(seconds=10.0).decide(view(lines, 0.0, cohort=2)) == Wait(10.0)


def test_too_few_abandon_the_round():
    step = Deadline(seconds=5.0, min_uploads=2).decide(view(flights([4, 7, 9]), 5.0))
    assert not step.accept.any()
    assert step.cancel.all()


def test_partial_work_by_hand():
    """A second a step, 2 s of transfers, D = 10: 8 steps; 9 s of transfers leave one, 10 none. A
    step of .1 s fits 7 times into .7 s although .7 / .1 is 6.999999999999999."""
    sync = Deadline(seconds=10.0, late="partial")
    steps = sync.steps(np.array([20, 20, 20, 5]), -np.array([2.0, 9.0, 10.0, 2.0]), np.ones(4))
    assert steps.tolist() == [8, 1, 0, 5]
    assert Deadline(seconds=0.7, late="partial").steps(
        np.array([99]), np.zeros(1), np.array([0.1])
    ).tolist() == [7]


def test_discounts():
    """Polynomial 1/2: 1, .707107, .577350, .5, .447214. Hinge(10, 4): 1 to tau = 4, then 1/11 and
    1/21; times alpha = .6."""
    tau = np.arange(7)
    assert discount("polynomial", tau[:5], 0.5, 4).tolist() == pytest.approx(
        [1, 0.707107, 0.577350, 0.5, 0.447214], abs=5e-7
    )
    alphas = 0.6 * discount("polynomial", tau[:5], 0.5, 4)
    assert alphas.tolist() == pytest.approx([0.6, 0.424264, 0.346410, 0.3, 0.268328], abs=5e-7)
    hinge = 0.6 * discount("hinge", tau, 10, 4)
    assert hinge.tolist() == pytest.approx([0.6] * 5 + [0.0545455, 0.0285714], abs=5e-8)
    assert discount("constant", tau, 0.5, 4).tolist() == [1.0] * 7


def test_the_buffer_is_divided_by_its_size_and_not_by_the_discounts():
    """x = 1, K_b = 2, updates .2 (fresh) and .4 (3 behind): 1 + (.2 + .5 * .4) / 2 = 1.2; dividing
    by 1.5 gives 1.266667. Running variances 1 and 4 are averaged with s / sum s: (1 + .5 * 4) / 1.5
    = 2."""
    uploads = [
        Upload(
            {
                "delta": Part(torch.tensor([d], dtype=torch.float64), "mean"),
                "buffers": Part(torch.tensor([v]), "convex"),
            },
            1.0,
        )
        for d, v in [(0.2, 1.0), (0.4, 4.0)]
    ]
    factors = discount("polynomial", np.array([0, 3]), 0.5, 4)
    total = aggregate(
        Mean(), (scaled(*pair) for pair in zip(uploads, factors.tolist(), strict=True)), "weight"
    )
    assert 1 + total["delta"].item() == pytest.approx(1.2, rel=1e-12)
    assert total["buffers"].item() == pytest.approx(2.0)


def test_mixing_goes_to_the_model_of_the_client_not_along_its_update():
    """x = 2 now, the client started from 0 and moved by 1: alpha .5 goes half the way to its model
    1, so to 1.5 (adding half its update would give 2.5). Buffers .5 * 4 + .5 * 2 = 3."""
    newest = ModelState(torch.tensor([2.0]), torch.tensor([2.0]), torch.zeros(0, dtype=torch.int64))
    upload = Upload(
        {
            "delta": Part(torch.tensor([1.0]), "mean"),
            "buffers": Part(torch.tensor([4.0]), "convex"),
        },
        7.0,
    )
    got = mixed(upload, 0.5, newest, {"x": torch.tensor([0.0])})
    total = aggregate(Mean(), [got], "weight")
    assert 2.0 + total["delta"].item() == 1.5
    assert total["buffers"].item() == 3.0


def test_the_stale_are_discarded():
    lines = flights([1, 1, 1])
    step = Buffered(buffer=1, max_staleness=2).decide(view(lines, 1.0, version=3))
    assert not isinstance(step, ServerStep)  # nobody fresh enough to step on
    step = Asynchronous(max_staleness=2).decide(view(lines, 1.0, version=3))
    assert (step.accept.sum(), step.cancel.sum()) == (0, 1)


# ---------------------------------------------------------------- through the simulation


def simulate(rounds=4, seconds=1.0, **keys) -> RoundLoop:
    """Three clients with minima 0, 1, 2 and one step of 1/2: update (minimum - x) / 2."""
    base = {
        "task": {"name": "quadratic", "minima": [0.0, 1.0, 2.0], "examples": [1, 1, 1]},
        "population": 3,
        "cohort": 3,
        "partition": "by_writer",
        "stop": {"rounds": rounds},
        "dtype": "float64",
        "engine": "sequential",
        "weights": "uniform",
        "local": {"batch_size": 1, "optimizer": {"name": "sgd", "lr": 0.5}},
        "evaluate": {"every": 1000, "per_client": False},
        "device": {"name": "constant", "seconds": seconds},
    }
    simulation = build(Experiment(**{**base, **keys}))
    simulation.state.server.model.x.fill_(0.0)
    return simulation


def path(simulation: RoundLoop) -> list[float]:
    models = []
    while not simulation.done:
        simulation.step()
        models.append(simulation.state.server.model.x.item())
    return models


def test_buffer_as_large_as_the_concurrency_is_synchronous_averaging():
    """.5, .75, .875, .9375, staleness 0; serving simultaneous arrivals one by one would give
    .867851 second."""
    want = [0.5, 0.75, 0.875, 0.9375]
    for sync in (
        {"name": "buffered", "buffer": 3},
        "synchronous",
        {"name": "deadline"},
        {"name": "deadline", "seconds": 5.0},
    ):
        assert path(simulate(synchrony=sync)) == pytest.approx(want, rel=1e-12), sync


@pytest.mark.parametrize("batch", [1, 2])
def test_equal_durations_see_the_batches_of_the_synchronous_run(batch):
    """Bit for bit, with several steps on shuffled batches: streams follow the number of dispatch,
    not the mode."""
    keys = {
        "task": {"name": "quadratic", "minima": [0.0, 1.0, 2.0], "examples": [5, 5, 5]},
        "rounds": 6,
    }
    keys["local"] = {"batch_size": batch, "epochs": 2, "optimizer": {"name": "sgd", "lr": 0.1}}
    assert path(simulate(synchrony={"name": "buffered", "buffer": 3}, **keys)) == path(
        simulate(**keys)
    )


def at_speeds(*seconds: float, **keys) -> RoundLoop:
    """Three clients that are always under way and take so many seconds for one step."""
    simulation = simulate(**keys)
    simulation.backend.planner.step_s = lambda ids, _: np.array(seconds)[ids]
    return simulation


@pytest.mark.parametrize(
    ("refill", "first", "end_s"), [("at once", [1.6, 2.0], 174.0), ("idle", [1.8, 2.6], 200.6)]
)
def test_who_replaces_an_arrival_decides_how_long_two_hundred_steps_take(refill, first, end_s):
    """Clients of 0.8, 1.8 and 2.0 s, all under way, a buffer of 2.

    At once: nobody ever waits, so step 200 is the 400th arrival. By 174 s there are 217 + 96 + 87 =
    400 (174 / 0.8 = 217.5, 174 / 1.8 = 96.7, 174 / 2 = 87), the last of the third client at 174.0.
    The first two are the first client's, at 0.8 and 1.6.

    Idle: the first client is in every step, with the second in odd ones and the third in even ones,
    and waits for them: t_n = max(t_(n-1) + 0.8, t_(n-2) + 1.8 or 2.0): 1.8, 2.6, 3.6, 4.6, 5.4,
    6.6, 7.4, 8.6, ...; even ones are 2.0 apart, so t_200 = 2.6 + 99 * 2.0."""
    simulation = at_speeds(
        0.8, 1.8, 2.0, rounds=200, synchrony={"name": "buffered", "buffer": 2, "refill": refill}
    )
    times = []
    while not simulation.done:
        times.append(simulation.step().time_s)
    assert times[:2] == pytest.approx(first, rel=1e-12)
    assert times[-1] == pytest.approx(end_s, rel=1e-12)


def test_a_client_that_is_in_a_buffer_twice_adds_both_updates_and_the_selector_hears_of_the_last():
    """From x = 4, minima 0, 1, 2, a step of 1/2: client 0 is twice in step 1, so x = 4 + (-2 - 2) /
    2 = 2. Step 2 takes client 1 (from 4, one step behind: -1.5 / sqrt 2) at 1.8 s and client 2 (-1
    / sqrt 2) at 2.0 s."""
    rows = Rows()
    simulation = at_speeds(
        0.8, 1.8, 2.0, rounds=2, synchrony={"name": "buffered", "buffer": 2}, selector="oort"
    )
    simulation.state.server.model.x.fill_(4.0)
    simulation.write_to(rows)
    heard = []
    observe = simulation.state.selector.observe
    simulation.state.selector.observe = lambda t, reports: (
        heard.append(reports.ids.tolist()) or observe(t, reports)
    )
    assert path(simulation) == pytest.approx([2.0, 2.0 - 2.5 / 2 / 2**0.5], rel=1e-12)
    assert [table["client"].tolist() for table in rows.tables["clients"]] == [[0, 0], [1, 2]]
    assert np.diff(rows.tables["clients"][0]["dispatch"]).item() > 0
    assert [ids for ids in heard if ids][-2:] == [[0], [1, 2]]


@pytest.mark.parametrize(
    "keys", [{"algorithm": {"name": "ditto", "lam": 0.0}}, {"algorithm": "scaffold"}], ids=str
)
def test_what_a_client_keeps_moves_once_for_each_of_its_uploads_in_a_step(keys):
    """Ditto's own model with lam = 0 is local training: after n steps of 1/2 towards m from 0 it is
    m (1 - 2^-n). SCAFFOLD's c stays the mean of the c_k, which it would not if an upload's change
    were counted twice or lost."""
    rows = Rows()
    synchrony = {"name": "buffered", "buffer": 3}
    simulation = at_speeds(0.3, 1.8, 2.0, rounds=7, synchrony=synchrony, **keys)
    simulation.write_to(rows)
    path(simulation)
    counts = np.bincount(
        np.concatenate([table["client"] for table in rows.tables["clients"]]), minlength=3
    )
    kept = simulation.state.clients.client_states.of(range(3))
    # 21 arrivals by 5.1 s: 5.1 / 0.3 = 17, 5.1 / 1.8 = 2.8, 5.1 / 2 = 2.6
    assert counts.tolist() == [17, 2, 2]
    if "ditto" in str(keys):
        assert [kept[k]["x"].item() for k in range(3)] == pytest.approx(
            [k * (1 - 0.5 ** counts[k]) for k in range(3)]
        )
    else:
        mean = np.mean([kept[k]["c"].item() for k in range(3)])
        assert simulation.state.server.extra["c"].item() == pytest.approx(mean, rel=1e-12)


def test_asynchronous_by_hand():
    """alpha = 1/2, everybody in one second, from x = 0: models m / 2. Three arrivals at one moment
    are three steps in order of dispatch, staleness 0, 1, 2: x goes .5, .5/sqrt 2 and .5/sqrt 3 of
    the way to each model (for the order 0, 1, 2: 0, .176777, .414421)."""
    simulation = simulate(rounds=3, synchrony={"name": "asynchronous", "alpha": 0.5})
    rows = Rows()
    simulation.write_to(rows)
    models = path(simulation)
    order = [int(c["client"][0]) for c in rows.tables["clients"]]
    assert [int(c["staleness"][0]) for c in rows.tables["clients"]] == [0, 1, 2]
    x = 0.0
    want = []
    for tau, client in enumerate(order):
        x += 0.5 / (1 + tau) ** 0.5 * (client / 2 - x)
        want.append(x)
    assert models == pytest.approx(want, rel=1e-12)
    assert sorted(order) == [0, 1, 2]


def test_alpha_one_takes_a_fresh_model_as_it_is():
    """One client under way at a time: x becomes its model, (x + m) / 2."""
    simulation = simulate(rounds=1, cohort=1, synchrony={"name": "asynchronous", "alpha": 1.0})
    simulation.state.server.model.x.fill_(5.0)
    x = path(simulation)[0]
    assert min(abs(x - (5.0 + m) / 2) for m in (0.0, 1.0, 2.0)) < 1e-12


def test_what_never_left_is_not_billed_and_what_is_late_keeps_its_memory():
    """Everybody is asked, one is kept: three downloads of 64 bits, one upload, 108 bytes of heads;
    the others are cut while they compute, and their c_k stay unset."""
    keys = {
        "cohort": 1,
        "synchrony": {"name": "deadline", "over_select": 3.0},
        "algorithm": "scaffold",
        "rounds": 1,
    }
    simulation = simulate(device={"name": "uniform", "low": 1.0, "high": 2.0}, **keys)
    rows = Rows()
    simulation.write_to(rows)
    simulation.step()
    ledger = simulation.state.ledger
    assert ledger.total("model", "down") == 3 * 64  # x and c
    assert ledger.total("upload", "up") == 64 + 8 * 108
    assert sorted(rows.tables["clients"][0]["outcome"]) == ["accepted", "late", "late"]
    assert len(simulation.state.clients.client_states) == 1


def test_partial_work_takes_the_steps_there_is_time_for():
    """Steps of 1, 2 and 4 s cannot be told apart by constant devices, so one device: 3 s a step, D
    = 10, ten steps wanted: 3."""
    keys = {
        "task": {"name": "quadratic", "minima": [1.0, 1.0, 1.0], "examples": [10, 10, 10]},
        "rounds": 1,
        "seconds": 3.0,
    }
    sync = {"name": "deadline", "seconds": 10.0, "late": "partial"}
    simulation = simulate(synchrony=sync, **keys)
    assert path(simulation)[0] == pytest.approx(1 - 0.5**3, rel=1e-12)
    assert simulation.state.clients.now_s == 9.0
    hopeless = simulate(synchrony={**sync, "seconds": 2.0}, **keys)
    hopeless.step()
    assert hopeless.state.server.model.x.item() == 0.0
    assert hopeless.state.clients.now_s == 2.0  # nobody says that he cannot make it


@pytest.mark.parametrize(
    "sync",
    [
        {"name": "buffered", "buffer": 2},
        {"name": "asynchronous"},
        {"name": "deadline", "seconds": 1.5},
    ],
)
def test_a_run_goes_on_from_any_step(sync):
    """Save after each of six steps and go on: the same models."""
    keys = {
        "synchrony": sync,
        "device": {"name": "uniform", "low": 0.5, "high": 3.0},
        "rounds": 6,
        "cohort": 2,
    }
    whole = path(simulate(**keys))
    for cut in range(1, 6):
        first = simulate(**keys)
        for _ in range(cut):
            first.step()
        second = simulate(**keys)
        second.restore(first.save())
        assert path(second) == whole[cut:]


def test_slow_clients_teach_less_often_in_asynchronous_runs():
    """One client ten times slower: of 60 buffered steps it is in few, and its staleness is high."""
    rows = Rows()
    simulation = simulate(
        rounds=60,
        synchrony={"name": "buffered", "buffer": 1},
        device={"name": "constant", "seconds": 1.0},
    )
    simulation.write_to(rows)
    simulation.backend.planner.step_s = lambda ids, _: np.where(ids == 2, 10.0, 1.0)
    path(simulation)
    who = np.concatenate([c["client"] for c in rows.tables["clients"]])
    stale = np.concatenate([c["staleness"] for c in rows.tables["clients"]])
    assert np.bincount(who)[2] < 6
    assert stale[who == 2].min() > stale[who != 2].max()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"synchrony": {"name": "deadline", "late": "partial"}}, "without a deadline; set seconds"),
        (
            {"synchrony": {"name": "deadline", "over_select": 0.5}},
            "got over_select = 0.5; expected at least 1",
        ),
        (
            {"synchrony": {"name": "deadline", "seconds": 0.0}},
            "got seconds = 0.0; expected a positive number",
        ),
        (
            {"synchrony": {"name": "buffered", "buffer": 4, "refill": "idle"}},
            "synchrony: got a buffer of 4 updates for 3 clients",
        ),
        (
            {"synchrony": {"name": "buffered", "refill": "once"}},
            "synchrony.refill: got 'once'.*'at once', 'idle'",
        ),
        ({"synchrony": {"name": "buffered", "staleness": "linear"}}, "expected .*'hinge'"),
        (
            {"synchrony": {"name": "asynchronous", "alpha": 1.5}},
            "got alpha = 1.5; expected more than 0 and at most 1",
        ),
        (
            {"synchrony": "asynchronous", "algorithm": "scaffold"},
            "synchrony: asynchronous mixing.*also uploads dc; use buffered",
        ),
        (
            {"synchrony": "asynchronous", "weights": "horvitz_thompson"},
            "asynchronous mixing has its own alpha",
        ),
        (
            {"synchrony": {"name": "deadline", "min_uploads": 4}, "cohort": 3},
            "synchrony: got min_uploads = 4, and no step takes more than the cohort of 3; expected "
            "at most 3",
        ),
        (
            {
                "synchrony": "asynchronous",
                "aggregator": {"name": "krum", "f": 0},
                "weights": "uniform",
                "cohort": 3,
            },
            "synchrony: Krum needs at least 3 uploads in a step, and this server takes 1; use "
            "synchronous",
        ),
        (
            {
                "synchrony": {"name": "buffered", "buffer": 2},
                "aggregator": {"name": "multi_krum", "f": 0},
                "weights": "uniform",
                "cohort": 3,
            },
            "synchrony: MultiKrum needs at least 3 uploads in a step, and this server takes 2",
        ),
    ],
)
def test_bad_input_is_refused_in_a_sentence(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**keys)


def test_a_summary_counts_server_steps_not_calls_of_select():
    """Buffers of two, three under way: a step takes more than one call of select, and the bar must
    not run past its end."""
    simulation = simulate(
        rounds=4,
        synchrony={"name": "buffered", "buffer": 2},
        device={"name": "uniform", "low": 0.5, "high": 3.0},
    )
    done = [simulation.step() for _ in range(4)]
    assert [one.round for one in done] == [1, 2, 3, 4]
    assert done[-1].selections > 4


def test_a_link_that_never_gets_done_is_said_in_a_sentence():
    with pytest.raises(
        ConfigError, match="expected a finite time: look at the options of device and network"
    ):
        simulate(rounds=1, network={"name": "constant", "up_mbps": 1e-320}).step()


def test_rules_anneal_by_server_steps_not_by_selections():
    """Four server steps of two updates each, where every arrival is replaced at once: the last
    choice before step t has tau = 1 - t / 8, however many choices there were."""
    rows = Rows()
    loop = build(
        Experiment(
            task={"name": "synthetic", "dim": 3, "classes": 2, "examples": 10},
            population=8,
            cohort=4,
            stop={"rounds": 4},
            synchrony={"name": "buffered", "buffer": 2},
            selector={"name": "hetero_select", "tau0": 1.0},
        )
    )
    loop.write_to(rows)
    while not loop.done:
        loop.step()
    taus = [notes["tau"] for notes in rows.notes]
    assert taus == pytest.approx([1 - t / 8 for t in (1, 2, 3, 4)])
    assert loop.state.selections > 4
