"""A row of a recipe as a side of ``motley explain``: ``recipe:NAME/ROW`` of a published table
(``NAME/ROW/COLUMN`` where columns have settings), ``recipe:NAME/CELL`` or
``recipe:NAME/EXHIBIT/CELL`` of a recipe with exhibits, at the scale small or
``recipe:NAME@SCALE/...``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from motley.core.components import imports
from motley.core.errors import ConfigError, suggest
from motley.core.files import no_file
from motley.experiments.config import Experiment
from motley.experiments.run import as_experiment
from motley.experiments.store import RunFolder
from motley.results.load import load
from motley_advice.explanation.compared_results import RECIPE, Side
from motley_papers import published_table, recipe
from motley_papers.packaged import table_names
from motley_papers.published_table import PublishedTable
from motley_papers.recipe import Cell, Recipe
from motley_papers.reproduce import scale_named

Experiments = Callable[[int], Experiment]
"""Seed -> experiment."""
_LISTED = 16
"""Rows that an error lists at most."""


def side_of_row(text: str, overrides: Sequence[str] = (), data: Path | None = None) -> Side:
    """Return a row of a recipe, with those of its runs that are finished in the recipe's folder.

    Parameters
    ----------
    text: NAME/ROW, without ``recipe:``; of a recipe or table of one's own its path, then the row.
    overrides: as ``--set``.
    data: folder with the data of a table.

    Raises
    ------
    ConfigError: there is no such recipe or row, or its code may not run. DataError: data is
    missing.
    """
    name, size, row = _parsed(text)
    if _is_table(name):
        if size:
            raise ConfigError(
                f"got @{size}, and {name} is one published table, which has no scales; leave it out"
            )
        of_seed, seeds, folder = _of_table(name, row, data)
        measures = _measures(name, row)
    else:
        of_seed, seeds, folder = _of_recipe(name, row, size or "small")
        measures = ()

    @cache
    def experiment(seed: int) -> Experiment:
        return as_experiment(of_seed(seed), overrides)

    runs = {seed: folder / "runs" / experiment(seed).result_id() for seed in seeds}
    stored = {
        seed: load(place)
        for seed, place in runs.items()
        if RunFolder(place).finished(experiment(seed))
    }
    return Side(
        label=f"{RECIPE}{text}",
        experiment=experiment(seeds[0]),
        seeds=tuple(seeds),
        stored=stored,
        of_seed=experiment,
        measures=measures,
    )


def _parsed(text: str) -> tuple[str, str, str]:
    """Return the recipe, the scale or "", and the row that a text names; the recipe may be a path.

    Raises
    ------
    ConfigError: it names no recipe.
    """
    pieces = text.split("/")
    for count in range(1, len(pieces) + 1):
        name, _, size = "/".join(pieces[:count]).partition("@")
        if _is_table(name) or _is_recipe(name):
            return name, size, "/".join(pieces[count:]).strip()
    name = pieces[0].partition("@")[0]
    every = [*recipe.names(), *table_names()]
    raise ConfigError(
        f"got {RECIPE}{text}, and there is no recipe {name!r}{suggest(name, every)}; expected "
        f"{RECIPE}NAME/ROW, of one of: {', '.join(every)}, the file of a table, or the folder of a "
        "recipe"
    )


def _is_table(name: str) -> bool:
    return name in table_names() or (name.endswith(".toml") and no_file(Path(name)) is None)


def _is_recipe(name: str) -> bool:
    return name in recipe.names() or no_file(Path(name) / "recipe.toml") is None


def _of_table(name: str, row: str, data: Path | None) -> tuple[Experiments, list[int], Path]:
    """Return seed -> experiment of a row of a published table, its seeds, and the folder of the
    table's runs."""
    table = published_table.read(name)
    rows = _rows(table)
    if row not in rows:
        raise _no_row(row, name, list(rows))
    method, column = rows[row]
    packaged = table.folder is None
    with imports(packaged):
        table.check_code()

    def experiment(seed: int) -> Experiment:
        with imports(packaged):
            return table.experiment(method, seed, data, column)

    return experiment, table.seeds, Path("runs") / table.name


def _rows(table: PublishedTable) -> dict[str, tuple[str, str]]:
    """Return the runs of a table by what names them: ``ROW``, and ``ROW/COLUMN`` where columns
    have settings, as the row and a column."""
    columns = {method: table.columns_run(method) for method in table.method}
    if len({column for run in columns.values() for column in run}) == 1:
        return {method: (method, run[0]) for method, run in columns.items()}
    return {
        f"{method}/{column}": (method, column) for method in columns for column in columns[method]
    }


def _measures(name: str, row: str) -> tuple[str, ...]:
    """Return the measures of the columns whose numbers come from a row's runs."""
    table = published_table.read(name)
    _, run = _rows(table)[row]
    return tuple(table.measure(column) for column in table.columns if table.run_for(column) == run)


def _of_recipe(name: str, row: str, size: str) -> tuple[Experiments, list[int], Path]:
    """Return seed -> experiment of a cell of a recipe, its seeds, and the folder of its runs."""
    read = recipe.read(name)
    scale = scale_named(size)
    cells = _cells(read)
    if row not in cells:
        raise _no_row(row, name, list(cells))
    cell = cells[row]

    def experiment(seed: int) -> Experiment:
        return read.experiment(cell, scale, seed)

    return experiment, read.seeds(cell.exhibit, scale), Path("runs") / read.name / size


def _cells(read: Recipe) -> dict[str, Cell]:
    """Return the cells of a recipe by what names them: ``EXHIBIT/CELL``, and ``CELL`` where no
    other exhibit has one that is called so."""
    cells = [cell for exhibit in read.exhibit for cell in exhibit.all_cells()]
    names = [cell.name for cell in cells]
    alone = {_written(cell): cell for cell in cells if names.count(cell.name) == 1}
    return alone | {f"{cell.exhibit.name}/{_written(cell)}": cell for cell in cells}


def _written(cell: Cell) -> str:
    return "/".join(cell.values)


def _no_row(row: str, name: str, rows: list[str]) -> ConfigError:
    which = f"the row {row!r}, which" if row else "no row of"
    more = f"; and {len(rows) - _LISTED} more" if len(rows) > _LISTED else ""
    return ConfigError(
        f"got {which} {name}{' has not' if row else ''}{suggest(row, rows)}; expected "
        f"{RECIPE}{name}/ROW, one of: {'; '.join(rows[:_LISTED])}{more}"
    )
