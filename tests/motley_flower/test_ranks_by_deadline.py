"""Shares of the ranks of deployed clients by the seconds that were measured of them: those of the
simulation, whatever share was trained before."""

from __future__ import annotations

import numpy as np
import pytest

import motley
from motley.experiments.build import build, prepare
from motley.rounds.holdings.slices import HeldSlices
from motley.world.devices import ConstantDevice
from motley_flower.deployed.grid_transport import bytes_in
from motley_flower.deployed.measured_ranks import MeasuredSlices
from motley_flower.deployed.protocol import open_order
from motley_flower.deployed.server_app import refuses
from tests.motley_flower.client_runtimes import columns, deploy, same_model
from tests.motley_flower.test_loop_resume import KilledError, killed_after
from tests.motley_flower.test_protocol import changed, meddled
from tests.motley_flower.test_ranks import KEYS, K, grid_of, setup, task, trained

STEP_S = 10.0, 20.0, 25.0, 60.0, 14.0, 12.0
"""Seconds of a step on the whole model. Two of them on half of the ranks take 90 / 130 of it, on a
quarter 70 / 130."""
WORK = {1.0: 1.0, 0.5: 90 / 130, 0.25: 70 / 130}
IN_TIME = {"name": "by_deadline", "seconds": 31.0, "levels": [1.0, 0.5, 0.25]}
HELD = 1.0, 0.5, 0.25, 0.25, 1.0, 1.0
"""2 * 20 * 90 / 130 = 27.7 s; of client 2 34.6 and 26.9 s; client 3 is late with the least."""
ALL = {"algorithm": "flexlora", "cohort": K, "stop": {"rounds": 4}, "capacity": IN_TIME}


def timed(grid, step_s=STEP_S):
    """Let each client train as long as its share of the ranks takes it, on the grid's clock."""

    def took(order):
        return order.steps * step_s[order.client] * WORK[order.width]

    def on_time(node):
        def app(message, context):
            reply = good(message, context)
            if message.metadata.message_type == "train.motley":
                record = reply.content["motley"]
                seconds = np.array(took(open_order(bytes_in(message))))
                record["message"] = changed(record["message"], compute_s=seconds)
            return reply

        good = node.app
        node.app = app
        node.delay_s = delay

    def delay(message):
        training = message.metadata.message_type == "train.motley"
        return took(open_order(bytes_in(message))) if training else 1.0

    for node in grid.nodes.values():
        on_time(node)
    return grid


def widths(run):
    """The share of every client in every round, ``{round: {client: share}}``."""
    seen = columns(run, "clients")
    found = {}
    for number, client, width in zip(seen["round"], seen["client"], seen["width"], strict=True):
        found.setdefault(int(number), {})[int(client)] = float(width)
    return found


def test_from_its_second_round_on_a_client_holds_what_it_holds_in_a_simulation(
    tmp_path, monkeypatch
):
    """The simulation's clients take no time in round 1, and so hold all."""
    experiment = setup(**ALL)
    done = deploy(timed(grid_of(experiment, tmp_path)), experiment, tmp_path / "real", task=task())
    monkeypatch.setattr(
        ConstantDevice,
        "step_s",
        lambda self, key, ids, number, *_: (number > 1) * np.array(STEP_S)[ids],
    )
    simulated = motley.run({**KEYS, **ALL, "device": "constant"}, task=task(), out=tmp_path / "sim")
    assert widths(done) == widths(simulated)
    assert widths(done)[1] == dict.fromkeys(range(K), 1.0)
    assert all(widths(done)[number] == dict(enumerate(HELD)) for number in (2, 3, 4))
    assert same_model(done, simulated)


@pytest.mark.parametrize("width", [1.0, 0.5, 0.3, 0.25])
def test_a_round_with_any_share_tells_the_seconds_of_the_others(width, tmp_path):
    """Seconds and links are those of a simulation; what was measured is a round with one share."""
    experiment = setup(algorithm="flexlora", capacity=IN_TIME)
    slow = {"name": "uniform", "up_mbps": [1e-4, 1e-3], "down_mbps": [2e-4, 2e-3]}
    world = {"device": "uniform", "network": slow}
    loop = build({**KEYS, "task": task(), "algorithm": "flexlora", "capacity": IN_TIME, **world})
    simulated = loop.backend.holding
    everybody = np.arange(K)
    levels = 1.0, 0.5, 0.25
    ends = simulated.round_s(everybody, 1, levels)

    class Registry:
        examples = loop.setting.task.federation.seen
        speed = np.full((K, 3), np.nan)
        trained = np.ones(K)

    measured = MeasuredSlices(loop.setting, loop.config.world, Registry())
    assert measured.widths(everybody, 1).tolist() == [1.0] * K
    (work,), (bits,) = simulated.level_costs([width])
    key = loop.setting.streams.key("network")
    network = loop.config.world.network
    Registry.speed = np.stack(
        [
            simulated._step_s(everybody, 1) * work,
            bits / network.downlink_mbps(key, everybody, 1) / 1e6,
            bits / network.uplink_mbps(key, everybody, 1) / 1e6,
        ],
        axis=1,
    )
    Registry.trained = np.full(K, width)
    np.testing.assert_allclose(measured.round_s(everybody, 1, levels), ends, rtol=1e-12)
    assert refuses(experiment, prepare(experiment, None, task())) is None


def test_a_client_holds_no_more_than_it_said_and_than_another_capacity_gives(tmp_path):
    """Client 0 says a quarter, client 1 less than the half for which it is in time, client 4 a half
    of all; of what the file draws nobody is given more."""
    drawn = {"name": "levels", "levels": [1.0, 0.5], "weights": [1.0, 1.0]}
    experiment = setup(**{**ALL, "stop": {"rounds": 2}, "capacity": {**IN_TIME, "within": drawn}})
    alone = prepare(setup(**{**ALL, "capacity": drawn}), None, task()).config
    drawn_widths = HeldSlices(alone.setting, alone.world, lambda ids, _: np.ones(len(ids)))
    given = drawn_widths.widths(np.arange(K), 1)
    shares = {0: 0.25, 1: 0.5, 4: 0.5}
    done = deploy(
        timed(grid_of(experiment, tmp_path, shares)), experiment, tmp_path / "real", task=task()
    )
    limits = np.minimum(given, [shares.get(k, 1.0) for k in range(K)])
    assert set(given) == {1.0, 0.5}
    assert widths(done) == {
        1: dict(enumerate(limits)),
        2: dict(enumerate(np.minimum(limits, HELD))),
    }


@pytest.mark.parametrize("late", ["drop", "partial"])
def test_who_was_too_late_is_sent_less(late, tmp_path):
    """With all ranks clients 1, 2 and 3 miss the deadline: what they send later tells how long they
    took. With fewer clients 1 and 2 are in time; client 3 is only where it takes fewer steps, the
    one of 32 s that fits in 35 s."""
    log = []
    synchrony = {"name": "deadline", "seconds": 35.0, "late": late}
    experiment = setup(**{**ALL, "stop": {"rounds": 7}, "synchrony": synchrony})
    grid = timed(grid_of(experiment, tmp_path, log=log))
    done = deploy(grid, experiment, tmp_path / "real", task=task())
    rows = columns(done, "clients")
    for client in range(K):
        own = rows["client"] == client
        assert rows["width"][own][0] == 1.0
        assert set(rows["width"][own][1:]) == {HELD[client]}
        slow = client in (1, 2, 3)
        always = client == 3 and late == "drop"
        assert rows["outcome"][own][0] == ("late" if slow else "accepted")
        assert set(rows["outcome"][own][1:]) == {"late" if always else "accepted"}
    steps = {(order.client, order.steps) for order, *_ in trained(log)}
    fewer = {(3, 1)} if late == "partial" else set()
    assert steps == {(client, 2) for client in range(K)} | fewer


def test_who_was_too_late_is_asked_for_fewer_steps(tmp_path):
    """Two steps of 20 and 25 s do not fit into 35 s, one does; of 60 s not even one, and one is
    asked for. Under ``late = "drop"`` all are asked for both."""
    for late, fewer in (("partial", {1, 2, 3}), ("drop", set())):
        log = []
        synchrony = {"name": "deadline", "seconds": 35.0, "late": late}
        keys = {"cohort": K, "stop": {"rounds": 12}, "synchrony": synchrony}
        experiment = setup(**keys)
        deploy(
            timed(grid_of(experiment, tmp_path / late, log=log)),
            experiment,
            tmp_path / f"{late}-run",
            task=task(),
        )
        asked = {}
        for order, *_ in trained(log):
            asked.setdefault(order.client, []).append(order.steps)
        for client in range(K):
            assert asked[client][0] == 2
            assert set(asked[client][1:]) == {1 if client in fewer else 2}


def test_a_late_answer_that_cannot_be_read_tells_nothing(tmp_path):
    synchrony = {"name": "deadline", "seconds": 35.0}
    experiment = setup(**{**ALL, "synchrony": synchrony})
    grid = timed(grid_of(experiment, tmp_path))

    def spoil(message, reply):
        reply.content["motley"]["message"] = b"garbage"

    meddled(grid, 101, spoil)
    seen = widths(deploy(grid, experiment, tmp_path / "real", task=task()))
    assert {held[1] for held in seen.values() if 1 in held} == {1.0}


def test_a_killed_server_goes_on_with_what_was_measured(tmp_path):
    experiment = setup(**ALL)
    whole = deploy(
        timed(grid_of(experiment, tmp_path / "a")), experiment, tmp_path / "whole", task=task()
    )
    for rounds in (1, 3):
        grid = timed(grid_of(experiment, tmp_path / f"b{rounds}"))
        out = tmp_path / f"cut{rounds}"
        with pytest.raises(KilledError):
            deploy(grid, experiment, out, task=task(), told=killed_after(rounds))
        grid = timed(grid_of(experiment, tmp_path / f"b{rounds}"))
        done = deploy(grid, experiment, out, task=task())
        assert same_model(whole, done)
        assert widths(whole) == widths(done)
