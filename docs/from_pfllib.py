"""Make the tables of docs/beside-pfllib.md from the runs in ``benchmarks/measured/pfllib.json``."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cells import listed, table
from from_measurements import measured

__all__ = ["beside_pfllib"]

ROUNDS = (25, 50)
METHODS = ("local", "fedavg", "fedper", "fedrep", "fedbabu", "ditto", "fedala")
SHARED = ("fedavg", "fedbabu")
"""Methods of which the shared model is compared."""
POINTS = {"mnist": (0.5, 1.5), "cifar10": (1.5, 3.0)}
"""Tolerance of a difference of means, in points: of personal models, of shared ones."""
TITLES = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
SEEDS = (0, 1, 2)

Run = Mapping[str, Any]


class Means(NamedTuple):
    """Means over seeds at one round, PFLlib's first: accuracies, deviations of the clients'
    accuracies; and the tolerance."""

    accuracy: tuple[float, float]
    deviation: tuple[float, float]
    tolerance: float

    @property
    def within(self) -> bool:
        """Whether the accuracies differ by no more than the tolerance."""
        return abs(self.accuracy[1] - self.accuracy[0]) <= self.tolerance


def beside_pfllib() -> str:
    """Compare accuracies, deviations, ranks and processor seconds of all pairs of runs that are
    finished."""
    found = measured("pfllib")
    runs = {(run["data"], run["method"], run["seed"], run["side"]): run for run in found["runs"]}
    parts = [_of(data, runs) for data in TITLES if any(key[0] == data for key in runs)]
    return "\n\n".join([_whole(found["whole"]), *parts, _not_run(runs)])


def _whole(found: Sequence[Mapping[str, Any]]) -> str:
    """Return the table of the runs in which a client's part is one batch."""
    columns = {
        "data": "{title}",
        "method": "`{method}`",
        "largest distance, base": "{base:.0e}",
        "with the head": "{apart:.0e}",
        "accuracy, %: PFLlib, Motley": "{accuracy[0]:.2f}, {accuracy[1]:.2f}",
    }
    text = (
        "On whole batches, in float64 (20 rows a client, learning rate 0.05, three rounds), both "
        "sides take the same steps. The distance between a client's model there and here, over the "
        "distance that PFLlib's has moved from where it began:"
    )
    rows = [{**row, "title": TITLES[row["data"]]} for row in found]
    return f"{text}\n\n{listed(rows, columns)}"


def _of(data: str, runs: Mapping[tuple[str, str, int, str], Run]) -> str:
    """Return the table of a data set and what it says of ranks."""
    means: dict[str, dict[int, Means]] = {}
    rows = []
    for method in METHODS:
        pairs = [
            [runs.get((data, method, seed, side)) for side in ("theirs", "ours")] for seed in SEEDS
        ]
        whole = [(theirs, ours) for theirs, ours in pairs if theirs and ours]
        if not whole:
            continue
        means[method] = {at: _means(data, method, whole, at) for at in ROUNDS}
        cells = [cell for at in ROUNDS for cell in _cells(means[method][at])]
        seconds = [statistics.fmean(pair[side]["round_s"] for pair in whole) for side in (0, 1)]
        rows.append((f"`{method}`", str(len(whole)), *cells, f"{seconds[0]:.1f}, {seconds[1]:.1f}"))
    heads = [
        f"{what} at {at}" for at in ROUNDS for what in ("accuracy, %", "difference", "deviation")
    ]
    body = table(("method", "seeds", *heads, "processor s a round"), rows)
    return (
        f"{TITLES[data]}, PFLlib's figure first, then Motley's:\n\n{body}\n\n{_within(means)} "
        f"{_ranks(means)}"
    )


def _means(data: str, method: str, pairs: Sequence[tuple[Run, Run]], at: int) -> Means:
    rows = [
        [next(row for row in run["rows"] if row["round"] == at) for run in pair] for pair in pairs
    ]
    each = [[row[side]["accuracy"] for row in rows] for side in (0, 1)]
    accuracy = (statistics.fmean(each[0]), statistics.fmean(each[1]))
    deviation = (
        statistics.fmean(row[0]["deviation"] for row in rows),
        statistics.fmean(row[1]["deviation"] for row in rows),
    )
    points = POINTS[data][method in SHARED]
    if len(rows) == 1:
        return Means(accuracy, deviation, points)
    pooled = sum(statistics.variance(side) for side in each) / 2
    return Means(accuracy, deviation, max(points, 2 * (2 * pooled / len(rows)) ** 0.5))


def _cells(means: Means) -> tuple[str, str, str]:
    difference = f"{means.accuracy[1] - means.accuracy[0]:+.2f}".replace("-", "−")
    mark = "" if means.within else f", **outside {means.tolerance:.1f}**"
    accuracy, deviation = (
        f"{one[0]:.2f}, {one[1]:.2f}" for one in (means.accuracy, means.deviation)
    )
    return accuracy, difference + mark, deviation


def _within(means: Mapping[str, Mapping[int, Means]]) -> str:
    """Say how many differences lie within the tolerance."""
    each = [at.within for method in means.values() for at in method.values()]
    return f"Differences within the tolerance: {sum(each)} of {len(each)}."


def _ranks(means: Mapping[str, Mapping[int, Means]]) -> str:
    """Say which pairs of methods that PFLlib separates rank alike, and which do not."""
    said = []
    for at in ROUNDS:
        separate = 0
        other = []
        for one, two in itertools.combinations(means, 2):
            a = means[one][at]
            b = means[two][at]
            gap = a.accuracy[0] - b.accuracy[0]
            if abs(gap) > max(a.tolerance, b.tolerance):
                separate += 1
                if gap * (a.accuracy[1] - b.accuracy[1]) <= 0:
                    other.append(f"`{one}` and `{two}`")
        said.append(
            f"{separate - len(other)} of {separate} at round {at}"
            + (f" (not {', '.join(other)})" if other else "")
        )
    return (
        "Pairs of methods that PFLlib separates by more than the tolerance and that rank alike "
        f"here: {'; '.join(said)}."
    )


def _not_run(runs: Mapping[tuple[str, str, int, str], Run]) -> str:
    """Say which runs are not there."""
    missing = []
    for data, title in TITLES.items():
        for seed in SEEDS:
            open_ = [
                m
                for m in METHODS
                if any((data, m, seed, side) not in runs for side in ("theirs", "ours"))
            ]
            if open_:
                names = (
                    "all methods"
                    if len(open_) == len(METHODS)
                    else ", ".join(f"`{name}`" for name in open_)
                )
                missing.append(f"{title} seed {seed}: {names}")
    return (
        f"Runs of 50 rounds that are not there yet: {'; '.join(missing)}."
        if missing
        else "All runs of the protocol are there: two data sets, three seeds."
    )
