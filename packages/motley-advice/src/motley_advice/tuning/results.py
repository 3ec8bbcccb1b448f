"""Write what a study found: ``trials.csv``, a TOML file for each method, and the report."""

from __future__ import annotations

from math import isfinite, nan
from pathlib import Path
from typing import Any

from motley.core.untrusted import printable
from motley.experiments import document
from motley.experiments.folder_names import slug
from motley.experiments.private_runs import private_training
from motley.results import measures
from motley.results.blocks import (
    DASH,
    Block,
    BulletList,
    Page,
    Picture,
    Section,
    Table,
    TableCell,
    TableRow,
    Text,
    non_empty,
)
from motley.results.method_rows import intervals_in_words
from motley_advice.tuning.objectives import Objective, ObjectiveValue, mean_value
from motley_advice.tuning.outcome import (
    TunedMethod,
    TuningResult,
    TuningTrial,
    better_before,
    trials_csv,
)
from motley_advice.tuning.spaces import NumberSpace, Space
from motley_advice.tuning.study_words import in_words, shown, with_interval
from motley_report.figures import colour, columns_of, mark, new_figure, styled, to_svg
from motley_report.page import html, replace_files


def write_results(result: TuningResult) -> Path:
    """Write all files of a finished study into its folder; return the path of the report.

    Raises
    ------
    StoreError: they cannot be written.
    """
    folder = result.directory
    files: dict[Path, str | bytes] = {folder / "trials.csv": trials_csv(result)}
    for name, text in tuned_files(result).items():
        files[folder / "tuned" / name] = text
    return replace_files(
        {**files, folder / "report.html": html(_page(result))}, folder / "report.html"
    )


def tuned_files(result: TuningResult) -> dict[str, str]:
    """Return name -> text of the experiments with the chosen values, one per method (and per
    experiment of a study of several); none for a task that was made in Python."""
    texts = {}
    for number, base in enumerate(result.plan.bases):
        if base.own_task is not None:
            continue
        for method in result.methods:
            chosen = result.plan.chosen(method.plan, method.values, method.run_equivalents)
            keys = method.plan.experiment(base, {**method.values, "tuned": chosen}).resolved()
            several = f"{number + 1}-" if len(result.plan.bases) > 1 else ""
            about = f"# {method.label} as tuned: {in_words(method.values)}\n"
            texts[f"{several}{slug(method.label)}.toml"] = about + document.to_toml(keys)
    return texts


def results_table(result: TuningResult) -> Table:
    """Return a row per method: chosen values, the objectives on validation samples and on test
    samples with their intervals, the differences to the first method paired by seed, and the
    run-equivalents that were used."""
    first = result.methods[0].label
    objectives = result.plan.objectives
    tested = objectives if result.plan.test_seeds else ()
    heads = [
        "method",
        "chosen",
        *(f"{result.title(objective)}, validation" for objective in objectives),
    ]
    heads += [
        text
        for objective in tested
        for text in (f"{result.title(objective)}, test (95 %)", f"test against {first} (95 %)")
    ]
    rows = [
        TableRow(method.label, _cells(result, method, tested), i)
        for i, method in enumerate(result.methods)
    ]
    seeds = ", ".join(map(str, result.plan.test_seeds))
    if tested:
        note = (
            f"Validation: of the trial that was chosen. Test: seeds {seeds}, which tuning never "
            f"saw. {intervals_in_words(result.comparisons)}".strip()
        )
    else:
        note = ""
    return Table([*heads, "run-equivalents"], rows, note)


def _cells(
    result: TuningResult, method: TunedMethod, tested: tuple[Objective, ...]
) -> list[TableCell]:
    cells = [TableCell(in_words(method.values))]
    cells += [
        _cell(objective, value)
        for objective, value in zip(
            result.plan.objectives, method.best.last.objectives, strict=True
        )
    ]
    for objective in tested:
        values = result.tested(method, objective)
        if all(value.reached for value in values):
            mean = measures.interval(measures.spread([value.value for value in values]))
            cells.append(TableCell(with_interval(mean, objective), mean.mean))
        else:
            cells.append(_cell(objective, mean_value(values)))
        same = method is result.methods[0]
        difference = result.difference(method, objective)
        cells.append(
            TableCell(
                DASH if same else with_interval(difference, objective, sign=True),
                nan if same else difference.mean,
            )
        )
    return [*cells, TableCell(f"{method.run_equivalents:.4g}", method.run_equivalents)]


def _cell(objective: Objective, value: ObjectiveValue) -> TableCell:
    return TableCell(shown(objective, value), value.value)


def _page(result: TuningResult) -> Page:
    plan = result.plan
    labels = [method.label for method in result.methods]
    facts = [
        ("methods", str(len(labels))),
        ("trials of each", str(plan.trials)),
        ("chosen by", ", ".join(map(result.title, plan.objectives))),
        ("seeds of tuning", ", ".join(map(str, plan.seeds))),
        ("seeds of the test", ", ".join(map(str, plan.test_seeds)) or "none"),
    ]
    remarks = BulletList([*plan.sentences(), *worries(result)])
    pictures: list[Block] = [
        Text(_HOW, note=True),
        *(_picture(result, place) for place in range(len(plan.objectives))),
    ]
    blocks = non_empty(
        Section("Chosen values", (results_table(result), remarks)),
        Section("Sensitivity", pictures),
        Section("All trials", (_trials_table(result),), folded=True),
    )
    return Page(f"{printable(plan.bases[0].name)}, tuned", facts, blocks, labels)


_HOW = (
    "Each trial on validation samples over the values of one key: a metric after the first part of "
    "its run, a cost where the target was reached. The ring is the trial that was chosen. Where "
    "several keys are tuned, the others differ from point to point."
)


def worries(result: TuningResult) -> list[str]:
    """Return what a reader should know of the chosen values: one at an end of its space, trials
    that diverged, training that got worse after a part of a run, what private runs release."""
    sentences = []
    for method in result.methods:
        for key, space in method.plan.spaces.items():
            if isinstance(space, NumberSpace) and method.values[key] in space.ends:
                sentences.append(
                    f"{method.label}: {key} = {method.values[key]} lies at an end of {space}; a "
                    "wider space may be better"
                )
        gone = sum(
            any(value.diverged for value in trial.steps[0].objectives) for trial in method.trials
        )
        if gone:
            sentences.append(
                f"{method.label}: {gone} of {len(method.trials)} trials diverged, which counts as "
                "the worst of all"
            )
        before = better_before(method)
        if before is not None and not result.plan.objectives[0].unit:
            trial, rung = before
            ends = [
                shown(result.plan.objectives[0], step.objectives[0])
                for step in (method.best.last, trial.steps[rung])
            ]
            sentences.append(
                f"{method.label}: the chosen values end at {ends[0]}, and trial {trial.number + 1} "
                f"had {ends[1]} after {result.plan.halving.shares[rung]:.3g} of a run: training "
                "gets worse late; a larger --rounds-first lets more trials go to the end"
            )
    return [*sentences, *_released(result)]


def _released(result: TuningResult) -> list[str]:
    """Return what all private runs so far on the data of a study release together."""
    bases = result.plan.bases
    experiments = [
        method.plan.experiment(base, method.values) for method in result.methods for base in bases
    ]
    private = [experiment for experiment in experiments if experiment.privacy is not None]
    lines = private_training().lines_of(private) if private else []
    return [f"All private runs so far, every trial and test among them: {line}" for line in lines]


def _trials_table(result: TuningResult) -> Table:
    heads = [
        "trial",
        "values",
        *(f"{result.title(objective)}, validation" for objective in result.plan.objectives),
        "run-equivalents",
    ]
    rows = [
        TableRow(f"{method.label}, {trial.number + 1}", _trial_cells(result, trial), place)
        for place, method in enumerate(result.methods)
        for trial in method.trials
    ]
    halved = len(result.plan.halving.shares) > 1
    return Table(
        heads, rows, "Several numbers: after each part of successive halving." if halved else ""
    )


def _trial_cells(result: TuningResult, trial: TuningTrial) -> list[TableCell]:
    values = [
        TableCell(
            "; ".join(shown(objective, step.objectives[i]) for step in trial.steps),
            trial.last.objectives[i].value,
        )
        for i, objective in enumerate(result.plan.objectives)
    ]
    return [
        TableCell(in_words(trial.values)),
        *values,
        TableCell(f"{trial.run_equivalents:.4g}", trial.run_equivalents),
    ]


def _picture(result: TuningResult, place: int) -> Picture:
    """Draw one panel per key: the results of all trials on validation samples over the key's
    values."""
    keys = list(dict.fromkeys(key for method in result.methods for key in method.plan.spaces))
    objective = result.plan.objectives[place]
    columns = columns_of(len(keys))
    title = f"{result.title(objective)}{f' ({objective.unit})' if objective.unit else ''}"
    rows = -(-len(keys) // columns)
    with styled():
        figure = new_figure(3.4 * columns if columns > 1 else 5.0, 2.9 * rows)
        for at, key in enumerate(keys):
            axes = figure.add_subplot(rows, columns, at + 1)
            for i, method in enumerate(result.methods):
                if key in method.plan.spaces:
                    _draw(axes, method, number=i, key=key, place=place, cost=bool(objective.unit))
            axes.set(xlabel=key, ylabel=title)
        return to_svg(
            figure,
            f"sensitivity-{place}",
            f"{title} of all trials on validation samples, over each key that was tuned",
        )


def _draw(axes: Any, method: TunedMethod, number: int, key: str, place: int, cost: bool) -> None:
    """Draw the trials of one method; joined where this is its only key, with a ring around the
    chosen one."""
    space = method.plan.spaces[key]
    spots = []
    for trial in method.trials:
        step = trial.last if cost else trial.steps[0]
        x = space.number(trial.values[key])
        value = step.objectives[place]
        if x is not None and value.reached and isfinite(value.value):
            spots.append((x, value.value, trial.number))
    style = "-" if len(method.plan.spaces) == 1 else "None"
    points = sorted(spots)
    line = axes.plot(
        [x for x, *_ in points],
        [y for _, y, _ in points],
        linestyle=style,
        linewidth=1.2,
        marker="o",
        markersize=3.5,
    )[0]
    line.set_color(colour(number))
    mark(line, number)
    for x, y, trial_number in points:
        if trial_number == method.best.number:
            ring = axes.plot(
                [x],
                [y],
                marker="o",
                markersize=9,
                fillstyle="none",
                linestyle="None",
                color=colour(number),
            )[0]
            mark(ring, number, in_words(method.values))
    _set_axis(axes, space)


def _set_axis(axes: Any, space: Space) -> None:
    if not isinstance(space, NumberSpace):
        axes.set_xticks(
            range(len(space.values)),
            [in_words({"": value}).removeprefix(" = ") for value in space.values],
        )
    elif space.log:
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
