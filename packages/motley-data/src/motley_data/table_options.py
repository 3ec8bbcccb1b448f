"""How the columns of a table are written, and how they become model inputs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from motley.core.errors import ConfigError, suggest
from motley_data.spellings import ORDERS, DateOrder, Spelling, plain_number
from motley_data.table_files import TableFormat

GAPS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")
"""Texts that stand for a missing entry."""

_SPREADSHEET_GAPS = (
    *("#N/A", "#N/A N/A", "#NA", "-NaN", "-nan", "<NA>"),
    *("1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN"),
)
"""What spreadsheets and data frames write for a missing number, gaps where GAPS are."""

Scale = Literal["standard", "federated", "client", "fixed", "none"]

ColumnMarks = str | Mapping[str, str]
"""A mark for all columns, or column -> mark."""


@dataclass(frozen=True, kw_only=True)
class TableOptions:
    """How a table is written, and how its columns become model inputs: also keys of the tasks
    ``tabular`` and ``tabular_regression``.

    Parameters
    ----------
    scale: who measures what gaps, words and scaling need. ``federated``: clients send sums over
        their training rows once (billed); ``client``: each client measures the numbers of its own
        training rows, and only the categories of words are agreed on (billed); ``standard``: mean 0
        and standard deviation 1 over all rows of a complete table of numbers (READING: the split is
        drawn later), as ``federated`` for a table with gaps or words; ``fixed``: nobody, the
        numbers and words of ``fixed`` are taken, and columns that it does not name stay as they
        are; ``none``: numbers stay as they are, gaps and words are refused. A private run takes
        ``client`` (of numbers), ``fixed`` and ``none``.
    impute: what fills a gap among numbers; the median only with ``scale = "client"``, because sums
    do not contain it.
    missing: a gap among words becomes the word ``missing`` (``category``) or the most frequent
    word.
    categories: inputs that a column of words has at most; where it has more words, the rarest share
    the input ``other``.
    words: columns of numbers to read as words (postcodes).
    numbers: columns to read as numbers although they look like ids or dates.
    drop: columns to leave out.
    gaps: texts that stand for a missing entry, compared as numbers where they are some.
    fixed: with ``scale = "fixed"``, column -> [mean, deviation] of numbers, whose gaps get the
        mean, or the list of words that have an input of their own: all others, and gaps, share the
        input ``other``. E.g. { age = [50.0, 15.0], job = ["clerk", "nurse"] }.
    drop_rows: leave out rows whose label or client is a gap; else they are refused.
    sep: what divides the columns of a text; left out: recognized.
    encoding: of a text.
    header_rows: lines that hold the names of columns.
    comment: what a line begins with that is none of the table, or a list of such.
    sheet: of an Excel file.
    decimal: the mark before decimals, of all columns or of some, ``{ weight = "," }``.
    thousands: the mark between groups of three digits, likewise.
    units: texts before or behind numbers that are left out, ``["%", "kg"]``; a column has one of
        them, and with ``""`` numbers without a unit are in it, too.
    dates: the order of the numbers in dates, which become the days since 1970-01-01, in UTC where
        they have a UTC offset, as times and durations become hours; left out: dates are refused.
    trim: labels and clients that differ in blanks, or characters that nobody sees, are one.
    fold: labels, clients and words that differ in capitals alone, or in ß and ss, are one, in small
        letters; clients in their most frequent spelling.
    rename: labels, clients and words under another name, ``{ Y = "yes" }``.

    Raises
    ------
    ConfigError: an option out of range, or the median of all clients.
    """

    scale: Scale = "standard"
    impute: Literal["mean", "median"] = "mean"
    missing: Literal["category", "most_frequent"] = "category"
    categories: int = 20
    words: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()
    gaps: tuple[str, ...] = GAPS
    fixed: Mapping[str, tuple[float | str, ...]] = field(default_factory=dict)
    numbers: tuple[str, ...] = ()
    drop_rows: bool = False
    sep: str = ""
    encoding: str = "utf-8"
    header_rows: int = 1
    comment: str | tuple[str, ...] = ""
    sheet: str = ""
    decimal: ColumnMarks = ""
    thousands: ColumnMarks = ""
    units: tuple[str, ...] = ()
    dates: DateOrder = ""
    trim: bool = False
    fold: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allowed = {
            "scale": ("standard", "federated", "client", "fixed", "none"),
            "impute": ("mean", "median"),
            "missing": ("category", "most_frequent"),
            "dates": ("", *ORDERS),
        }
        for name, choices in allowed.items():
            value = getattr(self, name)
            if value not in choices:
                raise ConfigError(
                    f"{name}: got {value!r}{suggest(str(value), choices)}; expected one of: "
                    f"{', '.join(filter(None, choices))}"
                )
        for name in ("words", "numbers", "drop", "gaps", "units"):
            if isinstance(getattr(self, name), str):
                raise ConfigError(
                    f"{name}: got {getattr(self, name)!r}; expected a list, e.g. {name} = "
                    f"[{getattr(self, name)!r}]"
                )
        if self.categories < 2:
            raise ConfigError(f"categories: got {self.categories}; expected at least 2")
        if self.impute == "median" and self.scale != "client":
            raise ConfigError(
                f'impute: got "median" with scale = "{self.scale}", and sums of clients do not '
                'contain a median; write impute = "mean", or scale = "client"'
            )
        if bool(self.fixed) != (self.scale == "fixed"):
            mismatch = f'got scale = "{self.scale}" and {len(self.fixed)} columns'
            raise ConfigError(
                f'fixed: {mismatch}; write both, scale = "fixed" and e.g. fixed = {{ age = [50.0, '
                "15.0] }"
            )
        for name, values in self.fixed.items():
            _check_fixed(name, values)
        self._check_marks()
        self.form  # noqa: B018  # a separator or encoding that nobody can use

    def _check_marks(self) -> None:
        """Refuse marks that cannot divide the digits of a number, or the same one twice."""
        both = [name for name in self.words if name in self.numbers]
        if both:
            raise ConfigError(f"numbers: got {both[0]!r}, which is in words, too; name it once")
        allowed = {"decimal": (".", ","), "thousands": (".", ",", "'", " ")}
        for name, marks in allowed.items():
            value = getattr(self, name)
            for mark in (value,) if isinstance(value, str) else value.values():
                if mark and mark not in marks:
                    raise ConfigError(
                        f"{name}: got {mark!r}; expected one of: "
                        f"{', '.join(repr(choice) for choice in marks)}"
                    )
        columns = {"", *(self.decimal if isinstance(self.decimal, Mapping) else ())}
        columns |= {*(self.thousands if isinstance(self.thousands, Mapping) else ())}
        for column in columns:
            spelling = self.spelling(column)
            if spelling.decimal == spelling.thousands:
                raise ConfigError(
                    f"thousands: got {spelling.thousands!r}, which is the decimal mark, too; write "
                    f'both, e.g. decimal = ",", thousands = "."'
                )

    @cached_property
    def form(self) -> TableFormat:
        """How a file writes the table."""
        return TableFormat(
            sep=self.sep,
            encoding=self.encoding,
            header_rows=self.header_rows,
            comment=self.comment,
            sheet=self.sheet,
        )

    @cached_property
    def absent(self) -> frozenset[str]:
        """The texts that stand for a missing entry."""
        return frozenset(self.gaps) | frozenset(_SPREADSHEET_GAPS if self.gaps == GAPS else ())

    @cached_property
    def absent_numbers(self) -> tuple[float, ...]:
        """The numbers that stand for a missing entry."""
        numbers = (plain_number(gap) for gap in self.gaps)
        return tuple(number for number in numbers if not math.isnan(number))

    def spelling(self, column: str) -> Spelling:
        """Return how a column writes numbers."""
        decimal = self._mark(self.decimal, column) or "."
        return Spelling(decimal, self._mark(self.thousands, column), self.units, self.dates)

    def says_decimal(self, column: str) -> bool:
        """Return whether the options say what a column's decimal mark is."""
        return bool(self._mark(self.decimal, column))

    def _mark(self, marks: ColumnMarks, column: str) -> str:
        return marks if isinstance(marks, str) else marks.get(column, "")

    def fixed_words(self, name: str) -> bool:
        """Return whether ``fixed`` lists the words of a column."""
        return bool(self.fixed.get(name)) and isinstance(self.fixed[name][0], str)


def _check_fixed(name: str, fixed: object) -> None:
    """Refuse what are neither two numbers nor words, each once."""
    values = fixed if isinstance(fixed, tuple | list) else ()
    numbers = len(values) == 2 and all(
        isinstance(v, int | float) and math.isfinite(v) for v in values
    )
    words = (
        bool(values) and all(isinstance(v, str) for v in values) and len(set(values)) == len(values)
    )
    if not words and not (numbers and float(values[1]) > 0):
        expected = "[mean, deviation] with a deviation above 0, or a list of different words"
        raise ConfigError(f"fixed: got {fixed!r} for column {name!r}; expected {expected}")
