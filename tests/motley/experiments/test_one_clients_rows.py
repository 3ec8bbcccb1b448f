"""How many rows one client brings changes nothing of any other client's."""

import numpy as np
import pytest
import torch

from motley import run
from motley.core.keys import Key, Streams
from motley.core.ragged import Ragged
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of, with_drift
from motley.tasks import from_arrays, from_clients, own_task
from motley.tasks.federate import Split, client_rows, federate, partition_input, stratified
from motley.tasks.task import Dataset

SIZES = (20, 13, 16, 24, 20)
MANY = 200
CHANGED = (0, 2, len(SIZES) - 1)
"""The first client, one in the middle, the last."""


def rows_of(client, size):
    """The first ``size`` samples of a client, whose first feature is the client's number."""
    rng = np.random.default_rng(client)
    x = rng.normal(size=(MANY, 3)).astype(np.float32)
    x[:, 0] = client
    return x[:size], rng.integers(0, 3, MANY)[:size]


def sizes_with(changed):
    return [MANY if k == changed else size for k, size in enumerate(SIZES)]


def table(folder, changed=None):
    lines = ["hospital,a,b,c,outcome"]
    for k, size in enumerate(sizes_with(changed)):
        for x, y in zip(*rows_of(k, size), strict=True):
            lines.append(f"h{k},{x[0]:.5f},{x[1]:.5f},{x[2]:.5f},{'uvw'[y]}")
    path = folder / f"{changed}.csv"
    path.write_text("\n".join(lines))
    return {
        "name": "tabular",
        "data": str(path),
        "client": "hospital",
        "label": "outcome",
        "scale": "none",
    }


def tables(folder, keys):
    """The federations of an experiment without a change, and with each client's."""
    for changed in (None, *CHANGED):
        given = {"partition": "by_writer", "cohort": 2, "stop": {"rounds": 1}, **keys}
        experiment = Experiment(task=table(folder, changed), **given)
        streams = Streams(experiment.seed)
        task = with_drift(experiment, streams, task_of(experiment, streams))
        yield changed, task.federation


def of_client(federation, k):
    """All that the federation says of a client: samples and labels of each part, shares."""
    out = {"noise": federation.noise[k], "domain": int(federation.domain[k])}
    for part in ("train", "validation", "test"):
        rows = torch.from_numpy(getattr(federation, part)[k])
        out[part] = (federation.x[rows].tolist(), federation.y[rows].tolist())
    at = slice(*federation.train.offsets[k : k + 2])
    out["labels"] = federation.labels[at].tolist()
    if federation.validation_labels is not None:
        at = slice(*federation.validation.offsets[k : k + 2])
        out["validation labels"] = federation.validation_labels[at].tolist()
    if federation.window is not None:
        out["window"] = int(federation.window[k])
    return out


def of_others(samples, client):
    """The samples, of those that no client has, that are not from this one."""
    return samples[samples[:, 0] != client].tolist()


DRAWS = {
    "split": {"split": {"validation": 0.25}},
    "common test set": {"split": {"test": "global"}},
    "samples of the server": {"split": {"server": 0.2}},
    "public samples": {"public": 0.2},
    "symmetric": {"label_noise": {"name": "symmetric", "rate": 0.4}},
    "inclusive": {"label_noise": {"name": "symmetric", "rate": 0.4, "inclusive": True}},
    "bernoulli": {"label_noise": {"name": "symmetric", "rate": 0.4, "mode": "bernoulli"}},
    "beta": {"label_noise": {"name": "beta", "mean": 0.3}, "split": {"validation": 0.25}},
    "pair flip": {"label_noise": {"name": "pair_flip", "rate": 0.3}},
    "label flip": {"label_noise": {"name": "label_flip", "share": 0.5}},
    "feature noise": {"feature_shift": {"name": "noise", "sigma": 0.5}},
    "concepts": {"concept_shift": {"name": "swap", "share": 1.0}},
    "window": {"drift": {"name": "window", "share": 0.5}},
    "swap": {"drift": {"name": "swap", "start": 3.0, "share": 1.0}},
}


@pytest.mark.parametrize("keys", DRAWS.values(), ids=DRAWS)
def test_other_clients_keep_their_data(tmp_path, keys):
    (_, plain), *others = tables(tmp_path, keys)
    assert plain.own_rows
    for changed, other in others:
        for k in range(len(SIZES)):
            assert (of_client(plain, k) == of_client(other, k)) == (k != changed)
        for one, two in zip(held_apart(plain), held_apart(other), strict=True):
            assert len(of_others(one, changed)) >= len(SIZES) - 1
            assert of_others(one, changed) == of_others(two, changed)


def held_apart(federation):
    """The samples of all clients that none of them keeps, by kind."""
    if federation.global_test is not None:
        yield federation.x[torch.from_numpy(federation.global_test)]
    if federation.server is not None:
        yield federation.server[0]
    if federation.public is not None:
        yield federation.public


def own(changed, seed=0):
    clients = [rows_of(k, size) for k, size in enumerate(sizes_with(changed))]
    return own_task(from_clients(clients, seed=seed), lambda: torch.nn.Linear(3, 3))


def test_other_clients_of_arrays_keep_their_data():
    """Clients given one by one, and in one array in any order of rows."""
    plain = own(None).federation
    for changed in CHANGED:
        other = own(changed).federation
        clients = [rows_of(k, size) for k, size in enumerate(sizes_with(changed))]
        x, y = (np.concatenate(each) for each in zip(*clients, strict=True))
        owner = np.repeat(np.arange(len(SIZES)), sizes_with(changed))
        mixed = np.argsort(np.random.default_rng(0).permutation(len(x)) % 7, kind="stable")
        whole = from_arrays(x[mixed], y[mixed], owner[mixed])
        for k in range(len(SIZES)):
            assert (of_client(plain, k) == of_client(other, k)) == (k != changed)
            assert len(whole.test[k]) == len(other.test[k])


TRAINED = {
    "batches": {"local": {"epochs": None, "steps": 5, "batch_size": 4}},
    "an optimizer": {"local": {"steps": 3, "batch_size": 4, "optimizer": {"name": "adam"}}},
    "window": {"drift": {"name": "window", "share": 0.4}, "local": {"steps": 3, "batch_size": 2}},
    "label noise": {"label_noise": {"name": "symmetric", "rate": 0.5}, "local": {"steps": 4}},
    "poisson": {"selector": {"name": "poisson", "rate": 0.999}},
    "batched": {"engine": {"name": "batched", "threads": 1}},
}
"""What of a client is drawn while it trains."""


@pytest.mark.parametrize("keys", TRAINED.values(), ids=TRAINED)
def test_other_clients_train_alike(tmp_path, keys):
    """In round 1 all clients start from the same model: whoever keeps its data and draws sends the
    same update."""
    rounds = {}
    for changed in (None, *CHANGED):
        given = {
            "partition": "by_writer",
            "cohort": len(SIZES),
            "weights": "uniform",
            "stop": {"rounds": 1},
            "dtype": "float64",
            "local": {"steps": 2, "batch_size": 4},
            "engine": "sequential",
            **keys,
        }
        given["local"] = {key: value for key, value in given["local"].items() if value is not None}
        found = run({"task": table(tmp_path, changed), **given})
        rows = found.tables["clients"].to_pylist()
        rounds[changed] = {row["client"]: (row["loss"], row["update_norm"]) for row in rows}
    assert sorted(rounds[None]) == list(range(len(SIZES)))
    for changed in CHANGED:
        for k in range(len(SIZES)):
            same = rounds[None][k] == pytest.approx(rounds[changed][k], rel=1e-12)
            assert same == (k != changed)


def test_other_clients_are_probed_on_the_same_samples():
    """A probe of two batches: which of its samples a client measures."""

    def measured(changed):
        keys = {"cohort": 2, "stop": {"rounds": 1}, "local": {"steps": 1, "batch_size": 4}}
        loop = build(Experiment(task=own(changed), partition="by_writer", **keys))
        samples = loop.engine.samples.training
        ids = np.arange(len(SIZES))
        places, owner = loop.engine.prober.draw_samples(samples, ids, 2, Key(3))
        return [(places - samples.offsets[owner])[owner == k].tolist() for k in ids]

    plain = measured(None)
    assert [len(places) for places in plain] == [8] * len(SIZES)
    for changed in CHANGED:
        other = measured(changed)
        assert [plain[k] == other[k] for k in range(len(SIZES))] == [
            k != changed for k in range(len(SIZES))
        ]


def test_a_pool_that_is_dealt_out_keeps_its_draws():
    """Rows of a pool are split by their own numbers, whoever has them, as they always were."""
    x, y = rows_of(1, 60)
    dataset = Dataset(torch.from_numpy(x), torch.from_numpy(y), 3, np.zeros(60, bool))
    split = Split(test_fraction=0.25)
    rows = partition_input(dataset, split, Key(0))
    parts = Ragged.of([np.arange(0, 60, 2), np.arange(1, 60, 2)])
    federation = federate(dataset, rows, parts, split, Key(0))
    owner = np.repeat([0, 1], 30)
    taken = stratified(parts.values, owner, y[parts.values], 0.25, Key(0).fold("test"))
    assert not federation.own_rows
    assert federation.test.values.tolist() == parts.values[taken].tolist()


def test_a_row_is_numbered_by_its_client_and_its_place_there_by_hand():
    found = client_rows(np.array([2, 0, 2, 2, 0]))
    assert found.tolist() == [2 << 32, 0, (2 << 32) + 1, (2 << 32) + 2, 1]
