"""Run a published table again and judge each of its cells (:mod:`motley_papers.cell_verdicts`).

The numbers that the package's tables had are kept as ``method,column,seed,value,run`` in
``benchmarks/measured/tables`` of a checkout, in the printed unit; the verdicts on them are worked
out again whenever they are shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import isnan
from pathlib import Path
from statistics import fmean
from time import monotonic

from motley.commands.shared_options import wide_console
from motley.core.components import imports
from motley.core.csv_text import csv_rows, csv_text
from motley.core.errors import ConfigError, DataError, suggest
from motley.core.files import no_file, user_path
from motley.experiments import document
from motley.experiments.store import RunFolder
from motley.experiments.sweep import Failure, run_points
from motley.experiments.sweep_point import Point
from motley.results.aspects import in_list
from motley.results.blocks import (
    DASH,
    BulletList,
    Page,
    Section,
    Table,
    TableCell,
    TableRow,
    Text,
    non_empty,
)
from motley.results.load import Run, load
from motley.results.model_health import model_health
from motley.results.recorded_metrics import metric_of
from motley.results.terminal import block_table
from motley_papers.cell_verdicts import MARKS, JudgedCell, deviation_behind, judge
from motley_papers.measuring import Measure, measure_of, to_a_target
from motley_papers.published_table import PublishedTable
from motley_papers.recipe import chosen_seeds, measured_in
from motley_report.page import replace_files
from motley_report.page import write as write_page

Values = Mapping[tuple[str, str], Mapping[int, float]]
"""(row, column) -> seed -> measured number, in the printed unit."""
Key = tuple[str, str, int]
"""Row, first column with its settings, seed."""
ONE_RUN = (
    "; what is printed counts as one run, and what chance does to it is known of your runs alone: "
    "add seeds, --seeds"
)
"""Of a cell that is outside: what should be tried before a cause is sought."""
_KEPT = ("method", "column", "seed", "value", "run")


@dataclass(frozen=True)
class Refereed:
    """A published table with the runs that were made of it.

    Parameters
    ----------
    table: as published.
    values: what was measured of every row and column.
    directory: of the runs, or of the kept numbers.
    runs: (row, the first column with its settings) -> seed -> run; none where kept numbers are
    judged.
    chosen: the runs that this call was asked for; others were finished before.
    failures: runs that failed.
    wall_s: wall seconds of this call.
    """

    table: PublishedTable
    values: Values
    directory: Path
    runs: Mapping[tuple[str, str], Mapping[int, Run]] = field(default_factory=dict)
    chosen: frozenset[Key] = frozenset()
    failures: list[Failure] = field(default_factory=list)
    wall_s: float = 0.0

    @cached_property
    def cells(self) -> dict[tuple[str, str], JudgedCell]:
        """(row, column) -> the judged cell, of all printed cells with a measured number."""
        table = self.table
        measured = {key: self.values[key] for key in table.numbers if self.values.get(key)}
        return {
            (row, column): judge(
                printed=deviation_behind(
                    table.numbers[row, column], table.spread, table.printed_seeds
                ),
                printed_runs=table.printed_seeds,
                values=list(numbers.values()),
                cells=len(table.numbers),
                matters=self.matters(column),
            )
            for (row, column), numbers in measured.items()
        }

    @property
    def finished(self) -> int:
        """How many of the chosen runs are finished."""
        return sum(seed in self.runs.get((row, column), {}) for row, column, seed in self.chosen)

    def matters(self, column: str, without: str | None = None) -> float:
        """Return the difference in a column that an interval must tell apart; ``without``: as it
        were without a row."""
        if self.table.matters is not None:
            return self.table.matters
        means = [
            number.mean
            for (row, name), number in self.table.numbers.items()
            if name == column and row != without
        ]
        return max(means) - min(means)

    def causes(self, row: str, column: str) -> list[str]:
        """Return what is known to move a cell."""
        return [d.what for d in self.table.deviation if d.explains(row, column)]

    @cached_property
    def counts(self) -> dict[str, int]:
        """What came out, counted in cells."""
        table = self.table
        verdicts = Counter(cell.verdict for cell in self.cells.values())
        outside = [key for key, cell in self.cells.items() if cell.verdict == "outside"]
        explained = sum(bool(self.causes(*key)) for key in outside)
        within = table.within
        return {
            "printed": len(table.numbers),
            "measured": len(self.cells),
            "with the printed digits": sum(cell.same_digits for cell in self.cells.values()),
            **(
                {}
                if within is None
                else {f"within {within:g}": sum(c.near(within) for c in self.cells.values())}
            ),
            "inside": verdicts["inside"],
            "undecided": verdicts["undecided"],
            "outside, explained": explained,
            "outside, unexplained": len(outside) - explained,
        }


def referee(
    table: PublishedTable,
    data: str | Path | None = None,
    out: str | Path | None = None,
    seeds: Iterable[int] | None = None,
    methods: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    jobs: int = 1,
    allow_import: bool = False,
    progress: bool = False,
    run: bool = True,
    tell: Callable[[str], None] | None = None,
) -> Refereed:
    """Run what is missing of a published table, and judge its cells by all finished runs in the
    folder: also those of rows and seeds that are not asked for now.

    Parameters
    ----------
    data: folder with the table's data.
    out: folder of the runs, ``runs/NAME`` by default.
    seeds: that are run now, in place of the table's.
    methods: rows that are run; None: all.
    columns: columns that are run for, with those of the same settings; None: all.
    jobs: runs at a time.
    allow_import: let a table of one's own name code, which it runs.
    progress: show the runs on standard error.
    run: False judges what is finished, and runs nothing.
    tell: is called with a sentence before the first run.

    Raises
    ------
    ConfigError: the table names code and may not, or its settings are no experiment. DataError: its
    data is missing.
    """
    begun = monotonic()
    directory = Path("runs") / table.name if out is None else user_path(out)
    data = None if data is None else user_path(data)
    rows = _chosen("method", methods, list(table.method))
    numbers = chosen_seeds(seeds) or table.seeds
    places = {table.run_for(name) for name in _chosen("column", columns, list(table.columns))}
    with imports(allow_import or table.folder is None):
        table.check_code()
        points = {
            (row, column, seed): Point(
                _label(table, row, column),
                table.experiment(row, seed, data, column),
            )
            for row in rows
            for column in table.columns_run(row)
            if column in places
            for seed in numbers
        }
        if tell is not None and run:
            whole = f", in all about {table.minutes:g} min on two cores" if table.minutes else ""
            count = "1 run" if len(points) == 1 else f"{len(points)} runs"
            tell(f"{count} of {table.title}{whole}; what is finished is not run again")
        folders = {
            key: directory / "runs" / point.experiment.result_id() for key, point in points.items()
        }
        unique = {folder: points[key] for key, folder in folders.items()}
        done, failures = _run(unique, data, jobs, progress) if run else (_finished(unique), [])
        before = _finished_before(table, directory, data, {*folders})
    folders |= {key: folder for key, (folder, _) in before.items()}
    done |= dict(before.values())
    runs: dict[tuple[str, str], dict[int, Run]] = {}
    for (row, column, seed), folder in sorted(folders.items(), key=lambda item: item[0][2]):
        if folder in done:
            runs.setdefault((row, column), {})[seed] = done[folder]
    values = _values(table, runs)
    return Refereed(
        table,
        values,
        directory,
        runs=runs,
        chosen=frozenset(points),
        failures=failures,
        wall_s=monotonic() - begun,
    )


def _label(table: PublishedTable, row: str, column: str) -> str:
    """Return the name of the runs of a row; with the column where it has settings."""
    return f"{row}, {column}" if table.column_settings(column) else row


def _finished_before(
    table: PublishedTable, directory: Path, data: Path | None, asked: Collection[Key]
) -> dict[Key, tuple[Path, Run]]:
    """Return the finished runs of a table in a folder beside those asked for, of any seed: a
    verdict that left some out would depend on which."""
    names = {path.parent.name for path in (directory / "runs").glob("*/run.json")}
    records = (RunFolder(directory / "runs" / name).read() or {} for name in names)
    seeds = {record["config"]["seed"] for record in records if record.get("finished")}
    out: dict[Key, tuple[Path, Run]] = {}
    for row in table.method:
        for column in table.columns_run(row):
            for seed in sorted(seeds):
                if (row, column, seed) in asked:
                    continue
                try:
                    name = table.experiment(row, seed, data, column).result_id()
                except Exception:  # also of the task's own code; whoever asks for it is told
                    continue
                folder = directory / "runs" / name
                if name in names:
                    for path, run in _finished([folder]).items():
                        out[row, column, seed] = path, run
    return out


def _chosen(kind: str, names: Sequence[str] | None, listed: list[str]) -> list[str]:
    """Return the names that are asked for, of a table's rows or columns.

    Raises
    ------
    ConfigError: there is no such row or column.
    """
    for name in names or ():
        if name not in listed:
            raise ConfigError(
                f"got the {kind} {name!r}{suggest(name, listed)}; expected some of: "
                f"{', '.join(listed)}",
                "only",
            )
    return listed if names is None else list(names)


def _values(table: PublishedTable, runs: Mapping[tuple[str, str], Mapping[int, Run]]) -> Values:
    """Return what runs have in the table's columns; nothing of one that ended without a number, and
    no cell of which a run has a bound, as rounds to a target that it did not reach."""
    out: dict[tuple[str, str], dict[int, float]] = {}
    for column in table.columns:
        measure = measure_of(table.measure(column))
        of_runs = table.run_for(column)
        for row in table.method:
            by_seed = {s: _of_run(r, measure) for s, r in runs.get((row, of_runs), {}).items()}
            numbers = {s: value for s, (value, _) in by_seed.items() if not isnan(value)}
            if numbers and all(by_seed[seed][1] for seed in numbers):
                unit = table.unit_of(column)
                out[row, column] = {seed: value / unit for seed, value in numbers.items()}
    return out


def _of_run(run: Run, measure: Measure) -> tuple[float, bool]:
    """Return a run's figure by a measure, and whether it is no mere bound; measures to a target
    take ``stop.target`` of the headline."""
    target = ((run.config.get("stop") or {}).get("target") or {}).get(metric_of(run)[0])
    number = measure.of(run, target)
    return number.value, number.reached


def _threads_elsewhere(refereed: Refereed) -> list[str]:
    """Return a sentence where runs were made on another number of threads than the table says."""
    wanted = refereed.table.base.get("engine", {})
    threads = wanted.get("threads") if isinstance(wanted, Mapping) else None
    runs = [run for by_seed in refereed.runs.values() for run in by_seed.values()]
    others = [run for run in runs if run.meta["numerics"].get("threads") != threads]
    if threads is None or not others:
        return []
    return [
        f"{len(others)} of {len(runs)} runs were made on another number of threads than the "
        f"{threads} of the table, so that their last digits differ; remove "
        f"{refereed.directory / 'runs'} to run them again"
    ]


def kept(table: PublishedTable) -> Refereed | None:
    """Return a table of the package with the numbers that are kept of it; None where there are
    none, as outside a checkout.

    Raises
    ------
    DataError: the file is no such table.
    """
    path = _kept_in(table)
    if path is None or no_file(path) is not None:
        return None
    values: dict[tuple[str, str], dict[int, float]] = {}
    for row in _kept_rows(path):
        values.setdefault((row["method"], row["column"]), {})[int(row["seed"])] = float(
            row["value"]
        )
    return Refereed(table, values, path.parent)


def _kept_rows(path: Path) -> list[dict[str, str]]:
    """Return the rows of a file of kept numbers; none where there is no such file.

    Raises
    ------
    DataError: it is no such table.
    """
    if no_file(path) is not None:
        return []
    rows = list(csv_rows(document.read_text(path, "kept numbers of a table")))
    for line, row in enumerate(rows, 2):
        try:
            _ = [row[name] for name in _KEPT], int(row["seed"]), float(row["value"])
        except (KeyError, ValueError):
            raise DataError(
                f"{path}, line {line}: got {dict(row)}; expected the columns "
                f"{', '.join(_KEPT)}, the seed a whole number and the value a number"
            ) from None
    return rows


def keep(refereed: Refereed) -> Path:
    """Put the numbers of the rows and columns that have runs into the checkout's file of a table;
    those of others stay there, but of rows and columns that the table has no more.

    Raises
    ------
    ConfigError: a table of one's own, outside a checkout, or no runs, or not those of all seeds.
    DataError: the file is no such table. StoreError: it cannot be written.
    """
    table = refereed.table
    path = place_of_kept(table)
    whole = {
        key
        for key, by_seed in refereed.runs.items()
        if all(seed in by_seed for seed in table.seeds)
    }
    missing = [
        f"{row}, {column}, seed {seed}"
        for row in table.method
        for column in table.columns
        if any((row, column) == key[:2] for key in refereed.chosen)
        for seed in table.seeds
        if seed not in refereed.runs.get((row, column), {})
    ]
    if missing:
        raise ConfigError(
            f"{len(missing)} runs are missing ({missing[0]}); all seeds of a row are kept together:"
            " run them, or leave the row out with --only",
            "--keep",
        )
    runs = {
        (row, column): refereed.runs[row, table.run_for(column)]
        for column in table.columns
        for row in table.method
        if (row, table.run_for(column)) in whole
    }
    columns, methods = list(table.columns), list(table.method)
    rows = [
        row
        for row in _kept_rows(path)
        if (row["method"], row["column"]) not in runs
        and row["method"] in methods
        and row["column"] in columns
    ]
    for (row, column), by_seed in runs.items():
        values = refereed.values.get((row, column), {})
        for seed in table.seeds:
            if seed in values:
                entry = (row, column, str(seed), f"{values[seed]:.12g}", by_seed[seed].directory)
                rows.append(dict(zip(_KEPT, (*entry[:4], entry[4].name), strict=True)))
    rows.sort(key=lambda row: (columns.index(row["column"]), methods.index(row["method"])))
    replace_files({path: csv_text([_KEPT, *(list(row.values()) for row in rows)])}, path)
    return path


def place_of_kept(table: PublishedTable) -> Path:
    """Return the checkout's file of a table.

    Raises
    ------
    ConfigError: a table of one's own, or outside a checkout.
    """
    path = _kept_in(table)
    if path is None:
        raise ConfigError("it is for tables of the package, in a checkout of Motley", "--keep")
    return path


def _kept_in(table: PublishedTable) -> Path | None:
    folder = measured_in("tables")
    return None if folder is None or table.folder is not None else folder / f"{table.name}.csv"


def _run(
    points: dict[Path, Point], data: Path | None, jobs: int, progress: bool
) -> tuple[dict[Path, Run], list[Failure]]:
    """Return folder -> run of what is finished, and the failures."""
    folders = list(points)
    done, failures = run_points(
        points=list(points.values()), folders=folders, data=data, progress=progress, jobs=jobs
    )
    return {run.directory: run for run in done}, failures


def _finished(folders: Iterable[Path]) -> dict[Path, Run]:
    """Return folder -> run of those that are finished."""
    return {
        folder: load(folder)
        for folder in folders
        if (RunFolder(folder).read() or {}).get("finished")
    }


# ------------------------------------------------------------------------------------------ reports


def cell_table(refereed: Refereed) -> Table:
    """Return the table with measured numbers, the printed ones in brackets, and a mark on what is
    not inside."""
    table = refereed.table
    columns = list(dict.fromkeys(column for _, column in table.numbers))
    rows = [
        TableRow(row, [_cell(refereed, row, column) for column in columns]) for row in table.method
    ]
    note = (
        "Measured mean ± deviation, printed in brackets. ? undecided, ! outside, !! outside and "
        "nothing explains it, = the printed digits."
    )
    return Table(["method", *columns], rows, note)


def _cell(refereed: Refereed, row: str, column: str) -> TableCell:
    cell = refereed.cells.get((row, column))
    if cell is None:
        measured = refereed.values.get((row, column))
        return TableCell(f"{fmean(measured.values()):.4g}" if measured else DASH)
    digits = cell.printed.decimals
    spread = "" if isnan(cell.deviation) else f" ± {cell.deviation:.{digits}f}"
    mark = MARKS[cell.verdict]
    if cell.verdict == "outside" and not refereed.causes(row, column):
        mark = "!!"
    mark = f"={mark}" if cell.same_digits else mark
    return TableCell(
        f"{cell.mean:.{digits}f}{spread}{f' {mark}' if mark else ''}",
        value=cell.mean,
        tone="bad" if cell.verdict == "outside" else "",
        published=cell.printed.text,
    )


def outside(refereed: Refereed) -> list[str]:
    """Return a sentence on each cell that is outside."""
    table = refereed.table
    advice = "" if (table.printed_seeds or 1) > 1 else ONE_RUN
    return [
        f"{row}, {column}: measured {cell.mean:.4g}, printed {cell.printed.text}, beyond "
        f"± {cell.half:.2g}: {'; '.join(refereed.causes(row, column)) or 'no cause is named'}"
        f"{advice}"
        for (row, column), cell in refereed.cells.items()
        if cell.verdict == "outside"
    ]


def remarks(refereed: Refereed) -> list[str]:
    """Return a sentence on everything that makes verdicts say less than they seem to."""
    return [
        *_threads_elsewhere(refereed),
        *_numbers_in_brackets(refereed.table),
        *_columns_without_verdicts(refereed),
        *_runs_without_numbers(refereed),
        *_one_far_row(refereed),
        *_other_unit(refereed),
        *_of_no_use(refereed),
    ]


def _numbers_in_brackets(table: PublishedTable) -> list[str]:
    """Return a sentence on numbers in brackets that are large for a spread: papers put other
    figures there, too, as the worst tenth of clients."""
    large = [
        f"{row} {number.text}"
        for (row, _), number in table.numbers.items()
        if "(" in number.text and number.deviation / number.per_spread >= abs(number.mean) / 2
    ]
    if not large:
        return []
    return [
        f"{large[0]}: the number in brackets is taken as the {table.spread.replace('_', ' ')}"
        + (f", and so in {len(large) - 1} more cells" if len(large) > 1 else "")
        + "; of another figure make a column"
    ]


def _columns_without_verdicts(refereed: Refereed) -> list[str]:
    """Return sentences on columns of which no cell can be inside, or has a number, and on printed
    deviations that count for nothing."""
    table = refereed.table
    out = []
    columns = dict.fromkeys(column for _, column in table.numbers)
    if table.printed_seeds is None and any(
        not isnan(number.deviation) for number in table.numbers.values()
    ):
        out.append(
            "spreads are printed, but not of how many runs, and so they count for nothing: write "
            "printed_seeds"
        )
    for column in columns:
        runs = [
            run
            for row in table.method
            for run in refereed.runs.get((row, table.run_for(column)), {}).values()
        ]
        measured = any(refereed.values.get((row, column)) for row in table.method)
        if runs and not measured and not to_a_target(table.measure(column)):
            out.append(
                f"{column}: none of {len(runs)} runs has the measure {table.measure(column)!r}"
            )
        elif measured and refereed.matters(column) == 0 and not _inside(refereed, column):
            out.append(
                f"{column}: its printed numbers do not differ, so that nothing says how near is "
                "near, and no interval is narrow enough; write matters, in the printed unit"
            )
    return out


def _one_far_row(refereed: Refereed) -> list[str]:
    """Return sentences on columns whose range is that of one row, as of one that collapsed, and of
    which cells are inside for it alone."""
    out = []
    for column in dict.fromkeys(column for _, column in refereed.cells):
        printed = {
            row: cell for (row, name), cell in refereed.table.numbers.items() if name == column
        }
        if len(printed) < 3:
            continue
        narrower, far_row = min((refereed.matters(column, row), row) for row in printed)
        wide = [
            row
            for (row, name), cell in refereed.cells.items()
            if name == column
            and cell.verdict == "inside"
            and not cell.equal
            and cell.half > narrower
        ]
        if wide and narrower < refereed.matters(column) / 2:
            less = f"matters = {narrower:.2g}" if narrower else "a smaller matters"
            out.append(
                f"{column}: without {far_row}, {printed[far_row].text}, the printed numbers differ "
                f"by {narrower:.2g}, and the intervals are wider of {in_list(wide)}, inside for "
                f"that row alone; with {less} undecided"
            )
    return out


def _runs_without_numbers(refereed: Refereed) -> list[str]:
    """Return sentences on printed cells of which some runs have no number, or only a bound."""
    table = refereed.table
    out = []
    for row, column in table.numbers:
        runs = refereed.runs.get((row, table.run_for(column)), {})
        measure = measure_of(table.measure(column))
        numbers = [_of_run(run, measure) for run in runs.values()]
        bounds = sum(not reached for value, reached in numbers if not isnan(value))
        lacks = sum(isnan(value) for value, _ in numbers)
        if bounds:
            out.append(
                f"{row}, {column}: {bounds} of {len(runs)} runs did not reach stop.target, and of "
                "a bound there is no verdict"
            )
        elif lacks and to_a_target(measure.name):
            out.append(
                f"{row}, {column}: {measure.name} is of stop.target, which {lacks} of {len(runs)} "
                "runs lack for the headline; write e.g. stop = { rounds = 100, target = "
                "{ accuracy = 0.7 } }"
            )
        elif lacks and any(refereed.values.get((other, column)) for other in table.method):
            others = "the verdict is of the others" if lacks < len(runs) else "there is no verdict"
            out.append(
                f"{row}, {column}: {lacks} of {len(runs)} runs have no {measure.name}, and {others}"
            )
    return out


def _inside(refereed: Refereed, column: str) -> bool:
    return any(
        cell.verdict == "inside" for (_, name), cell in refereed.cells.items() if name == column
    )


def _other_unit(refereed: Refereed) -> list[str]:
    """Return a sentence where all cells of a column are off by about a hundred: all columns have
    the table's unit, or it is this one's alone."""
    table = refereed.table
    off: dict[str, float | None] = {}
    for column in dict.fromkeys(column for _, column in refereed.cells):
        cells = [cell for (_, name), cell in refereed.cells.items() if name == column]
        ratios = [cell.mean / cell.printed.mean for cell in cells if cell.printed.mean]
        near = (
            factor
            for factor in (100.0, 0.01)
            if ratios and all(factor / 2 < ratio < factor * 2 for ratio in ratios)
        )
        off[column] = next(near, None)
    alike = len({*off.values()}) == 1 and all(table.unit_of(name) == table.unit for name in off)
    alone = "" if alike else " beside the measure, as it is of this column alone"
    return [
        f"{column}: measured numbers are about {factor:g} times the printed ones; write unit = "
        f"{table.unit_of(column) * factor:g}{alone}"
        for column, factor in off.items()
        if factor is not None
    ]


def _of_no_use(refereed: Refereed) -> list[str]:
    """Return sentences on runs of which the model is worth nothing: one that learned nothing may
    come near a printed number, too."""
    return list(
        dict.fromkeys(
            f"{_label(refereed.table, row, column)} seed {seed}: {trouble}"
            for (row, column), by_seed in refereed.runs.items()
            for seed, run in by_seed.items()
            for trouble in model_health(run)
        )
    )


def counted(refereed: Refereed) -> str:
    """Return what came out, counted in cells, as one line."""
    counts = ", ".join(f"{count} {words}" for words, count in refereed.counts.items())
    return f"cells: {counts}; {refereed.wall_s / 60:.1f} minutes"


def show(refereed: Refereed) -> None:
    """Print the table, the cells that are outside, and the counts."""
    console = wide_console()
    console.print(block_table(cell_table(refereed), refereed.table.title))
    for sentence in [*outside(refereed), *remarks(refereed), counted(refereed)]:
        console.print(sentence, markup=False)


def page(refereed: Refereed) -> Page:
    """Return the report as a page."""
    table = refereed.table
    seeds = sorted({seed for by_seed in refereed.runs.values() for seed in by_seed})
    facts = [
        ("table", table.name),
        ("printed in", table.source or table.url),
        ("seeds", ", ".join(map(str, seeds))),
        *((words, str(count)) for words, count in refereed.counts.items()),
    ]
    blocks = non_empty(
        BulletList(
            [f"{f.point.label}, {f.point.experiment.seed}: {f.error}" for f in refereed.failures],
            "Runs that failed",
        )
        if refereed.failures
        else None,
        cell_table(refereed),
        Section("Outside", [BulletList(outside(refereed))]) if outside(refereed) else None,
        Section("Remarks", [BulletList(remarks(refereed))]) if remarks(refereed) else None,
        Section("What is known to differ", [BulletList([d.what for d in table.deviation])])
        if table.deviation
        else None,
        Text(
            "Printed and measured numbers are both means of runs that chance moved; a cell is "
            "outside where chance would make one of the whole table so in one of twenty tables.",
            note=True,
        ),
    )
    return Page(f"{table.title}: printed and measured", facts, blocks)


def cells_csv(refereed: Refereed) -> str:
    """Return a row for each printed cell with a measured number."""
    heads = ["method", "column", "printed", "runs", "mean", "deviation", "half", "verdict", "cause"]
    rows: list[Sequence[object]] = [heads]
    for (row, column), cell in refereed.cells.items():
        numbers = [f"{number:.6g}" for number in (cell.mean, cell.deviation, cell.half)]
        cause = "; ".join(refereed.causes(row, column)) if cell.verdict == "outside" else ""
        rows.append(
            (row, column, cell.printed.text, len(cell.values), *numbers, cell.verdict, cause)
        )
    return csv_text(rows)


def write(refereed: Refereed) -> list[Path]:
    """Write ``report.html``, ``report.md`` and ``cells.csv`` into the folder of the runs.

    Raises
    ------
    StoreError: they cannot be written.
    """
    folder = refereed.directory
    cells = folder / "cells.csv"
    replace_files({cells: cells_csv(refereed)}, cells)
    report = page(refereed)
    return [*(write_page(report, folder / name) for name in ("report.html", "report.md")), cells]
