"""Time and memory of one select + observe, for every rule and K = 10^3 .. 10^6 clients, m = 100.

    python benchmarks/selection.py [--only oort,flash] [--sizes 1000,10000] [OUT.json]

Every (rule, K) runs in a process of its own. A made-up federation reports in columns whatever the
rule's ``needs()`` names; making these reports is not timed, and neither is what a probe would cost
the clients. The first rounds (cold starts, pilots) are left out: *steady* is the median of the
rounds after them, *first* the slowest of them. *peak* is what select + observe allocate at most on
top of the state, *rss* the most that was resident; *state* is what ``to_bytes`` would write, per
client.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np

M = 100
SIZES = (1_000, 10_000, 100_000, 1_000_000)
HORIZON = 400
WIDTH = {
    "label_histogram": 10,
    "sketch": 64,
    "gradient_sketch": 256,
    "gradient": 256,
    "last_layer": 300,
}
LIMIT_S = 240.0

# What is quadratic, or holds a vector per client, is asked for up to the size it is meant for.
LARGEST = {
    "divfl": 3_550,
    "fedcg": 3_550,
    "fedcor": 3_550,
    "fedcvr_bolt": 10_000,
    "fedcbs": 100_000,
    "fedstas": 10_000,
    "delta": 100_000,
    "neural_bandit": 100_000,
}
OPTIONS: dict[str, list[dict[str, Any]]] = {
    "adasample": [{}],
    "fedcor": [{"warmup": 3}],
    "fedcs": [{"deadline": 1e3}],
    # 200 rounds: older innovations folded, and all of them kept
    "fedcvr_bolt": [{}, {"memory_mb": 3000.0}],
    "hetero_select": [{"direction": "cosine"}, {"direction": "sketch"}],
    "hetero_select_v1": [{}, {"probe": "last_report"}],
    "power_of_choice": [{}, {"variant": "rpow_d"}],
}
WARM = {"fedcvr_bolt": 200, "fedcor": 6, "adasample": 4}


def values(name: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """One column of one signal, ``[n]`` or ``[n, d]``."""
    if name in WIDTH:
        width = WIDTH[name]
        return (
            rng.integers(0, 50, (n, width)).astype(float)
            if name == "label_histogram"
            else rng.normal(size=(n, width))
        )
    if name == "num_examples":
        return rng.integers(10, 500, n).astype(float)
    if name == "cosine":
        return rng.uniform(-1.0, 1.0, n)
    return rng.lognormal(size=n)


def measure(record: dict[str, Any], clients: int, rounds: int) -> dict[str, float]:
    """Seconds and bytes of one rule at one size."""
    from motley.core.records import Outcome, Reports
    from motley.selectors import build

    rng = np.random.default_rng(0)
    selector = build(record, seed=0, horizon=HORIZON)
    ids = np.arange(clients)
    needs = selector.rule.needs()
    enrolled = {
        name: np.broadcast_to(values(name, 1, rng), (clients, WIDTH[name]))
        if name == "last_layer"
        else values(name, clients, rng)
        for name in needs.enrolled
    }
    selector.observe(
        0,
        Reports(
            ids,
            np.int8(Outcome.ENROLLED),
            num_examples=values("num_examples", clients, rng),
            signals=enrolled,
        ),
    )

    def one(number: int) -> float:
        """Seconds of the rule in one whole round."""
        spent = -time.perf_counter()
        asked = selector.probe(number, ids, M)
        spent += time.perf_counter()
        parts = []
        if len(asked):
            measured = {name: values(name, len(asked), rng) for name in needs.probed}
            probed = Reports(asked, np.int8(Outcome.PROBED), signals=measured)
            parts.append(probed)
        spent -= time.perf_counter()
        for part in parts:
            selector.observe(number, part)
        cohort = selector.select(number, ids, M)
        spent += time.perf_counter()
        chosen = np.sort(cohort.ids)
        n = len(chosen)
        back = Reports(
            chosen,
            np.int8(Outcome.REHEARSED if cohort.rehearsal else Outcome.ACCEPTED),
            version=np.full(n, number - 1.0),
            num_examples=values("num_examples", n, rng),
            local_steps=np.full(n, 5.0),
            staleness=np.zeros(n),
            download_s=rng.lognormal(size=n),
            compute_s=rng.lognormal(size=n),
            upload_s=rng.lognormal(size=n),
            bits_up=np.full(n, 1e6),
            bits_down=np.full(n, 1e6),
            signals={name: values(name, n, rng) for name in needs.reported},
        )
        spent -= time.perf_counter()
        selector.observe(number, back)
        return spent + time.perf_counter()

    warm = WARM.get(record["name"], 3)
    began = time.perf_counter()
    first = [one(number) for number in range(1, warm + 1)]
    steady: list[float] = []
    played = warm
    while len(steady) < rounds and (len(steady) < 3 or time.perf_counter() - began < LIMIT_S):
        played += 1
        steady.append(one(played))
    tracemalloc.start()
    one(played + 1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return {
        "steady_s": statistics.median(steady),
        "steady_max_s": max(steady),
        "first_s": max(first),
        "rounds": float(played),
        "rss_bytes": 1024.0 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss,
        "peak_bytes": float(peak),
        "state_bytes_per_client": len(selector.to_bytes()) / clients,
    }


def table(rows: list[dict[str, Any]]) -> str:
    """The figures as one line per rule and size."""
    lines = [
        f"{'rule':<46} {'K':>9} {'steady ms':>10} {'first ms':>10} {'peak MiB':>9} {'rss MiB':>8} "
        f"{'state B/client':>14}"
    ]
    for row in rows:
        name = row["rule"] + "".join(f" {key}={value}" for key, value in row["options"].items())
        if "failed" in row:
            lines.append(f"{name:<46} {row['clients']:>9,} {row['failed']}")
            continue
        lines.append(
            f"{name:<46} {row['clients']:>9,} {1e3 * row['steady_s']:>10.2f} "
            f"{1e3 * row['first_s']:>10.1f} {row['peak_bytes'] / 2**20:>9.1f} "
            f"{row['rss_bytes'] / 2**20:>8.0f} {row['state_bytes_per_client']:>14.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Run every case in a fresh process, print the table, write the JSON."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "out", nargs="?", type=Path, default=Path(__file__).parent / "results" / "selection.json"
    )
    parser.add_argument("--only", default="", help="rules, separated by commas")
    parser.add_argument(
        "--sizes", default=",".join(map(str, SIZES)), help="populations, separated by commas"
    )
    parser.add_argument("--rounds", type=int, default=15, help="steady rounds per case")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        case = json.loads(args.case)
        print(json.dumps(measure(case["record"], case["clients"], args.rounds)))
        return

    from motley.selectors import CATALOGUE

    sizes = [int(size) for size in args.sizes.split(",")]
    names = args.only.split(",") if args.only else sorted(CATALOGUE.builtin)
    rows: list[dict[str, Any]] = []
    print(table([]), flush=True)
    for name in names:
        limit = LARGEST.get(name, max(sizes))
        for options in OPTIONS.get(name, [{}]):
            for clients in sorted({min(size, limit) for size in sizes}):
                case = json.dumps({"record": {"name": name, **options}, "clients": clients})
                command = [sys.executable, __file__, "--case", case, "--rounds", str(args.rounds)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                row: dict[str, Any] = {"rule": name, "options": options, "clients": clients}
                if done.returncode:
                    row["failed"] = (done.stderr.strip().splitlines() or ["failed"])[-1]
                else:
                    row |= json.loads(done.stdout)
                rows.append(row)
                print(table([row]).splitlines()[1], flush=True)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps({"m": M, "rows": rows}, indent=1) + "\n")
    print(f"written to {args.out}")


if __name__ == "__main__":
    main()
