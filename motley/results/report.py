"""One self-contained HTML page about a run or a comparison, made from tables only.

Nothing in the page asks for an address: figures are inline SVG, style and script are in the page, and it reads (and prints)
without the script.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from motley.core.errors import StoreError
from motley.results import choices, measures, plots
from motley.results.figures import colour
from motley.results.labels import group_runs
from motley.results.load import Run, load_all
from motley.results.stream import disk_error
from motley.results.summary import (
    MB,
    MethodRow,
    differences,
    method_rows,
    plus_minus,
    reached,
    short_number,
    target_of,
)

__all__ = ["report"]

COUNTS = ("rounds", "dispatched", "accepted", "late", "dropped", "rejected", "local_steps")
AMOUNTS = (("down_bits", MB), ("up_bits", MB), ("probe_bits", MB), ("time_s", 3600.0), ("wall_s", 1.0))
PHASES = ("select_s", "measure_s", "plan_s", "train_s", "fold_s", "examine_s", "write_s")


@dataclass(frozen=True)
class Cell:
    """A cell of a table: what is shown and the number it is sorted by."""

    text: str
    value: float = float("nan")


def report(runs: str | Path | Sequence[Run], out: str | Path, target: float | None = None) -> Path:
    """Write the page.

    Parameters
    ----------
    runs: a folder with runs in or below it, or loaded runs.
    out: the file to write; folders above it are made.
    target: value of the metric (an accuracy as a fraction) for the table of costs to a target; None takes ``stop.target`` of the
        first experiment, and without one the table is left out.

    Returns
    -------
    ``out``.

    Raises
    ------
    StoreError: there are no runs, or ``out`` cannot be written. DataError: a run's files are damaged.
    ConfigError: the runs are measured in different metrics, or ``target`` is no value of theirs.
    """
    loaded = load_all(runs) if isinstance(runs, str | Path) else list(runs)
    if not loaded:
        raise StoreError("a report needs at least one run, got none")
    page = _template().render(**_context(loaded, target))
    path = Path(out)
    new = path.with_name(path.name + ".new")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(page, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        with suppress(OSError):  # half a page is no page
            new.unlink(missing_ok=True)
        raise disk_error(error, path) from error
    return path


def _template() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("motley.results", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2")


def _context(runs: Sequence[Run], target: float | None) -> dict[str, Any]:
    groups = group_runs(runs)
    first = next(iter(groups.values()))[0]
    metric, better = measures.metric_of(first)
    target, rows = target_of(first, target), method_rows(groups)
    own = measures.headline_scope(first) == "mean"
    return {
        "title": first.name,
        "facts": _facts(groups, first),
        "metric": "accuracy" if metric == "accuracy" else metric,
        "unit": "%" if metric == "accuracy" else "",
        "better": better,
        "scope": "averaged over the clients' own test sets" if own else "on the global test set",
        "methods": [{"label": label, "colour": colour(i), "index": i} for i, label in enumerate(groups)],
        "seeds_most": max(len(members) for members in groups.values()),
        "summary": _summary(rows, better),
        "pairs": _pairs(groups, metric),
        "many": len(groups) > plots.DIRECT,
        "curves": [plots.curves(groups, axis) for axis in ("round", "seconds", "bits", "paper_bits")],
        "target": "" if target is None else f"{100 * target:g}%" if metric == "accuracy" else f"{target:g}",
        "to_target": [] if target is None else _to_target(groups, target),
        "bars": plots.headline_bars(groups),
        "participation": plots.participation_bars(groups),
        "took_part": _took_part(groups),
        "concentration": plots.concentration(groups),
        "components": choices.components(groups),
        "sent": choices.shares(groups),
        "sent_by_score": choices.shares_by_score(groups),
        "clients": plots.client_curves(groups),
        "fairness": _fairness(rows),
        "kinds": [_by_group(groups, column, metric) for column in ("domain", "cluster")],
        "classes": plots.class_distribution(first),
        "costs": _costs(groups),
        "phases": _phases(groups),
        "warnings": _warnings(groups),
        "experiments": [(label, _json(members[0].config)) for label, members in groups.items()],
        "commands": list(dict.fromkeys(str(run.meta["command"]) for run in runs if run.meta.get("command"))),
        "versions": _shared([run.meta.get("versions") for run in runs]),
        "numerics": _shared([run.meta.get("numerics") for run in runs]),
        "citations": list(dict.fromkeys(_bibtex(entry) for run in runs for entry in run.meta.get("citations") or [])),
        "notes": _shared([(run.meta.get("task") or {}).get("notes") for run in runs]),
    }


def _facts(groups: Mapping[str, Sequence[Run]], first: Run) -> list[tuple[str, str]]:
    """The few words under the title: what was learned, by how many."""
    config = first.config
    task = config.get("task") or {}
    parts = [task[key] for key in ("data", "model") if task.get(key)]
    named = [part["name"] if isinstance(part, Mapping) else part for part in parts]
    learned = ", ".join(str(name) for name in named) or str(task.get("name", ""))
    seeds = sorted({run.seed for runs in groups.values() for run in runs})
    facts = [
        ("task", learned),
        ("clients", _whole(config["population"]) if config.get("population") else ""),
        ("per round", str(config.get("cohort") or config.get("participation") or "")),
        ("parameters", _whole(first.meta["parameters"]) if first.meta.get("parameters") else ""),
        ("methods", str(len(groups))),
        ("seeds", ", ".join(map(str, seeds))),
    ]
    return [(name, value) for name, value in facts if value]


def _summary(methods: Sequence[MethodRow], better: bool) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    sign = 1 if better else -1
    for method in methods:
        numbers = (method.final, method.peak, method.stable, method.drop, method.participation_std)
        spent = (method.hours, method.paper_mb, method.traffic_mb, method.wall_s)
        cells = [Cell(plus_minus(s), s.mean) for s in numbers] + [Cell(short_number(s.mean), s.mean) for s in spent]
        rows.append({"label": method.label, "cells": cells, "best": set()})
    for column, direction in ((0, sign), (1, sign), (2, sign), (3, -1)):
        values = [direction * row["cells"][column].value for row in rows]
        best = int(np.nanargmax(values)) if len(rows) > 1 and np.isfinite(values).any() else -1
        if best >= 0:
            rows[best]["best"].add(column)
    return rows


def _pairs(groups: Mapping[str, Sequence[Run]], metric: str) -> list[dict[str, Any]]:
    """Every method against the reference, see :func:`motley.results.summary.differences`."""
    digits = "+.2f" if metric == "accuracy" else "+.3g"
    pairs = []
    for one in differences(groups):
        got = one.interval
        cells = [text.replace("-", "−") for text in (f"{got.mean:{digits}}", f"{got.low:{digits}} to {got.high:{digits}}")]
        said = {"label": one.label, "base": one.base, "verdict": one.verdict}
        pairs.append({**said, "mean": cells[0], "interval": cells[1], "n": got.n})
    return pairs


def _to_target(groups: Mapping[str, Sequence[Run]], target: float) -> list[dict[str, Any]]:
    """Rounds, virtual hours and traffic until the target, means over seeds; a lower bound where a seed never got there."""
    rows = []
    for label, runs in groups.items():
        way = reached(runs, target)
        cells = [Cell(f"{way.seeds} of {way.runs}", way.seeds)]
        for cost in (way.rounds, way.hours, way.paper_mb, way.traffic_mb):
            text = _whole(cost.value) if cost is way.rounds and np.isfinite(cost.value) else short_number(cost.value)
            cells.append(Cell(text if cost.reached else f"> {text}", cost.value))
        rows.append({"label": label, "cells": cells})
    return rows


def _took_part(groups: Mapping[str, Sequence[Run]]) -> list[dict[str, Any]]:
    """Who took part, in numbers, and what choosing took; means over seeds."""
    rows = []
    for label, runs in groups.items():
        each = [measures.participation(run) for run in runs]
        evenness = [float(np.mean([getattr(p, kind) for p in each])) for kind in ("std", "gini", "seen", "all_seen")]
        drawn = [np.mean(c.y) for c in map(measures.concentration, runs) if len(c.y)]
        select = np.concatenate([np.asarray(run.column("timings", "select_s"), float) for run in runs])
        took = 1e3 * float(np.nanmean(select)) if np.isfinite(select).any() else float("nan")
        values = [*evenness, float(np.mean(drawn)) if drawn else float("nan"), took]
        digits = (".2f", ".2f", ".0f", ".0f", ".2f", ".2f")
        cells = [Cell(f"{v:{d}}" if np.isfinite(v) else "–", v) for v, d in zip(values, digits, strict=True)]
        rows.append({"label": label, "cells": cells})
    return rows


def _fairness(methods: Sequence[MethodRow]) -> list[dict[str, Any]]:
    rows = []
    for method in methods:
        spreads = (method.client_mean, method.worst_decile, method.variance)
        if method.client_mean.n:
            rows.append({"label": method.label, "cells": [Cell(plus_minus(s), s.mean) for s in spreads]})
    return rows


def _by_group(groups: Mapping[str, Sequence[Run]], column: Literal["domain", "cluster"], metric: str) -> dict[str, Any]:
    """The clients' own metric per domain of features or cluster of concepts, means over seeds; no rows where all are of one kind."""
    percent = 100.0 if metric == "accuracy" else 1.0
    each = {label: [measures.by_group(run, column) for run in runs] for label, runs in groups.items()}
    kinds = sorted({kind for runs in each.values() for one in runs for kind in one})
    rows = []
    for label, runs in each.items():
        spreads = [measures.spread([percent * one.get(kind, float("nan")) for one in runs]) for kind in kinds]
        rows.append({"label": label, "cells": [Cell(plus_minus(s), s.mean) for s in spreads]})
    return {"name": column, "heads": [f"{column} {kind}" for kind in kinds], "rows": rows if len(kinds) > 1 else []}


def _costs(groups: Mapping[str, Sequence[Run]]) -> list[dict[str, Any]]:
    """Means over seeds: rounds, clients sent out and what became of them, local steps, traffic by direction, wall time."""
    rows = []
    for label, runs in groups.items():
        spent = [measures.costs(run) for run in runs]
        counts = [float(np.mean([getattr(c, kind) for c in spent])) for kind in COUNTS]
        amounts = [float(np.mean([getattr(c, kind) for c in spent])) / unit for kind, unit in AMOUNTS]
        cells = [Cell(_whole(n), n) for n in counts] + [Cell(short_number(a), a) for a in amounts]
        rows.append({"label": label, "cells": cells})
    return rows


def _phases(groups: Mapping[str, Sequence[Run]]) -> list[dict[str, Any]]:
    """Measured milliseconds a round spends in each phase, mean over rounds and seeds."""
    rows = []
    for label, runs in groups.items():
        columns = [
            np.concatenate([np.asarray(run.column("timings", kind), float) for run in runs]) for kind in (*PHASES, "wall_s")
        ]
        known = [1e3 * float(np.nanmean(c)) if np.isfinite(c).any() else float("nan") for c in columns]
        if np.isfinite(known).any():
            rows.append({"label": label, "cells": [Cell(short_number(v), v) for v in known]})
    return rows


def _warnings(groups: Mapping[str, Sequence[Run]]) -> list[str]:
    """What a reader should know before believing the page."""
    said: dict[str, list[str]] = {}  # what is to be said -> of which methods

    def say(label: str, text: str) -> None:
        said.setdefault(text, []).append(label)

    for label, runs in groups.items():
        open_runs = [run for run in runs if not run.finished]
        if open_runs:
            seeds = ", ".join(str(run.seed) for run in open_runs)
            say(label, f"not finished (seed {seeds}); what is shown ends where the run stood.")
        rejected = sum(measures.costs(run).rejected for run in runs)
        if rejected:
            clients = len(
                {
                    int(c)
                    for run in runs
                    for c in run.column("clients", "client")[run.column("clients", "outcome") == "rejected"]
                }
            )
            times, who = ("once" if rejected == 1 else f"{rejected} times"), f"{clients} client{'s' if clients > 1 else ''}"
            say(label, f"an update was rejected {times} ({who}): not finite or of the wrong shape. It was paid for, not used.")
        if len(runs) == 1:
            say(label, "one seed only; no spread can be told, and small differences mean nothing.")
        evaluations = [len(measures.curve(run).x) for run in runs]
        if not any(evaluations):
            say(label, "no evaluations; set examine.every to see accuracy.")
        elif min(evaluations) < measures.STABLE:
            say(label, "fewer than ten evaluations: stable is the mean of all of them, the first included.")
    whose = {text: "all methods" if len(names) == len(groups) > 1 else ", ".join(names) for text, names in said.items()}
    lines = [f"{names}: {text}" for text, names in whose.items()]
    if len({measures.headline_scope(run) for runs in groups.values() for run in runs}) > 1:
        lines.append(
            "Some runs are tested on the clients' own data and some on a global test set: their headlines differ in meaning."
        )
    return lines


def _bibtex(entry: Any) -> str:
    """A citation is its BibTeX, or a record that carries it."""
    return str(entry["bibtex"] if isinstance(entry, Mapping) else entry)


def _whole(number: float) -> str:
    """A count (or the mean of counts) with thin spaces between thousands and no idle decimals."""
    return f"{number:,.1f}".removesuffix(".0").replace(",", "\u202f")


def _shared(found: Sequence[Mapping[str, Any] | None]) -> list[tuple[str, str]]:
    """The same record of every run: each value, or all of them where they differ."""
    records = [record or {} for record in found]
    names = list(dict.fromkeys(name for record in records for name in record))
    return [(name, " / ".join(dict.fromkeys(str(record[name]) for record in records if name in record))) for name in names]


def _json(config: Mapping[str, Any]) -> str:
    return json.dumps(config, indent=2, ensure_ascii=False, default=str)
