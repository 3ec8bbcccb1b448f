"""How much of the account's bound an attack on the choice of clients finds, for eleven rules on
quadratic losses.

    python benchmarks/privacy_attack.py [--trials 40000] [--seed 0]

40 clients, 10 rounds, C = 1, z = 20, replace-one, delta = 1e-5. Writes
``benchmarks/measured/privacy_attack.json``.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import asdict
from pathlib import Path

from motley_privacy.accounting import Release, bound
from motley_privacy.likelihood_ratios import attacked, sums_alone
from motley_privacy.two_worlds import DELTA, ROWS

OUT = Path(__file__).resolve().parent / "measured" / "privacy_attack.json"


def main() -> None:
    """Attack every rule and write what was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trials", type=int, default=40_000)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    rows = []
    for worlds in ROWS:
        began = time.perf_counter()
        seen = [worlds.trials(far, asked.trials, asked.seed) for far in (False, True)]
        found = attacked(*seen, DELTA)
        alone = attacked(*map(sums_alone, seen), DELTA).epsilon
        spent = round(time.perf_counter() - began, 1)
        row = {
            **asdict(worlds),
            "bound": worlds.bound(DELTA),
            "eps_hat": found.epsilon,
            "seconds": spent,
        }
        rows.append(row if worlds.losses_seen else {**row, "eps_hat_sums": alone})
        print(rows[-1])
    naive = {
        "hidden_poisson": bound(
            (Release("poisson", 20.0, 10, population=40, rate=0.1),), DELTA, "replace_one"
        ).epsilon,
        "updates_alone": bound((Release("gaussian", 20.0, 10),), DELTA, "replace_one").epsilon,
    }
    record = {
        "trials": asked.trials,
        "seed": asked.seed,
        "delta": DELTA,
        "ceiling": found.ceiling,
        "naive": naive,
        "rows": rows,
    }
    OUT.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
