"""What differs between methods beside the method, and what is left of their differences without it.

Settings are told from the resolved experiments, what was spent from the tables of the runs. A
*control* is a run of the reference with a method's value of one setting: a method of the grid that
is that, or a run that ``motley compare --controls`` adds. At equal traffic or time two curves are
cut where the cheaper one ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, nan
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from motley.results import measures
from motley.results.aspects import (
    Aspect,
    ComparedMethod,
    Pair,
    in_list,
    pairs_of,
    value_at,
    wanted_words,
)
from motley.results.blocks import (
    BulletList,
    Section,
    Table,
    TableCell,
    TableRow,
    non_empty,
)
from motley.results.labels import IGNORED, clock
from motley.results.load import Run
from motley.results.measures import Censored, Interval
from motley.results.method_groups import reference_of
from motley.results.method_rows import JUDGED, End
from motley.results.number_text import MB, short_number, whole
from motley.results.print_tables import PrintTable

__all__ = ["Besides", "besides_section"]

Groups = Mapping[str, Sequence[Run]]
TOLERANCE = 0.01
"""Relative difference of means from which what was spent differs."""
BUDGET = 0.05
"""Relative difference of traffic or time from which curves are cut at the smaller of the two:
nearer than that, it would be the last evaluation that differs."""
_WIDE = 5
"""Columns that a page, a terminal and a column in print have room for."""
_ALL = "settings, all"
_POSSIBLE = "settings, all that it takes"
_MOST = 6
"""Sentences that are told; of more their number."""


@dataclass(frozen=True)
class _View:
    """A method and its runs."""

    method: ComparedMethod
    runs: Sequence[Run]

    @property
    def label(self) -> str:
        """The method's label."""
        return self.method.label

    @cached_property
    def spent(self) -> dict[str, float]:
        """The mean over runs of each of :data:`MEASURES`, by title; NaN where a run has none."""
        return {one.title: float(np.mean([one.of(run) for run in self.runs])) for one in MEASURES}

    @cached_property
    def took_part(self) -> dict[int, NDArray[np.int64]]:
        """By seed, round and client ``[n, 2]`` of each accepted update, sorted."""
        found = {}
        for run in self.runs:
            accepted = run.column("clients", "outcome") == "accepted"
            rows = [run.column("clients", name)[accepted] for name in ("client", "round")]
            found[run.seed] = np.stack(rows, 1).astype(np.int64)[np.lexsort(rows)]
        return found


@dataclass(frozen=True)
class _Measure:
    """Something that a run spent: its title, its number, and the number in words."""

    title: str
    of: Callable[[Run], float]
    in_words: Callable[[float], str] = whole

    def differs(self, one: _View, other: _View, tolerance: float = TOLERANCE) -> bool:
        """Return whether the means of two methods differ beyond a relative tolerance."""
        a = one.spent[self.title]
        b = other.spent[self.title]
        return isfinite(a) and isfinite(b) and abs(a - b) > tolerance * max(abs(a), abs(b))


def _known_sum(run: Run, table: str, column: str) -> float:
    """Return the sum of a column; NaN where nothing of it was written, as in private runs."""
    values = np.asarray(run.column(table, column), float)
    return float(np.nansum(values)) if np.isfinite(values).any() else nan


def _samples(run: Run) -> float:
    """Return the samples of all local steps: whole epochs of a client's samples, and of a begun
    epoch its batches."""
    local = run.config.get("local") or {}
    steps, examples, clients = (
        np.asarray(run.column("clients", name), float)
        for name in ("local_steps", "num_examples", "client")
    )
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


def _bits(*columns: str) -> Callable[[Run], float]:
    return lambda run: sum(_known_sum(run, "rounds", column) for column in columns)


def _digits(value: float) -> str:
    """Return a number with four digits, so that what differs looks so."""
    return f"{value:.4g}" if abs(value) < 1 else short_number(value)


def _megabytes(bits: float) -> str:
    return _digits(bits / MB)


MEASURES = (
    _Measure("rounds", lambda run: float(run.tables["rounds"].num_rows)),
    _Measure("local steps", lambda run: _known_sum(run, "clients", "local_steps")),
    _Measure("samples seen", _samples),
    _Measure("passes a step", _work("step_passes"), short_number),
    _Measure("epochs beside", _work("extra_epochs"), short_number),
    _Measure("clients probed", lambda run: _known_sum(run, "rounds", "probed")),
    _Measure("up (MB)", _bits("up_bits", "probe_up_bits"), _megabytes),
    _Measure("down (MB)", _bits("down_bits", "probe_down_bits"), _megabytes),
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
    """The difference of a method to the reference as a whole, and by what was made equal."""

    label: str
    whole: Interval
    at_equal: Mapping[str, Interval]


class Besides:
    """What differs between methods beside the method.

    Parameters
    ----------
    groups: label -> runs of a method, one method at least. controls: runs of the reference with a
    method's value of a setting.
    """

    def __init__(self, groups: Groups, controls: Sequence[Run] = ()) -> None:
        self.groups = groups
        self.base = reference_of(groups)
        self._views = {label: _view(label, runs) for label, runs in groups.items()}
        views = [*self._views.values(), *_control_views(controls)]
        self._controls = [view for view in views if any(run.finished for run in view.runs)]
        self.pairs = pairs_of([view.method for view in self._views.values()], self.base)
        first = self._views[self.base].runs[0]
        self.time = clock(groups)
        self.metric, self.better = measures.metric_of(first)
        self.percent = measures.percent_of(first)

    @cached_property
    def aspects(self) -> list[Aspect]:
        """The settings in which a method and its reference differ beside the method."""
        return list(dict.fromkeys(aspect for pair in self.pairs for aspect in pair.aspects))

    def _of(self, pair: Pair) -> tuple[_View, _View]:
        return self._views[pair.method.label], self._views[pair.reference.label]

    @cached_property
    def _columns(self) -> list[_Column]:
        """The columns that have something to tell."""
        keys = [view.method.keys for view in self._views.values()]
        found = [_aspect_column(aspect, keys) for aspect in self.aspects]
        spent = (_measure_column(one, self.time) for one in MEASURES)
        found += [column for column in (_TUNED, *spent, _TOOK_PART) if self._tells(column)]
        return found

    def _tells(self, column: _Column) -> bool:
        return any(column.differs(*self._of(pair)) for pair in self.pairs)

    def rows(self) -> list[tuple[str, list[tuple[str, bool]]]]:
        """Return for each method its words of every column, and whether they are not the
        reference's."""
        reference = {pair.method.label: self._views[pair.reference.label] for pair in self.pairs}
        return [
            (
                label,
                [
                    (
                        column.words(view),
                        label in reference and column.differs(view, reference[label]),
                    )
                    for column in self._columns
                ],
            )
            for label, view in self._views.items()
        ]

    def table(self) -> Table | None:
        """Return the settings and costs in which methods differ beside the method; None where there
        is nothing. A row is a method, or what differs where that is much and methods are few."""
        if not self._columns or not self.pairs:
            return None
        lines = self.rows()
        note = f"{self._note()} Bold: not as the reference."
        cells = [
            [
                TableCell(word, column.number(self._views[label]), differs)
                for column, (word, differs) in zip(self._columns, line, strict=True)
            ]
            for label, line in lines
        ]
        titles = [column.title for column in self._columns]
        if self._turned:
            turned = zip(titles, zip(*cells, strict=True), strict=True)
            rows = [
                TableRow(title, [replace(cell, value=nan) for cell in line])
                for title, line in turned
            ]
            return Table(("", *(label for label, _ in lines)), rows, note)
        rows = [
            TableRow(label, line, place)
            for place, ((label, _), line) in enumerate(zip(lines, cells, strict=True))
        ]
        return Table(("method", *titles), rows, note)

    @property
    def _turned(self) -> bool:
        """Whether methods are columns: there are few, and much differs."""
        return len(self._columns) > _WIDE and len(self.groups) <= _WIDE

    def _note(self) -> str:
        references = list(dict.fromkeys(pair.reference.label for pair in self.pairs))
        within = ", each within its data, clients and devices" if len(references) > 1 else ""
        return (
            f"Settings of the experiments, and what the runs spent (means over seeds; from "
            f"{100 * TOLERANCE:g} % on it is told); against {in_list(references)}{within}."
        )

    def sentences(self) -> list[str]:
        """Return what may explain a difference and is not in the comparison, the same of several
        methods together."""
        same: dict[tuple[str, str, str], list[str]] = {}
        for pair in self.pairs:
            for aspect in pair.aspects:
                if not self._control(pair, (aspect,)):
                    said = (pair.reference_name, aspect.name, self._value(aspect, pair.method))
                    same.setdefault(said, []).append(pair.method.label)
        lines = [
            _missing(methods, reference, name, value)
            for (reference, name, value), methods in same.items()
        ]
        lines += self._tuned_apart()
        more = len(lines) - _MOST
        return [*lines[:_MOST], *([f"{more} more are in the table"] if more > 0 else [])]

    def _value(self, aspect: Aspect, method: ComparedMethod) -> str:
        return aspect.in_words(method.keys, [view.method.keys for view in self._views.values()])

    def _tuned_apart(self) -> list[str]:
        """Return the methods that were tuned where their reference was not, or the other way
        round."""
        lines = []
        for pair in self.pairs:
            one, other = (_tuned(view) for view in self._of(pair))
            if one != other and "no" in (one, other):
                tuned, plain = (
                    (pair.method, pair.reference)
                    if other == "no"
                    else (pair.reference, pair.method)
                )
                lines.append(
                    f"{tuned.label} was tuned ({one if other == 'no' else other}), and of "
                    f"{plain.label} no tuning is recorded"
                )
        return lines

    def _control(self, pair: Pair, aspects: Sequence[Aspect]) -> _View | None:
        """Return the runs of the reference with a method's value of some aspects; None without."""
        return self._by_aspects(pair).get(tuple(aspects))

    def _by_aspects(self, pair: Pair) -> dict[tuple[Aspect, ...], _View]:
        """Return the aspects that were made equal -> the runs of the reference with the method's
        values of them."""
        found: dict[tuple[Aspect, ...], _View] = {}
        for view in self._controls:
            taken = view.method.taken(pair.reference, pair.method)
            if taken and set(taken) <= set(pair.aspects):
                found.setdefault(taken, view)
        return found

    @cached_property
    def end(self) -> End:
        """The end of a curve by which methods are compared."""
        runs = [run for view in self._controls for run in view.runs if run.finished]
        known = [one for one in map(measures.ends_of, runs) if isfinite(one.final)]
        return "stable" if all(isfinite(one.stable) for one in known) else "final"

    def _difference(self, one: _View, other: _View) -> Interval:
        """Return the difference of two methods at the end, paired by seed."""
        return self._paired(one, other, lambda run, _: getattr(measures.ends_of(run), self.end))

    def _at_budget(self, one: _View, other: _View, axis: measures.Axis) -> Interval:
        """Return the difference of two methods where the curve of the cheaper one ends."""

        def value(run: Run, rival: Run) -> float:
            curves = [measures.curve(each, axis) for each in (run, rival)]
            if not all(len(each.x) for each in curves):
                return nan
            along = measures.trained(curves[0])
            return float(measures.stepwise(along, [min(each.x[-1] for each in curves)])[0])

        return self._paired(one, other, value)

    def _paired(self, one: _View, other: _View, value: Callable[[Run, Run], float]) -> Interval:
        mine, theirs = (
            {run.seed: run for run in view.runs if run.finished} for view in (one, other)
        )
        seeds = sorted(mine.keys() & theirs.keys())
        return measures.paired(
            [self.percent * value(mine[seed], theirs[seed]) for seed in seeds],
            [self.percent * value(theirs[seed], mine[seed]) for seed in seeds],
        )

    @cached_property
    def left(self) -> list[Left]:
        """What is left of each method's difference at equal settings and budgets; methods without
        two seeds are left out."""
        found = []
        for pair in self.pairs:
            one, other = self._of(pair)
            difference = self._difference(one, other)
            at_equal = {
                title: interval
                for title, interval in self._at_equal(pair)
                if interval.n > 1 and isfinite(interval.mean)
            }
            if difference.n > 1 and at_equal:
                found.append(Left(pair.method.label, difference, at_equal))
        return found

    def _at_equal(self, pair: Pair) -> Iterator[tuple[str, Interval]]:
        one, other = self._of(pair)
        made = self._by_aspects(pair)
        for aspect in pair.aspects:
            if (aspect,) in made:
                yield aspect.name, self._difference(one, made[aspect,])
        most = max(made, key=len, default=())
        if len(most) > 1:
            title = _ALL if len(most) == len(pair.aspects) else _POSSIBLE
            yield title, self._difference(one, made[most])
        spent = {measure.title for measure in MEASURES if measure.differs(one, other, BUDGET)}
        for name, axis in _BUDGETS:
            costs = {"up (MB)", "down (MB)"} if axis == "bits" else {"{time} hours"}
            if costs & spent:
                yield name.format(time=self.time), self._at_budget(one, other, axis)

    def left_table(self) -> Table | None:
        """Return the differences as a whole, and below each what is left of it at equal settings
        and budgets; None where nothing was made equal."""
        places = list(self.groups)
        rows = [
            TableRow(
                label,
                [
                    TableCell(how),
                    TableCell(self._signed(one.mean), one.mean),
                    TableCell(self._bounds(one), one.low),
                    TableCell(str(one.n), one.n),
                ],
                places.index(label),
            )
            for label, how, one in self._left_lines()
        ]
        heads = ("method", "compared", "difference", "95% interval", "seeds")
        return Table(heads, rows, self._how()) if rows else None

    def _left_lines(self) -> list[tuple[str, str, Interval]]:
        """Return method, comparison and difference of each line."""
        return [
            line
            for row in self.left
            for line in (
                (row.label, "as a whole", row.whole),
                *((row.label, f"at equal {name}", one) for name, one in row.at_equal.items()),
            )
        ]

    def _bounds(self, one: Interval) -> str:
        """Return an interval in words; a dash where all seeds differ by the same."""
        known = isfinite(one.low)
        return f"{self._signed(one.low)} to {self._signed(one.high)}" if known else "–"

    def _signed(self, value: float) -> str:
        return f"{value:{'+.2f' if self.percent > 1 else '+.3g'}}".replace("-", "\u2212")

    def _how(self) -> str:
        return (
            f"{self.end.capitalize()} {self.metric} ({JUDGED[self.end]}) less that of the "
            "reference, and less that of the reference with this method's setting; paired by seed, "
            "with the 95 % interval of each mean by itself. At equal traffic or time: where the "
            "cheaper of the two ends, by the last evaluation before "
            f"(told where they differ by more than {100 * BUDGET:g} %)."
        )

    def _printed(
        self,
    ) -> tuple[list[tuple[str, str]], list[tuple[str, list[Interval | Censored | str]]]]:
        """Return heads and rows of the table in print."""
        lines = [(label, [word for word, _ in cells]) for label, cells in self.rows()]
        titles = [one.title[:1].upper() + one.title[1:] for one in self._columns]
        if not self._turned:
            return [(title, "") for title in titles], [(label, [*words]) for label, words in lines]
        turned = zip(titles, zip(*(words for _, words in lines), strict=True), strict=True)
        return [(label, "") for label, _ in lines], [(title, [*words]) for title, words in turned]

    def print_tables(self) -> list[PrintTable]:
        """Return both tables for print: ``besides`` and ``left``."""
        found = []
        if self.table() is not None:
            found.append(
                PrintTable(
                    "besides",
                    f"What differs beside the method. {self._note()}"
                    + "".join(f" {_sentence(line)}" for line in self.sentences()),
                    *self._printed(),
                    {},
                )
            )
        lines = self._left_lines()
        if lines:
            unit = "points" if self.percent > 1 else ""
            found.append(
                PrintTable(
                    "left",
                    f"Differences as a whole and at equal settings. {self._how()}",
                    [("Compared", ""), ("Difference", unit), ("Pairs", "seeds")],
                    [(label, [how, one, str(one.n)]) for label, how, one in lines],
                    {},
                )
            )
        return found


def besides_section(groups: Groups, controls: Sequence[Run] = ()) -> Section:
    """Return the section on what differs beside the method; empty for one method, and where nothing
    does."""
    found = Besides(groups, controls)
    left = found.left_table()
    lines = found.sentences() if found.table() is not None else []
    return Section(
        "Besides the method",
        non_empty(
            found.table(),
            BulletList([_sentence(line) for line in lines]) if lines else None,
            Section("What is left of the difference", [left] if left is not None else []),
        ),
    )


def _view(label: str, runs: Sequence[Run]) -> _View:
    first = runs[0]
    return _View(ComparedMethod.of(label, first.config, bool(first.meta.get("personal"))), runs)


def _control_views(controls: Sequence[Run]) -> list[_View]:
    """Return the controls, the seeds of one experiment together."""
    found: dict[str, list[Run]] = {}
    for run in controls:
        keys = {key: value for key, value in run.config.items() if key not in IGNORED}
        found.setdefault(repr(keys), []).append(run)
    return [_view(runs[0].control, runs) for runs in found.values()]


def _aspect_column(aspect: Aspect, keys: Sequence[Mapping[str, Any]]) -> _Column:
    return _Column(
        aspect.name,
        lambda view: aspect.in_words(view.method.keys, keys),
        lambda one, other: aspect.of(one.method.keys) != aspect.of(other.method.keys),
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
    took_part = [measures.participation(run) for run in view.runs]
    accepted = np.mean([one.counts.sum() for one in took_part])
    gini = np.mean([one.gini for one in took_part])
    return f"{whole(float(accepted))} updates, Gini {gini:.2f}"


def _others_took_part(one: _View, other: _View) -> bool:
    """Return whether other clients took part under the same selector."""
    return one.method.keys.get("selector") == other.method.keys.get("selector") and any(
        not np.array_equal(one.took_part[seed], other.took_part[seed])
        for seed in one.took_part.keys() & other.took_part.keys()
    )


def _tuned(view: _View) -> str:
    """Return with which budget the values of a method were tuned; ``no`` where nothing is recorded,
    and where another method's or other values are."""
    tuned = view.runs[0].config.get("tuned")
    if not tuned:
        return "no"
    config = view.runs[0].config
    kept = all(_as_chosen(config, key, value) for key, value in tuned["values"].items())
    for_it = all(_as_chosen(config, key, value) for key, value in tuned["method"].items())
    trials = f"{tuned['trials']} trials, {tuned['run_equivalents']:g} run-equivalents"
    if not for_it:
        return f"for another method ({trials})"
    return trials if kept else f"changed since ({trials})"


def _as_chosen(config: Mapping[str, Any], key: str, value: Any) -> bool:
    held = value_at(config, key)
    if isinstance(held, Mapping) and not isinstance(value, Mapping):
        return bool(held.get("name") == value)
    if isinstance(held, Mapping):
        return all(held.get(option) == item for option, item in value.items())
    return bool(held == value)


_TUNED = _Column("tuned", _tuned, lambda one, other: _tuned(one) != _tuned(other))
_TOOK_PART = _Column("who took part", _who, _others_took_part)


def _missing(methods: Sequence[str], reference: str, name: str, value: str) -> str:
    """Return the sentence about a setting of methods that the reference was not run with."""
    weigh = {"equal": "clients equally", "by samples": "clients by samples"}
    verbs = ("weighs", "weigh") if name == "weights" and value in weigh else ("has", "have")
    does = verbs[len(methods) > 1]
    has = wanted_words(name, value)
    what = weigh[value] if does.startswith("weigh") else has
    return f"{in_list(methods)} {does} {what}; {reference} with {has} is not in this comparison"


def _sentence(line: str) -> str:
    return f"{line}."
