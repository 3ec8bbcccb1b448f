"""The figures that trackers are told: of a round as it ends, of the rounds in a run's tables, and
of a whole run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isnan

import numpy as np

from motley.experiments.trackers.tracker import Figures
from motley.results import measures
from motley.results.load import Run
from motley.rounds.run_config import RoundSummary

_COLUMNS = {"train_loss": 1.0, "accepted": 1.0, "time_s": 1.0, "total_bits": 8.0}
"""Column of ``rounds`` -> by what it is divided: trackers show bytes."""


def _known(figures: Figures) -> dict[str, float]:
    """Return the figures that are numbers, traffic under its name in bytes."""
    return {
        "traffic_bytes" if name == "total_bits" else name: value
        for name, value in figures.items()
        if not isnan(value)
    }


def round_figures(done: RoundSummary, scores: Mapping[str, float]) -> Figures:
    """Return the figures of a round; ``scores``: metric -> its value, where the model was evaluated
    in this round.

    >>> done = RoundSummary(3, 7.5, 2, 0.25, 0.5, 3, total_bits=64)
    >>> round_figures(done, {"accuracy": 0.5, "loss": float("nan")})
    {'train_loss': 0.25, 'accepted': 2.0, 'time_s': 7.5, 'traffic_bytes': 8.0, 'accuracy': 0.5}
    """
    return _known(
        {**{name: float(getattr(done, name)) / unit for name, unit in _COLUMNS.items()}, **scores}
    )


def recorded(run: Run) -> Iterator[tuple[int, Figures]]:
    """Yield each round in a run's tables and its figures, as :func:`round_figures` returned
    them."""
    names = dict.fromkeys(("loss", "accuracy", *measures.metrics_of(run)))
    curves = {name: measures.curve(run, metric=name) for name in names}
    scores: dict[int, dict[str, float]] = {}
    for name, along in curves.items():
        for at, value in zip(along.x.tolist(), along.y.tolist(), strict=True):
            scores.setdefault(int(at), {})[name] = value
    columns = [
        np.asarray(run.column("rounds", name), float) / unit for name, unit in _COLUMNS.items()
    ]
    for number, *row in zip(
        run.column("rounds", "round").tolist(),
        *(column.tolist() for column in columns),
        strict=True,
    ):
        yield number, _known({**dict(zip(_COLUMNS, row, strict=True)), **scores.get(number, {})})


def final_figures(run: Run) -> Figures:
    """Return the headline metric of a whole run: at the end, at best, stable (where the run has it)
    and for the worst tenth of the clients. Shares stay shares."""
    name, better = measures.metric_of(run)
    ends = measures.ends_of(run)
    clients = measures.client_metric(run)
    figures = {
        f"{name}_final": ends.final,
        f"{name}_peak": ends.peak,
        f"{name}_stable": ends.stable,
    }
    if len(clients):
        figures[f"{name}_worst_tenth"] = measures.fairness(clients, better).worst_decile
    return _known(figures)
