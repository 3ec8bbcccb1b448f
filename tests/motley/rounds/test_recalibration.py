"""BatchNorm statistics made anew: a chain of clients, momentum .1, weights untouched, uploads
without statistics, all charged."""

import copy

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.engines.batches import BatchPlan
from motley.experiments.build import build
from motley.experiments.config import Experiment
from tests.rows import Rows

KEYS = {
    "task": {"name": "image", "data": "digits", "model": {"name": "digits_mlp", "norm": "batch"}},
    "population": 8,
    "cohort": 4,
    "stop": {"rounds": 3},
    "local": {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "dtype": "float64",
    "device": {"name": "constant", "seconds": 0.3},
    "network": {"name": "constant", "up_mbps": 1.0, "down_mbps": 2.0},
    "evaluate": {"every": 100, "per_client": False},
    "engine": "sequential",
}


def simulate(rows=None, **keys):
    return build(Experiment(**{**KEYS, **keys}), writer=rows)


def test_the_chain_by_plain_torch():
    """12 batches of 16: each client has some 180 samples, 144 to train on, 9 batches: 9 from the
    first sent out, 3 from the second. The same batches through a copy of the module with torch's
    own BatchNorm leave the same statistics."""
    rows = Rows()
    simulation = simulate(rows, recalibrate={"batches": 12})
    setting = simulation.setting
    before = simulation.state.server.model
    simulation.step()
    after = simulation.state.server.model
    clients = rows.tables["clients"][0]
    order = np.asarray(clients["client"])[np.argsort(clients["dispatch"])][:3]
    module = copy.deepcopy(setting.task.model()).double()
    state = module.state_dict()
    at = 0
    for name, parameter in module.named_parameters():
        state[name].copy_(after.x[at : at + parameter.numel()].view_as(parameter))
        at += parameter.numel()
    running = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    assert torch.equal(
        before.buffers, torch.cat([torch.cat([m.running_mean, m.running_var]) for m in running])
    )
    data = setting.task.federation
    left = 12
    module.train()
    for client in order.tolist():
        mine = data.train[client]
        count = min(left, -(-len(mine) // 16))
        key = setting.streams.key("server").fold("recalibrate", 1).fold(client)
        plan = BatchPlan.draw(key, len(mine), setting.work, count)
        with torch.no_grad():
            for i in range(count):
                module(data.x[torch.from_numpy(mine[plan[i]])].double())
        left -= count
    assert left == 0
    wanted = torch.cat([torch.cat([m.running_mean, m.running_var]) for m in running])
    assert torch.allclose(after.buffers, wanted, rtol=1e-12, atol=0)
    assert after.counters.tolist() == [12] * len(running)


def test_weights_of_a_round_do_not_depend_on_it_and_uploads_leave_statistics_out():
    plain = simulate()
    made = simulate(recalibrate={"batches": 5})
    plain.step(), made.step()
    assert torch.equal(plain.state.server.model.x, made.state.server.model.x)
    assert not torch.equal(plain.state.server.model.buffers, made.state.server.model.buffers)
    n = len(plain.state.server.model.buffers)
    counters = len(plain.state.server.model.counters)
    heads = 8 * (1 + 7 + 38 + 1 + 8 + 38)
    assert plain.channel.upload_bits - made.channel.upload_bits == heads + 32 * n + 64 * counters


def test_its_bits_and_its_seconds():
    """Two clients of one batch each (5 of 9 batches, then none left): with batches = 5, one client:
    model down at 2 Mb/s, 5 forward passes at a third of .3 s, statistics up at 1 Mb/s, after the
    round."""
    rows = Rows()
    simulation = simulate(rows, recalibrate={"batches": 5})
    alone = simulate()
    model = simulation.state.server.model
    down = 32 * (len(model.x) + len(model.buffers)) + 64 * len(model.counters)
    up = 32 * len(model.buffers) + 64 * len(model.counters)
    end = simulation.step().time_s
    ledger = simulation.state.ledger
    assert (ledger.total("recalibrate", "down"), ledger.total("recalibrate", "up")) == (down, up)
    sent = simulation.channel.upload_bits
    whole = alone.step().time_s - (alone.channel.upload_bits - sent) / 1e6
    assert end == pytest.approx(whole + down / 2e6 + 5 * 0.3 / 3 + up / 1e6, rel=1e-12)


def test_who_cannot_have_it():
    for keys, message in (
        (
            {"task": {"name": "image", "data": "digits", "model": "digits_mlp"}},
            "recalibrate: this model has no BatchNorm",
        ),
        (
            {"algorithm": "fedbn"},
            "recalibrate: 'fedbn' works with models that clients hold themselves",
        ),
        (
            {"synchrony": {"name": "buffered", "buffer": 2}},
            "recalibrate: statistics are made between two rounds",
        ),
        ({"recalibrate": {"batches": 0}}, "recalibrate.batches"),
    ):
        with pytest.raises(ConfigError, match=message):
            simulate(**{"recalibrate": {"batches": 5}, **keys})


def test_cumulative_statistics_by_plain_torch():
    """All batches of the chain weigh the same, and what was before is forgotten: torch's BatchNorm
    with momentum None."""
    rows = Rows()
    simulation = simulate(rows, recalibrate={"batches": 12, "cumulative": True}, stop={"rounds": 2})
    simulation.step()
    simulation.step()
    after = simulation.state.server.model
    setting = simulation.setting
    clients = rows.tables["clients"][1]
    order = np.asarray(clients["client"])[np.argsort(clients["dispatch"])][:3]
    key = setting.streams.key("server").fold("recalibrate", 2)
    module = plain(setting, after)
    passed = pass_batches(setting, module, order.tolist(), key, 12)
    assert passed == 12
    assert torch.allclose(after.buffers, statistics(module), rtol=1e-12, atol=1e-15)
    assert set(after.counters.tolist()) == {12}


def plain(setting, model):
    """Return a module with a model's weights, whose BatchNorm has fresh statistics and momentum
    None."""
    module = copy.deepcopy(setting.task.model()).double()
    torch.nn.utils.vector_to_parameters(model.x.clone(), module.parameters())
    for norm in module.modules():
        if isinstance(norm, torch.nn.BatchNorm1d):
            norm.momentum = None
            norm.reset_running_stats()
    return module.train()


def pass_batches(setting, module, clients, key, left):
    """Pass at most so many batches of these clients through a module; return how many it were."""
    data = setting.task.federation
    passed = 0
    for client in clients:
        mine = data.train[client]
        count = min(left - passed, int(setting.work.batches(len(mine))))
        plan = BatchPlan.draw(key.fold(client), len(mine), setting.work, count)
        with torch.no_grad():
            for i in range(count):
                module(data.x[torch.from_numpy(mine[plan[i]])].double())
        passed += count
    return passed


def statistics(module):
    norms = [m for m in module.modules() if isinstance(m, torch.nn.BatchNorm1d)]
    return torch.cat([torch.cat([m.running_mean, m.running_var]) for m in norms])


def test_static_statistics_are_collected_over_all_clients_before_an_examination():
    """Nothing is sent for them and no time passes; the whole model and each width have their
    own."""
    rows = Rows()
    capacity = {"name": "levels", "levels": [1.0, 0.5]}
    simulation = simulate(
        rows, algorithm="heterofl", capacity=capacity, stop={"rounds": 2}, evaluate={"every": 1}
    )
    for _ in range(2):
        simulation.step()
    server = simulation.state.server.model
    setting = simulation.setting
    assert server.counters.tolist() == [0] * len(server.counters)  # training has none
    key = setting.streams.key("server").fold("collect", 2)
    models = simulation.examining.models(simulation.state, simulation.state.server)
    for width in (1.0, 0.5):
        model = models.at(width)
        module = plain(setting, model)
        pass_batches(setting, module, range(8), key, 10_000)
        assert torch.allclose(model.buffers, statistics(module), rtol=1e-12, atol=1e-15)
    assert torch.equal(simulation.newcomer_model().buffers, models.at(1.0).buffers)
    seldom = simulate(algorithm="heterofl", capacity=capacity, stop={"rounds": 2})
    for _ in range(2):
        seldom.step()
    assert torch.equal(seldom.state.server.model.x, server.x)
    assert seldom.state.clients.now_s == simulation.state.clients.now_s
    assert seldom.state.ledger.total_bits == simulation.state.ledger.total_bits


def test_fewer_clients_and_batches_may_collect_static_statistics():
    asked = {"batches": 4, "clients": 2, "cumulative": True}
    simulation = simulate(algorithm="heterofl", recalibrate=asked, stop={"rounds": 1})
    simulation.step()
    model = simulation.newcomer_model()
    assert set(model.counters.tolist()) == {4}
    assert simulation.state.ledger.total(kind="recalibrate") == 0


def test_a_client_of_one_sample_changes_no_statistics():
    """One sample has no variance; four have."""
    x = np.random.default_rng(0).normal(size=(10, 3))
    data = motley.tasks.from_clients(
        [(x[:1], [0]), (x[1:5], [0, 1, 0, 1])], test=[(x, [0, 1] * 5)] * 2
    )
    task = motley.tasks.own_task(
        data, lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.Linear(3, 2))
    )
    keys = {"task": "own", "cohort": 2, "stop": {"rounds": 1}, "recalibrate": {"batches": 2}}
    simulation = build(keys, task=task)
    before = simulation.state.server.model
    key = simulation.setting.streams.key("server")
    alone = simulation.engine.recalibrate(before, 0, 1, key)
    assert torch.equal(alone.buffers, before.buffers)
    assert alone.counters.tolist() == [0]
    several = simulation.engine.recalibrate(before, 1, 1, key)
    assert not torch.equal(several.buffers, before.buffers)
    assert several.counters.tolist() == [1]


def test_batches_of_one_sample_are_refused():
    with pytest.raises(
        ConfigError, match=r"local.batch_size: got 1, and torch refuses .*; write at least 2"
    ):
        simulate(recalibrate={"batches": 3}, local={**KEYS["local"], "batch_size": 1})
