"""Run what is planned, and divide the difference of two results among its causes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.arrays import Floats
from motley.core.components import imports
from motley.core.errors import ConfigError, UserError
from motley.core.files import is_file, user_path
from motley.experiments.controls import in_minutes, wall_s
from motley.experiments.document import read_text
from motley.experiments.folder_names import slug
from motley.experiments.store import RunFolder, default_folder, same_stop
from motley.experiments.sweep import run_points
from motley.experiments.sweep_point import Point
from motley.results import measures
from motley.results.load import Run
from motley.tasks.kept_data import last_kept
from motley_advice.explanation.compared_results import Given, Reading, made_here, why_run_again
from motley_advice.explanation.explanation_plan import ExplanationPlan, plan_of
from motley_advice.explanation.shapley import CauseShares, Combination, shares

PAGE = "explanation.md"
"""The page of an explanation in its folder; it has the plan's ``identity``."""
_FIGURES = {
    "evaluations": ("round", "client", "loss", "accuracy"),
    "metrics": ("round", "client", "value"),
}
"""Columns of a run's tables that are what was measured of its models."""


@dataclass(frozen=True)
class Explanation:
    """The outcome of an explanation.

    Parameters
    ----------
    plan: what was run.
    runs: combination -> its runs in the order of the plan's seeds.
    directory: folder of the runs and the tables.
    """

    plan: ExplanationPlan
    runs: Mapping[Combination, Sequence[Run]]
    directory: Path

    @cached_property
    def figures(self) -> dict[Combination, Floats]:
        """Combination -> ``[k]`` figures by seed; NaN for a run that ended without a number."""
        return {
            combination: np.array([figure_of(run, self.plan.reading(combination)) for run in runs])
            for combination, runs in self.runs.items()
        }

    @cached_property
    def counted(self) -> list[int]:
        """The places of the seeds of which every combination has a figure."""
        figures = np.array(list(self.figures.values()))
        return np.flatnonzero(np.isfinite(figures).all(axis=0)).tolist()

    @cached_property
    def shares(self) -> CauseShares:
        """What each cause carries, over the seeds that count."""
        return shares(
            {combination: values[self.counted] for combination, values in self.figures.items()}
        )

    @cached_property
    def without_effect(self) -> list[int]:
        """The causes with and without which every recorded figure is equal to the bit, in all
        combinations that were run and with all seeds."""
        return [cause for cause in range(len(self.plan.causes)) if self._changes_nothing(cause)]

    def _changes_nothing(self, cause: int) -> bool:
        pairs = [
            (run, other)
            for combination, runs in self.runs.items()
            if cause not in combination and combination | {cause} in self.runs
            for run, other in zip(runs, self.runs[combination | {cause}], strict=True)
            if run.directory != other.directory  # of how a figure is read both have one run
        ]
        return bool(pairs) and all(_same_figures(*pair) for pair in pairs)

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The figures of A and of B as they were run here, over the seeds that count."""
        a, b = (self.figures[combination][self.counted] for combination in self.plan.ends)
        return a, b

    @cached_property
    def observed(self) -> tuple[Floats, Floats]:
        """The figures of A and of B as the stored runs have them, where they were given and have
        the seed; else as they were run here."""
        a, b = (values.copy() for values in self.ends)
        for side, combination, values in zip(
            (self.plan.a, self.plan.b), self.plan.ends, (a, b), strict=True
        ):
            for at, place in enumerate(self.counted):
                run = side.stored.get(self.plan.seeds[place])
                if run is not None:
                    values[at] = figure_of(run, self.plan.reading(combination))
        return a, b

    @property
    def rerun(self) -> Floats:
        """``[k]`` what of the observed difference is gone when both sides are run again here: other
        versions, another machine, other files."""
        difference: Floats = np.subtract(*self.observed[::-1]) - np.subtract(*self.ends[::-1])
        return difference


def figure_of(run: Run, reading: Reading) -> float:
    """Return the figure of a run; NaN where it ended without a number.

    Raises
    ------
    ConfigError: nothing was recorded in the scope.
    """
    scope = reading.scope or measures.written_scope(run)
    if not measures.rows_of(run, reading.metric, scope)[0].num_rows:
        table = "evaluations" if reading.metric in ("loss", "accuracy") else "metrics"
        scopes = ", ".join(sorted(set(run.tables[table]["scope"].to_pylist())))
        raise ConfigError(
            f"got {scope!r}, of which {run.directory} has no {reading.metric}; there are: {scopes}",
            "--scope",
        )
    if measures.ruined(run, reading.metric, scope):
        return float("nan")
    ends = measures.ends(evaluations_of(run, reading), measures.better_of(run, reading.metric))
    return ends.final if reading.round == "last" else ends.peak


def evaluations_of(run: Run, reading: Reading) -> measures.Curve:
    """Return the figures of a run over rounds, without the untrained model's."""
    scope = reading.scope or measures.written_scope(run)
    return measures.trained(measures.curve(run, metric=reading.metric, scope=scope))


def _same_figures(run: Run, other: Run) -> bool:
    """Return whether two runs recorded the same figures, to the bit."""
    pairs = (
        (_numbers(run, table, column), _numbers(other, table, column))
        for table, columns in _FIGURES.items()
        for column in columns
    )
    return all(np.array_equal(mine, others, equal_nan=True) for mine, others in pairs)


def _numbers(run: Run, table: str, column: str) -> Floats:
    return np.asarray(run.tables[table][column].to_numpy(), float)


def explain(
    a: Given,
    b: Given | None = None,
    *,
    changes: Sequence[str] = (),
    printed: float | str | None = None,
    printed_runs: int | None = None,
    metric: str | None = None,
    round: str = "last",
    scope: str | None = None,
    seeds: Sequence[int] | None = None,
    runs: int | None = None,
    out: Path | str | None = None,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    jobs: int = 1,
    allow_import: bool = False,
    allow_other_numerics: bool = False,
    progress: bool = False,
    on_plan: Callable[[ExplanationPlan], object] = lambda _: None,
    say: Callable[[str], object] = lambda _: None,
) -> Explanation:
    """Divide the difference of two results among the causes in which their experiments differ.

    Parameters
    ----------
    a, b: an Experiment, its keys, the path of its file, the folder of a run or of one method's
    runs, a run id below ``runs``, or a recipe's row, ``"recipe:NAME/ROW"``.
    changes: instead of b, candidate changes of a, like ``"weights=uniform"``.
    printed: a number that somebody printed, against which B is held, in the metric's own unit; as
    text where its last digit is 0, ``"0.930"``, for half a unit of that digit may be its rounding.
    printed_runs: the runs k that it is the mean of, 1 by default. It has chance of its own: its
    difference from the mean of n runs here has the deviation ``s sqrt(1/n + 1/k)``, s of those n.
    metric: the headline by default.
    round: ``last`` or ``best``, or A's and B's, ``"last,best"``.
    scope: of evaluations, ``global`` or ``mean``, or A's and B's; that of the headline by default.
    seeds: those of both sides by default.
    runs: the most runs of the plan; 160 by default.
    out: folder, ``runs/<name of A>-explained/<id>`` by default; the same call goes on there.
    data, overrides, jobs, allow_import, allow_other_numerics, progress: as for
    :func:`motley.compare`; overrides are of both sides.
    on_plan: called with the plan before anything is run; an error in it ends the call.
    say: told how many runs there will be and how long they take.

    Raises
    ------
    ConfigError: before anything is run: nothing differs that can change the figure, an option that
    makes no sense, a side that cannot run, a budget that is too small, a folder with the page of
    another explanation.
    UserError: a run failed; the same call goes on after it.

    Example
    -------
    ``motley.explain("mine.toml", "runs/theirs/3f9a").shares.each.mean(axis=1)``
    """
    folder = None if data is None else user_path(data)
    with imports(allow_import), last_kept():
        plan = plan_of(
            a,
            b,
            changes=changes,
            printed=printed,
            printed_runs=printed_runs,
            metric=metric,
            round=round,
            scope=scope,
            seeds=seeds,
            runs=runs,
            data=folder,
            overrides=overrides,
        )
        planned = _PlannedRuns(plan, out, jobs, say)
        planned.announce()
        on_plan(plan)
        how = {"data": folder, "progress": progress, "allow_other_numerics": allow_other_numerics}
        return Explanation(plan, planned.run(how), planned.base)


class _PlannedRuns:
    """The runs of a plan, each once, and their folders: one that is finished already, in ``out``,
    among those given or beside them, in another explanation of A, or where ``motley run`` puts it,
    stays there."""

    def __init__(
        self,
        plan: ExplanationPlan,
        out: Path | str | None,
        jobs: int,
        say: Callable[[str], object],
    ) -> None:
        name = f"{slug(plan.a.experiment.name)}-explained"
        self.base = Path("runs") / name / plan.identity if out is None else user_path(out)
        self._usual = out is None
        page = self.base / PAGE
        if is_file(page) and plan.identity not in read_text(page, "a page of Motley"):
            raise ConfigError(
                f"{page} explains another difference, and would be written over; give another "
                "folder, or leave it out: each explanation then has one of its own",
                "--out",
            )
        self._plan = plan
        self._jobs = jobs
        self._say = say
        self._again = why_run_again(plan.a, plan.b)
        self._points: dict[str, Point] = {}
        for combination in plan.combinations:
            for seed in plan.seeds:
                point = Point(plan.name(combination), plan.experiment(combination, seed))
                self._points.setdefault(point.experiment.result_id(), point)
        self._folders = {key: self._place(point) for key, point in self._points.items()}
        self._done = [
            folder
            for key, folder in self._folders.items()
            if RunFolder(folder).finished(self._points[key].experiment)
        ]
        self._left = len(self._points) - len(self._done)

    def _place(self, point: Point) -> Path:
        run_id = point.experiment.run_id()
        begun = [
            folder
            for folder in sorted(self.base.glob(f"*/{run_id}"))
            if same_stop(RunFolder(folder).read() or {}, point.experiment)  # no id has the end
        ]
        sides = (self._plan.a, self._plan.b)
        stored = [run.directory for side in sides for run in side.stored.values()]
        beside = [folder.parent / run_id for folder in stored]
        usable = [*stored, *beside, default_folder(point.experiment)] if not self._again else []
        usable += self._explained(run_id)
        for folder in (*begun, *filter(made_here, usable)):
            if RunFolder(folder).finished(point.experiment):
                return folder
        return begun[0] if begun else point.folder(self.base)

    def _explained(self, run_id: str) -> list[Path]:
        """Return the runs of an id in the folders of A's other explanations."""
        return sorted(self.base.parent.glob(f"*/*/{run_id}")) if self._usual else []

    def announce(self) -> None:
        """Say what will be run, how much of it is there, and how long the rest takes."""
        for line in self._plan.sentences():
            self._say(line)
        if self._again:
            self._say(f"{self._again}: both are run again here, and what that changes is a row")
        if self._done:
            self._say(f"{len(self._done)} of {len(self._points)} runs are there already")
            self._say_time(float(np.mean([wall_s(path) for path in self._done])))

    def _say_time(self, each_s: float) -> None:
        if self._left:
            time = in_minutes(self._left * each_s / max(self._jobs, 1))
            self._say(f"the {self._left} others take about {time}")

    def run(self, how: Mapping[str, Any]) -> dict[Combination, list[Run]]:
        """Run what is missing, and return the runs of every combination.

        Raises
        ------
        UserError: a run failed; the same call goes on after it.
        """

        def ended(run: Run) -> None:
            for side in (self._plan.a, self._plan.b):
                figure_of(run, side.reading)  # a scope that is not there is said after one run
            if not self._done:
                self._done.append(run.directory)
                self._left -= 1
                self._say_time(wall_s(run.directory))

        done, failures = run_points(
            points=list(self._points.values()),
            folders=list(self._folders.values()),
            jobs=self._jobs,
            on_end=ended,
            **how,
        )
        for failure in failures:
            if not isinstance(failure.error, UserError):
                raise failure.error
            seed = failure.point.experiment.seed
            raise UserError(
                f"{failure.point.label}, seed {seed}: {failure.error}; the explanation stops here, "
                "and the same command goes on"
            )
        by_id = dict(zip(self._points, done, strict=True))
        plan = self._plan
        return {
            combination: [
                by_id[plan.experiment(combination, seed).result_id()] for seed in plan.seeds
            ]
            for combination in plan.combinations
        }
