"""A finished run gives its module, its predictions and its clients' models, from Python and from
its folder alone."""

from __future__ import annotations

import dataclasses
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import motley
from motley.core.errors import ConfigError, DataError, ModelError, StoreError
from motley.core.files import with_digest
from motley.experiments.build import build
from motley.experiments.client_models import save_client_models
from motley.experiments.run import run
from motley.tasks import from_clients, own_task
from motley.tasks.task import Task
from motley_data.tabular import Tabular

KEYS: dict[str, Any] = {
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 2},
    "evaluate": {"every": 1, "per_client": True},
}


class Normed(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def _task(model: Any = lambda: nn.Linear(3, 2), **options: Any) -> Task:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(loc=k, size=(20, 3)), np.arange(20) % 2) for k in range(4)]
    return own_task(from_clients(clients, test_fraction=0.25), model, **options)


@pytest.mark.parametrize(
    "task",
    [
        {"name": "tabular", "data": "wine", "model": {"name": "mlp", "hidden": [8]}},
        {"name": "tabular", "data": "wine", "scale": "none"},
        {"name": "image", "data": "digits", "model": "logistic_regression"},
    ],
)
def test_predictions_on_own_test_rows_give_the_accuracy_of_the_last_evaluation(
    task: dict[str, Any], tmp_path: Path
) -> None:
    """The samples are given as the data set has them, and the folder alone says how they are
    scaled."""
    keys = {**KEYS, "task": task, "split": {"test": "global"}}
    run(keys, out=tmp_path / "run")
    done = motley.load(tmp_path / "run")
    data = build(keys).federation
    from sklearn import datasets

    raw = (
        datasets.load_wine().data if task["data"] == "wine" else datasets.load_digits().images / 16
    )
    rows = data.global_test
    assert rows is not None
    classes = data.y[rows].numpy()
    hits = done.predict(raw[rows]) == (np.array(data.names)[classes] if data.names else classes)
    in_table = done.column("evaluations", "scope") == "global"
    assert hits.mean() == pytest.approx(done.column("evaluations", "accuracy")[in_table][-1])
    shares = done.predict(raw[rows[:5]], probabilities=True)
    np.testing.assert_allclose(shares.sum(1), 1.0, rtol=1e-5)
    assert not done.module().training


def test_a_regression_gives_numbers(tmp_path: Path) -> None:
    done = run({**KEYS, "task": "tabular_regression"}, out=tmp_path / "run")
    x = torch.zeros(3, 10)
    assert done.predict(x).shape == (3,)
    with pytest.raises(
        DataError, match=r"got an array of shape \[3, 9\]; expected \[n, 10\] \(age, sex, "
    ):
        done.predict(np.zeros((3, 9)))


def test_a_model_from_python_is_known_to_the_run_and_given_again_after_loading(
    tmp_path: Path,
) -> None:
    task = _task(transform=lambda x, key: x / 2)
    done = motley.run(KEYS, task=task, out=tmp_path / "run")
    x = np.ones((2, 3))
    module = done.module()
    with torch.no_grad():
        expected = module(torch.ones(2, 3) / 2).argmax(1)
    assert done.predict(x).tolist() == expected.tolist()
    found = motley.load(tmp_path / "run")
    with pytest.raises(
        ConfigError,
        match=r"came from Python, .*motley.load\(directory, task=task\), or "
        r".module\(factory=make_module\)",
    ):
        found.module()
    assert torch.equal(found.module(factory=lambda: nn.Linear(3, 2)).weight, module.weight)  # type: ignore[arg-type, union-attr]
    assert motley.load(tmp_path / "run", task=task).predict(x).tolist() == expected.tolist()
    with pytest.raises(
        ModelError, match=r"the module is not the one of this run: .*size mismatch for weight"
    ):
        found.module(factory=lambda: nn.Linear(4, 2))
    with pytest.raises(ConfigError, match="got 'last'; expected 'final' or 'best'"):
        found.module("last")
    with pytest.raises(
        StoreError, match=r"has no best.safetensors: set split = \{ validation = 0.2 \}"
    ):
        found.module("best")
    with pytest.raises(DataError, match=r"got samples of shape \[2, 4\]; expected \['n', 3\]"):
        done.predict(np.ones((2, 4)))
    for given in (["a", "b"], {"x": 1}, [[1, 2], [3]], None):
        with pytest.raises(
            DataError, match=rf"got a {type(given).__name__} that is no array .* \['n', 3\]"
        ):
            done.predict(given)
    with pytest.warns(UserWarning, match=r"got bytes \(uint8\), and this run learned from float.*"):
        done.predict(np.full((2, 3), 255, np.uint8))


def test_fedbn_clients_have_normalisation_of_their_own(tmp_path: Path) -> None:
    task = _task(Normed)
    keys = {**KEYS, "stop": {"rounds": 1}, "algorithm": "fedbn"}
    done = motley.run(keys, task=task, out=tmp_path / "run")
    taken = sorted(done.column("clients", "client").tolist())
    shared = done.module().state_dict()
    assert len(done.clients()) == 4
    for k, model in enumerate(done.clients()):
        own = model.module().state_dict()
        differing = {name for name in own if not torch.equal(own[name], shared[name])}
        if k in taken:
            assert (
                {"1.running_mean", "1.running_var", "1.weight"}
                <= differing
                <= {n for n in own if n.startswith("1.")}
            )
        else:
            assert not differing
        test = task.federation.test[k]
        rows = (done.column("evaluations", "client") == k) & (
            done.column("evaluations", "round") == 1
        )
        hits = model.predict(task.federation.x[test]) == task.federation.y[test].numpy()
        assert hits.mean() == pytest.approx(done.column("evaluations", "accuracy")[rows][0])
    assert motley.load(tmp_path / "run", task=task).personal
    (tmp_path / "run" / "clients.safetensors").unlink()
    with pytest.raises(
        StoreError,
        match=r"clients.safetensors is not there: the models of clients are written at the end",
    ):
        done.clients()[0].module()
    with pytest.raises(IndexError, match=r"there is no client 4; this run has clients 0 .. 3"):
        done.clients()[4]
    with pytest.raises(IndexError, match="there is no client -5"):
        done.clients()[-5]
    assert [done.clients()[k].client for k in (-1, -4)] == [3, 0]


def test_models_of_clients_that_take_too_much_are_not_stored(tmp_path: Path) -> None:
    loop = build(
        {**KEYS, "algorithm": "fedbn", "task": "own", "partition": "by_writer"}, task=_task(Normed)
    )
    loop.step()
    assert loop.personal_models(loop.state.server) is not None
    each = 4 * 4 * 4 + 8  # four vectors of four numbers and a counter
    save_client_models(loop, tmp_path, limit_bytes=2 * each - 1)
    assert not list(tmp_path.iterdir())
    save_client_models(loop, tmp_path, limit_bytes=2 * each)
    assert [path.name for path in tmp_path.iterdir()] == ["clients.safetensors"]


def test_clients_of_other_algorithms_have_the_shared_model(tmp_path: Path) -> None:
    done = motley.run(KEYS, task=_task(), out=tmp_path / "run")
    x = np.random.default_rng(1).normal(size=(5, 3))
    assert not done.personal
    assert not (tmp_path / "run" / "clients.safetensors").exists()
    assert done.clients()[3].predict(x).tolist() == done.predict(x).tolist()


def test_clients_that_scale_by_their_own_rows_predict_with_their_own_scaling(
    tmp_path: Path,
) -> None:
    """Client k's numbers are around 100 k: only its own scaling makes sense of them."""
    rng = np.random.default_rng(0)
    owner = np.arange(80) % 4
    level = rng.normal(size=80)
    table = {
        "level": level + 100.0 * owner,
        "grade": ["high" if one > 0 else "low" for one in rng.normal(size=80)],
    }
    label = np.where(level > 0, "ill", "well")
    federation = motley.tasks.from_arrays(table, label, owner, table={"scale": "client"})
    task = own_task(federation, lambda: nn.Linear(3, 2))
    keys = {
        **KEYS,
        "cohort": 4,
        "stop": {"rounds": 30},
        "local": {"epochs": 5, "optimizer": {"name": "sgd", "lr": 0.5}},
    }
    done = motley.run(keys, task=task, out=tmp_path / "run")
    rows = [{"level": 300.0 + shift, "grade": "low"} for shift in (-2.0, 2.0)]
    assert done.clients()[3].predict(rows).tolist() == ["well", "ill"]
    with pytest.raises(ConfigError, match=r"each client scales by its own rows"):
        done.predict(rows)
    assert '"kind": "words"' in (tmp_path / "run" / "preparation.json").read_text()


def test_the_best_round_by_validation_has_a_module_of_its_own(tmp_path: Path) -> None:
    task = {"name": "tabular", "data": "wine"}
    keys = {
        **KEYS,
        "task": task,
        "split": {"validation": 0.25},
        "stop": {"rounds": 6},
        "local": {"optimizer": {"lr": 1.0}},
    }
    done = run(keys, out=tmp_path / "run")
    best, final = (done.module(which).state_dict() for which in ("best", "final"))
    stored = load_file(tmp_path / "run" / "best.safetensors")
    assert all(torch.equal(best[name], stored[name]) for name in stored)
    assert done.predict(np.ones((2, 13)), which="best").shape == (2,)
    assert best.keys() == final.keys()


def test_runs_of_older_versions_say_what_they_lack(tmp_path: Path) -> None:
    run({**KEYS, "task": "tabular"}, out=tmp_path / "run")
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    del record["task"]["samples"]
    (tmp_path / "run" / "run.json").write_text(json.dumps(with_digest(record)))
    with pytest.raises(
        StoreError,
        match="was made by an older version, which did not write down the form of its samples",
    ):
        motley.load(tmp_path / "run").predict(np.ones((1, 30)))


@dataclasses.dataclass(frozen=True)
class Wine(Tabular):
    data: str = "wine"


def test_a_task_given_as_an_object_is_known_to_the_run(tmp_path: Path) -> None:
    done = motley.run({**KEYS, "task": Wine()}, out=tmp_path / "run")
    x = np.ones((2, 13))
    found = done.predict(x).tolist()
    with pytest.raises(
        ConfigError, match=r"Wine', which imports a module .*allow_import=True in Python"
    ):
        motley.load(tmp_path / "run").predict(x)
    assert motley.load(tmp_path / "run", task=Wine()).predict(x).tolist() == found
    assert motley.load(tmp_path / "run", allow_import=True).predict(x).tolist() == found


OWN_NET = """
from dataclasses import dataclass

from torch import nn

from motley.tasks.models import Model


@dataclass(frozen=True)
class Net(Model):
    hidden: int = 4

    def build(self, shape, outputs):
        layers = nn.Linear(shape[0], self.hidden), nn.ReLU(), nn.Linear(self.hidden, outputs)
        return nn.Sequential(*layers)
"""


def test_a_model_named_by_its_module_predicts_in_a_new_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The factory is called where imports are allowed; before, it was called after they had been
    closed again."""
    (tmp_path / "my_nets.py").write_text(OWN_NET)
    monkeypatch.syspath_prepend(tmp_path)
    model = {"name": "my_nets:Net", "hidden": 5}
    keys = {**KEYS, "task": {"name": "tabular", "data": "wine", "model": model}}
    done = motley.run(keys, out=tmp_path / "run", allow_import=True)
    expected = done.predict(np.ones((2, 13))).tolist()
    code = (
        "import motley, numpy as np\n"
        "x = np.ones((2, 13))\n"
        "try:\n    motley.load('run').predict(x)\nexcept motley.ConfigError as error:\n    "
        "print(error)\nprint(motley.load('run', allow_import=True).predict(x).tolist())\n"
        "print(motley.load_all('.', allow_import=True)[0].predict(x).tolist())\n"
    )
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    said = made.stdout.splitlines()
    assert said[1:] == [str(expected)] * 2, made.stderr
    assert "got 'my_nets:Net', which imports a module" in said[0]
    assert "allow_import=True in Python" in said[0]


def test_all_runs_of_a_folder_predict(tmp_path: Path) -> None:
    for seed in (0, 1):
        run({**KEYS, "task": "tabular", "seed": seed}, out=tmp_path / f"{seed}")
    found = motley.load_all(tmp_path)
    assert [one.seed for one in found] == [0, 1]
    assert [one.predict(np.ones((3, 30))).shape for one in found] == [(3,)] * 2
    task = _task()
    motley.run(KEYS, task=task, out=tmp_path / "own" / "a")
    assert motley.load_all(tmp_path / "own", task=task)[0].predict(np.ones((2, 3))).shape == (2,)


def test_a_model_of_text_reads_text(tmp_path: Path) -> None:
    for name, text in (("ann", "abcabcabc" * 20), ("bob", "abccba" * 30)):
        (tmp_path / "texts").mkdir(exist_ok=True)
        (tmp_path / "texts" / f"{name}.txt").write_text(text)
    task = {
        "name": "text",
        "data": str(tmp_path / "texts"),
        "window": 8,
        "model": {"name": "leaf_lstm", "hidden": 8},
    }
    keys = {"task": task, "cohort": 2, "stop": {"rounds": 1}, "partition": "by_writer"}
    done = motley.run(keys, out=tmp_path / "run")
    assert done.predict(["abca", "cabx"]).shape == (2, 4)
    assert done.predict("abcabcabcabc", probabilities=True).shape == (1, 8, 4)
    assert set(done.predict("abc")[0]) <= {"a", "b", "c", "unknown"}
    with pytest.raises(DataError, match="texts of different lengths"):
        done.predict(["ab", "a"])
    with pytest.raises(
        DataError, match="got a ndarray; expected a text, or a list of texts that are not empty"
    ):
        done.predict(np.zeros(3))


def test_a_run_that_is_not_finished_has_no_module(tmp_path: Path) -> None:
    def stop(done: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run({**KEYS, "task": "tabular"}, out=tmp_path / "run", on_round=stop)
    with pytest.raises(
        StoreError, match=r"has no model.safetensors: its model is written at the end"
    ):
        motley.load(tmp_path / "run").predict(np.zeros((1, 30)))


@pytest.fixture(scope="module")
def with_all_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a run with every file of models; tests change copies of it."""
    task = {
        "name": "tabular",
        "data": "wine",
        "model": {"name": "mlp", "hidden": [4], "norm": "batch"},
    }
    split = {"test": "client", "validation": 0.2}
    folder = tmp_path_factory.mktemp("run")
    run({**KEYS, "task": task, "algorithm": "fedbn", "split": split}, out=folder)
    return folder


@pytest.mark.parametrize(
    "name", ["model.safetensors", "best.safetensors", "clients.safetensors", "preparation.json"]
)
@pytest.mark.parametrize("cut", [False, True])
def test_a_changed_model_is_refused(
    name: str, cut: bool, with_all_files: Path, tmp_path: Path
) -> None:
    """One bit of a weight reads as another weight; the record has a digest of every file that a run
    is read from."""
    shutil.copytree(with_all_files, tmp_path, dirs_exist_ok=True)
    done = motley.load(tmp_path)
    data = bytearray((tmp_path / name).read_bytes())
    data[-3] ^= 4
    (tmp_path / name).write_bytes(data[:-1] if cut else data)
    reads = {
        "model.safetensors": done.module,
        "best.safetensors": lambda: done.module("best"),
        "clients.safetensors": lambda: done.clients()[0].module(),
        "preparation.json": lambda: done.predict(np.ones((1, 13))),
    }
    with pytest.raises(
        DataError, match=f"{name} (has|is damaged).*; restore the file, or make the run again"
    ):
        reads[name]()
