"""Clients whose models have different architectures."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import motley
import motley.tasks.own
from motley.core.errors import ConfigError, ModelError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.tasks.own import fingerprint
from tests.motley.resume.test_resume import _crash_after
from tests.rows import Rows

SMALL = {"name": "mlp", "hidden": [8]}
DEEP = {"name": "mlp", "hidden": [8, 6]}
MODELS = [DEEP, SMALL, "linear"]


def keys(**more):
    """Six clients on digits, three models."""
    base = {
        "population": 6,
        "cohort": 3,
        "stop": {"rounds": 3},
        "task": {"name": "image", "data": "digits"},
        "models": MODELS,
        "split": {"test": "client"},
        "local": {"batch_size": 64, "optimizer": {"name": "sgd", "lr": 0.1}},
        "algorithm": "local_only",
        "public": 0.05,
        "engine": {"name": "sequential", "threads": 1},
    }
    return {**base, **more}


METHODS = [
    "local_only",
    {"name": "fedmd", "batch_size": 32},
    {"name": "rhfl", "mode": "kd"},
    {"name": "feddf", "steps": 4, "every": 2, "batch_size": 16},
    "fedproto",
    "fedgh",
    "fml",
    {"name": "fedkd", "t_start": 0.5, "rounds": 3},
    "lg_fedavg",
]


def finished(loop):
    """The loop at its end."""
    while not loop.done:
        loop.step()
    return loop


def models_of(loop):
    """Every client's model."""
    clients = range(len(loop.federation))
    return list(loop.personal_models(loop.state.server)(clients))


# ---------------------------------------------------------------------------------- who holds what


def test_models_are_dealt_in_turn():
    loop = build(keys())
    assert loop.setting.task.architectures.numbers.tolist() == [0, 1, 2, 0, 1, 2]
    sizes = [model.x.numel() for model in models_of(loop)]
    assert sizes == [8 * 65 + 6 * 9 + 10 * 7, 8 * 65 + 10 * 9, 650] * 2


def test_shares_say_how_many_hold_each():
    loop = build(keys(models={"of": MODELS, "share": [0.5, 0.25, 0.25]}))
    assert loop.setting.task.architectures.numbers.tolist() == [0, 1, 2, 0, 0, 1]


def test_capacity_says_who_holds_which():
    """The first model whose training fits into a client's memory, else the last."""
    levels = {"name": "by_memory", "low": 0.003, "high": 0.02, "levels": [1.0, 0.5, 0.25]}
    more = {"models": {"of": MODELS, "by": "capacity"}, "population": 12}
    loop = build(keys(**more, capacity={**levels, "too_little": "least"}))
    setting = loop.setting
    takes = np.array([kind.memory().total for kind in setting.kinds])
    key = setting.streams.key("device").fold("capacity")
    memory = 1e6 * (0.003 + 0.017 * key.uniform(np.arange(12))[:, 0])
    fits = takes <= memory[:, None]
    wanted = np.where(fits.any(1), fits.argmax(1), 2).tolist()
    assert setting.task.architectures.numbers.tolist() == wanted
    assert len(set(wanted)) == 3
    assert loop.federation.notes["models"].count(" MB to train") == 3


def test_groups_hold_models():
    shift = {"name": "domains"}
    loop = build(keys(models={"of": MODELS[:2], "by": "group"}, feature_shift=shift))
    numbers = loop.setting.task.architectures.numbers
    assert numbers.tolist() == (loop.federation.domain % 2).tolist()
    assert len(set(numbers.tolist())) == 2


def test_a_function_of_the_client_in_python():
    task = own_task(holders=lambda client: int(client > 1))
    loop = build({k: v for k, v in own_keys().items() if k != "models"}, task=task)
    assert loop.setting.task.architectures.numbers.tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize("method", ["local_only", "fedproto"])
def test_a_slower_model_takes_its_share_of_the_time(method):
    """Operations 2 (64 x 8 + 8 x 6 + 6 x 10), 2 (64 x 6 + 6 x 10)."""
    models = [DEEP, {"name": "mlp", "hidden": [6]}]
    given = keys(device={"name": "constant", "seconds": 1.0}, models=models, algorithm=method)
    planner = build(given).backend.planner
    assert planner.step_s(np.arange(3), 1).tolist() == [1.0, 444 / 620, 1.0]


def test_the_note_says_what_each_model_takes():
    note = build(keys()).federation.notes["models"]
    assert note == (
        "0 mlp: 2 clients, 644 parameters, 0.00258 MB; 1 mlp: 2 clients, 610 parameters, 0.00244 "
        "MB; 2 linear: 2 clients, 650 parameters, 0.0026 MB"
    )


# ------------------------------------------------------------------------------- what is learned


def test_a_client_learns_what_it_learns_among_its_like():
    """Without exchange, a client's model is that of a run in which all hold its architecture."""
    mixed = models_of(finished(build(keys())))
    for number, record in enumerate(MODELS):
        alike = {k: v for k, v in keys().items() if k != "models"}
        alike["task"] = {**alike["task"], "model": record}
        same = models_of(finished(build(alike)))
        for client in (number, number + 3):
            assert torch.equal(mixed[client].x, same[client].x)


@pytest.mark.parametrize("engine", ["batched", "threads"])
def test_engines_agree(engine):
    float64 = {"dtype": "float64"}
    wanted = models_of(finished(build(keys(**float64))))
    loop = finished(build(keys(**float64, engine={"name": engine, "threads": 1})))
    for model, expected in zip(models_of(loop), wanted, strict=True):
        assert torch.allclose(model.x, expected.x, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_run_that_goes_on_is_one_that_never_stopped(method):
    """With BatchNorm in one model, and as many features before the last layer of both."""
    models = [{**DEEP, "norm": "batch"}, {"name": "mlp", "hidden": [6]}]
    given = keys(algorithm=method, models=models, split={"test": "client", "server": 0.05})
    whole = finished(build(given))
    broken = build(given)
    broken.step()
    again = build(given)
    again.restore(broken.save())
    finished(again)
    for model, expected in zip(models_of(again), models_of(whole), strict=True):
        assert torch.equal(model.x, expected.x)
    assert again.state.ledger.total_bits == whole.state.ledger.total_bits


@pytest.mark.parametrize("where", ["ram", "disk"])
def test_a_kill_changes_no_bit(where, tmp_path, monkeypatch):
    from motley.rounds.simulated import SimulatedBackend
    from tests.motley.resume.test_resume import Crash

    experiment = Experiment(
        **keys(algorithm="fedmd", client_state=where, checkpoint={"every_rounds": 1})
    )
    whole = run(experiment, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        broken = _crash_after(3, SimulatedBackend.commit, True)
        patch.setattr(SimulatedBackend, "commit", broken)
        with pytest.raises(Crash):
            run(experiment, out=tmp_path / "broken")
    again = run(experiment, out=tmp_path / "broken", resume=True)
    for table in ("rounds", "clients", "evaluations"):
        assert whole.tables[table].equals(again.tables[table])
    files = [path / "clients.safetensors" for path in (whole.directory, again.directory)]
    assert files[0].read_bytes() == files[1].read_bytes()


def test_models_are_kept_with_the_run(tmp_path):
    finished_run = run(keys(), out=tmp_path)
    loop = finished(build(keys()))
    for client, model in enumerate(models_of(loop)):
        module = motley.load(tmp_path).clients()[client].module()
        flat = torch.cat([p.detach().flatten() for p in module.parameters()])
        assert torch.equal(flat, model.x)
    assert finished_run.clients()[2].predict(np.zeros((1, 1, 8, 8), np.float32)).shape == (1,)


def test_a_new_client_gets_a_model():
    split = {"test": "client", "holdout_clients": 0.34}
    more = {"split": split, "evaluate": {"adapt_epochs": [0, 1]}}
    loop = build(keys(**more))
    assert len(loop.federation.new_clients) == 2
    finished(loop)
    loop.examining.new_clients(loop.state)


def test_scores_travel_and_nothing_else():
    """3 clients, n public samples, 10 scores of 32 bits, both ways, 3 rounds."""
    loop = finished(build(keys(algorithm="fedmd")))
    public = len(loop.federation.public)
    assert loop.state.ledger.total_bits == 3 * 3 * 2 * public * 10 * 32


def test_a_group_receives_and_sends_its_own_model_alone():
    """Clients of the first of two models, of 650 and 640 weights, both without buffers."""
    models = ["linear", {"name": "linear", "bias": False}]
    more = {"split": {"test": "client", "server": 0.05}, "cohort": 6, "stop": {"rounds": 1}}
    loop = finished(build(keys(models=models, algorithm={"name": "feddf", "steps": 0}, **more)))
    ledger = loop.state.ledger
    assert ledger.total(direction="down") == 32 * 3 * (650 + 640)
    assert ledger.paper_bits == 32 * 3 * (650 + 640)
    alike = {k: v for k, v in keys(algorithm="fedavg", **more).items() if k != "models"}
    sizes = []
    for model in models:
        task = {**alike["task"], "model": model}
        alone = finished(build({**alike, "task": task, "population": 3, "cohort": 3}))
        sizes.append(alone.state.ledger.total(direction="up"))
    assert ledger.total(direction="up") == sum(sizes)


def test_the_models_of_groups_are_examined_on_the_common_test_set():
    task = {"name": "synthetic", "own_test": False}
    given = keys(
        task=task,
        models=["linear", {"name": "mlp", "hidden": [4]}],
        algorithm={"name": "feddf", "steps": 0},
        split={"test": "global"},
        public=None,
    )
    rows = Rows()
    finished(build(given, writer=rows))
    scopes = [scope for columns in rows.tables["evaluations"] for scope in columns["scope"]]
    assert {"model_0", "model_1", "mean"} <= set(scopes)
    assert "global" not in scopes


# ------------------------------------------------------------------ worked on two architectures


def chain(*weights):
    """Linear layers of one unit without biases, with these weights."""

    def make():
        layers = [nn.Linear(1, 1, bias=False) for _ in weights]
        for layer, weight in zip(layers, weights, strict=True):
            nn.init.constant_(layer.weight, weight)
        return nn.Sequential(*layers)

    return make


def worked(method, factories, targets, **options):
    """Clients with a sample x = 1 each, after a round of one step of SGD with the rate .1."""
    clients = [(np.ones((1, 1), np.float32), [target]) for target in targets]
    federation = motley.tasks.from_clients(clients, test=clients, **options)
    task = motley.tasks.own.own_task(federation, factories)
    given = {
        "task": {"name": "own"},
        "cohort": len(clients),
        "stop": {"rounds": 1},
        "algorithm": method,
        "dtype": "float64",
        "local": {"batch_size": 1, "optimizer": {"name": "sgd", "lr": 0.1}},
        "engine": "sequential",
    }
    return finished(build(given, task=task))


def test_unlike_bases_share_a_head():
    """Toy B's first client, base 1, head 2, y = 4: base 1.4, head 2.2. The second has two layers
    below, 1 and 1, y = 1: both .8, head 1.9. The shared head: (2.2 + 1.9) / 2 = 2.05."""
    loop = worked("lg_fedavg", [chain(1, 2), chain(1, 1, 2)], [4.0, 1.0], regression=True)
    first, second = (model.x.tolist() for model in models_of(loop))
    assert first == pytest.approx([1.4, 2.05], abs=1e-12)
    assert second == pytest.approx([0.8, 0.8, 2.05], abs=1e-12)


def headed(*weights):
    """A chain of one unit, and a head of two classes that is 0."""

    def make():
        base = chain(*weights)()
        head = nn.Linear(1, 2, bias=False)
        nn.init.zeros_(head.weight)
        return nn.Sequential(*base, head)

    return make


def test_unlike_backbones_share_prototypes():
    """Heads of 0 send no gradient into the bases, so features stay 2 and 1 * 3 = 3; both clients
    have class 0 alone: its prototype is (2 + 3) / 2."""
    factories = [headed(2), headed(1, 3)]
    loop = worked("fedproto", factories, [0, 0], classes=2)
    assert loop.state.server.extra["prototypes"].tolist() == [[2.5], [0.0]]


def test_a_head_is_trained_on_features_of_unlike_backbones():
    """A step on a sample of class 0 with feature f makes heads of 0 (.05 f, -.05 f), and the bases
    stay. Features 2 and 3 of class 0, the common head 0: the softmax is (1/2, 1/2), the gradient
    (-.5, .5) times the mean feature 2.5; with the rate .2: (.25, -.25). Both clients use it."""
    method = {"name": "fedgh", "lr": 0.2}
    loop = worked(method, [headed(2), headed(1, 3)], [0, 0], classes=2)
    assert loop.state.server.model.x.tolist() == pytest.approx([0.25, -0.25], abs=1e-12)
    first, second = (model.x.tolist() for model in models_of(loop))
    assert first == pytest.approx([2.0, 0.25, -0.25], abs=1e-12)
    assert second == pytest.approx([1.0, 3.0, 0.25, -0.25], abs=1e-12)


# ----------------------------------------------------------------------------- own models, the id


def own_task(**options):
    """Four clients with two samples each, and two architectures."""
    clients = [(np.eye(2, dtype=np.float32) * (k + 1), [0, 1]) for k in range(4)]
    federation = motley.tasks.from_clients(clients, test=clients)
    factories = [
        lambda: nn.Linear(2, 2, bias=False),
        lambda: nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)),
    ]
    return motley.tasks.own.own_task(federation, factories, **options)


def own_keys(**more):
    base = {
        "task": {"name": "own"},
        "cohort": 2,
        "stop": {"rounds": 2},
        "algorithm": "local_only",
        "models": {"share": [0.75, 0.25]},
        "engine": "sequential",
    }
    return {**base, **more}


def test_own_factories():
    loop = finished(build(own_keys(), task=own_task()))
    assert [model.x.numel() for model in models_of(loop)] == [4, 4, 17, 4]


def test_the_fingerprint_sees_every_model_and_who_holds_it():
    prints = {
        fingerprint(own_task()),
        fingerprint(own_task(holders=lambda client: client % 2)),
        fingerprint(own_task(holders=lambda client: 0)),
    }
    assert len(prints) == 3
    assert fingerprint(own_task()) == fingerprint(own_task())


def test_the_run_id_has_the_models():
    ids = {
        Experiment(**keys(**more)).run_id()
        for more in (
            {},
            {"models": MODELS[:2]},
            {"models": {"of": MODELS, "share": [0.5, 0.25, 0.25]}},
            {"models": {"of": [DEEP, SMALL, {"name": "linear", "bias": False}]}},
        )
    }
    assert len(ids) == 4
    assert (
        Experiment(**keys()).run_id()
        == Experiment(**keys(models={"of": MODELS, "by": "client"})).run_id()
    )


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"algorithm": "fedavg"}, r"algorithm: got 'fedavg', .*; use one of: .*fedmd.*local_only"),
        ({"algorithm": "scaffold"}, r"algorithm: got 'scaffold', .*models of different"),
        ({"algorithm": "rhfl"}, r"use one of: .*rhfl \(mode = \"kd\"\)"),
        ({"compressor": {"name": "topk"}}, r"compressor: it works on updates of one model"),
        ({"stage": {"name": "server_average"}}, r"stage: it works on updates of one model"),
        ({"engine": "processes"}, r"engine: .*workers hold one model.*sequential or threads"),
        (
            {"models": MODELS, "task": {"name": "image", "data": "digits", "model": "mlp"}},
            r"models: got task.model and models; .*leave task.model out",
        ),
        (
            {"task": {"name": "image", "data": "digits", "model": ["mlp", "linear"]}},
            r"task.model: got a list; .*models = \[\"cnn\", \"mlp\"\]",
        ),
        ({"models": ["mlp"]}, r"models: got 1 model; expected at least two"),
        ({"models": ["mlp", "resnet99"]}, r"models.of\[1\].*resnet99"),
        ({"models": {"of": MODELS, "share": [1.0]}}, r"models.share: got 1 shares.*3 models"),
        ({"models": {"of": MODELS, "share": [0.0] * 3}}, r"models.share: got shares that sum to 0"),
        ({"models": {"of": MODELS, "share": [1.0, -1.0, 1.0]}}, r"got -1.0; expected at least 0"),
        (
            {"models": {"of": MODELS, "by": "capacity", "share": [1.0, 1.0, 1.0]}},
            r"models.share: got 3 shares with by = 'capacity'",
        ),
        (
            {"models": {"of": MODELS, "by": "capacity"}},
            r"models.by: .*levels = \[1.0, 0.667, 0.333",
        ),
        (
            {
                "models": {"of": MODELS, "by": "capacity"},
                "capacity": {"name": "levels", "levels": [1.0, 0.5]},
            },
            r"capacity.levels: got 2 levels for 3 models",
        ),
        (
            {
                "models": {"of": MODELS, "by": "capacity"},
                "capacity": {"name": "levels", "levels": [1.0, 0.5, 0.2], "per": "round"},
            },
            r"capacity: a client holds its model for good",
        ),
        (
            {
                "models": {"of": MODELS[::-1], "by": "capacity"},
                "capacity": {"name": "by_memory", "levels": [1.0, 0.5, 0.2], "high": 2000.0},
            },
            r"models.of: .*list them from the largest to the smallest",
        ),
        ({"models": {"of": MODELS, "by": "group"}}, r"models.by: got 'group'.*feature_shift"),
        ({"capacity": {"name": "levels"}}, r"capacity: .*by = \"capacity\""),
        (
            {"task": "quadratic", "partition": "by_writer", "public": None},
            r"models: the task 'quadratic' has a",
        ),
        ({"algorithm": "fedproto"}, r"models: under 'fedproto' .*model 0 \(mlp\) has \[10, 6\]"),
        (
            {"algorithm": "lg_fedavg", "models": MODELS[:2]},
            r"models: under 'lg_fedavg' .*give them last layers of one",
        ),
        ({"selector": {"name": "fedstas"}}, r"selector: .*models of different architectures have"),
        (
            {
                "selector": {"name": "hetero_select"},
                "algorithm": {"name": "feddf", "steps": 0},
            },
            r"selector: 'hetero_select' compares clients by 'last_update_cosine'",
        ),
        ({"init": {"path": __file__}}, r"init: "),
        (
            {"privacy": {"clip": 1.0, "noise_multiplier": 1.0, "delta": 1e-5}},
            r"privacy: .*not bounded by clipping",
        ),
    ],
)
def test_what_has_no_meaning_is_refused(more, message):
    with pytest.raises(ConfigError, match=message):
        build(keys(**more))


def test_who_holds_which_is_said_once():
    with pytest.raises(ConfigError, match=r"models: own_task was told who holds which model"):
        build(own_keys(), task=own_task(holders=lambda client: 0))


def test_holders_of_one_model():
    federation = own_task().federation
    with pytest.raises(ConfigError, match=r"holders: it says which of several models"):
        motley.tasks.own.own_task(federation, lambda: nn.Linear(2, 2), holders=lambda client: 0)


@pytest.mark.parametrize(
    ("holders", "message"),
    [
        (lambda client: 0.5, r"holders: got 0.5; expected a function from a client's number"),
        ([0, 1, 0, 1], r"holders: got \[0, 1, 0, 1\]; expected a function"),
        (lambda client: 2, r"models: got 2 as the number of a client's model; expected 0 to 1"),
    ],
)
def test_holders_that_name_no_model(holders, message):
    with pytest.raises(ConfigError, match=message):
        own_task(holders=holders)


def test_a_list_of_no_models():
    with pytest.raises(ConfigError, match=r"models: got 0 model; expected at least two"):
        motley.tasks.own.own_task(own_task().federation, [])


def test_a_record_makes_the_experiment_again():
    experiment = Experiment(**keys())
    again = Experiment(**experiment.resolved())
    assert again.run_id() == experiment.run_id()
    assert again.resolved() == experiment.resolved()


def wider(outputs):
    return lambda: nn.Linear(2, outputs)


@pytest.mark.parametrize("outputs", [(2, 3), (1, 2)])
def test_models_give_as_many_outputs(outputs):
    with pytest.raises(ModelError, match=r"got models with \d, \d outputs; expected as many"):
        motley.tasks.own.own_task(own_task().federation, [wider(count) for count in outputs])


@pytest.mark.parametrize("method", ["lg_fedavg", "fedgh"])
@pytest.mark.parametrize("order", [1, -1])
def test_a_model_that_is_a_head_alone_has_nothing_to_keep(method, order):
    """Whichever comes first."""

    def deep():
        return nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))

    task = motley.tasks.own.own_task(own_task().federation, [deep, wider(2)][::order])
    number = 1 if order == 1 else 0
    with pytest.raises(ConfigError, match=rf"model {number} \(model {number}\) has nothing before"):
        build(own_keys(algorithm=method, models={}), task=task)


def test_a_model_that_nobody_holds():
    """The common one of FML, with which nobody is examined."""
    given = keys(algorithm="fml", models={"of": [DEEP, SMALL], "share": [1.0, 0.0]})
    loop = finished(build(given))
    assert loop.setting.task.architectures.numbers.tolist() == [0] * 6
    assert loop.state.server.model.x.numel() == 610


def test_shares_of_an_own_task_with_one_model():
    task = motley.tasks.own.own_task(own_task().federation, lambda: nn.Linear(2, 2))
    with pytest.raises(ConfigError, match=r"models: this task has one model"):
        build(own_keys(), task=task)
