"""Trains the same experiments in float32 and in bfloat16 and compares where they end, paired by
seed.

    python benchmarks/precision_accuracy.py [OUT.json] [--runs FOLDER] [--only NAME] \\
        [--seeds N] [--report]

Six experiments (MNIST with an MLP, FEMNIST with LEAF's CNN, CIFAR-10 with a CNN of two
convolutions, each with two partitions), five seeds, two precisions: sixty runs on one thread each.
Runs lie below ``FOLDER``; finished ones are taken as they are and broken ones resumed, so the
command can be stopped and given again. ``--report``: write of the finished pairs alone, train
nothing. Then ``python docs/generate.py`` puts the table into ``docs/engines.md``.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import motley
from motley.results import measures
from motley.results.load import Run, load

OUT = Path(__file__).with_name("measured") / "precision_accuracy.json"
PRECISIONS = ("float32", "bfloat16")


def local(batch: int, lr: float, epochs: int = 1) -> dict[str, Any]:
    """Return the local work of a client."""
    return {"epochs": epochs, "batch_size": batch, "optimizer": {"name": "sgd", "lr": lr}}


MNIST = {
    "population": 100,
    "cohort": 10,
    "stop": {"rounds": 40},
    "task": {"name": "image", "data": "mnist", "model": "mlp"},
    "local": local(50, 0.1),
    "split": {"test": "global"},
    "evaluate": {"every": 2},
}
FEMNIST = {
    "cohort": 6,
    "stop": {"rounds": 30},
    "task": {"name": "image", "data": "femnist", "model": "leaf_cnn"},
    "local": local(32, 0.05, epochs=2),
    "split": {"test": "client"},
    "evaluate": {"every": 2},
}
CIFAR = {
    "population": 100,
    "cohort": 10,
    "stop": {"rounds": 24},
    "task": {"name": "image", "data": "cifar10", "model": "cnn"},
    "local": local(50, 0.05),
    "split": {"test": "global"},
    "evaluate": {"every": 2},
}
DIRICHLET = {"name": "dirichlet", "alpha": 1.0}
EXPERIMENTS: dict[str, dict[str, Any]] = {
    "MNIST, MLP, IID": {**MNIST, "partition": "iid"},
    "MNIST, MLP, Dirichlet 1": {**MNIST, "partition": DIRICHLET},
    "FEMNIST, LEAF's CNN, by writer": {**FEMNIST, "partition": "by_writer"},
    "FEMNIST, LEAF's CNN, IID": {**FEMNIST, "partition": "iid", "population": 291},
    "CIFAR-10, CNN, IID": {**CIFAR, "partition": "iid"},
    "CIFAR-10, CNN, Dirichlet 1": {**CIFAR, "partition": DIRICHLET},
}
"""Title of an experiment -> its keys."""


def folder(runs: Path, title: str, precision: str, seed: int) -> Path:
    """Return the folder of one run."""
    return runs / f"{title.replace(', ', '-').replace(' ', '_')}-{precision}-{seed}"


def train(runs: Path, seeds: Sequence[int], only: str) -> None:
    """Run what is not finished; one seed of everything before the next."""
    for seed in seeds:
        for title, keys in EXPERIMENTS.items():
            for precision in PRECISIONS:
                if only.lower() not in title.lower():
                    continue
                given = {
                    **keys,
                    "name": "precision",
                    "seed": seed,
                    "precision": precision,
                    "engine": {"name": "auto", "threads": 1},
                }
                motley.run(
                    given, out=folder(runs, title, precision, seed), resume=True, progress=False
                )


def finished(runs: Path, title: str, seed: int) -> dict[str, Run] | None:
    """Return the two runs of a seed; None unless both are finished."""
    found = {name: folder(runs, title, name, seed) for name in PRECISIONS}
    if not all((one / "run.json").is_file() for one in found.values()):
        return None
    pair = {name: load(one) for name, one in found.items()}
    return pair if all(run.finished for run in pair.values()) else None


def row(title: str, pairs: Mapping[int, Mapping[str, Run]]) -> dict[str, Any]:
    """Return an experiment's means in percent, the mean difference in points and its paired 95 %
    interval."""
    ends = {
        name: [100 * measures.ends_of(pair[name]).stable for pair in pairs.values()]
        for name in PRECISIONS
    }
    gap = measures.paired(ends["bfloat16"], ends["float32"])
    return {
        "experiment": title,
        "seeds": sorted(pairs),
        **ends,
        "difference": gap.mean,
        "interval": [gap.low, gap.high],
    }


def report(runs: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Return the rows of the experiments with at least two finished pairs, and under which numerics
    they were run."""
    rows = []
    numerics = {}
    for title in EXPERIMENTS:
        pairs = {seed: pair for seed in seeds if (pair := finished(runs, title, seed)) is not None}
        if len(pairs) > 1:
            rows.append(row(title, pairs))
            numerics = {
                name: next(iter(pairs.values()))["bfloat16"].meta["numerics"][name]
                for name in ("torch", "products")
            }
    return {**numerics, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description="Accuracy in float32 and bfloat16")
    parser.add_argument("out", nargs="?", default=OUT, type=Path)
    parser.add_argument("--runs", default=Path("runs/precision"), type=Path)
    parser.add_argument("--only", default="", help="experiments whose title contains this")
    parser.add_argument("--seeds", default=5, type=int)
    parser.add_argument(
        "--report", action="store_true", help="write of what is finished, train nothing"
    )
    options = parser.parse_args()
    if not options.report:
        train(options.runs, range(options.seeds), options.only)
    options.out.write_text(json.dumps(report(options.runs, range(options.seeds)), indent=2) + "\n")


if __name__ == "__main__":
    main()
