"""How good the estimates of motley_advice.heterogeneity are: truth and estimate of known worlds;
the time for 10^5 clients.

    python benchmarks/inspect_truth.py [--data digits|mnist|...] [--clients 30] \\
        [--seeds 0,1,2] [--only concepts]
    python benchmarks/inspect_truth.py --large 100000
    python benchmarks/inspect_truth.py --kinds 20

The first prints one line per world: true and estimated label noise, its deviation over clients,
concept shift (share of samples that two random clients call differently), domains, and the
estimated label divergence and feature shift, which have no true value. The second builds so many
clients with 20 samples of 64 numbers each, and says how long everything took and how much memory.
The third writes ``docs/inspect-kinds.csv``: of so many drawn tables of each kind, in how many what
was planted is told, and in how many something else is: a client that is not odd, a column in which
clients do not differ, a rate of wrong labels that all clients have.
"""

from __future__ import annotations

import argparse
import csv
import resource
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.keys import Key, Streams
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.tasks.task import Task
from motley.world.shift.concept_shift import ClassSwap
from motley_advice.heterogeneity.measure import measure, measure_arrays

SKEW = {"partition": {"name": "dirichlet", "alpha": 0.3}}
DOMAINS = {"feature_shift": {"name": "domains"}}
HALF = {"label_noise": {"name": "pair_flip", "rate": 0.4, "share": 0.5}}
SWAP = {"concept_shift": {"name": "swap", "clusters": 2, "share": 0.5}}
WORLDS: dict[str, dict[str, Any]] = {
    "IID": {},
    "Dirichlet 1": {"partition": {"name": "dirichlet", "alpha": 1.0}},
    "Dirichlet 0.3": SKEW,
    "Dirichlet 0.1": {"partition": {"name": "dirichlet", "alpha": 0.1}},
    "symmetric noise 0.2": {"label_noise": {"name": "symmetric", "rate": 0.2}},
    "pair flips 0.4": {"label_noise": {"name": "pair_flip", "rate": 0.4}},
    "pair flips 0.4 at half of the clients": HALF,
    "the same, Dirichlet 0.3": {**HALF, **SKEW},
    "four domains": DOMAINS,
    "four domains, Dirichlet 0.3": {**DOMAINS, **SKEW},
    "pixel noise up to 0.1": {"feature_shift": {"name": "noise", "sigma": 0.1}},
    "pixel noise up to 0.3": {"feature_shift": {"name": "noise", "sigma": 0.3}},
    "two concepts": SWAP,
    "four concepts": {"concept_shift": {"name": "swap", "clusters": 4, "share": 0.6}},
    "two concepts, Dirichlet 0.3": {**SWAP, **SKEW},
    "two concepts, symmetric noise 0.2": {
        **SWAP,
        "label_noise": {"name": "symmetric", "rate": 0.2},
    },
    "two concepts, four domains": {**SWAP, **DOMAINS},
}


def world(data: str, clients: int, seed: int, parts: Mapping[str, Any]) -> Task:
    keys = {"partition": "iid", "population": clients, "cohort": 2, "stop": {"rounds": 1}, **parts}
    return task_of(
        Experiment(task={"name": "image", "data": data, "model": "mlp"}, seed=seed, **keys)
    )


def true_concept_shift(task: Task, parts: Mapping[str, Any], seed: int) -> float:
    """Return the share of samples that two random clients call differently."""
    shift = parts.get("concept_shift")
    if shift is None:
        return 0.0
    key = Streams(seed).key("shift").fold("concept")
    tables = ClassSwap(shift["clusters"], shift["share"]).tables(key, task.federation.classes or 0)
    cluster = task.federation.cluster
    return float((tables[:, None] != tables[None]).mean(axis=2)[cluster][:, cluster].mean())


def line(name: str, data: str, clients: int, seeds: list[int]) -> str:
    rows = []
    for seed in seeds:
        task = world(data, clients, seed, WORLDS[name])
        found = measure(task, Key(seed))
        noise = task.federation.noise
        pairs = (
            (noise.mean(), "label_noise"),
            (noise.std(), "label_noise_spread"),
            (true_concept_shift(task, WORLDS[name], seed), "concept_shift"),
            (len(np.unique(task.federation.domain)), "domains"),
        )
        rows.append(
            [x for truth, about in pairs for x in (truth, found[about].value)]
            + [found[about].value for about in ("label_divergence", "feature_shift")]
        )
    mean = np.mean(rows, axis=0)
    cells = [f"{mean[i]:.2f} / {mean[i + 1]:.2f}" for i in range(0, 8, 2)] + [
        f"{one:.2f}" for one in mean[8:]
    ]
    return f"| {name} | " + " | ".join(cells) + " |"


KINDS_CSV = Path(__file__).parents[1] / "docs" / "inspect-kinds.csv"


@dataclass
class DrawnTable:
    """Six normal columns around a centre of each class, ten equal clients of 120 rows; and what is
    to be told of them.

    Parameters
    ----------
    odd: kind, client and columns of outlying clients. columns: in which clients differ. differ:
    whether clients differ in how hard or wrong their labels are.
    """

    draw: np.random.Generator
    classes: int = 3
    apart: float = 3.0
    clients: int = 10
    size: int = 120
    odd: set[tuple[str, int, tuple[str, ...]]] = field(default_factory=set)
    columns: set[str] = field(default_factory=set)
    differ: bool = False

    def __post_init__(self) -> None:
        self.owner = np.repeat(np.arange(self.clients), self.size)
        self.y = self.draw.integers(self.classes, size=len(self.owner))
        centre = self.apart * self.draw.normal(size=(self.classes, 6))
        self.x = 10 + self.draw.normal(size=(len(self.owner), 6)) + centre[self.y]

    def rows(self, client: int) -> NDArray[np.int64]:
        """Return a client's rows in random order."""
        return np.asarray(self.draw.permutation(np.flatnonzero(self.owner == client)))

    def told(self, seed: int) -> tuple[bool, bool]:
        """Return whether all that is planted is told, and whether anything else is."""
        found = measure_arrays(self.x, self.y, self.owner, Key(seed))
        odd = {(one.kind, one.client, one.columns) for one in found.outlying}
        columns = {one.column for one in found.columns}
        differ = bool(found.differences()["label_noise"] >= 0.1)
        right = self.odd <= odd and self.columns <= columns and differ >= self.differ
        return right, bool(odd - self.odd or columns - self.columns or differ > self.differ)


def copied(draw: np.random.Generator, holders: int = 3, clients: int = 10) -> DrawnTable:
    one = DrawnTable(draw, clients=clients)
    whose = draw.permutation(clients)[:holders].tolist()
    source = one.rows(whose[0])[:100]
    for client in whose[1:]:
        at = one.rows(client)[:100]
        one.x[at], one.y[at] = one.x[source], one.y[source]
    one.odd = {("copied data", client, ()) for client in whose}
    return one


def repeated(draw: np.random.Generator) -> DrawnTable:
    one = DrawnTable(draw)
    for client in draw.permutation(10)[:4].tolist():
        at = one.rows(client)
        one.x[at[:40]], one.y[at[:40]] = one.x[at[40:80]], one.y[at[40:80]]
        one.odd.add(("copied data", client, ()))
    return one


def few_values(draw: np.random.Generator) -> DrawnTable:
    one = DrawnTable(draw)
    one.x = draw.integers(3, size=one.x.shape).astype(float)
    return one


def hard(draw: np.random.Generator) -> DrawnTable:
    one = DrawnTable(draw, classes=2)
    one.x = draw.normal(size=one.x.shape)
    one.y = (draw.random(len(one.x)) < 1 / (1 + np.exp(-one.x[:, 0]))).astype(np.int64)
    return one


def wrong(draw: np.random.Generator, clients: int, rate: float) -> DrawnTable:
    one = DrawnTable(draw, classes=2, differ=clients < 10)
    flipped = (draw.random(len(one.y)) < rate) & (one.owner < clients)
    one.y = np.where(flipped, 1 - one.y, one.y)
    return one


def units(draw: np.random.Generator, number: int) -> DrawnTable:
    one = DrawnTable(draw)
    columns = np.sort(draw.permutation(6)[:number])
    one.x[np.ix_(one.owner == 6, columns)] *= 100
    one.odd = {("units", 6, tuple(f"column {j}" for j in columns.tolist()))}
    return one


def swapped(draw: np.random.Generator, number: int) -> DrawnTable:
    one = DrawnTable(draw, classes=2)
    at = one.rows(6)[:number]
    one.y[at] = 1 - one.y[at]
    one.odd = {("random labels" if number < 60 else "swapped labels", 6, ())}
    return one


def growing(draw: np.random.Generator, columns: int, spread: bool = False) -> DrawnTable:
    one = DrawnTable(draw)
    part = (draw.permutation(10) / 9)[one.owner]
    for j in draw.permutation(6)[:columns].tolist():
        column = one.x[:, j]
        middle = column.mean()
        one.x[:, j] = (
            middle + (column - middle) * np.exp(1.5 * part)
            if spread
            else column + 2 * part * column.std()
        )
        one.columns.add(f"column {j}")
    return one


def half_in_other_units(draw: np.random.Generator) -> DrawnTable:
    one = DrawnTable(draw, columns={"column 3"})
    one.x[one.owner % 2 == 0, 3] *= 30
    return one


KINDS: dict[str, Callable[[np.random.Generator], DrawnTable]] = {
    "clean": DrawnTable,
    "clean, samples of few values": few_values,
    "clean, labels hard to predict": hard,
    "a fifth of all labels wrong at all clients": lambda draw: wrong(draw, 10, 0.2),
    "40 % of labels wrong at half of the clients": lambda draw: wrong(draw, 5, 0.4),
    "100 of 120 rows also at two others": copied,
    "the same at both of two clients": lambda draw: copied(draw, 2, 2),
    "the same at all of ten clients": lambda draw: copied(draw, 10),
    "40 of 120 rows twice at four clients": repeated,
    "two columns of a client in other units": lambda draw: units(draw, 2),
    "five columns of a client in other units": lambda draw: units(draw, 5),
    "labels swapped in 36 of 120 rows": lambda draw: swapped(draw, 36),
    "labels swapped in all rows of a client": lambda draw: swapped(draw, 120),
    "a column that grows over clients": lambda draw: growing(draw, 1),
    "two columns that grow over clients": lambda draw: growing(draw, 2),
    "a column whose spread grows over clients": lambda draw: growing(draw, 1, spread=True),
    "a column in other units at half of the clients": half_in_other_units,
}
"""Drawn tables with something planted, or nothing."""


def kinds(seeds: int) -> None:
    rows = []
    for at, (name, make) in enumerate(KINDS.items()):
        tables = [make(np.random.default_rng([seed, at, 74])) for seed in range(seeds)]
        told = [one.told(seed) for seed, one in enumerate(tables)]
        right, more = (sum(each) for each in zip(*told, strict=True))
        planted = any(one.odd or one.columns or one.differ for one in tables)
        rows.append((name, seeds, right if planted else "-", more))
        print(rows[-1], flush=True)
    with KINDS_CSV.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(("planted", "tables", "told", "something else told"))
        writer.writerows(rows)


def large(clients: int) -> None:
    rng = Key(0).fold("large").numpy()
    x = rng.standard_normal((20 * clients, 64), dtype=np.float32)
    centre = rng.standard_normal((10, 64), dtype=np.float32)
    y = rng.integers(10, size=len(x))
    x += centre[y]
    begin = time.perf_counter()
    found = measure_arrays(x, y, np.repeat(np.arange(clients), 20), Key(0))
    seconds = time.perf_counter() - begin
    held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{clients} clients, {len(x)} samples of 64 numbers ({x.nbytes / 2**30:.2f} GiB): "
        f"{seconds:.1f} s, {held:.2f} GiB at most"
    )
    print(
        ", ".join(
            f"{name} {value:.3f}" for name, value in found.profile().items() if not np.isnan(value)
        )
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", default="digits")
    parser.add_argument("--clients", type=int, default=30)
    parser.add_argument("--seeds", default="0,1,2")
    parser.add_argument("--only", default="", help="worlds whose names have these words")
    parser.add_argument("--large", type=int)
    parser.add_argument("--kinds", type=int, help="drawn tables of each kind")
    options = parser.parse_args()
    if options.kinds:
        kinds(options.kinds)
        return
    if options.large:
        large(options.large)
        return
    print(
        "| world | label noise, true / estimated | its deviation | concept shift | domains | label "
        "divergence | feature shift |"
    )
    print("| --- |" + " --- |" * 6)
    for name in (name for name in WORLDS if options.only in name):
        print(
            line(
                name, options.data, options.clients, [int(one) for one in options.seeds.split(",")]
            ),
            flush=True,
        )


if __name__ == "__main__":
    main()
