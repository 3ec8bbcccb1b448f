from pathlib import Path

import pytest

import motley
from motley.core.errors import StoreError
from motley.experiments.config import Experiment
from motley.experiments.data_variants import data_variants
from motley_data.public_data.facts import PUBLIC
from tests.motley_data import layouts

KEYS = {
    "population": 4,
    "cohort": 2,
    "stop": {"rounds": 1},
    "task": {"name": "image", "data": "cifar10", "model": "logistic_regression"},
    "split": {"test": "global"},
}


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    return layouts.bare_machine(tmp_path, monkeypatch)


def test_what_an_experiment_would_read_now(empty: Path) -> None:
    experiment = Experiment(**{**KEYS, "public": {"data": "cifar100", "examples": 3}})
    assert data_variants(experiment) == {}
    for name in (*PUBLIC["cifar10"].pack, *PUBLIC["cifar100"].pack):
        (empty / name).touch()
    assert data_variants(experiment) == {
        "cifar10": "cifar10_jpeg109",
        "cifar100": "cifar100_jpeg91",
    }
    layouts.cifar_binary(empty / "better/cifar-10-batches-bin", layouts.halves((32, 32, 3)))
    assert data_variants(experiment, empty / "better") == {
        "cifar10": "cifar10",
        "cifar100": "cifar100_jpeg91",
    }


def test_results_of_another_variant_are_refused(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same run id, but the pack with its JPEG images would be read now: the run of the original
    is not given for it."""
    data = layouts.halves((32, 32, 3))
    layouts.let_it_be(monkeypatch, "cifar10", data)
    layouts.cifar_binary(empty / "original/cifar-10-batches-bin", data)
    run = motley.run(KEYS, data=empty / "original")
    assert run.meta["data"] == {"cifar10": "cifar10"}
    assert run.meta["task"]["notes"]["variant"] == "cifar10"
    assert motley.run(KEYS).directory == run.directory  # nothing is found now: nothing contradicts
    for name in PUBLIC["cifar10"].pack:
        (empty / name).touch()
    said = (
        r"read the variant cifar10 of cifar10, and what is found now is cifar10_jpeg109 "
        r"\(CIFAR-10 \(109 of 60,000 images"
    )
    with pytest.raises(StoreError, match=said):
        motley.run(KEYS)
    assert motley.run(KEYS, data=empty / "original").directory == run.directory
    found = motley.compare(
        KEYS, out=run.directory.parent.parent / "sweep", seeds=[0], data=empty / "original"
    )
    assert not found.failures
    again = motley.compare(KEYS, out=found.directory, seeds=[0])
    assert isinstance(again.failures[0].error, StoreError)
