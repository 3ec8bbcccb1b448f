"""A run that begins with weights of a file or of another run: what is loaded, what is refused, what
the run id covers."""

from __future__ import annotations

import os
import pickle
from collections import OrderedDict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from motley.core.errors import ConfigError, DataError, ModelError
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.tasks import from_clients, initial_weights, own_task
from motley.tasks.task import Task

KEYS: dict[str, Any] = {"cohort": 2, "stop": {"rounds": 2}, "evaluate": {"every": 1}}
DIGITS: dict[str, Any] = {
    **KEYS,
    "population": 6,
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "local": {"batch_size": 32},
}


class Adapted(nn.Module):
    """A frozen backbone with a statistics layer and a small trainable head."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 2)
        self.backbone.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(self.backbone(x)).relu())
        return out


def _task() -> Task:
    rng = np.random.default_rng(0)
    clients = [(rng.normal(size=(20, 3)), np.arange(20) % 2) for _ in range(4)]
    return own_task(from_clients(clients, test_fraction=0.25), Adapted)


def _weights(seed: int = 1) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state = Adapted().state_dict()
    return {
        name: value + 1 if value.is_floating_point() else value for name, value in state.items()
    }


def _saved(path: Path, weights: dict[str, Tensor]) -> Path:
    save_file(weights, path) if path.suffix == ".safetensors" else torch.save(
        OrderedDict(weights), path
    )
    return path


@pytest.mark.parametrize("suffix", [".safetensors", ".pt"])
def test_the_model_begins_with_the_file_frozen_parts_and_buffers_too(
    suffix: str, tmp_path: Path
) -> None:
    weights = _weights()
    init = _saved(tmp_path / f"w{suffix}", weights)
    untrained = run(
        {**KEYS, "init": init, "local": {"optimizer": {"lr": 1e-30}}},
        task=_task(),
        out=tmp_path / "run",
    )
    final = load_file(untrained.directory / "model.safetensors")
    for name, value in weights.items():
        if name.startswith(("backbone", "head")):
            assert torch.equal(final[name], value), name
    loop = build(Experiment(**KEYS, task=_task(), init=str(init)))
    assert torch.equal(loop.state.server.model.buffers[:4], weights["norm.running_mean"])
    assert (
        untrained.meta["task"]["notes"]["initial weights"]
        == f"9 of 9 entries of the model from {init}"
    )


def test_a_run_begins_where_another_ended(tmp_path: Path) -> None:
    first = run(Experiment(**DIGITS), out=tmp_path / "first")
    second = run(Experiment(**DIGITS, init=first.directory), out=tmp_path / "second")
    last, begin = (one.tables["evaluations"].to_pylist() for one in (first, second))
    before = [(row["scope"], row["client"], row["loss"]) for row in last if row["round"] == 2]
    assert before == [
        (row["scope"], row["client"], row["loss"]) for row in begin if row["round"] == 0
    ]
    by_file = Experiment(**DIGITS, init=first.directory / "model.safetensors")
    assert by_file.run_id() == second.meta["run_id"]
    again = Experiment(**second.config)
    assert again.run_id() == second.meta["run_id"]


def test_the_weights_count_for_the_run_id_and_their_place_does_not(tmp_path: Path) -> None:
    weights = _weights()
    other = _weights()
    other["head.bias"] = other["head.bias"] + 1e-6
    ids = {
        name: Experiment(**DIGITS, init=_saved(tmp_path / name, values)).run_id()
        for name, values in (
            ("a.safetensors", weights),
            ("b.pt", weights),
            ("c.safetensors", other),
        )
    }
    assert ids["a.safetensors"] == ids["b.pt"] != ids["c.safetensors"]
    assert Experiment(**DIGITS).run_id() not in ids.values()


def test_weights_that_changed_since_are_refused_and_a_file_that_is_gone_only_when_it_is_needed(
    tmp_path: Path,
) -> None:
    file = _saved(tmp_path / "w.safetensors", _weights())
    config = Experiment(**DIGITS, init=file).resolved()
    changed = Path(file).stat().st_mtime_ns
    _saved(file, _weights(seed=2))
    os.utime(file, ns=(changed, changed))  # as where a file system's clock has not moved on
    with pytest.raises(
        ConfigError,
        match=r"init.digest: the weights in .* have the digest \w+, not \w+: .*; leave digest out",
    ):
        Experiment(**config)
    file.unlink()
    gone = Experiment(**config)
    with pytest.raises(DataError, match=r"there is no file .*w.safetensors"):
        build(gone)


def test_a_part_of_the_weights(tmp_path: Path) -> None:
    weights = _weights()
    file = _saved(
        tmp_path / "w.pt",
        {k: v for k, v in weights.items() if k != "head.bias"} | {"old.weight": torch.zeros(2)},
    )
    strict = (
        rf"{file} does not fit the Adapted: it lacks head.bias and it has old.weight; write "
        rf"init = .* strict = false"
    )
    with pytest.raises(ModelError, match=strict):
        build(Experiment(**KEYS, task=_task(), init=file))
    loose = build(Experiment(**KEYS, task=_task(), init={"path": str(file), "strict": False}))
    note = loose.federation.notes["initial weights"]
    assert (
        note == f"8 of 9 entries of the model from {file}; drawn as usual: head.bias; not used: "
        "old.weight"
    )
    only = build(Experiment(**KEYS, task=_task(), init={"path": str(file), "only": ["backbone.*"]}))
    assert only.federation.notes["initial weights"].startswith(
        f"2 of 9 entries of the model from {file}; drawn as usual: head.bias"
    )
    whole = Experiment(**DIGITS, init=str(file)).replace({"init.only": ["old.*"]})
    assert whole.resolved()["init"]["only"] == ["old.*"]
    fresh = build(Experiment(**KEYS, task=_task()))
    head = next(entry.slice for entry in fresh.setting.task.layout if entry.name == "head.weight")
    assert torch.equal(only.state.server.model.x[head], fresh.state.server.model.x[head])
    assert torch.equal(loose.state.server.model.x[head], weights["head.weight"].flatten())


@pytest.mark.parametrize(
    ("weights", "init", "message"),
    [
        (
            {"head.weight": torch.zeros(3, 4)},
            {"strict": False},
            r"has head.weight of shape \[3, 4\], the Adapted of \[2, 4\]; leave",
        ),
        (
            {"other": torch.zeros(3)},
            {"strict": False},
            r"has no name of the Adapted; the file has other, the module .* and 4 more",
        ),
        (
            _weights(),
            {"only": ["tail.*"]},
            r"init: .* has no name like 'tail.\*'; it has backbone.bias, ",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    weights: dict[str, Tensor], init: dict[str, Any], message: str, tmp_path: Path
) -> None:
    file = _saved(tmp_path / "w.safetensors", weights)
    with pytest.raises((ModelError, ConfigError), match=message):
        build(Experiment(**KEYS, task=_task(), init={"path": str(file), **init}))


def test_files_that_are_no_weights_are_refused(tmp_path: Path) -> None:
    (tmp_path / "text.pt").write_text("hello")
    (tmp_path / "text.safetensors").write_text("hello")
    torch.save({"epoch": 3, "state_dict": _weights()}, tmp_path / "whole.pt")
    (tmp_path / "code.pt").write_bytes(pickle.dumps(print, protocol=2))
    (tmp_path / "folder").mkdir()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text("{}")
    for name, message in {
        "text.pt": "is not a file of weights alone",
        "text.safetensors": "is not a file of weights alone",
        "whole.pt": "holds keys epoch, state_dict; expected the tensors of module.state_dict",
        "code.pt": "is not a file of weights alone",
        "folder": "is not the folder of a run and has no model.safetensors",
        "run": "is not finished and has no model.safetensors",
        "txt.pt": r"there is no file .* \(did you mean 'text.pt'\?\)",
    }.items():
        with pytest.raises(DataError, match=message):
            initial_weights.read(tmp_path / name)
