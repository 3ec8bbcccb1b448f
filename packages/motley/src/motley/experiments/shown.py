"""How experiments and the runs of a comparison show themselves, as lines, tables and data frames.

>>> from motley.experiments.config import Experiment
>>> str(Experiment(task="quadratic", population=10, cohort=2, stop={"rounds": 5})).split(", ")[:3]
['<Experiment: name experiment', 'task quadratic', 'clients 10']
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from typing_extensions import override

from motley.core.card import Carded
from motley.core.errors import ConfigError

if TYPE_CHECKING:
    from motley.results.load import Run

NAMED = 4
"""Up to so many methods of a comparison are named in its last line."""
_USUAL: Final = {
    "partition": "iid",
    "synchrony": "synchronous",
    "availability": "always",
    "compressor": "identity",
}


def facts_of_keys(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an experiment is, from its keys (resolved, or as a run's record has them), in a
    few words."""

    def name(key: str) -> str:
        value = keys.get(key)
        return str(value.get("name", "")) if isinstance(value, Mapping) else str(value)

    task = keys.get("task") or {}
    unusual = {
        key: name(key) for key, usual in _USUAL.items() if key in keys and name(key) != usual
    }
    count = {"a round": keys.get("cohort") or f"{keys.get('participation') or 1.0:.0%}"}
    clients = {} if keys.get("population") is None else {"clients": keys["population"]}
    stop = {key: value for key, value in (keys.get("stop") or {}).items() if value is not None}
    if set(stop) == {"rounds"}:
        ends = f"round {stop['rounds']}"
    else:
        ends = ", ".join(f"{key} {value}" for key, value in stop.items())
    return {
        "name": keys.get("name", "experiment"),
        "task": " ".join(filter(None, (name("task"), str(task.get("data") or "")))),
        **clients,
        **count,
        "algorithm": name("algorithm"),
        "selector": name("selector"),
        **unusual,
        "ends": ends,
        "seed": keys.get("seed", 0),
    }


class ShownExperiment(Carded):
    """The part of an experiment that shows it."""

    @override
    def facts(self) -> dict[str, Any]:
        """Return what it is in a few words."""
        dump: Any = self
        keys = dump.model_dump(
            mode="json",
            include={
                *_USUAL,
                "name",
                "task",
                "population",
                "cohort",
                "participation",
                "stop",
                "algorithm",
                "selector",
                "seed",
            },
        )
        return facts_of_keys(keys)


def run_rows(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return a row of figures per run: label as in reports, seed, the headline's ends, rounds,
    virtual seconds, megabytes, folder."""
    from motley.results import measures
    from motley.results.labels import label_runs

    rows = []
    for run, label in zip(runs, label_runs(runs), strict=True):
        ends, (metric, _), rounds = (
            measures.ends_of(run),
            measures.metric_of(run),
            run.tables["rounds"],
        )
        time_s, bits = (
            rounds[name][-1].as_py() if rounds.num_rows else 0 for name in ("time_s", "total_bits")
        )
        values = {f"{metric} {end}": getattr(ends, end) for end in ("final", "peak", "stable")}
        spent = {"rounds": rounds.num_rows, "virtual_seconds": time_s, "megabytes": bits / 8e6}
        rows.append(
            {"label": label, "seed": run.seed, **values, **spent, "folder": str(run.directory)}
        )
    return rows


def run_in_words(run: Run) -> str:
    """Return what came of a run:
    ``who-to-ask: accuracy 0.912 after 20 rounds, in runs/who-to-ask/3f9a``."""
    from motley.results import measures

    name = measures.metric_of(run)[0]
    rounds = run.tables["rounds"].num_rows
    why = "" if run.standstill is None else f" ({run.standstill})"
    return (
        f"{run.name}: {name} {measures.ends_of(run).final:.3f} after {rounds} rounds{why}, in "
        f"{run.directory}"
    )


def runs_in_words(name: str, runs: Sequence[Run], failed: int, folder: Path) -> str:
    """Return what came of a comparison:
    ``who: 6 runs, accuracy 0.831 uniform, 0.852 oort (mean of final values), in runs/who``; of more
    than :data:`NAMED` methods their number alone."""
    from motley.results import measures
    from motley.results.labels import group_runs

    groups = group_runs(runs) if runs else {}
    means = [
        f"{np.mean([measures.ends_of(run).final for run in members]):.3f} {label}"
        for label, members in groups.items()
    ]
    if means:
        figures = f"{measures.metric_of(runs[0])[0]} {', '.join(means)} (mean of final values)"
    else:
        figures = ""
    figures = figures if len(groups) <= NAMED else f"{len(groups)} methods"
    lost = f"{failed} failed" if failed else ""
    return f"{name}: {', '.join(filter(None, (f'{len(runs)} runs', figures, lost)))}, in {folder}"


def in_cell(value: Any) -> str:
    """Return a figure as a cell of a table has it, with four digits; one that is not there is a
    dash."""
    from motley.results.blocks import DASH

    if not isinstance(value, float):
        return str(value)
    return f"{value:#.4g}".rstrip(".") if math.isfinite(value) else DASH


def to_frame(rows: Sequence[Mapping[str, Any]]) -> Any:
    """Return rows as a pandas DataFrame.

    Raises
    ------
    ConfigError: pandas is not installed.
    """
    try:
        import pandas as pd
    except ImportError:
        message = (
            "a DataFrame needs pandas; install it (pip install pandas), or take an Arrow "
            "table, motley.frame(runs, 'evaluations')"
        )
        raise ConfigError(message) from None
    return pd.DataFrame([dict(row) for row in rows])
