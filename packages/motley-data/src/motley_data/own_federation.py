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
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from motley.core.client_names import client_in_words
from motley.core.errors import ConfigError, DataError
from motley.core.files import user_path
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.core.side_by_side import never_falls
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.origin import Origin
from motley.tasks.task import Dataset, Federation
from motley_data import division_cache
from motley_data.client_folders import ClientFile, client_files, is_client_file
from motley_data.client_parts import (
    check_same_rows,
    inputs_of,
    is_table,
    join_parts,
    mapped_arrays,
    owners,
    rows_in,
    table_options,
    with_one_code,
)
from motley_data.client_sources import ClientSources, without_column
from motley_data.formats import leaf, npz
from motley_data.loaders import SampleReader
from motley_data.public_classes import with_classes
from motley_data.raw_table import raw_table
from motley_data.row_splits import options_without, row_split, times_of, with_divided_rows
from motley_data.row_times import PYTHON_LINE, check_no_windows, warn_of_times
from motley_data.table_options import TableOptions
from motley_data.table_readers import make_dataset, read_parts, take_columns

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
    test: Any = "client",
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
    none), ``[n, H, W]`` per pixel, for outputs ``[B, C, H, W]``; numbers ``[n]``, ``[n, d]`` or
    ``[n, H, W]`` with ``regression``; labels 0 or 1 ``[n, C]`` with ``multilabel``, any number of
    them per sample. Classes of int64 that are memory-mapped with mode ``c`` are not copied either.
    client: ``[n]`` numbers or strings; clients are numbered in sorted order, and strings are their
    names. y and client may be names of columns of a table.
    offsets: ``[K + 1]`` in place of ``client``: rows ``offsets[k] .. offsets[k + 1] - 1`` are
    client k's.
    table: how columns become inputs, e.g. ``{"scale": "federated"}`` for columns with gaps or
    words, see :class:`~motley_data.table_options.TableOptions`; left out: they are complete
    numbers, and stay as they are.
    classes: their number, or the list of their names; left out: those that the labels show, which a
    private run refuses.
    test, test_fraction, validation: see :class:`~motley.tasks.federate.Split`. Also the last rows
    of each client in time, ``test={"last": 0.2, "by": "time"}``, or whole groups of rows,
    ``test={"groups": 0.2, "by": "patient"}``, by a column, which is no input, an array ``[n]``, or
    ``"order"``, the rows as they come.
    seed: of the split.

    Raises
    ------
    DataError: a column that cannot be used, NaN features, labels out of range, lengths that differ,
    windows of a series of which test rows would be drawn at random.
    ConfigError: shares out of range; words or gaps that ``table`` does not allow.

    Example
    -------
    >>> x, y = np.zeros((6, 2), np.float32), np.array([0, 1, 0, 1, 0, 1])
    >>> from_arrays(x, y, offsets=[0, 2, 6]).train.sizes.tolist()
    [1, 3]
    """
    options = table_options(table)
    check_same_rows(x, y, "the arrays given")
    check_same_rows(x, client, "the arrays given", "client")
    inputs = inputs_of(x)
    ids: NDArray[Any] | None = None
    if isinstance(y, str) and isinstance(client, str) and is_table(inputs):
        inputs, targets, ids = take_columns(
            table=inputs,
            label=y,
            client=client,
            where="the table given",
            options=options,
            classes=not regression,
        )
    else:
        inputs, targets = without_column(inputs, y, options, "target" if regression else "label")
    if (client is None) == (offsets is None):
        raise DataError(
            f"got {'neither client nor' if client is None else 'both client and'} offsets; give "
            "one of them: the client of each row, or offsets, the positions at which the clients' "
            "rows begin"
        )
    if ids is None:
        client_of_rows = owners(offsets, len(targets)) if client is None else client
        inputs, ids = without_column(inputs, client_of_rows, options, "client")
    divided = row_split(test)
    options = options_without(divided, options)
    where = "the table given" if is_table(inputs) else "the arrays given"
    inputs, times = times_of(inputs, divided, len(targets), where)
    column = client if isinstance(client, str) else None
    dataset = make_dataset(
        x=inputs,
        y=targets,
        client=ids,
        classes=not regression,
        where=where,
        several=multilabel,
        whole_numbers=True,
        options=options,
        column=column,
    )
    dataset = with_classes(dataset, classes, where, _LINE)
    if divided is not None:
        dataset = with_divided_rows(dataset, divided, [times], options)
        test = "client"
    return natural_federation(dataset, Split(test, test_fraction, validation), seed)


def from_clients(
    clients: Iterable[Any] | Mapping[str, Any],
    *,
    inputs: str | int | Sequence[str | int] | None = None,
    label: str | int | None = None,
    collate: Callable[[list[Any]], Any] | None = None,
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Any = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
    store: str | Path | None = None,
) -> Federation:
    """Return a federation from a list of ``(x, y)`` or of data sets, or a generator of them, client
    0 first; or from a mapping of them by name.

    Parameters
    ----------
    clients: samples and targets of each client; those of a generator are asked for once, and no
    object is kept for each. A pair of arrays; or a ``Dataset`` or ``DataLoader`` of torch or a
    ``Dataset`` of Hugging Face's (:mod:`motley_data.loaders`); or a mapping with such a ``train``
    and perhaps ``test``, as a ``DatasetDict`` is.
    inputs: of data sets, the keys or places of what the model takes, where a sample is a dictionary
    or has more than two parts; None: all but the label. Several reach the model as keyword
    arguments, or in their order (:class:`~motley.tasks.fields.TakesFields`).
    label: the key or place of the target.
    collate: makes a batch of a list of samples, as a ``DataLoader``'s.
    test: what a share of them is set aside for, or a second list or generator: the samples that
    each client tests on; or a single data set, on which the common model tests. Then ``clients``
    holds training (and validation) samples only, and ``test_fraction`` means nothing. Or the last
    rows, or whole groups, as in :func:`from_arrays`; ``by`` is then a column of the clients'
    tables, ``"order"``, or a list or mapping with an array for each client.
    store: a folder in which samples are put into a file, which is mapped into memory, where they do
    not fit there; the file has no name and goes with the federation. Targets stay in memory, and so
    does each pair of arrays while it is read. Tables are refused. Other parameters as there.

    Raises
    ------
    DataError: as in :func:`from_arrays`; samples that are not understood; not one test part per
    client.

    Example
    -------
    >>> import numpy as np
    >>> train = [(np.ones((6, 2)), [0, 1] * 3), (np.ones((4, 2)), [0, 1] * 2)]
    >>> test = [(np.zeros((2, 2)), [0, 1]), (np.zeros((3, 2)), [0, 1, 1])]
    >>> from_clients(train, test=test).test.sizes.tolist()
    [2, 3]
    """
    divided = row_split(test)
    new_rows = rows_in(store)
    reader = SampleReader(inputs, label, collate, Key(seed), new_rows=new_rows)
    sources = ClientSources(clients, "client" if divided is not None else test, reader, divided)
    options = options_without(divided, table_options(table))
    parts = sources.parts()
    if not regression:
        parts = with_one_code(parts, options, lambda: _count(classes) or reader.class_count)
    dataset = join_parts(
        parts=parts,
        regression=regression,
        multilabel=multilabel,
        options=options,
        client=sources.words,
        own="its samples",
        new_rows=new_rows,
    )
    names = classes or reader.names or None
    if reader.names and not isinstance(names, int) and set(names or ()) & set(reader.names):
        dataset = dataclasses.replace(dataset, names=reader.names)
    dataset = sources.divide(with_classes(dataset, names, "the clients given", _LINE))
    if divided is not None:
        dataset = with_divided_rows(dataset, divided, sources.times, options)
    return natural_federation(dataset, Split(sources.where, test_fraction, validation), seed)


def from_files(
    folder: str | Path,
    *,
    label: str = "label",
    regression: bool = False,
    multilabel: bool = False,
    table: TableOptions | Mapping[str, Any] | None = None,
    classes: int | Sequence[str] | None = None,
    test: Any = "client",
    test_fraction: float = 0.2,
    validation: float = 0.0,
    seed: int = 0,
) -> Federation:
    """Return a federation from a folder with one file or one sub-folder of files per client, in the
    order of their names.

    Files are ``.npz`` (arrays ``x``, ``y``, perhaps ``test``), ``.parquet``, ``.csv`` or ``.tsv``.
    Of many clients: a folder with ``x.npy``, ``y.npy`` and ``offsets.npy`` or ``client.npy``, as in
    :func:`from_arrays`; the samples and their classes are memory-mapped. LEAF's folders of JSON are
    read, too.

    Clients keep the test rows that the folder gives them: below ``train`` and ``test``
    (:mod:`motley_data.client_folders`), in ``a_test.csv`` beside ``a_train.csv``, marked by the
    array ``test``; ``test_fraction`` then means nothing. With ``test="global"`` they are one common
    test set.

    Parameters
    ----------
    label: the column of targets in tables. Other parameters as in :func:`from_arrays`.

    Raises
    ------
    DataError: as in :func:`from_arrays`; no files of clients; a client with test rows alone, or
    without any where others have some.
    """
    root = user_path(folder)
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
    divided = row_split(test)
    split = Split("client" if divided is not None else test, test_fraction, validation)
    if leaf.recognises(root) and not any(map(is_client_file, root.rglob("*"))):
        dataset = with_classes(leaf.read(root), classes, str(root), _LINE)
        return natural_federation(_as_published(dataset, split, root), split, seed)
    files = client_files(root)
    options = options_without(divided, table_options(table))
    parts = read_parts(
        [(file.client, file.path) for file in files],
        label,
        options,
        classes=not regression,
        count=_count(classes),
    )
    held = [_tests(file, len(y)) for file, (_, y, _) in zip(files, parts, strict=True)]
    if divided is not None:
        timed = [
            times_of(x, divided, len(y), str(file.path))
            for file, (x, y, _) in zip(files, parts, strict=True)
        ]
        parts = [(x, y, where) for (x, _), (_, y, where) in zip(timed, parts, strict=True)]
    names = tuple(dict.fromkeys(file.client for file in files))
    try:
        dataset = join_parts(
            parts=parts,
            regression=regression,
            multilabel=multilabel,
            options=options,
            client=partial(client_in_words, names=names),
            own="its file",
        )
    except DataError as error:
        for file, (x, _, _) in zip(files, parts, strict=True):
            if is_table(x):
                origin = Origin.of_clients(
                    str(file.path), np.zeros(len(x), np.int64), [file.client]
                )
                try:
                    raw_table(x, options, origin)
                except DataError as of_file:  # names the file, where it says the same
                    if str(of_file).partition(": ")[2] == str(error).partition(": ")[2]:
                        raise of_file from None
        raise
    dataset = with_classes(
        dataclasses.replace(dataset, client_names=names, test=np.concatenate(held)),
        classes,
        str(root),
        _LINE,
    )
    if divided is not None:
        times = [time for _, time in timed]
        dataset = with_divided_rows(dataset, divided, times, options)
    return natural_federation(_as_published(dataset, split, root), split, seed)


def _count(classes: int | Sequence[str] | None) -> int | None:
    """Return how many classes were named."""
    return classes if classes is None or isinstance(classes, int) else len(classes)


def _tests(file: ClientFile, count: int) -> NDArray[np.bool_]:
    """Return which of the rows of a client's file test, ``[count]``."""
    flags = np.full(count, file.test)
    if not file.path.name.lower().endswith(".npz"):
        return flags
    data = npz.flagged(npz.arrays(file.path), str(file.path))
    several = len(np.unique(data.get("client", 0)))
    if several > 1:
        raise DataError(
            f"{file.path} holds the rows of {several} clients, and in a folder each file is one "
            f'client\'s; read it alone: task = {{ name = "tabular", data = "{file.path}" }}'
        )
    return data["test"] if "test" in data and not file.test else flags


def _as_published(dataset: Dataset, split: Split, root: Path) -> Dataset:
    """Return the data set of a folder, whose clients keep the test rows that the folder gives them.

    With a common test set, users who only test are no clients.

    Raises
    ------
    DataError: a client without a row that trains, or, where clients test on rows of their own,
    without one that tests.
    """
    if not dataset.test.any() or dataset.groups is None:
        return dataset
    count = int(dataset.groups.max()) + 1
    trains, tests = (
        np.bincount(dataset.groups[half], minlength=count) > 0
        for half in (~dataset.test, dataset.test)
    )
    names = dataset.client_names
    if split.test == "global":
        number = np.cumsum(trains) - 1
        trained_names = tuple(name for name, has in zip(names, trains, strict=False) if has)
        groups = np.where(dataset.test, 0, number[dataset.groups])
        return dataclasses.replace(dataset, groups=groups, client_names=trained_names)
    for held, has, lacks in ((trains, "test", "train"), (tests, "training", "test")):
        if not held.all():
            who = client_in_words(int((~held).argmax()), names)
            raise DataError(
                f"{root}: {who} has {has} rows and none that {lacks} (so have "
                f"{int((~held).sum())} of {count} clients); give it some, or test on the rows of "
                'all clients together: test="global"'
            )
    return dataset


def natural_federation(dataset: Dataset, split: Split, seed: int) -> Federation:
    """Return the federation of the natural clients."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ConfigError(f"seed: got {seed!r}; expected a whole number")
    key = Key(int(seed)).fold("split")
    drawn = split.test_fraction * len(dataset.y) > 1e-9  # an inspection sets no row aside
    if drawn and not dataset.test.any() and dataset.divided is None:
        check_no_windows(dataset, PYTHON_LINE)
        warn_of_times(dataset, PYTHON_LINE)
    kept = division_cache.place(dataset, split, key) if drawn else None
    if kept is not None and (federation := division_cache.read(kept, dataset)) is not None:
        return federation
    rows = partition_input(dataset, split, key, shared=True, own_rows=True)
    owner = rows.groups if rows.groups is not None else np.zeros(len(rows.rows), np.int64)
    in_order = never_falls(owner)
    if not in_order:
        order = np.argsort(owner, kind="stable")
    elif len(rows.rows) == len(dataset.y):
        order = rows.rows  # all of them: 0, 1, 2 ..
    else:
        order = np.arange(len(owner))
    population = int(dataset.groups.max()) + 1 if dataset.groups is not None else 1
    offsets = np.zeros(population + 1, np.int64)
    np.cumsum(np.bincount(owner, minlength=population), out=offsets[1:])
    parts = Ragged(offsets, order)
    federation = federate(
        dataset=dataset,
        source=rows,
        parts=parts,
        split=split,
        key=key,
        owner=owner if in_order else None,
    )
    if kept is not None:
        division_cache.write(kept, federation, dataset)
    return federation
