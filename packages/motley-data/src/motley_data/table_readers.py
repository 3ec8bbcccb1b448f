"""Readers of tables with a column of labels: files of :mod:`motley_data.table_files`, ``.npz``,
and scikit-learn's own small sets."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.arrays import Bools, Floats, Ids
from motley.core.client_names import client_in_words
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import is_file, is_folder, user_path, where_paths_start
from motley.core.untrusted import shortened
from motley.tasks.origin import Origin, number_of_row, row_of
from motley.tasks.preparation import ArrayPreparation, Preparation
from motley.tasks.table_kinds import table_kind
from motley.tasks.targets import MOST_CLASSES, REGRESSION
from motley.tasks.task import Dataset
from motley_data.column_spelling import NumberStyle
from motley_data.formats.npz import arrays, flagged
from motley_data.formats.sample_checks import (
    class_labels,
    extremes,
    features,
    grouped,
    multilabel,
)
from motley_data.gap_numbers import as_texts, gap_numbers, gap_numbers_remark
from motley_data.raw_table import (
    RawTable,
    arrow_table,
    check_columns,
    joined,
    raw_table,
    refuse_doubtful_points,
    remarks_of,
    with_remarks,
)
from motley_data.row_labels import (
    Role,
    RowColumn,
    label_texts,
    read_row_column,
    refuse_codes_of_clients,
    refuse_same_words,
    refuse_two_codes,
    refuse_variants,
    renamed_labels,
)
from motley_data.row_splits import RowSplit, options_without, times_of, with_divided_rows
from motley_data.row_times import (
    order_of_rows,
    rising_times,
    windows_of_columns,
    windows_of_samples,
)
from motley_data.statistics import MeasuredTable
from motley_data.table_files import read_arrow, separators_of
from motley_data.table_lines import file_rows, kept_rows, refuse_footer
from motley_data.table_options import TableOptions
from motley_data.table_preparation import (
    NumberColumn,
    TablePreparation,
    fixed_preparation,
    table_preparation,
)

BUILTIN = ("breast_cancer", "diabetes", "iris", "wine")
"""Data sets of scikit-learn; ``diabetes`` has a number as its target."""

_WHOLE = re.compile(r"-?\d+")
_SPELLED = b"motley.clients"
"""Of an Arrow table's metadata: how clients' names that are in small letters are shown."""

Columns = tuple[Any, NDArray[Any], NDArray[Any] | None]
"""Features ``[n, ...]`` or an Arrow table of them, targets ``[n]`` or ``[n, d]``, client ids
``[n]`` or None."""


def read_table(
    data: str,
    label: str,
    client: str | None,
    classes: bool,
    options: TableOptions | None = None,
    client_groups: int | None = None,
    test: RowSplit | None = None,
) -> Dataset:
    """Return the data set of a name of :data:`BUILTIN` or a path to an ``.npz`` file or a table.

    Parameters
    ----------
    label, client: names of columns (an ``.npz`` always has the arrays ``y`` and ``client``).
    classes: whether targets are classes; else numbers.
    options: how columns become inputs.
    client_groups: how many groups the numbers of the column ``client`` are cut into; None: each of
    its entries is a client.
    test: how clients divide their rows.
    """
    options = options_without(test, options or TableOptions())
    if client is not None and client == label:
        raise ConfigError(
            f"got {client!r}, which is the label, too: the rows of a client would all be of one "
            "class",
            "task.client",
        )
    _refuse_unused(data, label, client, options)
    if data in BUILTIN:
        x, y, names = builtin_table(data, classes)
        where = f"scikit-learn's {data}"
        table = arrow_table(x, names)
        if client is None:
            inputs, ids = (table, None)
        else:
            inputs, ids = take_columns(
                table=table.append_column(label, [y]),
                label=label,
                client=client,
                where=where,
                options=options,
                classes=classes,
            )[::2]
        ids = cut(ids, client_groups, where)
        column = client if client_groups is None else None
        inputs, times = times_of(inputs, test, len(y), where)
        dataset = make_dataset(
            x=inputs, y=y, client=ids, classes=classes, where=where, options=options, column=column
        )
        return dataset if test is None else with_divided_rows(dataset, test, [times], options)
    path = user_path(data)
    if is_folder(path):
        raise DataError(
            f"task.data: {data} is a folder; this task reads one table, whose column task.client "
            f"says whose a row is. A file for each client is read in Python: from_files({data!r}, "
            f"label={label!r}) of motley.tasks"
        )
    if not is_file(path):
        raise DataError(
            f"task.data: got {data!r}{suggest(data, BUILTIN)}; expected one of: "
            f"{', '.join(BUILTIN)}, or the path of an .npz, .csv, .parquet or other table that "
            f"exists{where_paths_start(data)}"
        )
    inputs, targets, ids = read_columns(
        path=path, label=label, client=client, options=options, classes=classes
    )
    number = options.spelling(client or "").number
    ids = cut(ids, client_groups, str(path), number)
    column = client if client_groups is None else None
    inputs, times = times_of(inputs, test, len(targets), str(path))
    dataset = make_dataset(
        x=inputs,
        y=targets,
        client=ids,
        classes=classes,
        where=str(path),
        options=options,
        column=column,
        test=_test_half(path),
    )
    return dataset if test is None else with_divided_rows(dataset, test, [times], options)


_OF_TEXTS = ("sep", "encoding", "header_rows", "comment")
_OF_ENTRIES = ("decimal", "thousands", "units", "dates", "gaps", "drop_rows")
_OF_NAMES = ("trim", "fold", "rename")
_OF_COLUMNS = ("drop", "words", "numbers", "fixed")
_UNUSED = {
    "csv": ("sheet",),
    "parquet": (*_OF_TEXTS, "sheet"),
    "feather": (*_OF_TEXTS, "sheet"),
    "json lines": ("sep", "header_rows", "comment", "sheet"),
    "excel": ("sep", "encoding"),
    "arff": ("sep", "header_rows", "comment", "sheet"),
    "libsvm": (*_OF_TEXTS, "sheet"),
    "scikit-learn's": (*_OF_TEXTS, "sheet", *_OF_ENTRIES),
    "arrays": (*_OF_TEXTS, "sheet", *_OF_ENTRIES, *_OF_NAMES, *_OF_COLUMNS),
}
"""Options that would change nothing, by what a file holds."""


def _refuse_unused(data: str, label: str, client: str | None, options: TableOptions) -> None:
    """Refuse options that would change nothing in a file of this kind."""
    path = Path(data)
    kind = "scikit-learn's" if data in BUILTIN else table_kind(path)
    if path.suffix.lower() == ".npz":
        kind = "arrays"
        for key, name, arrays_called in (("label", label, "y"), ("client", client, "client")):
            if name not in (None, key, arrays_called):
                raise ConfigError(
                    f"got {name!r}, and the array of an .npz file is called {arrays_called}; leave "
                    "this key out",
                    f"task.{key}",
                )
    plain = TableOptions()
    for key in _UNUSED.get(kind, ()):
        value = getattr(options, key)
        if value != getattr(plain, key):
            shown = list(value) if isinstance(value, tuple) else value
            raise ConfigError(
                f"got {shown!r}, which changes nothing in {path.name} ({kind}); leave it out",
                f"task.{key}",
            )


def _test_half(path: Path) -> NDArray[np.bool_] | None:
    """Return which rows of an ``.npz`` file are its own test half; None where it has none."""
    return flagged(arrays(path), str(path)).get("test") if path.suffix.lower() == ".npz" else None


def cut(
    ids: NDArray[Any] | None,
    groups: int | None,
    where: str,
    number: Callable[[str], float] | None = None,
) -> NDArray[Any] | None:
    """Return client ids as groups of about equal size, from the smallest numbers to the largest;
    equal numbers stay together. ``number``: of a text, NaN where it is none.

    Raises
    ------
    DataError: the ids are no numbers.

    >>> cut(np.array([3.0, 1.0, 2.0, 4.0]), 2, "a table")
    array([1, 0, 0, 1])
    """
    if ids is None or groups is None:
        return ids
    if ids.dtype.kind == "O" and number is not None:
        numbers = np.array([number(text) for text in ids.tolist()])
        ids = ids if np.isnan(numbers).any() else numbers
    if ids.dtype.kind not in "biuf":
        raise DataError(
            f"{where}: the clients' column holds words, and client_groups cuts numbers; leave "
            "client_groups out"
        )
    edges = np.quantile(ids, np.arange(1, groups) / groups)
    return np.asarray(np.searchsorted(edges, ids, side="left"))


def make_dataset(
    x: Any,
    y: NDArray[Any],
    client: NDArray[Any] | None,
    classes: bool,
    where: str | Origin,
    several: bool = False,
    whole_numbers: bool = False,
    options: TableOptions | None = None,
    column: str | None = None,
    test: NDArray[np.bool_] | None = None,
) -> Dataset:
    """Return a data set; labels that are strings become classes in alphabetical order.

    Parameters
    ----------
    x: features, ``[n, ...]`` or an Arrow table.
    y: targets; those per pixel are ``[n, H, W]``.
    client: client ids.
    several: a sample may have several labels, ``[n, C]``, 0 or 1 each.
    whole_numbers: whether an array of whole numbers stays so, as in
    :func:`~motley_data.formats.sample_checks.features`.
    options: how a table's columns become inputs; None: features must be complete numbers, and stay
    as they are.
    column: from which the ids are, see :func:`~motley_data.formats.sample_checks.grouped`.
    test: ``[n]``, whether a row is of the data's own test half; None: it has none. Arrays are
    scaled by the other rows.

    Raises
    ------
    DataError: a column, a label or an id that cannot be used.
    """
    options = options or TableOptions(scale="none")
    samples = len(x) if hasattr(x, "column_names") or np.ndim(x) else 0
    groups, clients = (
        (None, ()) if client is None else grouped(client, str(where), samples, column or "")
    )
    clients = _spelled(x, clients)
    where = where if isinstance(where, Origin) else Origin.of_clients(where, groups, clients)
    if hasattr(x, "column_names"):
        where = replace(where, numbers=file_rows(x))
    table = _table_of(x, options, where)
    preparation: Preparation | None = None
    reading = None if table is None else table.reading
    columns = _columns_of_numbers(x, table)
    windows = _windows(x, table, columns, y=np.asarray(y), groups=groups, where=where)
    times = rising_times(x, options, groups) if hasattr(x, "column_names") else ()
    numbers = not (classes or several) and np.ndim(y) in (1, 2)
    targets = list(np.asarray(y).reshape(len(y), -1).T) if numbers and _is_numeric(y) else []
    in_order = order_of_rows([name for name, _ in times], columns, targets, groups)
    if reading is not None:
        reading = replace(reading, times=tuple(time for time in times if time[0] == in_order))
    if table is None and options.scale not in ("standard", "federated"):
        measured = {}
    else:
        measured = _measured(table, options)
    if table is not None and not table.measured and options.scale == "fixed":
        preparation = fixed_preparation(table)
        rows = preparation.inputs(table)
        table = None
    elif table is not None and table.measured:
        rows = torch.from_numpy(table.values())
    else:
        rows, shift, scale = _scaled(
            features(x, where, whole_numbers) if table is None else features(table.values(), where),
            options,
            test,
        )
        if table is not None:
            preparation = _complete(table, shift, scale)
            table = None
        elif options.scale == "standard":
            preparation = ArrayPreparation(tuple(rows.shape[1:]), shift, scale)
    y = np.asarray(y)
    dense = y.shape[1:] if y.ndim > 2 and not several else ()
    y = y.reshape(len(y), -1) if dense else y
    target, count, names = read_targets(
        y=y, classes=classes, several=several, where=where, n=len(rows)
    )
    notes = {"data": Path(str(where)).name}
    return Dataset(
        x=rows,
        y=target,
        classes=count,
        test=np.zeros(len(rows), bool) if test is None else test,
        groups=groups,
        names=names,
        notes=notes,
        preparation=preparation,
        table=None if table is None else MeasuredTable(table),
        measured=measured,
        client_names=clients,
        target_shape=dense,
        reading=reading,
        windows=windows,
        in_order=in_order,
    )


def _is_numeric(values: Any) -> bool:
    return np.asarray(values).dtype.kind in "biuf"


def _columns_of_numbers(x: Any, table: RawTable | None) -> dict[str, NDArray[Any]]:
    """Return inputs that are numbers by the names of their columns, or by their places."""
    if table is not None:
        return {column.name: column.values for column in table.columns if column.words is None}
    x = np.asarray(x)
    if x.ndim != 2 or not _is_numeric(x):
        return {}
    return {str(place): x[:, place] for place in range(x.shape[1])}


def _windows(
    x: Any,
    table: RawTable | None,
    columns: Mapping[str, NDArray[Any]],
    y: NDArray[Any],
    groups: Ids | None,
    where: Origin,
) -> str:
    """Return how it shows that samples, or columns of a table, are windows of a series that
    overlap; nothing where it does not."""
    if table is None and (shown := windows_of_samples(np.asarray(x), groups, where)):
        return shown
    numbers = y if y.dtype.kind in "iuf" and y.ndim == 1 else None
    shown = windows_of_columns(columns, groups, numbers)
    return shown and f"{where}: {shown}"


def _measured(table: RawTable | None, options: TableOptions) -> dict[str, tuple[str, str]]:
    """Return what the preparation of a table works out over the rows of all clients, as
    :class:`Dataset` says it."""
    line = (
        'scale = "client", or scale = "fixed" and fixed = { age = [50.0, 15.0], job = '
        '["clerk", "nurse"] }'
    )
    if options.scale in ("standard", "federated"):
        return {
            "mean and deviation of the columns, and the categories of words, are measured": (
                "task.scale",
                line,
            )
        }
    words = (
        [] if table is None else [column for column in table.columns if column.words is not None]
    )
    if options.scale == "client" and words:
        sentence = f"the categories of column {words[0].name!r} are collected"
        return {
            sentence: (
                "task.scale",
                f'scale = "fixed" and fixed = {{ {words[0].name} = ["a", "b"] }}, with all columns',
            )
        }
    return {}


def _table_of(x: Any, options: TableOptions, where: str | Origin) -> RawTable | None:
    """Return features as a table; None for an array that is complete or no table."""
    if hasattr(x, "column_names"):
        return raw_table(x, options, where)
    array = np.asarray(x)
    words = array.dtype.kind in "OUS" or (
        array.dtype.kind == "f" and array.size > 0 and math.isnan(extremes(array)[0])
    )
    if (
        array.ndim == 2
        and array.size
        and (words or options.scale in ("federated", "client", "fixed"))
    ):
        return raw_table(arrow_table(array), options, where)
    return None


def _complete(table: RawTable, shift: Floats, scale: Floats) -> TablePreparation:
    """Return the preparation of a complete table of numbers."""
    columns = tuple(
        NumberColumn(column.name, *(np.array([value]) for value in (shift[j], shift[j], scale[j])))
        for j, column in enumerate(table.columns)
    )
    return table_preparation(table, columns, False)


def _scaled(
    x: torch.Tensor, options: TableOptions, test: NDArray[np.bool_] | None
) -> tuple[torch.Tensor, Floats, Floats]:
    """Return an array, its columns scaled to mean 0 and standard deviation 1 (float32) over the
    rows that do not test, where asked for, with shift and scale."""
    if options.scale in ("none", "fixed"):
        return x, np.zeros(x.shape[1:]), np.ones(x.shape[1:])
    wide = x.double()
    measured = wide if test is None else wide[torch.from_numpy(~test)]
    mean = measured.mean(0)
    deviation = measured.std(0, correction=0)
    scale = torch.where(deviation > 0, deviation, 1.0)
    return ((wide - mean) / scale).float(), mean.numpy(), scale.numpy()


def read_targets(
    y: NDArray[Any], classes: bool, several: bool, where: str | Origin, n: int
) -> tuple[torch.Tensor, int | None, tuple[str, ...]]:
    """Return targets, the number of classes (None for numbers), and class names."""
    if not classes and np.asarray(y).dtype.kind in "OUS":
        example = str(np.asarray(y).ravel()[0])
        raise DataError(
            f"{where}: the labels are words (row {number_of_row(where, 0)} is {example!r}), and a "
            "regression predicts numbers; for classes write "
            'task.name = "tabular", in Python regression=False'
        )
    if not classes:
        target = features(y, where, quantity="targets").float()
        if len(target) != n:
            raise DataError(f"{where}: {len(target)} targets for {n} samples")
        return target.view(n, -1), None, ()
    if several:
        return *multilabel(y, where, n), ()
    names: tuple[str, ...] = ()
    labels = np.asarray(y)
    if labels.dtype.kind == "O" and not all(isinstance(word, str) for word in labels.ravel()):
        row = next(
            i
            for i, row in enumerate(labels.reshape(n, -1))
            if not all(isinstance(word, str) for word in row)
        )
        raise DataError(f"{row_of(where, row)}: {_no_word(labels.reshape(n, -1)[row])}")
    if labels.dtype.kind in "UO":
        words, labels = np.unique(labels.astype(str), return_inverse=True)
        refuse_variants(words.tolist(), str(where))
        if all(_WHOLE.fullmatch(word) for word in words.tolist()):
            order = np.argsort([int(word) for word in words.tolist()], kind="stable")
            words, labels = words[order], np.argsort(order)[labels]
        names = tuple(str(word) for word in words)
    return *class_labels(labels, where, n, len(names) or None, positions=True), names


def _no_word(labels: NDArray[Any]) -> str:
    """Return in words what is wrong with the labels of a row, among others that are words."""
    label = next(label for label in labels.tolist() if not isinstance(label, str))
    if label is None or label != label:
        return "the label is missing; fill or drop such rows"
    return (
        f"the label is {label!r} ({type(label).__name__}), and others are words; make all of them "
        "words, y.astype(str), or whole numbers 0 .. C - 1"
    )


def builtin_table(name: str, classes: bool) -> tuple[NDArray[Any], NDArray[Any], tuple[str, ...]]:
    """Return inputs, targets and names of classes of one of scikit-learn's tables; no names where
    the target is a number."""
    from sklearn import datasets

    if classes and name == "diabetes":
        raise DataError(
            "task.data: diabetes has a number as its target; use task.name = 'tabular_regression'"
        )
    loaders = {
        "breast_cancer": datasets.load_breast_cancer,
        "diabetes": datasets.load_diabetes,
        "iris": datasets.load_iris,
        "wine": datasets.load_wine,
    }
    data = loaders[name]()
    return data.data, data.target, tuple(data.feature_names)


def read_columns(
    path: Path,
    label: str = "y",
    client: str | None = None,
    options: TableOptions | None = None,
    classes: bool = True,
) -> Columns:
    """Return features, targets and client ids of one file; every column that is neither label nor
    client is a feature.

    Raises
    ------
    DataError: unknown kind of file, no such column, truncated.
    """
    if path.suffix.lower() == ".npz":
        return _from_npz(path)
    options = options or TableOptions()
    return take_columns(
        table=read_arrow(path, options.form),
        label=label,
        client=client,
        where=str(path),
        options=options,
        classes=classes,
    )


def read_parts(
    files: Sequence[tuple[str, Path]],
    label: str,
    options: TableOptions,
    classes: bool = True,
    count: int | None = None,
) -> list[tuple[Any, NDArray[Any], str]]:
    """Return the samples, targets and name of each file; what labels are is decided over all files
    together.

    Parameters
    ----------
    files: client and path.
    classes: whether targets are classes; else numbers.
    count: how many classes were named.

    Raises
    ------
    DataError: as of :func:`read_columns`, tables of different columns, labels in two codes.
    """
    read: list[Any] = [
        _from_npz(path)[:2] if path.suffix.lower() == ".npz" else read_arrow(path, options.form)
        for _, path in files
    ]
    tables = [at for at, content in enumerate(read) if hasattr(content, "column_names")]
    for at in tables:
        check_names(read[at], (label,), str(files[at][1]))
        refuse_footer(read[at], str(files[at][1]), options.rename, options.form.comments)
        check_columns(read[at], read[tables[0]], str(files[at][1]))
        owner = np.zeros(len(read[at]), np.int64)
        origin = Origin.of_clients(str(files[at][1]), owner, [files[at][0]])
        origin = replace(origin, numbers=file_rows(read[at]))
        refuse_doubtful_points(read[at].drop_columns([label]), options, origin)
    if tables:
        all_labels = joined([read[at].select([label]) for at in tables])
        sizes = [len(read[at]) for at in tables]
        where = str(files[tables[0]][1].parent) if len(tables) > 1 else str(files[tables[0]][1])
        origin = Origin(where)
        if len(tables) > 1:
            owner = np.repeat(np.arange(len(tables)), sizes)
            origin = Origin.of_clients(where, owner, [files[at][0] for at in tables], "its file")
        column = read_row_column(
            column=all_labels.column(label),
            name=label,
            role="label" if classes else "target",
            options=options,
            where=replace(origin, numbers=file_rows(all_labels)),
            # text beside numbers of another file may be numbers
            typed=separators_of(all_labels) == ""
            and len({read[at].schema.field(label).type for at in tables}) < 2,
            several=len(tables) > 1,
        )
        values = by_value(column.values, column.gone, where) if classes else column.values
        own = [*column.remarks, *_gap_labels(column, label, options, classes)]
        ends = np.cumsum(sizes)
        for at, start, end in zip(tables, ends - sizes, ends, strict=True):
            name = client_in_words(0, (files[at][0],))
            gone = column.gone[start:end]
            origin = Origin(str(files[at][1]), numbers=file_rows(read[at]))
            present, notes = _kept(
                gone, name=label, role="label", where=origin, options=options, whose=name
            )
            table = read[at].drop_columns([label])
            remarks = [*remarks_of(table), *(own if at == tables[0] else ()), *notes]
            table = with_remarks(kept_rows(table, present), remarks)
            read[at] = (table, values[start:end][present])
    if classes:
        for at, (x, y) in enumerate(read):
            read[at] = (x, y if at in tables else renamed_labels(y, options))
        held = [label_texts(y) for _, y in read]
        named = [(path.name, texts) for (_, path), texts in zip(files, held, strict=True)]
        folder = str(files[0][1].parent)
        refuse_two_codes(named, folder, count)
        if count is None:
            refuse_same_words(frozenset().union(*held), folder)
    return [(*samples, f"client {name}") for samples, (name, _) in zip(read, files, strict=True)]


def _from_npz(path: Path) -> Columns:
    """Return the arrays ``x``, ``y`` and ``client`` of an ``.npz`` file."""
    data = flagged(arrays(path), str(path))
    return data["x"], data["y"], data.get("client")


def take_columns(
    table: Any,
    label: str,
    client: str | None,
    where: str,
    options: TableOptions | None = None,
    classes: bool = True,
) -> Columns:
    """Return the inputs of an Arrow table (as one), its targets and its client ids.

    Parameters
    ----------
    options: how labels and clients are written.
    classes: whether targets are classes; else numbers.

    Raises
    ------
    DataError: no such column; a label or client that is missing, or may be another one's.
    """
    options = options or TableOptions()
    row_columns = [label, *([client] if client else [])]
    check_names(table, row_columns, where)
    refuse_footer(table, where, options.rename, options.form.comments)
    origin = Origin(where, numbers=file_rows(table))
    if client is None:
        whose = None
    else:
        whose = _row_column(table=table, name=client, role="client", options=options, where=origin)
    present = np.ones(len(table), bool)
    remarks: list[str] = []
    if whose is not None and client is not None:
        present, notes = _kept(
            whose.gone, name=client, role="client", where=origin, options=options
        )
        remarks = [*whose.remarks, *notes]
    target = _row_column(
        table=table,
        name=label,
        role="label" if classes else "target",
        options=options,
        where=origin,
    )
    names = None if whose is None else whose.values
    shown = None if whose is None else _shown(whose)
    both, notes = _kept(
        target.gone & present, name=label, role="label", where=origin, options=options, whose=shown
    )
    present &= both
    remarks += [*target.remarks, *_gap_labels(target, label, options, classes), *notes]
    if not present.any() and len(present):
        raise DataError(f"{where}: no row has both a label and a client")
    values = by_value(target.values, ~present, where) if classes else target.values
    if classes and names is not None:
        refuse_codes_of_clients(values[present], names[present], where)
    inputs = with_remarks(table.drop_columns(row_columns), [*remarks_of(table), *remarks])
    inputs = _with_spellings(inputs, {} if whose is None else whose.spelled)
    if present.all():
        return inputs, values, names
    return kept_rows(inputs, present), values[present], None if names is None else names[present]


def take_column(
    table: Any, name: str, role: Role, where: str, options: TableOptions
) -> tuple[Any, NDArray[Any]]:
    """Return an Arrow table without its column of labels or clients, and the column's values, all
    of which must be there: what lies beside the table cannot lose rows.

    Raises
    ------
    DataError: no such column, or a gap in it.
    """
    check_names(table, (name,), where)
    origin = Origin(where, numbers=file_rows(table))
    column = _row_column(table=table, name=name, role=role, options=options, where=origin)
    strict = replace(options, drop_rows=False)
    _kept(
        column.gone,
        name,
        role="client" if role == "client" else "label",
        where=origin,
        options=strict,
    )
    inputs = with_remarks(table.drop_columns([name]), [*remarks_of(table), *column.remarks])
    inputs = _with_spellings(inputs, column.spelled)
    values = by_value(column.values, column.gone, where) if role == "label" else column.values
    return inputs, values


def _shown(column: RowColumn) -> NDArray[Any]:
    """Return the clients of a column under the names that are shown."""
    if not column.spelled:
        return column.values
    return np.array([column.spelled.get(name, name) for name in column.values], object)


def _with_spellings(table: Any, spelled: Mapping[str, str]) -> Any:
    """Return an Arrow table that carries how clients' names in small letters are shown."""
    if not spelled:
        return table
    noted = {**(table.schema.metadata or {}), _SPELLED: json.dumps(dict(spelled)).encode()}
    return table.replace_schema_metadata(noted)


def _spelled(inputs: Any, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return clients' names as the Arrow table of their inputs says that they are shown. Their
    order, which numbers them, is that of the names in small letters."""
    schema = getattr(inputs, "schema", None)
    noted = json.loads((getattr(schema, "metadata", None) or {}).get(_SPELLED, b"{}"))
    return tuple(noted.get(name, name) for name in names)


def check_names(table: Any, columns: Sequence[str], where: str) -> None:
    """Refuse an Arrow table without one of some columns."""
    names = list(table.column_names)
    for column in columns:
        if column not in names:
            alone = names[0] if len(names) == 1 else ""
            parts = re.fullmatch(rf"(?:.*(\W))?{re.escape(column)}(?:(\W).*)?", alone)
            mark = (parts[1] or parts[2] or "") if parts else ""
            marks = {" ": "blanks divide"}.get(mark, f"{mark!r} divides")
            raise DataError(
                f"{where} has no column {column!r}{suggest(column, names)}; its columns: "
                f"{shortened(', '.join(names), 300)}"
                + (f'; if {marks} them, write sep = "{mark}"' if mark else "")
            )


def _row_column(
    table: Any, name: str, role: Role, options: TableOptions, where: Origin
) -> RowColumn:
    """Return a column of labels or clients; what the columns of a text hold, their texts show."""
    typed = separators_of(table) == ""
    return read_row_column(
        column=table.column(name),
        name=name,
        role=role,
        options=options,
        where=where,
        typed=typed,
        style=NumberStyle(table),
    )


def _gap_labels(column: RowColumn, name: str, options: TableOptions, classes: bool) -> list[str]:
    """Return the remark that labels are numbers that may stand for gaps."""
    if column.values.dtype.kind not in "iuf":
        return []
    values = np.where(column.gone, np.nan, column.values.astype(np.float64))
    strange = gap_numbers(values, fewest=2 if classes else 3)
    remark = gap_numbers_remark(values, strange, (*options.gaps, *as_texts(strange)))
    return [f"column {name!r}: {remark}"] if remark else []


def _kept(
    gone: Bools,
    name: str,
    role: str,
    where: Origin,
    options: TableOptions,
    whose: NDArray[Any] | str | None = None,
) -> tuple[Bools, list[str]]:
    """Return which rows have a label or client, and what was left out.

    Raises
    ------
    DataError: some have none, and the options do not say that they are left out.
    """
    if not gone.any():
        return ~gone, []
    count = f"{int(gone.sum()):,} of {len(gone):,} rows"
    if options.drop_rows:
        return ~gone, [f"{count} of {Path(where.where).name} are left out: their {role} is missing"]
    row = int(gone.argmax())
    place = f"row {where.number(row)} of {where}"
    if whose is None or isinstance(whose, str):
        client = whose or ""
    else:
        client = f"client {whose[row]}"
    raise DataError(
        f"{f'{client}, ' if client else ''}{place}: the {role} is missing in "
        f"column {name!r} (in {int(gone.sum())} of {len(gone)} rows); fill these rows, or write "
        "drop_rows = true to leave them out"
    )


def by_value(labels: NDArray[Any], gone: Bools, where: str) -> NDArray[Any]:
    """Return whole numbers that are no class numbers 0 .. C - 1 as words: each is a class of its
    own. Where 0 and most numbers up to the largest are there, the others are classes without rows.

    Raises
    ------
    DataError: about as many numbers as rows, which are no classes.

    >>> by_value(np.array([10, 20, 10]), np.zeros(3, bool), "a table").tolist()
    ['10', '20', '10']
    >>> by_value(np.array([0, 1, 3]), np.zeros(3, bool), "a table").tolist()
    [0, 1, 3]
    """
    there = labels[~gone]
    whole_numbers = labels.dtype.kind in "iu" or (
        labels.dtype.kind == "f" and bool((there == np.floor(there)).all())
    )
    if labels.ndim != 1 or not whole_numbers or not len(there):
        return labels
    distinct = np.unique(there)
    if distinct[0] == 0 and 2 * len(distinct) > int(distinct[-1]) + 1:
        return labels
    if len(there) >= _FEW and 2 * len(distinct) > len(there):
        raise DataError(
            f"{where}: the labels are {len(distinct):,} different numbers in {len(there):,} rows, "
            f"from {distinct[0]:.0f} to {distinct[-1]:.0f}, and no classes; to predict numbers "
            f"{REGRESSION}"
        )
    words = [f"{value:.0f}" for value in np.where(gone, 0, labels).tolist()]
    return np.array(words, object)


def are_numbers(labels: NDArray[Any], gone: Bools, where: str) -> bool:
    """Return whether labels are numbers to predict: with decimals, about as many as rows, or more
    different whole numbers than classes have, which do not count from 0.

    >>> are_numbers(np.arange(10, 400).repeat(5), np.zeros(5 * 390, bool), "a table")
    True
    """
    there = labels[~gone]
    if labels.ndim != 1 or labels.dtype.kind not in "iuf":
        return False
    try:
        words = by_value(labels, gone, where).dtype.kind == "O"
    except DataError:
        return True
    decimals = bool((there != np.floor(there)).any())
    return decimals or (words and len(np.unique(there)) > MOST_CLASSES)


_FEW = 20
"""Rows below which labels that are all different may be classes."""
