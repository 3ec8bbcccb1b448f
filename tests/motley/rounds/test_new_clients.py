"""New clients: never asked, examined at the end with the received model and after adapting it,
billed once."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.engines.processes import workers_kept
from motley.experiments.build import build
from motley.rounds.checkpoint import Checkpoints
from motley.tasks.flat import FlatModule
from tests.motley.resume.conftest import assert_same
from tests.rows import Rows

KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}},
    "population": 10,
    "participation": 0.5,
    "partition": {"name": "label_count", "labels": 3},
    "stop": {"rounds": 3},
    "metrics": ["accuracy", "macro_f1"],
    "split": {"test": "client", "holdout_clients": 0.3},
    "evaluate": {"every": 2, "adapt_epochs": [0, 2]},
    "local": {"batch_size": 32, "optimizer": {"lr": 0.2}},
    "engine": {"name": "threads", "threads": 1},
    "checkpoint": {"every_rounds": 1},
}
VALUES = 64 * 16 + 16 + 16 * 10 + 10


@pytest.fixture(scope="module", autouse=True)
def _kept() -> Iterator[None]:
    """A new interpreter costs seconds: workers serve all runs of this file."""
    with workers_kept():
        yield


def _rows(keys: dict[str, Any]) -> tuple[Any, Rows]:
    rows = Rows()
    loop = build(keys, writer=rows)
    while not loop.done:
        loop.step()
    return loop, rows


@functools.cache
def _plain() -> tuple[Any, Rows]:
    """Return a run of the keys as they are, which tests look at."""
    return _rows(KEYS)


def _of(rows: Rows, scope: str, table: str = "evaluations") -> dict[str, np.ndarray]:
    """The newest rows of one scope, by column."""
    found = next(one for one in reversed(rows.tables[table]) if scope in one["scope"])
    at = np.array(found["scope"]) == scope
    return {name: np.asarray(values)[at] for name, values in found.items() if np.ndim(values)}


def test_new_clients_are_never_asked_and_have_scopes_of_their_own() -> None:
    loop, rows = _plain()
    new = loop.federation.new_clients.tolist()
    assert (len(new), loop.config.cohort) == (3, 4)  # half of the other seven, rounded
    asked = {int(client) for one in rows.tables["clients"] for client in one["client"]}
    assert asked.isdisjoint(new)
    assert {row["available"] for row in rows.tables["rounds"]} == {7}
    assert sorted(_of(rows, "client")["client"].tolist()) == [k for k in range(10) if k not in new]
    for epochs in (0, 2):
        each = _of(rows, f"new_client_{epochs}")
        mean = _of(rows, f"new_mean_{epochs}")
        assert each["client"].tolist() == new
        assert mean["accuracy"].item() == pytest.approx(each["accuracy"].mean())
        assert len(_of(rows, f"new_pooled_{epochs}", "metrics")["value"]) == 1
    evaluated = [
        scope
        for one in rows.tables["evaluations"]
        for scope in set(one["scope"])
        if scope.startswith("new_")
    ]
    # once, at the end
    assert sorted(evaluated) == ["new_client_0", "new_client_2", "new_mean_0", "new_mean_2"]
    told = rows.tables["federation"][0]
    assert np.flatnonzero(told["held_out"]).tolist() == new
    assert (told["num_test"] > 0).all()


def test_without_adapting_fedavg_has_exactly_the_shared_models_accuracy() -> None:
    loop, rows = _plain()
    each = _of(rows, "new_client_0")
    data = loop.federation.held_out
    flat = FlatModule.of(loop.setting.task.model, loop.setting.dtype)
    flat.load(loop.state.server.model)
    flat.module.eval()
    for k, accuracy in zip(each["client"].tolist(), each["accuracy"].tolist(), strict=True):
        at = torch.from_numpy(data.test[k])
        assert accuracy == (flat.module(data.x[at]).argmax(1) == data.y[at]).double().mean().item()
    assert _of(rows, "new_mean_2")["accuracy"] > _of(rows, "new_mean_0")["accuracy"]


@pytest.mark.parametrize("name", ["fedavg", "fine_tuned"])
def test_under_a_cosine_schedule_they_adapt_at_the_last_rounds_rate(name: str) -> None:
    """In round 3 of 3 that is 0.2 (1 + cos(2 pi / 3)) / 2 = 0.05; the cosine's end is 0. So is the
    rate at which models are tuned for the last examination."""
    local = {**KEYS["local"], "lr_schedule": "cosine"}
    loop, rows = _rows({**KEYS, "local": local, "algorithm": name, "engine": "sequential"})
    assert [loop.config.lr(version) for version in (2, 3)] == pytest.approx([0.05] * 2)
    received, adapted = (_of(rows, f"new_client_{epochs}")["loss"] for epochs in (0, 2))
    assert (received != adapted).all()
    if name == "fine_tuned":
        tuned, shared = (_of(rows, scope)["loss"] for scope in ("client", "shared_client"))
        assert (tuned != shared).all()


def test_training_is_the_same_whatever_new_clients_do() -> None:
    """The server and everybody's figures do not depend on how long new clients adapt, nor on their
    samples."""
    one, two = (
        _rows({**KEYS, "evaluate": {"every": 2, "adapt_epochs": epochs}}) for epochs in ([], [0, 1])
    )
    assert torch.equal(one[0].state.server.model.x, two[0].state.server.model.x)
    data = one[0].federation
    assert not any(
        len(getattr(data, part)[k])
        for part in ("train", "validation", "test")
        for k in data.new_clients
    )


@pytest.mark.parametrize(
    ("name", "values"), [("fedavg", VALUES), ("fedper", VALUES - 170), ("local_only", 0)]
)
def test_the_final_download_is_billed(name: str, values: int) -> None:
    """32 bits for each value that the method sends down, for each of the three; the run's own
    traffic stays as it is."""
    loop, rows = _rows({**KEYS, "algorithm": name})
    last = [one for one in rows.tables["evaluations"] if "new_mean_0" in one["scope"]]
    assert [one["total_bits"] - loop.state.ledger.total_bits for one in last] == [3 * 32 * values]
    assert rows.tables["rounds"][-1]["total_bits"] == loop.state.ledger.total_bits


def test_slices_are_billed_and_adapted_at_each_clients_width() -> None:
    keys = {**KEYS, "algorithm": "heterofl", "capacity": {"name": "constant", "width": 0.5}}
    loop, rows = _rows(keys)
    cut = 64 * 8 + 8 + 8 * 10 + 10
    last = next(one for one in rows.tables["evaluations"] if "new_mean_0" in one["scope"])
    assert last["total_bits"] - loop.state.ledger.total_bits == 3 * 32 * cut
    widths = loop.examining.widths(loop.state)
    assert (widths == 0.5).all()
    assert _of(rows, "new_mean_2")["loss"] < _of(rows, "new_mean_0")["loss"]


def test_of_several_models_each_takes_the_one_with_the_lowest_training_loss() -> None:
    """IFCA: the loss at 0 epochs is that of the better model on every client's training samples,
    and all models are billed."""
    loop, rows = _rows({**KEYS, "algorithm": {"name": "ifca", "k": 2}})
    each = _of(rows, "new_client_0")
    data = loop.federation.held_out
    losses = []
    flat = FlatModule.of(loop.setting.task.model, loop.setting.dtype)
    download = loop.algorithm.local.download(loop.state.server)
    for k in each["client"].tolist():
        found = []
        for j in range(2):
            flat.load(loop.algorithm.local.start(download, {"choice": torch.tensor([j])}))
            flat.module.eval()
            parts = [torch.from_numpy(part[k]) for part in (data.train, data.test)]
            found.append(
                [
                    torch.nn.functional.cross_entropy(flat.module(data.x[at]), data.y[at]).item()
                    for at in parts
                ]
            )
        losses.append(min(found)[1])
    np.testing.assert_allclose(each["loss"], losses, rtol=1e-5)
    last = next(one for one in rows.tables["evaluations"] if "new_mean_0" in one["scope"])
    assert last["total_bits"] - loop.state.ledger.total_bits == 3 * 32 * 2 * VALUES


@pytest.mark.parametrize("norm", [None, "batch"])
@pytest.mark.parametrize("name", ["heterofl", "fedrolex", "fjord", "fiarse"])
def test_slices_of_every_method_adapt(name: str, norm: str | None) -> None:
    task = {
        **KEYS["task"],
        "model": {"name": "mlp", "hidden": [16]}
        if norm is None
        else {"name": "digits_mlp", "norm": "batch"},
    }
    _, rows = _rows(
        {
            **KEYS,
            "task": task,
            "algorithm": name,
            "capacity": {"name": "levels", "levels": [1.0, 0.6, 0.4]},
            "metrics": [],
        }
    )
    assert _of(rows, "new_mean_2")["loss"] < _of(rows, "new_mean_0")["loss"]


@pytest.mark.parametrize("test", ["client", "global"])
@pytest.mark.parametrize("name", ["fedper", "ditto", "apfl"])
def test_engines_agree(name: str, test: str) -> None:
    keys = {
        **KEYS,
        "algorithm": name,
        "dtype": "float64",
        "split": {"test": test, "holdout_clients": 0.3},
        "metrics": [],
    }
    found = [
        _of(_rows({**keys, "engine": engine})[1], "new_client_2")
        for engine in ("sequential", "threads")
    ]
    for column in ("loss", "accuracy"):
        np.testing.assert_allclose(found[0][column], found[1][column], rtol=1e-10)


@functools.cache
def _losses(name: str, engine: str) -> np.ndarray:
    """Losses of new clients after one round; those of the reference are computed once."""
    keys = {**KEYS, "algorithm": name, "dtype": "float64", "stop": {"rounds": 1}, "metrics": []}
    return _of(_rows({**keys, "engine": engine})[1], "new_client_2")["loss"]


@pytest.mark.parametrize("engine", ["batched", "vmap", "processes"])
@pytest.mark.parametrize("name", ["fedavg", "fedper", "ditto"])
def test_engines_that_train_many_at_once_agree(name: str, engine: str) -> None:
    np.testing.assert_allclose(_losses(name, "threads"), _losses(name, engine), rtol=1e-10)


# an evaluation that is due, and one only because the run ended
@pytest.mark.parametrize("rounds", [2, 3])
def test_a_run_that_is_extended_examines_them_at_its_new_end(rounds: int, tmp_path: Path) -> None:
    whole = motley.run({**KEYS, "stop": {"rounds": 5}}, out=tmp_path / "whole")
    motley.run({**KEYS, "stop": {"rounds": rounds}}, out=tmp_path / "longer")
    longer = motley.run({**KEYS, "stop": {"rounds": 5}}, out=tmp_path / "longer", resume=True)
    assert_same(whole, longer)
    at = {
        row["round"]
        for row in longer.tables["evaluations"].to_pylist()
        if row["scope"].startswith("new_")
    }
    assert at == {5}


@pytest.mark.parametrize("name", ["fedavg", "fedper"])
def test_a_killed_run_goes_on_to_the_same_bits(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = {**KEYS, "algorithm": name}
    whole = motley.run(keys, out=tmp_path / "whole")
    calls = [0]
    save = Checkpoints.save

    def broken(self: Checkpoints, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 3:  # after the last round, with all rows written
            raise KeyboardInterrupt
        return save(self, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoints, "save", broken)
        with pytest.raises((KeyboardInterrupt, motley.MotleyError)):
            motley.run(keys, out=tmp_path / "broken")
    assert_same(whole, motley.run(keys, out=tmp_path / "broken", resume=True))


def test_under_drift_they_adapt_to_what_they_see_then() -> None:
    _, rows = _rows({**KEYS, "drift": {"name": "window"}})
    assert np.isfinite(_of(rows, "new_client_2")["loss"]).all()


def test_the_share_is_part_of_the_run_and_its_label() -> None:
    ids = {
        motley.Experiment(**{**KEYS, "split": {"holdout_clients": share}}).run_id()
        for share in (0.0, 0.2, 0.3)
    }
    assert len(ids) == 3


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"cohort": 8},
            r"cohort: got 8, more than the population of 7 without the 3 held out; expected at "
            r"most 7",
        ),
        ({"split": {"holdout_clients": 1.0}}, r"split.holdout_clients: got 1.0; expected below 1"),
        (
            {"split": {"holdout_client": 0.1}},
            r"split.holdout_client: there is no such key.*holdout_clients",
        ),
        ({"evaluate": {"adapt_epochs": [1, -1]}}, r"evaluate.adapt_epochs"),
        ({"evaluate": {"adapt_epochs": 3}}, r"evaluate.adapt_epochs"),
    ],
)
def test_bad_input_is_told(keys: dict[str, Any], message: str) -> None:
    given = {
        name: value
        for name, value in KEYS.items()
        if name != "participation" or "cohort" not in keys
    }
    with pytest.raises(ConfigError, match=message):
        build({**given, **keys})
