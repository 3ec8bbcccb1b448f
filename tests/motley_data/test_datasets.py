import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from motley.core.errors import DataError
from motley.tasks.pixels import statistics
from motley.tasks.task import Dataset
from motley_data.datasets import load_dataset
from motley_data.formats.npz import arrays
from motley_data.public_data import packs, reading
from motley_data.public_data.facts import PACKS, PUBLIC
from motley_data.public_data.places import places
from motley_data.public_data.search import search


def pack(name: str) -> Dataset:
    """A data set of the packs; the test is skipped where it is not on this machine."""
    found = next((one for one in search(name) if one.layout.kind == "pack"), None)
    if found is None:
        pytest.skip(f"the pack {name} is not on this machine")
    return reading.read(name, found)


@pytest.mark.parametrize(
    ("name", "shape", "train", "classes", "mean", "deviation"),
    [
        ("mnist", (1, 28, 28), 60_000, 10, [0.13066], [0.30811]),
        ("fashion_mnist", (1, 28, 28), 60_000, 10, [0.28604], [0.35302]),
        ("femnist", (1, 28, 28), 41_178, 62, None, None),
        pytest.param(
            "cifar10",
            (3, 32, 32),
            50_000,
            10,
            [0.49140, 0.48216, 0.44653],
            None,
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "cifar100",
            (3, 32, 32),
            50_000,
            100,
            [0.50693, 0.48650, 0.44077],
            None,
            marks=pytest.mark.slow,
        ),
    ],
)
def test_shapes_and_statistics(
    name: str,
    shape: tuple[int, ...],
    train: int,
    classes: int,
    mean: list[float] | None,
    deviation: list[float] | None,
) -> None:
    """The published means and deviations of the training halves."""
    pool = pack(name)
    assert tuple(pool.x.shape[1:]) == shape
    assert pool.x.dtype == torch.uint8
    assert pool.classes == len(pool.names) == classes
    assert (~pool.test).sum() == train
    assert sorted(pool.y.unique().tolist()) == list(range(classes))
    got = statistics(pool.x, np.flatnonzero(~pool.test))
    if mean is not None:
        assert (got[0] / 255).tolist() == pytest.approx(mean, abs=6e-6)
    if deviation is not None:
        assert (got[1] / 255).tolist() == pytest.approx(deviation, abs=6e-6)


def test_writers_of_femnist_are_in_both_halves() -> None:
    pool = pack("femnist")
    assert pool.groups is not None
    assert len(np.unique(pool.groups)) == 291
    assert np.array_equal(np.unique(pool.groups[pool.test]), np.unique(pool.groups[~pool.test]))


def test_every_pack_has_a_checksum() -> None:
    assert {file for public in PUBLIC.values() for file in public.pack} == set(PACKS)
    assert all(len(digest) == 64 for digest in PACKS.values())


@pytest.fixture
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing but the folder given (and one that is empty) is looked into."""
    monkeypatch.setattr(
        "motley_data.public_data.search.places",
        lambda folder=None: iter([folder or tmp_path / "empty"]),
    )
    monkeypatch.setattr("motley_data.public_data.search.hubs", lambda: iter(()))
    return tmp_path


def test_missing_and_corrupt_files_say_what_to_do(nowhere: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"mnist was not found: .* in .*empty; get it with: motley data get mnist \(12 MB\)",
    ):
        load_dataset("mnist")
    (nowhere / "mnist.npz").write_bytes(b"PK\x03\x04 not really")
    with pytest.raises(
        DataError,
        match=r"mnist.npz \(15 bytes\) is corrupt or truncated: its sha256 is .*, expected "
        r"c4279d56952e",
    ):
        load_dataset("mnist", nowhere)


def test_a_truncated_copy_is_told_from_the_good_one(nowhere: Path) -> None:
    whole = next(
        (place / "femnist.npz" for place in places() if (place / "femnist.npz").is_file()), None
    )
    if whole is None:
        pytest.skip("the pack femnist is not on this machine")
    copy = nowhere / "femnist.npz"
    shutil.copyfile(whole, copy)
    packs.check(copy)
    # not hashed a second time
    assert any(path == str(copy.resolve()) for path, _, _ in packs._CHECKED)
    copy.write_bytes(copy.read_bytes()[:-1000])
    with pytest.raises(DataError, match="corrupt or truncated"):
        packs.check(copy)


def test_the_environment_is_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MOTLEY_DATA", str(tmp_path))
    assert list(places(Path("given")))[:2] == [Path("given"), tmp_path]


def test_pickled_objects_are_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    np.savez(path, x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(DataError, match="holds pickled Python objects, which are never loaded"):
        arrays(path)


def test_what_is_no_npz(tmp_path: Path) -> None:
    path = tmp_path / "bad.npz"
    path.write_bytes(b"hello")
    with pytest.raises(DataError, match=r"bad.npz"):
        arrays(path)
    np.savez(path, x=np.zeros((50, 50)))
    path.write_bytes(path.read_bytes()[:-300])
    with pytest.raises(DataError, match=r"cannot be read as .npz .*truncated"):
        arrays(path)


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("motley_data.formats.npz._SUSPICIOUS", 2**20)
    np.savez_compressed(tmp_path / "bomb.npz", x=np.zeros(2**20))
    with pytest.raises(
        DataError,
        match=r"bomb\.npz of [\d,]+ bytes unpacks to 8,388,736, more than 1 MiB and 200 times",
    ):
        arrays(tmp_path / "bomb.npz")
    np.savez(tmp_path / "plain.npz", x=np.zeros(2**20))
    assert len(arrays(tmp_path / "plain.npz")["x"]) == 2**20
