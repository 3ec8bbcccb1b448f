import itertools
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.keys import Key
from motley.tasks import from_arrays, from_clients, from_files
from motley.tasks.federate import _blocks, _order, client_rows, stratified
from motley.tasks.task import Federation

RNG = np.random.default_rng(3)
SIZES = RNG.integers(1, 9, 300)
ENDS = np.concatenate([[0], np.cumsum(SIZES)])
X = RNG.normal(size=(int(ENDS[-1]), 3)).astype(np.float32)
Y = RNG.integers(0, 4, len(X))
CLIENTS = [(X[a:b], Y[a:b]) for a, b in itertools.pairwise(ENDS.tolist())]


def equal(one: Federation, two: Federation) -> bool:
    """Whether two federations hold the same bits in the same places."""
    parts = [(getattr(one, part), getattr(two, part)) for part in ("train", "validation", "test")]
    arrays = [(a.offsets, b.offsets) for a, b in parts] + [(a.values, b.values) for a, b in parts]
    tensors = [(one.x, two.x), (one.y, two.y), (one.labels, two.labels)]
    same = [np.array_equal(a, b) for a, b in arrays] + [
        torch.equal(a, b) and a.dtype == b.dtype for a, b in tensors
    ]
    return all(same)


def test_a_generator_gives_the_federation_of_a_list_and_of_arrays() -> None:
    given = from_clients(CLIENTS, test_fraction=0.3, validation=0.2, seed=5)
    assert equal(given, from_clients(iter(CLIENTS), test_fraction=0.3, validation=0.2, seed=5))
    assert equal(given, from_arrays(X, Y, offsets=ENDS, test_fraction=0.3, validation=0.2, seed=5))
    assert equal(
        given,
        from_arrays(
            X, Y, np.repeat(np.arange(300), SIZES), test_fraction=0.3, validation=0.2, seed=5
        ),
    )
    tests = [(x[:1], y[:1]) for x, y in CLIENTS]
    assert equal(from_clients(CLIENTS, test=tests), from_clients(iter(CLIENTS), test=iter(tests)))


@pytest.mark.parametrize(
    "kinds", [("f4", "f8"), ("i8", "f4"), ("u1", "i4"), ("i2", "u2", "f4"), ("u1",), ("?", "f8")]
)
def test_parts_of_several_types_are_joined_as_numpy_joins_them(kinds: tuple[str, ...]) -> None:
    parts = [
        ((10 * x).astype(kind) if kind != "u1" else abs(10 * x).astype(kind), y)
        for (x, y), kind in zip(CLIENTS, itertools.cycle(kinds), strict=False)
    ]
    whole = from_arrays(np.concatenate([x for x, _ in parts]), Y, offsets=ENDS)
    assert equal(from_clients(iter(parts)), whole)


def test_labels_that_are_words_may_be_of_any_length() -> None:
    words = np.array(["a", "bb", "a much longer one", "d"])
    parts = [(x, words[y]) for x, y in CLIENTS]
    federation = from_clients(iter(parts))
    assert federation.names == tuple(sorted(words.tolist()))
    assert equal(federation, from_arrays(X, words[Y], offsets=ENDS))


def test_of_a_generator_no_client_is_kept() -> None:
    """Of 5,000 clients at most the one before, the one asked for and the first are there at a
    time."""
    alive: weakref.WeakSet[Any] = weakref.WeakSet()
    most = 0

    class Rows(np.ndarray):  # type: ignore[type-arg]
        """An array that can be counted."""

        __hash__ = object.__hash__

    def clients() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        nonlocal most
        for k in range(5_000):
            x = np.full((2, 3), float(k)).view(Rows)
            alive.add(x)
            most = max(most, len(alive))
            yield x, np.arange(2)

    assert len(from_clients(clients())) == 5_000
    assert most <= 3


def test_masks_are_refused() -> None:
    x = np.ma.masked_equal(np.array([[1.0, 999.0], [2.0, 3.0], [3.0, 4.0], [4.0, 4.0]]), 999)
    y = np.ma.masked_array([0, 1, 0, 1], mask=[0, 0, 0, 1])
    owner = np.ma.masked_array([0, 0, 1, 1], mask=[1, 0, 0, 0])
    said = r"got a masked array \(1 of 8 entries are masked\), and masks are not read; write"
    with pytest.raises(DataError, match=said):
        from_arrays(x, y.data, owner.data)
    with pytest.raises(DataError, match=said):
        from_clients([(x, y.data)] * 2)
    with pytest.raises(DataError, match=r"1 of 4 entries"):
        from_arrays(x.data, y, owner.data)
    with pytest.raises(DataError, match=r"1 of 4 entries"):
        from_arrays(x.data, y.data, owner)
    filled = x.astype(float).filled(np.nan)
    gaps = from_arrays(filled, y.data, owner.data, table={"scale": "federated"})
    assert len(gaps.y) == 4
    nothing = np.ma.masked_array(x.data, mask=False)
    assert from_arrays(nothing, y.data, owner.data).x.tolist() == x.data.tolist()


def test_whole_numbers_beyond_int64_are_refused() -> None:
    x = np.array([[1], [2], [3], [2**63 + 5]], np.uint64)
    said = (
        r"features of up to 9223372036854775813 \(uint64\); expected whole numbers up to 2\^63 - 1"
    )
    with pytest.raises(DataError, match=said):
        from_arrays(x, [0, 1, 0, 1], [0, 0, 1, 1])
    with pytest.raises(DataError, match=said):
        from_clients([(x, [0, 1, 0, 1])] * 2)
    largest = np.minimum(x, np.uint64(2**63 - 1))
    assert int(from_arrays(largest, [0, 1, 0, 1], [0, 0, 1, 1]).x.max()) == 2**63 - 1
    assert from_arrays(x.astype(np.float32), [0, 1, 0, 1], [0, 0, 1, 1]).x.max() == 2.0**63


def test_memory_mapped_files_are_not_copied_and_not_changed(tmp_path: Path) -> None:
    for name, values in (("x", X), ("y", Y), ("offsets", ENDS)):
        np.save(tmp_path / f"{name}.npy", values)
    federation = from_files(tmp_path, seed=2)
    assert equal(federation, from_arrays(X, Y, offsets=ENDS, seed=2))
    assert mapped(federation.x.data_ptr(), tmp_path / "x.npy")
    assert mapped(federation.y.data_ptr(), tmp_path / "y.npy")
    federation.x[0] = 7.0  # a page of its own
    federation.y[0] = (Y[0] + 1) % 4
    assert np.array_equal(np.load(tmp_path / "x.npy"), X)
    assert np.array_equal(np.load(tmp_path / "y.npy"), Y)
    (tmp_path / "offsets.npy").unlink()
    np.save(tmp_path / "client.npy", np.repeat(np.arange(300), SIZES))
    assert equal(from_files(tmp_path, seed=2), from_arrays(X, Y, offsets=ENDS, seed=2))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("mode", ["r", "r+", "c"])
def test_only_classes_that_nobody_can_write_to_the_file_stay_mapped(
    tmp_path: Path, mode: Any
) -> None:
    np.save(tmp_path / "y.npy", Y)
    held = np.load(tmp_path / "y.npy", mmap_mode=mode)
    federation = from_arrays(X, held, offsets=ENDS)
    assert mapped(federation.y.data_ptr(), tmp_path / "y.npy") is (mode == "c")
    federation.y[0] = (Y[0] + 1) % 4
    assert np.array_equal(np.load(tmp_path / "y.npy"), Y)
    assert from_arrays(X, held[::-1], offsets=ENDS).y.tolist() == held[::-1].tolist()


def mapped(address: int, path: Path) -> bool:
    """Whether an address lies in a map of this file."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split(maxsplit=5)
        first, end = (int(part, 16) for part in span.split("-"))
        if first <= address < end:
            return name == str(path)
    return False


def test_an_array_that_may_change_is_copied() -> None:
    mine = X.copy()
    fixed = X.copy()
    fixed.flags.writeable = False
    one = from_arrays(mine, Y, offsets=ENDS)
    two = from_arrays(fixed, Y, offsets=ENDS)
    mine[:] = 0.0
    assert torch.equal(one.x, torch.from_numpy(X))
    assert two.x.data_ptr() == fixed.ctypes.data
    view = mine[:]
    view.flags.writeable = False  # its owner can still write
    assert from_arrays(view, Y, offsets=ENDS).x.data_ptr() != mine.ctypes.data


@pytest.mark.parametrize(
    ("offsets", "words"),
    [
        ([0, 3, len(X) - 1], f"got 0 to {len(X) - 1}"),
        ([1, 3, len(X)], f"got 1 to {len(X)}"),
        (
            [0, 3, 3, len(X)],
            "client 1 begins at 3, and the next at 3; expected at least one sample",
        ),
        ([0, 5, 3, len(X)], "client 1 begins at 5, and the next at 3"),
        ([0.0, float(len(X))], r"float64\); expected whole numbers"),
        ([[0, len(X)]], r"an array of shape \[1, 2\]"),
        ([0], "expected whole numbers"),
    ],
)
def test_bad_offsets(offsets: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_arrays(X, Y, offsets=offsets)


def test_either_clients_or_offsets() -> None:
    with pytest.raises(DataError, match="got neither client nor offsets; give one of them"):
        from_arrays(X, Y)
    with pytest.raises(DataError, match="got both client and offsets"):
        from_arrays(X, Y, Y, offsets=ENDS)


def test_bad_folders_of_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(
        DataError,
        match=r"has x.npy and no y.npy; expected x.npy, y.npy, and offsets.npy or client.npy",
    ):
        from_files(tmp_path)
    np.save(tmp_path / "y.npy", Y)
    with pytest.raises(
        DataError, match=r"neither offsets\.npy nor client\.npy, which say whose the samples are"
    ):
        from_files(tmp_path)
    (tmp_path / "offsets.npy").write_bytes(b"no array")
    with pytest.raises(DataError, match=r"offsets\.npy cannot be read as an array"):
        from_files(tmp_path)


def test_generators_of_different_lengths_are_refused() -> None:
    with pytest.raises(DataError, match="got 299 test parts and 300 clients"):
        from_clients(iter(CLIENTS), test=iter(CLIENTS[:-1]))
    with pytest.raises(DataError, match="client 2 has 3 samples and 2 labels"):
        from_clients((x, y) for x, y in [CLIENTS[0], CLIENTS[1], (X[:3], Y[:2])])
    with pytest.raises(DataError, match="there are no clients"):
        from_clients(iter(()))


def test_the_order_is_that_of_lexsort_whatever_the_numbers() -> None:
    owner = RNG.integers(-5, 40, 3_000)
    labels = RNG.integers(0, 6, 3_000)
    # the second with ties, which keep their places
    for drawn in (RNG.random(3_000), np.round(RNG.random(3_000), 1)):
        assert np.array_equal(_order(drawn, labels, owner), np.lexsort((drawn, labels, owner)))
    far = owner * 2**45  # owner and label leave no room for the number drawn
    assert np.array_equal(_order(drawn, labels, far), np.lexsort((drawn, labels, far)))


def test_a_split_in_blocks_is_the_split_at_once() -> None:
    """270,000 rows are split in two blocks; a client's split depends on its own rows alone, so each
    half alone gives the same."""
    owner = np.sort(RNG.integers(0, 60_000, 270_000))
    labels = RNG.integers(0, 5, len(owner))
    rows = RNG.permutation(len(owner))
    blocks = _blocks(owner)
    assert len(blocks) == 2
    assert [0, *np.cumsum([len(owner[some]) for some in blocks])][-1] == len(owner)
    assert owner[blocks[0]][-1] < owner[blocks[1]][0]
    whole = stratified(rows, owner, labels, 0.3, Key(4))
    middle = int(np.searchsorted(owner, 30_000))
    for some in (slice(middle), slice(middle, None)):
        assert np.array_equal(
            whole[some], stratified(rows[some], owner[some], labels[some], 0.3, Key(4))
        )
    mixed = RNG.permutation(len(owner))
    assert np.array_equal(
        whole[mixed], stratified(rows[mixed], owner[mixed], labels[mixed], 0.3, Key(4))
    )
    numbers = client_rows(owner)
    first = np.searchsorted(owner, owner)
    assert np.array_equal(numbers, (owner << 32) + np.arange(len(owner)) - first)
    assert np.array_equal(np.sort(numbers[mixed]), np.sort(client_rows(owner[mixed])))
    assert np.array_equal(
        stratified(None, owner, labels, 0.3, Key(4)),
        stratified(numbers, owner, labels, 0.3, Key(4)),
    )


def test_one_owner_is_one_block() -> None:
    assert _blocks(np.zeros(10, np.int64), 3) == [slice(0, 10)]
    assert _blocks(np.array([0, 0, 1, 1, 1, 1, 2]), 3) == [slice(0, 2), slice(2, 6), slice(6, 7)]
    assert _blocks(np.zeros(0, np.int64)) == []


@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_pictures_of_different_ranges_are_refused(kind: type[np.generic]) -> None:
    """200 of 255 in one client is 0.8 of 1 in the other; two scaled clients go together."""
    large = np.full((4, 1, 2, 2), 200, kind)
    small = np.full((4, 1, 2, 2), 0.8, np.float32)
    y = np.array([0, 1, 0, 1])
    said = (
        f"client {{}} has samples of {np.dtype(kind)} up to 200, and client {{}} has samples of "
        r"float32 up to 0\.8; expected one range: .* \(x / 255\)"
    )
    for parts, who in (([large, small], (0, 1)), ([small, small, large], (2, 0))):
        with pytest.raises(DataError, match=said.format(*who)):
            from_clients([(x, y) for x in parts])
    assert len(from_clients([(small, y), (small * 2 - 3, y)])) == 2


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (scipy.sparse.csr_matrix(np.eye(4)), r"sparse matrix .*; write x.toarray\(\)"),
        (torch.eye(4).to_sparse(), r"sparse matrix .*; write x.to_dense\(\)"),
        (torch.eye(4).bfloat16(), r"tensor of torch.bfloat16 .*; write x.float\(\)"),
    ],
)
def test_matrices_that_numpy_has_not_are_refused_with_the_mend(x: Any, words: str) -> None:
    with pytest.raises(DataError, match=words):
        from_clients([(x, np.array([0, 1, 0, 1]))], test_fraction=0.5)


class Index(list[int]):
    """Names of rows, as pandas has them."""

    def equals(self, other: object) -> bool:
        return list(self) == other


class Named(np.ndarray):
    """An array whose rows have names."""

    index: Any


def named(values: Any, index: list[int]) -> Any:
    array = np.asarray(values).view(Named)
    array.index = Index(index)
    return array


def test_labels_in_another_order_than_their_rows_are_refused() -> None:
    """A row would be given another's label: frames that were sorted or shuffled apart."""
    x = named(np.eye(4), [0, 1, 2, 3])
    y = [0, 1, 0, 1]
    with pytest.raises(DataError, match=r"^client 0: x and y have .*y.loc\[x.index\]"):
        from_clients([(x, named(y, [0, 2, 1, 3]))], test_fraction=0.5)
    with pytest.raises(DataError, match=r"^the arrays given: x and y have the same index"):
        from_arrays(x, named(y, [3, 2, 1, 0]), [0, 0, 1, 1], test_fraction=0.5)
    with pytest.raises(DataError, match=r"x and client have .*client.loc"):
        from_arrays(x, y, named([0, 0, 1, 1], [3, 2, 1, 0]), test_fraction=0.5)
    for index in ([0, 1, 2, 3], [4, 5, 6, 7]):
        assert len(from_clients([(x, named(y, index))], test_fraction=0.5)) == 1
