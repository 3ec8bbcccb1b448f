"""The tables of docs/choosing-clients.md: who is chosen, and what the model becomes, when clients
lie; with and without a defence.

    MOTLEY_DATA=... python benchmarks/liars.py [--only oort,ucb1] [--seeds 0,1,2] [OUT.json]

A small federation, so that 23 rules in all conditions take minutes: 4,000 images of MNIST among 40
clients (Dirichlet 0.3, sizes and speeds differ), 4 a round, 30 rounds of an MLP. Every finished run
is written to OUT.json at once; what is there already is not run again. The same clients lie in all
runs of a seed and share: exactly a tenth, or three tenths.

``constant``: everything a client can lie about, 1e308 (seconds: 1e-308); its training is honest,
though weighed by the claimed size.
``coalition``: everything, at the 0.95 quantile of what honest clients say; and the liars upload
their update with its sign flipped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from motley.core.keys import Streams
from motley.experiments.build import build
from motley.selectors import CATALOGUE
from motley.world.failures import Corrupted

OUT = Path(__file__).with_name("measured") / "liars.json"
CLIENTS = 40
COHORT = 4
ROUNDS = 30
SAMPLES = 4_000
TESTS = 1_000
SHARES = (0.1, 0.3)
STRATEGIES = ("constant", "coalition")
OPTIONS: dict[str, dict[str, Any]] = {
    "fedcor": {"warmup": 3},
    "fedcvr_bolt": {"warm_up": 3},
    "fedcs": {"deadline": 20.0},
}
BASE: dict[str, Any] = {
    "population": CLIENTS,
    "cohort": COHORT,
    "stop": {"rounds": ROUNDS},
    "split": {"test": "global", "validation": 0.2},
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "algorithm": "fedavg",
    "evaluate": {"every": 5, "per_client": False},
    "local": {"epochs": 2, "batch_size": 40, "optimizer": {"name": "sgd", "lr": 0.1}},
    "device": {"name": "uniform", "low": 0.1, "high": 0.5},
    "network": {"name": "uniform", "up_mbps": [1.0, 5.0]},
    "engine": {"threads": 1},
}


def small_mnist(folder: Path) -> str:
    """Write some samples of MNIST, from the folder of data packs, as a data set of its own; return
    its path."""
    rng = np.random.default_rng(0)
    some = {}
    with np.load(Path(os.environ["MOTLEY_DATA"]) / "mnist.npz") as pack:
        for part, count in (("train", SAMPLES), ("test", TESTS)):
            rows = np.sort(rng.permutation(len(pack[f"y_{part}"]))[:count])
            some |= {f"{array}_{part}": pack[f"{array}_{part}"][rows] for array in "xy"}
    np.savez(folder / "small.npz", **some)
    return str(folder / "small.npz")


def pinned(seed: int, share: float) -> int:
    """The first seed of failures for which exactly this share of the clients is drawn."""
    wanted = round(share * CLIENTS)
    draw = Corrupted(share)
    return next(
        pin
        for pin in range(1000 * seed, 1000 * seed + 1000)
        if draw.corrupted(Streams(seed, {"fail": pin}).key("fail"), np.arange(CLIENTS)).sum()
        == wanted
    )


def cases(rules: list[str], seeds: list[int]) -> Iterator[dict[str, Any]]:
    """Every run, seed by seed."""
    for seed in seeds:
        for strategy in ("honest", *STRATEGIES):
            for share in SHARES if strategy != "honest" else (0.0,):
                for rule in rules:
                    for defence in ("off", "on"):
                        yield {
                            "rule": rule,
                            "strategy": strategy,
                            "share": share,
                            "defence": defence,
                            "seed": seed,
                        }


def keys_of(case: dict[str, Any], data: str) -> dict[str, Any]:
    """The experiment of one case."""
    selector = {"name": case["rule"], **OPTIONS.get(case["rule"], {})}
    keys = BASE | {
        "task": {
            "name": "image",
            "data": data,
            "model": {"name": "mlp", "hidden": [32]},
            "scale": "unit",
        },
        "seed": case["seed"],
    }
    keys |= {"selector": selector, "defence": case["defence"]}
    if case["strategy"] != "honest":
        keys |= {
            "dishonest": {"name": case["strategy"], "share": case["share"]},
            "pin": {"fail": pinned(case["seed"], case["share"])},
        }
    if case["strategy"] == "coalition":
        keys["failures"] = {"name": "corrupted", "share": case["share"]}
    return keys


class Tally:
    """A writer that counts the liars among the chosen and keeps the accuracies."""

    def __init__(self) -> None:
        self.liars = self.chosen = 0.0
        self.accuracies: list[float] = []

    def add(self, table: str, columns: dict[str, Any]) -> None:
        """Take in rows of one table."""
        if table == "rounds":
            self.liars += json.loads(columns["notes"] or "{}").get("liars", 0.0)
            self.chosen += columns["selected"]
        elif table == "evaluations" and "global" in columns["scope"]:
            row = list(columns["scope"]).index("global")
            self.accuracies.append(float(np.asarray(columns["accuracy"])[row]))


def measure(case: dict[str, Any], data: str) -> dict[str, Any]:
    """Run one case."""
    began = time.process_time()
    tally = Tally()
    loop = build(keys_of(case, data), writer=tally)  # type: ignore[arg-type]
    while not loop.done:
        loop.step()
    end = statistics.mean(tally.accuracies[-3:])
    picks = tally.liars / max(tally.chosen, 1.0)
    return {
        **case,
        "picks": round(picks, 4),
        "accuracy": round(end, 4),
        "cpu_s": round(time.process_time() - began, 2),
    }


def main() -> None:
    """Run what is missing and write the JSON after every run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument(
        "--only", default=",".join(sorted(CATALOGUE.builtin)), help="rules, separated by commas"
    )
    parser.add_argument("--seeds", default="0,1,2", help="seeds, separated by commas")
    args = parser.parse_args()
    torch.set_num_threads(1)
    found = json.loads(args.out.read_text(encoding="utf-8"))["runs"] if args.out.is_file() else []
    done = {
        tuple(row[name] for name in ("rule", "strategy", "share", "defence", "seed"))
        for row in found
    }
    with tempfile.TemporaryDirectory() as folder:
        data = small_mnist(Path(folder))
        for case in cases(args.only.split(","), [int(seed) for seed in args.seeds.split(",")]):
            if tuple(case.values()) in done:
                continue
            found.append(measure(case, data))
            print(json.dumps(found[-1]), flush=True)
            about = {
                "clients": CLIENTS,
                "cohort": COHORT,
                "rounds": ROUNDS,
                "samples": SAMPLES,
                "torch": torch.__version__,
            }
            fresh = args.out.with_suffix(".new")
            rows = ",\n".join(map(json.dumps, found))
            fresh.write_text(
                f'{json.dumps(about)[:-1]}, "runs": [\n{rows}\n]}}\n', encoding="utf-8"
            )
            os.replace(fresh, args.out)


if __name__ == "__main__":
    main()
