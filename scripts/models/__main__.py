"""Random PyTorch models beside every engine.

    scripts/fuzz-models [--count 20000] [--first 0] [--jobs 2] [--log FILE] [--summary FILE]
    scripts/fuzz-models --only 17        # one case again, with what is in it

Each case is trained for two rounds by plain PyTorch and by every engine, in float64. A fault is a
difference that nothing says, or an error that is no sentence. The same command with the same log
goes on.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import torch

from models.cases import draw
from models.compare import ENGINES, compared

FAULTS = ("different", "crashed")


def one(seed: int) -> dict[str, Any]:
    """Return the row of a case."""
    torch.set_num_threads(1)
    case = draw(seed)
    results = compared(case)
    return {
        "seed": seed,
        "words": case.words,
        "outcomes": {name: result.outcome for name, result in results.items()},
        "texts": {name: result.text for name, result in results.items()},
    }


def main() -> int:
    """Run the cases that are not in the log, and print counts and faults."""
    parser = argparse.ArgumentParser(
        prog="fuzz-models", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", type=int)
    parser.add_argument("--log", type=Path)
    parser.add_argument("--summary", type=Path)
    args = parser.parse_args()
    if args.only is not None:
        print(json.dumps(one(args.only), indent=1))
        return 0
    rows: dict[int, dict[str, Any]] = {}
    if args.log is not None and args.log.is_file():
        for line in args.log.read_text().splitlines():
            row = json.loads(line)
            rows[row["seed"]] = row
    missing = [seed for seed in range(args.first, args.first + args.count) if seed not in rows]
    began = time.monotonic()
    with ProcessPoolExecutor(args.jobs) as pool:
        for row in pool.map(one, missing, chunksize=10):
            rows[row["seed"]] = row
            if args.log is not None:
                args.log.parent.mkdir(parents=True, exist_ok=True)
                with args.log.open("a") as file:
                    file.write(json.dumps(row) + "\n")
    wanted = [rows[seed] for seed in range(args.first, args.first + args.count)]
    counts = {name: Counter(row["outcomes"][name] for row in wanted) for name in ENGINES}
    for name, count in counts.items():
        print(f"{name:11}", ", ".join(f"{n} {word}" for word, n in count.most_common()))
    print(f"{len(missing)} cases in {time.monotonic() - began:.0f} s")
    faults = [row for row in wanted if set(row["outcomes"].values()) & set(FAULTS)]
    for row in faults[:40]:
        texts = {
            name: row["texts"][name]
            for name, outcome in row["outcomes"].items()
            if outcome in FAULTS
        }
        print(f"case {row['seed']} ({', '.join(row['words'])}): {texts}")
    if args.summary is not None:
        args.summary.parent.mkdir(parents=True, exist_ok=True)
        summary = {
            "cases": len(wanted),
            "engines": {name: dict(sorted(count.items())) for name, count in counts.items()},
            "faults": len(faults),
        }
        args.summary.write_text(json.dumps(summary, indent=1) + "\n")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
