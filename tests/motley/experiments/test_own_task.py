"""Data and model of one's own through the whole of run: named ``own``, covered by the run's id,
refused where they do not fit."""

from __future__ import annotations

import copy
import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from motley.core.errors import ConfigError, StoreError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import run, with_own
from motley.tasks import from_clients, own_task
from motley.tasks.task import Federation, Task
from tests.places import PYTHONPATH

KEYS: dict[str, Any] = {"cohort": 2, "stop": {"rounds": 2}, "evaluate": {"every": 1}}


def _task(seed: int = 0, test: Any = "client") -> Task:
    rng = np.random.default_rng(seed)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(4)]
    return own_task(from_clients(clients, test_fraction=0.25, test=test), lambda: nn.Linear(3, 2))


def test_the_task_may_be_left_out_or_called_own(tmp_path: Path) -> None:
    left_out = run(KEYS, task=_task(), out=tmp_path / "1")
    named = run(Experiment(task="own", **KEYS), task=_task(), out=tmp_path / "2")
    file = tmp_path / "exp.toml"
    file.write_text("cohort = 2\nstop = { rounds = 2 }\nevaluate = { every = 1 }\n")
    written = run(file, task=_task(), out=tmp_path / "3")
    for other in (named, written):
        assert left_out.tables["evaluations"].equals(other.tables["evaluations"])
        assert left_out.meta["run_id"] == other.meta["run_id"]


def test_the_loop_itself_needs_no_key_of_the_task_either() -> None:
    assert len(build(KEYS, task=_task()).state.server.model.x)
    with pytest.raises(ConfigError, match=r"task.name: got 'image' and a task of your own"):
        build({**KEYS, "task": "image", "population": 4}, task=_task())


def test_an_empty_experiment_misses_its_stop_only(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"^stop: this key is missing and has no default$"):
        run({}, task=_task(), out=tmp_path)


def test_other_data_is_another_run(tmp_path: Path) -> None:
    ids = {run(KEYS, task=_task(seed), out=tmp_path / str(seed)).meta["run_id"] for seed in (0, 1)}
    assert len(ids) == 2


def test_a_common_test_set_makes_the_headline(tmp_path: Path) -> None:
    done = run(KEYS, task=_task(test="global"), out=tmp_path)
    assert done.config["split"]["test"] == "global"
    assert "global" in done.column("evaluations", "scope")


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"task": "image", "population": 4},
            r"task.name: got 'image' and a task of your own beside it; write task = \"own\"",
        ),
        (
            {"population": 7},
            "population: got 7; the data has 4 clients of its own, leave this key out",
        ),
        ({"cohort": 9}, "cohort: got 9, more than the population of 4"),
        (
            {"partition": {"name": "dirichlet", "alpha": 0.1}, "population": 4},
            r"partition: the federation is your own, and this key would change nothing in it; "
            "leave it out$",
        ),
        (
            {"label_noise": {"name": "symmetric", "rate": 0.3}},
            "label_noise: .* change the labels before the federation is made",
        ),
        ({"feature_shift": "noise"}, "feature_shift: .* change the inputs before"),
        ({"concept_shift": "swap"}, "concept_shift: .* change the labels before"),
        ({"public": 0.1}, r"public: .* dataclasses.replace\(federation, public=inputs\)"),
        (
            {"split": {"server": 0.1}},
            r"split.server: .* dataclasses.replace\(federation, server=\(x, labels\)\)",
        ),
        (
            {"split": {"test_fraction": 0.4}},
            "split.test_fraction: .* write test_fraction where it is made, as in from_clients",
        ),
        ({"split": {"validation": 0.1}}, "split.validation: .* write validation where it is made"),
        ({"split": {"halves": "training"}}, "split.halves: .* leave it out$"),
        ({"split": {"test": "global"}}, "split.test: .* its tests are 'client'$"),
    ],
)
def test_what_does_not_fit_is_refused(keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message):
        run({**KEYS, **keys}, task=_task(), out=tmp_path)
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, **keys}, task=_task())


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"method": "flash"}, r"from_clients\(..., validation=0.2\)"),
        ({"selector": "greedyfed"}, r"replace\(federation, server=\(inputs, labels\)\)"),
        ({"algorithm": "feddf"}, r"replace\(federation, public=inputs\)"),
    ],
)
def test_what_a_method_lacks_is_written_where_the_federation_is_made(
    keys: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError, match=line):
        build({**KEYS, **keys}, task=_task())


def test_samples_of_a_server_of_ones_own_are_used() -> None:
    task = _task()
    federation = dataclasses.replace(
        task.federation, server=(torch.zeros(4, 3), torch.tensor([0, 1, 0, 1]))
    )
    loop = build(
        {**KEYS, "selector": "greedyfed"}, task=own_task(federation, lambda: nn.Linear(3, 2))
    )
    assert loop.step().round == 1


def test_an_experiment_called_own_without_its_task_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"task: this task's data and model are Python objects; use motley.run"
    ):
        run({**KEYS, "task": "own"}, out=tmp_path)


# --------------------------------------------------------------------------- what the run id covers


class Net(nn.Module):
    """A small network with everything that may differ."""

    def __init__(
        self, width: int = 4, p: float = 0.5, frozen: bool = False, scale: float = 1.0
    ) -> None:
        super().__init__()
        self.first = nn.Linear(3, width)
        self.norm = nn.BatchNorm1d(width)
        self.drop = nn.Dropout(p)
        self.last = nn.Linear(width, 2)
        self.first.requires_grad_(not frozen)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale * self.last(self.drop(self.norm(self.first(x)).relu()))
        return out


class Deeper(Net):
    """The same weights and another forward."""

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.scale * self.last(self.drop(self.norm(self.first(x)).tanh()))
        return out


def _federation(seed: int = 0, **changes: Any) -> Federation:
    rng = np.random.default_rng(seed)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(4)]
    return dataclasses.replace(from_clients(clients, test_fraction=0.25, validation=0.2), **changes)


def _pretrained(nudge: float = 0.0, buffers: float = 0.0) -> Net:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        net = Net()
    with torch.no_grad():
        net.last.bias[0] += nudge
        net.norm.running_mean += buffers  # type: ignore[operator]
    return net


def _transform(shift: float) -> Callable[[Tensor, Any], Tensor]:
    return lambda x, key: x + shift


def _fed(**changes: Any) -> Callable[[], Task]:
    return lambda: own_task(_federation(**changes), Net)


def _copies(net: Net) -> Callable[[], Task]:
    return lambda: own_task(_federation(), lambda: copy.deepcopy(net))


def _own(model: Callable[[], nn.Module], **keys: Any) -> Callable[[], Task]:
    return lambda: own_task(_federation(), model, **keys)


_BASE = _federation()
_NOISY = torch.where(torch.arange(len(_BASE.labels)) == 0, 1 - _BASE.labels, _BASE.labels)
VARIANTS: dict[str, Callable[[], Task]] = {
    "as it is": _own(Net),
    "other samples": _fed(seed=1),
    "noisy labels": _fed(labels=_NOISY),
    "shares of noise": _fed(noise=np.full(4, 0.25)),
    "noisy labels for validation": _fed(
        validation_labels=1 - _BASE.y[torch.from_numpy(_BASE.validation.values)]
    ),
    "another client has a sample": _fed(test=_BASE.validation, validation=_BASE.test),
    "samples of the server": _fed(server=(_BASE.x[:3], _BASE.y[:3])),
    "public samples": _fed(public=_BASE.x[:3]),
    "a window of samples": _fed(window=np.full(4, 2)),
    "domains": _fed(domain=np.arange(4)),
    "clusters": _fed(cluster=np.arange(4)),
    "pretrained weights": _copies(_pretrained()),
    "one other weight": _copies(_pretrained(nudge=1e-6)),
    "other statistics": _copies(_pretrained(buffers=1.0)),
    "a frozen layer": _own(lambda: Net(frozen=True)),
    "another dropout rate": _own(lambda: Net(p=0.25)),
    "another width": _own(lambda: Net(width=5)),
    "an attribute that is no parameter": _own(lambda: Net(scale=2.0)),
    "another forward": _own(Deeper),
    "another loss": _own(Net, loss="focal"),
    "a transform": _own(Net, transform=_transform(1.0)),
    "a value in the transform's closure": _own(Net, transform=_transform(2.0)),
    "another transform": _own(Net, transform=lambda x, key: 2 * x),
}


def test_each_change_of_data_weights_or_code_is_another_run() -> None:
    ids = {name: with_own(KEYS, make()).run_id() for name, make in VARIANTS.items()}
    again = {name: with_own(KEYS, make()).run_id() for name, make in VARIANTS.items()}
    assert ids == again
    assert len(set(ids.values())) == len(VARIANTS) > 15


def test_a_pretrained_start_is_not_answered_with_an_earlier_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fresh = run(KEYS, task=VARIANTS["as it is"]())
    pretrained = run(KEYS, task=VARIANTS["pretrained weights"]())
    assert fresh.directory != pretrained.directory
    assert not fresh.tables["evaluations"].equals(pretrained.tables["evaluations"])


def test_the_same_program_in_another_process_is_the_same_run() -> None:
    line = (
        "from tests.motley.experiments.test_own_task import *; print([with_own(KEYS, "
        "VARIANTS[n]()).run_id() for n in sorted(VARIANTS)])"
    )
    other = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    env = {**os.environ, "PYTHONHASHSEED": other, "PYTHONPATH": PYTHONPATH}
    there = subprocess.run(
        [sys.executable, "-c", line], env=env, capture_output=True, text=True, check=True
    ).stdout
    here = [with_own(KEYS, VARIANTS[name]()).run_id() for name in sorted(VARIANTS)]
    assert there.strip() == str(here)


class _Locked:
    """A transform that holds what no fingerprint covers."""

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __call__(self, x: Tensor, key: Any) -> Tensor:
        return x


def test_what_has_no_fingerprint_gets_a_new_folder_and_never_an_existing_one(
    tmp_path: Path,
) -> None:
    def task() -> Task:
        return own_task(_federation(), Net, transform=_Locked())

    assert run(KEYS, task=task(), out=tmp_path / "1").finished
    for resume in (False, True):
        with pytest.raises(
            StoreError,
            match=r"holds a run, and nothing says whether it is this one, for 'transform', 'lock' "
            r"is a lock",
        ):
            run(KEYS, task=task(), out=tmp_path / "1", resume=resume)
    assert run(KEYS, task=task(), out=tmp_path / "2").finished


def test_a_factory_that_draws_from_numpy_has_no_fingerprint(tmp_path: Path) -> None:
    def factory() -> nn.Module:
        net = nn.Linear(3, 2)
        with torch.no_grad():
            net.bias.fill_(float(np.random.default_rng().random()))
        return net

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("motley.tasks.own._try", lambda *parts: torch.ones(2, 2))
        experiment = with_own(KEYS, own_task(_federation(), factory))
    assert "other weights each time it is made" in str(experiment.unknown())


WEIGHT = torch.tensor([1.0, 3.0])


def _weighted(weight: Tensor) -> Task:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(4)]
    return own_task(
        from_clients(clients, test_fraction=0.25),
        lambda: nn.Linear(3, 2),
        loss=nn.CrossEntropyLoss(weight=weight),
        over="batch",
    )


@pytest.mark.parametrize(
    ("dtype", "weight", "words"),
    [
        ("float64", WEIGHT, r"of float32 alone, and the run's are float64 .*weight.double\(\)"),
        ("float32", WEIGHT.double(), r"of float64 alone, .* float32 .*weight=weight.float\(\)"),
    ],
)
def test_a_loss_of_another_type_than_the_run_is_refused_with_the_mend(
    dtype: str, weight: Tensor, words: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=words):
        run({**KEYS, "dtype": dtype}, task=_weighted(weight), out=tmp_path)


def test_class_weights_of_the_runs_type_train_as_in_torch(tmp_path: Path) -> None:
    """One step of one client with all its samples: w - lr * gradient, by torch itself."""
    rng = np.random.default_rng(0)
    federation = from_clients([(rng.normal(size=(20, 3)), np.arange(20) % 2)], test_fraction=0.25)
    loss = nn.CrossEntropyLoss(weight=WEIGHT.double())
    task = own_task(federation, lambda: nn.Linear(3, 2), loss=loss, over="batch")
    keys = {
        "cohort": 1,
        "stop": {"rounds": 1},
        "dtype": "float64",
        "local": {"steps": 1, "batch_size": 15, "optimizer": {"lr": 0.1}},
    }
    start = build(keys, task=task).state.server.model.x.clone()
    done = run(keys, task=task, out=tmp_path).module()
    plain = nn.Linear(3, 2).double()
    nn.utils.vector_to_parameters(start, plain.parameters())
    rows = torch.from_numpy(federation.train[0])
    loss(plain(federation.x[rows].double()), federation.y[rows]).backward()
    for trained, parameter in zip(done.parameters(), plain.parameters(), strict=True):
        assert parameter.grad is not None
        torch.testing.assert_close(
            trained.double(), parameter.detach() - 0.1 * parameter.grad, rtol=0, atol=1e-12
        )


@pytest.mark.parametrize("own", [False, True])
def test_a_run_is_the_same_whatever_torchs_defaults_are_and_leaves_them(
    own: bool, tmp_path: Path
) -> None:
    """The same id means the same numbers: weights drawn in float64 are others. What the caller
    draws afterwards is as if there had been no run."""
    keys: dict[str, Any] = KEYS
    if not own:
        keys = {**KEYS, "task": {"name": "image", "data": "digits"}, "population": 4}
        keys["partition"] = {"name": "dirichlet", "alpha": 0.5}
    given = {"task": _task()} if own else {}
    plain = run(keys, out=tmp_path / "plain", **given)  # type: ignore[arg-type]
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        given = {"task": _task()} if own else {}
        with torch.no_grad(), pytest.warns(UserWarning, match="default type is float64"):
            other = run(keys, out=tmp_path / "other", **given)  # type: ignore[arg-type]
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_default_device().type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_default_device(None)
    assert torch.equal(torch.rand(3), expected)
    assert other.meta["run_id"] == plain.meta["run_id"]
    states = [done.module().state_dict() for done in (plain, other)]
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_loop_is_built_whatever_torch_s_default_type_is() -> None:
    """A convolution counts its operations, and BatchNorm is tried on one sample, in float32."""
    keys = {**KEYS, "task": {"name": "image", "data": "digits"}, "population": 4}
    keys["partition"] = "iid"
    torch.set_default_dtype(torch.float64)
    try:
        for model in ("simple_cnn", {"name": "digits_mlp", "norm": "batch"}):
            task = {**keys["task"], "model": model}
            assert build({**keys, "task": task}).step().round == 1
    finally:
        torch.set_default_dtype(torch.float32)
