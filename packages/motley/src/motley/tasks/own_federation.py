"""Federations of your own data: arrays per client, one array with client ids, or one file per
client.

>>> import numpy as np
>>> clients = {name: (np.ones((20, 3)), np.arange(20) % 2) for name in ("alder", "birch")}
>>> federation = from_clients(clients, test_fraction=0.25)
>>> federation.client_names, federation.train.sizes.tolist()
(('alder', 'birch'), [15, 15])
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.client_names import client_in_words
from motley.core.errors import DataError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.client_parts import (
    Part,
    array_of,
    input_pair,
    inputs_of,
    is_table,
    join_parts,
    mapped_arrays,
    owners,
    table_options,
)
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.origin import Origin
from motley.tasks.public_classes import with_classes
from motley.tasks.raw_table import TableOptions, raw_table
from motley.tasks.row_labels import What
from motley.tasks.table_readers import make_dataset, read_parts, take_column, take_columns
from motley.tasks.task import Dataset, Federation

__all__ = ["client_files", "from_arrays", "from_clients", "from_files"]

Where = Literal["client", "global"]
_LINE = "classes=10 to from_arrays, from_clients or from_files"


def from_arrays(
    x: Any,
    y: ArrayLike | str,
    client: ArrayLike | str | None = None,
    *,
    offsets: ArrayLike | None = None,
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Where = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from one array or DataFrame, with a client id per row or the position at
    which each client's rows begin.

    Parameters
    ----------
    x: ``[n, ...]`` model inputs; whole numbers (but uint8) stay so where the model takes them, see
    :func:`own_task`. Or a table: a DataFrame of pandas or Polars, an Arrow table, a mapping of
    columns. A memory-mapped array of float32, uint8 or int64 (``numpy.load(..., mmap_mode="c")``)
    is not copied, so the samples may be larger than memory.
    y: ``[n]`` classes (numbers 0 .. C - 1, or strings); ``[n, T]`` a class per position (-100:
    none); numbers ``[n]``, ``[n, d]`` with ``regression``; labels 0 or 1 ``[n, C]`` with
    ``multilabel``, any number of them per sample. Classes of int64 that are memory-mapped with
    mode ``c`` are not copied either.
    client: ``[n]`` numbers or strings; clients are numbered in sorted order, and strings are their
    names. y and client may be names of columns of a table.
    offsets: ``[K + 1]`` in place of ``client``: rows ``offsets[k] .. offsets[k + 1] - 1`` are
    client k's.
    table: how columns become inputs, e.g. ``{"scale": "federated"}`` for columns with gaps or
    words, see :class:`~motley.tasks.table_options.TableOptions`; left out: they are complete
    numbers, and stay as they are.
    classes: their number, or the list of their names; left out: those that the labels show, which a
    private run refuses.
    test, test_fraction, validation: see :class:`~motley.tasks.federate.Split`. seed: of the split.

    Raises
    ------
    DataError: a column that cannot be used, NaN features, labels out of range, lengths that differ.
    ConfigError: shares out of range; words or gaps that ``table`` does not allow.

    Example
    -------
    >>> x, y = np.zeros((6, 2), np.float32), np.array([0, 1, 0, 1, 0, 1])
    >>> from_arrays(x, y, offsets=[0, 2, 6]).train.sizes.tolist()
    [1, 3]
    """
    options = table_options(table)
    inputs = inputs_of(x)
    ids: NDArray[Any] | None = None
    if isinstance(y, str) and isinstance(client, str) and is_table(inputs):
        inputs, targets, ids = take_columns(
            inputs, y, client, "the table given", options, not regression
        )
    else:
        inputs, targets = _taken(inputs, y, options, "target" if regression else "label")
    if (client is None) == (offsets is None):
        raise DataError(
            f"got {'neither client nor' if client is None else 'both client and'} offsets; give "
            "one of them: the client of each row, or offsets, the positions at which the clients' "
            "rows begin"
        )
    if ids is None:
        given = owners(offsets, len(targets)) if client is None else client
        inputs, ids = _taken(inputs, given, options, "client")
    where = "the table given" if is_table(inputs) else "the arrays given"
    column = client if isinstance(client, str) else None
    dataset = make_dataset(
        inputs,
        targets,
        ids,
        not regression,
        where,
        multilabel,
        whole=True,
        options=options,
        column=column,
    )
    return _federation(
        with_classes(dataset, classes, where, _LINE), Split(test, test_fraction, validation), seed
    )


def from_clients(
    clients: Iterable[tuple[Any, ArrayLike]] | Mapping[str, tuple[Any, ArrayLike]],
    *,
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Where | Iterable[tuple[Any, ArrayLike]] | Mapping[str, tuple[Any, ArrayLike]] = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from a list of ``(x, y)``, or a generator of them, client 0 first; or
    from a mapping of them by name.

    Parameters
    ----------
    clients: samples and targets of each client; those of a generator are asked for once, and no
    object is kept for each.
    test: what a share of them is set aside for, or a second list or generator: the samples and
    targets that each client tests on. Then ``clients`` holds training (and validation) samples
    only, and ``test_fraction`` means nothing. Other parameters as in :func:`from_arrays`.

    Raises
    ------
    DataError: as in :func:`from_arrays`; not one test part per client.

    Example
    -------
    >>> import numpy as np
    >>> train = [(np.ones((6, 2)), [0, 1] * 3), (np.ones((4, 2)), [0, 1] * 2)]
    >>> test = [(np.zeros((2, 2)), [0, 1]), (np.zeros((3, 2)), [0, 1, 1])]
    >>> from_clients(train, test=test).test.sizes.tolist()
    [2, 3]
    """
    options = table_options(table)
    asked = [0, 0]
    names = tuple(map(str, clients)) if isinstance(clients, Mapping) else ()
    test = _by_name(test, clients)

    def words(part: int) -> str:
        late = part >= asked[0]
        return (
            f"{'the test part of ' if late else ''}{client_in_words(part - asked[0] * late, names)}"
        )

    def parts(pairs: Iterable[Any], kind: int, said: str) -> Iterator[Part]:
        for number, pair in enumerate(pairs):
            asked[kind] = number + 1
            yield input_pair(pair, said + client_in_words(number, names))

    given = parts(clients.values() if isinstance(clients, Mapping) else clients, 0, "")
    if isinstance(test, str):
        dataset = join_parts(given, regression, multilabel, options, words, "its samples")
        dataset = with_classes(
            dataclasses.replace(dataset, client_names=names), classes, "the clients given", _LINE
        )
        return _federation(dataset, Split(test, test_fraction, validation), seed)
    _check_test(test, clients)
    both = chain(given, parts(test, 1, "the test part of "))
    dataset = join_parts(both, regression, multilabel, options, words, "its samples")
    count, tests = asked
    if count != tests:
        raise _other_number(tests, count)
    # of the part: the training parts come first
    number = np.zeros(0, np.int64) if dataset.groups is None else dataset.groups
    dataset = with_classes(dataset, classes, "the clients given", _LINE)
    dataset = dataclasses.replace(
        dataset, test=number >= count, groups=number % count, client_names=names
    )
    return _federation(dataset, Split("client", validation=validation), seed)


def _check_test(test: Any, clients: Any) -> None:
    """Refuse test parts that are no list or generator, or of another number than the clients where
    both are known."""
    if not isinstance(test, Iterable):
        raise DataError(
            f'got {type(test).__name__} as test; expected "client", "global", or a list with a '
            "pair (x, y) per client"
        )
    if isinstance(test, Sized) and isinstance(clients, Sized) and len(test) != len(clients):
        raise _other_number(len(test), len(clients))


def _by_name(test: Any, clients: Any) -> Any:
    """Return test parts in the order of the clients, where both are given by name.

    Raises
    ------
    DataError: a client without a test part, or one of the two by name only.
    """
    named = [isinstance(one, Mapping) for one in (test, clients)]
    if isinstance(test, str) or not any(named):
        return test
    if not all(named):
        raise DataError(
            "got clients by name and test parts without, or the other way; give both as mappings, "
            "or both as lists"
        )
    for name in (*clients, *test):
        if name not in clients or name not in test:
            raise DataError(
                f"got {name!r} among the {'clients' if name in clients else 'test parts'} only; "
                "expected it in both"
            )
    return [test[name] for name in clients]


def _other_number(tests: int, clients: int) -> DataError:
    return DataError(
        f"got {tests} test parts and {clients} clients; expected a pair (x, y) per client, in the "
        "same order"
    )


def from_files(
    folder: str | Path,
    *,
    label: str = "label",
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Where = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from a folder with one file or one sub-folder of files per client, in the
    order of their names.

    Files are ``.npz`` (arrays ``x``, ``y``), ``.parquet`` or ``.csv``. Of many clients: a folder
    with ``x.npy``, ``y.npy`` and ``offsets.npy`` or ``client.npy``, as in :func:`from_arrays`; the
    samples and their classes are memory-mapped.

    Parameters
    ----------
    label: the column of targets in ``.parquet`` and ``.csv``. Other parameters as in
    :func:`from_arrays`.
    """
    root = Path(folder)
    if (root / "x.npy").is_file():
        common: dict[str, Any] = {
            "regression": regression,
            "multilabel": multilabel,
            "table": table,
            "test": test,
        }
        common["classes"] = classes
        return from_arrays(
            **mapped_arrays(root),
            **common,
            test_fraction=test_fraction,
            validation=validation,
            seed=seed,
        )
    files = [(name, path) for name, paths in client_files(root) for path in paths]
    options = table_options(table)
    parts = read_parts(files, label, options, classes=not regression)
    names = tuple(dict.fromkeys(name for name, _ in files))
    try:
        dataset = join_parts(
            parts,
            regression,
            multilabel,
            options,
            partial(client_in_words, names=names),
            "its file",
        )
    except DataError:
        for (name, path), (x, _, _) in zip(files, parts, strict=True):
            if is_table(x):
                origin = Origin.of_clients(str(path), np.zeros(len(x), np.int64), [name])
                raw_table(x, options, origin)  # says in which file
        raise
    dataset = with_classes(
        dataclasses.replace(dataset, client_names=names), classes, str(root), _LINE
    )
    return _federation(dataset, Split(test, test_fraction, validation), seed)


def _taken(
    inputs: Any, given: ArrayLike | str, options: TableOptions, what: What
) -> tuple[Any, NDArray[Any]]:
    """Return the inputs without a column that is given by its name, and its values."""
    if not isinstance(given, str):
        return inputs, array_of(given)
    if not is_table(inputs):
        raise DataError(
            f"got {given!r} as the name of a column, and x is an array; give an array, or x as a "
            "DataFrame"
        )
    return take_column(inputs, given, what, "the table given", options)


def client_files(root: Path) -> list[tuple[str, list[Path]]]:
    """Return name and files of every client.

    Raises
    ------
    DataError: no folder, no files of clients in it, or two clients of the same name.
    """
    if not root.is_dir():
        raise DataError(f"{root} is not a folder")
    kinds = (".npz", ".parquet", ".csv")
    single = [(path.stem, [path]) for path in sorted(root.iterdir()) if path.suffix in kinds]
    nested = [
        (inner.name, [path for path in sorted(inner.iterdir()) if path.suffix in kinds])
        for inner in sorted(root.iterdir())
        if inner.is_dir()
    ]
    found = [(name, paths) for name, paths in (*single, *nested) if paths]
    twice = [name for name, times in Counter(name for name, _ in found).items() if times > 1]
    if twice:
        raise DataError(
            f"{root} has two clients of the name {twice[0]!r}; give each client one file, or one "
            "folder of files"
        )
    if not found:
        raise DataError(
            f"{root} has no files of clients; expected one .npz, .parquet or .csv file (or "
            "sub-folder) per client"
        )
    return found


def _federation(dataset: Dataset, split: Split, seed: int) -> Federation:
    """Return the federation of the natural clients."""
    key = Key(seed).fold("split")
    rows = partition_input(dataset, split, key, shared=True, own_rows=True)
    owner = rows.groups if rows.groups is not None else np.zeros(len(rows.rows), np.int64)
    in_order = bool((owner[1:] >= owner[:-1]).all())
    if not in_order:
        order = np.argsort(owner, kind="stable")
    elif len(rows.rows) == len(dataset.y):
        order = rows.rows  # all of them: 0, 1, 2 ..
    else:
        order = np.arange(len(owner))
    sizes = np.bincount(
        owner, minlength=int(dataset.groups.max()) + 1 if dataset.groups is not None else 1
    )
    parts = Ragged(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), order)
    return federate(dataset, rows, parts, split, key, owner=owner if in_order else None)
