"""Motley's own loop: the simulator's numbers from real messages, and what happens when clients are
slow, gone or wrong."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import motley
from motley.core.records import Outcome, SignalRequirements
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.measured_speeds import MeasuredSpeeds
from motley.selectors.selector import Selector
from motley.selectors.uniform import Uniform
from motley.tasks import from_clients, own_task
from motley.tasks.own import Own
from motley_flower.deployed.grid_transport import GridTransport, bytes_in
from motley_flower.deployed.protocol import open_order
from motley_flower.deployed.server_app import run
from tests.motley_flower.client_runtimes import (
    SOON,
    columns,
    deploy,
    experiment,
    federation,
    same_model,
)
from tests.motley_flower.fake_grid import FakeGrid

FOR_LONG = replace(SOON, poll_s=1.0)
"""Where ten minutes are waited for an answer, by polls of which each is a call."""


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"algorithm": {"name": "scaffold"}},
        {"algorithm": {"name": "feddyn"}},
        {"algorithm": {"name": "scaffold"}, "weights": "examples"},
        {"algorithm": {"name": "fedvarp"}, "weights": "examples"},
        {"algorithm": {"name": "moon"}},
        {"algorithm": {"name": "qfedavg"}},
        {"algorithm": {"name": "fedprox", "mu": 0.1}, "server": {"name": "momentum"}},
        {"selector": {"name": "hetero_select_v1"}},
        {"selector": {"name": "power_of_choice", "d": 5}},
        {"selector": {"name": "hetero_select"}},
        pytest.param(
            {
                "selector": {"name": "greedyfed", "permutations": 2},
                "split": {"test": "client", "server": 0.2},
            },
            id="greedyfed",
        ),
        {
            "compressor": {"name": "topk"},
            "budget": {"name": "constant", "average": 0.1},
            "feedback": {"name": "fixed"},
        },
    ],
    ids=lambda keys: (
        "-".join(v if isinstance(v, str) else f"{v['name']}" for v in keys.values()) or "fedavg"
    ),
)
def test_a_deployment_that_waits_for_all_is_the_simulation_bit_for_bit(keys, tmp_path):
    setup = experiment(**keys)
    real = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    simulated = motley.run(setup, out=tmp_path / "simulated")
    for column in (
        "round",
        "selections",
        "dispatch",
        "accepted",
        "train_loss",
        "update_norm",
        "weight_sum",
        "up_paper_bits",
    ):
        np.testing.assert_array_equal(
            real.column("rounds", column), simulated.column("rounds", column), column
        )
    for column in (
        "client",
        "dispatch",
        "outcome",
        "local_steps",
        "weight",
        "score",
        "loss",
        "update_norm",
        "theta",
    ):
        assert real.tables["clients"][column].equals(simulated.tables["clients"][column]), column
    for column in ("scope", "client", "loss", "accuracy"):
        assert real.tables["evaluations"][column].equals(simulated.tables["evaluations"][column]), (
            column
        )
    assert same_model(real, simulated)


class Masked(nn.Module):
    """A linear model with a mask of 0, -inf and NaN among its buffers."""

    def __init__(self) -> None:
        super().__init__()
        self.o = nn.Linear(4, 3)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, torch.nan]))

    def forward(self, x):
        return self.o(x.nan_to_num() + 0.0 * self.mask.nan_to_num().sum())


@pytest.mark.parametrize("keys", [{}, {"compressor": {"name": "qsgd"}}])
def test_what_a_model_holds_that_is_not_finite_by_design_travels(keys, tmp_path):
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(n, 4)), np.arange(n) % 3) for n in (8, 5, 9, 6)]
    task = own_task(from_clients(clients, test=clients), Masked)
    local = {"epochs": 1, "batch_size": 4}
    given = {"cohort": 4, "stop": {"rounds": 2}, "local": local, "engine": "sequential", **keys}
    setup = Experiment(task=Own.of(task), population=4, **given)
    simulated = motley.run(setup, out=tmp_path / "simulated")
    assert simulated.column("rounds", "accepted").tolist() == [4, 4]
    grid = federation(setup, tmp_path, task=lambda client, config: task)
    real = deploy(grid, setup, tmp_path / "real", task=task)
    one, two = (load_file(run.directory / "model.safetensors") for run in (real, simulated))
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], equal_nan=True, rtol=0, atol=0)


@pytest.mark.parametrize("algorithm", [{"name": "fedrep", "head_epochs": 2}, {"name": "fedas"}])
def test_phases_beside_the_steps_asked_for_are_run(algorithm, tmp_path):
    """FedRep's clients take two epochs on their heads and then the three steps they are asked for;
    FedAS's measure features, align their base, and measure gradients after the three steps."""
    setup = experiment(algorithm=algorithm, split={"test": "client"})
    real = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    simulated = motley.run(setup, out=tmp_path / "simulated")
    assert set(real.tables["clients"]["outcome"].to_pylist()) == {"accepted"}
    for column in ("client", "outcome", "local_steps", "loss", "update_norm"):
        assert real.tables["clients"][column].equals(simulated.tables["clients"][column]), column
    assert same_model(real, simulated)


# ------------------------------------------------------------------------------------- time


def test_a_compressed_upload_is_measured_as_a_whole_one(tmp_path, monkeypatch):
    """Each answer takes 2 s. A compressed upload took fewer of them than a whole one would have, by
    its bits."""
    found = []
    learn = MeasuredSpeeds.learn

    def watched(self, lines, up_bits, whole_bits):
        good = learn(self, lines, up_bits, whole_bits)
        took = lines.arrives_s - lines.computed_s
        found.append((self.seconds[lines.client, 2] / took, up_bits, whole_bits))
        return good

    monkeypatch.setattr(MeasuredSpeeds, "learn", watched)
    setup = experiment(
        compressor={"name": "topk"},
        budget={"name": "constant", "average": 0.1},
        feedback={"name": "fixed"},
    )
    grid = federation(setup, tmp_path)
    for node in grid.nodes.values():
        node.delay_s = lambda message: 2.0
    deploy(grid, setup, tmp_path / "real")
    assert found
    for ratio, up_bits, whole_bits in found:
        assert (2 * up_bits < whole_bits).all()
        np.testing.assert_allclose(ratio, whole_bits / up_bits)


def test_a_deadline_takes_the_first_and_leaves_the_slow_alone_until_they_have_answered(tmp_path):
    """Cohort 3, 5 of 6 asked: client 5 needs 12 s, all others 1 s. Steps are made with the first 3,
    long before the deadline; when 5 is asked it is late, and is not asked again in the rounds of
    the next 12 s."""
    synchrony = {"name": "deadline", "seconds": 10.0, "over_select": 5 / 3}
    setup = experiment(synchrony=synchrony, stop={"rounds": 40})
    done = deploy(federation(setup, tmp_path, {5: 12.0}), setup, tmp_path / "real")
    rounds = columns(done, "rounds")
    clients = columns(done, "clients")
    assert (rounds["accepted"] == 3).all()
    assert rounds["selected"].max() == 5
    assert (np.diff(rounds["time_s"]) < 5.0).all()
    slow = clients["client"] == 5
    assert set(clients["outcome"][slow]) == {"late"}
    assert slow.sum() >= 2
    assert (np.diff(clients["start_s"][slow]) >= 12.0).all()
    assert len(set(clients["dispatch"])) == len(clients["dispatch"])


def test_what_arrives_after_its_round_is_paid_for_and_moves_nothing(tmp_path):
    """All six are asked, two are waited for. The others' uploads travel, too, and are in the ledger
    when they come."""
    synchrony = {"name": "deadline", "seconds": 30.0, "over_select": 3.0}
    setup = experiment(cohort=2, synchrony=synchrony, stop={"rounds": 6})
    delays = {0: 1.0, 1: 1.0, 2: 2.2, 3: 2.2, 4: 2.2, 5: 2.2}
    done = deploy(federation(setup, tmp_path, delays), setup, tmp_path / "real")
    clients = columns(done, "clients")
    rounds = columns(done, "rounds")
    assert (rounds["accepted"] == 2).all()
    first = clients["round"] == 1
    assert sorted(clients["outcome"][first]) == ["accepted"] * 2 + ["late"] * 4
    each = clients["bits_up"][clients["bits_up"] > 0][0]
    assert rounds["up_bits"][0] == 2 * each
    # those of rounds 1 and 4 came later, whole: they are an account of their own
    beside = rounds["total_up_bits"] - np.cumsum(rounds["up_bits"])
    assert (beside[-1] - beside[0]) / each == pytest.approx(8, rel=1e-3)
    by_round = [clients["bits_up"][clients["round"] == t].sum() for t in rounds["round"]]
    assert by_round == rounds["up_bits"].tolist()
    late_in_time = clients["outcome"] == "late"
    assert (np.isnan(clients["loss"][late_in_time])).all()


@dataclass(frozen=True)
class Listening(Uniform):
    """Keeps what it hears of seconds, steps and bits."""

    heard: ClassVar[list] = []

    def needs(self):
        names = {"local_steps", "download_s", "compute_s", "upload_s", "bits_up"}
        return SignalRequirements(columns=frozenset(names))

    def observe(self, state, draw, reports):
        self.heard.extend(one for one in reports.rows() if one.outcome != Outcome.ENROLLED)
        return super().observe(state, draw, reports)


def test_a_rule_hears_of_a_late_client_as_little_as_in_a_simulation(tmp_path):
    Listening.heard.clear()
    synchrony = {"name": "deadline", "seconds": 30.0, "over_select": 3.0}
    setup = experiment(cohort=2, selector=Listening(), synchrony=synchrony, stop={"rounds": 2})
    deploy(federation(setup, tmp_path, {2: 5.0, 3: 5.0, 4: 5.0, 5: 5.0}), setup, tmp_path / "real")
    for outcome, there in ((Outcome.ACCEPTED, True), (Outcome.LATE, False)):
        told = [one for one in Listening.heard if one.outcome == outcome]
        assert told
        numbers = [(one.compute_s, one.upload_s, one.download_s, one.bits_up) for one in told]
        assert (np.isfinite(numbers) == there).all()
        assert all(np.isfinite(one.local_steps) == there for one in told)


@pytest.mark.parametrize("late", ["drop", "partial"])
@pytest.mark.parametrize(("probe_s", "work_s"), [(4.0, 8.0), (11.0, 1.0)])
def test_a_deadline_counts_from_the_dispatch_as_in_a_simulation(probe_s, work_s, late, tmp_path):
    """D = 10 s: with a probe of 4 s and work of 8 s, or of 11 s and 1 s, everybody is in time."""
    synchrony = {"name": "deadline", "seconds": 10.0, "late": late}
    rule = {"name": "power_of_choice", "d": 5}
    setup = experiment(selector=rule, synchrony=synchrony, stop={"rounds": 2})
    grid = federation(setup, tmp_path)

    def delay_s(message):
        if "enrol" in message.metadata.message_type:
            return 0.1
        return probe_s if open_order(bytes_in(message)).kind == "probe" else work_s

    for node in grid.nodes.values():
        node.delay_s = delay_s
    done = deploy(grid, setup, tmp_path / "real")
    rounds = columns(done, "rounds")
    clients = columns(done, "clients")
    assert rounds["accepted"].tolist() == [3, 3]
    took = rounds["time_s"] - rounds["start_s"]
    assert took == pytest.approx(probe_s + work_s, abs=0.6)  # polls of a quarter of a second
    assert (clients["start_s"][:3] - rounds["start_s"][0] >= probe_s).all()


def test_a_deadline_passes_without_an_update_and_time_goes_on(tmp_path):
    setup = experiment(synchrony={"name": "deadline", "seconds": 5.0}, stop={"rounds": 2})
    done = deploy(
        federation(setup, tmp_path, dict.fromkeys(range(6), 8.0)), setup, tmp_path / "real"
    )
    rounds = columns(done, "rounds")
    assert rounds["accepted"].tolist() == [0, 0]
    assert rounds["late"].tolist() == [3, 3]
    assert rounds["time_s"][0] - rounds["start_s"][0] == pytest.approx(5.0, abs=0.3)


def test_without_idle_time_a_round_lasts_until_a_client_is_back(tmp_path):
    """All are gone from 10 s to 70 s: one round without a client, in place of one after the
    other."""
    setup = experiment(synchrony={"name": "synchronous", "idle_s": 0.0}, stop={"rounds": 20})
    grid = federation(setup, tmp_path)
    nodes = dict(grid.nodes)
    grid.events = [(10.0, grid.nodes.clear), (70.0, lambda: grid.nodes.update(nodes))]
    rounds = columns(deploy(grid, setup, tmp_path / "real"), "rounds")
    empty = np.flatnonzero(rounds["available"] == 0)
    assert len(empty) == 1
    assert rounds["time_s"][empty[0]] == pytest.approx(70.0, abs=SOON.look_s + 0.5)


def test_a_buffer_is_folded_when_it_is_full_and_old_versions_count_less(tmp_path):
    """Buffer of 2, 4 under way, clients 0 to 5 need 1 to 11 s: steps come faster than the slow
    deliver, who are then stale."""
    setup = experiment(
        cohort=4,
        synchrony={"name": "buffered", "refill": "idle", "buffer": 2},
        stop={"rounds": 8},
        weights="uniform",
    )
    done = deploy(
        federation(setup, tmp_path, {k: 1.0 + 2 * k for k in range(6)}), setup, tmp_path / "real"
    )
    rounds = columns(done, "rounds")
    clients = columns(done, "clients")
    assert (rounds["accepted"] == 2).all()
    assert rounds["round"].tolist() == list(range(1, 9))
    assert clients["staleness"].max() >= 2
    assert clients["staleness"].min() == 0


def test_every_arrival_may_be_a_step(tmp_path):
    setup = experiment(cohort=3, synchrony="asynchronous", stop={"rounds": 6})
    done = deploy(federation(setup, tmp_path, {0: 9.0}), setup, tmp_path / "real")
    assert (done.column("rounds", "accepted") == 1).all()


def test_a_discarded_arrival_makes_no_other_client_stale(tmp_path):
    """Every arrival is a server step, and one older than two model updates is discarded. Client 0
    needs 9 s and the others about 3, so its uploads are discarded while others are under way: their
    staleness counts updates of the model, not server steps."""
    synchrony = {"name": "asynchronous", "max_staleness": 2}
    setup = experiment(population=4, cohort=3, synchrony=synchrony, stop={"rounds": 24})
    done = deploy(
        federation(setup, tmp_path, {0: 9.0, 1: 3.0, 2: 3.5, 3: 4.0}), setup, tmp_path / "real"
    )
    rounds = columns(done, "rounds")
    clients = columns(done, "clients")
    assert set(clients["client"][clients["outcome"] == "late"]) == {0}
    steps = []
    updates = []
    for number, version in zip(clients["round"].tolist(), clients["version"].tolist(), strict=True):
        between = (rounds["round"] > version) & (rounds["round"] < number)
        steps.append(between.sum())
        updates.append(rounds["accepted"][between].sum())
    assert clients["staleness"].tolist() == updates
    assert (np.array(updates) < np.array(steps))[clients["outcome"] == "accepted"].any()


def test_a_target_ends_the_run_early(tmp_path):
    setup = experiment(stop={"rounds": 50, "target": {"accuracy": 0.2}})
    found = columns(deploy(federation(setup, tmp_path), setup, tmp_path / "real"), "evaluations")
    accuracy = found["accuracy"][found["scope"] == "global"]
    assert len(accuracy) < 50
    assert accuracy[-1] >= 0.2
    assert (accuracy[:-1] < 0.2).all()


def test_hours_of_the_wall_clock_end_the_run_too(tmp_path):
    setup = experiment(stop={"virtual_hours": 10.5 / 3600})
    done = deploy(
        federation(setup, tmp_path, dict.fromkeys(range(6), 2.0)), setup, tmp_path / "real"
    )
    assert done.column("rounds", "time_s")[-1] >= 10.5
    assert done.column("rounds", "time_s")[-2] < 10.5


def test_answers_that_come_twice_count_once(tmp_path):
    class Echo(GridTransport):
        """Whatever came comes again, at once and later."""

        old = ()

        def pull(self, messages):
            new = super().pull(messages)
            self.old = [*self.old, *new]
            return [*new, *self.old] if new else []

    setup = experiment()
    grid = federation(setup, tmp_path)
    twice = run(Echo(grid, clock=grid.clock), setup, out=tmp_path / "twice", limits=SOON)
    once = deploy(federation(setup, tmp_path), setup, tmp_path / "once")
    assert same_model(once, twice)
    np.testing.assert_array_equal(
        once.column("rounds", "up_bits"), twice.column("rounds", "up_bits")
    )


def test_what_a_client_took_is_told_as_work_and_ways(tmp_path):
    """An answer after 1 s: the client's own seconds of work, and the rest divided between down and
    up as their bytes are."""
    setup = experiment(stop={"rounds": 2})
    clients = columns(deploy(federation(setup, tmp_path), setup, tmp_path / "real"), "clients")
    whole = clients["download_s"] + clients["compute_s"] + clients["upload_s"]
    np.testing.assert_allclose(whole, 1.0)
    np.testing.assert_allclose(
        clients["download_s"] / clients["upload_s"], clients["bits_down"] / clients["bits_up"]
    )
    np.testing.assert_allclose(clients["up_mbps"], clients["bits_up"] / clients["upload_s"] / 1e6)
    assert (clients["compute_s"] > 0).all()


def test_rules_that_want_estimates_get_what_was_measured(tmp_path):
    """FedCG asks for links and speeds in every round; its first is everybody, who are taken to be
    alike."""
    setup = experiment(selector={"name": "fedcg"}, stop={"rounds": 6})
    done = deploy(
        federation(setup, tmp_path, {k: 1.0 + k for k in range(6)}), setup, tmp_path / "real"
    )
    assert done.column("rounds", "accepted").tolist() == [6, 3, 3, 3, 3, 3]


# ------------------------------------------------------------------------------------- who is lost


def test_a_killed_node_is_dropped_and_asked_again_when_it_is_back(tmp_path):
    setup = experiment(population=3, cohort=3, stop={"rounds": 14})
    grid = federation(setup, tmp_path, dict.fromkeys(range(3), 5.0))
    grid.heartbeat_s = 20.0
    grid.events = [(27.0, lambda: grid.kill(102)), (75.0, lambda: grid.revive(102, 200))]
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    mine = clients["outcome"][clients["client"] == 2].tolist()
    assert mine.count("dropped") == 1
    assert mine[-1] == "accepted"
    assert 0 < len(mine) < 14  # not asked while it was away
    assert (clients["outcome"][clients["client"] != 2] == "accepted").all()
    assert np.isnan(clients["bits_up"][clients["outcome"] == "dropped"]).all()


def test_a_node_that_is_started_again_in_the_middle_of_its_work_is_lost_at_once_and_asked_again(
    tmp_path,
):
    """Flower delivers a message once: without the look at when a node was activated, client 2 would
    be waited for 600 s."""
    setup = experiment(population=3, cohort=3, stop={"rounds": 8})
    grid = federation(setup, tmp_path, dict.fromkeys(range(3), 5.0))
    grid.events = [(27.0, lambda: grid.restart(102))]
    done = deploy(grid, setup, tmp_path / "real")
    clients = columns(done, "clients")
    rounds = columns(done, "rounds")
    mine = clients["outcome"][clients["client"] == 2].tolist()
    assert mine.count("dropped") == 1
    assert mine[-1] == "accepted"
    assert rounds["time_s"][-1] < 90
    assert "its node was started again" in done.tables["incidents"]["reason"].to_pylist()


def test_a_client_that_answers_is_no_longer_left_alone(tmp_path):
    """Client 1 says nothing in its 1st and 3rd order to train: it is left alone for a minute each
    time, for it answered between."""
    setup = experiment(population=2, cohort=2, stop={"rounds": 50}, evaluate={"every": 200})
    grid = federation(setup, tmp_path, dict.fromkeys(range(2), 3.0))
    good = grid.nodes[101].app
    orders = []

    def app(message, context):
        if message.metadata.message_type == "train.motley":
            orders.append(grid.now_s)
            if len(orders) in (1, 3):
                return None
        return good(message, context)

    grid.nodes[101].app = app
    deploy(grid, setup, tmp_path / "real", limits=FOR_LONG)
    assert len(orders) > 5
    assert orders[1] - orders[0] == pytest.approx(600 + 60, abs=5)
    assert orders[3] - orders[2] == pytest.approx(600 + 60, abs=5)


def test_nobody_is_waited_for_without_a_limit(tmp_path):
    """Client 1 takes orders and never answers: a round it is in ends when its time is up, and then
    it is left alone for a minute."""
    setup = experiment(population=3, cohort=3, stop={"rounds": 25}, evaluate={"every": 100})
    grid = federation(setup, tmp_path, dict.fromkeys(range(3), 3.0))
    good = grid.nodes[101].app

    def silent(message, context):
        return None if message.metadata.message_type == "train.motley" else good(message, context)

    grid.nodes[101].app = silent
    rounds = columns(deploy(grid, setup, tmp_path / "real", limits=FOR_LONG), "rounds")
    assert rounds["dropped"].sum() == 2
    assert rounds["dropped"][0] == 1
    assert (rounds["accepted"] == 2).all()
    assert rounds["time_s"][0] - rounds["start_s"][0] == pytest.approx(600, abs=5)
    again = np.flatnonzero(rounds["dropped"])[1]
    assert rounds["start_s"][again] - rounds["time_s"][0] == pytest.approx(60, abs=5)
    assert all(
        message.metadata.ttl <= 600
        for message in grid.sent
        if message.metadata.message_type == "train.motley"
    )


def test_a_newcomer_that_says_nothing_keeps_nobody_waiting(tmp_path):
    """Client 2 comes in the middle and does not answer when it is asked what it has."""
    setup = experiment(population=3, cohort=2, stop={"rounds": 20})
    grid = federation(setup, tmp_path)
    mute = grid.nodes.pop(102)
    good = mute.app
    mute.app = lambda message, context: (
        good(message, context) if "enrol" in message.metadata.message_type else None
    )
    grid.events = [(40.0, lambda: grid.nodes.__setitem__(102, mute))]
    done = columns(deploy(grid, setup, tmp_path / "real"), "rounds")
    assert (done["accepted"] == 2).all()
    assert (done["time_s"] - done["start_s"]).max() < 5.0


def test_a_candidate_that_says_nothing_is_waited_for_once(tmp_path):
    """Client 1 answers training and no probes: the first costs the time for questions, then it is
    left alone for a minute, two, ..."""
    setup = experiment(
        population=3, cohort=1, stop={"rounds": 30}, selector={"name": "power_of_choice", "d": 3}
    )
    grid = federation(setup, tmp_path)
    good = grid.nodes[101].app
    asked = []

    def app(message, context):
        if message.metadata.message_type == "query.motley":
            asked.append(grid.now_s)
            if len(asked) > 1:
                return None
        return good(message, context)

    grid.nodes[101].app = app
    rounds = columns(deploy(grid, setup, tmp_path / "real"), "rounds")
    waited = rounds["time_s"] - rounds["start_s"] > 30
    assert waited.sum() <= 2
    assert (rounds["accepted"] == 1).all()


def test_when_nobody_comes_a_sentence_says_so(tmp_path):
    with pytest.raises(motley.ConfigError, match="no client came within 30 s"):
        deploy(FakeGrid(), experiment(), tmp_path / "real")


def test_who_comes_late_is_enrolled_then(tmp_path):
    setup = experiment(
        population=3, cohort=3, stop={"rounds": 6}, selector={"name": "hetero_select_v1"}
    )
    grid = federation(setup, tmp_path, dict.fromkeys(range(3), 4.0))
    late = grid.nodes.pop(102)
    grid.events = [(55.0, lambda: grid.nodes.__setitem__(102, late))]
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    assert 2 not in set(clients["client"][clients["round"] == 1])
    assert 2 in set(clients["client"])
    assert (clients["outcome"] == "accepted").all()


# -------------------------------------------------------- what is spoiled, and what is known before


def test_a_rejected_upload_moves_nothing_at_its_site(tmp_path):
    """Client 1's second upload is spoiled on its way. Its site, which trained, is told to go on
    from its first."""
    setup = experiment(population=2, cohort=2, algorithm={"name": "scaffold"}, stop={"rounds": 4})
    grid = federation(setup, tmp_path)
    good = grid.nodes[101].app
    trained = []

    def spoiled(message, context):
        reply = good(message, context)
        if message.metadata.message_type == "train.motley":
            trained.append(message)
            if len(trained) == 2:
                reply.content["motley"]["message"] = b"nothing"
        return reply

    grid.nodes[101].app = spoiled
    clients = columns(deploy(grid, setup, tmp_path / "real"), "clients")
    asked = [open_order(message.content["motley"]["message"]) for message in trained]
    first, second, third, _ = asked
    assert clients["outcome"].tolist() == ["accepted"] * 3 + ["rejected"] + ["accepted"] * 4
    assert [order.kept for order in asked] == [-1, first.dispatch, first.dispatch, third.dispatch]
    assert second.dispatch not in [order.kept for order in asked]


def test_a_selector_that_learned_in_a_simulation_goes_on_here(tmp_path):
    """Four simulated rounds, then its bytes: the first choice here is the fifth there, of the same
    random numbers."""
    rule = {"name": "power_of_choice", "variant": "rpow_d", "d": 5}
    simulation = build(experiment(selector=rule))
    for _ in range(4):
        simulation.step()
    data = simulation.state.selector.to_bytes()
    fifth = simulation.state.selector.select(5, range(6), 3, simulation.state.dispatch).ids
    setup = experiment(selector=rule, stop={"rounds": 2}, seed=0)
    selector = Selector.from_bytes(data)
    more = {
        "selector": selector,
        "rounds_done": simulation.state.draw_index,
        "clients_sent": simulation.state.dispatch,
    }
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real", **more)
    clients = columns(done, "clients")
    # of this run, whatever the selector has behind it
    assert done.column("rounds", "round").tolist() == [1, 2]
    assert sorted(clients["client"][clients["round"] == 1]) == sorted(fifth)
    assert clients["dispatch"].min() == 12
    with pytest.raises(motley.ConfigError, match="expected the experiment's"):
        deploy(federation(setup, tmp_path), experiment(), tmp_path / "other", selector=selector)


@pytest.mark.slow
def test_a_thousand_rounds_cost_each_hundred_as_many_bytes(tmp_path):
    """What the run's folder grows by in a hundred rounds is no more at the end than before, but
    for larger numbers of rounds, bits and seconds."""
    task = {"name": "synthetic", "sizes": "equal", "examples": 40, "dim": 8, "classes": 3}
    local = {"steps": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}}
    setup = experiment(
        population=3,
        cohort=2,
        stop={"rounds": 1000},
        task=task,
        partition="iid",
        local=local,
        evaluate={"every": 10},
        selector="oort",
    )
    bytes_there = []

    def count(done):
        if done.round % 100 == 0:
            files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
            bytes_there.append(sum(path.stat().st_size for path in files))

    run = deploy(federation(setup, tmp_path / "clients"), setup, tmp_path / "run", told=count)
    assert len(run.tables["rounds"]) == 1000
    grown = np.diff(bytes_there)
    assert grown.max() < 1.1 * grown[0]
