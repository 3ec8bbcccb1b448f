"""What clients with models of different architectures gain by exchange, beside FedAvg with the
smallest model that all can hold.

    python benchmarks/unlike_models.py run CACHE [--methods fedgh] [--seeds 0 1] [--data FOLDER]
    python benchmarks/unlike_models.py write CACHE     # then: python docs/generate.py

What has finished below CACHE is not run again.

Sixteen clients divide Fashion-MNIST by Dirichlet(.5), keep a tenth of their samples to test, and
hold four models in turn, which end in 128 features: a CNN with 3x3 kernels (421,642 weights), an
MLP of 256 and 128 (235,146), a CNN with 5x5 kernels (184,586) and an MLP of 128 (101,770). In each
of 8 rounds eight are drawn, uniformly, and take 15 steps of SGD (.05, momentum .9) on batches of
32. 2 % of the samples are public, without labels; the server keeps another 2 %, for ``feddf``.

The plan: nothing is tuned; the seeds are 0 to 4, which draw data, models and cohorts, so the
methods are paired. Figures are the accuracy of every client's model on its own test samples after
the last round: the mean over the clients and that of the worst one, and all traffic. Claim: at
least one method that exchanges something is ahead of local training in the mean over clients, its
interval over the five paired differences above 0; ``fedavg`` with the smallest model is shown
beside them, whichever is ahead. A longer plan (20 clients, 15 rounds of 20 steps) was given up
after five runs because the machine was too slow; none of them is used. For the same reason
``feddf`` takes 10 steps a round of 64 samples, where its authors take up to 10,000 of 128; that was
changed from 40 of 128 before any of its runs had ended. Then, too, the order of the methods was
changed and runs under way were ended and begun again, and ``rhfl`` was left out; it was taken back,
unchanged, once its five seeds had finished. ``fedgh`` and ``fml`` came later and run by the same
plan, with the options of their files; the common model of ``fml`` is the smallest, which four
clients hold, too. The intervals are not corrected for two more methods. Runs of before are in the
measured file alone, whose rows stay where CACHE has none.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

OUT = Path(__file__).with_name("measured") / "unlike_models.json"
SEEDS = range(5)
ROUNDS = 8
SMALLEST = {"name": "mlp", "hidden": [128]}
MODELS = [
    {"name": "cnn", "kernel": 3, "padding": 1},
    {"name": "mlp", "hidden": [256, 128]},
    "cnn",
    SMALLEST,
]
METHODS: Mapping[str, Mapping[str, Any]] = {
    "fedavg": {"name": "fedavg"},
    "local_only": {"name": "local_only"},
    "fedmd": {"name": "fedmd", "samples": 500},
    "lg_fedavg": {"name": "lg_fedavg"},
    "fedproto": {"name": "fedproto"},
    "feddf": {"name": "feddf", "steps": 10, "every": 10, "batch_size": 64},
    "rhfl": {"name": "rhfl", "mode": "kd"},
    "fedgh": {"name": "fedgh"},
    "fml": {"name": "fml"},
}
REFERENCE = "local_only"


def experiment(method: str, seed: int) -> dict[str, Any]:
    """Return the keys of a method's run; ``fedavg`` trains the smallest model alone."""
    task: dict[str, Any] = {"name": "image", "data": "fashion_mnist"}
    held: dict[str, Any] = {"models": MODELS}
    if method == "fedavg":
        task["model"], held = SMALLEST, {}
    return {
        "name": f"{method}-{seed}",
        "seed": seed,
        "population": 16,
        "cohort": 8,
        "stop": {"rounds": ROUNDS},
        "task": task,
        **held,
        "partition": {"name": "dirichlet", "alpha": 0.5},
        "split": {"test": "client", "test_fraction": 0.1, "server": 0.02},
        "public": 0.02,
        "local": {
            "steps": 15,
            "batch_size": 32,
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
        },
        "algorithm": METHODS[method],
        "engine": {"name": "sequential", "threads": 1},
        "evaluate": {"every": ROUNDS},
    }


def run(cache: Path, methods: Sequence[str], seeds: Sequence[int], data: Path | None) -> None:
    """Run what is missing, seed by seed, and write a small file for each run."""
    import motley

    cache.mkdir(parents=True, exist_ok=True)
    for seed in seeds:
        for method in methods:
            file = cache / f"{method}-{seed}.json"
            if file.exists():
                continue
            done = motley.run(experiment(method, seed), out=cache / f"{method}-{seed}", data=data)
            accuracies = done.client_table().column("accuracy").to_pylist()
            bits = done.tables["rounds"].column("total_bits").to_pylist()[-1]
            found = {"method": method, "seed": seed, "accuracy": accuracies, "bits": bits}
            file.write_text(json.dumps(found) + "\n", encoding="utf-8")
            print(method, seed, round(float(np.mean(accuracies)), 4), flush=True)


def summary(runs: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per method: accuracy in percent per seed, the mean over the clients and that of
    the worst one, and megabytes of 10^6 bytes per run."""
    rows = []
    for method in METHODS:
        own = sorted((r for r in runs if r["method"] == method), key=lambda r: r["seed"])
        if not own:
            continue
        each = [100 * np.sort(np.array(r["accuracy"], np.float64)) for r in own]
        rows.append(
            {
                "method": method,
                "seeds": [r["seed"] for r in own],
                "mean": [round(float(a.mean()), 4) for a in each],
                "worst": [round(float(a[0]), 4) for a in each],
                "megabytes": round(float(np.mean([r["bits"] for r in own])) / 8e6, 2),
            }
        )
    return rows


def write(cache: Path) -> None:
    """Write what was measured; the rows of methods of which the cache has no runs stay."""
    runs = [json.loads(file.read_text(encoding="utf-8")) for file in cache.glob("*-[0-9].json")]
    before = json.loads(OUT.read_text(encoding="utf-8"))["methods"]
    rows = {row["method"]: row for row in [*before, *summary(runs)]}
    in_order = [rows[method] for method in METHODS if method in rows]
    OUT.write_text(json.dumps({"methods": in_order}, indent=1) + "\n", encoding="utf-8")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("command", choices=("run", "write"))
    parser.add_argument("cache", type=Path)
    parser.add_argument("--seeds", nargs="+", type=int, choices=SEEDS, default=list(SEEDS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--data", type=Path, default=None)
    options = parser.parse_args()
    if options.command == "run":
        run(options.cache, options.methods, options.seeds, options.data)
    else:
        write(options.cache)


if __name__ == "__main__":
    main()
