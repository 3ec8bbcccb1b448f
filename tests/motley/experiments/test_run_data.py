"""What the server holds, what its rules need, and what a round with them costs: whole
simulations."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from tests.rows import Rows

DIGITS = {"name": "image", "data": "digits", "model": "logistic_regression"}
BASE = {
    "task": DIGITS,
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 3},
    "split": {"server": 0.1},
    "public": 0.1,
    "local": {"batch_size": 32, "optimizer": {"name": "sgd", "lr": 0.1}},
    "evaluate": {"every": 100},
    "dtype": "float64",
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "device": {"name": "constant", "seconds": 3.0},
    "engine": "sequential",
}
DISTILLED = {"name": "feddf", "steps": 12, "every": 4, "patience": 8, "batch_size": 32}
ALIGNED = {"name": "rhfl", "batch_size": 32}
METHODS = {
    "feddf": DISTILLED,
    "fedbio": {"name": "fedbio"},
    "agg": ALIGNED,
    "kd": {**ALIGNED, "mode": "kd"},
}


def simulate(**keys):
    return build(Experiment(**{**BASE, **keys}))


def finished(simulation):
    while not simulation.done:
        simulation.step()
    return simulation


def everything(simulation):
    """All numbers that a run has come to."""
    model = simulation.state.server.model
    found = {"x": model.x, "buffers": model.buffers, **simulation.state.server.extra}
    for client in range(len(simulation.federation)):
        for name, value in (
            simulation.state.clients.client_states.of([client]).get(client) or {}
        ).items():
            found[f"{client}: {name}"] = value
    return {name: value.clone() for name, value in found.items()}


# ---- where the samples come from ----


def test_what_the_server_holds_is_nobody_s_and_never_test_data():
    """A tenth of 1,797 digits each, class by class, before clients are given theirs; every sample
    in one place only."""
    data = task_of(Experiment(**BASE)).federation
    held = data.server[0]
    public = data.public
    assert len(held) == pytest.approx(180, abs=5)
    assert len(public) == pytest.approx(162, abs=5)
    parts = [
        data.x[torch.from_numpy(part.values)] for part in (data.train, data.validation, data.test)
    ]
    whole = torch.cat([held, public, *parts]).flatten(1)
    assert len(whole) == 1797
    assert len(torch.unique(whole, dim=0)) == len(torch.unique(data.x.flatten(1), dim=0))
    assert torch.bincount(data.server[1], minlength=10).min() >= 15
    assert {"server", "public"} <= data.notes.keys()


def test_who_took_the_samples_that_the_clients_lack_is_said():
    keys = {**BASE, "public": 0.9, "split": {"server": 0.99}}
    with pytest.raises(
        ConfigError,
        match=r"the data has 1; .*; split.server: the server keeps 1780 samples .*; public: 16 "
        r"samples",
    ):
        task_of(Experiment(**keys))


def test_labels_that_the_server_holds_are_clean():
    noisy = task_of(Experiment(**BASE, label_noise={"name": "symmetric", "rate": 0.9})).federation
    clean = task_of(Experiment(**BASE)).federation
    assert torch.equal(noisy.server[1], clean.server[1])
    assert not torch.equal(noisy.labels, clean.labels)


def test_a_global_test_set_is_never_touched():
    data = task_of(
        Experiment(**{**BASE, "split": {"server": 0.5, "test": "global", "test_fraction": 0.2}})
    ).federation
    mine = {tuple(row) for row in data.server[0].flatten(1).tolist()}
    common = {tuple(row) for row in data.x[torch.from_numpy(data.global_test)].flatten(1).tolist()}
    both = {tuple(row) for row in data.x.flatten(1).tolist()}
    assert len(mine) + len(common) <= len(both) + 5  # a handful of digits occur twice
    assert len(mine & common) <= 5


def test_without_public_samples_a_tenth_of_the_server_s_own_serve():
    simulation = simulate(algorithm=DISTILLED, public=None)
    room = simulation.config.server_context
    assert len(room.public) == len(room.validation[0]) // 10


def test_public_samples_are_scaled_like_the_task(tmp_path):
    """Another set of bytes with mean 100: under the task's scaling (mean m, deviation s of its own
    training half), (100 - m) / s."""
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (200, 4, 4), dtype=np.uint8)
    np.savez(tmp_path / "mine.npz", x=x, y=rng.integers(0, 3, 200))
    np.savez(tmp_path / "other.npz", x=np.full((50, 4, 4), 100, np.uint8), y=np.zeros(50, np.int64))
    np.savez(tmp_path / "large.npz", x=np.zeros((50, 5, 5), np.uint8), y=np.zeros(50, np.int64))
    keys = {**BASE, "task": {**DIGITS, "data": str(tmp_path / "mine.npz")}}
    given = task_of(
        Experiment(**{**keys, "public": {"data": str(tmp_path / "other.npz"), "examples": 20}})
    ).federation.public
    assert tuple(given.shape) == (20, 1, 4, 4)
    assert given.unique().tolist() == pytest.approx([(100 - x.mean()) / x.std()], rel=1e-5)
    with pytest.raises(
        ConfigError, match=r"public.data: the images of .* are 1x5x5 and the task's 1x4x4"
    ):
        task_of(Experiment(**{**keys, "public": {"data": str(tmp_path / "large.npz")}}))


# ---- what is refused ----


QUADRATIC = {"name": "quadratic", "examples": [20] * 6}


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"algorithm": "feddf", "split": {}},
            r"split.server: 'feddf' needs labelled samples .* split = \{ server = 0.1 \}",
        ),
        (
            {"algorithm": "feddf", "split": {}, "public": None},
            "public: 'feddf' needs unlabelled public samples",
        ),
        ({"algorithm": "fedbio", "split": {}}, "split.server: 'fedbio' needs labelled samples"),
        (
            {"algorithm": "rhfl", "split": {}, "public": None},
            r"public: 'rhfl' needs unlabelled .* public = 0.1",
        ),
        (
            {"algorithm": "fedbio", "weights": "horvitz_thompson"},
            'FedBiO learns the weights.*got weights = "horvitz_thompson"',
        ),
        (
            {"algorithm": "rhfl", "weights": "horvitz_thompson"},
            'RHFL.*got weights = "horvitz_thompson"',
        ),
        (
            {"algorithm": "feddf", "aggregator": "median", "weights": "uniform"},
            "FedDF needs every single upload",
        ),
        (
            {"algorithm": METHODS["kd"], "synchrony": {"name": "buffered", "buffer": 2}},
            "a buffer discounts late updates",
        ),
        (
            {"algorithm": METHODS["kd"], "synchrony": "asynchronous"},
            "asynchronous mixing is defined for models",
        ),
        (
            {"algorithm": METHODS["kd"], "selector": {"name": "divfl"}},
            "which the server makes of uploaded updates",
        ),
        ({"public": {"share": 0.1, "data": "mnist"}}, "public: say where the samples come from"),
        ({"public": 1.5}, "public.share: got 1.5"),
    ],
)
def test_what_a_method_lacks_is_said_when_the_experiment_is_built(keys, message):
    with pytest.raises(ConfigError, match=message):
        simulate(**keys)


def test_methods_over_classes_refuse_numbers():
    keys = {"task": QUADRATIC, "partition": "by_writer", "public": 0.2, "split": {"server": 0.2}}
    with pytest.raises(
        ConfigError,
        match="algorithm: 'feddf' needs one class per sample, and this task is a regression",
    ):
        simulate(algorithm="feddf", **keys)


# ---- what must coincide (docs/methods/algorithms.md#equalities) ----


@pytest.mark.parametrize("weights", ["examples", "uniform", "horvitz_thompson"])
def test_feddf_without_steps_is_fedavg_bit_for_bit(weights):
    one = everything(finished(simulate(algorithm={"name": "feddf", "steps": 0}, weights=weights)))
    two = everything(finished(simulate(weights=weights)))
    assert torch.equal(one["x"], two["x"])


@pytest.mark.parametrize("weights", ["examples", "uniform"])
def test_fedbio_at_rate_zero_is_fedavg(weights):
    one = everything(
        finished(simulate(algorithm={"name": "fedbio", "rate": 0.0, "floor": 0.0}, weights=weights))
    )
    two = everything(finished(simulate(weights=weights)))
    assert torch.allclose(one["x"], two["x"], rtol=1e-12, atol=1e-14)


def test_rhfl_without_confidence_and_alignment_is_uniform_averaging():
    one = everything(finished(simulate(algorithm={"name": "rhfl", "beta": 0.0, "align": False})))
    two = everything(finished(simulate(loss="symmetric", weights="uniform")))
    assert torch.allclose(one["x"], two["x"], rtol=1e-12, atol=1e-14)


def test_the_loss_can_be_exchanged_and_is_then_asked_for():
    """FLASH's loss in RHFL's column: in training and in the confidence."""
    simulation = simulate(algorithm=ALIGNED, loss="flash_robust", stop={"rounds": 1})
    plain = simulate(algorithm=ALIGNED, stop={"rounds": 1})
    told = [finished(s).state.server.extra["loss"] for s in (simulation, plain)]
    assert torch.equal(told[0] > 0, told[1] > 0)
    assert not torch.allclose(told[0], told[1])


# ---- repeatability ----


@pytest.mark.parametrize("name", METHODS)
def test_interrupted_and_resumed_bits_are_the_same(name):
    whole = everything(finished(simulate(algorithm=METHODS[name], stop={"rounds": 4})))
    first = simulate(algorithm=METHODS[name], stop={"rounds": 4})
    first.step()
    first.step()
    second = simulate(algorithm=METHODS[name], stop={"rounds": 4})
    second.restore(first.save())
    again = everything(finished(second))
    assert whole.keys() == again.keys()
    assert all(torch.equal(whole[key], again[key]) for key in whole)


@cache
def one_after_the_other(name):
    """All numbers of a method's run whose clients train one after the other."""
    return everything(finished(simulate(algorithm=METHODS[name])))


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("engine", ["threads", "batched"])
def test_every_engine_gives_the_same(name, engine):
    one = one_after_the_other(name)
    two = everything(finished(simulate(algorithm=METHODS[name], engine=engine)))
    for key, value in one.items():
        assert torch.allclose(value.double(), two[key].double(), rtol=1e-6, atol=1e-8), key


# ---- what a round costs ----


def test_soft_outputs_are_billed_both_ways_and_no_model_is():
    """n public samples in batches of 32, C = 10: 32 floor(n / 32) 10 numbers down, as many and one
    loss up, for each of 3 clients."""
    simulation = finished(simulate(algorithm=METHODS["kd"], stop={"rounds": 1}))
    values = 32 * (len(simulation.config.server_context.public) // 32) * 10
    assert simulation.state.ledger.total(direction="down") == 3 * 32 * values
    assert simulation.state.ledger.total(direction="up") == 3 * 32 * (values + 1)


def test_a_loss_is_billed_beside_the_update():
    one = finished(simulate(algorithm=ALIGNED, stop={"rounds": 1})).state.ledger
    two = finished(simulate(stop={"rounds": 1})).state.ledger
    assert one.total(direction="up") - two.total(direction="up") == 3 * 32
    assert one.total(direction="down") == two.total(direction="down")


def test_client_work_takes_virtual_time_and_server_work_none():
    """Everybody takes part, 3 s a step, so 1 s a forward pass; one epoch has as many steps as there
    are batches b of the largest client. FedDF and FedBiO: 3 b. The loss after training: 4 b. Own
    models: 4 passes over P public batches besides."""
    clocks = {}
    for name, method in {**METHODS, "fedavg": "fedavg"}.items():
        simulation = finished(
            simulate(algorithm=method, cohort=6, stop={"rounds": 1}, partition="iid")
        )
        clocks[name] = simulation.state.clients.now_s
        batches = -(-int(simulation.backend.sizes(simulation.state.moment).examples.max()) // 32)
    public = len(simulate(algorithm=METHODS["kd"]).config.server_context.public) // 32
    want = {"feddf": 3, "fedbio": 3, "fedavg": 3, "agg": 4, "kd": 4}
    assert clocks == pytest.approx(
        {k: v * batches + (4 * public if k == "kd" else 0) for k, v in want.items()}
    )


# ---- own models ----


def test_own_models_are_examined_each_by_itself():
    """No row of a common model, although there is a common test set; who was never asked still has
    the initial model."""
    simulation = simulate(
        algorithm=METHODS["kd"], split={"test": "global", "server": 0.1}, stop={"rounds": 2}
    )
    rows = Rows()
    simulation.write_to(rows)  # type: ignore[arg-type]
    finished(simulation)
    assert [set(found["scope"]) for found in rows.tables["evaluations"]] == [{"mean", "client"}] * 2
    moved = [
        client
        for client in range(6)
        if not torch.equal(everything(simulation)[f"{client}: x"], simulation.state.server.model.x)
    ]
    assert 3 <= len(moved) <= 6
    assert simulation.state.scores.headline > 0.3


def test_a_client_whose_update_is_rejected_keeps_its_model():
    simulation = simulate(algorithm=METHODS["kd"], cohort=6, stop={"rounds": 2})
    simulation.step()
    before = everything(simulation)
    train = simulation.engine.train

    def failing(jobs, *rest):
        for job, done in zip(jobs, train(jobs, *rest), strict=True):
            yield type(done)(
                done.client,
                done.parts,
                done.client_state,
                done.steps,
                done.signals,
                job.client != 4,
            )

    simulation.engine.train = failing
    simulation.step()
    after = everything(simulation)
    assert torch.equal(before["4: x"], after["4: x"])
    assert not torch.equal(before["3: x"], after["3: x"])
    assert before["loss"][4] == after["loss"][4]


# ---- they do what they are for ----


def test_fedbio_weighs_down_who_learned_wrong_labels():
    """Two of six clients with nine of ten labels wrong (label noise per client): after a few rounds
    their psi are the lowest."""
    simulation = simulate(
        algorithm="fedbio", cohort=6, stop={"rounds": 4}, partition="iid", weights="uniform"
    )
    labels = simulation.engine.samples.training.labels
    data = simulation.federation.train
    for client in (1, 4):
        mine = slice(int(data.offsets[client]), int(data.offsets[client + 1]))
        labels[mine] = (labels[mine] + 1) % 10
    psi = finished(simulation).state.server.extra["psi"]
    assert sorted(psi.argsort()[:2].tolist()) == [1, 4]


@pytest.mark.parametrize("name", ["dirichlet", "quantity"])
def test_clients_without_samples_are_mended_by_a_least_size(name: str) -> None:
    keys = {"task": DIGITS, "population": 100, "cohort": 3, "stop": {"rounds": 1}}
    keys["local"] = {"epochs": 1, "batch_size": 4}
    options = {"dirichlet": {"alpha": 0.01}, "quantity": {"beta": 0.05}}[name]
    with pytest.raises(ConfigError, match=r"clients got no samples .*; write min_size = 1"):
        build({**keys, "partition": {"name": name, **options, "min_size": 0}})
    build({**keys, "partition": {"name": name, **options, "min_size": 1}})
