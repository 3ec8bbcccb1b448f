"""Rows that follow each other in time: a column that rises along rows that hardly change from one
to the next, windows of a series that overlap. Test rows drawn at random would lie between rows that
train, which is told, or within them, which is refused.

Rows may be sorted and independent: patients by their date of birth or admission, houses by their
place. So a column that rises is no time by itself, and correlated neighbours are no series.
Independent numbers turn (from rising to falling or back) at 2 of 3 steps, whatever trend lies under
them (the number of turns in n has a variance of (16 n - 29) / 90), those of a series at fewer.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.errors import DataError
from motley.tasks.origin import Origin
from motley.tasks.preparation import FieldsPreparation
from motley.tasks.task import Dataset
from motley_data.raw_table import decoded, reading_of
from motley_data.spellings import DateOrder, date_number, readable_orders
from motley_data.table_options import TableOptions

ORDER = "order"
"""``by`` of rows that come in their order in time."""
PYTHON_LINE = 'test={{"last": 0.2, "by": "{}"}}'
"""What to write in Python, with the place of a column's name."""
TOML_LINE = 'test = {{ last = 0.2, by = "{}" }}'
"""What to write in an experiment."""
_LOOKED_AT = 5_000
"""Rows of a table that are looked at."""
_FEWEST = 8
"""Steps from row to row below which a column that rises may do so by chance."""
_ONE_WAY = 0.95
"""Share of a column's steps that go one way, where it is sorted but for a few restarts (of sensors
one after another) or exchanges."""
_STEPS = 40
"""Steps from row to row, and half as many that change a number, below which it is not said whether
numbers follow each other."""
_TURNS = 0.56
"""Share of steps at which the numbers of a series turn, at most; of house prices along the
neighbourhoods of California 0.61, of hourly sensors 0.2 to 0.4."""
_DEVIATIONS = 4.0
"""Standard deviations by which independent numbers would have to turn less often."""
_ALIKE = 0.8
"""Correlation of numbers with those a row before, at the same client, from which rows look to be a
series where no column rises along them."""
_ALIKE_IN_TIME = 0.5
"""The same of any column, where another rises along them."""
_MOST_COLUMNS = 256
"""Columns that are looked at, at most."""
_WINDOW_ROWS = 32
"""Consecutive rows of a client that are looked at for windows of a series."""
_FEWEST_SAMPLES = 5
"""Of a client's samples, and different values of a column, that must move on."""
_WINDOW_STEPS = 8
"""Rows between a value and its return in another column, at most."""
_MOMENTS = (
    "t|ts|time|times|timestamp|datetime|date|day|days|hour|hours|hr|minute|minutes|second|seconds"
    "|sec|week|month|mnth|quarter|year|yr|epoch|unix|utc|step|tick|zeit|zeitpunkt|zeitstempel"
    "|uhrzeit|datum|tag|stunde|woche|monat|jahr"
)
_NAMED = re.compile(rf"(?:.*[_\s.:-])?(?:{_MOMENTS})(?:[_\s.:(\[-].*)?", re.IGNORECASE)
_NUMBER = re.compile(r"[+-]?\d+(?:[.,]\d+)?")
_CAMEL = re.compile(r".*[a-z](?:Time|Timestamp|Date|Day|Hour|Year)")
_CYCLES = {
    **dict.fromkeys(("second", "seconds", "sec", "minute", "minutes"), 60),
    **dict.fromkeys(("hour", "hours", "hr", "stunde", "time", "zeit", "uhrzeit"), 24),
    **dict.fromkeys(("day", "days", "tag"), 366),
    **dict.fromkeys(("week", "woche"), 53),
    **dict.fromkeys(("month", "mnth", "monat"), 12),
    "quarter": 4,
}
"""Parts of a time -> the number up to which they may begin anew, as hours do every day: a row of
which they are larger may be an earlier one."""
_YEAR_FIRST = re.compile(r"\d{4}[-/.]\d\d?(?!\d)")
_EPOCHS = (1e9, 1e12, 1e15, 1e18)
"""Seconds, and thousandths and so on, from 1970 to September 2001; to 2033 it is twice as many."""


def rising_times(
    table: Any, options: TableOptions, owner: Ids | None
) -> tuple[tuple[str, DateOrder], ...]:
    """Return an Arrow table's columns of dates, or of numbers that are called like a time or count
    seconds from 1970, that rise (or fall) along the rows of each client, but for a few restarts:
    name, and the first order of dates in which it does; empty where they are numbers.

    Parameters
    ----------
    options: how numbers and dates are written.
    owner: the client of each row ``[n]``; None: all are one's.
    """
    first = table.slice(0, _LOOKED_AT)
    whose = np.zeros(len(first), np.int64) if owner is None else np.asarray(owner)[: len(first)]
    times: list[tuple[str, DateOrder]] = []
    for name in first.column_names[:_MOST_COLUMNS]:
        readings = _moments(decoded(first.column(name), name, ""), name, options)
        rising = [
            order
            for order, moments in readings.items()
            if _rises(moments, whose, name, len(first) == len(table))
        ]
        times += [(name, order) for order in rising[:1]]
    return tuple(times)


def _steps(values: Floats, whose: Ids) -> tuple[Floats, Floats, Ids]:
    """Return numbers before and after each step from a client's row to its next, and the client;
    gaps are left out."""
    order = np.argsort(whose, kind="stable")
    there = order[~np.isnan(values[order])]
    same = np.diff(whose[there]) == 0
    return values[there][:-1][same], values[there][1:][same], whose[there][1:][same]


def _is_sorted(values: Floats, whose: Ids, share: float = _ONE_WAY) -> bool:
    before, after, _ = _steps(values, whose)
    up, down = int((after > before).sum()), int((after < before).sum())
    return up + down >= _FEWEST and max(up, down) >= share * (up + down)


def _rises(moments: Floats, whose: Ids, name: str, all_rows: bool) -> bool:
    """Return whether moments rise or fall along the rows; ``all_rows``: they are those of all."""
    if _may_begin_anew(moments, name):
        return all_rows and _is_sorted(moments, whose, 1.0)
    return _is_sorted(moments, whose)


def _may_begin_anew(moments: Floats, name: str) -> bool:
    """Return whether moments are hours of the day, days of the month or the like."""
    parts = re.split(r"[_\s.:()\[\]-]+|(?<=[a-z])(?=[A-Z])", name.strip())
    most = max((_CYCLES.get(part.lower(), 0) for part in parts), default=0)
    return bool(np.nanmax(moments) <= max(most, 24))


def _moments(column: Any, name: str, options: TableOptions) -> dict[DateOrder, Floats]:
    """Return a column as moments in time ``[n]``, NaN where an entry is a gap, by the order of
    dates in which all its entries can be read; numbers by none."""
    import pyarrow as pa

    if pa.types.is_nested(column.type) or pa.types.is_boolean(column.type):
        return {}
    words = ["" if entry is None else str(entry).strip() for entry in column.to_pylist()]
    there = dict.fromkeys(word for word in words if word not in options.absent)
    if not there:
        return {}
    spelling = options.spelling(name)
    numbers = {word: spelling.number(word) for word in there}
    values = np.array(list(numbers.values()))
    named = _is_named(name)
    orders: dict[DateOrder, dict[str, float]] = {}
    if not np.isnan(values).any() and (named or _since_1970(values)):
        orders[""] = numbers
    elif all(map(_YEAR_FIRST.match, there)):  # read without an option
        orders[""] = _days(there, "year first")
    elif not _NUMBER.fullmatch(next(iter(there))):
        readable = (spelling.dates,) if spelling.dates else readable_orders(list(there))
        orders = {order: _days(there, order) for order in readable}
    return {
        order: np.array([moments.get(word, np.nan) for word in words])
        for order, moments in orders.items()
        if len(moments) == len(there)
    }


def _is_named(name: str) -> bool:
    """Return whether a column is called like a time, or a part of one."""
    return any(form.fullmatch(name.strip()) for form in (_NAMED, _CAMEL))


def _since_1970(values: Floats) -> bool:
    whole = bool((values == np.floor(values)).all())
    return whole and any((values >= unit).all() and (values <= 2 * unit).all() for unit in _EPOCHS)


def _days(words: Iterable[str], order: DateOrder) -> dict[str, float]:
    """Return the days from 1970-01-01 to those of some texts that are dates in this order."""
    days = {word: date_number(word, order) for word in words}
    return {word: day for word, day in days.items() if day is not None}


def follows_itself(values: Floats, owner: Ids | None, least: float = _ALIKE) -> bool:
    """Return whether numbers ``[n]`` follow each other as in a series, at each client: they are
    correlated with those a row before, they turn less often than independent ones, and are not
    sorted.

    Parameters
    ----------
    owner: the client of each row ``[n]``; None: all are one's.
    least: correlation, at least.
    """
    numbers = np.asarray(values[:_LOOKED_AT], np.float64)
    whose = np.zeros(len(numbers), np.int64) if owner is None else np.asarray(owner)[: len(numbers)]
    before, after, client = _steps(numbers, whose)
    if len(before) < _STEPS:
        return False
    at = np.unique(client, return_inverse=True)[1]
    mean = np.bincount(at, before) / np.bincount(at)
    size = np.sqrt(((before - mean[at]) ** 2).sum() * ((after - mean[at]) ** 2).sum())
    changed = after != before
    up, moved = (after > before)[changed], client[changed]
    if len(up) < _STEPS // 2 or not 0.25 <= up.mean() <= 0.75:
        return False
    pairs = moved[1:] == moved[:-1]
    count = int(pairs.sum())
    if not count:
        return False
    turns = float((up[1:] != up[:-1])[pairs].mean())
    chance = 2 / 3 - _DEVIATIONS * np.sqrt(16 / 90 / count)
    product = float(((before - mean[at]) * (after - mean[at])).sum())
    return turns <= min(_TURNS, chance) and product >= least * float(size)


def order_of_rows(
    times: Sequence[str],
    columns: Mapping[str, Floats],
    targets: Sequence[Floats],
    owner: Ids | None,
) -> str:
    """Return the column by which rows are in order of time; :data:`ORDER` where they look to be a
    series and no column says when; nothing where they look to be in no such order.

    Parameters
    ----------
    times: columns that rise along the rows, of :func:`rising_times`.
    columns: name -> inputs that are numbers ``[n]``.
    targets: each a column of numbers ``[n]``; classes are none.
    owner: the client of each row ``[n]``; None: all are one's.
    """
    shown = {name: columns[name] for name in list(columns)[:_MOST_COLUMNS] if name not in times}
    if times:
        several = (*targets, *shown.values())
        return times[0] if any(follows_itself(v, owner, _ALIKE_IN_TIME) for v in several) else ""
    count = len(next(iter(columns.values()), next(iter(targets), np.zeros(0))))
    whose = np.zeros(count, np.int64) if owner is None else np.asarray(owner)
    others = (v[:_LOOKED_AT] for name, v in shown.items() if not _is_named(name))
    if any(_is_sorted(values, whose[:_LOOKED_AT]) for values in others):
        return ""  # sorted by an input, of which the others may be a smooth function
    alike = sum(follows_itself(values, owner) for values in shown.values())
    series = any(follows_itself(values, owner) for values in targets)
    return ORDER if series or alike > max(1, len(shown) / 2) else ""


def warn_of_times(dataset: Dataset, line: str) -> None:
    """Warn that test rows are drawn at random among rows that look to be in order of time.

    Parameters
    ----------
    line: what tests on the last ones, with the place of a column's name as ``{}``.
    """
    by = dataset.in_order
    if not by or dataset.test.any() or dataset.divided is not None:
        return
    times = dict(reading_of(dataset.reading).times)
    seen = "the rows of a client hardly change from one to the next, as in a series"
    if by in times:
        seen = f"column {by!r} rises or falls along the rows of every client, like their time"
    dates = times.get(by, "")
    key = 'table={{"dates": "{}"}}' if line == PYTHON_LINE else 'dates = "{}"'
    order = f" and {key.format(dates)}" if dates else ""
    where = f"{dataset.notes['data']}: " if "data" in dataset.notes else ""
    warnings.warn(
        f"{where}{seen}, and test rows are drawn at random, between rows that train; to test on "
        f"the last ones write {line.format(by)}{order}",
        stacklevel=3,
    )


def windows_of_columns(
    columns: Mapping[str, Floats], owner: Ids | None, targets: NDArray[Any] | None = None
) -> str:
    """Return in words that a column holds what another held a few rows before, at each of the first
    clients; nothing where none does.

    Parameters
    ----------
    columns: name -> numbers ``[n]``.
    owner: the client of each row ``[n]``; None: all are one's.
    targets: numbers ``[n]``, the first column, "the targets"; None: none.
    """
    count = len(next(iter(columns.values()), ())) if targets is None else len(targets)
    rows = [mine for mine in _first_rows(count, owner) if len(mine) > 2 * _WINDOW_STEPS]
    if not rows:
        return ""
    if targets is not None:
        columns = {"the targets": targets.astype(np.float64), **columns}
    columns = dict(islice(columns.items(), _MOST_COLUMNS))
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
        held = []
        for name, values in varied.items():
            later = b"".join(values[mine[step:]].tobytes() for mine in rows)
            if earlier.get(later, name) != name:
                held.append((name, earlier[later]))
        # where an interval ends the next begins: two columns that are sorted are no window
        pairs = [pair for pair in held if len(held) > 1 or not _one_way(varied[pair[0]], rows)]
        for name, other in pairs:
            after = f"{step} rows later" if step > 1 else "a row later"
            return f"column {name!r} holds what column {other!r} held, {after}"
    return ""


def _one_way(values: Floats, rows: Sequence[Ids]) -> bool:
    steps = np.concatenate([np.diff(values[mine]) for mine in rows])
    return bool((steps >= 0).all() or (steps <= 0).all())


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
    inputs = [dataset.x]
    if isinstance(dataset.preparation, FieldsPreparation):  # several, side by side
        sizes = [math.prod(field.shape) for field in dataset.preparation.fields]
        parts = zip(torch.split(dataset.x, sizes, 1), dataset.preparation.fields, strict=True)
        inputs = [part.reshape(len(part), *field.shape) for part, field in parts]
    windows = (windows_of_samples(x, dataset.groups, origin) for x in inputs)
    seen = next(filter(None, windows), "") or dataset.windows
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
    if (whose[1:] >= whose[:-1]).all():  # millions of rows need not be looked through
        starts, ends = (np.searchsorted(whose, clients, side) for side in ("left", "right"))
        return [
            np.arange(start, min(end, start + _WINDOW_ROWS))
            for start, end in zip(starts, ends, strict=True)
        ]
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
