"""Availability and failures in a run: rounds with nobody, clients that break off, labels turned
around."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch

from motley.core.keys import Key, Streams
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.world import AVAILABILITY
from motley.world.availability import BernoulliAvailability
from motley.world.interfaces import Availability
from motley.world.measured import MeasuredAvailability
from tests.rows import Rows


def run(rounds=6, **keys):
    rows = Rows()
    base = {
        "task": {"name": "quadratic", "dim": 3, "examples": [2] * 12},
        "partition": "by_writer",
        "population": 12,
        "cohort": 4,
        "stop": {"rounds": rounds},
        "local": {"batch_size": 1},
        "device": {"name": "constant", "seconds": 1.0},
        "engine": "sequential",
        "dtype": "float64",
    }
    simulation = build(Experiment(**{**base, **keys}), writer=rows)
    models = [simulation.state.server.model.x.clone()]
    while not simulation.done:
        simulation.step()
        models.append(simulation.state.server.model.x.clone())
    return rows.tables, models


def test_at_night_nobody_is_asked_the_model_stays_and_time_goes_on():
    """One time zone, days of 200 s of which the first half is online, rounds of 2 s or 60 idle
    ones: rounds 1 to 50 end at 2 .. 100 s, two idle rounds take it to 220 s, the next is at work
    again."""
    night = {"name": "day_night", "spread": 0.0, "day_s": 200.0}
    tables, models = run(53, availability=night)
    rows = tables["rounds"]
    assert [row["available"] for row in rows] == [12] * 50 + [0, 0] + [12]
    assert [row["time_s"] for row in rows[49:]] == [100.0, 160.0, 220.0, 222.0]
    assert torch.equal(models[50], models[52])
    assert not torch.equal(models[52], models[53])


@pytest.mark.parametrize(
    "availability",
    [{"name": "bernoulli", "p": 0.5}, {"name": "markov", "p": 0.3, "q": 0.3}],
    ids=str,
)
def test_only_who_is_online_is_asked(availability):
    tables, _ = run(30, availability=availability)
    available = [row["available"] for row in tables["rounds"]]
    assert 0 < min(available) < max(available) <= 12
    assert abs(np.mean(available) - 6) < 3
    assert all(row["selected"] == min(4, row["available"]) for row in tables["rounds"])


def test_everybody_breaking_off_leaves_the_model_unchanged_and_the_run_goes_on():
    tables, models = run(3, failures={"name": "drop_out", "rate": 1.0, "at": 0.5})
    assert [row["accepted"] for row in tables["rounds"]] == [0, 0, 0]
    # each breaks off after half of two steps of a second; the server waits a minute for nobody
    assert [row["time_s"] for row in tables["rounds"]] == [60.0, 120.0, 180.0]
    assert torch.equal(models[0], models[3])


def test_crashed_clients_never_deliver_again():
    tables, _ = run(40, failures={"name": "crash", "rate": 0.1})
    gone = set()
    for row in tables["clients"]:
        for client, outcome in zip(np.asarray(row["client"]).tolist(), row["outcome"], strict=True):
            assert outcome == "dropped" or client not in gone
            if outcome == "dropped":
                gone.add(client)
    assert len(gone) >= 8


def test_a_run_on_traces(tmp_path):
    (tmp_path / "who.csv").write_text("trace,active_s,inactive_s,finish_s\n0,0,10,40\n1,20,30,40\n")
    (tmp_path / "speed.csv").write_text("step_s\n1\n2\n3\n")
    (tmp_path / "links.csv").write_text("up_mbps\n1\n")
    tables, _ = run(
        8,
        availability={"name": "trace", "file": str(tmp_path / "who.csv")},
        device={"name": "trace", "file": str(tmp_path / "speed.csv")},
        network={"name": "trace", "file": str(tmp_path / "links.csv")},
    )
    for row in tables["rounds"]:
        client = np.concatenate(
            [c["client"] for c in tables["clients"] if c["round"] == row["round"]] or [np.zeros(0)]
        )
        inside = row["start_s"] % 40
        assert row["available"] == (6 if inside <= 10 or 20 <= inside <= 30 else 0)
        assert set(client % 2) <= ({0} if inside <= 10 else {1})


def test_a_run_in_a_measured_world():
    """Two local steps of a phone that was timed take twice its seconds; who can be asked is online
    by the law, at the run's own time."""
    tables, _ = run(
        3,
        device={"name": "measured", "table": "phones_trained_2021", "median_s": 1.642},
        network={"name": "measured", "country": "DE"},
        availability={"name": "measured", "alike": True, "begin_h": 5.0},
        population=40,
        task={"name": "quadratic", "dim": 3, "examples": [2] * 40},
    )
    presence = MeasuredAvailability(alike=True, begin_h=5.0)
    key, everybody = Streams(0).key("available"), np.arange(40)
    for row in tables["rounds"]:
        there = presence.online(key, everybody, row["round"], row["start_s"])
        assert row["available"] == there.sum()
    assert tables["clients"]
    for row in tables["clients"]:
        assert set(np.round(row["compute_s"] / 2, 3)) <= {1.642, 0.588, 0.179}


def test_a_client_that_turns_its_sign_is_folded_with_it():
    """One client, mean of one: the step is the negative of the honest one; buffers and counters do
    not exist here."""
    _, honest = run(
        1, population=1, cohort=1, task={"name": "quadratic", "dim": 3, "examples": [2]}
    )
    corrupted = {"name": "corrupted", "share": 1.0, "scale": 2.0}
    tables, turned = run(
        1,
        population=1,
        cohort=1,
        task={"name": "quadratic", "dim": 3, "examples": [2]},
        failures=corrupted,
    )
    assert torch.allclose(turned[1] - turned[0], -2.0 * (honest[1] - honest[0]), rtol=1e-12)
    assert tables["rounds"][0]["accepted"] == 1


def test_updates_that_blew_up_are_rejected_counted_and_paid_for():
    tables, models = run(2, failures={"name": "non_finite", "rate": 1.0})
    assert [row["accepted"] for row in tables["rounds"]] == [0, 0]
    assert all(outcome == "rejected" for row in tables["clients"] for outcome in row["outcome"])
    assert tables["rounds"][0]["up_bits"] > 0
    assert torch.equal(models[0], models[2])


def test_some_blow_up_and_the_others_go_on():
    tables, models = run(20, failures={"name": "non_finite", "rate": 0.3})
    accepted = [row["accepted"] for row in tables["rounds"]]
    assert 0 < sum(accepted) < 80
    assert torch.isfinite(models[-1]).all()


@pytest.mark.parametrize("law", ["published", "rank"])
def test_inverted_links_slow_down_who_has_most_to_tell(law):
    """All 12 clients take part: upload times are bits over 1 to 5 Mb/s, longest for the largest
    loss of the arriving model."""
    tables, _ = run(
        1,
        cohort=12,
        network={"name": "inverted", "law": law, "batches": None},
        selector={"name": "power_of_choice", "d": 12},
    )
    row = tables["clients"][0]
    order = np.argsort(row["client"])
    upload = np.asarray(row["upload_s"])[order]
    losses = build_losses()
    assert (
        (np.argsort(-losses) == np.argsort(-upload)).all()
        if law == "rank"
        else np.argmax(upload) == np.argmax(losses)
    )
    rate = np.asarray(row["bits_up"])[order] / upload / 1e6
    if law == "published":
        assert np.allclose(rate, 1 + 4 * (1 - losses / losses.max()))
    assert (rate >= 1 - 1e-9).all()
    assert (rate <= 5 + 1e-9).all()


def build_losses():
    """The untrained model's loss at each client."""
    simulation = build(
        Experiment(
            task={"name": "quadratic", "dim": 3, "examples": [2] * 12},
            partition="by_writer",
            population=12,
            cohort=4,
            stop={"rounds": 1},
            local={"batch_size": 1},
            engine="sequential",
            dtype="float64",
        )
    )
    download = simulation.algorithm.local.download(simulation.state.server)
    # of all data, whatever the key
    return simulation.engine.measure(np.arange(12), download, {}, {"loss": None}, Key(0))["loss"]


@dataclass(frozen=True)
class Counted(Availability):
    """Clients that are online with probability ``p``, and a limit on how often a run asks for
    them."""

    calls: ClassVar[list[int]] = []

    p: float = 1.0

    def online(self, key, ids, round_index, time_s):
        self.calls.append(round_index)
        assert len(self.calls) < 100, "asked for ever"
        return BernoulliAvailability(self.p).online(key, ids, round_index, time_s)


@pytest.mark.parametrize(
    "mode",
    [{"name": "buffered", "buffer": 3}, {"name": "asynchronous"}],
    ids=lambda mode: mode["name"],
)
@pytest.mark.parametrize(
    "keys",
    [
        {"failures": {"name": "crash", "rate": 1.0}, "availability": "counted"},
        {"availability": {"name": "counted", "p": 1e-9}},
    ],
    ids=["crashed", "away"],
)
def test_with_nobody_left_a_run_without_rounds_in_step_ends_too(mode, keys, monkeypatch):
    """Everybody crashed in round 1 or away for ever: rounds of ``idle_s`` without an update,
    instead of a loop without end."""
    monkeypatch.setitem(AVAILABILITY.targets, "counted", f"{__name__}:Counted")
    monkeypatch.setattr(Counted, "calls", [])
    rows = Rows()
    simulation = build(
        Experiment(
            task={"name": "quadratic", "dim": 3, "examples": [2] * 12},
            partition="by_writer",
            population=12,
            cohort=4,
            stop={"rounds": 5},
            local={"batch_size": 1},
            engine="sequential",
            synchrony={**mode, "idle_s": 2.0},
            **keys,
        ),
        writer=rows,
    )
    while not simulation.done:
        simulation.step()
    assert [row["accepted"] for row in rows.tables["rounds"]] == [0] * 5
    assert rows.tables["rounds"][-1]["time_s"] >= 10.0
