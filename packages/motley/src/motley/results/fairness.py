"""How a metric is spread over clients: mean, worst tenth, variance, groups, and what clients gain
over another model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Floats
from motley.core.errors import ConfigError
from motley.results.load import Run
from motley.results.recorded_metrics import better_of, metric_of, rows_of


@dataclass(frozen=True)
class Fairness:
    """A metric over clients: ``mean``, ``worst_decile`` and ``best_decile`` (mean of the worst and
    of the best tenth, rounded up), ``variance`` (population)."""

    mean: float
    worst_decile: float
    best_decile: float
    variance: float

    @property
    def deviation(self) -> float:
        """The standard deviation over clients (population)."""
        return float(np.sqrt(self.variance))


def client_metric(run: Run, metric: str | None = None) -> Floats:
    """Return the metric of every client [n] at the last evaluation after round 0 that has clients,
    in order of id; empty when none has."""
    return of_clients(run, metric)[1]


def figure_of_client(run: Run, client: int) -> float:
    """Return the headline of one client on its own test samples, at the last evaluation after round
    0; NaN where it has none."""
    clients, values = of_clients(run, None)
    return float(next(iter(values[clients == client]), float("nan")))


def client_values(run: Run, scope: str) -> Floats:
    """Return the headline of every client that has one in a scope, at its last evaluation after
    round 0; empty when none has."""
    return of_clients(run, None, scope)[1]


def over_samples(run: Run, metric: str | None = None) -> float:
    """Return the mean of a metric over the test samples of all clients together, at the last
    evaluation after round 0.

    Each client's figure counts by its number of test samples, so an accuracy is the correct
    predictions over all samples. NaN where no client has a figure of its own
    (``evaluate.per_client``).
    """
    rows, column = _last_rows(run, metric, "client")
    values, samples = (np.asarray(rows[name].to_numpy(), float) for name in (column, "examples"))
    finite = np.isfinite(values)
    return (
        float(np.average(values[finite], weights=samples[finite])) if finite.any() else float("nan")
    )


def has_clients(run: Run, scope: str) -> bool:
    """Return whether a run's last evaluation has rows of clients in a scope."""
    return bool(len(of_clients(run, None, scope)[0]))


def _last_rows(run: Run, metric: str | None, scope: str) -> tuple[pa.Table, str]:
    """Return the rows of the last evaluation after round 0 in a scope, and the column with the
    metric; none where there is none."""
    rows, column = rows_of(run, metric or metric_of(run)[0], scope)
    return rows.filter(
        pc.and_(pc.equal(rows["round"], pc.max(rows["round"])), pc.greater(rows["round"], 0))
    ), column


def of_clients(
    run: Run, metric: str | None = None, scope: str = "client"
) -> tuple[NDArray[np.int64], Floats]:
    """Return the clients that have a metric (the headline's by default) at the last evaluation of a
    scope, in order, and its values."""
    rows, column = _last_rows(run, metric, scope)
    values = np.asarray(rows[column].to_numpy(), float)
    clients = np.asarray(rows["client"].to_numpy(), np.int64)
    order = np.argsort(clients, kind="stable")
    return clients[order], np.asarray(values[order], float)


def by_group(run: Run, column: Literal["domain", "cluster"]) -> dict[int, float]:
    """Return the mean of clients' own metric at the last evaluation, per group of the table
    ``federation``; empty without groups."""
    clients, values = of_clients(run, None)
    kinds = np.nan_to_num(np.asarray(run.column("federation", column), float)).astype(np.int64)
    ids = np.asarray(run.column("federation", "client"), np.int64)
    order = np.argsort(ids, kind="stable")
    at = np.searchsorted(ids[order], clients)
    listed = np.append(ids[order], -1)[at] == clients
    groups = np.where(listed, np.append(kinds[order], 0)[at], 0)
    finite = np.isfinite(values)
    return {int(g): float(values[finite & (groups == g)].mean()) for g in np.unique(groups[finite])}


def fairness(values: ArrayLike, higher_is_better: bool = True) -> Fairness:
    """Return the fairness of a metric over clients; clients without a number (no test data) are
    left out."""
    finite = np.asarray(values, float)
    finite = np.sort(finite[np.isfinite(finite)])
    if not len(finite):
        return Fairness(*[float("nan")] * 4)
    tenth = -(-len(finite) // 10)
    ends = finite[:tenth], finite[-tenth:]
    worst, best = ends if higher_is_better else ends[::-1]
    return Fairness(
        mean=float(finite.mean()),
        worst_decile=float(worst.mean()),
        best_decile=float(best.mean()),
        variance=float(finite.var()),
    )


@dataclass(frozen=True)
class Gains:
    """What clients gain over another model at the last evaluation.

    Parameters
    ----------
    share: of clients that are better off; equal ones count half.
    median, worst: gain over clients; positive is better.
    clients: how many are counted.
    left_out: clients with too few test samples.
    """

    share: float
    median: float
    worst: float
    clients: int
    left_out: int


def gains(run: Run, rival: Run | None = None, metric: str | None = None, least: int = 20) -> Gains:
    """Return what the clients of a run gain over those of another run, e.g. of ``local_only``, or
    over the run's own shared model.

    Parameters
    ----------
    rival: with the same clients and test samples; None: the shared model of the run itself.
    metric: default the headline.
    least: clients with fewer test samples are left out.

    Raises
    ------
    ConfigError: the two do not have figures of the same clients (``evaluate.per_client``), or there
    is no shared model.

    Example
    -------
    ``gains(motley.load("runs/ditto"), motley.load("runs/local_only")).share``
    """
    per_client, left_out = client_gains(run, rival, metric, least)
    if not len(per_client):
        return Gains(share=np.nan, median=np.nan, worst=np.nan, clients=0, left_out=left_out)
    share = float(np.mean(per_client > 0) + np.mean(per_client == 0) / 2)
    return Gains(
        share=share,
        median=float(np.median(per_client)),
        worst=float(per_client.min()),
        clients=len(per_client),
        left_out=left_out,
    )


def client_gains(
    run: Run, rival: Run | None = None, metric: str | None = None, least: int = 20
) -> tuple[Floats, int]:
    """Return the gain of every client that counts ``[n]``, positive is better, and how many clients
    have too few test samples.

    Parameters and errors as in :func:`gains`."""
    clients, own = of_clients(run, metric)
    rival_clients, theirs = of_clients(rival or run, metric, "client" if rival else "shared_client")
    if not len(clients) or not np.array_equal(clients, rival_clients):
        compared = "its own shared model" if rival is None else "the other run"
        raise ConfigError(
            f"gains need figures of the same clients in the run and in {compared}, got "
            f"{len(clients)} and {len(rival_clients)}"
        )
    sizes = dict(
        zip(
            run.column("federation", "client").tolist(),
            run.column("federation", "num_test").tolist(),
            strict=True,
        )
    )
    enough = np.array(
        [sizes.get(k, least) == 0 or sizes.get(k, least) >= least for k in clients.tolist()], bool
    )
    higher = better_of(run, metric or metric_of(run)[0])
    gained = (own - theirs)[enough] if higher else (theirs - own)[enough]
    return np.asarray(gained[np.isfinite(gained)], float), int(np.sum(~enough))
