"""FedBN: who keeps what, what travels and is billed, on which model a client is examined; found by
type, not by name.

Worked numbers: docs/methods/algorithms.md#fedbn.
"""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.fedbn import FedBN, PersonalBatchNorm
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import Algorithm, LocalRule
from motley.core import codec
from motley.core.errors import ConfigError
from motley.core.ragged import Ragged
from motley.engines.engine import Job
from motley.experiments.build import build
from motley.tasks.flat import FlatModule, initial, layout_of
from motley.tasks.task import Federation, Task
from motley.testing.algorithms import COHORTS, SIZES, Play
from tests.rows import Rows

NORMED = "an MLP with BatchNorm"  # Linear(6, 5), BatchNorm(5), ReLU, Linear(5, 4)
OWN = slice(35, 45)  # where its scale and offset lie among 69 parameters


def _played(rounds: int = 2) -> Play:
    play = Play(FedBN(), "examples", SGD(lr=0.1), NORMED)
    for number in range(rounds):
        play.round(number, COHORTS[number])
    return play


def _starts(play: Play) -> list[torch.Tensor]:
    rule = play.algorithm.local
    download = rule.download(play.server)
    return [rule.start(download, play.client_states.get(k, play.first)) for k in range(len(SIZES))]


def test_batch_norm_is_own_and_the_rest_is_common() -> None:
    """After a round of clients 0, 2 and 5 they differ in BatchNorm, and all eight agree in
    everything else."""
    starts = _starts(_played(1))
    # three of their own, and the initial one
    assert len({tuple(start.x[OWN].tolist()) for start in starts}) == 4
    assert len({tuple(start.buffers.tolist()) for start in starts}) == 4
    for start in starts[1:]:
        assert torch.equal(start.x[:35], starts[0].x[:35])
        assert torch.equal(start.x[45:], starts[0].x[45:])
    assert [int(start.counters) > 0 for start in starts] == [k in COHORTS[0] for k in range(8)]


def test_the_server_averages_what_it_is_sent() -> None:
    """One round against the clients' models trained alone: weights 7, 13 and 11 of 31 for all but
    BatchNorm."""
    play = _played(0)
    before = play.server.model.x.clone()
    done = play.round(0, COHORTS[0])
    wanted = before + sum(SIZES[t.client] / 31 * t.parts["delta"].value for t in done)
    torch.testing.assert_close(play.server.model.x, wanted, rtol=1e-13, atol=1e-15)
    assert play.server.model.x.numel() == 59
    assert play.server.model.buffers.numel() == play.server.model.counters.numel() == 0
    assert {name: part.value.numel() for name, part in done[0].parts.items()} == {
        "delta": 59,
        "buffers": 0,
        "counters": 0,
    }


@pytest.mark.parametrize(("j", "takes_part"), [(5, False), (1, True)])
def test_what_a_client_keeps_reaches_nobody(j: int, takes_part: bool) -> None:
    """Client j's BatchNorm is changed between rounds 1 and 2 (cohort 1, 2, 7). Who is not there
    changes nothing anywhere; who is changes nobody else's BatchNorm in that round."""
    plain = _played(1)
    changed = _played(1)
    changed.client_states[j] = {
        name: value + 1 for name, value in changed.client_states.get(j, changed.first).items()
    }
    for play in (plain, changed):
        play.round(1, COHORTS[1])
    for k in plain.client_states.keys() - {j}:
        assert all(
            torch.equal(changed.client_states[k][name], value)
            for name, value in plain.client_states[k].items()
        )
    assert torch.equal(changed.server.model.x, plain.server.model.x) is not takes_part


def test_shortcuts_are_found_by_type_and_other_normalisations_stay() -> None:
    module = nn.Sequential()
    module.add_module("downsample", nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2)))
    module.add_module("bn_free", nn.Sequential(nn.GroupNorm(1, 2), nn.LayerNorm(3)))
    layout = layout_of(module)
    assert [entry.name for entry in layout if entry.batch_norm] == [
        "downsample.1.weight",
        "downsample.1.bias",
    ]
    assert [entry.name for entry in layout.buffers] == [
        "downsample.1.running_mean",
        "downsample.1.running_var",
    ]
    assert all(entry.batch_norm for entry in (*layout.buffers, *layout.counters))
    state = FlatModule(module, torch.float64).state()
    own = PersonalBatchNorm(layout).initial_state(state)
    rule = PersonalBatchNorm(layout)
    assert {name: value.numel() for name, value in own.items()} == {
        "x": 4,
        "buffers": 4,
        "counters": 1,
    }
    back = rule.start(vars(rule.sent(state)), own)
    assert torch.equal(back.x, state.x)
    assert torch.equal(back.buffers, state.buffers)


def test_without_batch_norm_it_is_plain_training() -> None:
    assert type(Play(FedBN(), "examples", SGD(lr=0.1)).algorithm.local) is LocalRule


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


def task(common: bool) -> Task:
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.normal(size=(120, 6))).float()
    y = torch.from_numpy(rng.integers(0, 4, 120))
    train = Ragged(np.array([0, 20, 50, 90]), np.arange(90))
    empty = Ragged(np.zeros(4, np.int64), np.zeros(0, np.int64))
    held = Ragged(np.array([0, 10, 20, 30]), np.arange(90, 120))
    test, everybody = (empty, np.arange(90, 120)) if common else (held, None)
    return Task("own", Federation(x, y, train, y[:90].clone(), empty, test, everybody, 4), normed)


def simulate(common: bool = False, rows: object = None, **keys: object):
    base = {
        "task": "own",
        "cohort": 2,
        "stop": {"rounds": 3},
        "local": {"batch_size": 8, "optimizer": {"lr": 0.1}},
        "dtype": "float64",
        "algorithm": "fedbn",
        "evaluate": {"every": 1},
        "engine": {"name": "threads", "threads": 2},
    }
    return build({**base, **keys}, writer=rows, task=task(common))


@pytest.mark.parametrize("common", [False, True])
def test_clients_are_examined_with_their_own_and_nobody_else(common: bool) -> None:
    rows = Rows()
    simulation = simulate(common, rows)
    simulation.step()
    found = rows.tables["evaluations"][-1]
    data = simulation.federation
    assert found["scope"] == ["mean", "client", "client", "client"]
    rule = simulation.algorithm.local
    download = rule.download(simulation.state.server)
    for k in range(3):
        own = rule.start(
            download,
            dict(simulation.state.clients.client_states).get(
                k, rule.initial_state(_initial(simulation))
            ),
        )
        measured = simulation.engine.evaluate(own, data.global_test if common else data.test[k])
        loss = measured["loss"]
        hit = measured["hit"]
        if not common:
            assert found["accuracy"][1 + k] == pytest.approx(hit.mean())
            assert found["loss"][1 + k] == pytest.approx(loss.mean())
    assert simulation.state.scores.headline == pytest.approx(np.mean(found["accuracy"][1:]))


def _initial(simulation):
    return initial(normed, simulation.setting.streams.key("init"), torch.float64)


def test_batch_norm_is_not_billed() -> None:
    """59 of 69 parameters, no statistics, no counter: 59 x 32 bits each way and client; FedAvg 69 +
    10 values and 64 bits. An upload has heads: 23 bytes of the message, and 39 and its name of
    every part."""
    rows = Rows()
    simulate(rows=rows).step()
    simulate(rows=rows, algorithm="fedavg").step()
    bits = [
        (row["down_bits"], row["up_bits"], row["up_paper_bits"]) for row in rows.tables["rounds"]
    ]
    one = 8 * (23 + 39 + 5)
    three = 8 * (23 + 3 * 39 + len("delta" + "buffers" + "counters"))
    own = 59 * 32
    all_ = 79 * 32 + 64
    assert bits == [
        (2 * own, 2 * (own + one), 2 * own),
        (2 * all_, 2 * (all_ + three), 2 * 69 * 32),
    ]


def test_a_run_goes_on_where_it_was() -> None:
    whole = simulate()
    first = simulate()
    second = simulate()
    whole.step(), first.step()
    second.restore(codec.decode(codec.encode(copy.deepcopy(first.save()))))
    for _ in range(2):
        whole.step(), second.step()
    assert torch.equal(whole.state.server.model.x, second.state.server.model.x)
    for k, client_state in dict(whole.state.clients.client_states).items():
        assert all(
            torch.equal(second.state.clients.client_states[k][name], value)
            for name, value in client_state.items()
        )


def test_signals_of_uploads_are_of_the_whole_model() -> None:
    """The last linear layer lies behind BatchNorm: its slice is one of the full vector."""
    simulation = simulate()
    rule = simulation.algorithm.local
    parts = {"delta": next(iter(simulation.engine.train(*_one_job(simulation)))).parts["delta"]}
    update = rule.update(parts)
    assert update.numel() == 69
    assert not update[OWN].any()
    assert torch.equal(update[45:], parts["delta"].value[35:])
    assert torch.equal(simulation.newcomer_model().x, _initial(simulation).x)


def _one_job(simulation):
    download = simulation.algorithm.local.download(simulation.state.server)
    return (
        [Job(0, 0, 3, 0.1)],
        download,
        {0: simulation.algorithm.local.initial_state(_initial(simulation))},
    )


@pytest.mark.parametrize("server", ["momentum", "adam", "yogi"])
def test_other_server_rules_step_on_what_is_sent(server: str) -> None:
    simulation = simulate(server=server)
    simulation.step()
    assert simulation.state.server.extra
    assert all(value.shape == (59,) for value in simulation.state.server.extra.values())


@pytest.mark.parametrize("synchrony", [{"name": "buffered", "buffer": 2}, {"name": "asynchronous"}])
def test_late_updates_are_scaled_or_mixed_without_batch_norm(synchrony: dict) -> None:
    device = {"name": "uniform", "low": 0.1, "high": 1.0}
    simulation = simulate(synchrony=synchrony, weights="uniform", device=device)
    for _ in range(3):
        simulation.step()
    assert simulation.state.server.model.x.numel() == 59
    assert simulation.state.server.model.x.isfinite().all()


def test_rules_that_need_whole_models_are_refused() -> None:
    plain = simulate(algorithm="fedavg").algorithm

    class Whole(type(plain.server)):
        needs = frozenset({"public"})

    algorithm = Algorithm(plain.loss, PersonalBatchNorm(), plain.aggregator, Whole())
    assert (
        "clients keep layers of their own, and the server rule Whole works with whole models"
        in PersonalBatchNorm().refuses(algorithm, SGD(lr=0.1), "examples")
    )
    with pytest.raises(ConfigError, match=r"algorithm\.size: 'fedbn' has no such option"):
        simulate(algorithm={"name": "fedbn", "size": 1})
