"""What a column of text holds that is neither plain numbers nor words, and which option reads
it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Bools, Floats
from motley.core.errors import DataError
from motley.tasks.origin import Origin, number_of_row, row_of
from motley_data.spellings import (
    Spelling,
    date_form,
    date_mark,
    date_number,
    plain_number,
    readable_orders,
    shape_of,
)
from motley_data.table_files import separators_of
from motley_data.table_options import TableOptions

_GROUPS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
_DATES = ("date", "date without year", "time")
_MOST = 5
"""Texts that a message lists, at most."""


@dataclass
class TextColumn:
    """The texts of a column.

    Parameters
    ----------
    distinct: the distinct texts as the options call them; two may have become the same.
    written: as they are in the file.
    codes: ``[n]``, the position of each row's text, -1 for a missing one.
    absent: ``[len(distinct)]``, whether a text stands for a gap.
    numbers: the number in each text as the options read it, NaN where there is none.
    """

    name: str
    distinct: list[str]
    written: list[str]
    codes: NDArray[np.int64]
    absent: Bools
    numbers: Floats

    def forget(self, absent: Bools) -> None:
        """Take more texts for gaps."""
        self.absent = self.absent | absent

    def first(self, which: Bools) -> tuple[int, str]:
        """Return the first row with one of some texts, and the text."""
        row = int(np.append(which, False)[self.codes].argmax())
        return row, self.distinct[self.codes[row]]


class NumberStyle:
    """How the columns of an Arrow table write numbers, as far as single columns show it."""

    def __init__(self, table: Any = None) -> None:
        columns = [] if table is None else table.columns
        self._texts = [column for column in columns if is_text(column.type)]
        self._separators = "" if table is None else separators_of(table)

    @cached_property
    def points(self) -> bool:
        """Whether a column has decimal points for certain."""
        return any(_some(column, r"^\s*[+-]?\d*\.(\d{1,2}|\d{4,})\s*$") for column in self._texts)

    @cached_property
    def commas(self) -> bool:
        """Whether something says that the table has decimal commas: semicolons between all
        columns, or a column of such numbers."""
        return self._separators == ";" or self.decimal_commas

    @cached_property
    def decimal_commas(self) -> bool:
        """Whether a column has decimal commas for certain."""
        return any(_some(column, r"^\s*[+-]?\d+,(\d{1,2}|\d{4,})\s*$") for column in self._texts)


def _some(column: Any, pattern: str) -> bool:
    """Return whether an entry of a column fits a pattern."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return bool(pc.any(pc.match_substring_regex(column.cast(pa.string()), pattern)).as_py())


def is_text(kind: Any) -> bool:
    """Return whether an Arrow type is text."""
    return str(kind) in ("string", "large_string", "string_view")


def refuse_spelling(
    column: TextColumn,
    kind: Literal["numbers", "words"] | None,
    options: TableOptions,
    where: str | Origin,
    style: NumberStyle,
) -> None:
    """Refuse a column most of whose entries are numbers or dates, where not all of them can be
    read; and numbers that may mean two things.

    Parameters
    ----------
    kind: what the column is said to be; None: nothing is said.
    style: of the column's table.

    Raises
    ------
    DataError: names the first row with such an entry, and the option that reads it.
    """
    there = ~column.absent
    readable = ~np.isnan(column.numbers)
    if options.dates:
        _refuse_mixed_dates(column, there & readable, options, where)
    _refuse_mixed_units(column, there & readable, options, where)
    odd = there & ~readable
    if not odd.any():
        if kind is None:
            refuse_doubt(column, options, where, style)
        return
    spelling = options.spelling(column.name)
    bare = [spelling.without_unit(word)[0] for word in column.distinct]
    shapes = [
        _odd_shape(word, spelling) if strange else ("", "")
        for word, strange in zip(bare, odd, strict=True)
    ]
    if kind is None and not _mostly_numbers(column, there, readable, shapes):
        return
    raise DataError(_advice(column, kind, odd, shapes, options=options, where=where, style=style))


def _mostly_numbers(
    column: TextColumn, there: Bools, readable: Bools, shapes: list[tuple[str, str]]
) -> bool:
    """Return whether most cells, or most distinct texts, are numbers or dates in any spelling."""
    like = there & (readable | np.array([shape != "" for shape, _ in shapes]))
    cells = np.bincount(column.codes[column.codes >= 0], minlength=len(like))
    most_cells = 2 * int(cells[like].sum()) > int(cells[there].sum())
    return most_cells or (int(like.sum()) > 2 and 2 * int(like.sum()) > int(there.sum()))


def refuse_doubt(
    column: TextColumn, options: TableOptions, where: str | Origin, style: NumberStyle
) -> None:
    """Refuse numbers whose points may divide thousands: all are groups of three digits, in a table
    that has decimal commas, and the options do not say what a point is."""
    if options.says_decimal(column.name):
        return
    there = ~column.absent
    spelling = options.spelling(column.name)
    words = [spelling.without_unit(word)[0] for word in column.distinct]
    grouped = np.array([_GROUPS.fullmatch(word) is not None for word in words], bool)
    short = np.array([re.fullmatch(r"[+-]?\d{1,3}", word) is not None for word in words], bool)
    if not (grouped & there).any() or (there & ~grouped & ~short).any():
        return
    if style.points or not style.commas:
        return
    row, word = column.first(there & grouped)
    bare = spelling.without_unit(word)[0]
    wide = style.decimal_commas and isinstance(options.decimal, str)
    raise DataError(
        f'{row_of(where, row)}: got "{word}" in column {column.name!r} of a table with signs of '
        f"decimal commas; {_readings(bare, column.name, wide)}"
    )


def _readings(word: str, name: str, wide: bool) -> str:
    """Return both numbers that one point and three digits may mean, with the line for each;
    ``wide``: other columns have decimal commas, too, and need the same line."""
    digits = word.replace(".", "")
    decimal = 'decimal = ","' if wide else f'decimal = {{ "{name}" = "," }}'
    return (
        f'it is {digits} with {decimal}, thousands = {{ "{name}" = "." }}, and {word} with '
        f'decimal = {{ "{name}" = "." }}; write the one that is meant'
    )


def _odd_shape(word: str, spelling: Spelling) -> tuple[str, str]:
    """Return :func:`shape_of` for a text that is no number in this spelling; "point" for a number
    with a decimal point where another mark is expected."""
    if spelling.decimal != "." and not np.isnan(plain_number(word)):
        return "point", ""
    return shape_of(word)


def _date_kind(word: str, options: TableOptions) -> str:
    """Return the form of a date or time, in words; "a number" for any other text."""
    if date_number(word, options.dates) is None:
        return "a number"
    return date_form(word, options.dates)


def _refuse_mixed_dates(
    column: TextColumn, read: Bools, options: TableOptions, where: str | Origin
) -> None:
    """Refuse dates, times and plain numbers in one column, which become numbers in different
    units; dates with and without a UTC offset; ``5:30`` beside ``1:02:15``, which may be 5 minutes;
    and ``1.2.2023`` beside ``1/2/2023``, which may be in another order."""
    kinds = np.array(
        [
            _date_kind(word, options) if ok else ""
            for word, ok in zip(column.distinct, read, strict=True)
        ]
    )
    marks = np.array(
        [
            date_mark(w) if kind[:6] == "a date" else ""
            for w, kind in zip(column.distinct, kinds, strict=True)
        ]
    )
    if len({*kinds[read].tolist()}) > 1:
        odd, first = kinds != kinds[read][0], int(read.argmax())
    else:
        first = int((marks != "").argmax())
        odd = (marks != "") & (marks != marks[first])
    if (read & odd).any():
        row, word = column.first(read & odd)
        before = column.distinct[first]
        raise DataError(
            f'{row_of(where, row)}: got "{word}" in column {column.name!r}, which holds '
            f'{kinds[first]}, "{before}"; write all of them in one form, leave the column out '
            f'with drop = ["{column.name}"], or write {_gaps_line(options, [word])} if it stands '
            "for a gap"
        )


def _refuse_mixed_units(
    column: TextColumn, read: Bools, options: TableOptions, where: str | Origin
) -> None:
    """Refuse numbers in several units, and some in one and others without: ``80 %`` and ``0.80``.
    A 0 is 0 in each."""
    if not options.units:
        return
    spelling = options.spelling(column.name)
    units = np.array(
        [
            spelling.without_unit(w)[1] if ok else ""
            for w, ok in zip(column.distinct, read, strict=True)
        ]
    )
    named = list(dict.fromkeys(unit for unit in units.tolist() if unit))
    if len(named) > 1:
        row, word = column.first(units == named[1])
        raise DataError(
            f'{row_of(where, row)}: got "{word}" in column {column.name!r}, whose numbers are in '
            f"{' and in '.join(repr(unit) for unit in named[:_MOST])}; bring them to one unit, or "
            f'leave the column out with drop = ["{column.name}"]'
        )
    bare = read & (units == "") & (column.numbers != 0)
    if named and bare.any() and "" not in options.units:
        row, word = column.first(bare)
        raise DataError(
            f'{row_of(where, row)}: got "{word}" in column {column.name!r} without a unit, beside '
            f'"{column.first(units == named[0])[1]}"; '
            f"write {_bare_readings(word, named[0], options)}, or leave the column out with "
            f'drop = ["{column.name}"]'
        )


def _bare_readings(word: str, unit: str, options: TableOptions) -> str:
    """Return both readings of a number without a unit beside others in one, with what to write."""
    units = dict.fromkeys((*(name for name in options.units if name), unit, ""))
    share = plain_number(word.replace(",", "."))
    value = f"{100 * share:g} %" if unit == "%" and abs(share) <= 1 else "of another unit"
    return (
        f'{_listed("units", units)} if "{word}" is {word} {unit}; if it is {value}, write it so in '
        "the file"
    )


def _listed(key: str, texts: Iterable[str]) -> str:
    """Return an option that is a list of texts."""
    listed = ", ".join(f'"{text}"' for text in texts)
    return f"{key} = [{listed}]"


# ------------------------------------------------------------------------------------------ advice


def _advice(
    column: TextColumn,
    kind: Literal["numbers", "words"] | None,
    odd: Bools,
    shapes: list[tuple[str, str]],
    options: TableOptions,
    where: str | Origin,
    style: NumberStyle,
) -> str:
    """Return the message of a column of numbers or dates that cannot be read."""
    name = column.name
    odd_shapes = {shape for (shape, _), strange in zip(shapes, odd, strict=True) if strange}
    row, word = column.first(odd)
    keep = "" if kind == "numbers" else f', or words = ["{name}"] to keep them as words'
    strange = [word for word, is_odd in zip(column.distinct, odd, strict=True) if is_odd]
    if odd_shapes <= set(_DATES) or ("time" in odd_shapes and readable_orders(strange)):
        moments = "times or durations" if odd_shapes.isdisjoint(_DATES[:2]) else "dates or times"
        return (
            f"{where}: column {name!r} holds {moments} (row {number_of_row(where, row)} is "
            f"{word!r}); "
            f'leave it out with drop = ["{name}"]{_date_lines(strange)}{keep}'
        )
    if odd.all() and "digits" in odd_shapes <= {"digits", *_DATES}:
        row, word = column.first(np.array([shape == "digits" for shape, _ in shapes]))
        return (
            f'{row_of(where, row)}: got "{word}" in column {name!r}, which is no number and no '
            f'date; leave it out with drop = ["{name}"]{keep}'
        )
    if "unread" in odd_shapes:
        return (
            f'{row_of(where, row)}: got "{word}" in column {name!r}, and hexadecimal numbers, '
            f'powers and fractions are not read; leave it out with drop = ["{name}"]{keep}'
        )
    lines = _number_lines(column=column, odd=odd, shapes=shapes, options=options, style=style)
    unread = [
        word
        for word, strange, (shape, _) in zip(column.distinct, odd, shapes, strict=True)
        if strange and shape in ("", "limit", "digits", *_DATES)
    ]
    if unread:
        limits = any(shape == "limit" for shape in odd_shapes)
        means = "if that is to count as a gap" if limits else "if it stands for a gap"
        more = f" and {len(unread) - _MOST} more like it" if len(unread) > _MOST else ""
        lines.append(f"{_gaps_line(options, unread[:_MOST])}{more} {means}")
    return (
        f'{row_of(where, row)}: got "{word}" among the numbers of column {name!r}; write '
        f"{' and '.join(lines)}{keep}"
    )


def _gaps_line(options: TableOptions, more: list[str]) -> str:
    """Return the option that takes more texts for gaps than now."""
    return _listed("gaps", (*options.gaps, *dict.fromkeys(more)))


def _date_lines(words: list[str]) -> str:
    """Return the lines that read dates as numbers; nothing where no order reads all of them."""
    orders = readable_orders(words)
    if not orders:
        return ""
    if not any(date_form(word, order).startswith("a date") for word in words for order in orders):
        hours = date_number(words[0], orders[0])
        return f', or write dates = "{orders[-1]}", which makes hours of them ({hours:.6g})'
    means = "which makes numbers of dates, the days since 1970-01-01, and hours of times"
    readings = {tuple(date_number(word, order) for word in words) for order in orders}
    if len(orders) > 1 and len(readings) > 1:
        lines = " or ".join(f'dates = "{order}"' for order in orders)
        return f", or write {lines}, as they are meant, {means}"
    iso = all(re.match(r"\d{4}\D", word.strip()) for word in words)
    return f', or write dates = "{"year first" if iso else orders[0]}", {means}'


def _number_lines(
    column: TextColumn,
    odd: Bools,
    shapes: list[tuple[str, str]],
    options: TableOptions,
    style: NumberStyle,
) -> list[str]:
    """Return the options that read numbers in another spelling."""
    name = column.name
    marks_of_both = _both_marks(column)
    if marks_of_both:
        return [f"all with one decimal mark (here: {marks_of_both})"]
    spelling = options.spelling(name)
    shaped = [
        (spelling.without_unit(word)[0], *shape)
        for word, strange, shape in zip(column.distinct, odd, shapes, strict=True)
        if strange
    ]
    inner = [Spelling(units=(unit,)).without_unit(word)[0] for word, _, unit in shaped if unit]
    shaped += [(word, shape_of(word)[0], "") for word in inner]
    names = {shape for _, shape, _ in shaped}
    decimals = any("decimal ," in shape for shape in names)
    marks = list(
        dict.fromkeys(
            shape.removeprefix("thousands ")[0] for shape in names if shape.startswith("thousands")
        )
    )
    dotted = any(
        "." in word and not np.isnan(number)
        for word, number in zip(column.distinct, column.numbers, strict=True)
    ) or any(
        "." in word and not np.isnan(plain_number(word)) and not _GROUPS.fullmatch(word)
        for word in inner
    )
    lines = ["trim = true"] if "invisible" in names else []
    units = list(dict.fromkeys(unit for _, _, unit in shaped if unit))
    one_unit, bare_numbers = _unit_lines(column, odd, units, options)
    lines += one_unit
    if "point" in names:
        word = next(word for word, shape, _ in shaped if shape == "point")
        lines.append(_both(word, ".", name))
    if "comma" in names and not decimals and "," not in marks:
        if dotted:
            marks = [",", *marks]
        else:
            word = next(word for word, shape, _ in shaped if shape == "comma")
            lines.append(_both(word, ",", name))
    if decimals:
        lines.append(f'decimal = {{ "{name}" = "," }}' if style.points else 'decimal = ","')
    lines += [f'thousands = "{mark}"' for mark in marks[:1]]
    if len(units) > 1:
        lines.append(f"them in one unit (here: {', '.join(units[:_MOST])})")
    return lines + bare_numbers


def _unit_lines(
    column: TextColumn, odd: Bools, units: list[str], options: TableOptions
) -> tuple[list[str], list[str]]:
    """Return the option that leaves out the unit of all numbers, and the readings of those that
    have none beside it; one of them where there is one unit, else neither."""
    if len(units) != 1:
        return [], []
    spelling = options.spelling(column.name)
    united = np.array([spelling.without_unit(word)[1] != "" for word in column.distinct])
    bare = ~odd & ~united & ~column.absent & ~np.isnan(column.numbers) & (column.numbers != 0)
    if bare.any() and "" not in options.units:
        return [], [_bare_readings(column.first(bare)[1], units[0], options)]
    return [_listed("units", dict.fromkeys((*options.units, *units)))], []


def _both_marks(column: TextColumn) -> str:
    """Return a number with a decimal point and one with a decimal comma, which no option reads in
    one column; empty where the column does not have both for certain."""
    words = [w for w, gone in zip(column.distinct, column.absent, strict=True) if not gone]
    points = [
        word
        for word in words
        if "." in word and not np.isnan(plain_number(word)) and not _GROUPS.fullmatch(word)
    ]
    commas = [word for word in words if "decimal ," in shape_of(word)[0]]
    return f"{points[0]} and {commas[0]}" if points and commas else ""


def _both(word: str, mark: str, name: str) -> str:
    """Return both numbers that a mark and three digits may mean, with the line for each."""
    if mark == ".":
        line = f'thousands = "." for {word.replace(".", "")}'
        return f'{line}, or decimal = {{ "{name}" = "." }} for {word},'
    return (
        f'thousands = "," for {word.replace(",", "")}, or decimal = "," for '
        f"{word.replace(',', '.')}"
    )
