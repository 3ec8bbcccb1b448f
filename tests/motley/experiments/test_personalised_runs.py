"""Personalized methods in whole runs: what is billed, what is examined and stored, kills and
resumes, what is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.core.ragged import Ragged
from motley.engines.engine import DataView
from motley.experiments.build import build
from motley.results.load import Run
from motley.rounds.checkpoint import Checkpoints
from motley.rounds.holdings.prototypes import own_classes
from motley.tasks.flat import FlatModule
from tests.motley.resume.conftest import assert_same
from tests.rows import Rows

BASE, HEAD = 64 * 16 + 16, 16 * 10 + 10  # parameters of the model's layers
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}},
    "population": 6,
    "cohort": 2,
    "partition": {"name": "label_count", "labels": 3},
    "stop": {"rounds": 3},
    "split": {"test": "client"},
    "local": {"batch_size": 32, "optimizer": {"lr": 0.1, "momentum": 0.5}},
    "engine": {"name": "threads", "threads": 2},
    "checkpoint": {"every_rounds": 1},
}
METHODS: dict[str, tuple[Any, int]] = {
    "local_only": ("local_only", 0),
    "fedper": ("fedper", BASE),
    "fedrep": ({"name": "fedrep", "head_epochs": 1}, BASE),
    "lg_fedavg": ("lg_fedavg", HEAD),
    "fedbabu": ({"name": "fedbabu", "tune_epochs": 1}, BASE),
    "ditto": ({"name": "ditto", "lam": 0.5}, BASE + HEAD),
    "apfl": ({"name": "apfl", "adaptive": True}, BASE + HEAD),
    "pfedme": ({"name": "pfedme", "lam": 2.0, "lr_p": 0.2, "inner_steps": 2}, BASE + HEAD),
    "per_fedavg": ({"name": "per_fedavg", "alpha": 0.05, "tune_steps": 3}, BASE + HEAD),
    "fedala": ({"name": "fedala", "first_passes": 2}, BASE + HEAD),
    "fine_tuned": ({"name": "fine_tuned", "method": {"name": "fedprox", "mu": 0.1}}, BASE + HEAD),
}
"""Name -> record, and the values that travel each way."""
ALGORITHMS: dict[str, Any] = {
    **{name: record for name, (record, _) in METHODS.items()},
    "fedproto": "fedproto",
    "fedpac": "fedpac",
    "fedas": "fedas",
    "pfedfda": "pfedfda",
}
SHARED = ("fedbabu", "ditto", "apfl", "pfedme", "per_fedavg", "fedala", "fine_tuned")


@pytest.mark.parametrize("name", METHODS)
def test_what_stays_at_home_is_not_sent(name: str) -> None:
    """Each way 32 bits a value and client; an upload's message has heads besides, and an empty one
    is none."""
    rows = Rows()
    loop = build({**KEYS, "algorithm": METHODS[name][0]}, writer=rows)
    loop.step()
    row = rows.tables["rounds"][0]
    values = METHODS[name][1]
    assert (row["down_bits"], row["up_paper_bits"]) == (2 * 32 * values, 2 * 32 * values)
    assert (row["up_bits"] == 0) is (values == 0)
    assert loop.state.server.model.x.numel() == values


@pytest.mark.parametrize(
    ("name", "own", "shared"),
    [
        ("fedper", False, BASE + 32),
        ("fedper", True, BASE),
        ("fedrep", True, BASE),
        ("fedbabu", True, BASE),
    ],
)
def test_norms_that_stay_at_home_are_not_sent_either(name: str, own: bool, shared: int) -> None:
    """BatchNorm of 16 units has 32 parameters and 32 statistics, 32 bits each, and a counter of 64
    bits."""
    rows = Rows()
    task = {**KEYS["task"], "model": {"name": "digits_mlp", "hidden": [16], "norm": "batch"}}
    build({**KEYS, "task": task, "algorithm": {"name": name, "own_norms": own}}, writer=rows).step()
    row = rows.tables["rounds"][0]
    assert row["down_bits"] == 2 * (32 * shared + (0 if own else 32 * 32 + 64))
    assert row["up_paper_bits"] == 2 * 32 * shared


def scopes(rows: Rows) -> set[str]:
    return set(rows.tables["evaluations"][-1]["scope"])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("test", ["client", "global"])
def test_the_models_that_are_examined(name: str, test: str) -> None:
    """Each client's own; where there is a shared model too, it has rows of its own. The headline is
    the mean over clients."""
    rows = Rows()
    loop = build(
        {**KEYS, "split": {"test": test}, "evaluate": {"every": 1}, "algorithm": METHODS[name][0]},
        writer=rows,
    )
    for _ in range(2):  # after the first round FedALA has learned no weights yet
        loop.step()
    shared = {"shared_mean", "shared_client", *(("global",) if test == "global" else ())}
    assert scopes(rows) == {"mean", "client", *(shared if name in SHARED else ())}
    found = rows.tables["evaluations"][-1]
    at = found["scope"].index("mean")
    assert loop.state.scores.headline == found["accuracy"][at]
    if name in SHARED:
        assert found["loss"][at] != found["loss"][found["scope"].index("shared_mean")]


def test_fedala_examines_those_that_took_part_with_weights_learned_anew() -> None:
    """A client that never took part is examined with the shared model, one that did with another
    mixture than the stored weights give. What is learned for an examination is forgotten: examined
    every round or at the end, the run is the same."""
    runs = [
        build(
            {
                **KEYS,
                "evaluate": {"every": every},
                "stop": {"rounds": 3},
                "algorithm": METHODS["fedala"][0],
            }
        )
        for every in (1, 3)
    ]
    for loop in runs:
        while not loop.done:
            loop.step()
    first, second = (loop.state for loop in runs)
    torch.testing.assert_close(second.server.model.x, first.server.model.x, rtol=0, atol=0)
    loop = runs[0]
    rule = runs[0].algorithm.local
    download = rule.download(first.server)
    states = first.clients.client_states
    clients = range(len(loop.federation))
    assert 0 < len(states) < len(clients)
    for k, model in zip(clients, loop.personal_models(first.server)(clients), strict=True):
        assert torch.equal(model.x, first.server.model.x) == (k not in states)
        stored = rule.examined(download, states.get(k))
        assert torch.equal(model.x, stored.x) == (k not in states)


@pytest.fixture(scope="module")
def whole_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Return a function that returns the run of a method that nothing happens to. Each is made
    once, so tests only read it."""
    return cache(
        lambda name: motley.run(
            {**KEYS, "algorithm": ALGORITHMS[name]}, out=tmp_path_factory.mktemp("whole")
        )
    )


def killed_and_resumed(
    keys: dict[str, Any], whole: Run, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run an experiment killed at its second checkpoint and resumed: tables and what clients keep
    are those of the whole run."""
    calls = [0]
    save = Checkpoints.save

    def broken(self: Checkpoints, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return save(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", broken)
        with pytest.raises((KeyboardInterrupt, motley.MotleyError)):
            motley.run(keys, out=folder / "broken")
    again = motley.run(keys, out=folder / "broken", resume=True)
    assert_same(whole, again)
    files = [run.directory / "clients.safetensors" for run in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize(
    ("name", "where"),
    [
        *((name, "disk") for name in ALGORITHMS),
        ("fedper", "ram"),
        ("apfl", "ram"),
        ("fedproto", "ram"),
    ],
)
def test_a_killed_run_goes_on_to_the_same_bits(
    name: str,
    where: str,
    whole_run: Callable[[str], Run],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What clients keep is in memory in the run that nothing happens to."""
    keys = {**KEYS, "client_state": where, "algorithm": ALGORITHMS[name]}
    killed_and_resumed(keys, whole_run(name), tmp_path, monkeypatch)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_finished_run_has_the_models_that_were_examined(
    name: str, whole_run: Callable[[str], Run]
) -> None:
    """The stored models have the accuracies of the last evaluation."""
    done = whole_run(name)
    data = build({**KEYS, "algorithm": ALGORITHMS[name]}).federation
    rows = done.column("evaluations", "scope") == "client"
    last = rows & (done.column("evaluations", "round") == 3)
    told = dict(
        zip(
            done.column("evaluations", "client")[last],
            done.column("evaluations", "accuracy")[last],
            strict=True,
        )
    )
    assert motley.load(done.directory).personal
    for k, model in enumerate(motley.load(done.directory).clients()):
        at = torch.from_numpy(data.test[k])
        right = model.module()(data.x[at]).argmax(1) == data.y[at]
        assert right.double().mean().item() == pytest.approx(told[k])
        assert len(model.predict(data.x[at])) == len(at)


def test_the_clock_counts_both_models_and_the_heads_epochs() -> None:
    """One step under FedAvg is one second; Ditto takes two passes a step, FedRep a third of an
    epoch for each one of the head, and FedPAC two thirds more for features; FedAS takes a third for
    features, and an epoch each for the alignment and for the trace."""
    base = {**KEYS, "device": {"name": "constant", "seconds": 1.0}}
    spent = {}
    for name in ("fedavg", "ditto", "fedrep", "fedpac", "fedas"):
        rows = Rows()
        build({**base, "algorithm": ALGORITHMS.get(name, name)}, writer=rows).step()
        spent[name] = np.asarray(rows.tables["clients"][0]["compute_s"])
    np.testing.assert_allclose(spent["ditto"], 2 * spent["fedavg"], rtol=1e-12)
    np.testing.assert_allclose(spent["fedrep"], spent["fedavg"] * (1 + 1 / 3), rtol=1e-12)
    np.testing.assert_allclose(spent["fedpac"], spent["fedavg"] * 2, rtol=1e-12)
    np.testing.assert_allclose(spent["fedas"], spent["fedavg"] * (1 + 7 / 3), rtol=1e-12)


@pytest.mark.parametrize("engine", ["batched", "vmap"])
@pytest.mark.parametrize("name", ["apfl", "pfedme", "fedala", "per_fedavg"])
def test_engines_that_batch_clients_refuse_by_name_what_they_cannot(name: str, engine: str) -> None:
    message = (
        rf"engine: '{engine}' cannot run this experiment: local work under \w+ (takes steps "
        rf"in directions|has phases that)"
    )
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, "engine": engine, "algorithm": METHODS[name][0]})
    assert build({**KEYS, "engine": "auto", "algorithm": METHODS[name][0]}).engine.name == "threads"


@pytest.mark.parametrize(
    "name", ["fedper", "fedrep", "lg_fedavg", "fedbabu", "local_only", "ditto"]
)
def test_clients_with_plain_phases_train_in_batches(name: str) -> None:
    assert build({**KEYS, "engine": "auto", "algorithm": METHODS[name][0]}).engine.name == "batched"


@pytest.mark.parametrize("name", ["fedper", "fedrep", "lg_fedavg", "fedbabu", "local_only"])
def test_compression_is_for_updates_of_whole_models(name: str) -> None:
    with pytest.raises(
        ConfigError,
        match="does not upload an update of the whole model, and that is what is compressed",
    ):
        build(
            {
                **KEYS,
                "compressor": "topk",
                "budget": {"name": "constant", "average": 0.2},
                "algorithm": METHODS[name][0],
            }
        )


def test_a_pull_that_overshoots_warns() -> None:
    with pytest.warns(
        UserWarning, match="lr = 0.1 times lam = 20 is above 1: the pull overshoots its anchor"
    ):
        build({**KEYS, "algorithm": {"name": "ditto", "lam": 20.0}})


def test_a_method_that_is_fine_tuned_is_checked_and_cited() -> None:
    with pytest.raises(ConfigError, match="'fedprox' has no such option"):
        build(
            {**KEYS, "algorithm": {"name": "fine_tuned", "method": {"name": "fedprox", "nu": 1.0}}}
        )
    papers = motley.Experiment(**{**KEYS, "algorithm": METHODS["fine_tuned"][0]}).papers()
    assert {"wang2019evaluation", "li2020fedprox"} <= {paper.key for paper in papers}


# ---- prototypes: 10 classes, 16 features, three classes a client ----


@pytest.mark.parametrize(("weights", "counts", "places"), [("counts", 3, 2), ("uniform", 0, 2 + 4)])
def test_only_prototypes_travel(weights: str, counts: int, places: int) -> None:
    """Down all of them, up those of the client's three classes: 16 values each, a count unless they
    weigh alike, and a bit for every class (2 bytes; written as signs, with a scale of 4 bytes,
    where there are no counts). The message's head and digest take 23 bytes, and its parts "sums"
    and "counts" 39 each beside their names."""
    rows = Rows()
    loop = build(
        {**KEYS, "algorithm": {"name": "fedproto", "prototype_weights": weights}}, writer=rows
    )
    assert own_classes(loop.federation, np.arange(6)).sum(1).tolist() == [3] * 6
    loop.step()
    row = rows.tables["rounds"][0]
    values = 3 * 16 + counts
    assert row["down_bits"] == 2 * 10 * 16 * 32
    assert row["up_paper_bits"] == 2 * values * 32
    assert row["up_bits"] == 2 * 8 * (23 + 2 * 39 + len("sums" + "counts") + places + 4 * values)


def test_classes_follow_the_window_and_the_names_of_a_drifting_client() -> None:
    """Six samples of the classes 0, 0, 1, 1, 2, 2, three of which are seen: from the fifth on they
    are 2, 2 and 0."""
    data = build(KEYS).federation
    y = torch.tensor([0, 0, 1, 1, 2, 2])
    train = Ragged(np.array([0, 6]), np.arange(6))
    one = replace(data, y=y, labels=y, train=train, classes=3, window=np.array([3]))
    for first, names, wanted in (
        (0, None, [1, 1, 0]),
        (4, None, [1, 0, 1]),
        (4, np.array([[1, 2, 0]]), [1, 1, 0]),
    ):
        assert own_classes(one, np.array([0]), DataView(np.array([first]), names)).astype(
            int
        ).tolist() == [wanted]


@pytest.mark.parametrize("test", ["client", "global"])
def test_clients_are_also_examined_by_the_nearest_prototype(test: str) -> None:
    """From the first round on, against distances written out; before there are no prototypes."""
    rows = Rows()
    loop = build(
        {
            **KEYS,
            "split": {"test": test},
            "evaluate": {"every": 1},
            "algorithm": "fedproto",
            "dtype": "float64",
        },
        writer=rows,
    )
    loop.step()
    first = rows.tables["evaluations"][0]
    found = rows.tables["evaluations"][-1]
    assert set(first["scope"]) == {"mean", "client"}
    assert set(found["scope"]) == {"mean", "client", "prototype_mean", "prototype_client"}
    assert loop.state.scores.headline == found["accuracy"][found["scope"].index("mean")]
    if test == "client":
        at = found["scope"].index("prototype_client")
        data = loop.federation
        known = loop.state.server.extra["prototypes"].any(1)
        prototypes = loop.state.server.extra["prototypes"]
        for k, model in enumerate(loop.personal_models(loop.state.server)(range(6))):
            net = FlatModule.of(loop.setting.task.model, torch.float64)
            net.load(model)
            samples = torch.from_numpy(data.test[k])
            z = net.module[:-1](loop.engine.samples.inputs(samples))
            far = torch.cdist(z, prototypes).square() / 16
            right = far.masked_fill(~known, torch.inf).argmin(1) == data.y[samples]
            assert found["accuracy"][at + k] == pytest.approx(right.double().mean().item())
            assert found["loss"][at + k] == pytest.approx(
                far.gather(1, data.y[samples, None]).mean().item()
            )


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"compressor": "topk", "budget": {"name": "constant", "average": 0.2}},
            "does not upload an update of the whole model",
        ),
        (
            {"server": "adam"},
            "clients upload prototypes, and ServerAdam steps a model; leave server out",
        ),
        (
            {"aggregator": "krum", "weights": "uniform"},
            "Krum compares plain updates, but PrototypeExchange also uploads counts, sums",
        ),
        (
            {"synchrony": {"name": "buffered", "buffer": 2}},
            "a buffer discounts late updates, and this algorithm uploads none",
        ),
        (
            {"failures": "corrupted"},
            "'corrupted' changes updates, and under PrototypeExchange clients upload none; leave "
            "it out",
        ),
        ({"engine": "batched"}, "compares features of"),
        ({"evaluate": {"diagnostics": True}}, "under 'fedproto' each has a model of its own"),
        (
            {"task": "quadratic", "partition": "by_writer", "split": {}},
            "the targets of this task are",
        ),
    ],
)
def test_what_prototypes_do_not_go_with(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, **keys, "algorithm": "fedproto"})
