"""Probes and evaluations: the same numbers as a plain forward pass, whatever else is measured."""

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.parts import PersonalRule
from motley.core.errors import ContractError
from motley.core.keys import Key
from motley.engines.local import Sequential
from motley.tasks.task import ModelState

KEY = Key(0).fold("probe", 1)


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


def plain(setting, x: ModelState, client: int) -> float:
    """Mean loss of the client's noisy labels, from scratch."""
    model = setting.task.model().double().eval()
    nn.utils.vector_to_parameters(x.x.clone(), model.parameters())
    data = setting.task.federation
    mine = slice(int(data.train.offsets[client]), int(data.train.offsets[client + 1]))
    outputs = model(data.x[torch.from_numpy(data.train[client])].double())
    return nn.functional.cross_entropy(outputs, data.labels[mine]).item()


def test_a_full_probe_is_a_plain_evaluation_on_the_clients_own_labels(setting, download):
    s = setting(mlp)
    sent = download(s)
    engine = Sequential(s)
    clients = np.array([3, 0, 7])
    found = engine.measure(clients, sent, {}, {"loss": None}, KEY)["loss"]
    wanted = [
        plain(s, ModelState(sent["x"], sent["buffers"], sent["counters"]), k) for k in clients
    ]
    assert found == pytest.approx(wanted, rel=1e-12)


def test_a_probe_does_not_depend_on_who_else_is_asked(setting, download):
    s = setting(mlp)
    engine = Sequential(s)
    sent = download(s)
    together = engine.measure(np.arange(8), sent, {}, {"loss": 1}, KEY)["loss"]
    alone = [engine.measure(np.array([k]), sent, {}, {"loss": 1}, KEY)["loss"][0] for k in range(8)]
    assert together == pytest.approx(alone, rel=1e-12)
    assert engine.measure(np.arange(8), sent, {}, {"loss": 1}, KEY.fold(1))[
        "loss"
    ] != pytest.approx(together, rel=1e-6)


def test_batches_are_drawn_without_replacement(setting):
    engine = Sequential(setting(mlp))
    places, owner = engine.prober.draw_samples(engine.samples.training, np.array([2, 0, 1]), 2, KEY)
    assert np.bincount(owner).tolist() == [10, 7, 1]  # two batches of five, or all there are
    assert len(set(places.tolist())) == len(places)
    offsets = engine.samples.training.offsets
    assert all(offsets[2] <= p < offsets[3] for p in places[owner == 0])


def test_clients_with_memories_are_measured_on_their_own_model(setting, download):
    class Own(PersonalRule):
        starts_own = True

        def start(self, download, client_state):
            x = download["x"] if client_state is None else client_state["x"]
            return ModelState(x, download["buffers"], download["counters"])

    s = setting(mlp, local=Own())
    sent = download(s)
    mine = {4: {"x": sent["x"] * 2}}
    found = Sequential(s).measure(np.array([1, 4, 6]), sent, mine, {"loss": None}, KEY)["loss"]
    usual = Sequential(s).measure(np.array([1, 4, 6]), sent, {}, {"loss": None}, KEY)["loss"]
    assert found[[0, 2]] == pytest.approx(usual[[0, 2]], rel=1e-12)
    assert found[1] == pytest.approx(
        plain(s, ModelState(mine[4]["x"], sent["buffers"], sent["counters"]), 4), rel=1e-12
    )


def test_probing_and_evaluating_leave_training_alone(setting, jobs, download):
    s = setting(mlp)
    sent = download(s)
    work = jobs(s)
    quiet = list(Sequential(s).train(work, sent, {}))
    engine = Sequential(s)
    loud = []
    for trained in engine.train(work, sent, {}):
        loud.append(trained)
        engine.measure(np.arange(8), sent, {}, {"loss": None}, KEY)
        engine.evaluate(ModelState(sent["x"], sent["buffers"], sent["counters"]), np.arange(20))
    for a, b in zip(quiet, loud, strict=True):
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)
        assert torch.equal(a.parts["buffers"].value, b.parts["buffers"].value)


def test_evaluation_is_on_clean_labels(setting, download):
    s = setting(mlp)
    sent = download(s)
    rows = np.array([5, 2, 40])
    found = Sequential(s).evaluate(ModelState(sent["x"], sent["buffers"], sent["counters"]), rows)
    loss = found["loss"]
    hit = found["hit"]
    model = mlp().double().eval()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    outputs = model(s.task.federation.x[rows].double())
    wanted = nn.functional.cross_entropy(outputs, s.task.federation.y[rows], reduction="none")
    assert loss == pytest.approx(wanted.detach().numpy(), rel=1e-12)
    assert hit.tolist() == (outputs.argmax(1) == s.task.federation.y[rows]).double().tolist()


def test_nobody_and_nothing(setting, download):
    s = setting(mlp, sizes=(3, 0, 2))
    engine = Sequential(s)
    sent = download(s)
    assert len(engine.measure(np.zeros(0, np.int64), sent, {}, {"loss": None}, KEY)["loss"]) == 0
    assert np.isnan(engine.measure(np.array([1]), sent, {}, {"loss": 1}, KEY)["loss"][0])
    assert [
        len(v)
        for v in engine.evaluate(
            ModelState(sent["x"], sent["buffers"], sent["counters"]), np.zeros(0, int)
        ).values()
    ] == [
        0,
        0,
    ]


def test_unknown_signals_are_refused(setting, download):
    s = setting(mlp)
    with pytest.raises(
        ContractError, match="cannot measure sketch; a probe measures: grad_norm, gradient"
    ):
        Sequential(s).measure(np.arange(2), download(s), {}, {"sketch": 1}, KEY)
