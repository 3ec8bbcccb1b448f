"""Numbers of a recipe that were measured earlier: the rows and curves that are kept with it, in a
folder for each scale.

A row counts as long as the recipe still plans its run: the same run for the same cell and seed, to
the same target.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from motley.core.csv_text import csv_rows
from motley.core.errors import DataError
from motley.core.files import no_file
from motley.experiments import document
from motley.results.load import Run
from motley.results.measures import Censored
from motley.results.recorded_metrics import rows_of, written_scope
from motley.results.schema import TABLES

MEASURED = "measured.csv"
CURVES = "curves.csv.gz"
_MOST_BYTES = 2**28
"""Bytes that the curves of a recipe may have when they are unpacked."""
CellKey = tuple[str, str]
"""(exhibit, the cell's name)."""


class MeasuredRow(NamedTuple):
    """A row of ``measured.csv``: one measure of one run. ``exact`` is false where the value is a
    lower bound; ``run`` names the run and its end; ``target`` is the one that the measure looks at,
    empty for measures without."""

    exhibit: str
    cell: str
    measure: str
    seed: int
    value: str
    exact: str
    run: str
    target: str


_SEED = MeasuredRow._fields.index("seed")


class CurvePoint(NamedTuple):
    """A row of ``curves.csv.gz``: a round of a run, with the shared model's loss and accuracy where
    it was evaluated. ``exhibit`` and ``cell`` are the first that show the run; ``wire_bits`` is all
    traffic so far, ``paper_bits`` that by the papers' count."""

    run: str
    exhibit: str
    cell: str
    seed: int
    round: int
    virtual_s: str
    paper_s: str
    wire_bits: str
    paper_bits: str
    loss: str
    accuracy: str


@dataclass(frozen=True)
class Earlier:
    """What was measured earlier at one scale.

    Parameters
    ----------
    folder: that of the recipe's numbers at this scale; None where there is none.
    rows: those whose runs the recipe still plans.
    dropped: the number of rows whose runs it plans no longer.
    """

    folder: Path | None = None
    rows: Sequence[MeasuredRow] = ()
    dropped: int = 0
    _curves: dict[str, Run] = field(default_factory=dict, repr=False)

    @cached_property
    def values(self) -> Mapping[tuple[CellKey, str], Mapping[int, Censored]]:
        """(cell, measure) -> seed -> value."""
        out: dict[tuple[CellKey, str], dict[int, Censored]] = {}
        for row in self.rows:
            by_seed = out.setdefault(((row.exhibit, row.cell), row.measure), {})
            by_seed[row.seed] = Censored(float(row.value), row.exact == "true")
        return out

    @cached_property
    def runs(self) -> Mapping[CellKey, Mapping[int, str]]:
        """Cell -> seed -> name of the run."""
        out: dict[CellKey, dict[int, str]] = {}
        for row in self.rows:
            out.setdefault((row.exhibit, row.cell), {})[row.seed] = row.run
        return out

    @cached_property
    def points(self) -> Mapping[str, Sequence[CurvePoint]]:
        """Name of a run -> its rounds, of all runs whose curves were kept.

        Raises
        ------
        DataError: the file is damaged.
        """
        out: dict[str, list[CurvePoint]] = {}
        for point in _read_points(self.folder / CURVES) if self.folder is not None else ():
            out.setdefault(point.run, []).append(point)
        return out

    def curves(self, name: str) -> Run | None:
        """Return a run that was measured earlier with its headline evaluations alone; None where no
        curve was kept."""
        if name not in self._curves and name in self.points:
            self._curves[name] = _as_run(self.points[name])
        return self._curves.get(name)


def read_rows(path: Path) -> list[MeasuredRow]:
    """Return the rows of ``measured.csv``; none where there is no such file. Rows written before
    runs were named have none.

    Raises
    ------
    DataError: it is no such table.
    """
    if no_file(path) == "does not exist":
        return []
    text = document.read_text(path, "numbers that were measured with a recipe")
    out = []
    for number, row in enumerate(csv_rows(text), 2):
        try:
            values: list[Any] = [row.get(name) or "" for name in MeasuredRow._fields]
            values[_SEED] = int(row["seed"])
            measured = MeasuredRow._make(values)
            float(measured.value)
        except (KeyError, TypeError, ValueError):
            raise DataError(
                f"{path}, line {number}: got {dict(row)}; expected the columns "
                f"{', '.join(MeasuredRow._fields)}, the seed a whole number and the value a "
                "number; restore the file, or remove it to go on without it"
            ) from None
        out.append(measured)
    return out


def _read_points(path: Path) -> Iterator[CurvePoint]:
    if no_file(path) == "does not exist":
        return
    try:
        with gzip.open(path, "rb") as packed:
            raw = packed.read(_MOST_BYTES + 1)
        if len(raw) > _MOST_BYTES:
            raise ValueError(f"more than {_MOST_BYTES // 2**20} MiB")
        for row in csv_rows(raw.decode()):
            point = CurvePoint._make(row[name] for name in CurvePoint._fields)
            for value in point[5:]:
                float(value or "nan")
            yield point._replace(seed=int(point.seed), round=int(point.round))
    except (OSError, EOFError, zlib.error, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"{path} is damaged ({error}); restore the file, or remove it to go on without its "
            "curves"
        ) from None


def _as_run(points: Sequence[CurvePoint]) -> Run:
    """Return the run with its headline evaluations and nothing else."""
    evaluated = [point for point in points if point.loss or point.accuracy]
    accurate = any(point.accuracy for point in evaluated)
    columns = {
        "round": [point.round for point in evaluated],
        **{
            name: [float(getattr(point, column) or "nan") for point in evaluated]
            for name, column in _COLUMNS.items()
        },
        "scope": ["mean"] * len(evaluated),
    }
    tables = {name: schema.empty_table() for name, schema in TABLES.items()}
    schema = TABLES["evaluations"]
    arrays = [
        pa.array(columns[f.name], f.type) if f.name in columns else pa.nulls(len(evaluated), f.type)
        for f in schema
    ]
    tables["evaluations"] = pa.table(arrays, schema=schema)
    first = points[0]
    task = {"metric": "accuracy" if accurate else "loss"}
    meta = {"name": first.run, "seed": first.seed, "finished": True, "task": task, "personal": True}
    return Run(Path(first.run), meta, tables)


_COLUMNS = {
    "time_s": "virtual_s",
    "total_bits": "wire_bits",
    "total_up_paper_bits": "paper_bits",
    "loss": "loss",
    "accuracy": "accuracy",
}
"""Column of ``evaluations`` -> column of the curves."""


def curve_points(run: Run, exhibit: str, cell: str) -> Iterator[CurvePoint]:
    """Yield every round of a run, the evaluation before the first as round 0. Numbers have seven
    digits."""
    scope = written_scope(run)
    rows = {row["round"]: row for row in run.tables["rounds"].to_pylist()}
    shown = rows_of(run, "loss", scope)[0].to_pylist()
    evaluated = {row["round"]: row for row in shown}
    for number in sorted({*rows, *evaluated}):
        at = evaluated.get(number) or rows[number]
        numbers = {**rows.get(number, {}), **evaluated.get(number, {})}
        yield CurvePoint(
            run=run.directory.name,
            exhibit=exhibit,
            cell=cell,
            seed=run.seed,
            round=number,
            virtual_s=_short(at["time_s"]),
            paper_s=_short(numbers.get("paper_s")),
            wire_bits=_short(at["total_bits"]),
            paper_bits=_short(at["total_up_paper_bits"]),
            loss=_short(evaluated.get(number, {}).get("loss")),
            accuracy=_short(evaluated.get(number, {}).get("accuracy")),
        )


def _short(value: float | None) -> str:
    return "" if value is None or not np.isfinite(value) else f"{value:.7g}"


def to_gzip(text: str) -> bytes:
    """Return a text compressed; the same text gives the same bytes."""
    return gzip.compress(text.encode(), compresslevel=9, mtime=0)


def still_planned(
    rows: Iterable[MeasuredRow],
    planned: Mapping[tuple[str, str, int], str],
    targets: Mapping[tuple[str, str, str], str],
) -> list[MeasuredRow]:
    """Return the rows whose runs are still planned, and to the same target.

    Parameters
    ----------
    planned: (exhibit, cell, seed) -> name of the run.
    targets: (exhibit, cell, measure) -> target, "" for measures without.
    """
    return [
        row
        for row in rows
        if planned.get((row.exhibit, row.cell, row.seed)) == row.run != ""
        and targets.get((row.exhibit, row.cell, row.measure)) == row.target
    ]
