"""The sections of a report that compares methods, as blocks of a page.

``groups`` maps a method's label to its runs (one per seed), as in :mod:`motley_report.plots`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from motley.core.strict_json import finite
from motley.results import measures, tables
from motley.results.blocks import BulletList, Code, Section, SideBySide, Text, non_empty
from motley.results.by_architecture import by_architecture
from motley.results.gains import missing_local
from motley.results.labels import clock
from motley.results.load import Run, citations
from motley.results.method_rows import target_of
from motley.results.recorded_metrics import metric_in_title
from motley_report import plots, selection_plots
from motley_report.besides_section import besides_section
from motley_report.client_by_client import by_client
from motley_report.column_section import columns_of_runs
from motley_report.deployed import real_clients
from motley_report.gain_plots import gain_pictures
from motley_report.privacy_section import privacy_section

__all__ = [
    "all_sections",
    "costs",
    "curves",
    "diagnosed",
    "ends",
    "federation",
    "participation",
    "provenance",
    "served",
    "single_runs",
]

Groups = Mapping[str, Sequence[Run]]


def all_sections(
    groups: Groups, target: float | None = None, controls: Sequence[Run] = ()
) -> list[Section]:
    """Return all sections that compare methods (label to runs); empty sections are left out.
    ``controls``: runs that show what is left of a difference."""
    every = (
        ends(groups),
        besides_section(groups, controls),
        curves(groups, target),
        participation(groups),
        real_clients(groups),
        sending(groups),
        diagnosed(groups),
        served(groups),
        federation(groups),
        *columns_of_runs(groups),
        privacy_section(groups),
        costs(groups),
    )
    return [part for part in every if part.blocks]


def ends(groups: Groups) -> Section:
    """Return the section with the end of each method, and whether the differences exceed those
    between seeds."""
    first = next(iter(groups.values()))[0]
    metric = measures.metric_of(first)[0]
    words = [f"{metric_in_title(metric)}{' in %' if measures.percent_of(first) > 1 else ''}"]
    if measures.written_scope(first) == "mean":
        words.append("averaged over the clients' own test sets")
    else:
        words.append("on the global test set")
    text = (
        " ".join(words)
        + (", mean ± standard deviation over seeds" if _several(groups) else "")
        + (
            ". Stable is the mean of the last ten evaluations, where all ten are past half of the "
            "run, drop how much worse the end is than the peak; round 0 (untrained) never counts."
        )
    )
    if any(isfinite(measures.by_validation(run)) for runs in groups.values() for run in runs):
        text += (
            " By validation is the test figure at the round that is best on the clients' "
            "validation samples."
        )
    return Section(
        "In one table",
        non_empty(
            Text(text),
            tables.summary(groups),
            plots.headline_bars(groups),
            Section("All metrics", non_empty(tables.metrics(groups))),
            Section("At each width", non_empty(tables.widths(groups))),
            Section("Is the difference more than the seeds?", non_empty(tables.pairs(groups))),
        ),
    )


def curves(groups: Groups, target: float | None = None) -> Section:
    """Return the section with curves over rounds, time and traffic, and costs to the target (None:
    the experiment's)."""
    runs = [run for members in groups.values() for run in members]
    axes: tuple[measures.Axis, ...] = ("seconds", "bits", "paper_bits")
    measured = [axis for axis in axes if any(len(measures.curve(run, axis).x) for run in runs)]
    drawn = [plots.curves(groups, axis) for axis in ("round", *measured)]
    if _several(groups):
        seeds = (
            f"Mean over seeds{'' if drawn[0].wide else '; the shade is one standard deviation'}. "
        )
    else:
        seeds = ""
    text = (
        f"{seeds}Each curve ends where its first seed ends. The first rise is cut off where it "
        "would hide the rest; the traffic axis is logarithmic where methods differ much."
    )
    first = next(iter(groups.values()))[0]
    target = target_of(first, target)
    until = None
    if target is not None:
        name = f"{100 * target:g}%" if measures.percent_of(first) > 1 else f"{target:g}"
        until = Section(
            f"Until {name}", [tables.to_target(groups, target), plots.target_bars(groups, target)]
        )
    return Section("How it got there", non_empty(Text(text, note=True), SideBySide(drawn), until))


def participation(groups: Groups) -> Section:
    """Return the section on participation, with the notes of the rules on their selection."""
    text = (
        "Accepted updates per client. The dashed line is an even share; std and Gini index are "
        "means over seeds (0 means everybody equally often)."
    )
    mean = ", mean over seeds" if _several(groups) else ""
    noted = selection_plots.components(groups)
    remark = Text(f"What the rule noted of its choice in each round{mean}.", note=True)
    return Section(
        "Who took part",
        non_empty(
            Text(text, note=True),
            plots.participation_bars(groups),
            tables.participation(groups),
            SideBySide(non_empty(plots.concentration(groups))),
            Section("What made the score", non_empty(remark, *noted) if noted else ()),
        ),
    )


def sending(groups: Groups) -> Section:
    """Return the section on shares of updates sent; empty where all clients send everything."""
    shares = selection_plots.shares(groups)
    by_score = selection_plots.shares_by_score(groups)
    seeds = ", all seeds" if _several(groups) else ""
    text = (
        f"One dot for each client sent out{seeds} (of many, evenly picked), in rounds in which not "
        "everybody may send the whole update. Methods that send everything are not shown."
    )
    line = (
        "On the dashed line a client sends what its score asks for; below it, its link or a "
        "limit holds it back."
    )
    score = Section("Share and score", [Text(line, note=True), by_score] if by_score else [])
    return Section(
        "Who may send how much",
        non_empty(Text(text, note=True), shares, score) if shares or by_score else [],
    )


def diagnosed(groups: Groups) -> Section:
    """Return the section on the diagnostics of rounds; empty where nothing was diagnosed."""
    pictures = selection_plots.diagnosed(groups)
    mean = ", mean over seeds" if _several(groups) else ""
    text = (
        f"Measured in the rounds that were diagnosed{mean}. diversity: how far clients' gradients "
        "are from their mean, over all clients (B2), those selected, and by the rule's "
        "probabilities; mean_gradient is the mean gradient's own squared norm, G2 the largest of "
        "a client, G2_batches of a mini-batch. drift: how far local models "
        "went, and the bounds of theorems with B2 of all and of the selected. error, client_error, "
        "weighted_error: what compression keeps back, of the aggregate and of an upload, "
        "linear_error: if an upload lost in proportion to its share, with the "
        "shares as they were and with the same for everybody."
    )
    return Section(
        "What theorems assume", non_empty(Text(text, note=True), *pictures) if pictures else []
    )


def served(groups: Groups) -> Section:
    """Return the section on fairness between clients; empty where they were not evaluated."""
    kinds: tuple[Literal["domain", "cluster"], ...] = ("domain", "cluster")
    by_kind = [Section(f"By {kind}", non_empty(tables.by_kind(groups, kind))) for kind in kinds]
    advice = missing_local(groups)
    gained = non_empty(
        *gain_pictures(groups), tables.gains(groups), Text(advice, note=True) if advice else None
    )
    new = Section("New clients", non_empty(tables.new_clients(groups)))
    return Section(
        "Who was served",
        non_empty(
            SideBySide(non_empty(plots.client_curves(groups))),
            tables.fairness(groups),
            Section("Client by client", non_empty(by_client(groups))),
            Section("By architecture", non_empty(by_architecture(groups))),
            Section("Who gained", gained),
            new,
            *by_kind,
        ),
    )


def federation(groups: Groups) -> Section:
    """Return the section on the class distribution of the first run, which is named where methods
    have other data; empty for data without classes."""
    label, (first, *_) = next(iter(groups.items()))
    held = first.tables["federation"]["labels"]
    others = any(
        not run.tables["federation"]["labels"].equals(held)
        for runs in groups.values()
        for run in runs
        if run.seed == first.seed
    )
    picture = selection_plots.class_distribution(first, label if others else "")
    return Section("The federation", non_empty(picture))


def costs(groups: Groups) -> Section:
    """Return the section on time and traffic."""
    if clock(groups) == "wall":
        whose = "a round's time went on the server"
    else:
        whose = "a simulated round's wall time went"
    phases = Section(f"Where {whose} (ms)", non_empty(tables.phases(groups)))
    return Section("What it cost", non_empty(tables.costs(groups), phases))


def provenance(groups: Groups, experiments: bool = True, folders: bool = True) -> Section:
    """Return the section on commands, versions and citations.

    Parameters
    ----------
    experiments: whether the resolved experiments are shown.
    folders: whether commands name folders of this machine; where they do not, FOLDER stands.
    """
    runs = [run for members in groups.values() for run in members]
    typed = [str(run.meta["command"]) for run in runs if run.meta.get("command")]
    commands = dict.fromkeys(typed if folders else map(_without_folders, typed))
    notes = _shared([(run.meta.get("task") or {}).get("notes") for run in runs])
    versions = _shared([run.meta.get("versions") for run in runs]) + _shared(
        [run.meta.get("numerics") for run in runs]
    )
    papers = citations(runs)
    return Section(
        "What was run",
        non_empty(
            Code("\n".join(commands), language="sh") if commands else None,
            BulletList([f"{name}: {value}" for name, value in notes]) if notes else None,
            *(
                Code(_json(members[0].config), f"Resolved experiment: {label}", "json")
                for label, members in groups.items()
                if experiments
            ),
            Code("\n".join(f"{name}: {value}" for name, value in versions), "Versions and numerics")
            if versions
            else None,
            Code("\n\n".join(papers), "Cite what was used (BibTeX)", "bibtex") if papers else None,
        ),
    )


def _without_folders(command: str) -> str:
    """Return a command with FOLDER in the place of each absolute path."""
    return re.sub(r"(?<=[\s=])('[/~][^']*'|[/~]\S*)", "FOLDER", command)


def single_runs(groups: Groups, folder: Path) -> Section:
    """Return the section with a row for each run and the address of its folder or report, from
    which ``folder``, that of the report, they go on."""
    table = tables.each_run(groups, lambda run: run_address(run, folder))
    return Section("Each run", [table], folded=len(table.rows) > 1)


def run_address(run: Run, folder: Path) -> str:
    """Return the address of a run's own report, where it has one, else of its folder, from another
    folder; "" where there is none."""
    own = run.directory / "report.html"
    target = own if own.is_file() and own.parent.resolve() != folder.resolve() else run.directory
    if not target.exists():
        return ""
    relative = Path(os.path.relpath(target.resolve(), folder.resolve())).as_posix()
    return quote(relative if target == own else f"{relative}/")


def _several(groups: Groups) -> bool:
    return max(len(members) for members in groups.values()) > 1


def _shared(run_records: Sequence[Mapping[str, Any] | None]) -> list[tuple[str, str]]:
    """Return the values of a record over all runs, joined where they differ."""
    records = [record or {} for record in run_records]
    names = list(dict.fromkeys(name for record in records for name in record))
    return [
        (name, " / ".join(dict.fromkeys(str(record[name]) for record in records if name in record)))
        for name in names
    ]


def _json(config: Mapping[str, Any]) -> str:
    return json.dumps(finite(config), indent=2, ensure_ascii=False, default=str, allow_nan=False)
