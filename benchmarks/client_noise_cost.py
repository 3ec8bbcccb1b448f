"""What it costs in accuracy that clients add the noise, and the server is not trusted.

    python benchmarks/client_noise_cost.py [--data DIR] [--seeds 0 1 2]

examples/private.toml under uniform cohorts, half as long (MNIST, 500 clients, 100 a round, 30
rounds, at most 8 sums of a client), at the same epsilon: noise by the server, by clients without
colluders, and with 33 of them. Accuracy is the mean of the last three evaluations. Writes
``benchmarks/measured/client_noise_cost.json``.
"""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

from motley.experiments.build import build
from motley.experiments.config import Experiment

HERE = Path(__file__).resolve().parent
OUT = HERE / "measured" / "client_noise_cost.json"
WHO: dict[str, dict[str, Any]] = {
    "server": {},
    "clients, no colluders": {"noise_by": "clients", "colluders": 0},
    "clients, 33 colluders": {"noise_by": "clients", "colluders": 33},
}


def measured(epsilon: float, who: str, seeds: list[int], data: Path | None) -> dict[str, Any]:
    keys = tomllib.loads((HERE.parent / "examples" / "private.toml").read_text())
    keys.pop("grid")
    keys["privacy"] |= {"epsilon": epsilon, "max_rounds": 8, **WHO[who]}
    keys["stop"] = {"rounds": 30}
    scores = []
    plan = None
    for seed in seeds:
        loop = build(Experiment(**{**keys, "seed": seed, "selector": "uniform"}), data)
        while not loop.done:
            loop.step()
        scores.append(
            np.mean([score["accuracy"] for score in loop.state.scores.evaluated[-3:]]) * 100
        )
        plan = loop.config.privacy
    record = plan.record(seeded=True)  # type: ignore[union-attr]
    return {
        "epsilon": epsilon,
        "noise_by": who,
        "accuracy": float(np.mean(scores)),
        "deviation": float(np.std(scores, ddof=1)) if len(scores) > 1 else None,
        "noise_multiplier": record["noise_multiplier"],
        "of_a_full_sum": record.get("full_multiplier", record["noise_multiplier"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    given = parser.parse_args()
    rows = []
    for epsilon in (8.0, 2.0):
        for who in WHO:
            rows.append(measured(epsilon, who, given.seeds, given.data))
            print(json.dumps(rows[-1]), flush=True)
    OUT.write_text(json.dumps({"seeds": given.seeds, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
