"""The plan of an explanation: the causes, and their combinations that are run within a budget."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import cached_property
from math import isfinite
from pathlib import Path
from typing import Any

from motley.core.errors import ConfigError, UserError, suggest
from motley.experiments import document
from motley.experiments.checks import with_metrics
from motley.experiments.config import Experiment
from motley.experiments.controls import BuildCheck
from motley.experiments.lineage import digest_of
from motley.experiments.run_data import task_of
from motley.results.aspects import in_list, value_at
from motley.tasks.metrics import COLUMNS
from motley.tasks.task import Task
from motley_advice.explanation.causes import (
    READING,
    Cause,
    KeyDifference,
    causes_of,
    combined,
    harmless_of,
    joined,
    leaves,
)
from motley_advice.explanation.compared_results import (
    Given,
    Reading,
    Side,
    checked_side,
    recorded_differences,
    side_of,
    why_run_again,
)
from motley_advice.explanation.shapley import (
    EXACT,
    Combination,
    end_combinations,
    planned_combinations,
)

RUNS = 160
"""Runs of a plan unless a budget is given: all combinations of five causes with five seeds."""
ROUNDS = ("last", "best")
SCOPES = (
    *("global", "mean", "pooled", "validation", "validation_mean"),
    *("shared_mean", "prototype_mean"),
)
"""Scopes with one figure per evaluation, of which a run has some; those of widths and of new
clients have a number in their names."""
_NUMBERED = ("width_", "new_mean_")


@dataclass(frozen=True)
class ExplanationPlan:
    """What an explanation will run.

    Parameters
    ----------
    a, b: the two sides; their difference is B's figure minus A's.
    causes: what differs and can change the figure, as it is changed one at a time.
    harmless: what differs and cannot.
    recorded: what the records of stored runs say otherwise beside the keys.
    seeds: with each of which every combination is run.
    combinations: the sets of causes that have B's value; all of them, or those near both ends.
    printed: the printed number that B is held against; None without one.
    printed_runs: of which it is the mean.
    printed_rounding: half a unit of its last digit.
    """

    a: Side
    b: Side
    causes: Sequence[Cause]
    harmless: Sequence[KeyDifference]
    recorded: Sequence[KeyDifference]
    seeds: Sequence[int]
    combinations: Sequence[Combination]
    printed: float | None = None
    printed_runs: int = 1
    printed_rounding: float = 0.0

    @property
    def exact(self) -> bool:
        """Whether all combinations are run."""
        return len(self.combinations) == 1 << len(self.causes)

    @property
    def metric(self) -> str:
        """The metric whose difference is explained."""
        return self.a.reading.metric

    def experiment(self, combination: Combination, seed: int) -> Experiment:
        """Return the experiment of a combination with a seed."""
        if self.a.of_seed is self.b.of_seed is None:
            return self._made[combination].replace({"seed": seed})
        a, b = (side.with_seed(seed) for side in (self.a, self.b))
        return _experiment(a, b, self.causes, combination)

    def reading(self, combination: Combination) -> Reading:
        """Return how the figure of a combination is read off its run."""
        keys = combined(self.a.document, self.b.document, self.causes, combination)
        return Reading(**keys[READING])

    @cached_property
    def _made(self) -> dict[Combination, Experiment]:
        return {
            combination: _experiment(self.a, self.b, self.causes, combination)
            for combination in self.combinations
        }

    @cached_property
    def number_of_runs(self) -> int:
        """The runs of the plan, those that are there already among them; combinations that differ
        only in how the figure is read share theirs."""
        if self.a.of_seed is self.b.of_seed is None:
            return _distinct(self._made.values()) * len(self.seeds)
        return _distinct(
            self.experiment(combination, seed)
            for combination in self.combinations
            for seed in self.seeds
        )

    @property
    def ends(self) -> tuple[Combination, Combination]:
        """The combinations of A and of B."""
        return frozenset(), frozenset(range(len(self.causes)))

    @property
    def identity(self) -> str:
        """Twelve hex digits that name both experiments, how their figures are read and the print,
        whatever the seeds and the budget."""
        sides = [(_ids(side), asdict(side.reading)) for side in (self.a, self.b)]
        return digest_of([sides, self.printed, self.printed_runs, self.printed_rounding])

    def name(self, combination: Combination) -> str:
        """Return a combination in words: ``A with weights of B``, or ``B`` for all causes."""
        if len(combination) == len(self.causes):
            return "B"
        names = [self.causes[number].name for number in sorted(combination)]
        return f"A with {in_list(names)} of B" if names else "A"

    def sentences(self) -> list[str]:
        """Return what the plan does and why, in sentences."""
        count = len(self.combinations)
        every = len(self.causes) > 1
        if self.exact and every:
            scheme = f"all {count} combinations of {len(self.causes)} causes (exact Shapley values)"
        elif every:
            scheme = f"{count} combinations: one cause at a time from A and from B"
        else:
            scheme = "A and B: there is one cause"
        lines = [
            f"{self.number_of_runs} runs: {scheme}, each with {_count(self.seeds)} "
            f"({_listed(self.seeds)})"
        ]
        if not self.exact and len(self.causes) <= EXACT:
            lines.append(
                "all combinations are more runs than --runs allows, so what several causes do "
                "together is left over"
            )
        lines += [cause.reason for cause in self.causes if cause.reason]
        lines += [*self.a.unread, *self.b.unread]
        lines += [
            f"{name} was not finished with seed {_listed(side.unfinished)}, and counts as it is "
            "made here"
            for name, side in (("A", self.a), ("B", self.b))
            if side.unfinished
        ]
        if self.a.seeds != self.b.seeds:
            lines.append(
                f"the seeds differ: A has {_listed(self.a.seeds)}, B {_listed(self.b.seeds)}; both "
                "sides are compared with the same ones"
            )
        return lines


def _ids(side: Side) -> list[str]:
    """Return the ids of the results of a side: that of each of its own seeds where more than the
    key ``seed`` goes with it."""
    seeds = side.seeds if side.of_seed is not None else side.seeds[:1]
    return [side.with_seed(seed).experiment.replace({"seed": 0}).result_id() for seed in seeds]


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _count(seeds: Sequence[int]) -> str:
    return f"{len(seeds)} seed{'s' if len(seeds) > 1 else ''}"


def _distinct(experiments: Iterable[Experiment]) -> int:
    return len({experiment.result_id() for experiment in experiments})


def _experiment(a: Side, b: Side, causes: Sequence[Cause], combination: Combination) -> Experiment:
    """Return the experiment of a combination; one of an end is that side's own."""
    if not combination:
        return a.experiment
    if len(combination) == len(causes):
        return b.experiment
    keys = combined(a.document, b.document, causes, combination)
    del keys[READING]
    for side in (a, b):
        if side.experiment.own_task is not None and side.document["task"] == keys["task"]:
            keys["task"] = side.experiment.own_task
    return Experiment(**keys)


def _pairs(a: Side, b: Side, seeds: Sequence[int]) -> list[tuple[Side, Side]]:
    """Return both sides with each seed; one pair where no more than the key ``seed`` goes with
    it."""
    if a.of_seed is b.of_seed is None:
        return [(a, b)]
    return [(a.with_seed(seed), b.with_seed(seed)) for seed in seeds]


def _unlike_pairs(pairs: Sequence[tuple[Side, Side]]) -> list[tuple[Side, Side]]:
    """Return the first pair of those that differ in the same keys."""
    firsts: dict[frozenset[str], tuple[Side, Side]] = {}
    for a, b in pairs:
        firsts.setdefault(frozenset(row.key for row in leaves(a.document, b.document)), (a, b))
    return list(firsts.values())


def plan_of(
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
    data: Path | None = None,
    overrides: Sequence[str] = (),
) -> ExplanationPlan:
    """Return the plan of an explanation; nothing is run. The parameters are those of
    :func:`~motley_advice.explanation.explaining.explain`.

    Raises
    ------
    ConfigError: A and B do not differ in anything that can change the figure, an option that makes
    no sense, a side that cannot run, or a budget that is too small.
    """
    _check_printed_runs(printed_runs, printed)
    number, rounding = _number_printed(printed)
    side_a = side_of(a, overrides, data)
    side_b = _other_side(side_a, b, changes, overrides=overrides, data=data)
    planned_seeds = _seeds(side_a, side_b, seeds)
    side_a, side_b = (side.with_seed(planned_seeds[0]) for side in (side_a, side_b))
    tasks = [
        with_metrics(side.experiment, task_of(side.experiment, data=data))
        for side in (side_a, side_b)
    ]
    metric = _metric(metric, tasks)
    _check_printed(number, metric, tasks[0])
    readings = _readings(metric, round, scope)
    for name, reading, task in zip("AB", readings, tasks, strict=True):
        if reading.scope == "global" and task.federation.global_test is None:
            raise ConfigError(
                f"got 'global', and {name} has no common test set; give it one, split = {{ test = "
                '"global" }, or leave the scope out',
                "--scope",
            )
    if printed is not None:
        _check_measures(side_a, readings[1], tasks[0])
    side_a, side_b = (
        replace(side, reading=reading)
        for side, reading in zip((side_a, side_b), readings, strict=True)
    )
    alike = _same_cohort(side_a, side_b)
    pairs = _pairs(side_a, side_b, planned_seeds)
    causes = causes_of(
        [a.document for a, _ in pairs], [b.document for _, b in pairs], cohort_alike=alike
    )
    harmless = harmless_of(side_a.document, side_b.document, causes)
    recorded = recorded_differences(side_a, side_b)
    if not causes:
        raise _nothing(side_a, side_b, harmless, recorded)
    check = BuildCheck(data)
    unlike = _unlike_pairs(pairs)
    for pair in unlike:
        for name, side in zip("AB", pair, strict=True):
            reason = check.of(side.experiment)
            if reason is not None:
                raise ConfigError(f"{name}, {side.label}, cannot run: {reason}")

    def refusal(tried: Sequence[Cause], combination: Combination) -> UserError | None:
        try:
            reasons = (check.of(_experiment(*pair, tried, combination)) for pair in unlike)
            return next(filter(None, reasons), None)
        except UserError as error:
            return error

    causes = joined(causes, refusal)
    plan = ExplanationPlan(
        a=side_a,
        b=side_b,
        causes=causes,
        harmless=harmless,
        recorded=recorded,
        seeds=planned_seeds,
        combinations=planned_combinations(len(causes)),
        printed=number,
        printed_runs=printed_runs or 1,
        printed_rounding=rounding,
    )
    return _within(plan, RUNS if runs is None else runs)


def _other_side(
    a: Side,
    b: Given | None,
    changes: Sequence[str],
    overrides: Sequence[str],
    data: Path | None,
) -> Side:
    """Return B: what is given, or A with candidate changes."""
    if (b is None) == (not changes):
        raise ConfigError(
            "expected either a second experiment or changes of the first, e.g. motley explain A B, "
            "or motley explain A --change weights=uniform"
        )
    if b is not None:
        return side_of(b, overrides, data)
    pairs = [document.parse_setting(change, "--change") for change in changes]
    values = {key: document.parse_value(text) for key, text in pairs}
    if len(values) < len(pairs):
        twice = next(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        raise ConfigError(f"got {twice} more than once; give it once", "--change")
    if "seed" in values:
        raise ConfigError(
            "got seed; what differs between seeds is chance, and no cause: give --seeds", "--change"
        )
    inside = next((key for key in values if key.startswith("task.")), None)
    if inside is not None and a.experiment.own_task is not None:
        raise ConfigError(
            f"got {inside}, and the task of {a.label} is made by code, whose options no change "
            f"reaches; of a table write a row with {json.dumps(inside)}, and compare the two",
            "--change",
        )
    for key, value in values.items():
        changed = _replaced(a.experiment, {key: value})
        if changed is not None and changed.result_id() == a.experiment.result_id():
            same = changed.resolved() == a.experiment.resolved()
            why = f"is what {a.label} has already" if same else "cannot change the figure"
            raise ConfigError(f"{key} = {value} {why}", "--change")
    _check_kept(a.experiment, values)
    words = ", ".join(f"{key} = {value}" for key, value in values.items())
    made = a.of_seed
    return checked_side(
        Side(
            label=f"A with {words}",
            experiment=a.experiment.replace(values),
            seeds=a.seeds,
            of_seed=None if made is None else lambda seed: made(seed).replace(values),
        )
    )


def _replaced(experiment: Experiment, values: Mapping[str, Any]) -> Experiment | None:
    """Return the experiment with other values; None where that is none."""
    try:
        return experiment.replace(values)
    except UserError:
        return None


def _check_kept(experiment: Experiment, values: Mapping[str, Any]) -> None:
    """Refuse a change that the other changes take back, as of ``local.epochs`` beside
    ``local.steps``."""
    together = experiment.replace(values).resolved()
    for key, value in values.items():
        others = {other: held for other, held in values.items() if other != key}
        alone = _replaced(experiment, {key: value})
        without = _replaced(experiment, others)
        if alone is None or without is None:
            continue  # they need each other
        kept = value_at(alone.resolved(), key) == value_at(together, key)
        if not kept and without.resolved() == together:
            beside = in_list([f"{other} = {held}" for other, held in others.items()])
            raise ConfigError(
                f"{key} = {value} is lost beside {beside}; leave one of them out", "--change"
            )


def _metric(metric: str | None, tasks: Sequence[Task]) -> str:
    """Return the metric by which both sides are compared.

    Raises
    ------
    ConfigError: one does not measure it.
    """
    if metric is None and tasks[0].metric != tasks[1].metric:
        raise ConfigError(
            f"A is measured by {tasks[0].metric}, B by {tasks[1].metric}; say by which both are "
            "compared, e.g. loss",
            "--metric",
        )
    metric = metric or tasks[0].metric
    for label, task in zip("AB", tasks, strict=True):
        columns = COLUMNS if task.metric in COLUMNS else ("loss",)
        names = dict.fromkeys([task.metric, *(each.name for each in task.metrics), *columns])
        if metric not in names:
            raise ConfigError(
                f"{label} does not measure {metric!r}{suggest(metric, names)}; it measures "
                f"{in_list(list(names))}, and more with --set 'metrics=[...]'",
                "--metric",
            )
    return metric


def _number_printed(printed: float | str | None) -> tuple[float | None, float]:
    """Return a printed number and half a unit of its last digit; None and 0 without one."""
    if printed is None:
        return None, 0.0
    try:
        number = Decimal(str(printed))
    except InvalidOperation:
        number = Decimal("nan")
    if not isfinite(float(number)):
        raise ConfigError(f"got {printed}; expected the number that was printed", "--printed")
    return float(number), 0.5 * 10.0 ** int(number.as_tuple().exponent)


def _check_printed(printed: float | None, metric: str, task: Task) -> None:
    """Refuse a printed percentage of what Motley measures as a share."""
    shares = {"accuracy": True} | {each.name: each.share for each in task.metrics}
    if printed is not None and shares.get(metric) and not 0 <= printed <= 1:
        raise ConfigError(
            f"got {printed:g}, and {metric} lies between 0 and 1; of a percentage write "
            f"{printed / 100:g}",
            "--printed",
        )


def _check_measures(side: Side, reading: Reading, task: Task) -> None:
    """Refuse to hold the number of a table against a figure that none of its columns has."""
    common = reading.scope == "global" or (
        reading.scope is None and task.federation.global_test is not None
    )
    if reading.metric != task.metric or reading.scope not in (None, "global", "mean"):
        return  # asked for by name
    figure = "peak" if reading.round == "best" else "final" if common else "client_mean"
    names = {figure, "final"} if figure == "client_mean" and reading.scope is None else {figure}
    if side.measures and names.isdisjoint(side.measures):
        raise ConfigError(
            f"the columns of {side.label} are {', '.join(dict.fromkeys(side.measures))}, and what "
            f"is read off its runs here is {figure}; write --round best for peak, --scope mean for "
            "client_mean; other measures of a table are not explained, but the difference of two "
            "of its rows is",
            "--printed",
        )


def _check_printed_runs(runs: int | None, printed: float | str | None) -> None:
    """Refuse a number of printed runs that is none, or without a printed number."""
    if runs is not None and runs < 1:
        raise ConfigError(
            f"got {runs}; expected the runs that the printed number is the mean of, 1 or more",
            "--printed-runs",
        )
    if runs is not None and printed is None:
        raise ConfigError(
            f"got {runs} and no printed number; add it, e.g. --printed 0.685", "--printed-runs"
        )


def _readings(metric: str, round: str, scope: str | None) -> tuple[Reading, Reading]:
    """Return how the figures of A and of B are read."""
    rounds = _pair(round, "--round")
    scopes = _pair(scope, "--scope") if scope else (None, None)
    for value in rounds:
        if value not in ROUNDS:
            raise ConfigError(
                f"got {value!r}{suggest(value, ROUNDS)}; expected last or best, or A's and B's, "
                "e.g. last,best",
                "--round",
            )
    for name in filter(None, scopes):
        if name not in SCOPES and not name.startswith(_NUMBERED):
            raise ConfigError(
                f"got {name!r}{suggest(name, SCOPES)}; expected global or mean, or A's and B's, "
                "e.g. global,mean",
                "--scope",
            )
    return Reading(metric, rounds[0], scopes[0]), Reading(metric, rounds[1], scopes[1])


def _pair(text: str, option: str) -> tuple[str, str]:
    """Return the values of A and B that ``x`` or ``x,y`` gives."""
    pieces = [piece.strip() for piece in text.split(",")]
    if len(pieces) > 2 or not all(pieces):
        raise ConfigError(f"got {text!r}; expected one value, or A's and B's", option)
    return pieces[0], pieces[-1]


def _same_cohort(a: Side, b: Side) -> bool:
    """Return whether both ask equally many clients of equally many."""
    sizes = [
        side.experiment.population and side.experiment.cohort_size(side.experiment.population)
        for side in (a, b)
    ]
    same_population = a.experiment.population == b.experiment.population
    return None not in sizes and sizes[0] == sizes[1] and same_population


def _nothing(
    a: Side, b: Side, harmless: Sequence[KeyDifference], recorded: Sequence[KeyDifference]
) -> ConfigError:
    """Return the error for two sides without a cause."""
    beside = [row.key for row in (*harmless, *recorded)]
    also = f"; beside it differ {in_list(beside[:6])}" if beside else ""
    also += "".join(f"; {sentence}" for sentence in (*a.unread, *b.unread))
    if a.experiment.replace({"seed": 0}).run_id() != b.experiment.replace({"seed": 0}).run_id():
        return ConfigError(
            f"A and B differ only in {in_list(beside[:6])}, which cannot change the figure; with "
            "--round best it counts how often they are evaluated"
        )
    otherwise = why_run_again(a, b)
    if otherwise is not None:
        mend = "; other code under another name of its file is a cause" * ("code" in otherwise)
        return ConfigError(
            f"all keys of A and B are alike (run id {a.experiment.run_id()}), and {otherwise}: in "
            f"that they may differ, and here both would be run alike{mend}{also}"
        )
    if a.seeds == b.seeds:
        return ConfigError(
            f"A and B are the same experiment (run id {a.experiment.run_id()}): nothing that "
            f"changes its result differs{also}"
        )
    return ConfigError(
        f"A and B differ in their seeds alone ({_listed(a.seeds)} and {_listed(b.seeds)}), so "
        f"their difference is chance{also}"
    )


def _seeds(a: Side, b: Side, given: Sequence[int] | None) -> tuple[int, ...]:
    """Return the seeds of each combination: those given, those of both sides, or of either."""
    if given is not None:
        if not given or len(set(given)) < len(given):
            raise ConfigError(f"got {_listed(given)!r}; expected each seed once", "--seeds")
        return tuple(given)
    common = tuple(seed for seed in a.seeds if seed in b.seeds)
    return common or (*a.seeds, *b.seeds)


def _within(plan: ExplanationPlan, runs: int) -> ExplanationPlan:
    """Return the richest plan within a budget.

    Raises
    ------
    ConfigError: says what the budget allows.
    """
    fewer = replace(plan, combinations=end_combinations(len(plan.causes)))
    for candidate in (plan, fewer):
        if candidate.number_of_runs <= runs:
            return candidate
    each = fewer.number_of_runs // len(plan.seeds)
    if runs >= each:
        allowed = f"it allows {runs // each} of the {len(plan.seeds)} seeds: give --seeds"
    else:
        allowed = f"one seed takes {each}"
    causes = ", ".join(cause.name for cause in plan.causes)
    every = f", all combinations {plan.number_of_runs}" if plan.exact else ""
    raise ConfigError(
        f"got {runs}; of the causes ({causes}) one at a time from both ends takes "
        f"{fewer.number_of_runs} runs ({each} combinations, {_count(plan.seeds)}){every}; "
        f"{allowed}",
        "--runs",
    )
