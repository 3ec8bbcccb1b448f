"""Preparations of tables and texts: the map from raw rows and characters, as users have them, to
model inputs.

A table's numbers are filled, centred and divided by their deviation; words become one input per
category, 1 where a row holds it.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from typing_extensions import override

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import user_path
from motley.core.untrusted import shortened
from motley.tasks.origin import Origin, number_of_row
from motley.tasks.preparation import Preparation
from motley_data.new_rows import new_numbers
from motley_data.raw_table import RawColumn, RawTable, arrow_table, read_column
from motley_data.spellings import plain_number
from motley_data.table_files import read_arrow
from motley_data.table_lines import refuse_footer
from motley_data.table_options import TableOptions


@dataclass(frozen=True)
class TextPreparation(Preparation):
    """Characters as places in an alphabet; others take the place after its last, where there is
    one.

    Parameters
    ----------
    alphabet: the known characters.
    window: the most characters that a model reads; of longer texts it reads the last ones.
    unknown: whether other characters have a place.
    """

    alphabet: str
    window: int
    unknown: bool

    @override
    def __call__(self, raw: Any, client: int | None = None) -> Tensor:
        texts = [raw] if isinstance(raw, str) else raw
        if not (
            isinstance(texts, list | tuple)
            and texts
            and all(isinstance(text, str) and text for text in texts)
        ):
            raise DataError(
                f"got a {type(raw).__name__}; expected a text, or a list of texts that are not "
                "empty"
            )
        if len({len(text) for text in texts}) > 1:
            raise DataError(
                "got texts of different lengths; expected equally long ones, or give them one by "
                "one"
            )
        place = {letter: at for at, letter in enumerate(self.alphabet)}
        strange = sorted(set("".join(texts)) - place.keys())
        if strange and not self.unknown:
            raise DataError(
                f"got the character {strange[0]!r}, which is not in the alphabet of the data"
            )
        return torch.tensor(
            [[place.get(letter, len(place)) for letter in text[-self.window :]] for text in texts]
        )

    @override
    def save(self) -> dict[str, Any]:
        return {
            "kind": "text",
            "alphabet": self.alphabet,
            "window": self.window,
            "unknown": self.unknown,
        }


class NumberColumn(NamedTuple):
    """A column of numbers: what fills its gaps, its mean and its deviation, ``[1]`` for all clients
    or ``[K]``, one for each."""

    name: str
    fill: Floats
    mean: Floats
    deviation: Floats

    def inputs(self) -> tuple[str, ...]:
        """Return the names of its inputs."""
        return (self.name,)

    def encode(self, column: RawColumn, client: Ids) -> Floats:
        """Return the filled and scaled numbers ``[n, 1]``; ``client`` ``[n]``: whose statistics."""
        filled = np.where(np.isnan(column.values), self.fill[client], column.values)
        out: Floats = ((filled - self.mean[client]) / self.deviation[client])[:, None]
        return out


class WordColumn(NamedTuple):
    """A column of words: its categories, whether other words share an input, and the word that
    fills gaps."""

    name: str
    categories: tuple[str, ...]
    other: bool
    fill: str

    def inputs(self) -> tuple[str, ...]:
        """Return the names of its inputs."""
        return tuple(
            f"{self.name}={word}"
            for word in (*self.categories, *(("other",) if self.other else ()))
        )

    def encode(self, column: RawColumn, client: Ids) -> Floats:
        """Return 1 at each row's category ``[n, C]``; a word of no category is ``other``, or 0
        everywhere where there is none."""
        width = len(self.categories) + self.other
        place = {word: at for at, word in enumerate(self.categories)}
        fallback = len(self.categories) if self.other else -1
        words = (*(column.words or ()), self.fill)
        at = np.array([place.get(word, fallback) for word in words])
        rows = at[np.where(np.isnan(column.values), len(words) - 1, column.values).astype(np.int64)]
        out = np.zeros((len(rows), width))
        encoded = np.flatnonzero(rows >= 0)
        out[encoded, rows[encoded]] = 1.0
        return out


@dataclass(frozen=True)
class TablePreparation(Preparation):
    """The preparation of a table, column by column.

    Parameters
    ----------
    columns: in the table's order.
    clients: whether each client has statistics of its own.
    gaps: texts that stand for a missing entry.
    written: the options that say how a file writes a table and its numbers, as :func:`written`
    returns them.
    forms: what the entries of columns of numbers are, where they are no plain numbers: dates,
    times, numbers in a unit.
    separators: of the texts, and whether each one's decimal mark is certain; empty: commas.
    """

    columns: tuple[NumberColumn | WordColumn, ...]
    clients: bool
    gaps: tuple[str, ...]
    written: Mapping[str, Any] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)
    separators: Mapping[str, bool] = field(default_factory=dict)

    @cached_property
    def options(self) -> TableOptions:
        """How new rows are written."""
        lists = {key: tuple(v) for key, v in self.written.items() if isinstance(v, list)}
        return TableOptions(gaps=self.gaps, **{**self.written, **lists})

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the table's input columns."""
        return tuple(column.name for column in self.columns)

    def inputs(self, table: RawTable | tuple[RawColumn, ...], client: Ids | None = None) -> Tensor:
        """Return the model inputs of all rows, float32 ``[n, inputs]``; ``client`` ``[n]``: whose
        statistics, where they differ."""
        raw = table.columns if isinstance(table, RawTable) else table
        whose = np.zeros(len(raw[0].values), np.int64) if client is None else client
        parts = [
            column.encode(values, whose) for column, values in zip(self.columns, raw, strict=True)
        ]
        with np.errstate(over="ignore"):
            encoded = np.concatenate(parts, axis=1).astype(np.float32)
        where = table.where if isinstance(table, RawTable) else ""
        self._check_finite(encoded, where)
        return torch.from_numpy(encoded)

    def _check_finite(self, encoded: NDArray[np.float32], where: str | Origin) -> None:
        """Refuse model inputs that float32 does not hold."""
        if np.isfinite(encoded).all():
            return
        row, at = np.argwhere(~np.isfinite(encoded))[0].tolist()
        name = [name for column in self.columns for name in column.inputs()][at]
        number = number_of_row(where, row)
        raise DataError(
            f"row {number}: the number in column {name!r} is so far from the "
            "column's mean that its model input is not finite; expected numbers of about the size "
            "of those that trained"
        )

    @override
    def __call__(self, raw: Any, client: int | None = None) -> Tensor:
        if self.clients and client is None:
            raise ConfigError(
                'each client scales by its own rows (scale = "client"); use '
                "run.clients()[k].predict(x)"
            )
        table = _read_rows(raw, self.names, self.options)
        for name in self.names:
            if name not in table.column_names:
                names = ", ".join(table.column_names)
                raise DataError(
                    f"the rows have no column {name!r}{suggest(name, table.column_names)}; their "
                    f"columns: {names}"
                )
        where = Path(raw).name if isinstance(raw, str | Path) else "x"
        rows = tuple(
            read_column(
                column=_spelled(table.column(column.name), column),
                name=column.name,
                kind="words",
                options=self.options,
                where=where,
            )
            if isinstance(column, WordColumn)
            else new_numbers(
                table=table,
                name=column.name,
                form=self.forms.get(column.name, ""),
                options=self.options,
                separators=self.separators,
                where=where,
            )
            for column in self.columns
        )
        _warn_of_unknown(self.columns, rows)
        whose = np.full(len(table), client or 0, np.int64) if self.clients else None
        return self.inputs(rows, whose)

    @override
    def save(self) -> dict[str, Any]:
        columns = []
        for column in self.columns:
            if isinstance(column, WordColumn):
                columns.append(
                    {
                        "name": column.name,
                        "kind": "words",
                        **column._asdict(),
                        "categories": list(column.categories),
                    }
                )
            else:
                numbers = {
                    key: self._plain(getattr(column, key)) for key in ("fill", "mean", "deviation")
                }
                columns.append({"name": column.name, "kind": "numbers", **numbers})
        inputs = [name for column in self.columns for name in column.inputs()]
        return {
            "kind": "table",
            "statistics": "client" if self.clients else "all",
            "gaps": list(self.gaps),
            "columns": columns,
            "inputs": inputs,
            **({"written": dict(self.written)} if self.written else {}),
            **({"forms": dict(self.forms)} if self.forms else {}),
            **({"separators": dict(self.separators)} if {*self.separators} - {","} else {}),
        }

    def _plain(self, values: Floats) -> Any:
        return values.tolist() if self.clients else float(values[0])


def _warn_of_unknown(
    columns: Sequence[NumberColumn | WordColumn], rows: Sequence[RawColumn]
) -> None:
    """Warn of new rows with a word, or a gap, that is no category and becomes 0 in all inputs."""
    for column, raw in zip(columns, rows, strict=True):
        if isinstance(column, NumberColumn) or column.other:
            continue
        categorical = np.array([w in column.categories for w in (*(raw.words or ()), column.fill)])
        at = np.where(np.isnan(raw.values), -1, raw.values).astype(np.int64)
        strange = ~categorical[at]
        if not strange.any():
            continue
        first = int(at[strange][0])
        seen = "a gap" if first < 0 else repr((raw.words or ())[first])
        warnings.warn(
            f"{seen} (row {int(strange.argmax()) + 1}) is no category of column {column.name!r}, "
            f"whose inputs are all 0 in {int(strange.sum()):,} of {len(at):,} rows; its "
            f"categories: {shortened(', '.join(column.categories), 200)}",
            stacklevel=6,  # of a run's predict
        )


def fixed_preparation(table: RawTable) -> TablePreparation:
    """Return the preparation that a table's option ``fixed`` says; columns that it does not name
    stay as they are."""
    options = table.options
    columns: list[NumberColumn | WordColumn] = []
    for raw in table.columns:
        if options.fixed_words(raw.name):
            words = tuple(sorted(str(word) for word in options.fixed[raw.name]))
            columns.append(WordColumn(raw.name, words, True, "missing"))
        else:
            mean, deviation = (
                np.array([float(v)]) for v in options.fixed.get(raw.name, (0.0, 1.0))
            )
            columns.append(NumberColumn(raw.name, mean, mean, deviation))
    return table_preparation(table, columns, False)


def table_preparation(
    table: RawTable, columns: Sequence[NumberColumn | WordColumn], clients: bool
) -> TablePreparation:
    """Return the preparation of a table by its columns, which reads new rows as the table's;
    ``clients``: each client has statistics of its own."""
    return TablePreparation(
        tuple(columns),
        clients,
        table.options.gaps,
        written=written(table.options),
        forms={column.name: column.form for column in table.columns if column.form},
        separators=table.separators,
    )


_WRITTEN = (
    *("sep", "encoding", "header_rows", "comment", "sheet"),
    *("decimal", "thousands", "units", "dates", "trim", "fold", "rename"),
)


def written(options: TableOptions) -> dict[str, Any]:
    """Return the options that say how a file writes a table and its numbers, where they are not the
    usual ones."""
    usual = TableOptions()
    values = {name: getattr(options, name) for name in _WRITTEN}
    return {name: value for name, value in values.items() if value != getattr(usual, name)}


def _spelled(column: Any, fitted: NumberColumn | WordColumn) -> Any:
    """Return a column of words as text, whose numbers and truths are spelled as the words that the
    preparation knows: ``True`` of a record is the word ``true`` of a file."""
    import pyarrow as pa

    types = pa.types
    number = types.is_integer(column.type) or types.is_floating(column.type)
    if not isinstance(fitted, WordColumn) or not (number or types.is_boolean(column.type)):
        return column
    spellings = {
        word.lower() if types.is_boolean(column.type) else plain_number(word): word
        for word in reversed(fitted.categories)
    }

    def spelled(value: Any) -> str | None:
        if value is None:
            return None
        plain = str(value).lower() if isinstance(value, bool) else float(value)
        return spellings.get(plain, str(value))

    texts = [spelled(value) for value in column.to_pylist()]
    return pa.chunked_array([pa.array(texts, pa.string())])


def _read_rows(raw: Any, names: tuple[str, ...], options: TableOptions) -> Any:
    """Return new rows as an Arrow table: a path, a list of records, or what :func:`arrow_table`
    takes."""
    if isinstance(raw, str | Path):
        path = user_path(raw)
        table = read_arrow(path, options.form)
        refuse_footer(table, str(path), options.rename, options.form.comments)
        return table
    if isinstance(raw, list) and raw and isinstance(raw[0], Mapping):
        return arrow_table(
            {
                name: [row.get(name) for row in raw]
                for name in {key: None for row in raw for key in row}
            }
        )
    return arrow_table(raw.detach().cpu().numpy() if isinstance(raw, Tensor) else raw, names)


def restore_text(saved: Mapping[str, Any]) -> TextPreparation:
    """Return what :meth:`TextPreparation.save` returned; raises KeyError where something is
    missing."""
    return TextPreparation(saved["alphabet"], saved["window"], saved["unknown"])


def restore_table(saved: Mapping[str, Any]) -> TablePreparation:
    """Return what :meth:`TablePreparation.save` returned; raises KeyError, TypeError or ValueError
    where it is damaged."""
    columns: list[NumberColumn | WordColumn] = []
    for column in saved["columns"]:
        if column["kind"] == "words":
            columns.append(
                WordColumn(
                    column["name"], tuple(column["categories"]), column["other"], column["fill"]
                )
            )
        else:
            fill, mean, deviation = (
                np.atleast_1d(np.asarray(column[key], np.float64))
                for key in ("fill", "mean", "deviation")
            )
            columns.append(NumberColumn(column["name"], fill, mean, deviation))
    return TablePreparation(
        tuple(columns),
        clients=saved["statistics"] == "client",
        gaps=tuple(saved["gaps"]),
        written=saved.get("written", {}),
        forms=saved.get("forms", {}),
        separators=saved.get("separators", {}),
    )
