"""Samples that come client by client, put behind one another into one data set.

Parts may come from a generator: of a million clients no object is held for each, and their samples
are held once, in memory or in a file.
"""

from __future__ import annotations

import itertools
import math
import tempfile
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import user_path
from motley.core.side_by_side import side_by_side
from motley.tasks.origin import Origin
from motley.tasks.task import Dataset
from motley_data.raw_table import arrow_table, check_columns, joined, raw_table
from motley_data.row_labels import label_texts, refuse_two_codes, renamed_labels
from motley_data.table_options import TableOptions
from motley_data.table_readers import make_dataset

Part = tuple[Any, NDArray[Any], str]
"""Samples (an array or an Arrow table), targets, and the name of the part in messages."""
_LOOKED_AT = 32
"""Samples of a client whose range is looked at."""
_FILLED = 2**18
"""Clients whose rows get their number at a time."""
_SMALL = 10.0
"""Pixels that are scaled or standardized are no larger; bytes are."""


def array_of(values: ArrayLike) -> NDArray[Any]:
    """Return values as an array, without a copy where they are one.

    Raises
    ------
    DataError: rows of different lengths, masked entries, a sparse matrix, a tensor of a type that
    NumPy lacks.
    """
    if isinstance(values, np.ma.MaskedArray) and np.ma.is_masked(values):
        count = int(np.ma.getmaskarray(values).sum())
        raise DataError(
            f"got a masked array ({count:,} of {values.size:,} entries are masked), and masks are "
            "not read; write x.astype(float).filled(numpy.nan) for gaps among the inputs, with "
            'table={"scale": "federated"}, and leave out rows whose label or client is masked'
        )
    if hasattr(values, "toarray") or (
        isinstance(values, Tensor) and values.layout != torch.strided
    ):
        dense = "x.to_dense()" if isinstance(values, Tensor) else "x.toarray()"
        shape = list(getattr(values, "shape", ()))
        raise DataError(
            f"got a sparse matrix ({type(values).__name__} of shape {shape}), and samples are rows "
            f"of an array; write {dense}"
        )
    try:
        return values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    except TypeError as error:
        if not isinstance(values, Tensor):
            raise
        raise DataError(f"got a tensor of {values.dtype} ({error}); write x.float()") from None
    except ValueError:
        raise DataError(
            "got rows of different lengths; expected an array of numbers with one row per sample"
        ) from None


def is_table(x: Any) -> bool:
    """Return whether samples are an Arrow table."""
    return hasattr(x, "column_names")


def inputs_of(x: Any) -> Any:
    """Return model inputs as an array, or as an Arrow table."""
    if isinstance(x, Mapping) or hasattr(x, "__arrow_c_stream__") or hasattr(x, "columns"):
        return arrow_table(x)
    return array_of(x)


def owners(offsets: ArrayLike | None, count: int) -> NDArray[np.int64]:
    """Return the client of each of ``count`` rows, ``[count]``, given the positions at which the
    clients' rows begin, ``[K + 1]``.

    Raises
    ------
    DataError: positions that do not divide the rows, or a client without any.
    """
    starts = array_of(offsets)  # type: ignore[arg-type]  # None is refused like anything that is not numbers
    if starts.ndim == 1 and len(starts):
        ends = f"{starts[0]} to {starts[-1]}"
    else:
        ends = f"an array of shape {list(starts.shape)}"
    if (
        starts.dtype.kind not in "iu"
        or starts.ndim != 1
        or len(starts) < 2
        or starts[0] != 0
        or starts[-1] != count
    ):
        raise DataError(
            f"offsets: got {ends} ({starts.dtype}); expected whole numbers [K + 1] from 0 to "
            f"{count}, the samples"
        )
    empty = starts[1:] <= starts[:-1]
    if empty.any():
        k = int(empty.argmax())
        raise DataError(
            f"offsets: client {k} begins at {starts[k]}, and the next at {starts[k + 1]}; expected "
            "at least one sample per client"
        )
    starts = np.asarray(starts, np.int64)
    owner = np.empty(count, np.int64)

    def fill(first: int) -> None:
        ends = starts[first : first + _FILLED + 1]
        numbers = np.arange(first, first + len(ends) - 1)
        owner[ends[0] : ends[-1]] = np.repeat(numbers, np.diff(ends))

    list(side_by_side(fill, range(0, len(starts) - 1, _FILLED)))
    return owner


def mapped_arrays(root: Path) -> dict[str, Any]:
    """Return ``x``, ``y`` and ``offsets`` or ``client`` of a folder with files ``.npy`` of these
    names, memory-mapped.

    Raises
    ------
    DataError: a file is missing, or is no array.
    """
    names = [
        "x",
        "y",
        *(name for name in ("offsets", "client") if (root / f"{name}.npy").is_file()),
    ]
    arrays: dict[str, Any] = {}
    for name in names:
        path = root / f"{name}.npy"
        try:
            arrays[name] = np.load(path, mmap_mode="c")
        except FileNotFoundError:
            raise DataError(
                f"{root} has x.npy and no {path.name}; expected x.npy, y.npy, and offsets.npy or "
                "client.npy"
            ) from None
        except (OSError, ValueError, EOFError) as error:
            raise DataError(
                f"{path} cannot be read as an array ({str(error).splitlines()[0]})"
            ) from None
    if len(names) < 3:
        raise DataError(
            f"{root} has x.npy and y.npy, but neither offsets.npy nor client.npy, which say whose "
            "the samples are"
        )
    return arrays


def table_options(table: TableOptions | Mapping[str, Any] | None) -> TableOptions:
    """Return how columns become inputs.

    Raises
    ------
    ConfigError: an unknown option.
    """
    if table is None or isinstance(table, TableOptions):
        return table or TableOptions(scale="none")
    names = [f.name for f in fields(TableOptions)]
    for name in table:
        if name not in names:
            raise ConfigError(
                f"table: there is no option {name!r}{suggest(name, names)}; expected one of: "
                f"{', '.join(names)}"
            )
    lists = {name: tuple(value) for name, value in table.items() if isinstance(value, list)}
    return TableOptions(**{**table, **lists})


def check_same_rows(x: Any, y: Any, where: str, name: str = "y") -> None:
    """Refuse inputs and labels of pandas whose rows have the same names in another order: rows are
    taken in their order, and one would get another's label.

    Parameters
    ----------
    where: whose rows they are.
    name: of the argument ``y``.

    Raises
    ------
    DataError: they have.
    """
    names: Any = getattr(x, "index", None)
    others: Any = getattr(y, "index", None)
    if not (hasattr(names, "equals") and hasattr(others, "equals")) or names.equals(others):
        return
    if len(names) == len(others) and set(names) == set(others):
        raise DataError(
            f"{where}: x and {name} have the same index in another order, and rows are taken in "
            f"order; write {name}.loc[x.index], or {name}.reset_index(drop=True) if their order is "
            "meant"
        )


def input_pair(pair: Any, name: str) -> Part:
    """Return the samples and labels of one client; ``name`` of the pair in messages.

    Raises
    ------
    DataError: it is no pair of arrays.
    """
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise DataError(
            f"{name} is a {type(pair).__name__}; expected a pair (x, y) of arrays, a Dataset or "
            "DataLoader of torch, or a list of samples (x, label)"
        )
    check_same_rows(pair[0], pair[1], name)
    x = inputs_of(pair[0])
    y = array_of(pair[1])
    if not is_table(x) and (not x.ndim or not y.ndim):
        raise DataError(
            f"{name} has a single number for x or y; expected arrays with one row per sample"
        )
    return x, y, name


def with_one_code(
    parts: Iterable[Part], options: TableOptions, classes: Callable[[], int | None]
) -> Iterator[Part]:
    """Yield parts with their labels under the names that the options give them.

    Parameters
    ----------
    classes: returns how many classes were named, by the caller or by the data that was read.

    Raises
    ------
    DataError: numbers in one part and words in another, or no and yes in two codes.
    """
    held: dict[frozenset[str], str] = {}
    ranges: set[tuple[float, float]] = set()
    for x, labels, name in parts:
        y = renamed_labels(labels, options)
        if y.ndim == 1 and len(y) and _is_new_range(y, ranges):
            held.setdefault(label_texts(y), name)
        yield x, y, name
    named = [(name, texts) for texts, name in held.items()]
    refuse_two_codes(named, "the clients given", classes())


def _is_new_range(y: NDArray[Any], ranges: set[tuple[float, float]]) -> bool:
    """Return whether the least and the largest of labels ``[n]`` are not among ``ranges``, to which
    they are added: of two codes of no and yes they differ. True for words, and for -1 and 1, which
    may have a 0 between them."""
    if y.dtype.kind not in "biuf":
        return True
    ends = (float(y.min()), float(y.max()))
    if ends in ranges and ends != (-1.0, 1.0):
        return False
    ranges.add(ends)
    return True


def join_parts(
    parts: Iterable[Part],
    regression: bool,
    multilabel: bool,
    options: TableOptions,
    client: Callable[[int], str],
    own: str,
    new_rows: NewRows | None = None,
) -> Dataset:
    """Return one data set of the parts; parts with the same name belong to the same client and are
    adjacent.

    Parameters
    ----------
    client: a client in words, by its number.
    own: what a part is called in messages, e.g. "its file".
    new_rows: makes the array that samples are put into (:func:`rows_in`); None: in memory.

    Raises
    ------
    DataError: no parts, or parts that do not fit together.
    """
    if new_rows is not None:
        parts = map(_no_table, parts)
    parts = iter(parts)
    where = "the clients given"
    first = next(parts, None)
    if first is None:
        raise DataError("there are no clients")
    parts = itertools.chain((first,), parts)
    if is_table(first[0]):
        held = list(parts)
        if all(is_table(x) for x, _, _ in held):
            rows = [x for x, _, _ in held]
            targets = GrowingArray(first[1])
            owner = _clients(held, targets)
            for x, _, name in held:
                check_columns(x, rows[0], name)
            origin = Origin(where, owner, client, own)
            return make_dataset(
                x=joined(rows),
                y=targets.array(),
                client=owner,
                classes=not regression,
                where=origin,
                several=multilabel,
                whole_numbers=True,
                options=options,
            )
        parts = iter(held)
    arrays = (
        (raw_table(x, options, where).values() if is_table(x) else x, y, name)
        for x, y, name in parts
    )
    words = ((x.astype(object) if x.dtype.kind in "US" else x, y, name) for x, y, name in arrays)
    first = next(words)
    samples = (new_rows or GrowingArray)(first[0])
    targets = GrowingArray(first[1])
    owner = _clients(itertools.chain((first,), words), targets, samples)
    origin = Origin(where, owner, client, own)
    return make_dataset(
        x=samples.array(),
        y=targets.array(),
        client=owner,
        classes=not regression,
        where=origin,
        several=multilabel,
        whole_numbers=True,
        options=options,
    )


def _clients(
    parts: Iterable[Part],
    targets: GrowingArray,
    samples: GrowingArray | StoredArray | None = None,
) -> NDArray[np.int64]:
    """Add the rows of all parts, and return the number of each row's client."""
    first: Part | None = None
    sizes = GrowingArray(np.zeros(0, np.int64))
    before = None
    ranges: dict[str, str] = {}
    for x, y, name in parts:
        first = first or (x, y, name)
        _check(x, y, name, first)
        _check_range(x, name, ranges)
        if name == before:
            sizes.rows[sizes.count - 1] += len(y)
        else:
            sizes.add(np.array([len(y)]))
        targets.add(y)
        if samples is not None:
            samples.add(x)
        before = name
    each = sizes.array()
    return np.repeat(np.arange(len(each)), each)


def _check(x: Any, y: NDArray[Any], name: str, first: Part) -> None:
    """Refuse a part without rows, or of another shape than the first."""
    if not len(x) or len(x) != len(y):
        raise DataError(
            f"{name} has {len(x)} samples and {len(y)} labels; expected as many, and at least one"
        )
    if x.shape[1:] != first[0].shape[1:]:
        raise DataError(
            f"{name} has samples of shape {list(x.shape[1:])}, {first[2]} of "
            f"{list(first[0].shape[1:])}"
        )
    if y.shape[1:] != first[1].shape[1:]:
        pad = "; fill positions without a target with -100" if y.ndim == 2 else ""
        raise DataError(
            f"{name} has labels of shape {list(y.shape)}, {first[2]} of {list(first[1].shape)}{pad}"
        )


def _check_range(x: Any, name: str, ranges: dict[str, str]) -> None:
    """Refuse pictures ``[n, ...]`` that are bytes in one part and scaled in another.

    ``ranges``: the first part of each kind, to which this one is added.
    """
    if is_table(x) or x.ndim < 3 or x.dtype.kind not in "uif":
        return
    sample = x[:_LOOKED_AT]
    low, high = sample.min(initial=0), sample.max(initial=0)
    whole_numbers = x.dtype == np.uint8 or (x.ndim > 3 and bool((sample == np.floor(sample)).all()))
    if whole_numbers and low >= 0 and _SMALL < high <= 255:
        kind = "bytes"
    elif x.dtype.kind == "f" and max(-low, high) <= _SMALL and (sample != np.floor(sample)).any():
        kind = "scaled"
    else:
        return
    ranges.setdefault(kind, f"{name} has samples of {x.dtype} up to {high:.3g}")
    if len(ranges) > 1:
        raise DataError(
            f"{ranges['bytes']}, and {ranges['scaled']}; expected one range: give all pictures as "
            "uint8 0 .. 255, or divide those by 255 (x / 255)"
        )


class GrowingArray:
    """Rows put behind one another into one array that grows in place; what ``np.concatenate`` of
    all of them returns.

    Parameters
    ----------
    like: an array ``[n, ...]`` of the rows' shape and type; it is not added.
    """

    def __init__(self, like: NDArray[Any]) -> None:
        self.rows = np.empty((1024, *like.shape[1:]), like.dtype)
        self.shape = like.shape[1:]
        self.count = 0
        self._kinds = {like.dtype}

    def add(self, part: NDArray[Any]) -> None:
        """Add rows ``[n, ...]``."""
        if part.dtype not in self._kinds:
            self._kinds.add(part.dtype)
            # rows that nobody has written hold anything, also what cannot be cast
            self._resize(self.count)
            self.rows = self.rows.astype(np.result_type(*self._kinds), copy=False)
        end = self.count + len(part)
        # An eighth more: the array is moved, not copied, and memory stays close to what is needed.
        if end > len(self.rows):
            self._resize(max(end, len(self.rows) * 9 // 8))
        self.rows[self.count : end] = part
        self.count = end

    def array(self) -> NDArray[Any]:
        """Return all rows, read-only."""
        self._resize(self.count)
        self.rows.flags.writeable = False
        return self.rows

    def _resize(self, count: int) -> None:
        self.rows.resize((count, *self.rows.shape[1:]), refcheck=False)


class StoredArray:
    """Rows put behind one another into a file without a name, which is then mapped into memory: a
    :class:`GrowingArray` on disk. The disk is free again when nobody holds the array.

    Parameters
    ----------
    folder: of the file; made where it is missing.
    like: an array ``[n, ...]`` of the rows' shape and type; it is not added. Rows are stored as
    uint8, int64 (other whole numbers) or float32 (everything else), as a model takes them.

    Raises
    ------
    DataError: no file can be written there; rows that are stored as another type than the first.
    """

    def __init__(self, folder: Path, like: NDArray[Any]) -> None:
        self.shape = like.shape[1:]
        self.count = 0
        self._folder = folder
        self._kind = _stored(like)
        with self._written():
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 - closed with this array
        weakref.finalize(self, self._file.close)  # also where rows that follow are refused

    def add(self, part: NDArray[Any]) -> None:
        """Add rows ``[n, ...]``."""
        if _stored(part) != self._kind:
            raise DataError(
                f"store: got samples of {part.dtype} after samples that are kept as {self._kind}; "
                "give all of one type"
            )
        block_rows = max(_BLOCK // max(math.prod(self.shape), 1), 1)
        with self._written(), np.errstate(over="ignore"):
            for first in range(0, len(part), block_rows):
                rows = np.ascontiguousarray(part[first : first + block_rows], self._kind)
                self._file.write(rows.data)
        self.count += len(part)

    def array(self) -> NDArray[Any]:
        """Return all rows; what is changed in them does not reach the file."""
        with self._written():
            self._file.flush()
            return np.memmap(self._file, self._kind, "c", shape=(self.count, *self.shape))

    @contextmanager
    def _written(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise DataError(
                f"store: {self._folder} cannot be written to ({error.strerror or error}); give "
                "another folder"
            ) from None


NewRows = Callable[[NDArray[Any]], GrowingArray | StoredArray]
"""Function of an array ``[n, ...]``: an array without rows, for such rows."""
_BLOCK = 2**20
"""Numbers that are written at a time."""


def rows_in(store: str | Path | None) -> NewRows | None:
    """Return what makes arrays in files of a folder; None: in memory."""
    return None if store is None else partial(StoredArray, user_path(store))


def _stored(rows: NDArray[Any]) -> np.dtype[Any]:
    """Return the type as which rows are stored."""
    if rows.dtype.kind not in "biuf":
        raise DataError(f"store: got samples of {rows.dtype}; expected numbers")
    widest = np.int64 if rows.dtype.kind in "iu" else np.float32
    return np.dtype(np.uint8 if rows.dtype == np.uint8 else widest)


def _no_table(part: Part) -> Part:
    """Refuse a table where samples are to be stored."""
    if is_table(part[0]):
        raise DataError(
            f"store: {part[2]} is a table, which is prepared in memory; leave store out, or give "
            "arrays"
        )
    return part
