"""A method outside Motley (examples/own_biases): biases stay with the clients, are not billed, and
are evaluated."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import motley
from motley.testing.algorithms import check_algorithm

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "own_biases"
KEYS: dict[str, Any] = {
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [16]}},
    "population": 6,
    "cohort": 2,
    "partition": {"name": "label_count", "labels": 3},
    "stop": {"rounds": 3},
    "evaluate": {"every": 1},
    "local": {"optimizer": {"lr": 0.1}},
}


@pytest.fixture
def own_biases(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's module."""
    monkeypatch.syspath_prepend(FOLDER)
    import own_biases  # type: ignore[import-not-found]

    yield own_biases
    sys.modules.pop("own_biases", None)


def test_it_is_short_and_has_an_entry_point() -> None:
    assert len((FOLDER / "own_biases.py").read_text().splitlines()) <= 60
    project = tomllib.loads((FOLDER / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["motley.algorithm"] == {"own_biases": "own_biases:OwnBiases"}


def test_it_keeps_the_contract(own_biases: Any) -> None:
    check_algorithm(own_biases.OwnBiases())


@pytest.mark.usefixtures("forget_names")
def test_biases_stay_at_home_and_are_not_billed(own_biases: Any, tmp_path: Path) -> None:
    """The layers have 64 x 16 + 16 x 10 = 1,184 weights, and 16 + 10 = 26 biases."""
    motley.register("algorithm", "own_biases", own_biases.OwnBiases)
    run = motley.run({**KEYS, "algorithm": "own_biases"}, out=tmp_path / "own")
    plain = motley.run(KEYS, out=tmp_path / "fedavg")
    assert set(run.column("rounds", "down_bits")) == {2 * 1184 * 32.0}
    assert set(plain.column("rounds", "down_bits")) == {2 * 1210 * 32.0}
    assert set(run.column("rounds", "up_paper_bits")) == {2 * 1184 * 32.0}
    shared = run.module().state_dict()
    took_part = set(run.column("clients", "client").tolist())
    for k, client in enumerate(run.clients()):
        own = client.module().state_dict()
        differ = {name for name in own if not torch.equal(own[name], shared[name])}
        assert differ == ({"1.bias", "3.bias"} if k in took_part else set())


def test_the_contract_names_what_a_careless_method_breaks(own_biases: Any) -> None:
    from motley.algorithms.parts import LocalRule

    class Forgets(own_biases.PersonalBiases):  # type: ignore[misc]
        def start(self, download: Any, client_state: Any) -> Any:
            return super().start(download, None)

    class Shortens(own_biases.PersonalBiases):  # type: ignore[misc]
        update = LocalRule.update

    for careless, message in (
        (Forgets, "start does not put together again"),
        (Shortens, "update has 50 entries; expected"),
    ):

        class Method(own_biases.OwnBiases):  # type: ignore[misc]
            def change(self, plain: Any) -> Any:
                return plain.replace(local=careless())  # noqa: B023

        from motley.algorithms.local_optimisers import SGD
        from motley.testing.algorithms import CHECKS, Case

        with pytest.raises(AssertionError, match=message):
            CHECKS["layers that stay at home come back"](Case(Method(), "examples", SGD(lr=0.1)))


def test_a_finished_run_gives_every_client_its_biases(own_biases: Any, tmp_path: Path) -> None:
    done = motley.run({**KEYS, "algorithm": own_biases.OwnBiases()}, out=tmp_path / "run")
    shared = done.module().state_dict()
    taken = set(done.column("clients", "client").tolist())
    biases = {name for name in shared if name.endswith("bias")}
    for k, model in enumerate(motley.load(tmp_path / "run").clients()):
        own = model.module().state_dict()
        differing = {name for name in own if not torch.equal(own[name], shared[name])}
        assert differing == (biases if k in taken else set())
