"""Tables as they are read, before anything is measured: columns of numbers and of words, with gaps.

A column of text is a column of numbers if every entry but the gaps is a number, else a column of
words.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import check_file
from motley.core.untrusted import shortened
from motley.tasks.origin import Origin, row_of
from motley.tasks.parquet_file import read_parquet

__all__ = [
    "GAPS",
    "RawColumn",
    "RawTable",
    "Scale",
    "TableOptions",
    "arrow_table",
    "joined",
    "raw_table",
    "read_arrow",
    "read_column",
]

GAPS = ("", "?", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None")
"""Texts that stand for a missing entry."""

Scale = Literal["standard", "federated", "client", "fixed", "none"]

_FEW = 20
"""Rows below which a column of words that are all different is not taken for a column of ids."""


@dataclass(frozen=True)
class TableOptions:
    """How the columns of a table become model inputs.

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
    words: columns of numbers to read as words (postcodes). drop: columns to leave out. gaps: texts
    that stand for a missing entry.
    fixed: with ``scale = "fixed"``, column -> [mean, deviation] of numbers, whose gaps get the
        mean, or the list of words that have an input of their own: all others, and gaps, share the
        input ``other``. E.g. { age = [50.0, 15.0], job = ["clerk", "nurse"] }.

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

    def __post_init__(self) -> None:
        allowed = {
            "scale": ("standard", "federated", "client", "fixed", "none"),
            "impute": ("mean", "median"),
            "missing": ("category", "most_frequent"),
        }
        for name, known in allowed.items():
            got = getattr(self, name)
            if got not in known:
                raise ConfigError(
                    f"{name}: got {got!r}{suggest(str(got), known)}; expected one of: "
                    f"{', '.join(known)}"
                )
        for name in ("words", "drop", "gaps"):
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
            got = f'got scale = "{self.scale}" and {len(self.fixed)} columns'
            raise ConfigError(
                f'fixed: {got}; write both, scale = "fixed" and e.g. fixed = {{ age = [50.0, 15.0] '
                f"}}"
            )
        for name, values in self.fixed.items():
            _check_fixed(name, values)

    def fixed_words(self, name: str) -> bool:
        """Return whether ``fixed`` lists the words of a column."""
        return bool(self.fixed.get(name)) and isinstance(self.fixed[name][0], str)


def _check_fixed(name: str, known: object) -> None:
    """Refuse what are neither two numbers nor words, each once."""
    values = known if isinstance(known, tuple | list) else ()
    numbers = len(values) == 2 and all(
        isinstance(v, int | float) and math.isfinite(v) for v in values
    )
    words = (
        bool(values) and all(isinstance(v, str) for v in values) and len(set(values)) == len(values)
    )
    if not words and not (numbers and float(values[1]) > 0):
        expected = "[mean, deviation] with a deviation above 0, or a list of different words"
        raise ConfigError(f"fixed: got {known!r} for column {name!r}; expected {expected}")


class RawColumn(NamedTuple):
    """One column: numbers, NaN for a gap; or positions in ``words``, the distinct words in
    alphabetical order."""

    name: str
    values: Floats
    words: tuple[str, ...] | None = None


@dataclass(frozen=True)
class RawTable:
    """The input columns of a table as read.

    Parameters
    ----------
    columns: ``[n]`` values each. options: how they become inputs. where: the table, for messages.
    """

    columns: tuple[RawColumn, ...]
    options: TableOptions
    where: str | Origin

    @property
    def measured(self) -> bool:
        """Whether statistics of training rows are needed to make inputs of it.

        Raises
        ------
        DataError: they are needed, and the options do not allow them.
        """
        known = self.options.fixed
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
        gaps = [column for column in gaps if column.name not in known]
        if not words and not gaps:
            return self.options.scale in ("federated", "client")
        if self.options.scale not in ("none", "fixed"):
            return True
        raise self._unmeasured(words, gaps)

    def _unmeasured(self, words: Sequence[RawColumn], gaps: Sequence[RawColumn]) -> DataError:
        """Return the error that words and gaps are met by nothing that encodes or fills them."""
        place = str(self.where)
        said = []
        if gaps:
            rows = np.isnan(np.stack([column.values for column in gaps], axis=1))
            row = int(rows.any(1).argmax())
            place = row_of(self.where, row)
            column = gaps[int(rows[row].argmax())]
            some = ", ".join(repr(one.name) for one in gaps)
            said.append(f"NaN in {column.name} ({int(rows.sum())} in all, in {some})")
        if words:
            example = f" (for example {words[0].words[0]!r})" if words[0].words else ""
            said.append(f"words in {', '.join(repr(column.name) for column in words)}{example}")
        return DataError(
            f'{place}: {" and ".join(said)}, and scale = "{self.options.scale}" measures nothing '
            'to encode or fill them; write scale = "federated" or scale = "client" (in Python: '
            f'table={{"scale": "federated"}}), name them in fixed, or leave columns out, drop = '
            f'["{(words or gaps)[0].name}"]'
        )

    def values(self) -> Floats:
        """Return all columns, ``[n, c]``."""
        return np.stack([column.values for column in self.columns], axis=1)


def read_arrow(path: Path) -> Any:
    """Return the Arrow table of a ``.parquet`` or ``.csv`` file.

    Raises
    ------
    DataError: another kind of file, absent, truncated, or two columns of the same name.
    """
    import pyarrow as pa
    from pyarrow import csv

    if path.suffix not in (".parquet", ".csv"):
        raise DataError(f"{path.name} is of no known kind; expected .npz, .parquet or .csv")
    check_file(path)
    if path.suffix == ".csv":
        _check_commas(path)
    try:
        large = csv.ReadOptions(block_size=2**26)  # many small pieces of many columns take minutes
        table = read_parquet(path) if path.suffix == ".parquet" else csv.read_csv(path, large)
    except (pa.ArrowException, OSError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise DataError(
            f"{path} cannot be read as {path.suffix[1:]} ({reason}); it may be truncated or of "
            "another form"
        ) from None
    names = list(table.column_names)
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{path} has several columns {twice[0]!r}; give each a name of its own")
    return table


def _check_commas(path: Path) -> None:
    """Refuse a ``.csv`` file that other programs write: of UTF-16, or divided by semicolons, tabs
    or bars.

    Raises
    ------
    DataError: has the line that writes the file anew.
    """
    with path.open("rb") as file:
        head = file.readline(2**16)
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        read = "encoding='utf-16'"
        said = "is text of UTF-16, and Motley reads UTF-8"
    else:
        others = [mark for mark in (b";", b"\t", b"|") if mark in head] if b"," not in head else []
        if not others:
            return
        mark = others[0].decode()
        read = f"sep={mark!r}" + (", decimal=','" if mark == ";" else "")
        said = f"divides its columns by {mark!r}, and Motley reads commas"
    raise DataError(
        f"{path} {said}; write it anew: pandas.read_csv({str(path)!r}, "
        f"{read}).to_csv({str(path)!r}, index=False)"
    )


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
        reason = ": ".join(str(one).splitlines()[0] for one in reversed(error.args or ("",)))
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
        found = [table.column(name) for table in tables]
        kinds = {column.type for column in found}
        if len(kinds) > 1:
            text = any(_is_text(kind) or pa.types.is_dictionary(kind) for kind in kinds)
            try:
                found = [column.cast(pa.string() if text else pa.float64()) for column in found]
            except pa.ArrowException:
                raise DataError(
                    f"column {name!r} is {' and '.join(sorted(map(str, kinds)))}; expected one "
                    "kind in all tables"
                ) from None
        columns[name] = pa.chunked_array(
            [chunk for column in found for chunk in column.chunks], found[0].type
        )
    return pa.table(columns)


def raw_table(table: Any, options: TableOptions, where: str | Origin) -> RawTable:
    """Return the columns of an Arrow table of inputs.

    Raises
    ------
    DataError: a column of dates or ids, numbers with words between them, an unknown name in
    ``drop`` or ``words``.
    """
    names = list(table.column_names)
    for key in ("drop", "words", "fixed"):
        for name in getattr(options, key):
            if name not in names:
                raise DataError(
                    f"{key}: {where} has no column {name!r}{suggest(name, names)}; its columns: "
                    f"{shortened(', '.join(names), 300)}"
                )
    inputs = [name for name in names if name not in options.drop]
    if not inputs:
        raise DataError(
            f"{where} has no input columns; its columns: {shortened(', '.join(names), 300)}"
        )
    found = []
    for name in inputs:
        asked = name in options.words or options.fixed_words(name)
        kind: Literal["numbers", "words"] | None = (
            "words" if asked else "numbers" if name in options.fixed else None
        )
        column = read_column(table.column(name), name, kind, options.gaps, where)
        _refuse_ids(column, asked, where)
        found.append(column)
    return RawTable(tuple(found), options, where)


def _refuse_ids(column: RawColumn, asked: bool, where: str | Origin) -> None:
    if column.words is None or asked:
        return
    there = int((~np.isnan(column.values)).sum())
    if there >= _FEW and len(column.words) == there:
        raise DataError(
            f"{where}: column {column.name!r} holds another word in every row "
            f"({column.words[0]!r}, {column.words[1]!r}, ...), "
            f'like an id; leave it out with drop = ["{column.name}"], or keep it with words = '
            f'["{column.name}"]'
        )


def read_column(
    column: Any,
    name: str,
    kind: Literal["numbers", "words"] | None,
    gaps: tuple[str, ...],
    where: str | Origin,
) -> RawColumn:
    """Return an Arrow column as numbers or words; ``kind`` None: as what it holds.

    Raises
    ------
    DataError: dates, nested values, infinite numbers, or words where numbers are expected (with
    column, row and value).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    types = pa.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if types.is_temporal(column.type):
        raise DataError(
            f"{where}: column {name!r} holds dates or times ({column.type}, row 1 is "
            f"{column[0].as_py()}); leave it out with "
            f'drop = ["{name}"], or write it as a number'
        )
    numeric = (
        types.is_integer(column.type)
        or types.is_floating(column.type)
        or types.is_decimal(column.type)
    )
    if (numeric or types.is_boolean(column.type) or types.is_null(column.type)) and kind != "words":
        values = np.asarray(pc.cast(column, pa.float64(), safe=False).to_numpy(), np.float64)
        _refuse_infinite(values, name, where)
        return RawColumn(name, values)
    if not (
        numeric
        or types.is_boolean(column.type)
        or types.is_null(column.type)
        or _is_text(column.type)
    ):
        raise DataError(
            f"{where}: column {name!r} holds {column.type}, not numbers or words; leave it out "
            f'with drop = ["{name}"]'
        )
    encoded = column.cast(pa.string()).combine_chunks().dictionary_encode()
    encoded = encoded.combine_chunks() if isinstance(encoded, pa.ChunkedArray) else encoded
    codes = np.asarray(pc.fill_null(encoded.indices, -1).to_numpy(zero_copy_only=False), np.int64)
    return _from_words(
        [str(word).strip() for word in encoded.dictionary.to_pylist()],
        codes,
        name,
        kind,
        gaps,
        where,
    )


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _refuse_infinite(values: Floats, name: str, where: str | Origin) -> None:
    if np.isinf(values).any():
        row = int(np.isinf(values).argmax())
        raise DataError(
            f"{row_of(where, row)}: got {values[row]} in column {name!r}; expected a finite number "
            "or an empty entry (a gap)"
        )


def _from_words(
    words: list[str],
    codes: NDArray[np.int64],
    name: str,
    kind: Literal["numbers", "words"] | None,
    gaps: tuple[str, ...],
    where: str | Origin,
) -> RawColumn:
    """Return a column of text, ``codes`` the positions in ``words`` (-1: absent), as numbers or
    words."""
    absent = np.array([word in gaps for word in words] + [True])
    number = np.array([_number(word) for word in words] + [np.nan])
    readable = ~np.isnan(number) | absent
    if kind != "words" and readable.all():
        return RawColumn(name, np.where(absent, np.nan, number)[codes])
    cells = ~absent[codes]
    numbers = ~np.isnan(number[codes])
    if kind == "numbers" or (kind is None and 2 * int((cells & numbers).sum()) > int(cells.sum())):
        row = int((~readable[codes]).argmax())
        word = words[codes[row]]
        or_words = "" if kind == "numbers" else f' if it stands for a gap, or words = ["{name}"]'
        raise DataError(
            f'{row_of(where, row)}: got "{word}" among the numbers of column {name!r}; write gaps '
            f'= [..., "{word}"]{or_words}'
        )
    kept = tuple(sorted({word for word, gone in zip(words, absent, strict=False) if not gone}))
    place = {word: float(at) for at, word in enumerate(kept)}
    return RawColumn(
        name, np.array([place.get(word, np.nan) for word in words] + [np.nan])[codes], kept
    )


def _number(word: str) -> float:
    """Return the finite number that a text holds, NaN if it holds none."""
    try:
        value = float(word)
    except ValueError:
        return np.nan
    return value if np.isfinite(value) and "_" not in word else np.nan
