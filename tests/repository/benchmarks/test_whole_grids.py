"""What other frameworks are given of Motley's own comparison."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]


@pytest.fixture
def peers(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folder of the peers' files can be imported from, for one test."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks" / "peers"))
    yield
    for name in set(sys.modules) - before:
        if str(ROOT / "benchmarks") in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


@pytest.mark.usefixtures("peers")
def test_every_sample_of_the_digits_is_given_once(tmp_path: Path) -> None:
    from grid_work import CLIENTS
    from sklearn.datasets import load_digits
    from whole_grids import write_clients

    write_clients(tmp_path / "clients.npz", 0)
    with np.load(tmp_path / "clients.npz") as arrays:
        labels = [arrays["y"], *(arrays[f"y{client}"] for client in range(CLIENTS))]
        assert all(len(arrays[f"x{client}"]) for client in range(CLIENTS))
    counts = np.bincount(np.concatenate(labels))
    assert (counts == np.bincount(load_digits().target)).all()


@pytest.mark.usefixtures("peers")
def test_model_and_local_steps_are_those_of_the_experiment() -> None:
    """By hand: 48 samples are three batches of 16, five times; 49 are four."""
    import torch
    from grid_work import GridRun, digits_model
    from work import train

    from motley.tasks.models import factory

    run = GridRun(data=Path(), out=Path(), algorithm="fedavg", seed=0, rounds=1)

    own = factory("mlp", (1, 8, 8), 10)()
    torch.manual_seed(0)
    model = digits_model()
    assert [w.shape for w in model.parameters()] == [w.shape for w in own.parameters()]
    for samples, steps in ((48, 15), (49, 20)):
        x, y = torch.rand(samples, 1, 8, 8), torch.zeros(samples, dtype=torch.int64)
        assert train(model, x, y, run) == steps


@pytest.mark.usefixtures("peers")
def test_the_proximal_term_pulls_towards_what_was_received() -> None:
    import torch
    from grid_work import GridRun, digits_model
    from work import train

    run = GridRun(data=Path(), out=Path(), algorithm="fedprox", seed=0, rounds=1)
    x, y = torch.rand(64, 1, 8, 8), torch.arange(64) % 10
    moved = []
    for proximal in (0.0, 10.0):
        torch.manual_seed(0)
        model = digits_model()
        before = torch.cat([w.detach().clone().ravel() for w in model.parameters()])
        train(model, x, y, run, proximal=proximal)
        after = torch.cat([w.detach().ravel() for w in model.parameters()])
        moved.append(float((after - before).norm()))
    assert moved[1] < 0.8 * moved[0]
