from pathlib import Path

import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks import TASKS, image
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.task import Dataset, Federation, TaskSource


def federated(pool: Dataset, clients: int = 5) -> Federation:
    rows = partition_input(pool, Split(), Key(0))
    parts = Ragged.of([np.arange(k, len(rows.rows), clients) for k in range(clients)])
    return federate(pool, rows, parts, Split(), Key(0))


def test_digits_are_standardised_once_and_need_no_transform() -> None:
    source: TaskSource = TASKS.build({"name": "image", "data": "digits", "model": "digits_mlp"})
    pool = source.load(Key(0), 5)
    assert tuple(pool.x.shape) == (1797, 1, 8, 8)
    assert pool.x.dtype == torch.float32
    assert pool.x.double().mean().item() == pytest.approx(0.0, abs=1e-6)
    assert pool.x.double().std(correction=0).item() == pytest.approx(1.0, abs=1e-6)
    task = source.task("image", pool, federated(pool))
    assert task.transform is None
    assert task.layout is not None
    assert task.layout.size == 2410
    assert task.model()(pool.x[:3]).shape == (3, 10)


def test_digits_are_those_of_scikit_learn() -> None:
    from sklearn import datasets

    pool = image.digits()
    known = datasets.load_digits()
    assert torch.equal(pool.x[:, 0], torch.from_numpy(known.images / 16).float())
    assert torch.equal(pool.y, torch.from_numpy(known.target))
    assert pool.names == tuple(map(str, known.target_names))


def test_digits_need_scikit_learn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image, "find_spec", lambda _: None)
    image._read_digits.cache_clear()
    with pytest.raises(DataError, match="pip install scikit-learn"):
        image.digits()


def test_digits_are_parsed_once_and_every_run_has_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    first = image.digits()
    monkeypatch.setattr(image.np, "loadtxt", lambda *_, **__: pytest.fail("parsed again"))
    want = first.x.clone(), first.y.clone()
    first.x.fill_(9.0), first.y.fill_(9)
    second = image.digits()
    assert torch.equal(second.x, want[0])
    assert torch.equal(second.y, want[1])


def test_unit_pixels_and_augmentation_in_the_transform() -> None:
    unit = TASKS.build({"name": "image", "scale": "unit"}).load(Key(0), 5)
    assert (unit.x.min().item(), unit.x.max().item()) == (0.0, 1.0)
    symmetric = TASKS.build({"name": "image", "scale": "symmetric"}).load(Key(0), 5)
    assert torch.equal(symmetric.x, 2 * unit.x - 1)
    source = TASKS.build({"name": "image", "augment": "crop_flip"})
    pool = source.load(Key(0), 5)
    transform = source.transform(pool)
    plain = TASKS.build({"name": "image"}).load(Key(0), 5)
    torch.testing.assert_close(transform(pool.x[:9], None), plain.x[:9])
    assert not torch.equal(transform(pool.x[:9], Key(0)), plain.x[:9])


@pytest.fixture
def own(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 256, (40, 10, 10, 3)).astype(np.uint8)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(40) % 4, test=np.arange(40) >= 30)
    return tmp_path / "own.npz"


def test_a_file_by_its_path_and_the_training_half_sets_the_scale(own: Path) -> None:
    pool = TASKS.build({"name": "image", "data": str(own)}).load(Key(0), 5)
    train = pool.x[:30].double().transpose(0, 1).flatten(1)
    torch.testing.assert_close(
        train.mean(1), torch.zeros(3, dtype=torch.float64), atol=1e-6, rtol=0
    )
    torch.testing.assert_close(train.std(1, correction=0), torch.ones(3, dtype=torch.float64))
    beside = TASKS.build({"name": "image", "data": own.name}).load(Key(0), 5, own.parent)
    assert torch.equal(beside.x, pool.x)


def test_large_sets_stay_as_they_are_and_are_scaled_by_batch(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = TASKS.build({"name": "image", "data": str(own)})
    whole = source.load(Key(0), 5)
    monkeypatch.setattr("motley.tasks.image._WHOLE_LIMIT", 1000)
    pool = source.load(Key(0), 5)
    assert pool.x.dtype == torch.uint8
    torch.testing.assert_close(source.transform(pool)(pool.x, Key(0)), whole.x)
    digits = TASKS.build({"name": "image"})  # float32 already: scaled whole whatever their size
    made = digits.load(Key(0), 5)
    assert digits.transform(made) is None
    assert made.x.double().std(correction=0).item() == pytest.approx(1.0, abs=1e-6)


def test_bad_options() -> None:
    with pytest.raises(
        DataError,
        match=r"task.data: got 'mnits' \(did you mean 'mnist'\?\); expected one of: digits",
    ):
        TASKS.build({"name": "image", "data": "mnits"}).load(Key(0), 5)
    with pytest.raises(ConfigError, match=r"task.scale: got 'units' \(did you mean 'unit'\?\)"):
        TASKS.build({"name": "image", "scale": "units"})
    source = TASKS.build({"name": "image", "model": "cnn"})
    with pytest.raises(
        ConfigError, match=r"task.model: CNN needs images of at least 16 x 16; got 8 x 8; try mlp"
    ):
        source.factory(source.load(Key(0), 5))
    source = TASKS.build({"name": "image", "model": {"name": "mlp", "hiden": [3]}})
    with pytest.raises(
        ConfigError, match=r"task.model.hiden: 'mlp' has no such option \(did you mean 'hidden'\?\)"
    ):
        source.factory(source.load(Key(0), 5))
