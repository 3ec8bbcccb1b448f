"""A recipe: the tables, figures and claims of one paper, written as experiments. It is a folder
with these files::

    recipe.toml     what every run shares, the exhibits (tables and figures) as axes of settings,
                    scales, claims
    expected.csv    exhibit, cell, measure, value, spread: what the paper printed
    notes.md        what the paper leaves open, and what was chosen; then, under
                    ``**The runs kept with the recipe**``, what is said of these alone
    result.md       what was found, in a paragraph whose numbers are filled in from cells
    tuned.toml      settings that were tuned, ``[AXIS.VALUE]``: they go on top of those of that
                    value in ``recipe.toml``
    measured/       tables and reports that were made here, a folder for each scale; those of the
                    package's recipes lie in ``benchmarks/measured/recipes`` of a checkout

An *exhibit* is a table or a figure. Its *axes* are spanned by named settings
(``method.random = { selector = "uniform" }``), a *cell* is one value of each axis, and every cell
is run with every seed. Exhibits that come to the same experiment share the run.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from importlib import resources
from math import isfinite
from pathlib import Path
from typing import Any, Literal, get_args

from pydantic import Field, PrivateAttr, ValidationError

from motley.core.components import imports
from motley.core.errors import ConfigError, suggest
from motley.core.files import no_file
from motley.experiments import document
from motley.experiments.config import Experiment
from motley.experiments.error_messages import config_error
from motley.results.measures import AXES
from motley_data.named_data import download_mb
from motley_papers.exhibit_pictures import AXES_OF, BY_MEASURE, PICTURES
from motley_papers.measuring import measure_of
from motley_papers.packaged import recipe_names as names
from motley_papers.packaged import table_names
from motley_papers.recipe_claim import Claim, Place, Protocol, RecipeTable
from motley_papers.tuned import with_tuned

__all__ = [
    "KEPT",
    "MEASURED_ELSEWHERE",
    "Cell",
    "Claim",
    "Exhibit",
    "RankPlan",
    "Recipe",
    "Scale",
    "Scaled",
    "names",
    "read",
]

Scale = Literal["smoke", "small", "paper"]
_FILES = ("recipe.toml", "expected.csv", "notes.md", "result.md", "tuned.toml")
MEASURED = "benchmarks/measured"
RECIPES = f"{MEASURED}/recipes"
MEASURED_ELSEWHERE = (
    f"numbers measured earlier lie in {RECIPES} of a checkout of Motley, and are read where the "
    "package is installed from there with: pip install --editable ./packages/motley-papers"
)
"""Where a checkout has what was measured with the package's recipes, and what is told where it is
not."""
KEPT = "**The runs kept with the recipe**"
"""The line of ``notes.md`` after which it speaks of the runs that are kept, and of no others."""
OWN = "own"
ELSEWHERE = "elsewhere"
"""Values of a tuned axis: what the setting chose itself, and what the others chose."""
SCALES: tuple[Scale, ...] = get_args(Scale)
_UNSAID: dict[Scale, str] = {
    "smoke": "other data: a smoke run, whose numbers mean nothing",
    "small": "reduced: see the notes",
    "paper": "whole",
}
"""The protocol of a scale that says none."""
Settings = dict[str, Any]
"""Key paths of the experiment file -> values, as in a grid."""


class Scaled(RecipeTable):
    """What a scale changes."""

    set: Settings = Field(default_factory=dict)
    """Settings of all cells; they win over those of the axes."""
    axes: dict[str, dict[str, Settings]] = Field(default_factory=dict)
    """Axis -> value -> further settings of its cells, with the last word."""
    seeds: list[int] | None = None
    """Seeds of every cell."""
    only: Place = Field(default_factory=dict)
    """Axis -> the values that are run; all others wait for a larger scale."""
    skip: str | None = None
    """Why the exhibit is not run at this scale."""
    looks: list[int] = Field(default_factory=list)
    """Numbers of seeds at which results were seen before more were added, rising; the last is the
    number there is now."""
    protocol: str = ""
    """How much of the paper's protocol this is: ``whole``, ``reduced: WHAT`` or
    ``other data: WHAT``."""
    minutes: float | None = None
    """Measured run time on two cores."""
    note: str = ""
    """What differs from the paper, for the reader; no number of seeds, which the tables count."""
    kept: str = ""
    """What is said of the runs that are kept with the recipe, and of no others: the machine, looks
    at results."""


class RankPlan(RecipeTable):
    """Which axis of an exhibit is ranked, over which other (:mod:`motley_papers.mean_ranks`)."""

    of: str
    """The axis whose values are ranked."""
    over: str
    """The axis in each of whose values they are ranked."""
    against: str
    """The value that all others are compared with."""
    groups: dict[str, list[str]]
    """Title -> values of ``of``; each of them once."""
    excused: dict[str, str] = Field(default_factory=dict)
    """``KIND.NAME`` of a component that is not among the values -> why."""


class PrintedCell(RecipeTable):
    """A cell of an exhibit for which the paper printed a number."""

    exhibit: str
    cell: str


class Exhibit(RecipeTable):
    """A table or a figure."""

    name: str
    """``table 3``, ``figure 4a``, ``lemma A.4``."""
    title: str
    """Description of what the exhibit shows."""
    like: str | None = None
    """Another exhibit, whose settings, axes, target, scales and ranks hold where this one gives
    none."""
    set: Settings = Field(default_factory=dict)
    """Settings of all its cells."""
    target: float | None = None
    """Target of the measures ``*_to_target``; an axis value may give its own under the same key."""
    axes: dict[str, dict[str, Settings]] = Field(default_factory=dict)
    """Axis -> value -> settings."""
    measures: list[str] = Field(default_factory=list)
    """Measures in the table; none for pictures alone."""
    pictures: list[str] = Field(default_factory=list)
    """Pictures drawn of its runs."""
    ranks: RankPlan | None = None
    """Rank the values of an axis by each of the measures."""
    explains: dict[str, PrintedCell] = Field(default_factory=dict)
    """Cell -> the printed cell of another exhibit from which it is to differ in one thing, which
    explains that one where it is outside and this is inside; that it is one thing is not checked
    (:func:`motley_papers.printed_cells.explanations`)."""
    without: dict[str, Place] = Field(default_factory=dict)
    """Why -> cells that are not run."""
    note: str = ""
    """A note for the reader, which holds at the scales above ``smoke``."""
    protocol: str = ""
    """How much of the paper's protocol it is at scales that do not say so themselves."""
    printed_seeds: int | None = None
    """Runs behind each of its printed numbers; left out: as many as the recipe says."""
    scale: dict[Scale, Scaled] = Field(default_factory=dict)
    """What a scale changes."""

    def cells(self, scale: Scale) -> list[Cell]:
        """Return the cells that are run at a scale, the first axis slowest; none where the exhibit
        is skipped."""
        at = self.scale.get(scale, Scaled())
        if at.skip is not None:
            return []
        values = [
            [v for v in axis if v in at.only.get(name, axis)] for name, axis in self.axes.items()
        ]
        every = [Cell(self, combination) for combination in itertools.product(*values)]
        return [
            c
            for c in every
            if not any(
                all(c.at[a] in values for a, values in place.items())
                for place in self.without.values()
            )
        ]

    def all_cells(self) -> list[Cell]:
        """Return the cells that are run at any scale."""
        return self.model_copy(update={"scale": {}}).cells("paper")

    def tuned(self, axis: str | None) -> Exhibit:
        """Return the exhibit with ``own`` and ``elsewhere`` as the values of an axis; the exhibit
        itself for None."""
        if axis is None:
            return self
        return self.model_copy(update={"axes": {**self.axes, axis: {OWN: {}, ELSEWHERE: {}}}})


@dataclass(frozen=True, eq=False)
class Cell:
    """One value of each axis of an exhibit."""

    exhibit: Exhibit
    values: tuple[str, ...]

    @property
    def name(self) -> str:
        """The cell's values, ``noniid / random``: the column ``cell`` of ``expected.csv``."""
        return " / ".join(self.values)

    @property
    def at(self) -> dict[str, str]:
        """Axis -> value."""
        return dict(zip(self.exhibit.axes, self.values, strict=True))

    def has(self, values: Place) -> bool:
        """Return whether it has one of these values of each axis that its exhibit has."""
        return all(self.at[axis] in allowed for axis, allowed in values.items() if axis in self.at)

    @cached_property
    def settings(self) -> list[Settings]:
        """The settings of the exhibit and of each axis value; later ones win."""
        return [
            self.exhibit.set,
            *(
                axis[value]
                for axis, value in zip(self.exhibit.axes.values(), self.values, strict=True)
            ),
        ]

    @property
    def target(self) -> float | None:
        """Target of the measures ``*_to_target``."""
        return next(
            (s["target"] for s in reversed(self.settings) if "target" in s), self.exhibit.target
        )


class Recipe(RecipeTable):
    """A recipe as read by :func:`read`."""

    title: str
    """The paper."""
    url: str = ""
    """Where it can be read."""
    spread: str = "spread as printed"
    """What the column ``spread`` of ``expected.csv`` is."""
    spread_deviations: float = 1.0
    """How many standard deviations over seeds that is; NaN where the paper does not say."""
    printed_seeds: int | None = None
    """Runs behind each printed number; left out: not said, and counted as one."""
    base: dict[str, Any]
    """The experiment all runs start from."""
    scale: dict[Scale, Scaled]
    """What a scale changes in every exhibit, under what the exhibit itself says."""
    exhibit: list[Exhibit]
    """Tables and figures."""
    claim: list[Claim] = Field(default_factory=list)
    """Claims that are tested."""
    name: str = ""
    """The folder's."""
    expected: dict[tuple[str, str, str], tuple[float, float]] = Field(default_factory=dict)
    """(exhibit, cell, measure) -> published value and spread (NaN where none was printed)."""
    decimals: dict[tuple[str, str, str], int] = Field(default_factory=dict)
    """(exhibit, cell, measure) -> digits after the point of the published value."""
    notes: str = ""
    """The text of ``notes.md``."""
    result: str = ""
    """The text of ``result.md``, whose numbers are filled in from cells."""
    folder: Path | None = None
    """The folder the recipe was read from; None where it does not lie on the disk."""
    measured: Path | None = None
    """The folder of the numbers that were measured with it, which has one for each scale; None for
    a recipe of the package outside a checkout (:data:`MEASURED_ELSEWHERE`)."""
    imports: bool = False
    """Whether it may name classes, ``module:Class``: one of the package, or one that is trusted."""
    _made: dict[str, Experiment] = PrivateAttr(default_factory=dict)

    def notes_apart(self) -> tuple[str, str]:
        """Return what the notes say of the paper, and what they say of the runs that are kept with
        the recipe."""
        about_paper, _, about_kept = self.notes.partition(KEPT)
        return about_paper.strip(), about_kept.strip()

    def named(self, name: str) -> Exhibit:
        """Return the exhibit of that name."""
        return next(exhibit for exhibit in self.exhibit if exhibit.name == name)

    def choose(self, wanted: Sequence[str] = ()) -> list[Exhibit]:
        """Return the exhibits of these names (``table 4`` means ``table 4a``, too); all of them for
        none.

        Raises
        ------
        ConfigError: a name that no exhibit has.
        """
        if not wanted:
            return list(self.exhibit)
        chosen = []
        for name in wanted:
            begun = [e for e in self.exhibit if name and e.name.startswith(name)]
            matches = [e for e in begun if e.name == name or not e.name[len(name)].isdigit()]
            if not matches:
                names = [e.name for e in self.exhibit]
                label = name or "exhibit without a name"
                raise ConfigError(
                    f"{self.name} has no {label}{suggest(name, names)}; it has: {'; '.join(names)}"
                )
            chosen += [e for e in matches if e not in chosen]
        return chosen

    def seeds(self, exhibit: Exhibit, scale: Scale) -> list[int]:
        """Return the seeds of every cell of an exhibit at a scale."""
        own = exhibit.scale.get(scale, Scaled()).seeds
        return own if own is not None else self.scale[scale].seeds or [0]

    def protocol(
        self, exhibit: Exhibit | None, scale: Scale, claim: Claim | None = None
    ) -> Protocol:
        """Return how much of the paper's protocol a scale is, an exhibit at it, or a claim's test:
        the most special that is said. Of ``smoke``, whose data stand for all others, only what is
        said of ``smoke`` itself counts."""
        at = exhibit.scale.get(scale, Scaled()).protocol if exhibit is not None else ""
        texts = [at, self.scale[scale].protocol]
        if scale != "smoke":
            in_general = exhibit.protocol if exhibit is not None else ""
            texts = [claim.protocol if claim is not None else "", at, in_general, texts[-1]]
        return Protocol.read(next((text for text in texts if text), _UNSAID[scale]))

    def printed(self, exhibit: Exhibit, measure: str) -> dict[tuple[str, ...], tuple[float, float]]:
        """Return what the paper printed for an exhibit, or for the one it is like: cell -> value
        and spread."""
        out: dict[tuple[str, ...], tuple[float, float]] = {}
        for cell in itertools.product(*exhibit.axes.values()):
            for name in (exhibit.name, exhibit.like or exhibit.name):
                number = self.expected.get((name, " / ".join(cell), measure))
                if number is not None:
                    out.setdefault(cell, number)
        return out

    def measures(self, exhibit: Exhibit) -> list[str]:
        """Return the measures that an exhibit shows, then those that claims about it look at beside
        them."""
        claims = (claim for claim in self.claim if claim.exhibit == exhibit.name)
        return list(
            dict.fromkeys(
                [
                    *exhibit.measures,
                    *(name for claim in claims for name in claim.measures(exhibit.measures)),
                ]
            )
        )

    def experiment(
        self, cell: Cell, scale: Scale, seed: int, overrides: Iterable[str] = ()
    ) -> Experiment:
        """Return the experiment that is run for a cell. Later settings win: base, exhibit, axes in
        order, the scale's, the exhibit's at that scale, its axes at that scale, ``overrides`` (as
        ``--set``).

        Raises
        ------
        ConfigError: the settings are no experiment.
        """
        try:
            keys = self._keys(cell, scale, {"seed": seed}, document.parse_settings(overrides))
            name = json.dumps(keys, sort_keys=True, default=repr)
            if name not in self._made:  # exhibits share experiments
                with imports(self.imports):
                    self._made[name] = Experiment(**keys)
            return self._made[name]
        except ConfigError as error:
            raise ConfigError(f"{self.name}, {cell.exhibit.name}, {cell.name}: {error}") from None

    def _keys(
        self, cell: Cell, scale: Scale, *more: Mapping[str, Any], only: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Return the settings of a cell; ``only``: these keys of the experiment and what is in
        them."""

        def wanted(settings: Mapping[str, Any], but: str = "") -> dict[str, Any]:
            return {
                key: value
                for key, value in settings.items()
                if key != but and (not only or key.partition(".")[0] in only)
            }

        own = cell.exhibit.scale.get(scale, Scaled())
        last = [
            own.axes[axis][value]
            for axis, value in cell.at.items()
            if value in own.axes.get(axis, {})
        ]
        settings = (*cell.settings, self.scale[scale].set, own.set, *last)
        return document.set_keys(
            wanted({"name": f"{self.name}-{scale}", **self.base}),
            *(wanted(changes, but="target") for changes in settings),
            *more,
        )

    def data(self, scale: Scale) -> dict[str, float]:
        """Return the public data sets that the cells of a scale read, and the sizes of their
        downloads in units of 10^6 bytes."""
        sizes: dict[str, float] = {}
        for exhibit in self.exhibit:
            for cell in exhibit.cells(scale):
                keys = self._keys(cell, scale, only=("task", "public"))
                for table in (keys.get("task"), keys.get("public")):
                    name = str(table.get("data")) if isinstance(table, Mapping) else ""
                    size = download_mb(name)
                    if size is not None:
                        sizes[name] = size
        return sizes


def read(name: str | Path) -> Recipe:
    """Return a recipe of the package by its name, or one of your own by its folder.

    Raises
    ------
    ConfigError: there is no such recipe, or it is inconsistent.

    Example
    -------
    ``read("fedcvr_bolt").named("table 3").measures``
    """
    folder, texts, where = _texts(name)
    keys = document.parse(texts.pop("recipe.toml"), f"{folder}/recipe.toml")
    files = {
        "name": folder,
        "expected": _expected(texts),
        "decimals": _decimals(texts),
        "notes": texts.get("notes.md", ""),
        "folder": where,
        "imports": str(name) in names(),
        "measured": _measured(folder) if str(name) in names() else Path(name) / "measured",
    }
    files["result"] = texts.get("result.md", "")
    try:
        recipe = Recipe.model_validate(
            {
                **with_tuned(_expanded(keys), f"{folder}/tuned.toml", texts.get("tuned.toml", "")),
                **files,
            }
        )
    except ValidationError as error:
        raise ConfigError(f"{folder}/recipe.toml: {config_error(error, Recipe)}") from None
    for problem in _problems(recipe):
        raise ConfigError(f"{folder}: {problem}")
    return recipe


def chosen_seeds(seeds: Iterable[int] | None) -> list[int] | None:
    """Return the seeds that somebody gives in place of those planned; None where nobody does.

    Raises
    ------
    ConfigError: an empty list.
    """
    if seeds is None:
        return None
    numbers = list(seeds)
    if not numbers:
        raise ConfigError("got no values; give at least one, or leave it out", "seeds")
    return numbers


def measured_in(name: str) -> Path | None:
    """Return the folder of ``benchmarks/measured`` with this name; None outside a checkout."""
    measured = Path(__file__).resolve().parents[4] / MEASURED
    return measured / name if measured.is_dir() else None


def _measured(name: str) -> Path | None:
    """Return the folder of what was measured with a recipe of the package; None outside a
    checkout."""
    folder = measured_in("recipes")
    return None if folder is None else folder / name


def _texts(name: str | Path) -> tuple[str, dict[str, str], Path | None]:
    """Return the name of a recipe's folder, the texts of its files, and the folder, where it lies
    on the disk."""
    if str(name) in names():
        inside = resources.files("motley_papers") / str(name)
        texts = {
            file: (inside / file).read_text(encoding="utf-8")
            for file in _FILES
            if (inside / file).is_file()
        }
        return str(name), texts, inside if isinstance(inside, Path) else None
    folder = Path(name)
    if no_file(folder / "recipe.toml") is not None:
        every = [*names(), *table_names()]
        table = Path(f"{folder}.toml")
        if no_file(table) is None:
            raise ConfigError(f"there is no recipe {str(name)!r}; the file of a table is {table}")
        raise ConfigError(
            f"there is no recipe {str(name)!r}{suggest(str(name), every)}; expected one of: "
            f"{', '.join(every)}, a folder with a recipe.toml, or the file of a table"
        )
    there = [file for file in _FILES if no_file(folder / file) != "does not exist"]
    return (
        folder.resolve().name,
        {file: document.read_text(folder / file, "the text of a recipe") for file in there},
        folder,
    )


def _expanded(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys with exhibits that are ``like`` another written out."""
    expanded: dict[str, dict[str, Any]] = {}
    if not isinstance(keys.get("exhibit", []), list) or not all(
        map(_has_shape, keys.get("exhibit", []))
    ):
        return keys  # which is refused, with the key
    for exhibit in keys.get("exhibit", []):
        model = expanded.get(exhibit.get("like", ""), {})
        taken = {key: model[key] for key in ("target", "scale", "ranks") if key in model}
        axes = {**model.get("axes", {}), **exhibit.get("axes", {})}
        over = {
            **taken,
            **exhibit,
            "axes": axes,
            "set": {**model.get("set", {}), **exhibit.get("set", {})},
        }
        expanded[exhibit.get("name", "")] = over
    if len(expanded) == len(keys.get("exhibit", [])):
        return {**keys, "exhibit": list(expanded.values())}
    return keys


def _has_shape(exhibit: Any) -> bool:
    kinds = {"name": str, "like": str, "axes": dict, "set": dict}
    return isinstance(exhibit, dict) and all(
        isinstance(exhibit[key], kind) for key, kind in kinds.items() if key in exhibit
    )


def _expected(texts: Mapping[str, str]) -> dict[tuple[str, str, str], tuple[float, float]]:
    out: dict[tuple[str, str, str], tuple[float, float]] = {}
    for row in _rows(texts.get("expected.csv", "")):
        try:
            printed = float(row["value"]), float(row["spread"] or "nan")
            place = row["exhibit"], row["cell"], row["measure"]
            if not isfinite(printed[0]):
                raise ValueError
        except (KeyError, TypeError, ValueError) as error:
            message = (
                f"expected.csv: got {dict(row)}; expected the columns exhibit, cell, "
                "measure, value (a number) and spread"
            )
            raise ConfigError(f"{message} (a number or nothing)") from error
        if place in out:
            raise ConfigError(
                f"expected.csv has two values of {', '.join(place)}: {out[place][0]:g} and "
                f"{printed[0]:g}; expected one"
            )
        out[place] = printed
    return out


def _decimals(texts: Mapping[str, str]) -> dict[tuple[str, str, str], int]:
    return {
        (row["exhibit"], row["cell"], row["measure"]): max(
            0, -int(Decimal(row["value"]).as_tuple().exponent)
        )
        for row in _rows(texts.get("expected.csv", ""))
    }


def _rows(text: str) -> Iterator[dict[str, str]]:
    try:
        yield from csv.DictReader(io.StringIO(text))
    except csv.Error as error:
        raise ConfigError(f"expected.csv is no CSV file ({error})") from None


def _problems(recipe: Recipe) -> Iterator[str]:
    """Yield what is wrong with a recipe although every key has its type."""
    exhibits = {exhibit.name: exhibit for exhibit in recipe.exhibit}
    if len(exhibits) < len(recipe.exhibit):
        yield "two exhibits have the same name"
    texts = [claim.text for claim in recipe.claim]
    yield from (
        f"two claims have the text {text!r}; expected one of its own for each, by which verdicts "
        "name them"
        for text in sorted({text for text in texts if texts.count(text) > 1})
    )
    yield from _number_problems(recipe)
    yield from _setting_problems(recipe)
    yield from (f"scale {scale} is missing" for scale in SCALES if scale not in recipe.scale)
    for exhibit in recipe.exhibit:
        yield from _exhibit_problems(exhibit, exhibits)
    for claim in recipe.claim:
        yield from _claim_problems(claim, exhibits)
    yield from _protocol_problems(recipe)
    cells = {(e.name, cell.name) for e in recipe.exhibit for cell in e.all_cells()}
    yield from _explanation_problems(recipe, cells)
    for name, cell, measure in recipe.expected:
        if (name, cell) not in cells:
            yield f"expected.csv has {name}, {cell}, which is no cell"
        elif measure not in exhibits[name].measures:
            yield f"expected.csv has the measure {measure} of {name}, which does not show it"


def _number_problems(recipe: Recipe) -> Iterator[str]:
    """Yield the numbers of runs, of deviations and of seeds that are none."""
    runs = [("the recipe", recipe.printed_seeds)]
    runs += [(exhibit.name, exhibit.printed_seeds) for exhibit in recipe.exhibit]
    for name, count in runs:
        if count is not None and count < 1:
            yield f"{name}: got printed_seeds = {count}; expected at least 1, or none"
    if recipe.spread_deviations <= 0:
        yield (
            f"got spread_deviations = {recipe.spread_deviations:g}; expected a number above 0, or "
            "nan where it is not known"
        )
    for name, scaled in _scale_tables(recipe):
        seeds = scaled.seeds
        if seeds is not None and (not seeds or len({*seeds}) < len(seeds)):
            yield f"{name}: got the seeds {seeds}; expected at least one, and each once"


def _setting_problems(recipe: Recipe) -> Iterator[str]:
    """Yield the keys of settings that no run would have, and what only an exhibit's scale can
    say."""
    for scale, scaled in recipe.scale.items():
        for key in ("only", "axes", "skip"):
            if getattr(scaled, key):
                yield (
                    f"scale {scale}: got {key}, which an exhibit says of itself; write it in its "
                    f"table [exhibit.scale.{scale}]"
                )
    scaled_tables = _scale_tables(recipe)
    last = [(name, scaled.set) for name, scaled in scaled_tables]
    last += [(name, s) for name, scaled in scaled_tables for s in _of_axes(scaled.axes)]
    for name, settings in last:
        if "target" in settings:
            yield f"{name}: got a target; write it in the exhibit or in the values of its axes"
    first = [(e.name, settings) for e in recipe.exhibit for settings in (e.set, *_of_axes(e.axes))]
    for name, settings in first:
        target = settings.get("target", 0.0)
        if isinstance(target, bool) or not isinstance(target, int | float):
            yield f"{name}: got target = {target!r}; expected a number"
    for name, settings in [("base", recipe.base), *first, *last]:
        for key in ("seed", "grid"):
            if key in settings:
                yield (
                    f"{name}: got {key}, which a recipe has in another form: seeds = [0, 1, 2] of "
                    "a scale, and axes of an exhibit; leave it out"
                )


def _of_axes(axes: Mapping[str, Mapping[str, Settings]]) -> list[Settings]:
    return [settings for values in axes.values() for settings in values.values()]


def _scale_tables(recipe: Recipe) -> list[tuple[str, Scaled]]:
    """Return the tables of scales, of all exhibits and of each, with their names."""
    return [
        *((f"scale {name}", scaled) for name, scaled in recipe.scale.items()),
        *(
            (f"{exhibit.name} at {name}", scaled)
            for exhibit in recipe.exhibit
            for name, scaled in exhibit.scale.items()
        ),
    ]


def _explanation_problems(recipe: Recipe, cells: set[tuple[str, str]]) -> Iterator[str]:
    """Yield the cells of ``explains`` that are none, or for which nothing is printed."""
    printed = {(exhibit, cell) for exhibit, cell, _ in recipe.expected}
    for exhibit in recipe.exhibit:
        for name, explained in exhibit.explains.items():
            if (exhibit.name, name) not in cells:
                yield f"{exhibit.name}: explains: got {name!r}, which is no cell of it"
            elif (explained.exhibit, explained.cell) not in printed:
                yield (
                    f"{exhibit.name}: explains: expected.csv has no number of "
                    f"{explained.exhibit}, {explained.cell}"
                )


def _protocol_problems(recipe: Recipe) -> Iterator[str]:
    """Yield the protocols that are none, and looks that do not rise or do not end at the number of
    seeds."""
    tables = _scale_tables(recipe)
    protocols = [(name, scaled.protocol) for name, scaled in tables]
    protocols += [(exhibit.name, exhibit.protocol) for exhibit in recipe.exhibit]
    protocols += [(f"the claim {claim.text!r}", claim.protocol) for claim in recipe.claim]
    for name, text in protocols:
        if text and Protocol.read(text).problem:
            yield (
                f"{name}: got the protocol {text!r}; expected whole, theory: WHAT, reduced: WHAT "
                "or other data: WHAT"
            )
    for name, scaled in tables:
        if scaled.looks and (
            sorted({*scaled.looks}) != scaled.looks or scaled.looks[-1] != len(scaled.seeds or [])
        ):
            yield (
                f"{name}: got the looks {scaled.looks} at {len(scaled.seeds or [])} seeds; "
                "expected rising numbers up to it"
            )


def _exhibit_problems(exhibit: Exhibit, exhibits: Mapping[str, Exhibit]) -> Iterator[str]:
    names = list(exhibits)
    if exhibit.like is not None and exhibit.like not in names:
        yield f"{exhibit.name}: there is no exhibit {exhibit.like!r} to be like"
    elif exhibit.like in names[names.index(exhibit.name) :]:
        yield (
            f"{exhibit.name}: got like = {exhibit.like!r}; expected an exhibit that stands above it"
        )
    yield from _unknown_measures(exhibit.measures, exhibit.name)
    for picture in exhibit.pictures:
        kind, _, argument = picture.partition(":")
        if kind not in PICTURES:
            yield (
                f"{exhibit.name}: there is no picture {picture!r}; expected some of: "
                f"{', '.join(PICTURES)}"
            )
        elif kind in BY_MEASURE:
            yield from _unknown_measures([argument], f"{exhibit.name}: {picture}")
        elif argument and (not kind.startswith("curves") or argument not in AXES):
            yield (
                f"{exhibit.name}: there is no picture {picture!r}; only curves take an axis: "
                f"{', '.join(AXES)}"
            )
        if len(exhibit.axes) < AXES_OF.get(kind, 0):
            yield (
                f"{exhibit.name}: {picture} needs at least {AXES_OF[kind]} axes; it has "
                f"{len(exhibit.axes)}"
            )
    if exhibit.ranks is not None:
        yield from _rank_problems(exhibit, exhibit.ranks)
    for place in exhibit.without.values():
        yield from _unknown_values(exhibit, place, f"{exhibit.name}: without")
    for scaled in exhibit.scale.values():
        for place in (scaled.only, {axis: list(values) for axis, values in scaled.axes.items()}):
            yield from _unknown_values(exhibit, place, exhibit.name)


def _rank_problems(exhibit: Exhibit, ranks: RankPlan) -> Iterator[str]:
    place = {ranks.of: [ranks.against, *itertools.chain(*ranks.groups.values())], ranks.over: []}
    yield from _unknown_values(exhibit, place, f"{exhibit.name}: ranks")
    grouped = list(itertools.chain(*ranks.groups.values()))
    for value in exhibit.axes.get(ranks.of, {}):
        if grouped.count(value) != 1:
            yield (
                f"{exhibit.name}: ranks: {value!r} is in {grouped.count(value)} groups; "
                "expected one"
            )


def _claim_problems(claim: Claim, exhibits: Mapping[str, Exhibit]) -> Iterator[str]:
    if claim.exhibit not in exhibits:
        yield f"a claim speaks of {claim.exhibit!r}, which is no exhibit"
        return
    if sum(side is not None for side in (claim.higher, claim.lower, claim.below, claim.above)) != 1:
        yield f"the claim {claim.text!r} needs exactly one of: higher, lower, below or above"
    elif bool(claim.than) != (claim.below is None and claim.above is None):
        yield f"the claim {claim.text!r}: higher and lower need than, below and above go without"
    yield from _side_problems(claim)
    if claim.measure is not None:
        yield from _unknown_measures([claim.measure], f"the claim {claim.text!r}")
    elif not exhibits[claim.exhibit].measures:
        yield f"the claim {claim.text!r} needs a measure: {claim.exhibit} shows none"
    exhibit = exhibits[claim.exhibit]
    if claim.tuned is not None and claim.tuned not in exhibit.axes:
        yield (
            f"the claim {claim.text!r}: {exhibit.name} has no axis {claim.tuned!r} to tune; it "
            f"has: {', '.join(exhibit.axes)}"
        )
        return
    for place in (claim.where, claim.higher or {}, claim.lower or {}, *claim.than):
        yield from _unknown_values(exhibit.tuned(claim.tuned), place, f"the claim {claim.text!r}")


def _side_problems(claim: Claim) -> Iterator[str]:
    """Yield what the sides of a claim say that its test would not look at."""
    about = f"the claim {claim.text!r}"
    if claim.of == "spread" and not claim.than:
        yield f"{about}: of = 'spread' compares two sides; below and above hold a mean"
    side = claim.higher or claim.lower or {}
    if len(side.get("measure", [])) > 1:
        yield (
            f"{about}: got {len(side['measure'])} measures of one side; expected one. What holds "
            "by each measure has them under where"
        )
    if side and side in claim.than:
        yield f"{about}: both sides are the same cells"
    for axis in claim.where:
        if any(axis in place for place in (side, *claim.than)):
            yield f"{about}: got {axis} under where and of a side; expected it in one of both"


def _unknown_measures(names: Iterable[str], where: str) -> Iterator[str]:
    for name in names:
        try:
            measure_of(name)
        except ConfigError as error:
            yield f"{where}: {error}"


def _unknown_values(exhibit: Exhibit, place: Place, where: str) -> Iterator[str]:
    for axis, values in place.items():
        if axis == "measure":
            yield from _unknown_measures(values, where)
        elif axis not in exhibit.axes:
            yield f"{where}: {exhibit.name} has no axis {axis!r}; it has: {', '.join(exhibit.axes)}"
        else:
            yield from (
                f"{where}: {axis} has no value {value!r}; it has: {', '.join(exhibit.axes[axis])}"
                for value in values
                if value not in exhibit.axes[axis]
            )
