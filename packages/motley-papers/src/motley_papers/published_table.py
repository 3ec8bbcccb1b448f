"""Somebody's published table as one TOML file: the numbers as printed, the protocol that made them,
and where the code is known to differ (docs/referee-a-table.md).

>>> text = '''
... method | accuracy    | loss
... FedAvg | .70 ± .02   | 1.5
... Ditto  | .80 (.01)   | -
... '''
>>> numbers = printed_numbers(text)
>>> numbers["FedAvg", "accuracy"].mean, numbers["FedAvg", "accuracy"].deviation
(0.7, 0.02)
>>> numbers["FedAvg", "loss"].rounding, ("Ditto", "loss") in numbers
(0.05, False)
"""

from __future__ import annotations

import importlib.util
import inspect
import itertools
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from math import inf, isinf, nan
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from motley.core.components import imports_allowed
from motley.core.errors import ConfigError, suggest
from motley.core.files import no_file
from motley.core.own_code import in_one_line, place_in_own_code
from motley.experiments import document
from motley.experiments.config import Experiment
from motley.experiments.error_messages import config_error
from motley.tasks.task import Task
from motley_papers.measuring import measure_of
from motley_papers.packaged import table_names as names
from motley_papers.recipe_claim import RecipeTable

Spread = Literal["deviation", "population_deviation", "standard_error", "interval"]
"""What stands behind a printed ±."""
Settings = dict[str, Any]
"""Key paths -> values, as in a grid; ``{seed}`` in a text is the run's seed."""
_SIZE = r"(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_NUMBER = rf"[-+]?{_SIZE}"
_CELL = re.compile(
    rf"({_NUMBER})\s*(?:(?:±|\+/?-|_\s*±?|\^\s*±)\s*({_SIZE})|\(\s*±?\s*({_SIZE})\s*\))?"
)
_OWN = ("measure", "unit")
"""Keys of a column that set nothing in its runs."""
_SETTINGS: dict[str, tuple[tuple[type, ...], str]] = {
    "method": (
        (Mapping,),
        'what the row sets, e.g. { algorithm = { name = "fedprox", mu = 0.01 } }, or {}',
    ),
    "columns": (
        (Mapping, str),
        'a measure, e.g. "final"; keys of the table itself stand above [base]',
    ),
}
"""Table of a file -> what its entries may be, and in words."""
_NOT_PRINTED = ("", "-", "--", "–", "—", "n/a")
_MARKS = re.compile(
    r"\\(?:textbf|mathbf|bf(?:series)?|bm|underline)(?![a-z])"
    r"|\\(?:tiny|scriptsize|footnotesize|small)(?![a-z])|\\pm"
    r"|\\[,;:!]|(?<=\S)~|[\\*%${}]|−"
)
"""What a page writes around a number: bold, size, percent, spaces, LaTeX."""
_RULES = (
    r"\\(?:h(?:dash)?line|(?:top|mid|bottom)rule|c(?:line|midrule(?:\([lr]+\))?)\{[^{}]*\})"
    r"|^\s*(?:%|\\(?:begin|end)\{).*"
)
"""What LaTeX writes between the lines of a table, comments, and where it begins and ends."""
_BOLD = re.compile(r"\*\*|\\textbf\{([^{}]*)\}")
"""What it writes around the name of a row or column."""


@dataclass(frozen=True)
class PrintedNumber:
    """A number as printed.

    Parameters
    ----------
    mean: over the published runs.
    deviation: standard deviation over them; NaN where none was printed.
    rounding: half a unit of the last printed digit of the mean.
    text: as printed, without bold, percent signs and LaTeX.
    per_spread: what the printed spread was multiplied by to be the standard deviation.
    """

    mean: float
    deviation: float
    rounding: float
    text: str
    per_spread: float = 1.0

    @property
    def decimals(self) -> int:
        """Digits after the point of the printed mean."""
        match = re.match(_NUMBER, self.text)
        return 0 if match is None else max(0, _places(match[0]))

    @property
    def spread_decimals(self) -> int:
        """Digits after the point of the printed spread; of the mean, where the text has none.

        >>> PrintedNumber.read("61.99 ± 1.4").spread_decimals
        1
        """
        match = _CELL.fullmatch(self.text)
        spread = next((number for number in match.groups()[1:] if number), None) if match else None
        return self.decimals if spread is None else max(0, _places(spread))

    @property
    def spread_rounding(self) -> float:
        """Half a unit of the last digit of the printed spread, as a deviation."""
        return 0.5 * 10.0**-self.spread_decimals * self.per_spread

    @classmethod
    def read(cls, text: str) -> PrintedNumber | None:
        """Return the number of a cell, ``.7 ± .02``, ``.7 (.02)`` or ``.7``; None if it is none.

        >>> PrintedNumber.read(r"**70.1%**").text, PrintedNumber.read(r"$.7\\pm.02$").deviation
        ('70.1', 0.02)
        """
        text = _unmarked(text)
        match = _CELL.fullmatch(text)
        if match is None:
            return None
        mean, *deviations = match.groups()
        deviation = next((float(number) for number in deviations if number), nan)
        if isinf(float(mean)) or isinf(deviation):
            return None
        return cls(float(mean), deviation, 0.5 * 10.0 ** -_places(mean), text)


def _unmarked(cell: str) -> str:
    """Return a cell without what a page writes around a number."""
    return _MARKS.sub(lambda mark: {r"\pm": "±", "−": "-"}.get(mark[0], ""), cell).strip()


def _places(number: str) -> int:
    """Return how many places behind the point the last digit stands; below 0 where it stands before
    it.

    >>> _places("0.70"), _places("6.1e-1"), _places("12e3")
    (2, 2, -3)
    """
    mantissa, _, exponent = number.lower().partition("e")
    return len(mantissa.partition(".")[2]) - int(exponent or 0)


class Deviation(RecipeTable):
    """Where the code, the data or the protocol differs from what one would expect, and which cells
    that moves."""

    what: str
    """What differs, in a sentence."""
    methods: list[str] = Field(default_factory=list)
    """Rows whose numbers it moves; with ``columns`` alone: all rows."""
    columns: list[str] = Field(default_factory=list)
    """Columns whose numbers it moves; with ``methods`` alone: all columns."""

    def explains(self, method: str, column: str) -> bool:
        """Return whether it may be why a cell disagrees; one that names no cells is a remark."""
        named = bool(self.methods or self.columns)
        return named and all(
            not listed or name in listed
            for listed, name in ((self.methods, method), (self.columns, column))
        )


class PublishedTable(RecipeTable):
    """A published table as read by :func:`read`."""

    title: str
    """What the table is of."""
    url: str = ""
    """Where it can be read."""
    source: str = ""
    """The place and the commit or version of the printed numbers."""
    printed_seeds: int | None = Field(default=None, ge=1)
    """Runs behind each printed number; left out: not said, and counted as one."""
    spread: Spread = "deviation"
    """What a printed spread is: the standard deviation over the runs, divided by their number less
    one; the population's, divided by their number, as ``numpy.std`` has it; their standard error;
    or half of the mean's 95 % t interval. All but the first need ``printed_seeds``."""
    unit: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    """What a printed number is multiplied by to be in the unit of its measure: 100 where shares are
    printed and the measure is in percent. A column may have a ``unit`` of its own."""
    within: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    """The largest difference of means, in the printed unit, that a careful rerun should have."""
    matters: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """The difference, in the printed unit, that an interval must tell apart; left out: as much as
    the column's methods differ."""
    task: str | None = None
    """``module:function`` or ``file.py:function``, called with the folder of ``--data`` and the
    options; returns the task of a run. Left out: ``base`` names a task."""
    options: Settings = Field(default_factory=dict)
    """Options of the function; ``task.OPTION`` among a method's settings changes one."""
    seeds: list[int]
    """Seeds of every method's runs."""
    base: dict[str, Any]
    """The experiment that all runs start from."""
    method: dict[str, Settings]
    """Row -> settings of its runs."""
    columns: dict[str, str | Settings]
    """Column -> measure, or settings of its runs, of which ``measure`` names the measure and
    ``unit`` its unit."""
    printed: str
    """The table as printed: the first line ``method | COLUMN | ...``, then a line for each row,
    its cells ``MEAN ± DEVIATION``, ``MEAN (DEVIATION)``, ``MEAN`` or ``-``."""
    deviation: list[Deviation] = Field(default_factory=list)
    """What is known to differ, and which cells it moves."""
    minutes: float | None = None
    """Measured run time on two cores."""
    name: str = ""
    """The file's, without its suffix."""
    folder: Path | None = None
    """Where the file lies; None for a table of the package."""
    _tasks: dict[str, Task] = PrivateAttr(default_factory=dict)

    @property
    def numbers(self) -> dict[tuple[str, str], PrintedNumber]:
        """(row, column) -> the printed number."""
        return printed_numbers(self.printed)

    def measure(self, column: str) -> str:
        """Return the name of a column's measure."""
        written = self.columns[column]
        return written if isinstance(written, str) else str(written["measure"])

    def column_settings(self, column: str) -> Settings:
        """Return what a column sets in its runs; empty for a measure alone."""
        written = self.columns[column]
        return (
            {} if isinstance(written, str) else {k: v for k, v in written.items() if k not in _OWN}
        )

    def unit_of(self, column: str) -> float:
        """Return what a printed number of a column is multiplied by, its own or the table's."""
        written = self.columns[column]
        return self.unit if isinstance(written, str) else float(written.get("unit", self.unit))

    def run_for(self, column: str) -> str:
        """Return the first column with the same settings, whose runs are this column's, too."""
        settings = self.column_settings(column)
        return next(name for name in self.columns if self.column_settings(name) == settings)

    def columns_run(self, method: str) -> list[str]:
        """Return the columns that a row is run for, one for each settings: those where it has a
        printed number, or all of a row without one."""
        printed = [column for row, column in self.numbers if row == method]
        return list(dict.fromkeys(map(self.run_for, printed or self.columns)))

    def check_code(self) -> None:
        """Refuse a table of one's own whose task is code, unless that may run.

        Raises
        ------
        ConfigError: it may not.
        """
        if self.task is not None and self.folder is not None and not imports_allowed():
            raise ConfigError(
                f"got {self.task!r}, which runs code of the table's author; if you trust it, say "
                "so: --allow-import at the command line, allow_import=True in Python",
                "task",
            )

    def experiment(
        self, method: str, seed: int, data: Path | None = None, column: str | None = None
    ) -> Experiment:
        """Return the experiment of one run; what ``column`` sets goes on top of what the row
        sets.

        Raises
        ------
        ConfigError: the settings are no experiment. DataError: as the task's function raises.
        """
        of_column = {} if column is None else self.column_settings(column)
        settings = _with_seed({**self.method[method], **of_column}, seed)
        options = {key: value for key, value in settings.items() if key.startswith("task.")}
        rest = {key: value for key, value in settings.items() if key not in options}
        if self.task is None:
            options, rest = {}, settings
        keys = document.set_keys(_with_seed(self.base, seed), rest, {"seed": seed})
        keys["name"] = self.name
        if self.folder is not None and imports_allowed():
            _find_beside(self.folder / self.name)
        try:
            if self.task is not None:
                changes = {key.removeprefix("task."): value for key, value in options.items()}
                keys["task"] = self._task(data, {**_with_seed(self.options, seed), **changes})
            return Experiment(**keys)
        except ConfigError as error:
            of = f", {column}" if of_column else ""
            raise ConfigError(f"{self.name}, {method}{of}: {error}") from None

    def _task(self, data: Path | None, options: Settings) -> Task:
        """Return the task of these options, made once."""
        name = repr((data, sorted(options.items())))
        if name not in self._tasks:
            function = _function(self.task or "", self.folder)
            _check_options(function, self.task or "", options)
            task = function(data, **options)
            if not isinstance(task, Task):
                raise ConfigError(
                    f"got {type(task).__name__} from {self.task}; expected a task, e.g. "
                    "motley.tasks.own_task(federation, model)",
                    "task",
                )
            self._tasks[name] = task
        return self._tasks[name]


def _with_seed(value: Any, seed: int) -> Any:
    """Return settings with the seed in place of ``{seed}``."""
    if isinstance(value, Mapping):
        return {key: _with_seed(entry, seed) for key, entry in value.items()}
    if isinstance(value, list):
        return [_with_seed(entry, seed) for entry in value]
    if value == "{seed}":
        return seed
    return value.replace("{seed}", str(seed)) if isinstance(value, str) else value


def _function(target: str, folder: Path | None) -> Callable[..., Any]:
    """Return the function of ``module:function`` or ``file.py:function``, the file beside the
    table's.

    Raises
    ------
    ConfigError: there is none.
    """
    place, _, name = target.rpartition(":")
    try:
        if place.endswith(".py"):
            module = _loaded((folder or Path()) / place)
        else:
            module = importlib.import_module(place)
        function = getattr(module, name)
    except Exception as error:  # the module's own code may raise anything
        raise ConfigError(
            f"got {target!r}, which cannot be imported ({in_one_line(error)}"
            f"{place_in_own_code(error)}); expected module:function or file.py:function",
            "task",
        ) from error
    if not callable(function):
        raise ConfigError(f"got {target!r}, which is no function", "task")
    return function  # type: ignore[no-any-return]


def _check_options(function: Callable[..., Any], target: str, options: Settings) -> None:
    """Refuse options that a table's function does not take, or lacks.

    Raises
    ------
    ConfigError: it cannot be called with the folder of the data and these options.
    """
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # of a built-in function that tells nothing
        return
    takes = list(signature.parameters)
    try:
        signature.bind(None, **options)
    except TypeError as error:
        unknown = [name for name in options if name not in takes]
        fault = (
            f"got the option {unknown[0]!r}{suggest(unknown[0], takes[1:])}"
            if unknown
            else f"it cannot be called with these options: {error}"
        )
        raise ConfigError(
            f"{fault}; {target} takes {', '.join(takes) or 'nothing'}", "options"
        ) from None


def _find_beside(path: Path) -> None:
    """Let modules beside a file be found, as in a script."""
    if (beside := str(path.parent.resolve())) not in sys.path:
        sys.path.append(beside)


@cache
def _loaded(path: Path) -> Any:
    """Import a file as a module of its own name; modules beside it are found, as in a script."""
    _find_beside(path)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"there is no {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # where classes are looked up that a worker unpickles
    spec.loader.exec_module(module)
    return module


def printed_numbers(text: str) -> dict[tuple[str, str], PrintedNumber]:
    """Return (row, column) -> number of a table as printed.

    Raises
    ------
    ConfigError: a cell is no number, or a line has too few or too many.
    """
    lines = [
        line.strip().removeprefix("|").removesuffix("|")
        for line in _of_latex(text).strip().splitlines()
    ]
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if set(line) - set("-|: ")]
    head, *body = rows or [[]]
    head = [_BOLD.sub(r"\1", name) for name in head]
    body = [[_BOLD.sub(r"\1", row[0]), *row[1:]] for row in body]
    for kind, listed in (("column", head[1:]), ("row", [row[0] for row in body])):
        for name in listed:
            if listed.count(name) > 1:
                raise ConfigError(
                    f"got the {kind} {name!r} twice; expected a name of its own for each", "printed"
                )
    out = {}
    for row in body:
        if len(row) != len(head):
            raise ConfigError(
                f"got {' | '.join(row)!r}, {len(row)} cells; expected {len(head)}, as the first "
                "line has",
                "printed",
            )
        for column, cell in zip(head[1:], row[1:], strict=True):
            if _unmarked(cell).lower() in _NOT_PRINTED:
                continue
            number = PrintedNumber.read(cell)
            if number is None:
                raise ConfigError(
                    f"got {cell!r} at {row[0]}, {column}; expected MEAN ± DEVIATION, MEAN "
                    "(DEVIATION), MEAN or -",
                    "printed",
                )
            out[row[0], column] = number
    return out


def _of_latex(text: str) -> str:
    r"""Return the lines of a LaTeX table with ``|`` between the cells, without rules and line ends;
    another table as it is.

    >>> _of_latex("\\begin{tabular}{l|r}\nm & a \\\\ \\hline\nx & 1 \\\\").split()
    ['m', '|', 'a', 'x', '|', '1']
    """
    plain = re.sub(_RULES, "", text, flags=re.MULTILINE)
    if "|" in plain or "&" not in plain:
        return text
    return re.sub(r"(?<!\\)&", "|", re.sub(r"\\\\(?:\[[^\]]*\])?", "\n", plain))


def read(name: str | Path) -> PublishedTable:
    """Return a table of the package by its name, or one of your own by its file.

    Raises
    ------
    ConfigError: there is no such table, or it is inconsistent.
    """
    if str(name) in names():
        inside = resources.files("motley_papers") / "tables" / f"{name}.toml"
        text, place = inside.read_text(encoding="utf-8"), {"name": str(name)}
    else:
        path = Path(name)
        if (reason := no_file(path)) is not None:
            known = ", ".join(names())
            raise ConfigError(
                f"{str(name)!r} {reason}{suggest(str(name), names())}; expected a file of a table, "
                f"or one of: {known}"
            )
        text = document.read_text(path, "the text of a table")
        place = {"name": path.stem, "folder": path.parent}  # type: ignore[dict-item]
    keys = document.parse(text, f"{place['name']}.toml")
    if "stop" in keys and "base" not in keys:
        raise ConfigError(
            f"{name} is an experiment; expected a published table. motley run {name} runs it"
        )
    try:
        _check_settings(keys)
        table = PublishedTable.model_validate({**keys, **place})
    except ConfigError as error:
        raise ConfigError(f"{place['name']}.toml: {error}") from None
    except ValidationError as error:
        raise ConfigError(f"{place['name']}.toml: {config_error(error, PublishedTable)}") from None
    for problem in itertools.islice(_problems(table), 1):
        raise ConfigError(f"{place['name']}.toml: {problem}")
    return table


def _check_settings(keys: Mapping[str, Any]) -> None:
    """Refuse rows and columns that are no settings, and settings that the table makes itself.

    Raises
    ------
    ConfigError: there is one.
    """
    _check_keys("base", keys.get("base"))
    for kind, (types, expected) in _SETTINGS.items():
        listed = keys.get(kind)
        for name, settings in listed.items() if isinstance(listed, Mapping) else ():
            if not isinstance(settings, types):
                raise ConfigError(f"got {settings!r}; expected {expected}", f"{kind}.{name}")
            _check_keys(f"{kind}.{name}", settings)
    if keys.get("options") and "task" not in keys:
        raise ConfigError(
            'they are those of task, which is missing; write task = "my_data.py:make"', "options"
        )


def _check_keys(place: str, settings: object) -> None:
    for key in ("seed", "grid"):
        if isinstance(settings, Mapping) and key in settings:
            raise ConfigError(
                f"got {settings[key]!r}; the table's seeds are run of all rows and columns: write "
                "seeds = [0, 1, 2] above [base], and a row for each method",
                f"{place}.{key}",
            )


def _check_unit(column: str, written: str | Settings) -> None:
    """Refuse a unit of a column that is no number above 0.

    Raises
    ------
    ConfigError: it is none.
    """
    unit = written.get("unit", 1.0) if isinstance(written, Mapping) else 1.0
    if isinstance(unit, bool) or not isinstance(unit, int | float) or not 0 < unit < inf:
        raise ConfigError(
            f"got {unit!r}; expected a number above 0, e.g. 100 where shares are printed and the "
            "measure is in percent",
            f"columns.{column}.unit",
        )


def _problems(table: PublishedTable) -> Iterator[str]:
    """Yield what is wrong with a table although every key has its type."""
    try:
        numbers = table.numbers
        for column, written in table.columns.items():
            if not isinstance(written, str) and not isinstance(written.get("measure"), str):
                raise ConfigError(
                    f"got {dict(written)}; expected settings and the measure, e.g. "
                    '{ measure = "final", partition = "shards" }',
                    f"columns.{column}",
                )
            measure_of(table.measure(column))
            _check_unit(column, written)
    except ConfigError as error:
        yield str(error)
        return
    if not numbers:
        yield (
            "printed has no number; expected the line method | COLUMN | ..., then a line for each "
            "method"
        )
    if not table.seeds:
        yield "seeds is empty; expected at least one"
    for seed in table.seeds:
        if table.seeds.count(seed) > 1:
            yield f"seeds has {seed} twice; a run counts once"
    if table.spread != "deviation" and (table.printed_seeds or 1) < 2:
        yield (
            f"spread: got {table.spread!r}, of which the deviation is worked out from the runs "
            "behind a number; write printed_seeds, two or more"
        )
    moved = table.deviation
    for kind, known, used, where in (
        ("method", table.method, [row for row, _ in numbers], "printed"),
        ("columns", table.columns, [column for _, column in numbers], "printed"),
        ("method", table.method, [row for d in moved for row in d.methods], "a deviation"),
        ("columns", table.columns, [column for d in moved for column in d.columns], "a deviation"),
    ):
        for name in dict.fromkeys(used):
            if name not in known:
                yield f"{where} has {name!r}{suggest(name, known)}, and [{kind}] has no such key"
