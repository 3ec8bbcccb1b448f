"""The plan of a study: methods, spaces, budget and seeds, checked completely before anything is
run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice
from math import ceil, isfinite
from typing import Any

from motley.core.errors import ConfigError, suggest
from motley.experiments.config import Experiment
from motley.experiments.folder_names import slug
from motley.experiments.lineage import digest_of
from motley.experiments.sweep import check_target, expand, parse_over
from motley_advice.tuning.objectives import Objective, parse_objective
from motley_advice.tuning.spaces import Space, parse_space

VALIDATION = 0.2
"""Share of each client's training samples that is set aside where the file sets none aside."""
_FIXED = (
    "seed",
    "pin",
    "stop",
    "split",
    "evaluate",
    "metrics",
    "name",
    "engine",
    "grid",
    "checkpoint",
    "log",
    "client_state",
    "tuned",
)
"""Keys that say how a run is measured or stored, not how it learns."""
MethodChanges = Mapping[str, Mapping[str, Any]]
"""Label of a method -> the keys that make it."""


@dataclass(frozen=True)
class Halving:
    """How far runs go at first, and how many of them go on.

    Parameters
    ----------
    key: ``stop.rounds`` or ``stop.virtual_hours``; empty where every trial runs to its end.
    shares: of a whole run, after which the best go on, ascending; the last is 1.
    factor: one trial in so many goes on.
    """

    key: str = ""
    shares: tuple[float, ...] = (1.0,)
    factor: int = 3

    def counts(self, trials: int) -> tuple[int, ...]:
        """Return how many trials run up to each share: of nine with factor 3, nine, three and
        one."""
        return tuple(max(1, trials // self.factor**rung) for rung in range(len(self.shares)))

    def run_equivalents(self, trials: int) -> float:
        """Return what the trials cost, with one run to its end as the unit; a run that goes on
        costs only what it adds.

        >>> # 9 / 9 + 3 * 2 / 9 + 1 * 6 / 9
        >>> Halving("stop.rounds", (1 / 9, 1 / 3, 1.0)).run_equivalents(9)
        2.333333333333333
        """
        steps = [
            now - before for now, before in zip(self.shares, (0.0, *self.shares), strict=False)
        ]
        return float(
            sum(number * step for number, step in zip(self.counts(trials), steps, strict=True))
        )

    def stop(self, experiment: Experiment, rung: int) -> dict[str, Any]:
        """Return the key that ends a run at a share of it; nothing for the whole of it. Rounds are
        rounded up to an evaluation."""
        if rung == len(self.shares) - 1:
            return {}
        if self.key == "stop.virtual_hours":
            return {self.key: self.shares[rung] * float(experiment.stop.virtual_hours or 0)}
        every = experiment.evaluate.every
        rounds = int(experiment.stop.rounds or 0)
        return {self.key: min(rounds, every * ceil(round(self.shares[rung] * rounds / every, 9)))}


@dataclass(frozen=True)
class MethodPlan:
    """A method to tune: its label, the keys that make it, the spaces of its other keys, and how
    many trials it has."""

    label: str
    changes: Mapping[str, Any]
    spaces: Mapping[str, Space]
    trials: int

    def experiment(self, base: Experiment, values: Mapping[str, Any]) -> Experiment:
        """Return an experiment with this method and these values."""
        return base.replace({**self.changes, **values, "grid": []})


@dataclass(frozen=True)
class TuningPlan:
    """A study before it begins.

    Parameters
    ----------
    bases: the experiments in which every trial is run; a trial's value is the mean over them and
    over ``seeds``.
    notes: what was added to the experiments, in sentences.
    repeated: runs of one trial.
    """

    bases: tuple[Experiment, ...]
    methods: tuple[MethodPlan, ...]
    objectives: tuple[Objective, ...]
    trials: int
    seeds: tuple[int, ...]
    test_seeds: tuple[int, ...]
    halving: Halving
    notes: tuple[str, ...]

    @property
    def repeated(self) -> int:
        """Runs of one trial: experiments times seeds."""
        return len(self.bases) * len(self.seeds)

    def run_equivalents(self, method: MethodPlan) -> float:
        """Return the budget of a method, with one run to its end as the unit."""
        return self.halving.run_equivalents(method.trials) * self.repeated

    def record(self) -> dict[str, Any]:
        """Return all that decides a study's outcome, as JSON values."""
        runs = {
            m.label: [m.experiment(base, {}).result_id() for base in self.bases]
            for m in self.methods
        }
        spaces = {
            m.label: {key: str(space) for key, space in m.spaces.items()} for m in self.methods
        }
        return {
            "runs": runs,
            "spaces": spaces,
            "trials": self.trials,
            "objectives": [str(objective) for objective in self.objectives],
            "seeds": list(self.seeds),
            "test_seeds": list(self.test_seeds),
            "halving": [self.halving.key, list(self.halving.shares), self.halving.factor],
        }

    def private_data(self) -> tuple[bool, dict[str, str]]:
        """Return whether any run of the study is private, and hashes of the data of those that
        are, which the study's id says nothing of."""
        private = self._private()
        return bool(private), {
            f"{number}.{key}": digest
            for number, experiment in enumerate(private)
            for key, digest in experiment.data_digests().items()
        }

    def _private(self) -> list[Experiment]:
        experiments = [
            method.experiment(base, {}) for method in self.methods for base in self.bases
        ]
        return [experiment for experiment in experiments if experiment.privacy is not None]

    def chosen(
        self, method: MethodPlan, values: Mapping[str, Any], run_equivalents: float
    ) -> dict[str, Any]:
        """Return how values were chosen, as the key ``tuned`` of an experiment has it."""
        return {
            "values": dict(values),
            "method": {key: _plain(value) for key, value in method.changes.items()},
            "trials": method.trials,
            "seeds": list(self.seeds),
            "run_equivalents": float(run_equivalents),
            "objective": [str(objective) for objective in self.objectives],
            "spaces": {key: str(space) for key, space in method.spaces.items()},
            "study": self.study_id(),
        }

    def study_id(self) -> str:
        """Return twelve hex digits of a hash of :meth:`record`."""
        return digest_of(self.record())

    def sentences(self) -> list[str]:
        """Return what a study will cost, before it begins."""
        costs = {m.label: self.run_equivalents(m) for m in self.methods}
        sets = f" in each of {len(self.bases)} experiments" if len(self.bases) > 1 else ""
        each = (
            f"{self.trials} trials a method, each with seeds "
            f"{', '.join(map(str, self.seeds))}{sets}"
        )
        if self.halving.key:
            rungs = [
                f"{n} to {s:.3g}"
                for n, s in zip(self.halving.counts(self.trials), self.halving.shares, strict=True)
            ]
            each += f"; by successive halving {', '.join(rungs)} of a run"
        same = len(set(costs.values())) == 1
        if same:
            budget = f"{next(iter(costs.values())):.4g} run-equivalents a method"
        else:
            budget = "run-equivalents: " + ", ".join(
                f"{label} {cost:.4g}" for label, cost in costs.items()
            )
        tests = len(self.methods) * len(self.bases) * len(self.test_seeds)
        lines = [f"{each}: {budget}, {sum(costs.values()):.4g} in all; then {tests} test runs"]
        few = [m.label for m in self.methods if m.trials < self.trials]
        if few:
            lines.append(
                f"all values of {', '.join(few)} are tried in fewer trials: there are no more"
            )
        if self._private():
            lines.append(
                "[privacy]: values are chosen by clear figures of the clients' validation samples, "
                "which no claim covers, and each run of a trial or a test is one more on the data"
            )
        return [*lines, *self.notes]


def _plain(value: Any) -> Any:
    """Return a value as TOML can have it; an object of Python by its name."""
    if isinstance(value, str | int | float | Mapping | list | tuple):
        return value
    return type(value).__name__


def methods_of(base: Experiment, per: str | MethodChanges | None) -> MethodChanges:
    """Return the methods that ``per`` means: ``KEY=a,b,c``; ``KEY``, with the values of the file's
    grid; or label -> keys.

    Raises
    ------
    ConfigError: no values, or values that the experiment refuses.
    """
    if per is None:
        return {base.name: {}}
    if not isinstance(per, str):
        return per
    if "=" in per:
        key, values = parse_over(per, "--per", "algorithm.name=fedavg,fedprox")
    else:
        key, values = _of_grid(base, per.strip())
    points = expand(base.replace({"grid": []}), {key: values})
    return {
        point.name or point.label: {key: value} for point, value in zip(points, values, strict=True)
    }


def _of_grid(base: Experiment, key: str) -> tuple[str, list[Any]]:
    """Return the key and its values in the file's grids; a grid over whole components will do for
    their names."""
    for wanted in (key, key.removesuffix(".name")):
        values_of_grids = [list(grid[wanted]) for grid in base.grid if wanted in grid]
        if values_of_grids:
            return wanted, list(
                {repr(value): value for values in values_of_grids for value in values}.values()
            )
    raise ConfigError(
        f"got {key!r}, and no grid of the file has values for it; write {key}=a,b,c", "--per"
    )


def plan_of(
    bases: Sequence[Experiment],
    over: Mapping[str, Any],
    *,
    per: str | MethodChanges | None,
    trials: int,
    objective: str | Sequence[str],
    seeds: Sequence[int] | None,
    test_seeds: Sequence[int] | None,
    rounds_first: int | None,
    hours_first: float | None,
    factor: int,
) -> TuningPlan:
    """Return the plan of a study; parameters as for :func:`motley.tune`.

    Raises
    ------
    ConfigError: whatever would stop the study later.
    """
    if trials < 1:
        raise ConfigError(f"got {trials}; expected at least 1", "--trials")
    _check_stops(bases)
    bases, notes = _with_validation(bases)
    objectives = tuple(
        parse_objective(text) for text in ([objective] if isinstance(objective, str) else objective)
    )
    _check_objectives(objectives, bases)
    tuned, tested = _seeds(bases[0], seeds, test_seeds)
    halving = _halving(bases[0], rounds_first, hours_first, factor)
    methods = _methods(bases, methods_of(bases[0], per), over, trials)
    if halving.key:
        for method in methods:
            _check_horizon(method, bases, halving.key)
    return TuningPlan(
        bases=tuple(bases),
        methods=methods,
        objectives=objectives,
        trials=trials,
        seeds=tuned,
        test_seeds=tested,
        halving=halving,
        notes=notes,
    )


def _check_stops(bases: Sequence[Experiment]) -> None:
    """Refuse an experiment that ends at a test figure: the test samples would decide how long a
    trial trains, and so which is chosen."""
    for base in bases:
        if base.stop.target is not None:
            raise ConfigError(
                "ends a run by its test figure, and values are chosen by validation samples alone; "
                "write stop.rounds, stop.virtual_hours or stop.patience instead: --objective "
                "time_to:0.8 measures the time to a target",
                "stop.target",
            )


def _with_validation(bases: Sequence[Experiment]) -> tuple[tuple[Experiment, ...], tuple[str, ...]]:
    """Return the experiments with validation samples, and a sentence where they were added."""
    if not bases:
        raise ConfigError("got no experiment; give one, or several", "experiment")
    prepared = tuple(
        base
        if base.split.validation or base.own_task is not None
        else base.replace({"split.validation": VALIDATION})
        for base in bases
    )
    bare = [
        base.own_task
        for base in bases
        if base.own_task is not None and not len(base.own_task.federation.validation.values)
    ]
    if bare:
        raise ConfigError(
            "the clients of this federation have no validation samples, by which to choose; make "
            f"it with validation={VALIDATION}, e.g. motley.tasks.from_arrays(..., "
            f"validation={VALIDATION})",
            "task",
        )
    if list(prepared) == list(bases):
        return prepared, ()
    sentence = (
        f"split.validation = {VALIDATION} was added to every run, for the file sets no "
        "validation samples aside"
    )
    return prepared, (sentence,)


def _check_objectives(objectives: Sequence[Objective], bases: Sequence[Experiment]) -> None:
    if not objectives or len({str(objective) for objective in objectives}) < len(objectives):
        raise ConfigError(
            "expected one objective, or several different ones, e.g. accuracy", "objective"
        )
    for base in bases:
        own = (
            () if base.own_task is None else tuple(metric.name for metric in base.own_task.metrics)
        )
        names = dict.fromkeys(("headline", "worst_tenth", "loss", "accuracy", *base.metrics, *own))
        for objective in objectives:
            if objective.metric is not None and objective.metric not in names:
                problem = (
                    f"got {objective.metric!r}{suggest(objective.metric, names)}; expected one of: "
                    f"{', '.join(names)}, time_to:T, traffic_to:T"
                )
                raise ConfigError(
                    f'{problem}; other metrics are measured with metrics = ["..."]', "objective"
                )
            if isfinite(objective.target):
                check_target(base, objective.target)
            if objective.kind == "worst_tenth" and not base.evaluate.per_client:
                raise ConfigError(
                    "needs every client's own figure; write evaluate = { per_client = true }",
                    "objective worst_tenth",
                )


def _seeds(
    base: Experiment, seeds: Sequence[int] | None, test_seeds: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the seeds of tuning (the file's by default), and those of the test (three from 10 on
    by default), which are others."""
    tuned = tuple([base.seed] if seeds is None else seeds)
    tested = tuple(
        islice((s for s in count(10) if s not in tuned), 3) if test_seeds is None else test_seeds
    )
    for name, numbers in (("--seeds", tuned), ("--test-seeds", tested)):
        if len(set(numbers)) < len(numbers) or (not numbers and name == "--seeds"):
            raise ConfigError(
                f"got {', '.join(map(str, numbers)) or 'none'}; expected different whole numbers",
                name,
            )
    both = sorted(set(tuned) & set(tested))
    if both:
        raise ConfigError(
            f"{', '.join(map(str, both))} would tune and test; a test needs seeds that tuning "
            "never saw, e.g. "
            f"{', '.join(map(str, islice((s for s in count(10) if s not in tuned), 3)))}",
            "--test-seeds",
        )
    return tuned, tested


def _halving(base: Experiment, rounds: int | None, hours: float | None, factor: int) -> Halving:
    if rounds is None and hours is None:
        return Halving()
    if rounds is not None and hours is not None:
        raise ConfigError("got rounds and virtual hours; halve by one of the two", "--hours-first")
    if factor < 2:
        raise ConfigError(
            f"got {factor}; expected at least 2: one trial in so many goes on", "--factor"
        )
    if rounds is not None:
        name, key = ("--rounds-first", "stop.rounds")
    else:
        name, key = ("--hours-first", "stop.virtual_hours")
    end = base.stop.rounds if rounds is not None else base.stop.virtual_hours
    first = float(rounds if rounds is not None else hours or 0)
    if end is None:
        raise ConfigError(
            f"needs a run with an end in the same unit; write {key} in the file", name
        )
    if not 0 < first < end:
        raise ConfigError(
            f"got {first:g} of {end:g}; expected more than 0 and less than the whole run", name
        )
    shares = []
    while first < end * (1 - 1e-9):
        if rounds is not None:
            share = base.evaluate.every * ceil(first / base.evaluate.every) / end
        else:
            share = first / end
        shares += [share] if share < 1 and share not in shares else []
        first *= factor
    if not shares:
        raise ConfigError(
            f"got {rounds} of {end}, and evaluate.every = {base.evaluate.every} examines no round "
            f"between them, by which trials could go on; set evaluate.every = {rounds} or less",
            name,
        )
    return Halving(key, (*shares, 1.0), factor)


def _check_horizon(method: MethodPlan, bases: Sequence[Experiment], key: str) -> None:
    """Refuse to halve by rounds where a component looks at the planned number of rounds: a shorter
    run is then another one."""
    for base in bases:
        keys = method.experiment(base, {}).horizon_keys() if key == "stop.rounds" else []
        if keys:
            raise ConfigError(
                f"{method.label}: {' and '.join(keys)} looks at the planned number of rounds, so a "
                "run that ends early is another one; leave --rounds-first out, or give "
                "stop.virtual_hours and --hours-first",
                "--rounds-first",
            )


def _methods(
    bases: Sequence[Experiment], changes: MethodChanges, over: Mapping[str, Any], trials: int
) -> tuple[MethodPlan, ...]:
    if not over:
        raise ConfigError(
            "there is nothing to tune; write e.g. --over local.optimizer.lr=log:0.001..1", "--over"
        )
    spaces: dict[str, dict[str, Space]] = {label: {} for label in changes}
    for name, text in over.items():
        whose, colon, key = name.rpartition(":")
        chosen = [
            label for label in changes if not colon or label == whose or label.split()[0] == whose
        ]
        if not chosen:
            raise ConfigError(
                f"there is no method {whose!r}{suggest(whose, changes)}; expected one of: "
                f"{', '.join(changes)}",
                "--over",
            )
        if key.partition(".")[0] in _FIXED:
            raise ConfigError(
                "says how a run is measured or stored, not how it learns, and cannot be tuned",
                f"--over {key}",
            )
        space = parse_space(text, f"--over {key}")
        for label in chosen:
            _check_space(label, bases, changes, key, space=space, alone=bool(colon))
            spaces[label][key] = space
    empty = [label for label, own in spaces.items() if not own]
    if empty:
        raise ConfigError(
            f"nothing is tuned for {empty[0]!r}; give it a space, or leave it out of --per",
            "--over",
        )
    files: dict[str, str] = {}
    for label in changes:
        first_label = files.setdefault(slug(label), label)
        if first_label != label:
            raise ConfigError(
                f"the methods {first_label!r} and {label!r} would be written into the same folder "
                f"{slug(label)}; name them otherwise",
                "--per",
            )
    return tuple(
        MethodPlan(label, changes[label], own, min(trials, _size(own)))
        for label, own in spaces.items()
    )


def _size(spaces: Mapping[str, Space]) -> int:
    """Return the number of combinations of values; a very large one where there is a continuum."""
    size = 1
    for space in spaces.values():
        size = min(size * (10**9 if space.size is None else space.size), 10**9)
    return size


def _takes(base: Experiment, changes: Mapping[str, Any], key: str, space: Space) -> bool:
    """Return whether a method has a key."""
    try:
        base.replace({**changes, key: space.ends[0]})
    except ConfigError:
        return False
    return True


def _check_space(
    label: str,
    bases: Sequence[Experiment],
    changes: MethodChanges,
    key: str,
    space: Space,
    alone: bool,
) -> None:
    """Refuse a key that the method lacks, an end that it refuses, and a key that changes
    nothing."""
    for base in bases:
        try:
            experiments = [
                MethodPlan(label, changes[label], {}, 0).experiment(base, {key: value})
                for value in space.ends
            ]
        except ConfigError as error:
            if alone:
                methods = []
            else:
                methods = [
                    method for method in changes if _takes(base, changes[method], key, space)
                ]
            hint = (
                f"; for one method alone write --over {methods[0]}:{key}={space}" if methods else ""
            )
            raise ConfigError(f"{label}: {error}{hint}", f"--over {key}") from None
        if len({experiment.run_id() for experiment in experiments}) < len(experiments):
            raise ConfigError(
                f"{label}: this key changes no result, so there is nothing to tune", f"--over {key}"
            )
