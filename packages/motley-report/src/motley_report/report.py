"""The report about a run or a comparison, made from tables only: one HTML page, or Markdown with
pictures beside it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.errors import ConfigError, StoreError
from motley.core.extensions import required_extension
from motley.core.files import user_path
from motley.core.modules_loading import collector_off
from motley.core.untrusted import printable_tree
from motley.results import measures
from motley.results.blocks import BulletList, Page, Section, non_empty
from motley.results.labels import clock, group_runs
from motley.results.load import Run, as_private_as, load_all
from motley.results.method_groups import MethodGroups, labels_by_number
from motley.results.method_rows import not_compared
from motley.results.model_health import model_health
from motley.results.number_text import whole
from motley_report.page import write
from motley_report.print_files import write_print_files
from motley_report.sections import all_sections, provenance, single_runs

Groups = Mapping[str, Sequence[Run]]
MOST_VALUES = 5
"""Values of a fact that stand under the title, at most."""


def _check_backend() -> None:
    """Refuse a backend for windows that matplotlib does not know, which no page needs, but without
    which it cannot be imported.

    Raises
    ------
    ConfigError: the environment names one.
    """
    try:
        import matplotlib  # noqa: F401  # whether it can be
    except ValueError as error:
        raise ConfigError(f"{error}; unset it", "MPLBACKEND") from None


def _runs_of(runs: Any) -> list[Run]:
    """Return the loaded runs that a report is of.

    Raises
    ------
    ConfigError: something else.
    """
    if isinstance(runs, Run):
        raise ConfigError("got a run; expected a list of runs, [run]", "runs")
    if hasattr(runs, "runs"):
        raise ConfigError("got a comparison; give its runs, comparison.runs", "runs")
    loaded = list(runs) if isinstance(runs, Iterable) else [runs]
    if not all(isinstance(run, Run) for run in loaded):
        raise ConfigError(
            f"got {type(runs).__name__}; expected a list of runs (motley.load gives one), or the "
            "path of a folder of runs",
            "runs",
        )
    return loaded


def report(
    runs: str | Path | Sequence[Run],
    out: str | Path,
    target: float | None = None,
    format: str | Sequence[str] = (),
    prediction: str | Path | None = None,
    *,
    against: str | None = None,
    plain_intervals: bool = False,
) -> Path:
    """Write the report of runs to a file, or its figures and tables for a paper into a folder.

    Parameters
    ----------
    runs: a folder with runs in or below it, or loaded runs.
    out: the file to write; folders above it are made. ``.html`` (``.htm``) is a page of HTML that
        holds everything, ``.md`` is Markdown, whose pictures go to a folder beside it
        (``report_pictures`` for ``report.md``).
    target: value of the metric (an accuracy as a fraction) for the table of costs to a target; None
        takes ``stop.target`` of the first experiment, and without one the table is left out.
    format: some of ``pdf``, ``svg`` (figures), ``latex`` and ``csv`` (tables); ``out`` is then the
    folder of their files.
    prediction: the ``prediction.json`` of ``motley what-if``, shown beside the runs; a page only.
    against: label of the method that the others are compared with; None takes that of the
        comparison (:func:`motley.compare`), else ``uniform`` or ``fedavg``, else the first.
    plain_intervals: give every difference the 95 % interval of one comparison alone, not one that
    holds together with the others.

    Returns
    -------
    ``out``.

    Raises
    ------
    StoreError: there are no runs, or ``out`` cannot be written. DataError: a run's files are
    damaged.
    ConfigError: the runs are measured in different metrics, ``target`` is no value of theirs,
    ``against`` none of the methods, ``out`` has another suffix, a prediction is asked for in files
    for a paper, or ``motley-advice``, which shows it, is not installed.
    """
    loaded = load_all(runs) if isinstance(runs, str | Path) else _runs_of(runs)
    _check_backend()
    if not loaded:
        raise StoreError("a report needs at least one run, got none")
    if format and prediction is not None:
        raise ConfigError("a prediction is shown on a page; leave --format out", "--predicted")
    groups = printable_groups(loaded, against, plain_intervals)
    controls = [run for run in loaded if run.control]
    with as_private_as(loaded), collector_off():  # a page holds its figures
        if format:
            return write_print_files(
                groups=groups,
                folder=user_path(out),
                formats=[format] if isinstance(format, str) else format,
                target=target,
                controls=controls,
            )
        if prediction is None:
            predicted = None
        else:
            predicted = required_extension("report", "predicted")(groups, prediction)
        return write(
            report_page(
                groups=groups,
                folder=user_path(out).parent,
                target=target,
                predicted=predicted,
                controls=controls,
            ),
            out,
        )


def printable_groups(
    runs: Sequence[Run], against: str | None = None, plain_intervals: bool = False
) -> MethodGroups:
    """Return the runs by method without characters that a page or terminal could not show;
    parameters as for :func:`report`."""
    printable = [replace(run, meta=printable_tree(run.meta)) for run in runs]
    return group_runs(printable, against, plain_intervals)


def report_page(
    groups: Groups,
    folder: Path,
    target: float | None = None,
    predicted: Section | None = None,
    controls: Sequence[Run] = (),
) -> Page:
    """Return the report of methods, one at least, as a page; ``folder``: where it will lie, from
    which single runs are addressed; ``predicted``: a section beside the warnings; ``controls``:
    runs that show what is left of a difference.

    Raises
    ------
    ConfigError: the runs are measured in different metrics, or ``target`` is no value of theirs.
    """
    messages = warnings(groups)
    blocks = non_empty(
        BulletList(messages, "Before you read on") if messages else None,
        predicted,
        *all_sections(groups, target, controls),
        single_runs(groups, folder),
        provenance(groups),
    )
    return Page(
        next(iter(groups.values()))[0].name, facts(groups), blocks, labels_by_number(groups)
    )


def facts(groups: Groups) -> list[tuple[str, str]]:
    """Return the facts under the title: task, clients, methods and seeds; of what runs differ in,
    every value."""
    runs = [run for members in groups.values() for run in members]
    seeds = sorted({run.seed for runs in groups.values() for run in runs})
    kind = {"wall": "real clients", "virtual": ""}.get(clock(groups), "simulated, and real clients")
    facts = [
        ("deployment", kind),
        ("task", _each(map(_learned, runs))),
        ("clients", _each(_count(run.config.get("population")) for run in runs)),
        ("per round", _each(map(_per_round, runs))),
        ("parameters", _each(_count(run.meta.get("parameters")) for run in runs)),
        ("methods", str(len(groups))),
        ("seeds", ", ".join(map(str, seeds))),
    ]
    return [(name, value) for name, value in facts if value]


def _each(values: Iterable[str]) -> str:
    """Return the values of runs, each once; of many the first ones."""
    distinct = [value for value in dict.fromkeys(values) if value]
    more = [f"{len(distinct) - MOST_VALUES} more"] if len(distinct) > MOST_VALUES else []
    return " / ".join([*distinct[:MOST_VALUES], *more])


def _learned(run: Run) -> str:
    task = run.config.get("task") or {}
    parts = [task[key] for key in ("data", "model") if task.get(key)]
    named = [part["name"] if isinstance(part, Mapping) else part for part in parts]
    return ", ".join(str(name) for name in named) or str(task.get("name", ""))


def _count(number: float | None) -> str:
    return whole(number) if number else ""


def _per_round(run: Run) -> str:
    return str(run.config.get("cohort") or run.config.get("participation") or "")


def warnings(groups: Groups) -> list[str]:
    """Return warnings about the runs: unfinished ones, rejected updates, single seeds, few
    evaluations."""
    messages: dict[str, list[str]] = {}  # text -> methods that it is about

    for label, runs in groups.items():
        for text in _troubles(runs):
            messages.setdefault(text, []).append(label)
    whose = {
        text: "all methods" if len(names) == len(groups) > 1 else ", ".join(names)
        for text, names in messages.items()
    }
    lines = [f"{names}: {text}" for text, names in whose.items()]
    if len({measures.written_scope(run) for runs in groups.values() for run in runs}) > 1:
        lines.append(
            "Some runs are tested on the clients' own data and some on a global test set: their "
            "headlines differ in meaning."
        )
    alone = not_compared(groups)
    return [*lines, alone] if alone else lines


def _dropped(run: Run) -> NDArray[np.bool_]:
    """Return which rows of ``clients`` are of uploads that never came."""
    return np.asarray(run.column("clients", "outcome") == "dropped")


def _repeated(runs: Sequence[Run]) -> list[str]:
    """Return the sentence about seeds of one method of which there are several runs, as of earlier
    code or data; nothing without."""
    counts = Counter(run.seed for run in runs)
    seeds = [str(seed) for seed, count in counts.items() if count > 1]
    if not seeds:
        return []
    return [
        f"several runs of seed {', '.join(seeds)}, such as of other code, data or noise: means and "
        "deviations count each, paired differences the last; report on a folder without those of "
        "before."
    ]


def _troubles(runs: Sequence[Run]) -> list[str]:
    """Return a sentence for each thing that a reader must know about the runs of one method."""
    sentences = []
    open_runs = [run for run in runs if not run.finished]
    if open_runs:
        seeds = ", ".join(str(run.seed) for run in open_runs)
        sentences.append(f"not finished (seed {seeds}); what is shown ends where the run stood.")
    rejected = [
        run.column("clients", "client")[run.column("clients", "outcome") == "rejected"]
        for run in runs
    ]
    number = sum(map(len, rejected))
    clients = len({int(client) for run in rejected for client in run})
    if number:
        times = "once" if number == 1 else f"{number} times"
        who = f"{clients} client{'s' if clients > 1 else ''}"
        reasons = "not finite, of the wrong shape, or part of a refused step"
        sentences.append(
            f"an update was rejected {times} ({who}): {reasons}. It was paid for, not used."
        )
    sentences += _repeated(runs)
    sentences += [f"seed {run.seed}: {trouble}." for run in runs for trouble in model_health(run)]
    lost = [
        (int(client), run.client_name(int(client)))
        for run in runs
        if run.deployed
        for client in run.column("clients", "client")[_dropped(run)]
    ]
    if lost:
        times = "once" if len(lost) == 1 else f"{len(lost)} times"
        each = [named for _, named in sorted(set(lost))]
        who = ", ".join(each[:10]) + (f" and {len(each) - 10} more" if len(each) > 10 else "")
        sentences.append(f"an upload was lost {times} ({who}); when and why is below.")
    if len(runs) == 1 and not runs[0].deployed:
        sentences.append(
            "one seed only; no spread can be told, and small differences mean nothing."
        )
    evaluations = [len(measures.trained(measures.curve(run)).x) for run in runs]
    if not any(evaluations):
        sentences.append("no evaluation after round 0; set evaluate.every to see accuracy.")
    elif not all(
        np.isfinite(measures.ends_of(run).stable) for run in runs if not measures.ruined(run)
    ):
        sentences.append(
            "fewer than ten evaluations past half of a run: it has no stable value; set a smaller "
            "evaluate.every."
        )
    return sentences
