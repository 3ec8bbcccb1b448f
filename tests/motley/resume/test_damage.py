"""Files that were damaged or replaced: no flipped bit is read as another value or as fewer rows,
and nothing resumes from it."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

import motley
from motley.core.errors import StoreError, UserError
from motley.core.files import with_digest
from motley.experiments.config import Experiment
from motley.experiments.run import run
from motley.experiments.trained import TrainedRun
from motley.experiments.trained import load as load_trained
from motley.results.schema import TABLES
from motley.results.writer import Writer
from tests.motley.resume.conftest import assert_same
from tests.motley.resume.test_resume import Crash, _crash_after

FLIPS = [12, pytest.param(200, marks=pytest.mark.slow)]
"""Bits that are flipped in each file, one at a time."""
KEYS: dict[str, Any] = {
    "name": "damage",
    "population": 4,
    "cohort": 2,
    "split": {"validation": 0.2},
    "task": {"name": "tabular", "data": "iris", "model": "mlp"},
    "stop": {"rounds": 7},
    "checkpoint": {"every_rounds": 2, "every_s": 1000.0},
    "engine": {"name": "sequential", "threads": 1},
    "algorithm": "fedper",
    "metrics": ["accuracy", "macro_f1"],
    "evaluate": {"every": 1},
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> TrainedRun:
    return run(Experiment(**KEYS), out=tmp_path_factory.mktemp("damage") / "whole")


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Broken off in round 7, after the checkpoints of rounds 2, 4 and 6."""
    return _interrupted(tmp_path_factory.mktemp("damage") / "cut", Experiment(**KEYS))


def _interrupted(path: Path, experiment: Experiment) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Writer, "flush", _crash_after(10, Writer.flush, False))
        with pytest.raises(Crash):
            run(experiment, out=path)
    return path


def _read(path: Path) -> dict[str, Any]:
    """Everything of a run that is read back."""
    found = load_trained(path)
    seen: dict[str, Any] = {
        name: table for name, table in found.tables.items() if name != "timings"
    }
    seen["meta"] = found.meta
    for name in ("final", "best"):
        if (path / {"final": "model.safetensors", "best": "best.safetensors"}[name]).exists():
            seen[name] = found.module(name).state_dict()
    if found.finished:
        seen["clients"] = [client.module().state_dict() for client in found.clients()]
        seen["predicted"] = found.predict([[5.1, 3.5, 1.4, 0.2], [6.7, 3.0, 5.2, 2.3]]).tolist()
    return seen


def _equal(one: Any, two: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == two.keys() and all(_equal(one[key], two[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_equal, one, two))
    return bool(torch.equal(one, two) if isinstance(one, torch.Tensor) else one == two)


def _files(path: Path) -> list[str]:
    return sorted(
        file.name
        for file in path.iterdir()
        if file.is_file() and not file.name.startswith((".lock", "timings"))
    )


def _flip_each(path: Path, name: str, flips: int) -> int:
    """Flip bits of a file, one at a time; return how many changed nothing that is read. The others
    are refused."""
    before = _read(path)
    data = (path / name).read_bytes()
    numbers = random.Random(name)
    same = 0
    for bit in numbers.sample(range(8 * len(data)), flips):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (path / name).unlink()
        (path / name).write_bytes(flipped)
        try:
            now = _read(path)
        except UserError:
            continue
        else:
            # a flip in the name of the digest itself leaves a key that nothing knows
            now["meta"] = {
                key: value for key, value in now["meta"].items() if key in before["meta"]
            }
            assert _equal(now, before), f"bit {bit} of {name} reads as other values"
            same += 1
    return same


@pytest.mark.parametrize("flips", FLIPS)
def test_flipped_bits_of_a_finished_run_are_refused(
    flips: int, whole: TrainedRun, tmp_path: Path
) -> None:
    names = _files(whole.directory)
    assert set(names) >= {
        "run.json",
        "model.safetensors",
        "best.safetensors",
        "preparation.json",
        "rounds.parquet",
    }
    for name in names:
        same = _flip_each(Path(shutil.copytree(whole.directory, tmp_path / name)), name, flips)
        assert same <= flips / 6, name  # the name of the digest itself


@pytest.mark.parametrize("flips", FLIPS)
def test_flipped_bits_of_an_interrupted_run_are_refused(
    flips: int, interrupted: Path, tmp_path: Path
) -> None:
    """Only what lies before the last record of the journal is read of it."""
    # it says how a finished model predicts
    names = [name for name in _files(interrupted) if name != "preparation.json"]
    assert set(names) >= {"run.json", "best.safetensors", "rounds.arrows", "tables.journal"}
    for name in names:
        same = _flip_each(Path(shutil.copytree(interrupted, tmp_path / name)), name, flips)
        assert same <= flips / 6 or name == "tables.journal", name


HARM: dict[str, Callable[[Path, Path], object]] = {
    "delete": lambda file, other: file.unlink(),
    "truncate": lambda file, other: file.write_bytes(file.read_bytes()[: file.stat().st_size // 3]),
    "empty": lambda file, other: file.write_bytes(b""),
    "another run's": lambda file, other: file.write_bytes(other.read_bytes()),
    "flip one bit": lambda file, other: file.write_bytes(
        bytes([file.read_bytes()[0] ^ 1]) + file.read_bytes()[1:]
    ),
}


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("table", ["rounds", "clients", "federation", "timings"])
def test_a_damaged_stream_is_never_resumed(
    table: str,
    harm: str,
    interrupted: Path,
    tmp_path: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """No checkpoint's rows are there: it is refused, and the file is named."""
    path = Path(shutil.copytree(interrupted, tmp_path / "run"))
    other = interrupted.parent / "other"
    if not other.exists():
        _interrupted(other, Experiment(**{**KEYS, "seed": 1}))
    HARM[harm](path / f"{table}.arrows", other / f"{table}.arrows")
    refused = pytest.raises(
        StoreError,
        match=rf"{table}\.arrows .*, so this run cannot be continued; restore the file, or remove",
    )
    with refused, pytest.warns(UserWarning, match="going back to the checkpoint before it"):
        run(Experiment(**KEYS), out=path, resume=True)


@pytest.mark.parametrize(
    "table",
    [
        table
        for table in TABLES
        if table not in ("federation", "choices", "incidents", "claims", "privacy")
    ],
)
def test_what_was_lost_after_the_checkpoint_before_is_made_again(
    table: str, interrupted: Path, whole: TrainedRun, tmp_path: Path
) -> None:
    """The rows of round 4 are there and those of round 6 are not: the checkpoint of round 4
    counts."""
    path = Path(shutil.copytree(interrupted, tmp_path / "run"))
    length = (path / f"{table}.arrows").stat().st_size
    with (path / f"{table}.arrows").open("r+b") as file:
        file.truncate(length - (length - 700) // 3)  # about two rounds and a half of seven
    with pytest.warns(
        UserWarning, match=rf"{table}\.arrows has .* by checkpoint-00000006.mtly; going back"
    ):
        resumed = run(Experiment(**KEYS), out=path, resume=True)
    assert_same(whole, resumed)


def test_what_comes_after_the_checkpoint_may_be_damaged(
    interrupted: Path, whole: TrainedRun, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(interrupted, tmp_path / "run"))
    for file in path.glob("*.arrows"):
        file.write_bytes(file.read_bytes() + bytes(3000))
    (path / "tables.journal").write_bytes(bytes(5000))
    assert_same(whole, run(Experiment(**KEYS), out=path, resume=True))


def test_a_record_that_was_changed_is_refused_until_its_digest_is_removed(
    whole: TrainedRun, tmp_path: Path
) -> None:
    path = Path(shutil.copytree(whole.directory, tmp_path / "run"))
    record = json.loads((path / "run.json").read_text())
    changed = json.dumps({**record, "name": "mine"})
    (path / "run.json").write_text(changed)
    with pytest.raises(
        UserError,
        match=r"run\.json was changed after it was written .* or remove the key 'digest' to read "
        r"it",
    ):
        motley.load(path)
    (path / "run.json").write_text(
        json.dumps({key: value for key, value in json.loads(changed).items() if key != "digest"})
    )
    assert motley.load(path).name == "mine"
    assert with_digest(record) == record


def test_a_finished_run_of_an_earlier_version_is_read(whole: TrainedRun, tmp_path: Path) -> None:
    """Its record has neither a digest nor the marks of its tables."""
    path = Path(shutil.copytree(whole.directory, tmp_path / "run"))
    record = json.loads((path / "run.json").read_text())
    (path / "run.json").write_text(
        json.dumps({key: record[key] for key in record.keys() - {"digest", "tables"}})
    )
    assert_same(whole, path)
