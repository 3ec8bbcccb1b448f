"""Every engine does what the reference does, in float64, for clients among all sorts of
neighbours."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from motley.algorithms.apfl import Mixture
from motley.algorithms.ditto import OwnModel
from motley.algorithms.fedala import AdaptiveMixture
from motley.algorithms.fedbabu import FrozenHead
from motley.algorithms.fedper import PersonalHead
from motley.algorithms.fedprox import Proximal
from motley.algorithms.fedrep import HeadThenBase
from motley.algorithms.flash_robust import FlashRobust
from motley.algorithms.lg_fedavg import PersonalBase
from motley.algorithms.local_only import WholeModel
from motley.algorithms.local_optimisers import SGD, Adam, AdamW, Clip
from motley.algorithms.losses import CrossEntropy
from motley.algorithms.per_fedavg import AfterOneStep
from motley.algorithms.pfedme import MoreauEnvelope
from motley.engines.batched import Batched, Vmap
from motley.engines.engine import AdaptInputs
from motley.engines.local import Debug, Sequential, Threads
from motley.tasks.task import ModelState

from .conftest import TwoProcesses


def logistic():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 4))


def mlp():
    return nn.Sequential(
        nn.Linear(6, 9), nn.ReLU(), nn.Linear(9, 7, bias=False), nn.ReLU(), nn.Linear(7, 4)
    )


def tanh():
    return nn.Sequential(nn.Linear(6, 9), nn.Tanh(), nn.LayerNorm(9), nn.Linear(9, 4))


def conv():
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(12, 4)
    )


def normed():
    """Without a bias before the norm: its gradient is 0, and Adam steps along what rounding
    leaves."""
    return nn.Sequential(
        nn.Conv2d(1, 3, 3, bias=False), nn.BatchNorm2d(3), nn.ReLU(), nn.Flatten(), nn.Linear(48, 4)
    )


MODELS = {
    "logistic": (logistic, (6,)),
    "mlp": (mlp, (6,)),
    "tanh": (tanh, (6,)),
    "conv": (conv, (1, 6, 6)),
    "normed": (normed, (1, 6, 6)),
}
SOLVERS = {
    "plain": (SGD(lr=0.1), 0.0),
    "prox": (SGD(lr=0.1), 0.7),
    "momentum": (SGD(lr=0.1, momentum=0.9, weight_decay=0.01), 0.7),
    "clip": (SGD(lr=0.3, momentum=0.9, nesterov=True, clip=Clip(0.5)), 0.3),
    "adam": (Adam(lr=0.01, weight_decay=0.01, clip=Clip(0.5)), 0.7),
    "adamw": (AdamW(lr=0.01, weight_decay=0.3), 0.7),
    "clip_gradient": (SGD(lr=0.3, clip=Clip(0.2, "gradient")), 0.3),
}


ACCEPTS = {
    Batched: ("logistic", "mlp"),
    Vmap: ("logistic", "mlp", "tanh", "conv"),
    Threads: ("logistic", "mlp", "tanh", "conv", "normed"),
    TwoProcesses: ("logistic", "mlp", "tanh", "conv", "normed"),
}


@pytest.mark.parametrize("engine", ACCEPTS)
def test_who_accepts_what(setting, engine):
    accepted = [
        name
        for name, (factory, shape) in MODELS.items()
        if engine.refuses(setting(factory, shape)) is None
    ]
    assert tuple(accepted) == ACCEPTS[engine]


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize(
    ("engine", "model"), [(engine, model) for engine, models in ACCEPTS.items() for model in models]
)
def test_agrees_with_the_reference(setting, jobs, download, once, engine, model, solver):
    factory, shape = MODELS[model]
    sgd, mu = SOLVERS[solver]
    s = setting(factory, shape, solver=sgd, local=Proximal(mu), threads=2)
    sent = download(s)
    want = frozenset({"loss_rms", "update_norm"})
    work = jobs(s)
    reference = once(
        ("plain", model, solver), lambda: list(Sequential(s).train(work, sent, {}, want))
    )
    other = engine(s)
    for job, a, b in zip(work, reference, other.train(work, sent, {}, want), strict=True):
        assert a.client == b.client == job.client
        assert a.steps == b.steps
        assert a.parts.keys() == b.parts.keys()
        for name in a.parts:
            torch.testing.assert_close(
                b.parts[name].value, a.parts[name].value, rtol=1e-10, atol=1e-12
            )
        for name, value in a.signals.items():
            assert b.signals[name] == pytest.approx(value, rel=1e-10)
    other.close()


PHASED = [
    HeadThenBase(head_epochs=1),
    OwnModel(0.5),
    Mixture(adaptive=True),
    MoreauEnvelope(1.0, 0.1, 2),
    AdaptiveMixture(),
]


@pytest.mark.parametrize("engine", [Threads, TwoProcesses, Debug])
@pytest.mark.parametrize("correction", PHASED, ids=lambda value: type(value).__name__)
def test_phases_agree_with_the_reference(setting, jobs, download, once, engine, correction):
    """Uploads and what clients keep, with BatchNorm; the kept models are not those received."""
    s = setting(normed, (1, 6, 6), solver=SOLVERS["momentum"][0], local=correction, threads=2)
    sent = download(s)
    bound = s.algorithm.local
    work = jobs(s)
    whole = ModelState(**sent)
    sent = bound.download(s.algorithm.server.init(bound.sent(whole), 8))
    first = bound.initial_state(ModelState(whole.x + 0.1, whole.buffers + 0.1, whole.counters))
    states = {job.client: first for job in work}
    reference = once(("phases", correction), lambda: list(Sequential(s).train(work, sent, states)))
    other = engine(s)
    for a, b in zip(reference, other.train(work, sent, states), strict=True):
        for name in a.parts:
            torch.testing.assert_close(
                b.parts[name].value, a.parts[name].value, rtol=1e-10, atol=1e-12
            )
        for name, value in a.client_state.items():
            torch.testing.assert_close(b.client_state[name], value, rtol=1e-10, atol=1e-12)
    other.close()


BATCHED_PHASES = {
    "fedrep": HeadThenBase(head_epochs=2),
    "fedrep, part of an epoch": HeadThenBase(layers=2, head_epochs=1),
    "fedbabu": FrozenHead(),
    "ditto": OwnModel(0.5),
    "fedper": PersonalHead(layers=2),
    "lg_fedavg": PersonalBase(),
    "local_only": WholeModel(),
}


@pytest.mark.parametrize("solver", ["plain", "momentum", "adam"])
@pytest.mark.parametrize("correction", BATCHED_PHASES)
@pytest.mark.parametrize("engine", [Batched, Vmap])
def test_phases_of_many_clients_at_once_agree_with_the_reference(
    setting, jobs, download, once, engine, correction, solver
):
    """Clients that begin at models of their own and take unequal steps, fewer than a phase of whole
    epochs takes."""
    s = setting(mlp, solver=SOLVERS[solver][0], local=BATCHED_PHASES[correction], threads=2)
    whole = ModelState(**download(s))
    bound = s.algorithm.local
    work = jobs(s, cut=3)
    sent = bound.download(s.algorithm.server.init(bound.sent(whole), 8))
    states = {
        job.client: bound.initial_state(replace(whole, x=whole.x * (job.client + 2)))
        for job in work
    }
    want = frozenset({"loss_rms", "update_norm", "max_grad_norm"})
    reference = once(
        ("phases of many", correction, solver),
        lambda: list(Sequential(s).train(work, sent, states, want)),
    )
    other = engine(s)
    for a, b in zip(reference, other.train(work, sent, states, want), strict=True):
        assert (a.client, a.steps) == (b.client, b.steps)
        for name in a.parts:
            torch.testing.assert_close(
                b.parts[name].value, a.parts[name].value, rtol=1e-10, atol=1e-12
            )
        for name, value in a.client_state.items():
            torch.testing.assert_close(b.client_state[name], value, rtol=1e-10, atol=1e-12)
        for name, value in a.signals.items():
            assert b.signals[name] == pytest.approx(value, rel=1e-10)
    other.close()


@pytest.mark.parametrize("loss", [CrossEntropy(), FlashRobust()], ids=["cross_entropy", "prepares"])
@pytest.mark.parametrize("engine", [Batched, Vmap, Threads])
def test_fine_tuning_agrees_with_the_reference(setting, jobs, download, engine, loss):
    s = setting(mlp, solver=SOLVERS["momentum"][0], local=Proximal(0.5), loss=loss, threads=2)
    whole = ModelState(**download(s))
    work = jobs(s)
    begun = [AdaptInputs(replace(whole, x=whole.x * (job.client + 1))) for job in work]
    other = engine(s)
    for a, b in zip(Sequential(s).adapt(work, begun), other.adapt(work, begun), strict=True):
        torch.testing.assert_close(b.x, a.x, rtol=1e-10, atol=1e-12)
    other.close()


@pytest.mark.parametrize("engine", [Batched, Vmap])
@pytest.mark.parametrize(
    ("correction", "reason"),
    [
        (
            Mixture(),
            "local work under Mixture takes steps in directions of its own, which sequential and "
            "threads compute",
        ),
        (MoreauEnvelope(), "under MoreauEnvelope takes steps in directions of its own"),
        (AfterOneStep(), "under AfterOneStep takes steps in directions of its own"),
        (AdaptiveMixture(), "under AdaptiveMixture has phases that depend on one another"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_phases_that_cannot_be_batched_are_refused_by_name(setting, engine, correction, reason):
    assert reason in engine.refuses(setting(mlp, local=correction))
