"""Every signal is the same number on every engine, and the number that can be worked out by
hand."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.fedprox import Proximal
from motley.algorithms.flash_robust import FlashRobust
from motley.algorithms.local_optimisers import SGD, Clip
from motley.algorithms.parts import PersonalRule
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.core.records import CONTRIBUTION, SIGNALS
from motley.core.server_signals import LAST_UPDATE
from motley.core.sketch import Sketch
from motley.core.work import LocalWork
from motley.engines.batched import Batched, Vmap
from motley.engines.batches import BatchPlan
from motley.engines.engine import MEASURED, PRE_TRAINING, REPORTED
from motley.engines.local import Debug, Sequential, Threads
from motley.rounds.upload_signals import SERVER_SIGNALS
from motley.tasks.task import ModelState

from .conftest import TwoProcesses
from .test_engines_agree import MODELS, SOLVERS

KEY = Key(0).fold("probe", 1)
ENGINES = (Debug, Threads, Batched, Vmap, TwoProcesses)


def with_held_out(s):
    """The setting with the last sample of every client of two or more moved into a validation part,
    labels still noisy; the same sample is its test part."""
    data = s.task.federation
    keep = np.ones(len(data.train.values), bool)
    keep[data.train.offsets[1:][data.train.sizes >= 2] - 1] = False
    owner = data.train.owner

    def part(chosen):
        sizes = np.bincount(owner[chosen], minlength=len(data))
        return Ragged(np.concatenate([[0], np.cumsum(sizes)]), data.train.values[chosen])

    at = torch.from_numpy(keep)
    data = dataclasses.replace(
        data,
        train=part(keep),
        labels=data.labels[at],
        validation=part(~keep),
        validation_labels=data.labels[~at],
        test=part(~keep),
    )
    return dataclasses.replace(s, task=dataclasses.replace(s.task, federation=data))


def test_the_tables_agree():
    """What engines and server say they make is what the table of signals says can be had."""
    learning = {name: s for name, s in SIGNALS.items() if s.kind in ("learning", "channel")}
    probed = {name for name, s in learning.items() if "probed" in s.when}
    assert probed == {*MEASURED, LAST_UPDATE}  # the last one by the server, before a choice
    assert LAST_UPDATE not in MEASURED
    assert {name for name, s in learning.items() if "reported" in s.when} == (
        REPORTED | SERVER_SIGNALS | {CONTRIBUTION}
    ) - {LAST_UPDATE}
    assert not REPORTED & SERVER_SIGNALS
    assert set(PRE_TRAINING.values()) <= set(MEASURED)


@pytest.mark.parametrize("loss", [None, FlashRobust()])
@pytest.mark.parametrize("batches", [1, None])
@pytest.mark.parametrize("signal", sorted(MEASURED))
@pytest.mark.parametrize("engine", ENGINES)
def test_probes_agree(setting, download, once, engine, signal, batches, loss):
    s = with_held_out(setting(MODELS["mlp"][0], loss=loss, threads=2))
    sent = download(s)
    who = np.array([3, 1, 0, 6])
    wanted = once(
        ("probe", signal, batches, loss),
        lambda: Sequential(s).measure(who, sent, {}, {signal: batches}, KEY)[signal],
    )
    other = engine(s)
    found = other.measure(who, sent, {}, {signal: batches}, KEY)[signal]
    assert found == pytest.approx(wanted, rel=1e-9, nan_ok=True)
    other.close()
    # client 1 has one sample, which trains
    assert np.isnan(wanted[1]).all() == (signal in ("val_loss", "test_loss"))
    assert np.isfinite(wanted[[0, 2, 3]]).all()


@pytest.mark.parametrize("loss", [None, FlashRobust()])
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("engine", ENGINES)
def test_reports_agree(setting, jobs, download, once, engine, solver, loss):
    sgd, mu = SOLVERS[solver]
    s = with_held_out(
        setting(MODELS["mlp"][0], solver=sgd, local=Proximal(mu), loss=loss, threads=2)
    )
    sent = download(s)
    reference = once(
        ("report", solver, loss), lambda: list(Sequential(s).train(jobs(s), sent, {}, REPORTED))
    )
    other = engine(s)
    for a, b in zip(reference, other.train(jobs(s), sent, {}, REPORTED), strict=True):
        assert a.signals.keys() == b.signals.keys() == REPORTED
        for name, value in a.signals.items():
            assert b.signals[name] == pytest.approx(value, rel=1e-9, nan_ok=True), name
        torch.testing.assert_close(
            b.parts["delta"].value, a.parts["delta"].value, rtol=1e-9, atol=1e-12
        )
    other.close()


@pytest.mark.parametrize("model", ["conv", "normed", "tanh"])
def test_reports_agree_on_other_models(setting, jobs, download, model):
    factory, shape = MODELS[model]
    s = setting(factory, shape, threads=2, loss=FlashRobust())
    sent = download(s)
    want = REPORTED - {"val_loss"}
    reference = list(Sequential(s).train(jobs(s), sent, {}, want))
    for engine in ENGINES:
        if engine.refuses(s) is None:
            for a, b in zip(reference, engine(s).train(jobs(s), sent, {}, want), strict=True):
                assert b.signals == pytest.approx(a.signals, rel=1e-9, nan_ok=True)


@pytest.mark.parametrize("engine", [Sequential, Threads, Batched, Vmap])
def test_wanting_signals_changes_nothing_that_is_learned(setting, jobs, download, engine):
    s = setting(MODELS["mlp"][0], threads=2)
    sent = download(s)
    quiet = engine(s).train(jobs(s), sent, {})
    loud = engine(s).train(jobs(s), sent, {}, REPORTED - {"val_loss"})
    for a, b in zip(quiet, loud, strict=True):
        assert set(a.signals) == {"loss"}
        torch.testing.assert_close(
            b.parts["delta"].value, a.parts["delta"].value, rtol=1e-12, atol=1e-14
        )


def plain_gradient(s, sent, client, loss=nn.functional.cross_entropy):
    """From scratch: the client's own labels, one backward pass."""
    model = s.task.model().double().eval()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    data = s.task.federation
    mine = slice(int(data.train.offsets[client]), int(data.train.offsets[client + 1]))
    loss(model(data.x[torch.from_numpy(data.train[client])].double()), data.labels[mine]).backward()
    return torch.cat([p.grad.flatten() for p in model.parameters()])


def test_a_full_gradient_is_that_of_a_plain_backward_pass(setting, download, monkeypatch):
    """Also where a client's samples go through in several chunks; its norm and its sketch belong to
    it."""
    monkeypatch.setattr("motley.engines.client.CHUNK", {False: 4, True: 4})
    monkeypatch.setattr("motley.engines.client.CHUNK_NUMBERS", 1)
    s = setting(MODELS["mlp"][0])
    sent = download(s)
    who = np.array([5, 2])
    engine = Sequential(s)
    found = engine.measure(
        who, sent, {}, {"gradient": None, "grad_norm": None, "gradient_sketch": None}, KEY
    )
    wanted = torch.stack([plain_gradient(s, sent, k) for k in who])
    assert found["gradient"] == pytest.approx(wanted.numpy(), rel=1e-9, abs=1e-12)
    assert found["grad_norm"] == pytest.approx(wanted.norm(dim=1).numpy(), rel=1e-9)
    sketch = Sketch.signal("gradient_sketch", s.streams, wanted.shape[1])
    assert found["gradient_sketch"] == pytest.approx(
        np.stack([sketch.of(g) for g in wanted]), rel=1e-9, abs=1e-12
    )


def test_a_very_small_model_takes_longer_passes_and_measures_the_same(
    setting, download, monkeypatch
):
    """As many samples as have 2^20 numbers, or meet 2^20 weights, to the power of two below."""
    s = setting(MODELS["mlp"][0])
    assert Sequential(s).client.chunk == 2 ** int(np.log2(2**20 // s.task.layout.size))
    rows = np.arange(len(s.task.federation.y))
    state = ModelState(**download(s))
    passes = []
    found = []
    for numbers, least in ((2**20, 1024), (1, 4)):
        monkeypatch.setattr("motley.engines.client.CHUNK", {False: least, True: least})
        monkeypatch.setattr("motley.engines.client.CHUNK_NUMBERS", numbers)
        engine = Sequential(s)
        passes.append(engine.client.chunk)
        found.append(engine.evaluate(state, rows, want=frozenset({"hit", "loss"})))
    assert passes[0] > len(rows) > passes[1] == 4
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-12)
    assert found[0]["hit"].tolist() == found[1]["hit"].tolist()


def test_a_gradient_does_not_depend_on_who_else_is_asked_nor_on_what_else(setting, download):
    s = setting(MODELS["mlp"][0])
    engine = Sequential(s)
    sent = download(s)
    together = engine.measure(
        np.arange(8), sent, {}, {"gradient": 1, "loss": 2, "grad_norm": None}, KEY
    )["gradient"]
    alone = [
        engine.measure(np.array([k]), sent, {}, {"gradient": 1}, KEY)["gradient"][0]
        for k in range(8)
    ]
    assert together == pytest.approx(np.array(alone), rel=1e-12, abs=1e-15)


def test_the_largest_gradient_is_that_of_the_data_before_correction_and_clipping(
    setting, jobs, download
):
    """One step on one batch of all samples: the gradient met is the probed one, whatever FedProx
    adds and clipping takes."""
    for solver in (
        SGD(lr=0.1),
        SGD(lr=0.1, clip=Clip(1e-3)),
        SGD(lr=0.1, weight_decay=3.0),
        SGD(lr=0.1, momentum=0.9),
    ):
        s = setting(
            MODELS["mlp"][0],
            solver=solver,
            local=Proximal(5.0),
            work=LocalWork(batch_size=50, steps=1),
        )
        sent = download(s)
        norms = Sequential(s).measure(np.arange(8), sent, {}, {"grad_norm": None}, KEY)["grad_norm"]
        for engine in (Sequential, Batched, Vmap):
            for trained in engine(s).train(jobs(s), sent, {}, frozenset({"max_grad_norm"})):
                assert trained.signals["max_grad_norm"] == pytest.approx(
                    norms[trained.client], rel=1e-9
                )


def test_the_largest_gradient_is_the_largest(setting, jobs, download):
    """Fewer steps of the same batches can only meet a smaller one."""
    s = setting(MODELS["mlp"][0])
    sent = download(s)
    cut = [
        t.signals["max_grad_norm"]
        for t in Batched(s).train(jobs(s, cut=2), sent, {}, frozenset({"max_grad_norm"}))
    ]
    all_ = [
        t.signals["max_grad_norm"]
        for t in Batched(s).train(jobs(s), sent, {}, frozenset({"max_grad_norm"}))
    ]
    # other neighbours, other rounding
    assert all(a <= b * (1 + 1e-12) for a, b in zip(cut, all_, strict=True))
    assert any(a < b for a, b in zip(cut, all_, strict=True))


def test_without_a_step_no_gradient_is_met(setting, jobs, download):
    s = setting(MODELS["mlp"][0], sizes=(3, 0, 2))
    sent = download(s)
    for engine in (Sequential, Batched):
        met = [
            t.signals
            for t in engine(s).train(
                jobs(s, clients=(0, 1, 2)), sent, {}, frozenset({"max_grad_norm", "arrival_loss"})
            )
        ]
        assert [np.isnan(m["max_grad_norm"]) for m in met] == [False, True, False]
        assert [np.isnan(m["arrival_loss"]) for m in met] == [False, True, False]


def test_the_validation_loss_is_of_held_out_samples_and_noisy_labels(setting, download):
    """Plain cross-entropy, also where the algorithm minimizes something else."""
    s = with_held_out(setting(MODELS["mlp"][0], loss=FlashRobust()))
    sent = download(s)
    data = s.task.federation
    found = Sequential(s).measure(np.arange(8), sent, {}, {"val_loss": None}, KEY)["val_loss"]
    model = s.task.model().double().eval()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    with torch.no_grad():
        each = nn.functional.cross_entropy(
            model(data.x[torch.from_numpy(data.validation.values)].double()),
            data.validation_labels,
            reduction="none",
        )
    assert found[data.validation.sizes == 1] == pytest.approx(each.numpy(), rel=1e-9)
    assert np.isnan(found[data.validation.sizes == 0]).all()


def test_the_test_loss_is_of_the_clients_own_test_samples_and_clean_labels(setting, download):
    s = with_held_out(setting(MODELS["mlp"][0], loss=FlashRobust()))
    sent = download(s)
    data = s.task.federation
    found = Sequential(s).measure(np.arange(8), sent, {}, {"test_loss": None}, KEY)["test_loss"]
    model = s.task.model().double().eval()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    rows = torch.from_numpy(data.test.values)
    with torch.no_grad():
        each = nn.functional.cross_entropy(
            model(data.x[rows].double()), data.y[rows], reduction="none"
        )
    assert (data.y[rows] != data.validation_labels).any()
    assert found[data.test.sizes == 1] == pytest.approx(each.numpy(), rel=1e-9)
    assert np.isnan(found[data.test.sizes == 0]).all()


def test_the_robust_loss_is_the_experiments_own_where_that_is_robust(setting, download):
    """Else it has the default weights. With z the model's own softmax, CE(z) is its entropy."""
    sent = download(setting(MODELS["mlp"][0]))
    model = MODELS["mlp"][0]().double()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    for loss, alpha, beta in ((None, 0.1, 4.0), (FlashRobust(1.0, 8.0), 1.0, 8.0)):
        s = setting(MODELS["mlp"][0], loss=loss)
        found = Sequential(s).measure(np.array([0]), sent, {}, {"robust_loss": None}, KEY)[
            "robust_loss"
        ][0]
        data = s.task.federation
        with torch.no_grad():
            p = model(data.x[torch.from_numpy(data.train[0])].double()).softmax(1)
        own = p.gather(1, data.labels[: len(p)].unsqueeze(1)).squeeze(1)
        entropy = -(p * p.log()).sum(1)
        wanted = (-own.log() + alpha * entropy + beta * 4 * (1 - own)).mean()
        assert found == pytest.approx(wanted.item(), rel=1e-9)


def test_arrival_is_before_training_and_on_the_clients_own_model(setting, jobs, download):
    class Own(PersonalRule):
        starts_own = True

        def start(self, download, client_state):
            x = download["x"] if client_state is None else client_state["x"]
            return ModelState(x, download["buffers"], download["counters"])

    s = setting(MODELS["mlp"][0], local=Own())
    sent = download(s)
    mine = {4: {"x": sent["x"] * 2}}
    wanted = Sequential(s).measure(np.arange(8), sent, mine, {"loss": None}, KEY)["loss"]
    for engine in (Sequential, Batched):
        for trained in engine(s).train(jobs(s), sent, mine, frozenset({"arrival_loss"})):
            assert trained.signals["arrival_loss"] == pytest.approx(
                wanted[trained.client], rel=1e-9
            )


def test_pseudo_labels_stay_those_of_the_received_model(setting, jobs, download):
    """Step by step by hand: z is fixed before step 0, and belongs to the sample wherever the batch
    plan puts it."""
    s = setting(MODELS["logistic"][0], solver=SGD(lr=0.3), loss=FlashRobust(2.0, 1.0))
    sent = download(s)
    job = next(job for job in jobs(s) if job.client == 3)
    data = s.task.federation
    model = s.task.model().double()
    nn.utils.vector_to_parameters(sent["x"].clone(), model.parameters())
    mine = slice(int(data.train.offsets[3]), int(data.train.offsets[4]))
    inputs = data.x[torch.from_numpy(data.train[3])].double()
    labels = data.labels[mine]
    with torch.no_grad():
        z = model(inputs).softmax(1)
    plan = BatchPlan.draw(s.key("batches", job), 12, s.work, job.steps)
    for step in range(len(plan)):
        some = torch.from_numpy(plan[step])
        p = model(inputs[some]).softmax(1)
        own = p.gather(1, labels[some].unsqueeze(1)).squeeze(1)
        loss = (-own.log() - 2.0 * (z[some] * p.log()).sum(1) + 4.0 * (1 - own)).mean()
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for w, g in zip(model.parameters(), slopes, strict=True):
                w -= 0.3 * g
    wanted = nn.utils.parameters_to_vector(model.parameters()).detach() - sent["x"]
    for engine in (Sequential, Batched, Vmap):
        for trained in engine(s).train(jobs(s), sent, {}):
            if trained.client == 3:
                torch.testing.assert_close(
                    trained.parts["delta"].value, wanted, rtol=1e-9, atol=1e-12
                )


def test_clients_without_samples_prepare_nothing(setting, jobs, download):
    s = setting(MODELS["mlp"][0], sizes=(3, 0, 2), loss=FlashRobust())
    sent = download(s)
    for engine in (Sequential, Threads, Batched, Vmap):
        trained = list(engine(s).train(jobs(s, clients=(0, 1, 2)), sent, {}, REPORTED))
        assert [t.steps for t in trained] == [2, 0, 2]
        assert [t.finite for t in trained] == [True] * 3
        assert not trained[1].parts["delta"].value.any()


@pytest.mark.parametrize("engine", [Threads, Batched])
def test_windows_keep_signals_with_their_clients(setting, jobs, download, monkeypatch, engine):
    """Two windows of four clients: what is measured on arrival, prepared and met stays in the order
    of the jobs."""
    s = with_held_out(setting(MODELS["mlp"][0], loss=FlashRobust(), threads=2))
    sent = download(s)
    whole = [t.signals for t in Sequential(s).train(jobs(s), sent, {}, REPORTED)]
    monkeypatch.setattr("motley.engines.local.WINDOW_WEIGHTS", 1)
    for a, b in zip(whole, engine(s).train(jobs(s), sent, {}, REPORTED), strict=True):
        assert b.signals == pytest.approx(a, rel=1e-9, nan_ok=True)
