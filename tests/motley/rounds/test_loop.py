"""Whole rounds through the simulation, worked by hand; and what later modes will ask of it: old
versions, memories, drop-outs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    JobContext,
    LocalRule,
    Parts,
    PersonalRule,
)
from motley.core import codec
from motley.core.errors import ConfigError, StoreError
from motley.core.records import Cohort, Outcome, Reports, SelectionContext, SignalRequirements
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.evaluation import Evaluation
from motley.rounds.loop import RoundLoop
from motley.rounds.run_config import Stop
from motley.rounds.simulated import simulation as simulation_of
from motley.rounds.simulated import training_groups
from motley.selectors.selector import SelectionRule, Selector
from motley.tasks.task import ModelState
from motley.timing.synchrony import Dispatch, ServerStep, ServerView, Synchrony, Wait
from motley.world.interfaces import Failures
from tests.rows import Rows

UP = 32_000 + 8 * (15 + 8 + 1 + 5 + 38)
"""Bits of an upload: 1000 numbers, the message's head and checksum, the name and head of its one
part delta."""


def _experiment(**keys: Any) -> Experiment:
    """Three parabolas in 1000 dimensions with 2, 4 and 8 samples: a model is 32,000 bits, a second
    down is 2 of them, up is 1."""
    base = {
        "task": {"name": "quadratic", "dim": 1000, "examples": [2, 4, 8]},
        "partition": "by_writer",
        "population": 3,
        "cohort": 3,
        "stop": {"rounds": 3},
        "local": {"batch_size": 1, "optimizer": {"name": "sgd", "lr": 0.1}},
        "dtype": "float64",
        "device": {"name": "constant", "seconds": 0.25},
        "network": {"name": "constant", "up_mbps": 0.032, "down_mbps": 0.064},
        "evaluate": {"every": 1, "per_client": True},
        "engine": "sequential",
    }
    return Experiment(**{**base, **keys})


def test_a_round_of_three_clients_to_the_last_digit() -> None:
    """Download 32,000 bits at .064 Mb/s: .5 s. Compute 2, 4, 8 steps of .25 s: .5, 1, 2 s. Up:
    32,536 bits at .032 Mb/s: 1.01675 s. The slowest ends the round at .5 + 2 + 1.01675 s; three
    models down, three updates up."""
    rows = Rows()
    simulation = build(_experiment(), writer=rows)
    assert simulation.step().time_s == 3.51675
    clients = rows.tables["clients"][0]
    rounds = rows.tables["rounds"][0]
    assert clients["client"].tolist() == [0, 1, 2]
    assert clients["download_s"].tolist() == [0.5] * 3
    assert clients["compute_s"].tolist() == [0.5, 1.0, 2.0]
    assert clients["upload_s"].tolist() == pytest.approx([1.01675] * 3, rel=1e-12)
    assert (rounds["down_bits"], rounds["up_bits"], rounds["up_paper_bits"]) == (
        96_000,
        3 * UP,
        96_000,
    )
    assert (rounds["probe_down_bits"], rounds["probe_up_bits"], rounds["total_bits"]) == (
        0,
        0,
        96_000 + 3 * UP,
    )
    assert simulation.step().time_s == 2 * 3.51675


def test_a_probe_is_charged_and_its_download_is_not_charged_twice() -> None:
    """Power-of-Choice, d = 3, m = 2, losses on all data: forward passes of 2, 4, 8 batches at a
    third of .25 s: at most 2/3 s. Candidates download in .5 s and send one number (32 bits, .001
    s): the bench takes .5 + 2/3 + .001 s. The chosen two hold the model already, so only computing
    and the upload follow. The sizes told at enrolment: 3 x 32 bits."""
    rows = Rows()
    selector = {"name": "power_of_choice", "d": 3}
    simulation = build(
        _experiment(cohort=2, selector=selector, probe={"batches": "all"}), writer=rows
    )
    end = simulation.step().time_s
    clients = rows.tables["clients"][0]
    rounds = rows.tables["rounds"][0]
    bench = 0.5 + 8 * 0.25 / 3 + 0.001
    steps = np.array([2, 4, 8])[clients["client"]]
    assert end == pytest.approx(bench + 0.25 * steps.max() + 1.01675, rel=1e-15)
    assert clients["start_s"].tolist() == [pytest.approx(bench, rel=1e-15)] * 2
    assert clients["download_s"].tolist() == [0.0, 0.0]
    assert (rounds["probed"], rounds["probe_down_bits"], rounds["probe_up_bits"]) == (3, 96_000, 96)
    assert (rounds["down_bits"], rounds["up_bits"]) == (0, 2 * UP)
    assert rounds["total_bits"] == 96 + 96_000 + 96 + 2 * UP


def test_traffic_is_conserved() -> None:
    """What the rounds say adds up to what the ledger says, and a round's clients to the round."""
    rows = Rows()
    simulation = build(_experiment(cohort=2, selector="power_of_choice"), writer=rows)
    while not simulation.done:
        simulation.step()
    parts = ("down_bits", "up_bits", "probe_down_bits", "probe_up_bits")
    enrolled = simulation.state.ledger.total("enrol")
    assert (
        sum(row[part] for row in rows.tables["rounds"] for part in parts) + enrolled
        == simulation.state.ledger.total_bits
    )
    for row, clients in zip(rows.tables["rounds"], rows.tables["clients"], strict=True):
        assert clients["bits_up"].sum() == row["up_bits"]
        assert clients["bits_down"].sum() == row["down_bits"]


@dataclasses.dataclass(frozen=True)
class TwoAtOnce(Synchrony):
    """A toy of what buffered modes will do: keep two clients under way, step on every arrival."""

    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        if view.arrived.any():
            return ServerStep(accept=view.arrived, cancel=np.zeros(len(view.in_flight), bool))
        if len(view.in_flight) < 2 and not (view.dispatched and view.dispatched_s == view.now_s):
            return Dispatch(2 - len(view.in_flight))
        return Wait(float(view.in_flight.arrives_s[~view.in_flight.dropped].min()))


@dataclasses.dataclass(frozen=True)
class Counting(LocalRule):
    """A toy of a method with client states: every client counts its rounds."""

    def initial_state(self, state: ModelState) -> ClientState:
        return {"rounds": torch.zeros(1, dtype=state.x.dtype)}

    def finish(self, after: ModelState, ctx: JobContext) -> tuple[Parts, ClientState | None]:
        assert ctx.client_state is not None, (
            "a client's first round begins with the state that the method says"
        )
        return super().finish(after, ctx)[0], {"rounds": ctx.client_state["rounds"] + 1}


def _with(simulation: RoundLoop, **changes: Any) -> RoundLoop:
    """A run that has not begun, under another configuration; the engine is made anew where the
    setting is another."""
    config = dataclasses.replace(simulation.config, **changes)
    engine = (
        simulation.engine
        if config.setting is simulation.setting
        else type(simulation.engine)(config.setting)
    )
    return simulation_of(
        config,
        engine,
        simulation.state.selector,
        simulation.state.server.model,
        simulation.tables.writer,
    )


def test_updates_of_old_versions_start_from_the_model_they_received() -> None:
    """Two of three clients under way; the first arrival steps the server, so the second was trained
    on an older version. Its upload is y(old x) - old x: with lr .1 and n steps from x the update is
    (1 - .9^n)(m - x) for the x it received."""
    rows = Rows()
    simulation = _with(
        build(_experiment(cohort=2, weights="uniform", stop={"rounds": 6}), writer=rows),
        synchrony=TwoAtOnce(),
    )
    models = [simulation.state.server.model.x]
    minima = None
    for _ in range(4):
        simulation.step()
        models.append(simulation.state.server.model.x)
    data = simulation.federation
    for at, clients in enumerate(rows.tables["clients"]):
        assert len(clients["client"]) == 1
        client = int(clients["client"][0])
        version = int(clients["version"][0])
        assert clients["staleness"][0] == at - version
        minima = data.y[torch.from_numpy(data.train[client])][0]
        update = (1 - 0.9 ** (2, 4, 8)[client]) * (minima - models[version])
        torch.testing.assert_close(models[at + 1] - models[at], update, rtol=1e-10, atol=1e-12)
    assert max(int(c["staleness"][0]) for c in rows.tables["clients"]) >= 1


@dataclasses.dataclass(frozen=True)
class OneByOne(TwoAtOnce):
    """Of several that arrive together one is folded at a time."""

    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        decision = super().decide(view)
        if isinstance(decision, ServerStep):
            decision.accept[np.flatnonzero(decision.accept)[1:]] = False
        return decision


@dataclasses.dataclass(frozen=True)
class Buffer(Synchrony):
    """A toy of FedBuff: two on their way at any time, a step for every two that have arrived."""

    def decide(self, view: ServerView) -> Dispatch | Wait | ServerStep:
        under_way = len(view.in_flight) - int(view.arrived.sum())
        if view.arrived.sum() >= 2:
            return ServerStep(accept=view.arrived, cancel=np.zeros(len(view.in_flight), bool))
        if under_way < 2 and not (view.dispatched and view.dispatched_s == view.now_s):
            return Dispatch(2 - under_way)
        return Wait(float(view.in_flight.arrives_s[~view.arrived].min()))


def test_a_group_trains_from_one_version_and_no_client_twice() -> None:
    def groups(clients: list[int], versions: list[int]) -> list[list[int]]:
        found = training_groups(np.array(clients, np.int64), np.array(versions, np.int64))
        return [group.tolist() for group in found]

    assert groups([], []) == []
    assert groups([2, 5, 9], [4, 4, 4]) == [[0, 1, 2]]
    assert groups([2, 5, 9], [3, 4, 3]) == [[0, 2], [1]]
    assert groups([3, 3, 3, 3, 7], [0, 0, 0, 0, 0]) == [[0, 4], [1], [2], [3]]


def test_a_step_tells_of_all_that_was_sent_out_since_the_last() -> None:
    """Five clients, several dispatches before a step: traffic and cohorts of each are in its row,
    and time begins with the first."""
    rows = Rows()
    task = {"name": "quadratic", "dim": 1000, "examples": [2, 4, 8, 3, 5]}
    experiment = _experiment(
        task=task, cohort=2, population=5, selector="power_of_choice", stop={"rounds": 6}
    )
    simulation = _with(build(experiment, writer=rows), synchrony=Buffer())
    while not simulation.done:
        simulation.step()
    table = rows.tables["rounds"]
    ledger = simulation.state.ledger
    assert simulation.state.draw_index > simulation.state.version
    assert sum(row["selected"] for row in table) == simulation.state.dispatch
    for kind, direction, column in (
        ("model", "down", "down_bits"),
        ("probe", "up", "probe_up_bits"),
        ("upload", "up", "up_bits"),
    ):
        assert sum(row[column] for row in table) == ledger.total(kind, direction)
    assert [row["start_s"] for row in table] == [0.0, *(row["time_s"] for row in table[:-1])]


def test_rows_are_written_in_the_round_that_made_them_so_that_a_resumed_run_can_cut_them() -> None:
    """Clients of equal speed arrive together and are folded in two steps: two rounds, the second
    without a dispatch. An update that lands is a row of the round in which it lands, whenever it
    was asked."""
    rows = Rows()
    task = {"name": "quadratic", "dim": 1000, "examples": [4, 4, 4]}
    simulation = _with(build(_experiment(task=task, cohort=2), writer=rows), synchrony=OneByOne())
    numbers = [simulation.step().round for _ in range(6)]
    assert numbers == sorted(set(numbers))
    assert [row["round"] for row in rows.tables["rounds"]] == numbers
    assert [row["round"] for row in rows.tables["clients"]] == numbers
    assert [row["round"] for row in rows.tables["evaluations"]] == [0, *numbers]


def test_asynchronous_runs_and_client_memories_survive_a_save_between_two_steps() -> None:
    def fresh() -> RoundLoop:
        simulation = build(_experiment(cohort=2, stop={"rounds": 9}))
        algorithm = dataclasses.replace(simulation.config.setting.algorithm, local=Counting())
        setting = dataclasses.replace(simulation.config.setting, algorithm=algorithm)
        return _with(simulation, synchrony=TwoAtOnce(), setting=setting)

    whole = fresh()
    first = fresh()
    second = fresh()
    for simulation, steps in ((whole, 7), (first, 4)):
        for _ in range(steps):
            simulation.step()
    saved = codec.decode(codec.encode(first.save()))
    second.restore(saved)
    assert len(second.state.clients.in_flight) > 0
    for _ in range(3):
        second.step()
    assert torch.equal(whole.state.server.model.x, second.state.server.model.x)
    assert {k: v["rounds"].item() for k, v in whole.state.clients.client_states.items()} == {
        k: v["rounds"].item() for k, v in second.state.clients.client_states.items()
    }
    # one for every accepted update
    assert sum(v["rounds"].item() for v in whole.state.clients.client_states.values()) >= 7
    assert whole.state.clients.now_s == second.state.clients.now_s


def test_a_checkpoint_does_not_grow_with_the_rounds() -> None:
    """Sixty evaluations took 60 bytes each, at every checkpoint; numbers have a few digits more."""
    simulation = build(_experiment(stop={"rounds": 80}, task={"name": "quadratic", "dim": 3}))
    sizes = []
    while not simulation.done:
        done = simulation.step()
        if done.round in (20, 80):
            sizes.append(len(codec.encode(simulation.save())))
    assert sizes[1] < sizes[0] + 200


def test_the_state_keeps_the_best_value_of_each_metric() -> None:
    """One client a round pulls the model to its own minimum: the mean loss rises and falls."""
    rows = Rows()
    simulation = build(_experiment(stop={"rounds": 6}, selector="uniform", cohort=1), writer=rows)
    while not simulation.done:
        simulation.step()
    losses = [
        float(loss)
        for table in rows.tables["evaluations"][1:]
        for scope, loss in zip(table["scope"], table["loss"], strict=True)
        if scope == "mean"
    ]
    assert len(losses) == 6
    assert losses[-1] > min(losses)
    assert simulation.state.scores.peaks["loss"] == min(losses)
    assert simulation.state.scores.evaluated["loss"] == losses[-1]


def test_a_checkpoint_of_another_version_is_refused_with_a_sentence() -> None:
    simulation = build(_experiment())
    saved = simulation.save()
    del saved["clients"]
    with pytest.raises(
        StoreError,
        match=r"another version of Motley \(it has no clients\); remove the run's folder",
    ):
        simulation.restore(saved)


def test_a_checkpoint_of_another_schema_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    monkeypatch.setattr("motley.rounds.checkpoint.SCHEMA", 1)
    checkpoints.save(3, {}, {})
    assert checkpoints.load() is not None
    monkeypatch.undo()
    with pytest.raises(
        StoreError,
        match=r"checkpoint-00000003.mtly is of another version of Motley \(.*\), which saved the "
        r"state of a run in another form; go on with that version, or remove",
    ):
        checkpoints.load()


@dataclasses.dataclass(frozen=True)
class ClientOneLeaves(Failures):
    def drop_at(self, key: Any, ids: Any, round_index: int) -> Any:
        return np.where(ids == 1, 0.5, np.nan)


def test_a_dropped_client_teaches_nothing_costs_its_download_and_keeps_its_memory() -> None:
    """Client 1 leaves after half of its 4 steps, at .5 + .5 s; nothing of it is folded and no
    upload is billed."""
    rows = Rows()
    simulation = build(_experiment(), writer=rows)
    world = dataclasses.replace(simulation.config.world, failures=ClientOneLeaves())
    simulation = _with(simulation, world=world)
    done = simulation.step()
    clients = rows.tables["clients"][0]
    assert clients["outcome"] == ["accepted", "dropped", "accepted"]
    assert np.isnan(clients["loss"][1])
    assert np.isnan(clients["upload_s"][1])
    assert done.accepted == 2
    assert rows.tables["rounds"][0]["up_bits"] == 2 * UP
    assert rows.tables["rounds"][0]["down_bits"] == 96_000
    both = _with(build(_experiment(), writer=Rows()), cohort=3)
    both.step()
    assert not torch.equal(both.state.server.model.x, simulation.state.server.model.x)


def test_per_client_figures_and_their_mean() -> None:
    """The mean row is the unweighted mean of the clients' own test losses: half the squared
    distance to each minimum."""
    rows = Rows()
    simulation = build(_experiment(), writer=rows)
    simulation.step()
    last = rows.tables["evaluations"][-1]
    x = simulation.state.server.model.x
    data = simulation.federation
    own = [0.5 * (x - data.y[int(data.test[k][0])]).square().sum().item() for k in range(3)]
    assert last["scope"] == ["mean", "client", "client", "client"]
    assert last["loss"][1:].tolist() == pytest.approx(own, rel=1e-12)
    assert last["loss"][0] == pytest.approx(np.mean(own), rel=1e-12)
    assert simulation.state.scores.headline == last["loss"][0]


@dataclasses.dataclass(frozen=True)
class OwnBias(PersonalRule):
    """A toy of FedBN: every client keeps the last weights of its own model (of both classes' biases
    here)."""

    starts_own = True

    def initial_state(self, state: ModelState) -> ClientState:
        return {"bias": state.x[-2:].clone()}

    def start(self, download: Any, client_state: Any) -> ModelState:
        x = download["x"].clone()
        x[-2:] = client_state["bias"]
        return ModelState(x, download["buffers"], download["counters"])

    def finish(self, after: ModelState, ctx: JobContext) -> tuple[Parts, ClientState | None]:
        return super().finish(after, ctx)[0], {"bias": after.x[-2:].clone()}


@pytest.mark.parametrize("test", ["client", "global"])
def test_a_client_is_examined_on_the_model_it_starts_from(test: str) -> None:
    keys = {
        "task": {"name": "tabular"},
        "split": {"test": test},
        "partition": {"name": "dirichlet", "alpha": 0.3},
    }
    rows = Rows()
    simulation = build(_experiment(population=4, local={"batch_size": 32}, **keys), writer=rows)
    algorithm = dataclasses.replace(simulation.config.setting.algorithm, local=OwnBias())
    setting = dataclasses.replace(simulation.config.setting, algorithm=algorithm)
    simulation = _with(simulation, setting=setting)
    simulation.step()
    data = simulation.federation
    last = rows.tables["evaluations"][-1]
    found = [
        loss for loss, scope in zip(last["loss"], last["scope"], strict=True) if scope == "client"
    ]
    download = algorithm.local.download(simulation.state.server)
    assert len(found) == 4
    for k in range(4):
        own = algorithm.local.start(download, simulation.state.clients.client_states.of([k])[k])
        where = data.test[k] if test == "client" else data.global_test
        loss = simulation.engine.evaluate(own, where)["loss"]
        labels = data.y[torch.from_numpy(where)].numpy()
        share = np.bincount(data.y[torch.from_numpy(data.train[k])].numpy(), minlength=2) / len(
            data.train[k]
        )
        wanted = (
            loss.mean()
            if test == "client"
            else sum(share[c] * loss[labels == c].mean() for c in range(2))
        )
        assert found[k] == pytest.approx(wanted, rel=1e-12)


def test_figures_by_class_mix_under_a_common_test_set() -> None:
    """sum_c P_k(c) accuracy_c, from the common test rows' hits and the clients' clean class
    shares."""
    rows = Rows()
    keys = {
        "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
        "split": {"test": "global"},
        "population": 8,
        "partition": {"name": "dirichlet", "alpha": 0.3},
        "label_noise": {"name": "symmetric", "rate": 0.5},
        "local": {"batch_size": 32},
        "dtype": "float32",
    }
    simulation = build(_experiment(**keys), writer=rows)
    simulation.step()
    data = simulation.federation
    last = rows.tables["evaluations"][-1]
    hit = simulation.engine.evaluate(simulation.state.server.model, data.global_test)["hit"]
    labels = data.y[torch.from_numpy(data.global_test)].numpy()
    of_class = np.array([hit[labels == c].mean() for c in range(10)])
    for k in range(8):
        share = np.bincount(data.y[torch.from_numpy(data.train[k])].numpy(), minlength=10) / len(
            data.train[k]
        )
        assert last["accuracy"][2 + k] == pytest.approx(share @ of_class, rel=1e-12)
    assert last["scope"][:2] == ["global", "mean"]
    assert simulation.state.scores.headline == last["accuracy"][0] == pytest.approx(hit.mean())


def test_stop_limits() -> None:
    stop = Stop(rounds=5, virtual_hours=1.0, uplink_gb=1.0)
    assert not stop.reached(4, 3599.0, 7.9e9)
    assert stop.reached(5, 0.0, 0.0)
    assert stop.reached(0, 3600.0, 0.0)
    assert stop.reached(0, 0.0, 8e9)


def test_targets_are_reached_from_the_side_of_their_metric() -> None:
    stop = {"rounds": 100, "target": {"accuracy": 0.9, "perplexity": 2.0, "loss": 0.1}}
    config = build(
        _experiment(task="synthetic", metrics=["accuracy", "perplexity"], stop=stop)
    ).config
    assert not config.reached(4, 0.0, 0.0, {}, {})
    assert not config.reached(4, 0.0, 0.0, {"accuracy": 0.89, "perplexity": 2.1, "loss": 0.11}, {})
    assert not config.reached(
        4,
        0.0,
        0.0,
        {"accuracy": float("nan"), "perplexity": float("nan"), "loss": float("nan")},
        {},
    )
    assert config.reached(4, 0.0, 0.0, {"accuracy": 0.9}, {})
    assert config.reached(4, 0.0, 0.0, {"perplexity": 2.0}, {})
    assert config.reached(4, 0.0, 0.0, {"loss": 0.1}, {})


def test_patience_counts_evaluations_since_the_best_on_validation_samples() -> None:
    """Accuracy .5 .6 .6 .5 .7 nan .7: equal is no better, and neither is NaN; loss falls."""
    keys = {"split": {"validation": 0.2}, "stop": {"patience": 2}, "evaluate": {"every": 1}}
    loop = build(_experiment(task="synthetic", **keys))
    examining, state, config = loop.examining, loop.state, loop.config
    nan = float("nan")
    waits, ends = [], []
    for number, accuracy in enumerate([0.5, 0.6, 0.6, 0.5, 0.7, nan, 0.7], 1):
        rows = {"scope": ["validation"], "accuracy": [accuracy], "loss": [1.0 / number]}
        held = Evaluation(rows, {"scope": [], "metric": [], "value": []}, {})
        examining._count_waits(state, held, "validation")
        waits.append(state.scores.waited["accuracy"])
        ends.append(config.reached(number, 0.0, 0.0, {}, state.scores.waited))
        assert state.scores.waited["loss"] == 0
    assert waits == [0, 0, 1, 2, 0, 1, 2]
    assert ends == [False, False, False, True, False, False, True]
    assert state.scores.validation_peaks["accuracy"] == 0.7
    assert state.scores.longest_waits == {"accuracy": 2, "loss": 0}


def test_the_untrained_model_reaches_no_target() -> None:
    """A loss under the target from the start: the run ends at the first evaluation after round 0,
    that of round 3, also when it was interrupted before."""
    experiment = _experiment(stop={"rounds": 9, "target": {"loss": 1e9}}, evaluate={"every": 3})
    loop = build(experiment)
    loop.step()
    assert not loop.done
    other = build(experiment)
    other.restore(loop.save())
    for each in (loop, other):
        while not each.done:
            each.step()
    assert (loop.state.version, other.state.version) == (3, 3)


def test_a_summary_tells_the_newest_score_also_after_a_resume() -> None:
    """Evaluated after round 3 alone: before it the score is the untrained model's."""
    experiment = _experiment(stop={"rounds": 4}, evaluate={"every": 3})
    loop = build(experiment)
    scores = []
    resumed = []
    for _ in range(4):
        other = build(experiment)
        if loop.state.begun:
            other.restore(loop.save())
        resumed.append(other.step().score)
        scores.append(loop.step().score)
    assert resumed == scores
    assert scores[0] == scores[1]
    assert len(set(scores)) == 3


def test_a_run_ends_at_the_first_limit() -> None:
    simulation = build(_experiment(stop={"rounds": 100, "virtual_hours": 10 / 3600}))
    while not simulation.done:
        last = simulation.step()
    assert (last.round, last.time_s) == (3, pytest.approx(3 * 3.51675, rel=1e-15))


def test_a_weighting_the_selector_cannot_serve_is_refused_when_built_not_in_round_one() -> None:
    with pytest.raises(ConfigError, match="weights: "):
        build(_experiment(weights="score"))


def test_learning_rates_follow_the_server_steps_not_the_calls_of_select() -> None:
    """A straight line from 1 to 0 over 6 server steps: who starts from version v has 1 - (v + 1) /
    6 of the rate .1."""
    task = {"name": "quadratic", "dim": 1000, "examples": [2, 4, 8, 3, 5]}
    local = {
        "batch_size": 1,
        "optimizer": {"name": "sgd", "lr": 0.1},
        "lr_schedule": {"name": "linear", "end": 0.0},
    }
    simulation = build(
        _experiment(task=task, cohort=2, population=5, local=local, stop={"rounds": 6})
    )
    simulation = _with(simulation, synchrony=Buffer())
    for _ in range(4):
        simulation.step()
        flights = simulation.state.clients.in_flight
        assert flights.columns["lr"] == pytest.approx(
            0.1 * (1 - (flights.timelines.version + 1) / 6)
        )
    assert simulation.state.draw_index > 4


@dataclasses.dataclass(frozen=True)
class Choosy(Mean):
    """A toy of what robust aggregators and control variates will refuse."""

    def refuses(self, algorithm: Algorithm, solver: SGD, weights: str) -> str | None:
        return (
            f"sizes can be forged; use weights = 'uniform', not {weights!r}"
            if weights != "uniform" or solver.momentum
            else None
        )


def test_a_part_refuses_the_weighting_or_solver_it_cannot_go_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("motley.algorithms.fedavg.Mean", Choosy)
    build(_experiment(weights="uniform"))
    with pytest.raises(
        ConfigError,
        match="aggregator: sizes can be forged; use weights = 'uniform', not 'examples'",
    ):
        build(_experiment())


@pytest.mark.parametrize("outcome", list(Outcome))
def test_every_outcome_has_a_word(outcome: Outcome) -> None:
    assert outcome.name.lower().isalpha()


def test_a_checkpoint_that_cannot_be_written_says_where(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(
        StoreError,
        match=r"cannot write the checkpoint of round 3 in .*taken: .*run again with --resume",
    ):
        Checkpoints(tmp_path / "taken").save(3, {}, {})


@dataclasses.dataclass(frozen=True)
class Everything(SelectionRule[int]):
    """A toy of joint methods: it sets steps, learning rates and coefficients, and its first round
    is a rehearsal."""

    def init(self) -> int:
        return 0

    def provides(self) -> frozenset[str]:
        return frozenset({"weights"})

    def select(self, state: int, ask: SelectionContext) -> Cohort:
        return Cohort(
            ask.available,
            weights=np.array([0.0, 0.25, 0.5]),
            local_steps=np.array([1, 2, 20]),
            lr_scale=np.array([1.0, 2.0, 1.0]),
            rehearsal=ask.draw == 1,
            notes={"round": float(ask.draw)},
        )

    def observe(self, state: int, draw: int, reports: Reports) -> int:
        return state + int((reports.outcome == Outcome.REHEARSED).sum())


def test_everything_a_cohort_can_say_is_done() -> None:
    """Round 1 is a rehearsal: trained, measured and billed, the model stays. In round 2 client k
    moves by (1 - (1 - lr_k)^steps_k)(m_k - x) with steps (1, 2, 20: also more than the 8 of the
    experiment) and rates (.1, .2, .1), and the server adds 0, .25 and .5 of that, undivided."""
    rows = Rows()
    simulation = build(_experiment(stop={"rounds": 2}), writer=rows)
    plan = dataclasses.replace(simulation.config, weights="selector")
    simulation = simulation_of(
        plan, simulation.engine, Selector(Everything()), simulation.state.server.model, rows
    )
    x = simulation.state.server.model.x.clone()
    data = simulation.federation
    simulation.step()
    assert torch.equal(simulation.state.server.model.x, x)
    assert simulation.state.selector.state == 3
    assert rows.tables["clients"][0]["outcome"] == ["rehearsed"] * 3
    assert rows.tables["rounds"][0]["up_bits"] == 3 * UP
    simulation.step()
    moved = torch.zeros_like(x)
    for k, (rate, steps, weight) in enumerate([(0.1, 1, 0.0), (0.2, 2, 0.25), (0.1, 20, 0.5)]):
        minimum = data.y[torch.from_numpy(data.train[k])][0]
        moved += weight * (1 - (1 - rate) ** steps) * (minimum - x)
    torch.testing.assert_close(simulation.state.server.model.x - x, moved, rtol=1e-12, atol=1e-14)
    assert rows.tables["rounds"][1]["notes"] == '{"round": 2.0}'
    assert rows.tables["clients"][1]["local_steps"].tolist() == [1, 2, 20]


@dataclasses.dataclass(frozen=True)
class AsksForLosses(SelectionRule[int]):
    """A toy that probes everybody."""

    def needs(self) -> SignalRequirements:
        return SignalRequirements(probed={"loss": 1})

    def init(self) -> int:
        return 0

    def candidates(self, state: int, ask: SelectionContext) -> Any:
        return ask.available

    def select(self, state: int, ask: SelectionContext) -> Cohort:
        return Cohort(ask.available)


def test_a_probed_vector_is_billed_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three clients each send a signal of 64 numbers: 3 x 64 x 32 bits."""
    rows = Rows()
    simulation = build(_experiment(), writer=rows)
    simulation.state.selector = Selector(AsksForLosses())
    monkeypatch.setattr(
        simulation.engine, "measure", lambda ids, *_, **__: {"loss": np.zeros((len(ids), 64))}
    )
    simulation.step()
    assert rows.tables["rounds"][0]["probe_up_bits"] == 3 * 64 * 32
