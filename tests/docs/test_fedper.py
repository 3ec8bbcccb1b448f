"""FedPer as a package outside Motley (examples/fedper): heads stay with the clients, are not billed, and are evaluated."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import motley
from motley.testing.algorithms import check_algorithm

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "fedper"
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}}, "population": 6, "cohort": 2,
    "partition": {"name": "label_count", "labels": 3}, "stop": {"rounds": 3}, "evaluate": {"every": 1},
    "local": {"optimizer": {"lr": 0.1}},
}  # fmt: skip


@pytest.fixture
def fedper(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's module."""
    monkeypatch.syspath_prepend(FOLDER)
    import fedper  # type: ignore[import-not-found]

    yield fedper
    sys.modules.pop("fedper", None)


def test_it_is_short_and_has_an_entry_point() -> None:
    assert len((FOLDER / "fedper.py").read_text().splitlines()) <= 60
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["motley.algorithm"] == {"fedper": "fedper:FedPer"}


def test_it_keeps_the_contract(fedper: Any) -> None:
    check_algorithm(fedper.FedPer())


@pytest.mark.usefixtures("forget_names")
def test_heads_stay_at_home_and_are_not_billed(fedper: Any, tmp_path: Path) -> None:
    """The base has 64 x 16 + 16 = 1,040 parameters, the head 16 x 10 + 10 = 170."""
    motley.register("algorithm", "fedper", fedper.FedPer)
    run = motley.run({**KEYS, "algorithm": "fedper"}, out=tmp_path / "fedper")
    plain = motley.run(KEYS, out=tmp_path / "fedavg")
    assert set(run.column("rounds", "down_bits")) == {2 * 1040 * 32.0}
    assert set(plain.column("rounds", "down_bits")) == {2 * 1210 * 32.0}
    assert set(run.column("rounds", "up_paper_bits")) == {2 * 1040 * 32.0}
    shared = run.module().state_dict()
    took_part = set(run.column("clients", "client").tolist())
    for k, client in enumerate(run.clients()):
        own = client.module().state_dict()
        differ = {name for name in own if not torch.equal(own[name], shared[name])}
        assert differ == ({"3.weight", "3.bias"} if k in took_part else set())
    mine, theirs = (done.column("evaluations", "accuracy")[-6:] for done in (run, plain))
    assert np.nanmean(mine) > np.nanmean(theirs)  # three classes a client: a head of one's own is enough to tell them apart


def test_a_model_of_one_layer_is_refused(fedper: Any) -> None:
    with pytest.raises(
        motley.ConfigError, match=r"^algorithm: under PersonalHead all layers of this model stay with the clients"
    ):
        motley.build({**KEYS, "task": {"name": "image", "model": "logistic_regression"}, "algorithm": fedper.FedPer()})
    with pytest.raises(motley.ConfigError, match="got layers = 0; expected a whole number of at least 1"):
        fedper.FedPer(layers=0)


def test_the_contract_names_what_a_careless_method_breaks(fedper: Any) -> None:
    from motley.algorithms.base import Correction

    class Forgets(fedper.PersonalHead):  # type: ignore[misc]
        personal_start = True

        def start(self, download: Any, client_state: Any) -> Any:
            return super().start(download, None)

    class Shortens(fedper.PersonalHead):  # type: ignore[misc]
        update = Correction.update

    for careless, message in ((Forgets, "start does not put together again"), (Shortens, "update has 35 entries; expected")):

        class Method(fedper.FedPer):  # type: ignore[misc]
            def change(self, plain: Any) -> Any:
                return plain.replace(correction=careless())  # noqa: B023

        from motley.algorithms.local import SGD
        from motley.testing.algorithms import CHECKS

        with pytest.raises(AssertionError, match=message):
            CHECKS["layers that stay at home come back"](Method(), "examples", SGD(lr=0.1))


def test_a_finished_run_gives_every_client_its_head(fedper: Any, tmp_path: Path) -> None:
    done = motley.run({**KEYS, "algorithm": fedper.FedPer()}, out=tmp_path / "run")
    shared, taken = done.module().state_dict(), set(done.column("clients", "client").tolist())
    head = {name for name in shared if name.startswith(list(shared)[-1].rpartition(".")[0])}
    for k, model in enumerate(motley.load(tmp_path / "run").clients()):
        own = model.module().state_dict()
        differing = {name for name in own if not torch.equal(own[name], shared[name])}
        assert differing == (head if k in taken else set())
