"""Rows that follow each other in time: a column that rises along them, targets that hardly change
from one to the next, windows of a series that overlap. Test rows drawn at random would lie between
rows that train, which is told, or within them, which is refused."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.errors import DataError
from motley.tasks.origin import Origin
from motley.tasks.raw_table import decoded
from motley.tasks.spellings import DateOrder, date_number, readable_orders
from motley.tasks.table_options import TableOptions
from motley.tasks.task import Dataset

__all__ = [
    "ORDER",
    "PYTHON_LINE",
    "TOML_LINE",
    "check_no_windows",
    "follows_itself",
    "order_in_time",
    "rising_times",
    "warn_of_times",
    "windows_of_columns",
    "windows_of_samples",
]

ORDER = "order"
"""``by`` of rows that come in their order in time."""
PYTHON_LINE = 'test={{"last": 0.2, "by": "{}"}}'
"""What to write in Python, with the place of a column's name."""
TOML_LINE = 'test = {{ last = 0.2, by = "{}" }}'
"""What to write in an experiment."""
_LOOKED_AT = 5_000
"""Rows of a table that are looked at."""
_FEWEST = 20
"""Steps from row to row below which a column that rises may do so by chance."""
_ALIKE = 0.8
"""Correlation of a target with the one before it, at the same client, from which rows look to be in
order of time; of 40 independent rows it is 0 +- 0.16."""
_STEPS = 40
"""Steps from row to row below which no correlation is worked out."""
_WINDOW_ROWS = 32
"""Consecutive rows of a client that are looked at for windows of a series."""
_FEWEST_SAMPLES = 5
"""Of a client's samples, and different values of a column, that must move on."""
_WINDOW_STEPS = 8
"""Rows between a value and its return in another column, at most."""
_MOMENTS = (
    "t|time|times|timestamp|datetime|date|day|days|hour|hours|minute|minutes|second|seconds|week"
    "|month|quarter|year|epoch|step|tick|zeit|zeitpunkt|zeitstempel|uhrzeit|datum|tag|stunde|woche"
    "|monat|jahr"
)
_NAMED = re.compile(rf"(?:.*[_\s.:-])?(?:{_MOMENTS})(?:[_\s.:(\[-].*)?", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")
_CAMEL = re.compile(r".*[a-z](?:Time|Timestamp|Date|Day|Hour|Year)")


def rising_times(
    table: Any, options: TableOptions, owner: Ids | None
) -> tuple[tuple[str, DateOrder], ...]:
    """Return an Arrow table's columns of dates, or of numbers that are called like a time, that
    never fall (or never rise) along the rows of any client: name, and the one order in which all
    entries are dates, empty where there are none or several.

    Parameters
    ----------
    options: how numbers and dates are written.
    owner: the client of each row ``[n]``; None: all are one's.
    """
    first = table.slice(0, _LOOKED_AT)
    whose = np.zeros(len(first), np.int64) if owner is None else np.asarray(owner)[: len(first)]
    times: list[tuple[str, DateOrder]] = []
    for name in first.column_names:
        readings = _moments(decoded(first.column(name), name, ""), name, options)
        rising = [order for order, moments in readings.items() if _rises(moments, whose)]
        if rising:
            times.append((name, rising[0] if len(readings) == 1 else ""))
    return tuple(times)


def _rises(moments: Floats, whose: Ids) -> bool:
    order = np.argsort(whose, kind="stable")
    there = order[~np.isnan(moments[order])]
    steps = np.diff(moments[there])[np.diff(whose[there]) == 0]
    one_way = bool((steps >= 0).all() or (steps <= 0).all())
    return one_way and int((steps != 0).sum()) >= _FEWEST


def _moments(column: Any, name: str, options: TableOptions) -> dict[DateOrder, Floats]:
    """Return a column as moments in time ``[n]``, NaN where an entry is a gap, by the order of
    dates in which all its entries can be read; numbers by none."""
    import pyarrow as pa

    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return {}
    words = ["" if entry is None else str(entry).strip() for entry in column.to_pylist()]
    there = dict.fromkeys(word for word in words if word not in options.absent)
    spelling = options.spelling(name)
    orders: dict[DateOrder, dict[str, float]] = {}
    if there and (_NAMED.fullmatch(name.strip()) or _CAMEL.fullmatch(name.strip())):
        orders[""] = {word: spelling.number(word) for word in there}
        if np.isnan(list(orders[""].values())).any():
            orders = {}
    if not orders and there and not _NUMBER.fullmatch(next(iter(there))):
        for order in (spelling.dates,) if spelling.dates else readable_orders(list(there)):
            days = {word: date_number(word, order) for word in there}
            orders[order] = {word: day for word, day in days.items() if day is not None}
    return {
        order: np.array([moments.get(word, np.nan) for word in words])
        for order, moments in orders.items()
        if len(moments) == len(there)
    }


def follows_itself(targets: Floats, owner: Ids | None) -> bool:
    """Return whether targets ``[n]`` hardly change from a client's row to its next, and are not
    sorted: their correlation with the one before is at least 0.8.

    Parameters
    ----------
    owner: the client of each row ``[n]``; None: all are one's.
    """
    y = np.asarray(targets, np.float64)[:_LOOKED_AT]
    whose = np.zeros(len(y), np.int64) if owner is None else np.asarray(owner)[: len(y)]
    order = np.argsort(whose, kind="stable")
    at = np.unique(whose[order], return_inverse=True)[1]
    mean = np.bincount(at, y[order]) / np.bincount(at)
    centred = y[order] - mean[at]
    same = np.diff(at) == 0
    before, after = centred[:-1][same], centred[1:][same]
    steps = after - before
    one_way = bool((steps >= 0).all() or (steps <= 0).all())
    # sorted but for a few exchanges, as by a rounded column
    turns = int((np.diff(np.sign(steps[steps != 0])) != 0).sum())
    size = float(np.sqrt((before**2).sum() * (after**2).sum()))
    if len(steps) < _STEPS or one_way or turns < 2 or size == 0:
        return False
    return float((before * after).sum()) >= _ALIKE * size


def order_in_time(dataset: Dataset) -> str:
    """Return the column that looks to say when a row is of; :data:`ORDER` where none does and the
    targets of each client hardly change from row to row; nothing where rows look to be in no order.
    """
    if dataset.reading is not None and dataset.reading.times:
        return dataset.reading.times[0][0]
    numbers = dataset.classes is None and dataset.y.dim() == 2 and dataset.y.shape[1] == 1
    return ORDER if numbers and follows_itself(dataset.y[:, 0].numpy(), dataset.groups) else ""


def warn_of_times(dataset: Dataset, line: str) -> None:
    """Warn that test rows are drawn at random among rows that look to be in order of time.

    Parameters
    ----------
    line: what tests on the last ones, with the place of a column's name as ``{}``.
    """
    by = order_in_time(dataset)
    if not by:
        return
    seen = f"column {by!r} rises or falls along the rows of every client, like their time"
    if by == ORDER:
        seen = "the targets of a client hardly change from one row to the next, as in a series"
    where = f"{dataset.notes['data']}: " if "data" in dataset.notes else ""
    warnings.warn(
        f"{where}{seen}, and test rows are drawn at random, between rows that train; to test on "
        f"the last ones write {line.format(by)}",
        stacklevel=3,
    )


def windows_of_columns(columns: Mapping[str, Floats], owner: Ids | None) -> str:
    """Return in words that a column holds what another held a few rows before, at each of the first
    clients; nothing where none does.

    Parameters
    ----------
    columns: name -> numbers ``[n]``.
    owner: the client of each row ``[n]``; None: all are one's.
    """
    count = len(next(iter(columns.values()), ()))
    rows = [mine for mine in _first_rows(count, owner) if len(mine) > 2 * _WINDOW_STEPS]
    if not rows:
        return ""
    varied = {
        name: values
        for name, values in columns.items()
        if all(len(np.unique(values[mine])) >= _FEWEST_SAMPLES for mine in rows)
    }
    for step in range(1, _WINDOW_STEPS + 1):
        earlier = {
            b"".join(values[mine[:-step]].tobytes() for mine in rows): name
            for name, values in varied.items()
        }
        for name, values in varied.items():
            later = b"".join(values[mine[step:]].tobytes() for mine in rows)
            other = earlier.get(later, name)
            if other != name:
                after = f"{step} rows later" if step > 1 else "a row later"
                return f"column {name!r} holds what column {other!r} held, {after}"
    return ""


def windows_of_samples(x: Any, owner: Ids | None, origin: Origin) -> str:
    """Return in words that each sample ``[n, ...]`` of one of the first clients is the one before
    it, moved on; nothing where none is.

    Parameters
    ----------
    owner: the client of each ``[n]``; None: all are one's.
    origin: of the samples, for the place that is named.
    """
    for rows in _first_rows(len(x), owner):
        if len(rows) >= _FEWEST_SAMPLES and _moves_on(np.asarray(x[rows])):
            return f"{origin.row(int(rows[1]))}: each sample is the one before it moved on"
    return ""


def check_no_windows(dataset: Dataset, line: str) -> None:
    """Refuse to draw test rows at random from windows of a series that overlap: a test row would
    lie within rows that train.

    Parameters
    ----------
    line: what to write, with the place of a column's name as ``{}``.

    Raises
    ------
    DataError: the samples are such windows.
    """
    origin = Origin.of_clients("", dataset.groups, dataset.client_names, "its samples")
    seen = dataset.windows or windows_of_samples(dataset.x, dataset.groups, origin)
    if seen:
        raise DataError(
            f"{seen}, a window of a series, and drawn at random most test samples would lie within "
            f"training samples; write {line.format('time')}, or, where samples come in their order "
            f"in time, {line.format(ORDER)}"
        )


def _first_rows(count: int, owner: Ids | None) -> list[Ids]:
    """Return the first rows of each of the first clients."""
    whose = np.zeros(count, np.int64) if owner is None else np.asarray(owner)
    clients = np.unique(whose[: 4 * _WINDOW_ROWS])[:3]
    return [np.flatnonzero(whose == client)[:_WINDOW_ROWS] for client in clients]


def _moves_on(x: NDArray[Any]) -> bool:
    """Return whether each row ``[n, ...]`` repeats the one before it but for a few steps at an end,
    along its first or its last axis."""
    if x.ndim < 2 or len(np.unique(x.reshape(len(x), -1), axis=0)) < len(x):
        return False
    return any(_overlaps(np.moveaxis(x, axis, 1)) for axis in {1, x.ndim - 1})


def _overlaps(x: NDArray[Any]) -> bool:
    length = x.shape[1]
    for step in range(1, min(length // 2, 16) + 1):
        if length - step < 2:
            break
        for first, second in ((x[:-1, step:], x[1:, :-step]), (x[:-1, :-step], x[1:, step:])):
            if np.array_equal(first, second):
                return True
    return False
