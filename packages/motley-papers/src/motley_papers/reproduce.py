"""Run the missing experiments of a recipe and collect the runs that its tables, figures and claims
need."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log
from pathlib import Path

from motley.core.errors import ConfigError, suggest
from motley.core.files import user_path
from motley.experiments import document
from motley.experiments.config import Experiment
from motley.experiments.forecast import range_in_words
from motley.experiments.store import RunFolder
from motley.experiments.sweep import Failure, check_target, run_points
from motley.experiments.sweep_point import Point
from motley.results.load import Run, load
from motley.results.measures import Censored
from motley.results.recorded_metrics import metric_of
from motley_papers.earlier import MEASURED, Earlier, MeasuredRow, read_rows, still_planned
from motley_papers.measuring import OF_HEADLINE, WALL_TIMES, measure_of, to_a_target
from motley_papers.recipe import (
    MEASURED_ELSEWHERE,
    SCALES,
    Cell,
    Claim,
    Exhibit,
    Recipe,
    Scale,
    Scaled,
    chosen_seeds,
    read,
)
from motley_papers.recipe_claim import CHOSEN_BY, Place
from motley_papers.sequential import SpendingPlan
from motley_papers.sequential_plan import SequentialPlan, read_plan
from motley_papers.verdicts import Judged, cells_of, comparisons, corrected, judge

SPREAD = 2.5
"""How much longer, or shorter, another machine may take than the one on which a recipe's minutes
were measured."""


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
    earlier: Earlier = field(default_factory=Earlier)
    """What was measured earlier, and stands where a run is not in the folder."""
    sequential: SequentialPlan = field(default_factory=SequentialPlan)
    """The claims that are tested after every seed."""
    own_plan: Sequence[int] = ()
    """Seeds that were asked for in place of the recipe's, without what was measured earlier: a plan
    of one's own."""
    requested: Set[tuple[str, tuple[str, ...], int]] = frozenset()
    """(exhibit, cell, seed) of the runs that were asked for."""
    only: Place = field(default_factory=dict)
    """Axis -> the values that were asked for; claims about none of them are left out."""
    beside: Reproduction | None = None
    """What there is of the recipe's other exhibits, whose claims count in the correction."""
    _known: dict[tuple[Path, str, float | None], Censored] = field(default_factory=dict, repr=False)

    def cells(self, exhibit: Exhibit) -> list[Cell]:
        """Return the cells of an exhibit that have runs, here or earlier."""
        return [
            cell
            for cell in exhibit.cells(self.scale)
            if self.runs_at(exhibit, cell) or self.earlier_at(exhibit, cell)
        ]

    def runs_at(self, exhibit: Exhibit, cell: Cell) -> Mapping[int, Run]:
        """Return the runs of a cell that are in the folder: seed -> run."""
        return self.runs.get((exhibit.name, cell.values), {})

    def earlier_at(self, exhibit: Exhibit, cell: Cell) -> dict[int, str]:
        """Return the runs of a cell that were measured earlier and are not in the folder: seed ->
        name."""
        here = self.runs_at(exhibit, cell)
        runs = self.earlier.runs.get((exhibit.name, cell.name), {})
        return {seed: name for seed, name in runs.items() if seed not in here}

    @cached_property
    def asked_runs(self) -> dict[tuple[str, tuple[str, ...]], list[int]]:
        """(exhibit, cell) -> seeds of the runs that were asked for and are in the folder."""
        out: dict[tuple[str, tuple[str, ...]], list[int]] = {}
        for exhibit, cell, seed in sorted(self.requested):
            if seed in self.runs.get((exhibit, cell), {}):
                out.setdefault((exhibit, cell), []).append(seed)
        return out

    def all_runs(self) -> list[Run]:
        """Return each run in the folder once."""
        return list(
            {run.directory: run for seeds in self.runs.values() for run in seeds.values()}.values()
        )

    def all_earlier(self) -> list[tuple[str, int]]:
        """Return (name, seed) of each run that was measured earlier and stands for one that is not
        in the folder."""
        pairs = [(exhibit, cell) for exhibit in self.exhibits for cell in exhibit.cells(self.scale)]
        return list(
            dict.fromkeys(
                (name, seed) for pair in pairs for seed, name in self.earlier_at(*pair).items()
            )
        )

    def values(self, exhibit: Exhibit, measure: str) -> dict[tuple[str, ...], dict[int, Censored]]:
        """Return a measure of an exhibit: cell -> seed -> value. Wall times of one seed come from
        one machine."""
        cells = self.cells(exhibit)
        if measure in WALL_TIMES:
            here = {seed for cell in cells for seed in self.runs_at(exhibit, cell)}
        else:
            here = set()
        out = {}
        for cell in cells:
            now = {
                seed: self._measured(run, measure, cell.target)
                for seed, run in self.runs_at(exhibit, cell).items()
            }
            stored = self.earlier.values.get(((exhibit.name, cell.name), measure), {})
            valid = {seed: value for seed, value in stored.items() if seed not in here}
            if now or valid:
                out[cell.values] = {**valid, **now}
        return out

    def _printed(self, exhibit: Exhibit, measure: str) -> dict[tuple[str, ...], float]:
        """Return what the paper printed; of a measure that is a logarithm, the logarithm of what it
        printed of the plain one."""
        if not measure_of(measure).log:
            return {
                cell: value for cell, (value, _) in self.recipe.printed(exhibit, measure).items()
            }
        plain = self.recipe.printed(exhibit, measure.removesuffix("_log"))
        return {cell: log(value) for cell, (value, _) in plain.items() if value > 0}

    def _measured(self, run: Run, measure: str, target: float | None) -> Censored:
        key = run.directory, measure, target
        if key not in self._known:
            self._known[key] = measure_of(measure).of(run, target)
        return self._known[key]

    def check_more_is_better(self, exhibit: Exhibit, measures: Iterable[str]) -> None:
        """Refuse measures of which the highest is taken for the best, where the headline of the
        exhibit's runs is a metric of which less is better.

        Raises
        ------
        ConfigError: one of them is in the unit of the headline.
        """
        runs = (seeds for (name, _), seeds in self.runs.items() if name == exhibit.name)
        run = next((run for seeds in runs for run in seeds.values()), None)
        name = next((name for name in measures if name in OF_HEADLINE), None)
        if run is None or name is None:
            return
        metric, more_is_better = metric_of(run)
        if not more_is_better:
            raise ConfigError(
                f"{exhibit.name}: got {name}, whose highest value counts as the best, and less of "
                f'{metric} is better; rank by measures = ["loss"] or ["mse"], and tune by a share'
            )

    def wall_s(self, run: Run) -> float:
        """Return the wall seconds of a run."""
        return self._measured(run, "wall_s", None).value

    @cached_property
    def judged(self) -> list[Judged]:
        """The verdicts on the claims about what was asked for, corrected for all claims of the
        recipe at this scale: they are the same whatever is asked for beside them."""
        here = self._tested
        there = self.beside._tested if self.beside is not None else []
        return [
            judged
            for judged in corrected([*here, *there])[: len(here)]
            if self._is_about(judged.claim, self.only)
        ]

    @cached_property
    def _tested(self) -> list[Judged]:
        """The claims about the chosen exhibits, each tested as if it were the only one."""
        chosen = {exhibit.name: exhibit for exhibit in self.exhibits}
        out = []
        for claim in self.recipe.claim:
            if claim.exhibit in chosen:
                exhibit = chosen[claim.exhibit]
                if claim.tuned is not None:
                    self.check_more_is_better(exhibit, [CHOSEN_BY])
                measures = claim.measures(exhibit.measures)
                seeds = self.judged_seeds(exhibit, claim)
                seen = {
                    (m, cell): {seed: value for seed, value in by.items() if seed in seeds}
                    for m in measures
                    for cell, by in self.values(exhibit, m).items()
                }
                there = {cell.values for cell in self.cells(exhibit) or exhibit.cells(self.scale)}
                printed = {
                    (m, cell): value
                    for m in measures
                    for cell, value in self._printed(exhibit, m).items()
                    if cell in there
                }
                protocol = self.recipe.protocol(exhibit, self.scale, claim)
                out.append(
                    judge(
                        claim=claim,
                        exhibit=exhibit,
                        values=seen,
                        printed=printed,
                        looks=self.looks(claim),
                        protocol=protocol,
                        planned=[c for c in exhibit.cells(self.scale) if c.has(self.only)],
                    )
                )
        return out

    def _is_about(self, claim: Claim, only: Place) -> bool:
        """Whether a claim compares a cell with these values of axes; any claim is about none."""
        cells = self.recipe.named(claim.exhibit).all_cells()
        if claim.tuned is not None:
            compared = cells
        else:
            compared = [c for comparison in comparisons(claim) for c in cells_of(comparison, cells)]
        return any(cell.has(only) for cell in compared)

    def looks(self, claim: Claim) -> SpendingPlan | None:
        """Return the looks at a claim, in seeds: those of its sequential test, or those that its
        recipe admits to."""
        own = self.recipe.named(claim.exhibit).scale.get(self.scale, Scaled())
        admitted = own.looks if own.seeds is not None else self.recipe.scale[self.scale].looks
        return self.sequential.looks_of(claim.text) or (
            SpendingPlan(tuple(admitted), each=False) if admitted else None
        )

    def judged_seeds(self, exhibit: Exhibit, claim: Claim) -> set[int]:
        """Return the seeds that verdicts rest on: those planned before anything was seen, and those
        of a sequential test. Others that were run are shown, and decide nothing."""
        planned = self.own_plan or self.recipe.seeds(exhibit, self.scale)
        if claim.text in self.sequential.claims:
            added = self.sequential.seeds.get(exhibit.name, ())
        else:
            added = ()
        return {*planned, *added}


def plan(
    recipe: Recipe,
    exhibits: Sequence[Exhibit],
    scale: Scale,
    seeds: Sequence[int] | None = None,
    only: Place | None = None,
    overrides: Iterable[str] = (),
) -> dict[tuple[str, tuple[str, ...], int], Experiment]:
    """Return (exhibit, cell, seed) -> experiment, exhibits in order, seeds fastest."""
    settings = list(overrides)
    out = {}
    for exhibit in exhibits:
        for cell in exhibit.cells(scale):
            if cell.has(only or {}):
                for seed in seeds if seeds is not None else recipe.seeds(exhibit, scale):
                    out[exhibit.name, cell.values, seed] = recipe.experiment(
                        cell, scale, seed, settings
                    )
    return out


def reproduce(
    recipe: str | Path | Recipe,
    exhibits: Sequence[str] = (),
    *,
    scale: str = "small",
    seeds: Iterable[int] | None = None,
    only: Place | None = None,
    out: str | Path | None = None,
    data: str | Path | None = None,
    overrides: Iterable[str] = (),
    progress: bool = False,
    run: bool = True,
    on_ray: str | None = None,
    jobs: int = 1,
    earlier: bool = True,
    unmeasured: bool = False,
    measured: bool = False,
    tell: Callable[[str], None] | None = None,
    allow_import: bool = False,
) -> Reproduction:
    """Run the experiments of a recipe that are not finished yet.

    Parameters
    ----------
    recipe: its name, its folder, or a recipe.
    exhibits: names like ``"table 3"``; all by default.
    scale: ``smoke`` (every code path, two rounds), ``small`` (two cores, the minutes are in the
    recipe) or ``paper``.
    seeds: instead of the recipe's.
    only: axis -> the values that are run now; exhibits and claims without one are left out.
    overrides: settings as ``--set``.
    out: folder of all, ``runs/<recipe>/<scale>`` by default.
    data: folder of data packs.
    progress: show the runs on standard error.
    run: False gathers what is finished, and runs nothing.
    on_ray, jobs: as in :func:`motley.compare`.
    earlier: whether numbers that are kept with the recipe stand where a run is not in the folder.
    unmeasured: run only what has no such number.
    measured: run only what has one, anew; runs that are finished in ``out`` stay.
    tell: is called with a sentence before the first run: how many there are, and how long they
    take; and with one where the numbers measured earlier lie elsewhere.
    allow_import: let the recipe name classes, ``module:Class``, which runs their code.

    Raises
    ------
    ConfigError: no such recipe, exhibit, scale or value, or an experiment that cannot be, before
    anything is run; or it is asked what was measured, outside a checkout.

    Example
    -------
    ``reproduce("hetero_select", ["table 2"], scale="paper").judged``
    """
    recipe = recipe if isinstance(recipe, Recipe) else read(recipe)
    recipe = recipe.model_copy(update={"imports": recipe.imports or allow_import})
    size = scale_named(scale)
    _check_only(recipe, only or {})
    chosen = _with_values(recipe.choose(exhibits), only or {})
    settings = list(overrides)
    if "seed" in document.parse_settings(settings):
        raise ConfigError("got seed, which all seeds would have; write --seeds 5", "--set")
    directory = Path("runs") / recipe.name / scale if out is None else user_path(out)
    packs = None if data is None else user_path(data)
    seeds = chosen_seeds(seeds)
    wanted = plan(recipe, exhibits=chosen, scale=size, seeds=seeds, only=only, overrides=settings)
    ids: dict[int, str] = {}
    points: dict[str, Point] = {}
    for (exhibit, cell, _), experiment in wanted.items():
        points.setdefault(_id(experiment, ids), Point(f"{exhibit} {' / '.join(cell)}", experiment))
    kept_in = []
    if earlier and not settings:
        if recipe.measured is not None:
            kept_in = [recipe.measured / size]
        elif unmeasured or measured:
            raise ConfigError(MEASURED_ELSEWHERE, "--measured" if measured else "--unmeasured")
        elif tell is not None:
            tell(MEASURED_ELSEWHERE)
    if unmeasured or measured:
        names = {key: _id(experiment, ids) for key, experiment in wanted.items()}
        missing = _without_rows(
            names,
            recipe,
            _earlier(recipe=recipe, scale=size, chosen=chosen, rows=_rows(kept_in), names=names),
        )
        points = {name: point for name, point in points.items() if (name in missing) == unmeasured}
    # one seed of everything first
    todo = sorted(points.values(), key=lambda point: point.experiment.seed) if run else []
    folders = [_folder(directory, point.experiment) for point in todo]
    if run:
        _check_targets(chosen, wanted, packs)
    if tell is not None and todo:
        tell(_forecast(recipe, size, folders))
    if run:
        failures = run_points(
            points=todo, folders=folders, data=packs, progress=progress, on_ray=on_ray, jobs=jobs
        )[1]
    else:
        failures = []
    reproduction, beside = (
        _gather(
            recipe,
            size,
            chosen=these,
            directory=directory,
            seeds=seeds or (),
            settings=settings,
            kept_in=kept_in,
            ids=ids,
        )
        for these in (chosen, _claimed(recipe, chosen))
    )
    return replace(
        reproduction,
        planned=len(points),
        failures=failures,
        requested=set(wanted),
        only=only or {},
        beside=beside if beside.exhibits else None,
    )


def _check_targets(
    exhibits: Sequence[Exhibit],
    wanted: Mapping[tuple[str, tuple[str, ...], int], Experiment],
    packs: Path | None,
) -> None:
    """Refuse a target that the metric of a cell's runs cannot have, before anything is run."""
    targets = {(e.name, c.values): c.target for e in exhibits for c in e.all_cells()}
    checked = set()
    for (exhibit, cell, _), experiment in wanted.items():
        target = targets[exhibit, cell]
        if target is not None and (exhibit, target) not in checked:
            check_target(experiment, target, packs)
            checked.add((exhibit, target))


def _with_values(exhibits: Sequence[Exhibit], only: Place) -> list[Exhibit]:
    """Return the exhibits that have a cell with these values of axes, at any scale.

    Raises
    ------
    ConfigError: none has one.
    """
    matches = [e for e in exhibits if any(cell.has(only) for cell in e.all_cells())]
    if exhibits and not matches:
        values = "; ".join(f"{axis}={','.join(names)}" for axis, names in only.items())
        names = "; ".join(exhibit.name for exhibit in exhibits)
        raise ConfigError(f"none of the chosen exhibits has {values}: {names}", "only")
    return matches


def _claimed(recipe: Recipe, chosen: Sequence[Exhibit]) -> list[Exhibit]:
    """Return the exhibits beside the chosen ones that claims are about."""
    gone = {exhibit.name for exhibit in chosen}
    claimed = {claim.exhibit for claim in recipe.claim} - gone
    return [exhibit for exhibit in recipe.exhibit if exhibit.name in claimed]


def _forecast(recipe: Recipe, size: Scale, folders: Sequence[Path]) -> str:
    """Say how many runs are missing, and how long they may take by the recipe's measured
    minutes."""
    missing = sum(not (RunFolder(folder).read() or {}).get("finished") for folder in folders)
    forecast = f"{missing} of {len(folders)} runs are missing"
    minutes = recipe.scale[size].minutes
    if minutes and missing:
        ids: dict[int, str] = {}
        run_ids = {
            _id(experiment, ids) for experiment in plan(recipe, recipe.exhibit, size).values()
        }
        took_s = 60 * minutes * missing / len(run_ids)
        forecast += (
            f"; {range_in_words(took_s / SPREAD, SPREAD * took_s)} by what they took on two "
            "cores with --jobs 2"
        )
        forecast += ", which the first rounds here correct"
    return f"{forecast}. Stop when you like: the same command goes on."


def _gather(
    recipe: Recipe,
    size: Scale,
    chosen: list[Exhibit],
    directory: Path,
    seeds: Sequence[int],
    settings: Sequence[str],
    kept_in: Sequence[Path],
    ids: dict[int, str],
) -> Reproduction:
    """Return what is finished in the folder, and what was measured earlier where it is not."""
    rows = _rows(kept_in)
    sequential = read_plan([*kept_in, directory])
    shown: dict[tuple[str, tuple[str, ...], int], Experiment] = {}
    # each shows its own seeds, those asked for, those measured earlier and those of a sequential
    # test
    for exhibit in chosen:
        there = {row.seed for row in rows if row.exhibit == exhibit.name} | {
            *sequential.seeds.get(exhibit.name, ())
        }
        shown |= plan(
            recipe,
            exhibits=[exhibit],
            scale=size,
            seeds=sorted({*seeds, *recipe.seeds(exhibit, size), *there}),
            only=None,
            overrides=settings,
        )
    names = {key: _id(experiment, ids) for key, experiment in shown.items()}
    stored = _earlier(recipe=recipe, scale=size, chosen=chosen, rows=rows, names=names)
    own_plan = () if kept_in else seeds
    runs = _finished(directory, names)
    return Reproduction(
        recipe=recipe,
        scale=size,
        exhibits=chosen,
        runs=runs,
        planned=0,
        directory=directory,
        failures=[],
        earlier=stored,
        sequential=sequential,
        own_plan=own_plan,
    )


def _id(experiment: Experiment, ids: dict[int, str]) -> str:
    """Return the name of a run; each experiment, which many exhibits share, is hashed once."""
    if id(experiment) not in ids:
        ids[id(experiment)] = experiment.result_id()
    return ids[id(experiment)]


def _rows(kept_in: Sequence[Path]) -> list[MeasuredRow]:
    return [row for folder in kept_in for row in read_rows(folder / MEASURED)]


def _without_rows(
    names: Mapping[tuple[str, tuple[str, ...], int], str], recipe: Recipe, stored: Earlier
) -> set[str]:
    """Return the names of the runs that have no number at all, or none in an exhibit that has
    measures.

    Parameters
    ----------
    names: (exhibit, cell, seed) -> the name of a run.
    """
    there = {(row.exhibit, row.cell, row.seed) for row in stored.rows}
    measured = {
        name
        for (exhibit, cell, seed), name in names.items()
        if (exhibit, " / ".join(cell), seed) in there
    }
    return {
        name
        for (exhibit, cell, seed), name in names.items()
        if name not in measured
        or (
            (exhibit, " / ".join(cell), seed) not in there
            and recipe.measures(recipe.named(exhibit))
        )
    }


def _earlier(
    recipe: Recipe,
    scale: Scale,
    chosen: Sequence[Exhibit],
    rows: Sequence[MeasuredRow],
    names: Mapping[tuple[str, tuple[str, ...], int], str],
) -> Earlier:
    """Return what was measured earlier of the chosen exhibits, as far as its runs are still
    planned."""
    cells = [cell for exhibit in chosen for cell in exhibit.cells(scale)]
    targets = {
        (cell.exhibit.name, cell.name, measure): target_of(cell, measure)
        for cell in cells
        for measure in recipe.measures(cell.exhibit)
    }
    planned = {
        (exhibit, " / ".join(cell), seed): name for (exhibit, cell, seed), name in names.items()
    }
    gone = {exhibit.name for exhibit in recipe.exhibit} - {exhibit.name for exhibit in chosen}
    requested = [row for row in rows if row.exhibit not in gone]
    valid = still_planned(requested, planned, targets)
    folder = recipe.measured / scale if recipe.measured is not None and rows else None
    return Earlier(folder, valid, len(requested) - len(valid))


def target_of(cell: Cell, measure: str) -> str:
    """Return the target that a measure of a cell looks at, as text; empty for measures without."""
    return f"{cell.target:g}" if cell.target is not None and to_a_target(measure) else ""


def scale_named(name: str) -> Scale:
    """Return the scale of that name.

    Raises
    ------
    ConfigError: there is none.
    """
    for scale in SCALES:
        if scale == name:
            return scale
    raise ConfigError(
        f"got {name!r}{suggest(name, SCALES)}; expected one of: {', '.join(SCALES)}", "scale"
    )


def _check_only(recipe: Recipe, only: Place) -> None:
    axes: dict[str, set[str]] = {}
    for exhibit in recipe.exhibit:
        for axis, values in exhibit.axes.items():
            axes.setdefault(axis, set()).update(values)
    for axis, wanted in only.items():
        if axis not in axes:
            raise ConfigError(
                f"no exhibit has the axis {axis!r}{suggest(axis, axes)}; there are: "
                f"{', '.join(axes)}",
                "only",
            )
        for value in wanted:
            if value not in axes[axis]:
                allowed = ", ".join(sorted(axes[axis]))
                raise ConfigError(
                    f"{axis} has no value {value!r}{suggest(value, axes[axis])}; it has: {allowed}",
                    "only",
                )


def _folder(directory: Path, experiment: Experiment) -> Path:
    return directory / "runs" / experiment.result_id()


def _finished(
    directory: Path, wanted: Mapping[tuple[str, tuple[str, ...], int], str]
) -> dict[tuple[str, tuple[str, ...]], dict[int, Run]]:
    out: dict[tuple[str, tuple[str, ...]], dict[int, Run]] = {}
    loaded: dict[str, Run | None] = {}
    for (exhibit, cell, seed), name in wanted.items():
        if name not in loaded:
            folder = directory / "runs" / name
            record = RunFolder(folder).read()
            loaded[name] = load(folder) if record is not None and record.get("finished") else None
        run = loaded[name]
        if run is not None:
            out.setdefault((exhibit, cell), {})[seed] = run
    return out
