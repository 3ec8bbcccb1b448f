"""Kept divisions of one's own data: the same federation bit for bit with and without, of the very
data, options and code alone; never anything but row numbers, never an error."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import shutil
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from motley.core.errors import ConfigError
from motley.core.ragged import Ragged
from motley.tasks import from_arrays, from_clients, from_files, own_task
from motley.tasks.own import fingerprint
from motley.tasks.task import Federation
from motley_data import division_cache, own_federation

RNG = np.random.default_rng(0)
SIZES = RNG.integers(1, 9, 300)
OFFSETS = np.concatenate([[0], np.cumsum(SIZES)])
OWNER = np.repeat(np.arange(300), SIZES)
X = RNG.normal(size=(len(OWNER), 3)).astype(np.float32)
Y = RNG.integers(0, 4, len(OWNER))
SECRET = "patient"
"""In the names of clients and of classes."""
Make = Callable[[], Federation]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Divisions of a row or more are kept in a folder of the test's own."""
    monkeypatch.setenv("MOTLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(division_cache, "LEAST_ROWS", 1)
    return tmp_path / "cache" / "divided"


@pytest.fixture
def divided(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were divided, each time."""
    rows = []
    federate = own_federation.federate

    def counted(**options: Any) -> Federation:
        rows.append(len(options["dataset"].y))
        return federate(**options)

    monkeypatch.setattr(own_federation, "federate", counted)
    return rows


def held(cache: Path) -> list[Path]:
    return sorted(cache.glob("*"))


def check_same(one: Federation, other: Federation) -> None:
    """Every field of two federations is the same, with its type and bits."""
    for entry in dataclasses.fields(Federation):
        a = getattr(one, entry.name)
        b = getattr(other, entry.name)
        assert type(a) is type(b), entry.name
        pairs = (
            [(a.offsets, b.offsets), (a.values, b.values)] if isinstance(a, Ragged) else [(a, b)]
        )
        for first, second in pairs:
            if isinstance(first, torch.Tensor):
                assert first.dtype == second.dtype
                assert torch.equal(first, second), entry.name
            elif isinstance(first, np.ndarray):
                assert type(first) is type(second) is np.ndarray
                assert first.dtype == second.dtype
                assert first.flags.writeable == second.flags.writeable, entry.name
                assert np.array_equal(first, second), entry.name
            elif not callable(getattr(first, "fit", None)):
                assert repr(first) == repr(second), entry.name


WORDS = np.array([f"{SECRET}{number}" for number in range(300)])
CASES: dict[str, Make] = {
    "offsets": lambda: from_arrays(X, Y, offsets=OFFSETS, test_fraction=0.3),
    "validation": lambda: from_arrays(X, Y, offsets=OFFSETS, validation=0.3, seed=4),
    "common test set": lambda: from_arrays(X, Y, offsets=OFFSETS, test="global"),
    "names, out of order": lambda: from_arrays(
        X[::-1], np.array([f"{SECRET} {label}" for label in Y]), WORDS[OWNER[::-1]]
    ),
    "named classes": lambda: from_arrays(X, Y, OWNER, classes=["a", "b", "c", "d"]),
    "numbers": lambda: from_arrays(X, X[:, 0], OWNER, regression=True),
    "positions": lambda: from_arrays(X, np.stack([Y, Y], 1), OWNER),
    "pixels": lambda: from_arrays(X, np.stack([X, X], 1), OWNER, regression=True),
    "several labels": lambda: from_arrays(X, np.stack([Y > 1, Y > 2], 1), OWNER, multilabel=True),
    "a table": lambda: from_arrays({"a": X[:, 0], "b": X[:, 1]}, Y, OWNER),
    "a scaled array": lambda: from_arrays(X, Y, OWNER, table={"scale": "standard"}),
    "parts": lambda: from_clients({f"{SECRET}{k}": (X[k::9], Y[k::9]) for k in range(9)}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_kept_division_is_the_division_bit_for_bit(
    case: str, cache: Path, divided: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = CASES[case]()
    assert len(held(cache)) == 1
    second = CASES[case]()
    assert divided == [len(X)]
    monkeypatch.setenv("MOTLEY_CACHE", "off")
    without = CASES[case]()
    assert divided == [len(X)] * 2
    check_same(first, without)
    check_same(second, without)


def test_the_run_is_the_same_one() -> None:
    """Its id follows from the federation, whose arrays are mapped the second time."""
    first, second = (fingerprint(own_task(CASES["offsets"](), _linear)) for _ in range(2))
    assert len(first) == 16
    assert first == second


def _linear() -> nn.Module:
    return nn.Linear(3, 4)


def test_nothing_but_row_numbers_is_kept_and_for_the_user_alone(cache: Path) -> None:
    made = CASES["names, out of order"]()
    assert SECRET in made.client_names[0]
    assert SECRET in made.names[0]
    (file,) = held(cache)
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    content = file.read_bytes()
    assert SECRET.encode() not in content
    arrays = [array for part in (made.train, made.test) for array in (part.offsets, part.values)]
    assert np.array_equal(np.frombuffer(content, np.int64, offset=4096), np.concatenate(arrays))
    said = json.loads(content[32:4096].rstrip(b"\0"))
    assert said == {
        "clients": 300,
        "rows": [len(made.train.values), 0, len(made.test.values)],
        "lengths": list(map(len, arrays)),
        "notes": {"test": "each client keeps a test part"},
        "measured": {},
        "shares": {"validation": 0.0, "test_fraction": 0.2},
    }


def test_other_content_is_divided_anew(divided: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    other_label = Y.copy()
    other_label[700] = (Y[700] + 1) % 4
    other_offsets = OFFSETS.copy()
    other_offsets[int((SIZES > 1).argmax()) + 1] -= 1  # one row of one owner
    common: dict[str, Any] = {"offsets": OFFSETS}
    variants: list[Make] = [
        lambda: from_arrays(X, Y, **common),
        lambda: from_arrays(X, other_label, **common),
        lambda: from_arrays(X, Y, offsets=other_offsets),
        lambda: from_arrays(X, Y, **common, seed=1),
        lambda: from_arrays(X, Y, **common, test_fraction=0.21),
        lambda: from_arrays(X, Y, **common, validation=0.1),
        lambda: from_arrays(X, Y, **common, test="global"),
        lambda: from_arrays(X[:-1], Y[:-1], OWNER[:-1]),
        lambda: from_arrays(X, X[:, 0], **common, regression=True),
    ]
    for number, make in enumerate(variants, start=1):
        make()
        assert len(divided) == number
    for make in variants:
        make()
    assert len(divided) == len(variants)
    from_arrays(X + 1, Y, **common)  # samples do not decide
    assert len(divided) == len(variants)
    monkeypatch.setattr(np, "__version__", "0.0")
    variants[0]()
    assert len(divided) == len(variants) + 1


def test_other_code_divides_anew(
    divided: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = CASES["offsets"]
    make()
    changed = tmp_path / "federate.py"
    changed.write_text(Path(division_cache.federate.__file__).read_text() + "\n")
    monkeypatch.setattr(division_cache.federate, "__file__", str(changed))
    make()
    assert len(divided) == 2
    changed.unlink()  # as of a package in an archive
    make()
    assert len(divided) == 3


def test_what_the_rows_bring_is_not_kept(cache: Path, tmp_path: Path) -> None:
    """A test half of their own, a division in time, inputs that follow from training rows, and an
    inspection, which sets no row aside."""
    folder = tmp_path / "clients"
    folder.mkdir()
    test = np.arange(20) % 4 == 0
    for name in ("a", "b"):
        np.savez(folder / f"{name}.npz", x=X[:20], y=Y[:20], test=test)
    from_files(folder)
    from_arrays(X, Y, OWNER // 100, test={"last": 0.2, "by": np.arange(len(X))})
    from_arrays({"a": X[:, 0]}, Y, OWNER, table={"scale": "federated"})
    from_arrays(X, Y, OWNER, test_fraction=1e-13)
    assert not cache.exists()


def test_few_rows_never_touch_the_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setenv("MOTLEY_CACHE", str(cache.parent))
    CASES["offsets"]()
    assert not cache.parent.exists()
    assert division_cache.LEAST_ROWS == 10_000_000


def test_a_damaged_file_is_made_again(cache: Path, divided: list[int]) -> None:
    first = CASES["validation"]()
    (file,) = held(cache)
    whole = file.read_bytes()
    flipped = [bytearray(whole) for _ in range(3)]
    for content, place in zip(flipped, (3, 60, 5000), strict=True):
        content[place] ^= 1
    contents = [b"", whole[:20], whole[:4096], whole[:-8], whole + b"\0" * 8, *flipped]
    for number, content in enumerate(contents, start=2):
        file.unlink()
        file.write_bytes(content)
        check_same(CASES["validation"](), first)
        assert len(divided) == number
        assert file.read_bytes() == whole
    file.unlink()
    file.mkdir()  # in its place
    check_same(CASES["validation"](), first)
    assert held(cache) == [file]


def test_what_is_written_into_a_federation_stays_in_it(cache: Path) -> None:
    CASES["offsets"]()
    (file,) = held(cache)
    whole = file.read_bytes()
    second = CASES["offsets"]()
    second.train.values[:] = -1
    second.test.offsets[:] = -1
    assert file.read_bytes() == whole
    file.unlink()  # by another process that makes room
    assert (second.train.values == -1).all()
    assert second.test.values.min() >= 0


def test_two_at_once(cache: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        made = [pool.submit(CASES[case]) for case in ["offsets", "validation"] * 6]
    for number, future in enumerate(made):
        check_same(future.result(), made[number % 2].result())
    assert [file.suffix for file in held(cache)] == [".rows"] * 2
    for case, first in zip(("offsets", "validation"), made, strict=False):
        check_same(CASES[case](), first.result())


@pytest.mark.parametrize("call", ["mkdir", "mkstemp", "replace"])
def test_a_disk_that_refuses_is_no_error(
    call: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    owner = {"mkdir": Path, "mkstemp": division_cache.tempfile, "replace": os}[call]
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, refuse)
        first = CASES["offsets"]()
    assert held(cache) == []
    check_same(CASES["offsets"](), first)
    assert len(held(cache)) == 1


def test_a_disk_with_little_room_is_left_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CASES["offsets"]()
    size = held(cache)[0].stat().st_size
    for free, files in ((2 * size - 1, 0), (2 * size, 1)):
        division_cache.remove()
        usage = shutil._ntuple_diskusage(10 * size, 0, free)
        monkeypatch.setattr(shutil, "disk_usage", lambda _, usage=usage: usage)
        CASES["offsets"]()
        assert len(held(cache)) == files


def test_the_longest_unused_leave_first(
    cache: Path, divided: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def make(seed: int) -> None:
        from_arrays(X, Y, offsets=OFFSETS, seed=seed)

    make(0)
    size = held(cache)[0].stat().st_size
    os.utime(held(cache)[0], (100, 100))
    left = cache / "0123.new"  # of a process that was killed
    left.write_bytes(b"0" * 100)
    os.utime(left, (50, 50))
    monkeypatch.setattr(division_cache, "LIMIT", 2 * size + 50)
    make(1)
    assert not left.exists()
    os.utime(next(file for file in held(cache) if file.stat().st_mtime > 100), (200, 200))
    make(0)  # is used again, and so the newer one
    make(2)
    assert len(divided) == 3
    make(0)
    assert len(divided) == 3
    make(1)
    assert len(divided) == 4
    monkeypatch.setattr(division_cache, "LIMIT", size - 1)
    division_cache.remove()
    make(0)
    assert held(cache) == []


def test_the_folder_is_named_or_nothing_is_kept(
    tmp_path: Path, divided: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MOTLEY_CACHE", "off")
    CASES["offsets"]()
    CASES["offsets"]()
    assert divided == [len(X)] * 2
    assert not list(tmp_path.iterdir())
    monkeypatch.delenv("MOTLEY_CACHE")
    CASES["offsets"]()
    assert len(held(tmp_path / ".cache" / "motley" / "divided")) == 1
    monkeypatch.setenv("MOTLEY_CACHE", "~/elsewhere")
    CASES["offsets"]()
    assert len(held(tmp_path / "elsewhere" / "divided")) == 1
    monkeypatch.setenv("MOTLEY_CACHE", "no")
    with pytest.raises(ConfigError, match="MOTLEY_CACHE: got 'no'; expected off, or a folder by"):
        CASES["offsets"]()
