"""What differs between methods beside the method, and what is left of their differences without it.

Settings are told from the resolved experiments, what was spent from the tables of the runs. A
*control* is a run of the reference with a method's value of one setting: a method of the grid that
is that, or a run that ``motley compare --controls`` adds. At equal traffic or time two curves are
cut where the cheaper one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.results import measures
from motley.results.aspects import (
    SELECTOR,
    Aspect,
    ComparedMethod,
    Pair,
    algorithm_words,
    in_list,
    pairs_of,
    value_at,
    wanted_words,
    world_sentences,
)
from motley.results.blocks import Table, TableCell, TableRow
from motley.results.labels import IGNORED, clock
from motley.results.load import Run
from motley.results.measures import Interval
from motley.results.method_groups import method_numbers, plain_intervals, reference_of
from motley.results.method_rows import JUDGED, End, differences
from motley.results.number_text import MB, short_number, whole
from motley.results.recorded_metrics import metric_in_text

Groups = Mapping[str, Sequence[Run]]
TOLERANCE = 0.01
"""Relative difference of means from which what was spent differs."""
BUDGET = 0.05
"""Relative difference of traffic or time from which curves are cut at the smaller of the two:
nearer than that, it would be the last evaluation that differs."""
_WIDE = 5
"""Columns that a page, a terminal and a column in print have room for."""
_ALL = "settings, all"
_LAST = ", last evaluation"
_MOST = 6
"""Sentences that are told; of more their number."""


@dataclass(frozen=True)
class _View:
    """A method and its runs; ``counted``: those by which costs are told."""

    method: ComparedMethod
    runs: Sequence[Run]
    counted: Sequence[Run] = ()

    @property
    def label(self) -> str:
        """The method's label."""
        return self.method.label

    @cached_property
    def finished(self) -> dict[int, Run]:
        """Seed -> finished run."""
        return {run.seed: run for run in self.runs if run.finished}

    @cached_property
    def ends(self) -> dict[int, measures.Ends]:
        """Seed -> ends of the curve of the finished run."""
        return {seed: measures.ends_of(run) for seed, run in self.finished.items()}

    def over(self, seeds: Collection[int]) -> _View:
        """Return the view with the costs of these seeds alone."""
        return replace(self, counted=[self.finished[seed] for seed in sorted(seeds)])

    @cached_property
    def spent(self) -> dict[str, float]:
        """The mean over counted runs of each of :data:`MEASURES`, by title; NaN where a run has
        none."""
        return {
            measure.title: float(np.mean([measure.of(run) for run in self.counted] or nan))
            for measure in MEASURES
        }

    @cached_property
    def took_part(self) -> dict[int, NDArray[np.int64]]:
        """By seed, round and client ``[n, 2]`` of each accepted update, sorted."""
        accepted = {}
        for run in self.counted:
            rows = _of_accepted(run, "client", "round")
            accepted[run.seed] = np.stack(rows, 1).astype(np.int64)[np.lexsort(rows)]
        return accepted


@dataclass(frozen=True)
class _Measure:
    """Something that a run spent: its title, its number, and the number in words."""

    title: str
    of: Callable[[Run], float]
    in_words: Callable[[float], str] = whole

    def differs(self, view: _View, reference: _View, tolerance: float = TOLERANCE) -> bool:
        """Return whether the means of two methods differ beyond a relative tolerance."""
        a = view.spent[self.title]
        b = reference.spent[self.title]
        return isfinite(a) and isfinite(b) and abs(a - b) > tolerance * max(abs(a), abs(b))


def _known_sum(run: Run, table: str, column: str) -> float:
    """Return the sum of a column; NaN where nothing of it was written, as in private runs."""
    values = np.asarray(run.column(table, column), float)
    return float(np.nansum(values)) if np.isfinite(values).any() else nan


def _of_accepted(run: Run, *columns: str) -> list[NDArray[np.float64]]:
    """Return columns of ``clients`` for accepted updates; from late ones nothing was learned."""
    accepted = run.column("clients", "outcome") == "accepted"
    return [np.asarray(run.column("clients", name)[accepted], float) for name in columns]


def _local_steps(run: Run) -> float:
    (steps,) = _of_accepted(run, "local_steps")
    return float(np.nansum(steps)) if np.isfinite(steps).any() else nan


def _samples(run: Run) -> float:
    """Return the samples of the local steps of accepted updates: whole epochs of a client's
    samples, and of a begun epoch its batches."""
    local = run.config.get("local") or {}
    steps, examples, clients = _of_accepted(run, "local_steps", "num_examples", "client")
    if not (np.isfinite(steps) & np.isfinite(examples)).any():
        return nan
    held = dict(
        zip(
            np.asarray(run.column("federation", "client"), int).tolist(),
            np.asarray(run.column("federation", "batch_size"), float).tolist(),
            strict=True,
        )
    )
    usual = float(local.get("batch_size") or 1)
    batch = np.array([held.get(int(client), nan) for client in clients])
    batch = np.where(np.isfinite(batch), batch, usual)
    epochs, begun = np.divmod(steps, np.maximum(np.ceil(examples / batch), 1))
    return float(np.nansum(epochs * examples + begun * batch))


def _work(name: str) -> Callable[[Run], float]:
    return lambda run: float((run.meta.get("work") or {}).get(name, nan))


def _spent_bits(run: Run, column: str) -> float:
    """Return a total of the table ``rounds`` at a run's end; NaN where nothing of it was
    written."""
    values = np.asarray(run.column("rounds", column), float)
    return float(values[-1]) if len(values) else nan


def _up(run: Run) -> float:
    return _spent_bits(run, "total_up_bits")


def _down(run: Run) -> float:
    return _spent_bits(run, "total_bits") - _up(run)


def _digits(value: float) -> str:
    """Return a number with four digits, so that what differs looks so."""
    return f"{value:.4g}" if abs(value) < 1 else short_number(value)


def _megabytes(bits: float) -> str:
    return _digits(bits / MB)


MEASURES = (
    _Measure("rounds", lambda run: float(run.tables["rounds"].num_rows)),
    _Measure("local steps", _local_steps),
    _Measure("samples seen", _samples),
    _Measure("passes a step", _work("step_passes"), short_number),
    _Measure("epochs beside", _work("extra_epochs"), short_number),
    _Measure("clients probed", lambda run: _known_sum(run, "rounds", "probed")),
    _Measure("up (MB)", _up, _megabytes),
    _Measure("down (MB)", _down, _megabytes),
    _Measure(
        "{time} hours",
        lambda run: measures.costs(run).time_s,
        lambda seconds: _digits(seconds / 3600),
    ),
)
_BUDGETS: tuple[tuple[str, measures.Axis], ...] = (
    ("traffic", "bits"),
    ("{time} time", "seconds"),
)
"""What two curves are cut at, and the axis of a curve that it is."""


class _Column(NamedTuple):
    """A column of the table: its title, the words of a method, whether these differ from its
    reference's, and the number by which they are sorted."""

    title: str
    words: Callable[[_View], str]
    differs: Callable[[_View, _View], bool]
    number: Callable[[_View], float] = lambda view: nan


@dataclass(frozen=True)
class Left:
    """The difference of a method to the reference as a whole, and by what was made equal, all over
    the same seeds.

    Parameters
    ----------
    last: the total by the last evaluation, from which that at equal budgets is to be subtracted;
    None where the total is by the last evaluation itself, and without budgets.
    at_equal: NaN where a run has no evaluation before the cut.
    seeds: of them the method and its reference have finished so many.
    """

    label: str
    total: Interval
    last: Interval | None
    at_equal: Mapping[str, Interval]
    seeds: int


class Besides:
    """What differs between methods beside the method.

    Parameters
    ----------
    groups: label -> runs of a method, one method at least.
    controls: runs of the reference with a method's value of a setting.
    """

    def __init__(self, groups: Groups, controls: Sequence[Run] = ()) -> None:
        self.groups = groups
        self.base = reference_of(groups)
        self._views = {label: _view(label, runs) for label, runs in groups.items()}
        views = [*self._views.values(), *_control_views(controls)]
        self._controls = [view for view in views if any(run.finished for run in view.runs)]
        self.pairs = pairs_of([view.method for view in self._views.values()], self.base)
        self._within = [pair for pair in self.pairs if not pair.world]
        first = self._views[self.base].runs[0]
        self.time = clock(groups)
        self.metric, self.better = measures.metric_of(first)
        self.percent = measures.percent_of(first)

    @cached_property
    def aspects(self) -> list[Aspect]:
        """The settings in which a method and its reference differ beside the method."""
        return list(dict.fromkeys(aspect for pair in self.pairs for aspect in pair.aspects))

    def _of(self, pair: Pair) -> tuple[_View, _View]:
        """Return a method and its reference, with the costs of the seeds that both finished."""
        return self._by_pair[pair.method.label, pair.reference.label]

    @cached_property
    def _by_pair(self) -> dict[tuple[str, str], tuple[_View, _View]]:
        views = {}
        for pair in self.pairs:
            view, reference = (self._views[each.label] for each in (pair.method, pair.reference))
            seeds = view.finished.keys() & reference.finished.keys()
            views[view.label, reference.label] = view.over(seeds), reference.over(seeds)
        return views

    @cached_property
    def _common(self) -> set[int]:
        """The seeds that all methods finished."""
        return set.intersection(*(set(view.finished) for view in self._views.values()))

    @cached_property
    def _shown(self) -> dict[str, _View]:
        """The methods as the table shows them: with the costs of the seeds that all finished; where
        there is none, with those of each method's own."""
        return {
            label: view.over(self._common or view.finished.keys())
            for label, view in self._views.items()
        }

    @cached_property
    def _columns(self) -> list[_Column]:
        """The columns that have something to tell."""
        keys = [view.method.keys for view in self._views.values()]
        worlds = dict.fromkeys(key for pair in self.pairs for key in pair.world)
        columns = [_aspect_column(Aspect(key.replace("_", " "), (key,)), keys) for key in worlds]
        if SELECTOR in self.aspects:  # then the algorithm is the method
            columns.append(_algorithm_column(keys))
        columns += [_aspect_column(aspect, keys) for aspect in self.aspects]
        spent = (_measure_column(measure, self.time) for measure in MEASURES)
        candidates = (_TUNED, _EVALUATED, *spent, _TOOK_PART)
        columns += [column for column in candidates if self._tells(column)]
        return columns

    def _tells(self, column: _Column) -> bool:
        return any(column.differs(*self._of(pair)) for pair in self.pairs)

    def rows(self) -> list[tuple[str, list[tuple[str, bool]]]]:
        """Return for each method its words of every column, and whether they are not the
        reference's."""
        pairs = {pair.method.label: self._of(pair) for pair in self.pairs}
        return [
            (
                label,
                [
                    (
                        column.words(view),
                        label in pairs and column.differs(*pairs[label]),
                    )
                    for column in self._columns
                ],
            )
            for label, view in self._shown.items()
        ]

    @property
    def titles(self) -> list[str]:
        """The titles of the columns that have something to tell."""
        return [column.title for column in self._columns]

    def table(self) -> Table | None:
        """Return the settings and costs in which methods differ beside the method; None where there
        is nothing. A row is a method, or what differs where that is much and methods are few."""
        if not self._columns or not self.pairs:
            return None
        lines = self.rows()
        note = f"{self.note()} Bold: not as the reference."
        cells = [
            [
                TableCell(word, column.number(self._shown[label]), differs)
                for column, (word, differs) in zip(self._columns, line, strict=True)
            ]
            for label, line in lines
        ]
        titles = self.titles
        if self.turned:
            turned = zip(titles, zip(*cells, strict=True), strict=True)
            rows = [
                TableRow(title, [replace(cell, value=nan) for cell in line])
                for title, line in turned
            ]
            return Table(("", *(label for label, _ in lines)), rows, note)
        rows = [
            TableRow(label, line, number)
            for number, (label, _), line in zip(
                method_numbers(self.groups), lines, cells, strict=True
            )
        ]
        return Table(("method", *titles), rows, note)

    @property
    def turned(self) -> bool:
        """Whether methods are columns: there are few, and much differs."""
        return len(self._columns) > _WIDE and len(self.groups) <= _WIDE

    def note(self) -> str:
        """Return what the table of what differs is of, in one sentence."""
        references = list(dict.fromkeys(pair.reference.label for pair in self.pairs))
        within = ", each within its data, clients and devices" if len(references) > 1 else ""
        return (
            f"Settings of the experiments, and what the runs spent ({self._over()}; from "
            f"{100 * TOLERANCE:g} % on it is told); against {in_list(references)}{within}."
        )

    def _over(self) -> str:
        """Return in words over which seeds the means of the table are."""
        runs = [run for view in self._views.values() for run in view.runs]
        seeds = {run.seed for run in runs}
        if self._common == seeds and all(run.finished for run in runs):
            return "means over seeds"
        if not self._common:
            return "means over each method's own finished seeds, for no seed is finished in all"
        n_seeds = len(self._common)
        return (
            f"means over the {n_seeds} seed{'s' if n_seeds > 1 else ''} of {len(seeds)} that all "
            "finished"
        )

    def sentences(self) -> list[str]:
        """Return what may explain a difference and is not in the comparison, the same of several
        methods together."""
        lines = [*world_sentences(self.pairs), *self._missing, *self._tuned_apart()]
        more = len(lines) - _MOST
        return [*lines[:_MOST], *([f"{more} more are in the table"] if more > 0 else [])]

    @property
    def lacks_controls(self) -> bool:
        """Whether runs of the reference with a method's setting could tell more."""
        return bool(self._missing)

    @cached_property
    def _missing(self) -> list[str]:
        same: dict[_Lacking, list[str]] = {}
        for pair in self._within:
            for aspect in filter(pair.takes, pair.aspects):
                if not self._control(pair, (aspect,)):
                    lacking = _Lacking(
                        *(pair.reference_name, aspect.name, *self._value(aspect, pair.method)),
                        self._with_more(pair, aspect),
                    )
                    same.setdefault(lacking, []).append(pair.method.label)
        return [_sentence_on(methods, lacking) for lacking, methods in same.items()]

    def _with_more(self, pair: Pair, aspect: Aspect) -> bool:
        """Return whether there are runs of the reference that have a method's setting, and another
        setting, too."""
        return any(
            aspect.of(view.method.keys) == aspect.of(pair.method.keys)
            and view.method.same_algorithm(pair.reference)
            and not view.method.worlds_differ(pair.reference)
            for view in self._controls
            if view.method is not pair.method
        )

    def _value(self, aspect: Aspect, method: ComparedMethod) -> tuple[str, str]:
        """Return a method's value in words, and what its control has."""
        keys = [view.method.keys for view in self._views.values()]
        return aspect.in_words(method.keys, keys), aspect.held_against(method.keys, keys)

    def _tuned_apart(self) -> list[str]:
        """Return how methods were tuned that were not tuned as their reference was."""
        lines = []
        for pair in self.pairs:
            views = sorted(self._of(pair), key=lambda view: _tuned(view) == "no")
            (first, first_tuning), (second, second_tuning) = (
                (view.label, _tuned(view)) for view in views
            )
            if first_tuning == second_tuning:
                continue
            if second_tuning == "no":
                line = f"{first} was tuned ({first_tuning}), and of {second} no tuning is recorded"
            else:
                line = (
                    f"{first} was tuned otherwise ({first_tuning}) than {second} ({second_tuning})"
                )
            lines.append(line)
        return lines

    def _control(self, pair: Pair, aspects: Sequence[Aspect]) -> _View | None:
        """Return the runs of the reference with a method's value of some aspects; None without."""
        return self._by_aspects(pair).get(tuple(aspects))

    def _by_aspects(self, pair: Pair) -> dict[tuple[Aspect, ...], _View]:
        """Return the aspects that were made equal -> the runs of the reference with the method's
        values of them."""
        views: dict[tuple[Aspect, ...], _View] = {}
        for view in self._controls:
            taken = view.method.taken(pair.reference, pair.method)
            if taken and set(taken) <= set(pair.aspects):
                views.setdefault(taken, view)
        return views

    @cached_property
    def end(self) -> End:
        """The end of a curve by which methods are compared."""
        every = [ends for view in self._controls for ends in view.ends.values()]
        finite = [run_ends for run_ends in every if isfinite(run_ends.final)]
        return "stable" if all(isfinite(run_ends.stable) for run_ends in finite) else "final"

    def _difference(
        self, view: _View, reference: _View, seeds: Sequence[int], end: End | None = None
    ) -> Interval:
        """Return the difference of two methods at the end, paired by seed."""
        kind = end or self.end
        return self._paired(
            view, reference, seeds, lambda run, _: getattr(measures.ends_of(run), kind)
        )

    def _at_budget(
        self, view: _View, reference: _View, seeds: Sequence[int], axis: measures.Axis
    ) -> Interval:
        """Return the difference of two methods where the curve of the cheaper one ends."""

        def value(run: Run, rival: Run) -> float:
            along, rival_curve = (
                measures.curve(each, axis, untrained=False) for each in (run, rival)
            )
            if not len(along.x) or not len(rival_curve.x):
                return nan
            return float(measures.stepwise(along, [min(along.x[-1], rival_curve.x[-1])])[0])

        return self._paired(view, reference, seeds, value)

    def _paired(
        self,
        view: _View,
        reference: _View,
        seeds: Sequence[int],
        value: Callable[[Run, Run], float],
    ) -> Interval:
        """Return the mean difference over seeds; NaN over none where a seed has no number."""
        runs = [(view.finished[seed], reference.finished[seed]) for seed in seeds]
        mine = [self.percent * value(run, rival) for run, rival in runs]
        theirs = [self.percent * value(rival, run) for run, rival in runs]
        all_finite = np.isfinite(mine).all() and np.isfinite(theirs).all()
        return measures.paired(mine, theirs, self._level) if all_finite else measures.paired([], [])

    @cached_property
    def together(self) -> int:
        """How many differences the table of verdicts has, whose intervals hold together."""
        return 1 if plain_intervals(self.groups) else len(differences(self.groups))

    @property
    def _level(self) -> float:
        """The level of an interval: as in the table of verdicts, where the wholes stand, too."""
        return measures.level_together(self.together)

    @cached_property
    def left(self) -> list[Left]:
        """What is left of each method's difference at equal settings and budgets; methods without
        two seeds are left out."""
        remaining = []
        for pair in self._within:
            view, reference = self._of(pair)
            finished = self._ended(view) & self._ended(reference)
            equalized, seeds = self._with_seeds(pair, finished)
            if len(seeds) < 2:
                continue
            at_equal = dict(self._at_equal(pair, equalized, seeds))
            budgets = dict(self._at_budgets(pair, seeds))
            if at_equal or budgets:
                by_last = budgets and self.end != "final"
                remaining.append(
                    Left(
                        label=pair.method.label,
                        total=self._difference(view, reference, seeds),
                        last=self._difference(view, reference, seeds, "final") if by_last else None,
                        at_equal={**at_equal, **budgets},
                        seeds=len(finished),
                    )
                )
        return remaining

    def _ended(self, view: _View) -> set[int]:
        """Return the seeds that are finished and have a number at their end."""
        return {seed for seed, ends in view.ends.items() if isfinite(getattr(ends, self.end))}

    def _with_seeds(
        self, pair: Pair, finished: set[int]
    ) -> tuple[dict[tuple[Aspect, ...], _View], list[int]]:
        """Return the controls of a pair and the seeds that it shares with all of them; controls
        that share fewer than two are left out."""
        equalized = {}
        seeds = finished
        every = self._by_aspects(pair).items()
        for aspects, view in sorted(
            every, key=lambda entry: -len(finished & self._ended(entry[1]))
        ):
            held = seeds & self._ended(view)
            if len(held) > 1:
                seeds = held
                equalized[aspects] = view
        return equalized, sorted(seeds)

    def _at_equal(
        self, pair: Pair, equalized: Mapping[tuple[Aspect, ...], _View], seeds: Sequence[int]
    ) -> Iterator[tuple[str, Interval]]:
        view = self._views[pair.method.label]
        for aspect in pair.aspects:
            if (aspect,) in equalized:
                yield aspect.name, self._difference(view, equalized[aspect,], seeds)
        most = max(equalized, key=len, default=())
        if len(most) > 1:
            all_of = len(most) == len(pair.aspects)
            title = _ALL if all_of else in_list([aspect.name for aspect in most])
            yield title, self._difference(view, equalized[most], seeds)

    def _at_budgets(self, pair: Pair, seeds: Sequence[int]) -> Iterator[tuple[str, Interval]]:
        compared, reference = (view.over(seeds) for view in self._of(pair))
        spent = {
            measure.title for measure in MEASURES if measure.differs(compared, reference, BUDGET)
        }
        last = "" if self.end == "final" else _LAST
        for name, axis in _BUDGETS:
            costs = {"up (MB)", "down (MB)"} if axis == "bits" else {"{time} hours"}
            if costs & spent:
                title = name.format(time=self.time)
                yield f"{title}{last}", self._at_budget(compared, reference, seeds, axis)

    def left_table(self) -> Table | None:
        """Return the differences as a whole, and below each what is left of it at equal settings
        and budgets; None where nothing was made equal."""
        numbers = dict(zip(self.groups, method_numbers(self.groups), strict=True))
        rows = [
            TableRow(
                label,
                [
                    TableCell(how),
                    TableCell(self._signed(interval.mean), interval.mean),
                    TableCell(self._range(interval), interval.low),
                    TableCell(str(interval.n), interval.n),
                ],
                numbers[label],
            )
            for label, how, interval in self.left_lines()
        ]
        heads = ("method", "compared", "difference", "95% interval", "seeds")
        return Table(heads, rows, self.how()) if rows else None

    def left_lines(self) -> list[tuple[str, str, Interval]]:
        """Return method, comparison and difference of each line."""
        return [
            line
            for row in self.left
            for line in (
                (row.label, "as a whole", row.total),
                *([(row.label, f"as a whole{_LAST}", row.last)] if row.last is not None else []),
                *(
                    (row.label, f"at equal {name}", interval)
                    for name, interval in row.at_equal.items()
                ),
            )
        ]

    def _range(self, interval: Interval) -> str:
        """Return an interval in words; a dash without one, as where all seeds differ by the
        same."""
        has_interval = interval.n and isfinite(interval.low)
        if has_interval:
            return f"{self._signed(interval.low)} to {self._signed(interval.high)}"
        return "–"

    def _signed(self, value: float) -> str:
        if not isfinite(value):
            return "–"
        return f"{value:{'+.2f' if self.percent > 1 else '+.3g'}}".replace("-", "\u2212")

    def how(self) -> str:
        """Return how the differences at equal settings were made, in sentences."""
        at_budgets = [
            interval
            for row in self.left
            for title, interval in row.at_equal.items()
            if title.removesuffix(_LAST) in [name.format(time=self.time) for name, _ in _BUDGETS]
        ]
        fewer = [row for row in self.left if row.total.n < row.seeds]
        parts = (
            f"{self.end.capitalize()} {metric_in_text(self.metric)} ({JUDGED[self.end]}) less that "
            "of the reference, and less that of the reference with this method's setting; paired "
            "by seed, "
            + (
                "with the 95 % interval of each mean by itself."
                if self.together < 2
                else f"intervals as of one of the {self.together} differences that hold together "
                "with 95 %."
            ),
            at_budgets
            and "At equal traffic or time: where the cheaper of the two ends, by the last "
            "evaluation before (told where they differ by more than "
            f"{100 * BUDGET:g} %)"
            + ("." if self.end == "final" else "; subtract it from the whole by the last."),
            any(not interval.n for interval in at_budgets)
            and "– where a run has no evaluation before that.",
            fewer
            and "Lines of a method are over the seeds that all of them have: "
            + in_list([f"{row.total.n} of {row.seeds} for {row.label}" for row in fewer])
            + ".",
        )
        return " ".join(part for part in parts if part)


def _view(label: str, runs: Sequence[Run]) -> _View:
    first = runs[0]
    return _View(ComparedMethod.of(label, first.config, bool(first.meta.get("personal"))), runs)


def _control_views(controls: Sequence[Run]) -> list[_View]:
    """Return the controls, the seeds of one experiment together."""
    runs_by_keys: dict[str, list[Run]] = {}
    for run in controls:
        keys = {key: value for key, value in run.config.items() if key not in IGNORED}
        runs_by_keys.setdefault(repr(keys), []).append(run)
    return [_view(runs[0].control, runs) for runs in runs_by_keys.values()]


def _aspect_column(aspect: Aspect, keys: Sequence[Mapping[str, Any]]) -> _Column:
    return _Column(
        aspect.name,
        lambda view: aspect.in_words(view.method.keys, keys),
        lambda view, reference: aspect.of(view.method.keys) != aspect.of(reference.method.keys),
    )


def _algorithm_column(keys: Sequence[Mapping[str, Any]]) -> _Column:
    return _Column(
        "algorithm",
        lambda view: algorithm_words(view.method.keys, keys),
        lambda view, reference: not view.method.same_algorithm(reference.method),
    )


def _measure_column(measure: _Measure, time: str) -> _Column:
    return _Column(
        measure.title.format(time=time),
        lambda view: measure.in_words(view.spent[measure.title]),
        measure.differs,
        lambda view: view.spent[measure.title],
    )


def _who(view: _View) -> str:
    """Return how many clients took part, and how unevenly."""
    took_part = [measures.participation(run) for run in view.counted]
    if not took_part:
        return "–"
    accepted = np.mean([participation.counts.sum() for participation in took_part])
    gini = np.mean([participation.gini for participation in took_part])
    return f"{whole(float(accepted))} updates, Gini {gini:.2f}"


def _others_took_part(view: _View, reference: _View) -> bool:
    """Return whether other clients took part under the same selector."""
    return view.method.keys.get("selector") == reference.method.keys.get("selector") and any(
        not np.array_equal(view.took_part[seed], reference.took_part[seed])
        for seed in view.took_part.keys() & reference.took_part.keys()
    )


def _tuned(view: _View) -> str:
    """Return with which budget the values of a method were tuned, of each run that has another one;
    ``no`` where nothing is recorded."""
    return "; ".join(dict.fromkeys(_tuned_run(run.config) for run in view.runs))


def _tuned_run(config: Mapping[str, Any]) -> str:
    """Return how the values of a run were tuned; ``no`` where nothing is recorded, and a note where
    another method's or other values are."""
    tuned = config.get("tuned")
    if not tuned:
        return "no"
    as_chosen = all(_as_chosen(config, key, value) for key, value in tuned["values"].items())
    for_it = all(_as_chosen(config, key, value) for key, value in tuned["method"].items())
    trials = f"{tuned['trials']} trials, {tuned['run_equivalents']:g} run-equivalents"
    if not for_it:
        return f"for another method ({trials})"
    return trials if as_chosen else f"changed since ({trials})"


def _as_chosen(config: Mapping[str, Any], key: str, value: Any) -> bool:
    held = value_at(config, key)
    if isinstance(held, Mapping) and not isinstance(value, Mapping):
        return bool(held.get("name") == value)
    if isinstance(held, Mapping):
        return all(held.get(option) == setting for option, setting in value.items())
    return bool(held == value)


def _evaluated(view: _View) -> str:
    """Return how often a method was evaluated, on which its best and its last figures and the time
    to a target depend; of each run that has another interval."""
    return "; ".join(dict.fromkeys(_evaluated_run(run.config) for run in view.runs))


def _evaluated_run(config: Mapping[str, Any]) -> str:
    every = value_at(config, "evaluate.every")
    size = value_at(config, "evaluate.batch_size")
    at_a_time = "" if size is None else f", {size} samples at a time"
    return f"every {every or 10} rounds{at_a_time}".replace("every 1 rounds", "every round")


_EVALUATED = _Column(
    "evaluated", _evaluated, lambda view, reference: _evaluated(view) != _evaluated(reference)
)
_TUNED = _Column("tuned", _tuned, lambda view, reference: _tuned(view) != _tuned(reference))
_TOOK_PART = _Column("who took part", _who, _others_took_part)


class _Lacking(NamedTuple):
    """A setting of methods that the reference was not run with: what of it the control would have,
    and whether the reference was run with it and another one."""

    reference: str
    name: str
    value: str
    wanted: str
    with_more: bool


def _sentence_on(methods: Sequence[str], lacking: _Lacking) -> str:
    """Return the sentence about a setting of methods that the reference was not run with."""
    reference, name, value, wanted, with_more = lacking
    weigh = {"equal": "clients equally", "by samples": "clients by samples"}
    verbs = ("weighs", "weigh") if name == "weights" and value in weigh else ("has", "have")
    does = verbs[len(methods) > 1]
    words = weigh[value] if does.startswith("weigh") else wanted_words(name, value)
    if value != wanted:
        words = value  # models of their own
    has = wanted_words(name, wanted) + (" alone" if with_more else "")
    return f"{in_list(methods)} {does} {words}; {reference} with {has} is not in this comparison"
