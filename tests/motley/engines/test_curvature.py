"""The curvature that engines measure at a client's final model: the right diagonal, the same on
every engine, and no trace of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call

from motley.algorithms.fednova import NormalisedUpdate
from motley.algorithms.fedprox import Proximal
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import LocalRule
from motley.algorithms.scaffold import ControlVariates
from motley.core.work import LocalWork
from motley.engines.batched import Batched, Vmap
from motley.engines.client import Client
from motley.engines.engine import JobInputs, Setting, TrainResult
from motley.engines.local import Sequential, Threads
from motley.experiments.build import build
from motley.rounds.loop import RoundLoop
from motley.tasks.nn import Dropout
from motley.tasks.task import Task
from tests.motley.rounds.going_on import going_on

from .conftest import TwoProcesses

ALL = LocalWork(batch_size=50, epochs=1)
"""Every batch is all of a client's samples, so that every probe is of the same Hessian."""


def net() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 3), nn.Tanh(), nn.Linear(3, 4))


def normed() -> nn.Module:
    return nn.Sequential(
        nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), Dropout(0.9), nn.Linear(5, 4)
    )


class Attends(nn.Module):
    """Torch's fused attention on CPUs, which has no second derivative."""

    def forward(self, x: Tensor) -> Tensor:
        x = x[:, None, :, None].repeat(1, 1, 1, 8)
        return nn.functional.scaled_dot_product_attention(x, x, x)[:, 0, :, 0]


def attends() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 3), nn.Tanh(), Attends(), nn.Linear(3, 4))


Measured = tuple[Client, Callable[[int], dict[str, Tensor]], TrainResult, Tensor]


@pytest.fixture
def measured(setting: Any, jobs: Any, download: Any) -> Callable[..., Measured]:
    """A client trained for two steps, its curvature in the n-th of many probes, and its final
    model."""

    def make(
        model: Callable[[], nn.Module],
        client: int = 2,
        layers: tuple[str, ...] = ("0", "2"),
        **keys: Any,
    ) -> Measured:
        s: Setting = setting(model, work=ALL, **keys)
        engine = Sequential(s)
        received = JobInputs(
            _with_c(download(s), s), {client: s.algorithm.local.initial_state(_first(s))}
        )
        job = dataclasses.replace(jobs(s, (client,))[0], steps=2, layers=layers)
        (trained,) = engine.train([job], received.download, received.client_states, frozenset())
        start = received.download["x"]
        final = start + s.algorithm.local.update(trained.parts)

        def probe(n: int) -> dict[str, Tensor]:
            return dict(
                engine.client.curvature(
                    dataclasses.replace(job, dispatch=1000 + n), received, trained
                )
            )

        return engine.client, probe, trained, final

    return make


def _first(setting: Setting) -> Any:
    return Sequential(setting).client.model.state()


def _with_c(download: dict[str, Tensor], setting: Setting) -> dict[str, Tensor]:
    return {**download, "c": torch.full_like(download["x"], 0.01)}


def _exact(client: Client, setting: Setting, number: int, final: Tensor) -> Tensor:
    """The diagonal of the mean loss over all of a client's samples at its final model, by torch's
    exact Hessian."""
    federation = setting.task.federation
    module = client.model.module
    rows = torch.from_numpy(federation.train[number])
    places = slice(int(federation.train.offsets[number]), int(federation.train.offsets[number + 1]))
    x = federation.x[rows].double()
    y = federation.labels[places]

    def loss(flat: Tensor) -> Tensor:
        values = {entry.name: flat[entry.slice].view(entry.shape) for entry in client.model.layout}
        return nn.functional.cross_entropy(functional_call(module, values, (x,)), y)

    return torch.autograd.functional.hessian(loss, final.clone()).diagonal()


CORRECTIONS = {
    "plain": LocalRule(),
    "prox": Proximal(0.7),
    "nova": NormalisedUpdate(0.0),
    "scaffold": ControlVariates(),
}


@pytest.mark.parametrize("correction", CORRECTIONS)
def test_the_mean_over_probes_is_the_exact_diagonal_at_the_final_model(
    measured: Any, correction: str
) -> None:
    """300 probes: their mean lies within five standard errors of each entry; FedProx adds its mu.
    Not that of the received model."""
    client, probe, trained, final = measured(net, local=CORRECTIONS[correction], solver=SGD(lr=1.0))
    setting = client.setting
    probes = [probe(n) for n in range(300)]
    found = torch.stack([torch.cat([one["0"], one["2"]]) for one in probes])
    exact = _exact(client, setting, 2, final) + (0.7 if correction == "prox" else 0.0)
    error = found.std(0) / 300**0.5 + 1e-12
    assert ((found.mean(0) - exact).abs() <= 5 * error).all()
    start = final - setting.algorithm.local.update(trained.parts)
    before = _exact(client, setting, 2, start)
    assert ((found.mean(0) - before).abs() > 5 * error).any()


def test_one_layer_alone(measured: Any) -> None:
    """Only the layers that were asked for, and the same expectation with a lower variance."""
    client, probe, _, final = measured(net, layers=("2",))
    found = torch.stack([probe(n)["2"] for n in range(200)])
    assert probe(0).keys() == {"2"}
    exact = _exact(client, client.setting, 2, final)[-16:]
    assert ((found.mean(0) - exact).abs() <= 5 * found.std(0) / 200**0.5 + 1e-12).all()


def test_a_probe_of_the_whole_model_gives_the_layers_asked_for(measured: Any) -> None:
    """Those numbers of a probe of both layers, to the bit, which are not the ones of a probe of the
    layer alone."""
    _, both, *_ = measured(net)
    _, whole, *_ = measured(net, layers=("2",), probes_model=True)
    _, alone, *_ = measured(net, layers=("2",))
    assert whole(0).keys() == {"2"}
    assert torch.equal(whole(0)["2"], both(0)["2"])
    assert not torch.allclose(whole(0)["2"], alone(0)["2"])


def test_a_proximal_term_adds_mu_to_every_entry_of_every_probe(measured: Any) -> None:
    """At a vanishing rate both clients stay where they were, so their probes differ by mu alone."""
    _, plain, *_ = measured(net, local=LocalRule(), solver=SGD(lr=1e-30))
    _, pulled, *_ = measured(net, local=Proximal(0.7), solver=SGD(lr=1e-30))
    for n in range(3):
        for layer in ("0", "2"):
            torch.testing.assert_close(
                pulled(n)[layer], plain(n)[layer] + 0.7, rtol=0.0, atol=1e-15
            )


@pytest.mark.parametrize(("mu", "expected"), [(0.0, [2.0, 8.0]), (0.5, [2.5, 8.5])])
def test_parabolas_are_exact_in_every_probe(mu: float, expected: list[float]) -> None:
    """a_k / 2 |w - m|^2 has the diagonal a_k, and a_k + mu under FedProx; roots of 2 and 8 square
    to them but for rounding."""
    task = {"name": "quadratic", "dim": 5, "curvatures": [2.0, 8.0], "examples": [3, 1]}
    simulation = _run(
        None,
        task=task,
        population=2,
        cohort=2,
        partition="by_writer",
        selector="uniform",
        weights="uniform",
        allocator="uniform",
        algorithm={"name": "fedprox", "mu": mu},
        local={"steps": 2, "batch_size": 2},
    )
    found = {}
    train = simulation.engine.train

    def spied(*args: Any) -> Any:
        for done in train(*args):
            found[done.client] = done.curvature
            yield done

    simulation.engine.train = spied  # type: ignore[method-assign]
    simulation.step()
    for client, value in enumerate(expected):
        (diagonal,) = found[client].values()
        torch.testing.assert_close(
            diagonal, torch.full((5,), value, dtype=torch.float64), rtol=1e-14, atol=0.0
        )


# ------------------------------------------------------------------------------------- no trace


@pytest.mark.parametrize("engine", [Sequential, Threads])
def test_being_measured_changes_nothing_else(
    setting: Any, jobs: Any, download: Any, engine: Any
) -> None:
    """Uploads (with BatchNorm buffers and counters), signals and the next client's are to the bit
    what they are without; nothing is drawn from the generators that everybody shares. A client with
    one sample is measured too."""
    s = setting(normed, threads=2)
    plain = jobs(s)
    asked = [dataclasses.replace(job, layers=("0", "1", "4")) for job in plain]
    sent = download(s)
    one = list(engine(s).train(plain, sent, {}, frozenset({"update_norm"})))
    before = torch.get_rng_state()
    kept = sent["buffers"].clone()
    legacy = np.random.get_state()[1].copy()  # noqa: NPY002
    two = list(engine(s).train(asked, sent, {}, frozenset({"update_norm"})))
    assert torch.equal(torch.get_rng_state(), before)
    assert (np.random.get_state()[1] == legacy).all()  # noqa: NPY002
    assert torch.equal(sent["buffers"], kept)
    for a, b in zip(one, two, strict=True):
        assert not a.curvature
        assert b.curvature.keys() == {"0", "1", "4"}
        assert all(torch.isfinite(value).all() for value in b.curvature.values())
        assert a.parts.keys() == b.parts.keys()
        assert all(torch.equal(a.parts[name].value, b.parts[name].value) for name in a.parts)
        assert a.signals == b.signals


def test_dropout_is_off_and_batches_normalise(measured: Any) -> None:
    """Nine tenths of the features would be dropped: without dropout the last bias's curvature is
    that of the softmax, whatever the probe's batch, and BatchNorm's affine parameters feel the
    batch's statistics, which the first bias then does not."""
    client, probe, *_ = measured(normed, layers=("4",))
    for module in client.model.module.modules():
        assert not isinstance(module, Dropout) or module.p == 0.9
    assert all(torch.equal(probe(n)["4"], probe(n)["4"]) for n in range(3))
    _, centred, *_ = measured(normed, layers=("0",))
    bias = torch.stack([centred(n)["0"][-5:] for n in range(50)])
    # BatchNorm takes the mean off: the loss does not depend on the bias before it
    assert bias.abs().max() < 1e-12


# -------------------------------------------------------------- kernels without a second derivative


def test_a_kernel_without_a_second_derivative_gives_no_curvature(measured: Any) -> None:
    """No layer of the client is measured; its work is as it was."""
    _, probe, trained, _ = measured(attends, layers=("0", "3"))
    assert trained.finite
    assert trained.curvature == {} == probe(0)


def test_such_a_model_is_sent_by_magnitude() -> None:
    """Three rounds of top-k by curvature are three rounds of top-k by magnitude, to the bit."""
    image = {"task": {"name": "image", "data": "digits"}}
    source = build(
        _EXPERIMENT | image | {"selector": "uniform", "weights": "uniform", "allocator": "uniform"}
    ).setting.task
    mine = Task("own", source.federation, digits, loss=source.loss, metric=source.metric)
    runs = []
    for compressor in ({"name": "topk", "criterion": "curvature"}, {"name": "topk"}):
        keys = {
            "task": "own",
            "selector": "uniform",
            "weights": "uniform",
            "allocator": "uniform",
            "compressor": compressor,
        }
        simulation = build(_EXPERIMENT | keys | {"partition": "by_writer"}, task=mine)
        while not simulation.done:
            simulation.step()
        runs.append(simulation.state.server.model.x)
    assert torch.equal(*runs)


def digits() -> nn.Module:
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3), nn.Tanh(), Attends(), nn.Linear(3, 10))


# ------------------------------------------------------------------------------------- all engines


# No two features are alike: weights of constant pixels have equal gradients, and rounding decides
# which of them are sent.
_EXPERIMENT: dict[str, Any] = {
    "task": {
        "name": "tabular",
        "data": "breast_cancer",
        "model": {"name": "mlp", "hidden": [24, 16]},
    },
    "population": 8,
    "cohort": 4,
    "dtype": "float64",
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "local": {"steps": 3, "batch_size": 16, "optimizer": {"lr": 0.1}},
    "selector": "hetero_select",
    "weights": "score",
    "algorithm": {"name": "fedprox", "mu": 0.1},
    "stop": {"rounds": 3},
    "compressor": {"name": "topk", "criterion": "curvature", "layers": 1},
    "feedback": "adaptive",
    "allocator": {"name": "by_score"},
    "budget": {"name": "cosine", "warm_up": 0},
    "evaluate": {"every": 10},
    "network": {"name": "uniform", "up_mbps": [1, 5]},
    "engine": {"name": "sequential", "threads": 2},
}


def _run(engine: Any, **keys: Any) -> RoundLoop:
    """HeteRo-Select with curvature from round 1 on, in float64; ``engine`` instead of the
    sequential one."""
    simulation = build(_EXPERIMENT | keys)
    return simulation if engine is None else going_on(simulation, engine=engine(simulation.setting))


@pytest.mark.parametrize("engine", [Threads, Batched, Vmap, TwoProcesses])
def test_every_engine_measures_and_sends_what_the_reference_does(engine: Any) -> None:
    """Models, memories, masks and shares after three rounds; at least one layer's curvature was
    measured for every client."""
    one = _run(None)
    two = _run(engine)
    seen = []
    train = two.engine.train

    def spied(*args: Any) -> Any:
        for done in train(*args):
            seen.append(done.curvature)
            yield done

    two.engine.train = spied  # type: ignore[method-assign]
    while not one.done:
        one.step()
        two.step()
        torch.testing.assert_close(
            two.state.server.model.x, one.state.server.model.x, rtol=1e-9, atol=1e-11
        )
        first = one.state.clients.client_states
        second = two.state.clients.client_states
        assert first.keys() == second.keys()
        for client, client_state in first.items():
            assert torch.equal(client_state["sent.picked"], second[client]["sent.picked"])
            torch.testing.assert_close(
                second[client]["sent.e"], client_state["sent.e"], rtol=1e-9, atol=1e-11
            )
    assert len(seen) == 12
    assert all(len(layers) == 1 for layers in seen)
    two.engine.close()


def test_curvature_changes_what_is_sent() -> None:
    """Else the test above would show nothing."""
    one = _run(None)
    two = _run(None, compressor="topk")
    one.step()
    two.step()
    assert not torch.equal(one.state.server.model.x, two.state.server.model.x)
