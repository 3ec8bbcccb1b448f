"""Tables as they are read, before anything is measured: columns of numbers and of words, with gaps.

A column of text is a column of numbers if every entry but the gaps is a number, else a column of
words. What is neither for certain is refused with the option that says which: numbers and dates in
another spelling, ids, words among numbers.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from motley.core.arrays import Bools, Floats, Ints
from motley.core.errors import DataError, suggest
from motley.core.untrusted import shortened
from motley.tasks.origin import Origin, number_of_row, row_of
from motley_data.column_spelling import (
    NumberStyle,
    TextColumn,
    is_text,
    refuse_doubt,
    refuse_spelling,
)
from motley_data.gap_numbers import as_texts, gap_numbers, gap_numbers_remark
from motley_data.row_ids import refuse_ids
from motley_data.spellings import IN_A_UNIT, is_compact_date, visible
from motley_data.table_files import REMARKS, SEPARATORS, separators_of
from motley_data.table_lines import file_rows, with_file_rows
from motley_data.table_options import TableOptions
from motley_data.word_codes import rename_line, same_words

Kind = Literal["numbers", "words"]

_BOOLEANS = {
    **dict.fromkeys(("true", "True", "TRUE", "1"), 1.0),
    **dict.fromkeys(("false", "False", "FALSE", "0"), 0.0),
}
_TRUTH = {"true", "false"}
_QUOTED = re.compile(r'\s*=?"([^"]*)"\s*|\s*([^"]*)""\s*')
_LARGEST = float(np.finfo(np.float32).max)
_LOOKED_AT = 100
_SHOWN = 3
"""Words of a column that are shown."""


class RawColumn(NamedTuple):
    """One column: numbers, NaN for a gap; or positions in ``words``, the distinct words in
    alphabetical order. ``form``: what the entries of numbers are, as
    :meth:`~motley_data.spellings.Spelling.form` says it."""

    name: str
    values: Floats
    words: tuple[str, ...] | None = None
    form: str = ""


class ColumnReading(NamedTuple):
    """How one column was read: its kind, what is in it, its gaps, and of one entry the text and the
    value; ``words``: as a :class:`RawColumn` has them; ``remark``: what else a reader of results
    should know."""

    name: str
    kind: str
    seen: str
    gaps: int
    example: str
    value: float
    words: tuple[str, ...] | None = None
    remark: str = ""


@dataclass(frozen=True)
class TableReading:
    """How a table was read.

    Parameters
    ----------
    columns: of each input column.
    remarks: what was done to rows, labels and clients.
    unread: columns that are no inputs, and why.
    times: columns that look to say when a row is of, and the order in which their entries are
    dates; empty where they are numbers.
    """

    columns: tuple[ColumnReading, ...] = ()
    remarks: tuple[str, ...] = ()
    unread: tuple[tuple[str, str], ...] = ()
    times: tuple[tuple[str, str], ...] = ()


def reading_of(reading: object) -> TableReading:
    """Return a data set's or federation's ``reading``; an empty one where it was no table."""
    return reading if isinstance(reading, TableReading) else TableReading()


@dataclass(frozen=True)
class RawTable:
    """The input columns of a table as read.

    Parameters
    ----------
    columns: ``[n]`` values each.
    options: how they become inputs.
    where: the table, for messages.
    reading: how they were read.
    separators: of the texts, and whether each one's decimal mark is certain.
    """

    columns: tuple[RawColumn, ...]
    options: TableOptions
    where: str | Origin
    reading: TableReading = TableReading()
    separators: Mapping[str, bool] = field(default_factory=dict)

    @property
    def measured(self) -> bool:
        """Whether statistics of training rows are needed to make inputs of it.

        Raises
        ------
        DataError: they are needed, and the options do not allow them.
        """
        fixed = self.options.fixed
        words = [
            column
            for column in self.columns
            if column.words is not None and not self.options.fixed_words(column.name)
        ]
        gaps = [
            column
            for column in self.columns
            if column.words is None and np.isnan(column.values).any()
        ]
        gaps = [column for column in gaps if column.name not in fixed]
        if not words and not gaps:
            return self.options.scale in ("federated", "client")
        if self.options.scale not in ("none", "fixed"):
            return True
        raise self._unmeasured(words, gaps)

    def _unmeasured(self, words: Sequence[RawColumn], gaps: Sequence[RawColumn]) -> DataError:
        """Return the error that words and gaps are met by nothing that encodes or fills them."""
        place = str(self.where)
        causes = []
        if gaps:
            rows = np.isnan(np.stack([column.values for column in gaps], axis=1))
            row = int(rows.any(1).argmax())
            place = row_of(self.where, row)
            column = gaps[int(rows[row].argmax())]
            names = ", ".join(repr(column.name) for column in gaps)
            causes.append(f"NaN in {column.name} ({int(rows.sum())} in all, in {names})")
        if words:
            example = f" (for example {words[0].words[0]!r})" if words[0].words else ""
            causes.append(f"words in {', '.join(repr(column.name) for column in words)}{example}")
        return DataError(
            f'{place}: {" and ".join(causes)}, and scale = "{self.options.scale}" measures nothing '
            'to encode or fill them; write scale = "federated" or scale = "client" (in Python: '
            f'table={{"scale": "federated"}}), name them in fixed, or leave columns out, drop = '
            f'["{(words or gaps)[0].name}"]'
        )

    def values(self) -> Floats:
        """Return all columns, ``[n, c]``."""
        return np.stack([column.values for column in self.columns], axis=1)


def arrow_table(raw: Any, names: tuple[str, ...] = ()) -> Any:
    """Return a DataFrame, an Arrow table, a mapping of columns, or an array ``[n, c]`` as an Arrow
    table.

    Parameters
    ----------
    names: of an array's columns; empty: x0, x1, ...

    Raises
    ------
    DataError: it cannot be read as a table.
    """
    import pyarrow as pa

    try:
        if isinstance(raw, Mapping):
            return pa.table(
                {name: pa.array(column, from_pandas=True) for name, column in raw.items()}
            )
        if hasattr(raw, "__arrow_c_stream__") or hasattr(raw, "iloc"):
            table = pa.table(raw)
            return table.drop_columns(
                [n for n in table.column_names if n.startswith("__index_level_")]
            )
        names = names or tuple(str(name) for name in getattr(raw, "columns", ()))
        array = np.asarray(raw)
        if array.ndim != 2 or (names and array.shape[1] != len(names)):
            expected = f"[n, {len(names)}] ({', '.join(names)})" if names else "[n, columns]"
            raise DataError(
                f"got an array of shape {list(array.shape)}; expected {expected}, a DataFrame, or "
                "a mapping of columns"
            )
        columns = names or tuple(f"x{j}" for j in range(array.shape[1]))
        return pa.table(
            {
                name: pa.array(array[:, j].tolist(), from_pandas=True)
                for j, name in enumerate(columns)
            }
        )
    except (pa.ArrowException, ValueError, TypeError) as error:
        # pandas: the column is named last
        reason = ": ".join(
            str(argument).splitlines()[0] for argument in reversed(error.args or ("",))
        )
        raise DataError(f"got a {type(raw).__name__} that is no table ({reason})") from None


def check_columns(table: Any, first: Any, where: str) -> None:
    """Refuse an Arrow table whose columns have other names than those of the first one.

    Raises
    ------
    DataError: names up to three columns that only one of them has.
    """
    here = set(table.column_names)
    there = set(first.column_names)
    for which, only in (
        ("has no column", there - here),
        ("has a column that the first table has not:", here - there),
    ):
        if only:
            more = f" and {len(only) - 3} more" if len(only) > 3 else ""
            named = ", ".join(map(repr, sorted(only)[:3]))
            raise DataError(
                f"{where} {which} {named}{more}; expected the same columns in all tables"
            )


def joined(tables: Sequence[Any]) -> Any:
    """Return the rows of several Arrow tables of the same columns, in the first table's order; a
    column that is text in one is text.

    Raises
    ------
    DataError: the types of a column do not go together.
    """
    import pyarrow as pa

    columns = {}
    for name in tables[0].column_names:
        parts = [table.column(name) for table in tables]
        kinds = {column.type for column in parts}
        if len(kinds) > 1:
            text = any(is_text(kind) or pa.types.is_dictionary(kind) for kind in kinds)
            try:
                parts = [decoded(column, name, "the tables") for column in parts]
                parts = [column.cast(pa.string() if text else pa.float64()) for column in parts]
            except pa.ArrowException:
                raise DataError(
                    f"column {name!r} is {' and '.join(sorted(map(str, kinds)))}; expected one "
                    "kind in all tables"
                ) from None
        columns[name] = pa.chunked_array(
            [chunk for column in parts for chunk in column.chunks],
            parts[0].type,
        )
    schemas = [table.schema.metadata or {} for table in tables]
    remarks = list(dict.fromkeys(remark for table in tables for remark in remarks_of(table)))
    merged = {key: value for schema in schemas for key, value in schema.items()}
    marks = "".join(dict.fromkeys(mark for table in tables for mark in separators_of(table)))
    merged |= {SEPARATORS: marks.encode()} if marks else {}
    joined = with_remarks(pa.table(columns).replace_schema_metadata(merged), remarks)
    numbers = [file_rows(table) for table in tables]
    if all(rows is None for rows in numbers):
        return joined
    of_each = [
        np.arange(len(table)) if rows is None else rows
        for table, rows in zip(tables, numbers, strict=True)
    ]
    return with_file_rows(joined, np.concatenate(of_each))


def remarks_of(table: Any) -> list[str]:
    """Return what was done to the rows of an Arrow table before it was given on."""
    remarks: list[str] = json.loads((table.schema.metadata or {}).get(REMARKS, b"[]"))
    return remarks


def with_remarks(table: Any, remarks: Sequence[str]) -> Any:
    """Return an Arrow table that carries remarks for readers of results."""
    metadata = {**(table.schema.metadata or {}), REMARKS: json.dumps(list(remarks)).encode()}
    return table.replace_schema_metadata(metadata)


def raw_table(table: Any, options: TableOptions, where: str | Origin) -> RawTable:
    """Return the columns of an Arrow table of inputs; messages count rows as their file has them.

    Raises
    ------
    DataError: a column of dates or ids, numbers in another spelling or with words between them,
    numbers at one client and words at another, an unknown name in an option.
    """
    names = list(table.column_names)
    for key in ("drop", "words", "numbers", "fixed"):
        for name in getattr(options, key):
            if name not in names:
                raise DataError(
                    f"{key}: {where} has no input {name!r}{suggest(name, names)}; its inputs: "
                    f"{shortened(', '.join(names), 300)}"
                )
    if (numbers := file_rows(table)) is not None:
        where = replace(where if isinstance(where, Origin) else Origin(where), numbers=numbers)
    inputs = [name for name in names if name not in options.drop]
    if not inputs:
        raise DataError(
            f"{where} has no input columns; its columns: {shortened(', '.join(names), 300)}"
        )
    style = NumberStyle(table)
    columns = []
    for name in inputs:
        as_words = name in options.words or options.fixed_words(name)
        taken = name in options.numbers or name in options.fixed
        kind: Kind | None = "numbers" if taken else None
        if as_words:
            kind = "words"
        column = read_column(
            column=table.column(name),
            name=name,
            kind=kind,
            options=options,
            where=where,
            style=style,
        )
        if kind is None and not column.form.startswith(IN_A_UNIT):  # ids are in no unit
            refuse_ids(column.name, column.values, column.words, where)
        columns.append(column)
    strange = [[] if column.words else gap_numbers(column.values) for column in columns]
    gaps = (*options.gaps, *as_texts(value for values in strange for value in values))
    readings = [
        _reading(column, table.column(column.name), gap_numbers_remark(column.values, own, gaps))
        for column, own in zip(columns, strange, strict=True)
    ]
    remarks = remarks_of(table)
    marks = separators_of(table)
    if marks not in ("", ","):
        named = ["a tabulator" if mark == "\t" else repr(mark) for mark in marks]
        files = "columns" if len(marks) == 1 else "columns of some files"
        remarks = [f"{files} are divided by {', of others by '.join(named)}", *remarks]
    unread = tuple((name, "left out by drop") for name in options.drop)
    reading = TableReading(tuple(readings), tuple(remarks), unread)
    certain = bool(options.decimal) or style.points
    return RawTable(
        columns=tuple(columns),
        options=options,
        where=where,
        reading=reading,
        separators=dict.fromkeys(marks, certain),
    )


def refuse_doubtful_points(table: Any, options: TableOptions, where: str | Origin) -> None:
    """Refuse numbers of one file of several whose points may divide thousands: beside the numbers
    of other files this cannot be seen.

    Raises
    ------
    DataError: names the column, the row, and the line for each reading.
    """
    style = NumberStyle(table)
    if not style.commas or style.points:
        return
    left = {*options.drop, *options.words, *options.numbers}
    for name in table.column_names:
        column = table.column(name)
        if name in left or not is_text(column.type) or options.says_decimal(name):
            continue
        if options.units or _grouped(column):
            texts = text_column(column, name, options)
            refuse_doubt(texts, options, where, style)


# ----------------------------------------------------------------------------------------- columns


def decoded(column: Any, name: str, where: str | Origin) -> Any:
    """Return an Arrow column of categories as one of their values, any other as it is.

    Raises
    ------
    DataError: the categories are intervals, or others that are neither words nor numbers.
    """
    import pyarrow as pa

    if not pa.types.is_dictionary(column.type):
        return column
    if is_text(column.type.value_type):  # of Polars they are of a type that Arrow cannot cast to
        return pa.chunked_array(
            [
                pa.DictionaryArray.from_arrays(
                    chunk.indices, chunk.dictionary.cast(pa.string())
                ).dictionary_decode()
                for chunk in column.chunks
            ],
            pa.string(),
        )
    try:
        return column.cast(column.type.value_type)
    except pa.ArrowException:
        kind = getattr(column.type.value_type, "extension_name", column.type.value_type)
        raise DataError(
            f"{where}: column {name!r} has categories of the type {kind}, not words or numbers; "
            f"make them words, e.g. table[{name!r}] = table[{name!r}].astype(str)"
        ) from None


def read_column(
    column: Any,
    name: str,
    kind: Kind | None,
    options: TableOptions,
    where: str | Origin,
    style: NumberStyle | None = None,
) -> RawColumn:
    """Return an Arrow column as numbers or words; ``kind`` None: as what it holds. ``style``: of
    its table.

    Raises
    ------
    DataError: dates, nested values, infinite numbers, numbers in another spelling, or words where
    numbers are expected (with column, row and value).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    column = decoded(column, name, where)
    if types.is_temporal(column.type):
        if kind == "words":
            column = column.cast(pa.string())
        elif not options.dates:
            raise _dates(column, name, where)
        else:
            return RawColumn(name, _days(column), None, _form(column.type))
    numeric = (
        types.is_integer(column.type)
        or types.is_floating(column.type)
        or types.is_decimal(column.type)
    )
    if (numeric or types.is_boolean(column.type) or types.is_null(column.type)) and kind != "words":
        values = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)
        values = without_gaps(values, options, types.is_boolean(column.type))
        refuse_infinite(values, name, where)
        if kind is None:
            refuse_compact_dates(values, name, where)
            refuse_long_numbers(column, values, name, where)
        return RawColumn(name, values)
    if not (
        numeric
        or types.is_boolean(column.type)
        or types.is_null(column.type)
        or is_text(column.type)
    ):
        raise DataError(
            f"{where}: column {name!r} holds {column.type}, not numbers or words; leave it out "
            f'with drop = ["{name}"]'
        )
    text = column.cast(pa.string())
    if kind != "words" and options.spelling(name).plain:
        plain = _plain_numbers(text, options)
        if plain is not None and kind is None:
            refuse_compact_dates(plain, name, where)
            refuse_long_numbers(text, plain, name, where)
        if plain is not None and (kind is not None or not _grouped(text)):
            refuse_infinite(plain, name, where)
            return RawColumn(name, plain)
    return _from_text(text, name, kind, options, where=where, style=style or NumberStyle())


def _dates(column: Any, name: str, where: str | Origin) -> DataError:
    import pyarrow as pa

    long = pa.types.is_time(column.type) or pa.types.is_duration(column.type)
    first = number_of_row(where, 0)
    means = "hours of them" if long else "numbers of dates, the days since 1970-01-01"
    return DataError(
        f"{where}: column {name!r} holds dates or times ({column.type}, row "
        f'{first} is {column[0].as_py()}); leave it out with drop = ["{name}"], or write dates = '
        f'"year first", which makes {means}'
    )


def _form(kind: Any) -> str:
    """Return what the entries of a column of an Arrow type of dates or times are, in words."""
    import pyarrow as pa

    if pa.types.is_time(kind) or pa.types.is_duration(kind):
        return "a time"
    return "a date with a UTC offset" if getattr(kind, "tz", None) else "a date"


def _days(column: Any) -> Floats:
    """Return the days since 1970-01-01 of dates, or the hours of times and durations."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_time(column.type):
        integers = pc.cast(pc.cast(column, pa.time64("us")), pa.int64())
        per = 3_600_000_000.0
    elif pa.types.is_duration(column.type):
        integers = pc.cast(pc.cast(column, pa.duration("us"), safe=False), pa.int64())
        per = 3_600_000_000.0
    else:
        integers = pc.cast(pc.cast(column, pa.timestamp("us"), safe=False), pa.int64())
        per = 86_400_000_000.0
    return np.asarray(pc.cast(integers, pa.float64()).to_numpy(), np.float64) / per


def without_gaps(values: Floats, options: TableOptions, truth: bool = False) -> Floats:
    """Return numbers with NaN at those that stand for a gap; ``truth``: they are 1 for true and 0
    for false, which gaps may name as words."""
    gone = [*options.absent_numbers]
    if truth:
        gone += [_BOOLEANS[gap] for gap in options.gaps if gap in _BOOLEANS]
    if not gone:
        return values
    return np.where(np.isin(values, gone), np.nan, values)


def refuse_infinite(values: Floats, name: str, where: str | Origin) -> None:
    """Refuse infinite numbers, and those that are in float32, as models have them."""
    large = np.abs(values) > _LARGEST
    if large.any():
        row = int(large.argmax())
        raise DataError(
            f"{row_of(where, row)}: got {values[row]} in column {name!r}; expected a finite number "
            f"up to {_LARGEST:.1e}, or an empty entry (a gap)"
        )


def refuse_compact_dates(values: Floats, name: str, where: str | Origin) -> None:
    """Refuse whole numbers that are all dates of eight digits."""
    there = values[~np.isnan(values)]
    if not there.size or not ((there > 19_000_000) & (there < 21_000_000)).all():
        return
    distinct = np.unique(there)
    if len(distinct) > 1 and all(is_compact_date(f"{value:.0f}") for value in distinct.tolist()):
        first = number_of_row(where, int((~np.isnan(values)).argmax()))
        raise DataError(
            f"{where}: column {name!r} holds dates written as numbers (row "
            f'{first} is {there[0]:.0f}); leave it out with drop = ["{name}"], or take the '
            f'numbers as they are, numbers = ["{name}"]'
        )


def refuse_long_numbers(column: Any, values: Floats, name: str, where: str | Origin) -> None:
    """Refuse whole numbers so long that different ones become the same float64, as ids are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    there = values[~np.isnan(values)]
    if not (np.abs(there) >= 2**53).any() or pa.types.is_floating(column.type):
        return
    texts = pc.utf8_trim_whitespace(pc.drop_null(column).unique().cast(pa.string()))
    if not pc.all(pc.match_substring_regex(texts, r"^[+-]?\d+$")).as_py():
        return
    if len(texts) > len(np.unique(there)):
        raise DataError(
            f"{where}: column {name!r} holds whole numbers above 2^53, several of which are one "
            f'number of 64 bits; leave it out with drop = ["{name}"], or write words = ["{name}"]'
        )


def _plain_numbers(text: Any, options: TableOptions) -> Floats | None:
    """Return a column of text as numbers with a decimal point; None where an entry is none."""
    import pyarrow as pa
    import pyarrow.compute as pc

    trimmed = pc.utf8_trim_whitespace(text)
    gone = pc.is_in(trimmed, pa.array(sorted(options.absent), pa.string()))
    try:
        numbers = pc.cast(pc.if_else(gone, pa.scalar(None, pa.string()), trimmed), pa.float64())
    except pa.ArrowInvalid:
        return None
    values = np.asarray(numbers.to_numpy(), np.float64)
    there = np.asarray(numbers.is_valid())
    if not np.isfinite(values[there]).all():  # "inf" and "nan" are words
        return None
    return without_gaps(values, options)


def _grouped(text: Any) -> bool:
    """Return whether the first entries of a column may be groups of three digits, ``1.234``."""
    first = [str(word or "").strip() for word in text.slice(0, _LOOKED_AT).to_pylist()]
    return any("." in word for word in first) and all(
        not word or re.fullmatch(r"[+-]?\d{1,3}(\.\d{3})*|\D*", word) for word in first
    )


def _from_text(
    text: Any,
    name: str,
    kind: Kind | None,
    options: TableOptions,
    where: str | Origin,
    style: NumberStyle,
) -> RawColumn:
    """Return a column of text as numbers or words."""
    column = text_column(text, name, options)
    column.forget(np.isin(column.numbers, options.absent_numbers))
    there = ~column.absent
    truth = [word in _BOOLEANS for word in column.distinct]
    if kind != "words" and np.isnan(column.numbers[there]).any() and np.array(truth)[there].all():
        truths = np.array([_BOOLEANS.get(word, np.nan) for word in column.distinct])
        values = np.append(np.where(column.absent, np.nan, truths), np.nan)
        return RawColumn(name, values[column.codes])
    if kind != "words":
        refuse_spelling(column=column, kind=kind, options=options, where=where, style=style)
    if kind != "words" and not np.isnan(column.numbers[there]).any():
        values = np.append(np.where(column.absent, np.nan, column.numbers), np.nan)
        refuse_infinite(values[column.codes], name, where)
        form = options.spelling(name).form
        forms = (form(word) for word, here in zip(column.distinct, there, strict=True) if here)
        return RawColumn(name, values[column.codes], None, next(filter(None, forms), ""))
    if kind is None:
        _refuse_numbers_elsewhere(column, where)
        _refuse_words_elsewhere(column, where)
    words = tuple(
        sorted(
            {word for word, gone in zip(column.distinct, column.absent, strict=True) if not gone}
        )
    )
    place = {word: float(at) for at, word in enumerate(words)}
    at = [
        np.nan if gone else place[word]
        for word, gone in zip(column.distinct, column.absent, strict=True)
    ]
    return RawColumn(name, np.array([*at, np.nan])[column.codes], words)


def _refuse_numbers_elsewhere(column: TextColumn, where: str | Origin) -> None:
    """Refuse a column of words that is numbers, or true and false, at some clients and words at
    others. A number that a client has beside words is a word, as the blood group 0 is."""
    number = ~np.isnan(column.numbers) | np.array([word in _BOOLEANS for word in column.distinct])
    there = ~column.absent
    if not isinstance(where, Origin) or where.owner is None or not (number & there).any():
        return
    owner = where.owner
    numbers = _owners_of(column, number & there, owner)
    words = _owners_of(column, ~number & there, owner)
    beside = np.append(number & there, False)[column.codes] & (numbers & words)[owner]
    as_words = np.isin(np.arange(len(number)), column.codes[beside])
    only_numbers = numbers & ~words & ~_owners_of(column, as_words, owner)
    only_words = words & ~numbers
    if not only_numbers.any() or not only_words.any():
        return
    first = [int(which.argmax()) for which in (only_numbers, only_words)]
    held = [
        sorted(
            {column.distinct[at] for at in np.unique(column.codes[owner == client]) if there[at]}
        )
        for client in first
    ]
    listed = [", ".join(map(repr, texts[:_SHOWN])) for texts in held]
    pairs = ", ".join(f'"{old}" = "{new}"' for old, new in zip(*held, strict=False))
    kind = "numbers" if held[0][0].lower() not in _TRUTH else "true and false"
    raise DataError(
        f"{where}: column {column.name!r} is {kind} ({listed[0]}) of {where.client(first[0])} and "
        f"words ({listed[1]}) of {where.client(first[1])}; write which are the same, e.g. "
        f"{shortened(f'rename = {{ {pairs} }}', 200)}, or gaps with the words that stand for a "
        f'gap, or words = ["{column.name}"] if each number is a word of its own'
    )


def _refuse_words_elsewhere(column: TextColumn, where: str | Origin) -> None:
    """Refuse words of some clients that may mean the same as those of others: ``Y`` beside ``yes``,
    ``ja`` beside ``yes``, ``Yes`` beside ``yes``. Where a client has both, it tells them apart."""
    there = {w: at for at, w in enumerate(column.distinct) if not column.absent[at]}
    capitals = {word: group[0] for group in _alike(sorted(there)) for word in group[1:]}
    pairs = {**capitals, **same_words(there)}
    if not pairs or not isinstance(where, Origin) or where.owner is None:
        return
    owner = where.owner
    codes = np.array([there.get(word, -1) for word in column.distinct] + [-1])[column.codes]
    held: dict[str, set[int]] = {word: set() for pair in pairs.items() for word in pair}
    for word, of_word in held.items():
        of_word.update(np.unique(owner[codes == there[word]]).tolist())
    apart = {old: new for old, new in pairs.items() if not held[old] & held[new]}
    if not apart:
        return
    old, new = next(iter(apart.items()))
    fold = any(word in capitals for word in apart)
    others = {word: name for word, name in apart.items() if word not in capitals}
    lines = ["fold = true"] * fold + ([rename_line(others, fold)] if others else [])
    raise DataError(
        f"{where}: column {column.name!r} has {old!r} of {where.client(min(held[old]))} and "
        f"{new!r} of {where.client(min(held[new]))}, which may mean the same; write "
        f'{shortened(" and ".join(lines), 300)}, which joins them, or words = ["{column.name}"] if '
        "each is a word of its own"
    )


def _owners_of(column: TextColumn, which: Bools, owner: Ints) -> Bools:
    """Return which clients have one of some texts, ``[K]``."""
    rows = np.append(which, False)[column.codes]
    return np.bincount(owner[rows], minlength=int(owner.max()) + 1) > 0


def text_column(text: Any, name: str, options: TableOptions) -> TextColumn:
    """Return the distinct texts of an Arrow column, with what each may be as a number."""
    import pyarrow.compute as pc

    encoded = text.combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if hasattr(encoded, "combine_chunks") else encoded
    codes = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), np.int64)
    written = [str(word) for word in encoded.dictionary.to_pylist()]
    distinct = [renamed(word, options) for word in written]
    spelling = options.spelling(name)
    absent = options.absent
    unfolded = distinct
    if options.fold:
        unfolded = [  # units are written in capitals, too
            trimmed(was) if word == trimmed(was).casefold() else word
            for word, was in zip(distinct, written, strict=True)
        ]
        # "NA" is a gap, and so is the "na" that fold makes one with it
        absent |= {word.casefold() for word in unfolded if word in absent}
    return TextColumn(
        name,
        distinct,
        written,
        codes,
        absent=np.array([word in absent for word in distinct], bool),
        numbers=np.array([spelling.number(word) for word in unfolded], np.float64),
    )


def renamed(word: str, options: TableOptions) -> str:
    """Return a word as the options call it; of ``="3"``, a spreadsheet's text, and of ``"3"``
    behind a blank, which a text with separators keeps, what is quoted."""
    quoted = _QUOTED.fullmatch(word) if '"' in word else None
    word = (quoted[1] or quoted[2] or "") if quoted else word
    text = trimmed(word) if options.trim else word.strip()
    if options.fold:
        name = text.casefold()
        return options.rename.get(name, options.rename.get(text.lower(), name))
    return options.rename.get(text, text)


def trimmed(word: str) -> str:
    """Return a text without blanks at its ends, with single ones within, without characters that
    nobody sees, and with letters in one form of their accents."""
    return " ".join(visible(unicodedata.normalize("NFC", word)).split())


# ---------------------------------------------------------------------------------------- readings


def _reading(column: RawColumn, raw: Any, of_gaps: str) -> ColumnReading:
    """Return how a column was read; ``of_gaps``: the remark on numbers that may be gaps."""
    gone = np.isnan(column.values)
    first = int((~gone).argmax()) if len(gone) and not gone.all() else 0
    example = "" if not len(gone) or gone.all() else str(raw[first].as_py())
    value = float(column.values[first]) if len(gone) else np.nan
    there = column.values[~gone]
    if column.words is not None:
        more = f" and {len(column.words) - _SHOWN:,} more" if len(column.words) > _SHOWN else ""
        seen = f"{', '.join(column.words[:_SHOWN])}{more}"
        return ColumnReading(
            name=column.name,
            kind="words",
            seen=seen,
            gaps=int(gone.sum()),
            example=example,
            value=value,
            words=column.words,
            remark=_words_remark(column.words),
        )
    seen = "no value" if not there.size else f"{there.min():g} to {there.max():g}"
    remark = _zeros_remark(column.name, raw) or of_gaps
    remark = remark if there.size else "there is no value"
    if there.size and there.min() == there.max() and len(there) > 1:
        seen, remark = f"{there[0]:g}", "all rows hold the same number"
    missing = int(gone.sum())
    return ColumnReading(
        name=column.name,
        kind="numbers",
        seen=seen,
        gaps=missing,
        example=example,
        value=value,
        words=None,
        remark=remark,
    )


def _zeros_remark(name: str, raw: Any) -> str:
    """Return the remark that numbers begin with 0, as postcodes do; nothing where none do."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not is_text(raw.type):
        return ""
    codes = pc.match_substring_regex(raw.cast(pa.string()), r"^\s*0\d{2,}\s*$")
    row = pc.index(pc.fill_null(codes, False), True).as_py()
    if row < 0:
        return ""
    return (
        f"{raw[row].as_py().strip()} is read as a number; if it is a code, as postcodes are, write "
        f'words = ["{name}"]'
    )


def _alike(words: Iterable[str]) -> list[list[str]]:
    """Return groups of words that differ in blanks and capitals alone."""
    folded: dict[str, list[str]] = {}
    for word in words:
        folded.setdefault(trimmed(word).casefold(), []).append(word)
    return [group for group in folded.values() if len(group) > 1]


def _words_remark(words: Sequence[str]) -> str:
    """Return the remark that words may mean the same; nothing where none do."""
    alike = _alike(words)
    if alike:
        return (
            f"{' and '.join(map(repr, alike[0]))} are different words; fold = true makes them one"
        )
    pairs = same_words(words)
    return f"{rename_line(pairs)} makes one word of each two" if pairs else ""
