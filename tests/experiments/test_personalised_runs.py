"""Personalised methods in whole runs: what is billed, what is examined and stored, kills and resumes, what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.core.errors import ConfigError
from motley.experiments.build import build
from motley.rounds.checkpoint import Checkpoints
from tests.resume.conftest import assert_same
from tests.rows import Rows

BASE, HEAD = 64 * 16 + 16, 16 * 10 + 10  # parameters of the model's layers
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}}, "population": 6, "cohort": 2,
    "partition": {"name": "label_count", "labels": 3}, "stop": {"rounds": 3}, "split": {"test": "client"},
    "local": {"batch_size": 32, "optimizer": {"lr": 0.1, "momentum": 0.5}}, "engine": {"name": "threads", "threads": 2},
    "checkpoint": {"every_rounds": 1},
}  # fmt: skip
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
SHARED = ("fedbabu", "ditto", "apfl", "pfedme", "per_fedavg", "fedala", "fine_tuned")


@pytest.mark.parametrize("name", METHODS)
def test_what_stays_at_home_is_not_sent(name: str) -> None:
    """Each way 32 bits a value and client; an upload's message has heads besides, and an empty one is none."""
    rows = Rows()
    loop = build({**KEYS, "algorithm": METHODS[name][0]}, writer=rows)
    loop.step()
    row, values = rows.tables["rounds"][0], METHODS[name][1]
    assert (row["down_bits"], row["up_paper_bits"]) == (2 * 32 * values, 2 * 32 * values)
    assert (row["up_bits"] == 0) is (values == 0)
    assert loop.state.server.model.x.numel() == values


def scopes(rows: Rows) -> set[str]:
    return set(rows.tables["evaluations"][-1]["scope"])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("test", ["client", "global"])
def test_the_models_that_are_examined(name: str, test: str) -> None:
    """Each client's own; where there is a shared model too, it has rows of its own. The headline is the mean over clients."""
    rows = Rows()
    loop = build({**KEYS, "split": {"test": test}, "evaluate": {"every": 1}, "algorithm": METHODS[name][0]}, writer=rows)
    for _ in range(2):  # after the first round FedALA has learned no weights yet
        loop.step()
    shared = {"shared_mean", "shared_client", *(("global",) if test == "global" else ())}
    assert scopes(rows) == {"mean", "client", *(shared if name in SHARED else ())}
    found = rows.tables["evaluations"][-1]
    at = found["scope"].index("mean")
    assert loop.state.score == found["accuracy"][at]
    if name in SHARED:
        assert found["loss"][at] != found["loss"][found["scope"].index("shared_mean")]


def _crash_at_second_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    calls, save = [0], Checkpoints.save

    def broken(self: Checkpoints, *args: Any, **kwargs: Any) -> Any:
        calls[0] += 1
        if calls[0] == 2:
            raise KeyboardInterrupt
        return save(self, *args, **kwargs)

    monkeypatch.setattr(Checkpoints, "save", broken)


@pytest.mark.parametrize(("name", "where"), [*((name, "disk") for name in METHODS), ("fedper", "ram"), ("apfl", "ram")])
def test_a_killed_run_goes_on_to_the_same_bits(name: str, where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {**KEYS, "client_state": where, "algorithm": METHODS[name][0]}
    whole = motley.run(keys, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        _crash_at_second_checkpoint(patch)
        with pytest.raises((KeyboardInterrupt, motley.MotleyError)):
            motley.run(keys, out=tmp_path / "broken")
    again = motley.run(keys, out=tmp_path / "broken", resume=True)
    assert_same(whole, again)
    files = [run.directory / "clients.safetensors" for run in (whole, again)]
    assert files[0].read_bytes() == files[1].read_bytes()


@pytest.mark.parametrize("name", METHODS)
def test_a_finished_run_has_the_models_that_were_examined(name: str, tmp_path: Path) -> None:
    """The stored models have the accuracies of the last evaluation."""
    done = motley.run({**KEYS, "algorithm": METHODS[name][0]}, out=tmp_path / "run")
    data = build({**KEYS, "algorithm": METHODS[name][0]}).federation
    rows = done.column("evaluations", "scope") == "client"
    last = rows & (done.column("evaluations", "round") == 3)
    told = dict(zip(done.column("evaluations", "client")[last], done.column("evaluations", "accuracy")[last], strict=True))
    assert motley.load(tmp_path / "run").personal
    for k, model in enumerate(motley.load(tmp_path / "run").clients()):
        at = torch.from_numpy(data.test[k])
        right = model.module()(data.x[at]).argmax(1) == data.y[at]
        assert right.double().mean().item() == pytest.approx(told[k])
        assert len(model.predict(data.x[at])) == len(at)


def test_the_clock_counts_both_models_and_the_heads_epochs() -> None:
    """One step under FedAvg is one second; Ditto takes two passes a step, FedRep a third of an epoch for each one of the head."""
    base = {**KEYS, "device": {"name": "constant", "seconds": 1.0}}
    spent = {}
    for name in ("fedavg", "ditto", "fedrep"):
        rows = Rows()
        build({**base, "algorithm": "fedavg" if name == "fedavg" else METHODS[name][0]}, writer=rows).step()
        spent[name] = np.asarray(rows.tables["clients"][0]["compute_s"])
    np.testing.assert_allclose(spent["ditto"], 2 * spent["fedavg"], rtol=1e-12)
    np.testing.assert_allclose(spent["fedrep"], spent["fedavg"] * (1 + 1 / 3), rtol=1e-12)


@pytest.mark.parametrize("engine", ["batched", "vmap"])
@pytest.mark.parametrize("name", ["fedrep", "fedbabu", "ditto", "pfedme"])
def test_engines_without_phases_refuse_by_name(name: str, engine: str) -> None:
    message = rf"engine: '{engine}' cannot run this experiment: local work under \w+ has several phases"
    with pytest.raises(ConfigError, match=message):
        build({**KEYS, "engine": engine, "algorithm": METHODS[name][0]})
    assert build({**KEYS, "engine": "auto", "algorithm": METHODS[name][0]}).engine.name == "threads"


@pytest.mark.parametrize("name", ["fedper", "fedrep", "lg_fedavg", "fedbabu", "local_only"])
def test_compression_is_for_updates_of_whole_models(name: str) -> None:
    with pytest.raises(ConfigError, match="does not upload an update of the whole model, and that is what is compressed"):
        build({**KEYS, "compressor": "topk", "budget": {"name": "constant", "average": 0.2}, "algorithm": METHODS[name][0]})


def test_a_pull_that_overshoots_warns() -> None:
    with pytest.warns(UserWarning, match="lr = 0.1 times lam = 20 is above 1: the pull overshoots its anchor"):
        build({**KEYS, "algorithm": {"name": "ditto", "lam": 20.0}})


def test_a_method_that_is_fine_tuned_is_checked_and_cited() -> None:
    with pytest.raises(ConfigError, match="'fedprox' has no such option"):
        build({**KEYS, "algorithm": {"name": "fine_tuned", "method": {"name": "fedprox", "nu": 1.0}}})
    papers = motley.Experiment(**{**KEYS, "algorithm": METHODS["fine_tuned"][0]}).papers()
    assert {"wang2019evaluation", "li2020fedprox"} <= {paper.key for paper in papers}
