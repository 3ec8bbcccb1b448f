"""Run the missing experiments of a recipe and collect the runs that its tables, figures and claims need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, suggest
from motley.experiments.config import Experiment
from motley.experiments.store import RunFolder
from motley.experiments.sweep import Failure, Point, run_points
from motley.recipes.measuring import measure_of
from motley.recipes.recipe import SCALES, Cell, Exhibit, Place, Recipe, Scale, read
from motley.recipes.verdicts import Judged, judge
from motley.results.load import Run, load
from motley.results.measures import Censored

__all__ = ["Reproduction", "distinct", "plan", "reproduce"]


@dataclass(frozen=True)
class Reproduction:
    """A recipe with the finished runs of the chosen exhibits."""

    recipe: Recipe
    scale: Scale
    exhibits: list[Exhibit]
    runs: Mapping[tuple[str, tuple[str, ...]], Mapping[int, Run]]
    """(exhibit, cell) -> seed -> the finished run."""
    planned: int
    directory: Path
    failures: list[Failure] = field(default_factory=list)

    def cells(self, exhibit: Exhibit) -> list[Cell]:
        """Return the cells of an exhibit that have runs."""
        return [cell for cell in exhibit.cells(self.scale) if self.runs.get((exhibit.name, cell.values))]

    def all_runs(self) -> list[Run]:
        """Return each run once."""
        return list({run.directory: run for seeds in self.runs.values() for run in seeds.values()}.values())

    def values(self, exhibit: Exhibit, measure: str) -> dict[tuple[str, ...], dict[int, Censored]]:
        """Return a measure of an exhibit: cell -> seed -> value."""
        of = measure_of(measure)
        found = {cell: self.runs[exhibit.name, cell.values] for cell in self.cells(exhibit)}
        return {c.values: {seed: of.of(run, c.target) for seed, run in seeds.items()} for c, seeds in found.items()}

    @cached_property
    def judged(self) -> list[Judged]:
        """The verdicts on the recipe's claims about the chosen exhibits."""
        chosen = {exhibit.name: exhibit for exhibit in self.exhibits}
        out = []
        for claim in self.recipe.claim:
            if claim.exhibit in chosen:
                exhibit = chosen[claim.exhibit]
                places = [claim.where, claim.higher or {}, claim.lower or {}, *claim.than]
                wanted = {m for place in places for m in place.get("measure", [])} | {claim.measure or exhibit.measures[0]}
                values = {(m, cell): by for m in wanted for cell, by in self.values(exhibit, m).items()}
                out.append(judge(claim, exhibit, values))
        return out


def plan(
    recipe: Recipe,
    exhibits: Sequence[Exhibit],
    scale: Scale,
    seeds: Sequence[int] | None = None,
    only: Place | None = None,
    overrides: Iterable[str] = (),
) -> dict[tuple[str, tuple[str, ...], int], Experiment]:
    """Return (exhibit, cell, seed) -> experiment, exhibits in order, seeds fastest."""
    settings, out = list(overrides), {}
    for exhibit in exhibits:
        for cell in exhibit.cells(scale):
            if all(cell.at.get(axis, values[0]) in values for axis, values in (only or {}).items()):
                for seed in seeds if seeds is not None else recipe.seeds(exhibit, scale):
                    out[exhibit.name, cell.values, seed] = recipe.experiment(cell, scale, seed, settings)
    return out


def reproduce(
    recipe: str | Path | Recipe,
    exhibits: Sequence[str] = (),
    *,
    scale: str = "small",
    seeds: Sequence[int] | None = None,
    only: Place | None = None,
    out: Path | None = None,
    data: Path | None = None,
    overrides: Iterable[str] = (),
    progress: bool = False,
    run: bool = True,
    on_ray: str | None = None,
    jobs: int = 1,
) -> Reproduction:
    """Run the experiments of a recipe that are not finished yet.

    Parameters
    ----------
    recipe: its name, its folder, or a recipe. exhibits: names like ``"table 3"``; all by default.
    scale: ``smoke`` (every code path, two rounds), ``small`` (two cores, the minutes are in the recipe) or ``paper``.
    seeds: instead of the recipe's. only: axis -> the values that are run now. overrides: settings as ``--set``.
    out: folder of all, ``runs/<recipe>/<scale>`` by default. data: folder of data packs. progress: show the runs on standard error.
    run: False gathers what is finished, and runs nothing. on_ray, jobs: as in :func:`motley.compare`.

    Raises
    ------
    ConfigError: no such recipe, exhibit, scale or value, or an experiment that cannot be, before anything is run.

    Example
    -------
    ``reproduce("hetero_select", ["table 2"], scale="paper").judged``
    """
    recipe = recipe if isinstance(recipe, Recipe) else read(recipe)
    size = _scale(scale)
    _check_only(recipe, only or {})
    chosen = recipe.choose(exhibits)
    settings = list(overrides)
    directory = out or Path("runs") / recipe.name / scale
    wanted = plan(recipe, chosen, size, seeds, only, settings)
    points: dict[str, Point] = {}
    for (exhibit, cell, _), experiment in wanted.items():
        points.setdefault(experiment.result_id(), Point(f"{exhibit} {' / '.join(cell)}", experiment))
    todo = sorted(points.values(), key=lambda point: point.experiment.seed) if run else []  # one seed of everything first
    folders = [_folder(directory, point.experiment) for point in todo]
    failures = run_points(todo, folders, data, progress, on_ray, jobs)[1] if run else []
    shown: dict[tuple[str, tuple[str, ...], int], Experiment] = {}
    for one in chosen:  # each shows its own seeds, and those asked for
        shown |= plan(recipe, [one], size, sorted({*(seeds or ()), *recipe.seeds(one, size)}), None, settings)
    return Reproduction(recipe, size, chosen, _finished(directory, shown), len(points), directory, failures)


def _scale(name: str) -> Scale:
    for scale in SCALES:
        if scale == name:
            return scale
    raise ConfigError(f"got {name!r}{suggest(name, SCALES)}; expected one of: {', '.join(SCALES)}", "scale")


def distinct(experiments: Iterable[Experiment]) -> list[Experiment]:
    """Return few of many experiments that together use every component, word and flag of all, chosen greedily."""
    left = [(experiment, set(_choices(experiment.resolved()))) for experiment in experiments]
    seen: set[tuple[str, ...]] = set()
    out = []
    while left := [(experiment, choices) for experiment, choices in left if not choices <= seen]:
        most, choices = max(left, key=lambda one: len(one[1] - seen))
        seen |= choices
        out.append(most)
    return out


def _choices(keys: Mapping[str, Any], owner: str = "") -> Iterator[tuple[str, ...]]:
    for key, value in keys.items():
        if isinstance(value, Mapping):
            yield from _choices(value, f"{owner}{value.get('name', '')}/{key}" if "name" in value else f"{owner}/{key}")
        elif isinstance(value, str | bool) and key not in ("data", "model") and (owner or key not in ("name", "method")):
            yield owner, key, str(value)


def _check_only(recipe: Recipe, only: Place) -> None:
    axes: dict[str, set[str]] = {}
    for exhibit in recipe.exhibit:
        for axis, values in exhibit.axes.items():
            axes.setdefault(axis, set()).update(values)
    for axis, wanted in only.items():
        if axis not in axes:
            raise ConfigError(f"no exhibit has the axis {axis!r}{suggest(axis, axes)}; there are: {', '.join(axes)}", "only")
        for value in wanted:
            if value not in axes[axis]:
                known = ", ".join(sorted(axes[axis]))
                raise ConfigError(f"{axis} has no value {value!r}{suggest(value, axes[axis])}; it has: {known}", "only")


def _folder(directory: Path, experiment: Experiment) -> Path:
    return directory / "runs" / experiment.result_id()


def _finished(
    directory: Path, wanted: Mapping[tuple[str, tuple[str, ...], int], Experiment]
) -> dict[tuple[str, tuple[str, ...]], dict[int, Run]]:
    out: dict[tuple[str, tuple[str, ...]], dict[int, Run]] = {}
    loaded: dict[Path, Run] = {}
    for (exhibit, cell, seed), experiment in wanted.items():
        folder = _folder(directory, experiment)
        record = RunFolder(folder).read()
        if record is not None and record.get("finished"):
            if folder not in loaded:
                loaded[folder] = load(folder)
            out.setdefault((exhibit, cell), {})[seed] = loaded[folder]
    return out
