"""Run a study: trials in waves, successive halving, and the test with seeds that tuning never
saw."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

from motley.core.components import imports
from motley.core.errors import ConfigError, StoreError, UserError
from motley.core.extensions import required_extension
from motley.core.files import SECRET_FILES, disk_error, replacing, user_path, with_digest
from motley.core.keys import Key
from motley.core.strict_json import to_json
from motley.experiments.config import Experiment
from motley.experiments.folder_names import slug
from motley.experiments.parallel import job_workers_kept
from motley.experiments.private_runs import private_training
from motley.experiments.run import as_experiment, with_own
from motley.experiments.store import RunFolder, ensure_space, installed_versions
from motley.experiments.sweep import run_points
from motley.experiments.sweep_point import Point
from motley.results import measures
from motley.results.load import Run
from motley.results.record import read_record
from motley.tasks.task import Task
from motley_advice.tuning.objectives import mean_value
from motley_advice.tuning.outcome import (
    StepResult,
    TunedMethod,
    TuningResult,
    TuningTrial,
    best_of,
    share_of,
)
from motley_advice.tuning.plan import MethodChanges, MethodPlan, TuningPlan, plan_of
from motley_advice.tuning.proposals import Proposals, need_optuna, opened
from motley_advice.tuning.results import write_results
from motley_advice.tuning.study_words import folder_name, in_words, long, shown

Say = Callable[[str], None]
OneExperiment = Experiment | str | Path | Mapping[str, Any]


def tune(
    experiment: OneExperiment | Sequence[OneExperiment],
    over: Mapping[str, Any],
    *,
    per: str | MethodChanges | None = None,
    trials: int = 20,
    objective: str | Sequence[str] = "headline",
    seeds: Sequence[int] | None = None,
    test_seeds: Sequence[int] | None = None,
    rounds_first: int | None = None,
    hours_first: float | None = None,
    factor: int = 3,
    jobs: int = 1,
    on_ray: str | None = None,
    out: Path | str | None = None,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    task: Task | None = None,
    allow_import: bool = False,
    allow_other_numerics: bool = False,
    say: Say = lambda _: None,
) -> TuningResult:
    """Choose values for some keys of each method with the same budget, by validation samples, and
    test them with other seeds.

    Parameters
    ----------
    experiment: an Experiment, its keys, or the path of its TOML file; or several, in each of which
    every trial is run: it is judged by the mean.
    over: key path -> space, ``{"local.optimizer.lr": "log:0.001..1", "fedprox:algorithm.mu": [0.01,
    0.1, 1.0]}``; a name and a colon before a key: for this method alone.
    per: the methods, ``"algorithm.name=fedavg,scaffold"``, ``"algorithm.name"`` with the values of
    the file's grid, or label -> keys; None: the file's own.
    trials: of each method.
    objective: ``headline``, a metric, ``worst_tenth``, ``time_to:0.8`` or ``traffic_to:0.8``; of
    several the sum of ranks counts.
    seeds: with which each trial is run; the file's by default.
    test_seeds: others, three by default; none for no test.
    rounds_first, hours_first: rounds or virtual hours after which the best trials go on, one in
    ``factor``, and so on up to whole runs; None: all are whole runs.
    jobs: runs at a time.
    on_ray: address of a Ray cluster, as for :func:`motley.compare`, on which all runs of a wave are
    put; ``jobs`` then says for how many runs at a time trials are proposed together.
    out: the study's folder, ``runs/<name>-tuned/<study id>`` by default; the same call goes on with
    a study that was interrupted.
    data, overrides, task, allow_import, allow_other_numerics: as for :func:`motley.run`.
    say: told what it will cost, and of each result.

    Raises
    ------
    ConfigError: before anything is run, whatever would stop the study later. StoreError: the folder
    holds another study, its journal is damaged, or the disk is full. UserError: a run failed; the
    same call goes on after it.

    Example
    -------
    ``motley.tune("exp.toml", {"local.optimizer.lr": "log:0.001..1"},
    per="algorithm.name=fedavg,scaffold").methods[0].values``
    """
    need_optuna()
    with imports(allow_import):
        if isinstance(experiment, Sequence) and not isinstance(experiment, str):
            experiments = experiment
        else:
            experiments = [experiment]
        bases = [
            as_experiment(base if task is None else with_own(base, task), overrides)
            for base in experiments
        ]
        plan = plan_of(
            bases,
            over,
            per=per,
            trials=trials,
            objective=objective,
            seeds=seeds,
            test_seeds=test_seeds,
            rounds_first=rounds_first,
            hours_first=hours_first,
            factor=factor,
        )
    if jobs < 1:
        raise ConfigError(f"got {jobs}; expected at least 1", "jobs")
    if out is not None:
        folder = user_path(out)
    else:
        folder = Path("runs") / f"{slug(plan.bases[0].name)}-tuned" / plan.study_id()
    options = {
        "data": user_path(data) if data is not None else None,
        "on_ray": on_ray,
        "jobs": jobs if on_ray is None else 1,
        "allow_other_numerics": allow_other_numerics,
    }
    if on_ray is None:
        return _run(plan, folder, options, jobs, say=say)
    with required_extension("runner", "ray", "on_ray").connected(on_ray, plan.bases):
        return _run(plan, folder, options, jobs, say=say)


def _run(
    plan: TuningPlan, folder: Path, options: Mapping[str, Any], jobs: int, say: Say
) -> TuningResult:
    """Run a study in its folder, or what is missing of it, and write its results; ``options``: of
    :func:`run_points`; ``jobs``: as for :func:`tune`."""
    RunFolder(folder).check()
    for line in plan.sentences():
        say(line)
    with RunFolder(folder).lock():
        ensure_space(folder)
        batch = _begun(folder, plan, jobs)
        with job_workers_kept(), opened(folder / "trials.log") as storage:
            result = _Study(
                plan=plan,
                folder=folder,
                options=options,
                jobs=jobs,
                batch=batch,
                say=say,
                storage=storage,
            ).run()
        write_results(result)
    return result


def _begun(folder: Path, plan: TuningPlan, jobs: int) -> int:
    """Write the study's record, or compare it with the one that is there; return how many trials of
    a method run at a time.

    Raises
    ------
    StoreError: the folder holds another study, a private one of other data, or something else.
    """
    path = folder / "study.json"
    about = plan.record()
    private, data = plan.private_data()
    if path.exists():
        record = read_record(path)
        if record.get("plan") != about:
            raise StoreError(
                f"{folder} holds another study; choose another output folder, or leave --out away"
            )
        if private:
            private_training().secret_of(folder, {"privacy": record}, data)
        return int(record["batch"])
    before = (".lock", "study.json.new", *SECRET_FILES)
    foreign = [entry.name for entry in folder.iterdir() if entry.name not in before]
    if foreign:
        raise StoreError(
            f"{folder} holds files that are no study ({sorted(foreign)[0]}, ...); choose a new or "
            "empty folder"
        )
    batch = max(1, ceil(jobs / (len(plan.methods) * plan.repeated)))
    begun: dict[str, Any] = {"plan": about, "batch": batch, "jobs": jobs}
    if private:
        training = private_training()
        secret = training.secret_of(folder, {}, data)
        begun["commitment"] = training.keep_secret(folder, secret, data)
    record = with_digest({**begun, "versions": installed_versions("optuna")})
    try:
        with replacing(path) as file:
            file.write(to_json(record, indent=1).encode())
    except OSError as error:
        raise disk_error(error, path) from None
    return batch


@dataclass(frozen=True)
class _TrialPart:
    """A trial of a method to be run up to a rung."""

    method: MethodPlan
    number: int
    values: dict[str, Any]
    rung: int

    def words(self) -> str:
        """Return the method, the trial and its values in words."""
        return f"{self.method.label}, trial {self.number + 1}: {in_words(self.values)}"


class _Study:
    """A study while it runs. ``options``: of :func:`run_points`. ``jobs``: runs at a time, for
    forecasts. ``batch``: trials of a method that
    are proposed together. The others as for :func:`tune`."""

    def __init__(
        self,
        plan: TuningPlan,
        folder: Path,
        options: Mapping[str, Any],
        jobs: int,
        batch: int,
        say: Say,
        storage: Any,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._options = options
        self._jobs = jobs
        self._batch = batch
        self._say = say
        key = Key(plan.seeds[0]).fold("tune")
        self._proposals = {
            m.label: Proposals(
                storage=storage,
                name=m.label,
                spaces=m.spaces,
                key=key,
                objectives=len(plan.objectives),
                own_values=_given(m.experiment(plan.bases[0], {}), m.spaces),
            )
            for m in plan.methods
        }
        tests = len(plan.methods) * len(plan.bases) * len(plan.test_seeds)
        self._left = sum(map(plan.run_equivalents, plan.methods)) + tests
        self._began_s = time.monotonic()
        self._done = 0.0
        self._timed = False
        self._base_of: dict[Path, Experiment] = {}

    def run(self) -> TuningResult:
        """Run what is missing and return the outcome."""
        plan = self._plan
        self._say_where()
        for first in range(0, plan.trials, self._batch):
            parts = [
                _TrialPart(method, number, self._proposals[method.label].values(number), 0)
                for method in plan.methods
                for number in range(first, min(first + self._batch, method.trials))
                if not self._proposals[method.label].told(number)
            ]
            self._evaluate(parts)
        for rung in range(1, len(plan.halving.shares)):
            chosen = {
                m.label: best_of(self._trials(m), rung - 1)[: plan.halving.counts(m.trials)[rung]]
                for m in plan.methods
            }
            self._drop_checkpoints(chosen)
            parts = [
                _TrialPart(method, trial.number, trial.values, rung)
                for method in plan.methods
                for trial in chosen[method.label]
            ]
            self._evaluate(
                [
                    part
                    for part in parts
                    if self._proposals[part.method.label].kept(part.number, rung) is None
                ]
            )
        best = [
            best_of(self._trials(method), len(plan.halving.shares) - 1)[0]
            for method in plan.methods
        ]
        tests = self._test(best)
        methods = [
            TunedMethod(method, tuple(self._trials(method)), trial, test)
            for method, trial, test in zip(plan.methods, best, tests, strict=True)
        ]
        return TuningResult(plan, tuple(methods), self._folder)

    def _say_where(self) -> None:
        finished = [
            sum(self._proposals[m.label].told(n) for n in range(m.trials))
            for m in self._plan.methods
        ]
        if any(finished):
            self._left -= sum(
                trial.run_equivalents
                for method in self._plan.methods
                for trial in self._trials(method)
            )
            self._say(
                f"the study goes on: {min(finished)} of {self._plan.trials} trials of each method "
                "are there"
            )

    def _trials(self, method: MethodPlan) -> list[TuningTrial]:
        """Return the trials of a method that have a result."""
        mine = self._proposals[method.label]
        trials = []
        for number in range(method.trials):
            if mine.told(number):
                records = [
                    mine.kept(number, rung) for rung in range(len(self._plan.halving.shares))
                ]
            else:
                records = []
            if records and records[0] is not None:
                steps = tuple(StepResult.of(record) for record in records if record is not None)
                trials.append(TuningTrial(number, mine.values(number), steps))
        return trials

    def _drop_checkpoints(self, chosen: Mapping[str, Sequence[TuningTrial]]) -> None:
        """Delete the checkpoints of trials that do not go on: with the state of many clients they
        are large."""
        places = {
            (m.label, trial.number): [
                self._trial_folder(m, number, trial.values)
                for number in range(len(self._plan.bases))
            ]
            for m in self._plan.methods
            for trial in self._trials(m)
        }
        going = {
            folder
            for label, trials in chosen.items()
            for trial in trials
            for folder in places[label, trial.number]
        }
        for folder in {folder for folders in places.values() for folder in folders} - going:
            for checkpoints in folder.glob("*/checkpoints"):
                shutil.rmtree(checkpoints, ignore_errors=True)

    def _evaluate(self, parts: Sequence[_TrialPart]) -> None:
        """Run trials, each in all experiments with all seeds, and keep what validation says of
        them."""
        plan = self._plan
        points = []
        folders = []
        for part in parts:
            stays = {"checkpoint.keep": part.rung < len(plan.halving.shares) - 1}
            for number, base in enumerate(plan.bases):
                for seed in plan.seeds:
                    experiment = part.method.experiment(
                        base,
                        {
                            **part.values,
                            "seed": seed,
                            **plan.halving.stop(base, part.rung),
                            **stays,
                        },
                    )
                    points.append(Point(part.words(), experiment))
                    folders.append(
                        self._trial_folder(part.method, number, part.values) / experiment.run_id()
                    )
                    self._base_of[folders[-1]] = base
        runs = self._run(points, folders)
        spent = 0.0
        for i, part in enumerate(parts):
            own = runs[i * plan.repeated : (i + 1) * plan.repeated]
            values = tuple(
                mean_value([objective.measured(run, "validation") for run in own])
                for objective in plan.objectives
            )
            result = StepResult(
                values, sum(share_of(run, self._base_of[run.directory]) for run in own)
            )
            mine = self._proposals[part.method.label]
            before = mine.kept(part.number, part.rung - 1) if part.rung else None
            spent += result.share - (before["share"] if before else 0.0)
            if part.rung:
                mine.keep(part.number, part.rung, result.record())
            else:
                mine.tell(part.number, [value.order for value in values], result.record())
            figures = [
                f"{objective} {shown(objective, value)}"
                for objective, value in zip(plan.objectives, values, strict=True)
            ]
            self._say(f"{part.words()}: {', '.join(figures)}")
        if parts:
            self._say_left(spent)

    def _place(self, kind: str, method: MethodPlan, base: int, *more: str) -> Path:
        several = (
            [f"{base + 1}-{slug(self._plan.bases[base].name)}"] if len(self._plan.bases) > 1 else []
        )
        return self._folder.joinpath(kind, *several, slug(method.label), *map(slug, more))

    def _trial_folder(self, method: MethodPlan, base: int, values: Mapping[str, Any]) -> Path:
        return self._place("runs", method, base, folder_name(values))

    def _run(self, points: Sequence[Point], folders: Sequence[Path]) -> Sequence[Run]:
        """Run what is not finished; raise the first error."""
        if not points:
            return []
        runs, failures = run_points(points, folders, on_end=self._ended, **self._options)
        for failure in failures:
            problem = (
                f"{failure.point.label}, seed {failure.point.experiment.seed}: {failure.error}"
            )
            if isinstance(failure.error, UserError):
                raise UserError(f"{problem}; the study stops here, and the same command goes on")
            raise failure.error
        return runs

    def _ended(self, run: Run) -> None:
        """Say after the first run how long the study will take."""
        if not self._timed:
            self._timed = True
            wall_s = measures.costs(run).wall_s
            share = share_of(run, self._base_of[run.directory])
            left = self._left * wall_s / max(share, 1e-9) / self._jobs
            self._say(
                f"the first run took {wall_s:.1f} s for {share:.3g} of a run: what is left takes "
                f"about {long(left)}"
            )

    def _say_left(self, equivalents: float) -> None:
        """Say how long the rest will take, by what the runs of this process took."""
        self._left = self._left - equivalents
        self._done = self._done + equivalents
        if self._left > 1e-9 and self._done:
            left = (time.monotonic() - self._began_s) / self._done * self._left
            self._say(f"about {long(left)} left")

    def _test(self, best: Sequence[TuningTrial]) -> list[tuple[Run, ...]]:
        """Run each method with its chosen values and the test seeds."""
        plan = self._plan
        points = []
        folders = []
        for method, chosen in zip(plan.methods, best, strict=True):
            spent = sum(trial.run_equivalents for trial in self._trials(method))
            stays = {
                "checkpoint.keep": False,
                "tuned": plan.chosen(method, chosen.values, spent),
            }
            for number, base in enumerate(plan.bases):
                for seed in plan.test_seeds:
                    experiment = method.experiment(base, {**chosen.values, "seed": seed, **stays})
                    points.append(Point(f"{method.label}, test", experiment))
                    folders.append(self._place("test", method, number) / experiment.run_id())
                    self._base_of[folders[-1]] = base
        runs = self._run(points, folders)
        each = len(plan.bases) * len(plan.test_seeds)
        return [tuple(runs[i * each : (i + 1) * each]) for i in range(len(best))]


def _given(experiment: Experiment, spaces: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values that an experiment has for the keys."""
    values = {}
    resolved = experiment.resolved()
    for key in spaces:
        value: Any = resolved
        for step in key.split("."):
            value = value.get(step) if isinstance(value, Mapping) else None
        values[key] = value
    return values
