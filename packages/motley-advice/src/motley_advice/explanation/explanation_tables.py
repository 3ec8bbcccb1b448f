"""The tables of an explanation: what differs, what each cause carries, and the files of both."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.arrays import Floats
from motley.core.untrusted import printable
from motley.results import measures
from motley.results.aspects import in_list, value_at
from motley.results.besides import MEASURES
from motley.results.blocks import (
    DASH,
    Block,
    BulletList,
    Page,
    Section,
    Table,
    TableCell,
    TableRow,
    non_empty,
)
from motley.results.load import Run
from motley.results.measures import Interval
from motley.results.method_rows import intervals_in_words
from motley.results.model_health import learned_nothing, model_health
from motley_advice.explanation.causes import KeyDifference
from motley_advice.explanation.explaining import PAGE, Explanation, evaluations_of, figure_of
from motley_advice.explanation.explanation_plan import ExplanationPlan
from motley_report.page import replace_files, write

_CHOSEN = {"dtype", "precision", "products"}
"""Numerics that are keys of an experiment, and may be causes."""
_TEST_SAMPLES = {
    *("task", "split", "population", "public", "pin"),
    *("feature_shift", "concept_shift", "drift"),
}
"""Keys of an experiment that decide what is tested on."""
_NOT_THE_SAMPLES = {"task.model", "task.scale", "task.augment", "task.dropout"}
"""Keys below them that leave the samples as they are."""
_TROUBLES = 4
"""Combinations whose runs' troubles are told."""
_LEFT = "several causes together"
"""The row of what is left where not all combinations are run."""
_NO_EFFECT = "changes nothing"
"""What stands for the share of a cause without any effect."""
_SPENT_TOLERANCE = 0.01
"""Relative difference from which what the runs spent is told."""


def difference_table(plan: ExplanationPlan, spent: Sequence[KeyDifference] = ()) -> Table:
    """Return a row per key that differs, with its values and the cause that it belongs to.

    ``spent``: what the runs of both sides spent, where they were made."""
    groups = [(cause.name, cause.rows) for cause in plan.causes]
    engine = [row for row in plan.harmless if row.key.startswith("engine.")]
    groups += [
        ("as recorded, no key", tuple(plan.recorded)),
        ("follows, as measured", tuple(spent)),
        ("rounding alone", tuple(engine)),
        ("cannot change the figure", tuple(row for row in plan.harmless if row not in engine)),
    ]
    rows = [
        TableRow(row.key, [TableCell(_value(row.a)), TableCell(_value(row.b)), TableCell(group)])
        for group, members in groups
        for row in members
    ]
    return Table(("key", "A", "B", "cause"), rows, f"A: {plan.a.label}. B: {plan.b.label}.")


def _value(value: Any) -> str:
    if value is None:
        return DASH
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def spent_differences(explanation: Explanation) -> list[KeyDifference]:
    """Return what the runs of A and of B spent otherwise, as means over seeds: rounds, local steps,
    samples, traffic."""
    ends = [explanation.runs[combination] for combination in explanation.plan.ends]
    rows = []
    for measure in MEASURES:
        a, b = (_mean([measure.of(run) for run in runs]) for runs in ends)
        if isfinite(a) and isfinite(b) and abs(a - b) > _SPENT_TOLERANCE * max(abs(a), abs(b)):
            title = measure.title.format(time="virtual")
            rows.append(KeyDifference(title, measure.in_words(a), measure.in_words(b)))
    return rows


def share_table(explanation: Explanation) -> Table:
    """Return the figure of A, what each cause adds to it, what is left, and the figure of B."""
    plan = explanation.plan
    shares = explanation.shares
    first, last = (_mean(values) for values in explanation.observed)
    whole = explanation.observed[1] - explanation.observed[0]
    gap = _gap(explanation)
    rows = [TableRow("A", [TableCell(_number(first), first), *_blank(3)])]
    order = sorted(range(len(plan.causes)), key=lambda i: -abs(_mean(shares.each[i])))
    rows += [
        TableRow(
            plan.causes[i].name,
            [
                *_of_cause(explanation, i, gap),
                *(_cell(_mean(ends[i])) for ends in (shares.from_a, shares.from_b)),
            ],
        )
        for i in order
    ]
    if not plan.exact:
        rows.append(_row(_LEFT, _change(shares.left), gap))
    if np.abs(explanation.rerun).max(initial=0.0) > 0:
        rows.append(_row("versions, machine or files", _change(explanation.rerun), gap))
    rows.append(TableRow("B", [TableCell(_number(last), last), *_blank(3)]))
    if plan.printed is None:
        rows.append(_row("B - A", _change(whole), gap))
    else:
        rows.append(TableRow("printed", [TableCell(_number(plan.printed)), *_blank(3)]))
        left = _to_print(plan.printed, explanation.observed[1], plan.printed_runs)
        rows.append(_row("unexplained", left, gap))
    heads = ("", f"{plan.metric}, 95 % interval", "share", "alone, from A", "alone, from B")
    return Table(heads, rows, _note(explanation))


def _gap(explanation: Explanation) -> float:
    """Return the mean difference that is to be explained; NaN where its interval, or what rounding
    makes of it, holds 0: it may be chance, and shares of it say nothing."""
    a, b = explanation.observed
    plan = explanation.plan
    if plan.printed is None:
        gap = measures.paired(b, a)
    else:
        gap = _to_print(plan.printed, a, plan.printed_runs)
    rounding = plan.printed_rounding
    nothing = (gap.low < rounding and -rounding < gap.high) or abs(gap.mean) < rounding
    return float("nan") if nothing else gap.mean


def _to_print(printed: float, figures: Floats, runs: int) -> Interval:
    """Return the distance of ``[n]`` figures from a print of ``runs`` others, which have chance of
    their own: the deviation of the difference of both means is s sqrt(1/n + 1/runs), with the
    deviation s and n - 1 degrees of freedom of the figures."""
    gap = measures.paired(np.full(len(figures), printed), figures)
    wider = sqrt(1 + len(figures) / runs)
    return Interval(
        gap.mean,
        gap.mean - wider * (gap.mean - gap.low),
        gap.mean + wider * (gap.high - gap.mean),
        gap.n,
    )


def _note(explanation: Explanation) -> str:
    plan = explanation.plan
    if plan.exact:
        kind = "Shapley values over all combinations"
    else:
        kind = "Means of the changes of one cause from A and from B"
    seeds = ", ".join(str(plan.seeds[place]) for place in explanation.counted)
    lines = [f"{kind}, paired over the seeds {seeds or 'none'}."]
    if len(explanation.counted) > 1:
        lines.append(intervals_in_words(len(plan.causes)))
    if plan.printed is not None:
        behind = f"{plan.printed_runs} run{'s' if plan.printed_runs > 1 else ''}"
        lines.append(
            f"The print has chance of its own, as the mean of {behind} (--printed-runs) that vary "
            f"as those here, and is rounded by up to {plan.printed_rounding:g}."
        )
    if explanation.without_effect:
        lines.append(
            f"{_NO_EFFECT.capitalize()}: with and without it every recorded figure is equal to the "
            "bit."
        )
    if explanation.counted and not isfinite(_gap(explanation)):
        lines.append("No shares: the difference as a whole may be chance.")
    return " ".join(filter(None, lines))


def _blank(count: int) -> list[TableCell]:
    return [TableCell("")] * count


def _of_cause(explanation: Explanation, number: int, gap: float) -> list[TableCell]:
    """Return what a cause adds to the figure, and its share; of one without any effect that."""
    change = _change(explanation.shares.each[number], len(explanation.plan.causes))
    added, share = _moved(change, gap)
    return [added, TableCell(_NO_EFFECT) if number in explanation.without_effect else share]


def _row(label: str, change: Interval, gap: float) -> TableRow:
    """Return the row of a change that is no cause."""
    return TableRow(label, [*_moved(change, gap), *_blank(2)])


def _change(values: Floats, comparisons: int = 1) -> Interval:
    """Return the 95 % t interval of a change of the figure, ``[k]`` by seed, one of ``comparisons``
    that hold together."""
    level = measures.level_together(comparisons)
    return measures.paired(values, np.zeros(len(values)), level)


def _moved(change: Interval, gap: float) -> list[TableCell]:
    """Return the cells of a change of the figure: its interval, and what share it is of the gap to
    be explained."""
    text = _number(change.mean, sign=True)
    if isfinite(change.low):
        text += f" ({_number(change.low, sign=True)} to {_number(change.high, sign=True)})"
    share = 100 * change.mean / gap if gap else np.nan  # of a gap of 0 nothing is a share
    return [
        TableCell(text, change.mean),
        TableCell(f"{round(share)} %" if isfinite(share) else DASH),
    ]


def _mean(values: Sequence[float] | Floats) -> float:
    """Return the mean; NaN of no values."""
    return measures.spread(values).mean


def _cell(value: float) -> TableCell:
    return TableCell(_number(value, sign=True), value)


def _number(value: float, sign: bool = False) -> str:
    """Return a figure with four decimals, or four digits where it is 10 or more."""
    if not isfinite(value):
        return DASH
    plus = "+" if sign else ""
    return f"{value:{plus}.4f}" if abs(value) < 10 else f"{value:{plus}.4g}"


def notes(explanation: Explanation) -> list[str]:
    """Return what a reader of the table should know, in sentences."""
    plan = explanation.plan
    lines = []
    lost = [seed for place, seed in enumerate(plan.seeds) if place not in explanation.counted]
    if lost:
        combinations = [
            plan.name(combination)
            for combination, values in explanation.figures.items()
            if not np.isfinite(values).all()
        ]
        lines.append(
            f"left out: seeds {', '.join(map(str, lost))}, of which a run ended without a number "
            f"({'; '.join(combinations[:3])})"
        )
    if plan.a.seeds != plan.b.seeds and explanation.counted:
        lines += _chance(explanation)
    private = [side for side in (plan.a, plan.b) if side.experiment.privacy is not None]
    if private and len(explanation.counted) > 1:
        lines.append(
            "runs with one privacy.noise_seed add the same noise under every seed: the intervals "
            "hold none of it"
        )
    if len(explanation.counted) == 1:
        lines.append("one seed has no interval: what a cause carries may be chance; give --seeds")
    if len(plan.causes) > 1 and explanation.counted:
        lines.append(_together(explanation))
    if testing := _deciding_test_samples(plan):
        decide = "decides" if len(testing) == 1 else "decide"
        lines.append(
            f"A and B may be measured on other test samples, for {in_list(testing)} {decide} "
            "which; that one set is easier is then a part of what it carries"
        )
    if plan.printed is not None and explanation.counted:
        lines.append(_nearest(explanation, plan.printed))
    lines += _best_of_one(explanation)
    return [*lines, *_troubles(explanation), *_restored(explanation), *_unlike(explanation)]


def _best_of_one(explanation: Explanation) -> list[str]:
    """Return a sentence where the best round of runs is looked for that had several and were
    evaluated once."""
    plan = explanation.plan
    best = {
        combination: runs
        for combination, runs in explanation.runs.items()
        if plan.reading(combination).round == "best"
    }
    evaluated = {
        combination: [evaluations_of(run, plan.reading(combination)).x for run in runs]
        for combination, runs in best.items()
    }
    once = [
        combination
        for combination, rounds in evaluated.items()
        if any(len(numbers) == 1 and numbers[0] > 1 for numbers in rounds)
    ]
    if not once:
        return []
    names = [plan.name(combination) for combination in once]
    which = in_list([*names[:3], *(["others"] if len(names) > 3 else [])])
    return [
        f"the best round is the last one by construction in {which}: evaluated after the last "
        "round alone; --set evaluate.every=1 evaluates more"
    ]


def _troubles(explanation: Explanation) -> list[str]:
    """Return a sentence for each combination of which a run's model was refused, restored or
    ruined, or learned nothing, with the troubles of the first such seed."""
    plan = explanation.plan
    lines = []
    seen: set[Path] = set()
    for combination, runs in explanation.runs.items():
        troubled = {
            seed: run
            for seed, run in zip(plan.seeds, runs, strict=True)
            if run.directory not in seen and model_health(run)
        }
        seen.update(run.directory for run in runs)
        if troubled:
            lines.append(f"{plan.name(combination)}, {_trouble(troubled)}")
    more = f"the models of {len(lines) - _TROUBLES} more combinations had such troubles"
    return [*lines[:_TROUBLES], *([more] if len(lines) > _TROUBLES else [])]


def _restored(explanation: Explanation) -> list[str]:
    """Return a sentence where the guard went back to a model of an earlier evaluation, and A and B
    are evaluated at other rounds."""
    runs = [run for runs in explanation.runs.values() for run in runs]
    every = "evaluate.every"
    if every not in {row.key for row in explanation.plan.harmless}:
        return []
    if not any(len(measures.note(run, "model_restored").x) for run in runs):
        return []
    return [
        f"the guard went back to models of earlier evaluations, so that {every}, in which A and B "
        f"differ, has changed figures, too; give both the same, e.g. --set {every}=10"
    ]


def _trouble(runs: Mapping[int, Run]) -> str:
    """Return the troubles of the first of some runs, by seed, in words, and what their figures
    are."""
    first = next(iter(runs.values()))
    troubles = learned_nothing(first) or "; ".join(model_health(first))
    words = f"{_seeds(list(runs))}: {troubles}"
    untrained = [seed for seed, run in runs.items() if learned_nothing(run)]
    if not untrained:
        return words
    count = "count" if len(untrained) > 1 else "counts"
    return f"{words}; {_seeds(untrained)} {count} with the untrained model's figure"


def _seeds(seeds: Sequence[int]) -> str:
    return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"


def _together(explanation: Explanation) -> str:
    """Return what the causes add up to when each is changed alone, in a sentence."""
    from_a, from_b = (
        _mean(alone.sum(axis=0)) for alone in (explanation.shares.from_a, explanation.shares.from_b)
    )
    total = _mean(explanation.ends[1] - explanation.ends[0])
    if explanation.plan.exact:
        return (
            f"changed alone from A the causes add up to {_number(from_a, sign=True)}; the other "
            f"{_number(total - from_a, sign=True)} of B - A come of changing several together"
        )
    return (
        f"changed alone the causes add up to {_number(from_a, sign=True)} from A and to "
        f"{_number(from_b, sign=True)} from B; what the mean of both leaves of B - A is the row "
        f"{_LEFT!r}"
    )


def _deciding_test_samples(plan: ExplanationPlan) -> list[str]:
    """Return the differing keys that may have A and B tested on other samples."""
    tables = set(_TEST_SAMPLES)
    if "client" in (value_at(side.document, "split.test") for side in (plan.a, plan.b)):
        tables.add("partition")
    keys = {key for cause in plan.causes for key in cause.keys}
    return sorted(
        key
        for key in keys
        if key.partition(".")[0] in tables and ".".join(key.split(".")[:2]) not in _NOT_THE_SAMPLES
    )


def _chance(explanation: Explanation) -> list[str]:
    """Return how much of the difference of both sides, each with its own seeds, is the seeds'."""
    own = []
    plan = explanation.plan
    for side, combination, figures in zip(
        (plan.a, plan.b), plan.ends, explanation.observed, strict=True
    ):
        held = {plan.seeds[place]: figures[at] for at, place in enumerate(explanation.counted)}
        for seed in set(side.seeds) & set(side.stored) - set(held):
            held[seed] = figure_of(side.stored[seed], plan.reading(combination))
        if not set(side.seeds) <= set(held):
            return []  # of a seed that was not run nothing is said
        own.append([held[seed] for seed in side.seeds])
    apart = _mean(own[1]) - _mean(own[0])
    paired = _mean(explanation.observed[1] - explanation.observed[0])
    return [
        f"each with its own seeds, B - A is {_number(apart, sign=True)}; "
        f"{_number(apart - paired, sign=True)} of it is chance, for it goes with the same seeds"
    ]


def _nearest(explanation: Explanation, printed: float) -> str:
    """Return the combination whose mean lies nearest to the printed number, in a sentence."""
    means = {s: _mean(v[explanation.counted]) for s, v in explanation.figures.items()}
    nearest = min(means, key=lambda combination: abs(means[combination] - printed))
    return (
        f"nearest to the print of {len(means)} combinations: {explanation.plan.name(nearest)}, "
        f"{_number(means[nearest])}; the best of so many is near also by chance"
    )


def _unlike(explanation: Explanation) -> list[str]:
    """Return a sentence where the runs were not all computed alike."""
    records = [run.meta for runs in explanation.runs.values() for run in runs]
    held: dict[str, dict[str, None]] = {}
    for record in records:
        computed = {**record.get("versions", {}), **record.get("numerics", {})}
        for key in computed.keys() - _CHOSEN:
            held.setdefault(key, {})[str(computed[key])] = None
    unlike = [f"{key} {' and '.join(values)}" for key, values in held.items() if len(values) > 1]
    if unlike:
        return [f"not all runs were computed alike ({'; '.join(unlike)}), so last bits may differ"]
    return []


def write_explanation(explanation: Explanation) -> Path:
    """Write ``explanation.md``, the same as HTML, ``causes.csv`` and ``figures.csv``; return the
    path of the first.

    Raises
    ------
    StoreError: they cannot be written.
    """
    plan = explanation.plan
    folder = explanation.directory
    folder.mkdir(parents=True, exist_ok=True)
    replace_files(
        {
            folder / "causes.csv": _causes_csv(explanation),
            folder / "figures.csv": _csv(explanation),
        },
        folder / "causes.csv",
    )
    remarks: Sequence[Block] = [BulletList(lines)] if (lines := notes(explanation)) else []
    page = Page(
        f"{printable(plan.a.label)} and {printable(plan.b.label)}: why they differ",
        [("metric", plan.metric), ("runs", str(plan.number_of_runs)), ("id", plan.identity)],
        non_empty(
            Section("What each cause carries", [share_table(explanation), *remarks]),
            Section("What differs", [difference_table(plan, spent_differences(explanation))]),
            Section("How it was done", [BulletList(plan.sentences())]),
        ),
    )
    write(page, folder / "explanation.html")
    return write(page, folder / PAGE)


def _causes_csv(explanation: Explanation) -> str:
    """Return a row per cause and seed: its keys, what it carries, and its changes alone."""
    shares = explanation.shares
    rows: list[Sequence[object]] = [("cause", "keys", "seed", "share", "from_a", "from_b")]
    rows += [
        (cause.name, " ".join(cause.keys), explanation.plan.seeds[place], *map(repr, figures))
        for number, cause in enumerate(explanation.plan.causes)
        for at, place in enumerate(explanation.counted)
        for figures in [[float(v[number, at]) for v in (shares.each, shares.from_a, shares.from_b)]]
    ]
    return _written(rows)


def _csv(explanation: Explanation) -> str:
    """Return a row per combination and seed: the figure, and the folder of its run."""
    plan = explanation.plan
    rows: list[Sequence[object]] = [("combination", "seed", plan.metric, "run")]
    rows += [
        (plan.name(combination), seed, repr(float(value)), run.directory)
        for combination, runs in explanation.runs.items()
        for seed, value, run in zip(plan.seeds, explanation.figures[combination], runs, strict=True)
    ]
    return _written(rows)


def _written(rows: Sequence[Sequence[object]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()
