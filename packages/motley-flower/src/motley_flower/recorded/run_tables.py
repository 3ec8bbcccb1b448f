"""Make rows of a run's tables of what the selection knows after a round; the columns are those of
:mod:`motley.results.schema`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from motley.core.records import Outcome
from motley.rounds.rows import choice_rows, notes_text
from motley_flower.deployed.incidents import IncidentLog
from motley_flower.strategy.coordinator import SelectionCoordinator
from motley_flower.strategy.round_observer import named_metrics

_HEADLINES = ("loss", "accuracy")
_AS_REPORTED = ("num_examples", "local_steps", "compute_s", "bits_down", "bits_up")


def client_rows(coordinator: SelectionCoordinator, step: int, zero_s: float) -> dict[str, Any]:
    """Return the rows of ``clients`` of the round that was trained last. A client's whole round
    trip stands under ``compute_s``: how much of it was download and upload is not known.

    ``zero_s``: when the run began, on the coordinator's clock."""
    current = coordinator.opened
    state = coordinator.state
    reports = current.reports
    cohort = current.cohort
    scores = dict(
        zip(
            cohort.ids.tolist(),
            [] if cohort.scores is None else cohort.scores.tolist(),
            strict=False,
        )
    )
    first = state.dispatched - len(reports)
    sent_s = min((message.sent_s for message in current.sent.values()), default=math.nan)
    return {
        "round": step,
        "dispatch": list(range(first, first + len(reports))),
        "client": [report.id for report in reports],
        "outcome": [report.outcome.name.lower() for report in reports],
        "version": step - 1,
        "staleness": 0,
        "score": np.array([scores.get(report.id, math.nan) for report in reports]),
        "start_s": sent_s - zero_s,
        "loss": np.array([_scalar(report.signals, "loss", "loss_rms") for report in reports]),
        "update_norm": np.array([_scalar(report.signals, "update_norm") for report in reports]),
        **{
            name: np.array([getattr(report, name) for report in reports], float)
            for name in _AS_REPORTED
        },
    }


def noted_rows(coordinator: SelectionCoordinator, step: int) -> dict[str, Any]:
    """Return the rows of ``choices`` of the round that was trained last."""
    cohort = coordinator.opened.cohort
    reports = coordinator.opened.reports
    first = coordinator.state.dispatched - len(reports)
    dispatch = {report.id: first + place for place, report in enumerate(reports)}
    numbers = np.array([dispatch.get(client, -1) for client in cohort.ids.tolist()], np.int64)
    return {"round": step, **choice_rows(cohort, numbers)}


def incident_rows(coordinator: SelectionCoordinator, step: int, now_s: float) -> dict[str, Any]:
    """Return the rows of ``incidents`` of the round that was trained last: whose update was lost or
    rejected, which node was refused or is another client's now, and why; empty where nothing
    was."""
    log = IncidentLog(lambda: now_s)
    state = coordinator.state
    for row in state.rows_of_round():
        if row.reason:
            log.note(row.client, "rejected" if row.outcome == "rejected" else "lost", row.reason)
    for client, event, reason in coordinator.registry.places.take():
        log.note(client, event, reason)
    rows = log.take()
    return {"round": step, **rows} if rows else {}


def federation_rows(coordinator: SelectionCoordinator, clients: Iterable[int]) -> dict[str, Any]:
    """Return the rows of ``federation`` of clients that have enrolled."""
    enrolments = [coordinator.registry.enrolled[client] for client in clients]
    labels = [enrolment.signals.get("label_histogram") for enrolment in enrolments]
    return {
        "client": [enrolment.client for enrolment in enrolments],
        "num_train": np.array([enrolment.num_examples for enrolment in enrolments]),
        "held_out": 0,
        "labels": [None if counts is None else np.asarray(counts, np.int64) for counts in labels],
    }


def round_row(coordinator: SelectionCoordinator, step: int, start_s: float) -> dict[str, Any]:
    """Return the row of ``rounds`` of the round that was trained last, without what is known only
    at its end: time and traffic."""
    current = coordinator.opened
    state = coordinator.state
    accepted = [report for report in current.reports if report.outcome == Outcome.ACCEPTED]
    outcomes = [report.outcome.name.lower() for report in current.reports]
    losses, norms = (
        [_scalar(report.signals, *names) for report in accepted]
        for names in (("loss", "loss_rms"), ("update_norm",))
    )
    return {
        "round": step,
        "selections": step,
        "dispatch": state.dispatched,
        "start_s": start_s,
        "available": len(coordinator.registry.node_of),
        "probed": len(current.candidates) if coordinator.prober.learning else 0,
        "selected": len(current.reports),
        **{kind: outcomes.count(kind) for kind in ("accepted", "late", "dropped", "rejected")},
        "train_loss": _mean(losses),
        "update_norm": _mean(norms),
        "notes": notes_text(current.cohort.notes),
    }


def traffic_columns(traffic: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    """Return the columns of ``rounds`` on traffic: bits of this round by purpose, and all since the
    run began.

    Parameters
    ----------
    traffic, before: bits by purpose and direction, now and when the round before was over.
    """
    columns = {
        f"{kind}{way}_bits": traffic[f"{purpose}_bits_{way}"]
        - before.get(f"{purpose}_bits_{way}", 0.0)
        for kind, purpose in (("", "train"), ("probe_", "probe"))
        for way in ("down", "up")
    }
    up = sum(bits for name, bits in traffic.items() if name.endswith("_up"))
    return {**columns, "total_bits": sum(traffic.values()), "total_up_bits": up}


def evaluation_rows(
    metrics: Mapping[str, Any], place: Mapping[str, Any], weight_key: str | None
) -> list[tuple[str, dict[str, Any]]]:
    """Return the rows of ``evaluations`` and ``metrics`` (table, columns) of one metric record.

    Parameters
    ----------
    place: the columns that say of what it is: round, selections, time, traffic, scope, client.
    weight_key: of the number of samples.
    """
    numbers = named_metrics(metrics)
    place = {
        **place,
        "examples": math.nan if weight_key is None else numbers.pop(weight_key, math.nan),
    }
    # which is a scope of the table of metrics alone
    first = _HEADLINES if place["scope"] != "pooled" else ()
    rows: list[tuple[str, dict[str, Any]]] = []
    if numbers.keys() & set(first):
        rows.append(("evaluations", {**place, **{name: numbers.get(name) for name in first}}))
    names = [name for name in numbers if name not in first]
    if names:
        rows.append(
            (
                "metrics",
                {
                    **place,
                    "metric": names,
                    "value": [numbers[name] for name in names],
                    "undefined": 0,
                },
            )
        )
    return rows


def mean_metrics(each: Iterable[Mapping[str, Any]], weight_key: str | None) -> dict[str, float]:
    """Return the mean over clients of the single numbers that all of them report but their weight,
    each client counting alike."""
    numbers = [
        {name: value for name, value in named_metrics(metrics).items() if name != weight_key}
        for metrics in each
    ]
    names = [
        name for name in (numbers[0] if numbers else ()) if all(name in row for row in numbers)
    ]
    return {name: sum(row[name] for row in numbers) / len(numbers) for name in names}


def _scalar(signals: Mapping[str, Any], *names: str) -> float:
    return next(
        (float(signals[name]) for name in names if name in signals and not np.ndim(signals[name])),
        math.nan,
    )


def _mean(values: list[float]) -> float:
    finite = [value for value in values if not math.isnan(value)]
    return sum(finite) / len(finite) if finite else math.nan
