"""Federations from a table or a folder of tables, to inspect them without an experiment."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import ConfigError, DataError, suggest
from motley.core.untrusted import shortened
from motley.experiments.document import to_toml
from motley.experiments.folder_names import slug
from motley.tasks.federate import Split
from motley.tasks.origin import Origin
from motley.tasks.table_kinds import is_table_file
from motley.tasks.task import Federation
from motley.tasks.unscaled import large_targets
from motley_data.client_folders import client_files, is_client_file, stem
from motley_data.client_parts import is_table, table_options
from motley_data.formats import patches
from motley_data.own_federation import from_files, natural_federation
from motley_data.raw_table import joined, raw_table, reading_of
from motley_data.row_labels import read_row_column
from motley_data.row_times import ORDER
from motley_data.table_files import read_arrow
from motley_data.table_options import TableOptions
from motley_data.table_readers import (
    are_numbers,
    make_dataset,
    read_columns,
    read_parts,
    take_columns,
)

LEFT_OUT = "columns left out"
"""The federation's note of columns that are no inputs: dates, ids, and words among numbers."""
_COHORT = 10
_ROUNDS = 20
"""Clients in a round, at most, and rounds of the experiment that is shown."""
_REASONS = 3
"""Columns of which it is told why they can be no inputs, at most, where none can."""
_LAST = 0.2
"""Share of each client's rows that test, of rows in order of time."""
_BY_TIME = (
    "rises or falls along the rows of every client, like their time: test rows are the last by it"
)
_IN_ORDER = (
    "rows follow each other as in a series (they hardly change from one to the next, or columns "
    "hold what others held): test rows are the last in their order"
)
_NONE = 1e-300
"""The share of rows that are set aside for testing: not one of any number of them."""


def holds_tables(path: Path) -> bool:
    """Return whether a path is a table, or a folder that holds files of clients and no runs."""
    if not path.is_dir():
        return is_table_file(path)
    if patches.recognises(path):  # its table is a list of pictures
        return False
    files = (file for pattern in ("*", "*/*") for file in path.glob(pattern))
    any_client_file = any(is_client_file(file) or file.name == "x.npy" for file in files)
    return any_client_file and next(path.rglob("run.json"), None) is None


def table_name(path: Path) -> str:
    """Return the name of a table without the endings of its file, ``all`` of ``all.csv.gz``; of a
    folder its name."""
    return stem(path) if is_table_file(path) else path.name


def federation_of(
    path: Path,
    label: str | None,
    client: str | None,
    table: Mapping[str, Any] | None = None,
) -> Federation:
    """Return the federation in a table with a column that says whose a row is, or in a folder with
    a file for each client.

    Columns that cannot be inputs are left out and noted, and no row is set aside for testing.

    Parameters
    ----------
    label: the column of what is to be predicted; ``label`` by default.
    client: the column of clients, of a single table.
    table: how files are written and columns read, options of
    :class:`~motley_data.table_options.TableOptions`.

    Raises
    ------
    ConfigError: a column that is not named, or not there; an option out of range. DataError: a
    table that cannot be used.
    """
    label = label or "label"
    options = table_options({"scale": "federated", **(table or {})})
    if path.is_dir():
        return _of_folder(path, label, client, options)
    all_rows = read_arrow(path, options.form)
    _check(path, list(all_rows.column_names), {"client": client, "label": label})
    numbers = _numbers_to_predict(all_rows.column(label), label, options, str(path))
    inputs, y, ids = take_columns(
        table=all_rows,
        label=label,
        client=client,
        where=str(path),
        options=options,
        classes=not numbers,
    )
    options, why = _without_unusable(inputs, options, ids, str(path))
    read = partial(
        make_dataset,
        x=inputs,
        y=y,
        client=ids,
        classes=not numbers,
        where=str(path),
        whole_numbers=True,
        column=client,
    )
    dataset = read(options=options)
    times = reading_of(dataset.reading).times
    remarks: tuple[str, ...] = ()
    if numbers and bool((y == np.floor(y)).all()):
        remarks = (f"{label}: {len(np.unique(y)):,} whole numbers, which are predicted as such",)
    if numbers and (large := large_targets(y)):
        remarks = (*remarks, large)
    if dataset.in_order in (*options.numbers, *options.words):
        times = ()  # an input on purpose
    elif times:
        why[dataset.in_order] = _BY_TIME
        options = replace(options, drop=tuple(dict.fromkeys([*options.drop, dataset.in_order])))
        dataset = read(options=options)
    elif dataset.windows or dataset.in_order:
        times, remarks = ((ORDER, ""),), (*remarks, _IN_ORDER)
    federation = natural_federation(dataset, Split("client", _NONE), 0)
    reading = reading_of(dataset.reading)
    reading = replace(reading, times=times, remarks=(*reading.remarks, *remarks))
    return _noted(replace(federation, reading=reading), options, why)


def experiment_of(
    federation: Federation,
    path: Path,
    label: str | None,
    client: str | None,
    table: Mapping[str, Any],
) -> str:
    """Return an experiment with a table as TOML: it reads the table as the federation was read, and
    leaves out the columns that were left out there.

    Parameters
    ----------
    federation: that of the table, label, client and table of :func:`federation_of`.
    """
    reading = reading_of(federation.reading)
    names = dict.fromkeys([*table.get("drop", ()), *(name for name, _ in reading.unread)])
    left_out = [name for name in names if name not in dict(reading.times)]
    name = "tabular" if federation.targets == "classes" else "tabular_regression"
    task = {
        "name": name,
        "data": str(path),
        "client": client,
        "label": label or "label",
        "scale": "federated",
        **table,
        **({"drop": left_out} if left_out else {}),
    }
    for by, order in reading.times:
        task["test"] = {"last": _LAST, "by": by}
        if order and "dates" not in table:
            task["dates"] = order
    keys = {
        "name": slug(table_name(path)),
        "cohort": min(len(federation), _COHORT),
        "partition": "by_writer",
        "stop": {"rounds": _ROUNDS},
        "evaluate": {"every": 1},
        "local": {"epochs": 5, "optimizer": {"name": "sgd", "lr": 0.1}},
        "task": task,
    }
    return to_toml(keys)


def _of_folder(path: Path, label: str, client: str | None, options: TableOptions) -> Federation:
    if client is not None:
        message = (
            f"got {client!r}, and in {path} each file is a client; leave it out, or give a "
            "single table"
        )
        raise ConfigError(message, "client")
    if (path / "x.npy").is_file():
        return from_files(path, test_fraction=_NONE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # from_files names what is not read
        files = [(file.client, file.path) for file in client_files(path)]
    first = files[0][1]
    numbers = False
    if is_table_file(first):
        first_rows = read_arrow(first, options.form)
        _check(path, list(first_rows.column_names), {"label": label})
        columns = (read_arrow(file, options.form) for _, file in files if is_table_file(file))
        numbers = any(
            _numbers_to_predict(rows.column(label), label, options, str(path))
            for rows in columns
            if label in rows.column_names
        )
    else:
        y = np.asarray(read_columns(first)[1])
        numbers = are_numbers(y, np.zeros(len(y), bool), str(path))
    parts = read_parts(files, label, options, classes=not numbers)
    why: dict[str, str] = {}
    if all(is_table(x) for x, _, _ in parts):
        options, why = _without_unusable(joined([x for x, _, _ in parts]), options, None, str(path))
    federation = from_files(
        path, label=label, regression=numbers, table=options, test_fraction=_NONE
    )
    return _noted(federation, options, why)


def _numbers_to_predict(column: Any, name: str, options: TableOptions, where: str) -> bool:
    """Return whether labels are numbers to predict, and no classes."""
    try:
        target = read_row_column(
            column=column, name=name, role="target", options=options, where=where, typed=False
        )
    except DataError:
        return False
    return are_numbers(target.values, target.gone, where)


def _without_unusable(
    inputs: Any, options: TableOptions, ids: Any, where: str
) -> tuple[TableOptions, dict[str, str]]:
    """Return the options that leave out columns that cannot be inputs, and why each cannot."""
    inputs_kept = [name for name in inputs.column_names if name not in options.drop]
    why = {}
    origin = Origin(where)
    if ids is not None:
        names, owner = np.unique(ids.astype(str), return_inverse=True)
        origin = Origin.of_clients(where, owner, names.tolist())
    for name in inputs_kept:
        words, numbers = (
            tuple(listed for listed in names if listed == name)
            for names in (options.words, options.numbers)
        )
        alone = replace(options, drop=(), words=words, numbers=numbers)
        try:
            column = raw_table(inputs.select([name]), alone, origin).columns[0]
            if np.isnan(column.values).all():
                why[name] = "there is no value"
        except DataError as error:
            why[name] = str(error).removeprefix(f"{where}: ")
    if inputs_kept and len(why) == len(inputs_kept):
        first = "; ".join(f"{name}: {reason}" for name, reason in list(why.items())[:_REASONS])
        raise DataError(f"{where}: no column can be an input; {first}")
    return replace(options, drop=(*options.drop, *why)), why


def _noted(federation: Federation, options: TableOptions, why: Mapping[str, str]) -> Federation:
    """Return the federation with a note of the columns that were left out, and why."""
    if not options.drop:
        return federation
    reading = reading_of(federation.reading)
    unread = tuple((name, why.get(name, reason)) for name, reason in reading.unread)
    first = sorted(unread, key=lambda pair: pair[0] not in why)
    return replace(
        federation,
        notes={**federation.notes, LEFT_OUT: ", ".join(name or "''" for name in options.drop)},
        reading=replace(reading, unread=tuple(first)),
    )


def _check(path: Path, names: list[str], columns: dict[str, str | None]) -> None:
    """Refuse a column that is not there; the message has the line to type."""
    line = f"motley inspect {path}" + "".join(
        f" --{key} {'COLUMN' if name not in names else name}" for key, name in columns.items()
    )
    for key, name in columns.items():
        if name not in names:
            if name is None:
                problem = (
                    f"{path} is a table, and nothing says which column names the client of a row"
                )
            else:
                problem = f"{path} has no column {name!r}{suggest(name, names)}"
            raise ConfigError(
                f"{problem}; write {line}; its columns: {shortened(', '.join(names), 300)}", key
            )
