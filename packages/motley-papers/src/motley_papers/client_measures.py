"""Measures of who takes part in a run, and of what it makes of clients that are slow, seldom there
or of another kind."""

from __future__ import annotations

from collections.abc import Callable
from math import isfinite

import numpy as np

from motley.core.arrays import Bools
from motley.experiments.registry import fine_tuning
from motley.results import measures
from motley.results.fairness import figure_of_client
from motley.results.load import Run
from motley.results.measures import Censored

Quarter = Callable[[Run], Bools]
_NAN = float("nan")
_APART = 10
_TOO_MUCH = 1.0
"""FedProx's appendix calls a run divergent whose loss is more than 1 above that of ten rounds
before."""


def _value(value: float) -> Censored:
    return Censored(float(value), True)


def test_loss(run: Run, target: float | None) -> Censored:
    """Return the test loss at the end."""
    return _value(measures.ends_of(run, "loss").final)


def loss_rise(run: Run, target: float | None) -> Censored:
    """Return by how much the test loss ever was above its best value until then."""
    losses = measures.curve(run, metric="loss").y
    return _value(np.max(losses - np.minimum.accumulate(losses)) if len(losses) else _NAN)


def diverged(run: Run, target: float | None) -> Censored:
    """Return 1 if the test loss ever was more than 1 above that of ten rounds before, or the run
    ended early; else 0."""
    losses = measures.curve(run, metric="loss")
    before = measures.stepwise(losses, losses.x - _APART)
    planned = (run.config.get("stop") or {}).get("rounds")
    lost = not len(losses.x) or (planned is not None and losses.x[-1] < planned)
    return _value(float(lost or bool((losses.y - before > _TOO_MUCH).any())))


def _quarter(values: np.ndarray, highest: bool) -> Bools:
    """Return the quarter of the clients with the highest or lowest values, rounded up; ties by
    id."""
    order = np.argsort(-values if highest else values, kind="stable")
    chosen = np.zeros(len(values), bool)
    chosen[order[: -(-len(values) // 4)]] = True
    return chosen


def slow(run: Run) -> Bools:
    """Return the quarter of the clients with the longest steps."""
    return _quarter(np.asarray(run.column("federation", "step_s"), float), highest=True)


def seldom(run: Run) -> Bools:
    """Return the quarter of the clients that took part least."""
    return _quarter(measures.participation(run).counts.astype(float), highest=False)


def share_of(quarter: Quarter, run: Run, target: float | None) -> Censored:
    """Return the share, in percent, of accepted updates that came from a quarter of the clients."""
    chosen = quarter(run)
    counts = measures.participation(run).counts
    if len(counts) != len(chosen) or not counts.sum():
        return _value(_NAN)
    return _value(100.0 * counts[chosen].sum() / counts.sum())


def metric_of(quarter: Quarter, run: Run, target: float | None) -> Censored:
    """Return the mean of the clients' own metric over a quarter of them."""
    return _value(_mean(run, quarter(run)))


def gap_of(quarter: Quarter, run: Run, target: float | None) -> Censored:
    """Return by how much a quarter's own metric lies below that of all other clients."""
    chosen = quarter(run)
    return _value(_mean(run, ~chosen) - _mean(run, chosen))


def _mean(run: Run, chosen: Bools) -> float:
    """Return the mean of the own metric of some clients; NaN where none has one."""
    each = measures.client_metric(run)
    finite = each[chosen] if len(each) == len(chosen) else np.empty(0)
    finite = finite[np.isfinite(finite)]
    return float(measures.percent_of(run) * finite.mean() if len(finite) else _NAN)


def domain_metric(name: str, run: Run, target: float | None) -> Censored:
    """Return the mean of the clients' own metric over the clients of one named appearance; NaN
    where there are none."""
    names = list((run.config.get("feature_shift") or {}).get("names") or [])
    by_domain = measures.by_group(run, "domain") if name in names else {}
    return _value(
        measures.percent_of(run) * by_domain.get(names.index(name), _NAN) if by_domain else _NAN
    )


def of_client(client: int, run: Run, target: float | None) -> Censored:
    """Return the figure of one client on its own test samples at the end; NaN where it has none."""
    return _value(measures.percent_of(run) * figure_of_client(run, client))


def stale(run: Run, target: float | None) -> Censored:
    """Return the mean staleness of accepted updates: server steps between a client's download and
    the use of its update."""
    used = run.column("clients", "outcome") == "accepted"
    values = np.asarray(run.column("clients", "staleness"), float)[used]
    return _value(np.nanmean(values) if np.isfinite(values).any() else _NAN)


def idle(run: Run, target: float | None) -> Censored:
    """Return the share, in percent, of the cohort's virtual time in which places were not taken by
    a client at work.

    A place is one of the cohort's m; its client is at work while it downloads, computes or uploads.
    Clients under way when the run ends are not counted, so the share of an asynchronous run is a
    little too high.
    """
    busy = sum(
        float(np.nansum(np.asarray(run.column("clients", f"{part}_s"), float)))
        for part in ("download", "compute", "upload")
    )
    places = run.config.get("cohort") or round(
        float(run.config.get("participation") or _NAN) * run.tables["federation"].num_rows
    )
    spent = float(places) * measures.costs(run).time_s
    return _value(100.0 * (1.0 - busy / spent) if isfinite(spent) and spent > 0 else _NAN)


def state_mb(run: Run, target: float | None) -> Censored:
    """Return what a client keeps between rounds, in units of 10^6 bytes; NaN in records that do not
    tell."""
    state_bytes = run.meta.get("client_state_bytes")
    return _value(_NAN if state_bytes is None else float(state_bytes) / 1e6)


def tuning_s(run: Run) -> float:
    """Return the virtual seconds of the slowest client's fine-tuning before it uses the model; 0
    for a method without fine-tuning."""
    tuning = fine_tuning(run.config.get("algorithm") or "fedavg")
    if tuning is None:
        return 0.0
    samples, batch, step_s = (
        np.asarray(run.column("federation", name), float)
        for name in ("num_train", "batch_size", "step_s")
    )
    batches = np.ceil(samples / batch)
    return float(np.max(step_s * np.where(batches > 0, batches * tuning.epochs + tuning.steps, 0)))
