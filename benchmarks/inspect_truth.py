"""How good the estimates of motley.heterogeneity are: truth and estimate of known worlds; the time
for 10^5 clients.

    python benchmarks/inspect_truth.py [--data digits|mnist|...] [--clients 30] \\
        [--seeds 0,1,2] [--only concepts]
    python benchmarks/inspect_truth.py --large 100000

The first prints one line per world: true and estimated label noise, its deviation over clients,
concept shift (share of samples that two random clients call differently), domains, and the
estimated label divergence and feature shift, which have no true value. The second builds so many
clients with 20 samples of 64 numbers each, and says how long everything took and how much memory.
"""

from __future__ import annotations

import argparse
import resource
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from motley.core.keys import Key, Streams
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.heterogeneity.measure import measure, measure_arrays
from motley.tasks.task import Task
from motley.world.shift.concept_shift import ClassSwap

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
    options = parser.parse_args()
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
