"""What clients gain over local training alone, and over the shared model: a row per method, for
reports and the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

from motley.results import measures
from motley.results.fairness import has_clients
from motley.results.load import Run
from motley.results.measures import Spread

Groups = Mapping[str, Sequence[Run]]
LEAST = 20
"""Clients with fewer test samples are left out."""
LOCAL = "local training alone"
SHARED = "own shared model"
"""What gains are over."""
_ALIKE = (
    "task",
    "population",
    "cohort",
    "participation",
    "stop",
    "pin",
    "init",
    "split",
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "local",
    "dtype",
    "precision",
)
"""Keys in which a run and its run of local training must be the same: data, initial model and local
work."""


@dataclass(frozen=True)
class GainRow:
    """A method's gains over its seeds: ``share`` of better-off clients in percent, ``median`` and
    ``worst`` gain in points where the metric is a share, NaN where a run ended in ruin;
    ``clients`` counted and ``left_out``, means over seeds."""

    label: str
    over: str
    share: Spread
    median: Spread
    worst: Spread
    clients: float
    left_out: float
    percent: float


def _algorithm(run: Run) -> str:
    algorithm: Any = run.config.get("algorithm") or "fedavg"
    return str(algorithm.get("name") if isinstance(algorithm, Mapping) else algorithm)


def _trains_alone(run: Run) -> bool:
    return _algorithm(run) == "local_only"


def local_rival(run: Run, runs: Sequence[Run]) -> Run | None:
    """Return the run of local training alone among ``runs`` with the same seed, data, initial model
    and local work, of several the one most like the run; None if there is none, or if the run is
    one itself."""
    if _trains_alone(run):
        return None
    alike = [
        candidate
        for candidate in runs
        if _trains_alone(candidate)
        and candidate.seed == run.seed
        and all(candidate.config.get(key) == run.config.get(key) for key in _ALIKE)
        and measures.metric_of(candidate) == measures.metric_of(run)
        and has_clients(candidate, "client")
    ]
    return max(
        alike,
        key=lambda candidate: sum(
            candidate.config.get(key) == value for key, value in run.config.items()
        ),
        default=None,
    )


def rivals(groups: Groups, over: str) -> dict[str, list[tuple[Run, Run | None]]]:
    """Return label -> pairs of a run and the run that it is compared with (None: its own shared
    model), for the methods that have any.

    ``over``: :data:`LOCAL` or :data:`SHARED`."""
    every = [run for runs in groups.values() for run in runs]
    run_pairs: dict[str, list[tuple[Run, Run | None]]] = {}
    for label, runs in groups.items():
        evaluated = [run for run in runs if has_clients(run, "client")]
        if over == SHARED:
            run_pairs[label] = [
                (run, None) for run in evaluated if has_clients(run, "shared_client")
            ]
        else:
            pairs = [(run, local_rival(run, every)) for run in evaluated]
            run_pairs[label] = [pair for pair in pairs if pair[1] is not None]
    return {label: pairs for label, pairs in run_pairs.items() if pairs}


def gain_rows(groups: Groups) -> list[GainRow]:
    """Return the rows over local training alone of every method that has one, then those over its
    own shared model."""
    return [
        _row(label, over, pairs)
        for over in (LOCAL, SHARED)
        for label, pairs in rivals(groups, over).items()
    ]


def in_ruin(run: Run, rival: Run | None) -> bool:
    """Return whether clients of a run, or of the one that it is compared with, ended without a
    finite figure, so that gains over the others flatter one of the two."""
    theirs = "shared_mean" if rival is None else "mean"
    return measures.ruined(run, scope="mean") or measures.ruined(rival or run, scope=theirs)


def _row(label: str, over: str, pairs: Sequence[tuple[Run, Run | None]]) -> GainRow:
    percent = measures.percent_of(pairs[0][0])
    per_run = [measures.gains(run, rival, least=LEAST) for run, rival in pairs]
    lost = any(in_ruin(*pair) for pair in pairs)
    share, median, worst = (
        measures.spread([nan if lost else unit * getattr(gains, kind) for gains in per_run])
        for kind, unit in (("share", 100.0), ("median", percent), ("worst", percent))
    )
    clients, left_out = (
        sum(getattr(gains, kind) for gains in per_run) / len(per_run)
        for kind in ("clients", "left_out")
    )
    return GainRow(
        label=label,
        over=over,
        share=share,
        median=median,
        worst=worst,
        clients=clients,
        left_out=left_out,
        percent=percent,
    )


def missing_local(groups: Groups) -> str | None:
    """Return what to run so that gains over local training alone are known; None where they are, or
    no clients of a simulation were evaluated."""
    evaluated = {
        k: runs
        for k, runs in groups.items()
        if any(has_clients(run, "client") and not run.deployed for run in runs)
    }
    lacking = [
        label
        for label in evaluated
        if label not in rivals(groups, LOCAL) and not all(map(_trains_alone, evaluated[label]))
    ]
    if not lacking:
        return None
    names = dict.fromkeys(_algorithm(run) for label in lacking for run in evaluated[label])
    if len(names) > 1:
        algorithms = ",".join([*names, "local_only"])
        remedy = f"motley compare FILE.toml --over algorithm={algorithms} runs it, too"
    else:
        remedy = (
            "motley run FILE.toml --set algorithm=local_only runs it, and motley report on the "
            "folder of both runs says who gained"
        )
    return (
        "who gains by federating is not known without local training alone on the same data "
        f"and seed; {remedy}"
    )
