"""The tables of docs/which-algorithm.md with tuned rates: each method gets the same budget, and is tested with seeds of its own.

    python benchmarks/tuned.py [--only label_noise,...] [--out runs/tuned] [--jobs N]

Every study goes on where it was stopped. What is finished is written into benchmarks/measured/tuned.json, and a study that is not run
stays there as it is; then ``python docs/generate.py`` puts the tables into the page. Three seeds judge a trial: with one, a rate at
the edge of stability may look the best.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import motley
from motley.results import measures
from motley.results.summary import differences, method_rows
from motley.tuning.outcome import TunedMethod, TuningResult
from motley.tuning.words import in_words

ROOT = Path(__file__).resolve().parents[1]
OUT = Path(__file__).with_name("measured") / "tuned.json"
RATE = {"local.optimizer.lr": "log:0.003..0.3"}
TRIALS, SEEDS = 9, (0, 1, 2)


@dataclass(frozen=True)
class Study:
    """One study: the example, its methods, and spaces beside the local rate's; ``rounds_first``: a third of its rounds, after which a
    third of the trials go on. So three whole runs are left to choose from: a rate that leads early may diverge late."""

    file: str
    methods: Mapping[str, Any]
    rounds_first: int
    spaces: Mapping[str, str] = field(default_factory=dict)


def _named(*names: str) -> dict[str, Any]:
    return {name: {"algorithm": {"name": name}} for name in names}


STUDIES = {
    "label_skew": Study(
        "label_skew",
        _named("fedavg", "fedprox", "scaffold", "fednova", "moon", "feddyn", "fedavgm", "fedadam"),
        20,
        {
            "fedprox:algorithm.mu": "log:0.001..1", "moon:algorithm.mu": "log:0.01..10",
            "feddyn:algorithm.alpha": "log:0.001..1", "fedadam:algorithm.server_lr": "log:0.001..0.1",
        },
    ),
    "writers_mnist": Study(
        "algorithms_mnist",
        _named("fedavg", "fedprox", "scaffold", "fednova", "moon", "qfedavg", "fedadam"),
        20,
        {
            "fedprox:algorithm.mu": "log:0.001..1", "moon:algorithm.mu": "log:0.01..10",
            "qfedavg:algorithm.q": "log:0.01..10", "fedadam:algorithm.server_lr": "log:0.001..0.1",
        },
    ),
    "quantity_skew": Study("quantity_skew", _named("fedavg", "fednova"), 7),
    "label_noise": Study(
        "label_noise",
        {**_named("fedavg", "flash_robust"), "rhfl": {"algorithm": {"name": "rhfl", "batch_size": 64}}},
        34,
        {"flash_robust:algorithm.alpha": "log:0.01..1"},
    ),
}  # fmt: skip


def record(found: TuningResult) -> dict[str, Any]:
    """Return what the page shows of a study."""
    groups = {method.label: list(method.test) for method in found.methods}
    against = {one.label: one for one in differences(groups, found.methods[0].label, "stable")}
    rows = {row.label: row for row in method_rows(groups)}
    plan = found.plan
    return {
        "experiment": plan.bases[0].name, "trials": plan.trials, "run_equivalents": round(plan.run_equivalents(plan.methods[0]), 3),
        "seeds": list(plan.seeds), "test_seeds": list(plan.test_seeds), "base": found.methods[0].label,
        "rows": [_row(method, rows[method.label], against.get(method.label)) for method in found.methods],
    }  # fmt: skip


def _row(method: TunedMethod, row: Any, against: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"label": method.label, "chosen": in_words(method.values)}
    out["validation"] = round(100 * method.best.last.objectives[0].value, 2)
    for name in ("final", "stable", "worst_decile"):
        spread: measures.Spread = getattr(row, name)
        out[name] = [round(spread.mean, 4), round(spread.std, 4)]
    if against is not None:
        bounds = (against.interval.mean, against.interval.low, against.interval.high)
        out["difference"] = {"interval": [round(one, 4) for one in bounds], "verdict": against.verdict}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(STUDIES))
    parser.add_argument("--out", type=Path, default=Path("runs") / "tuned")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("json", type=Path, nargs="?", default=OUT)
    args = parser.parse_args()
    for name in args.only.split(","):
        study = STUDIES[name]
        found = motley.tune(
            ROOT / "examples" / f"{study.file}.toml", {**RATE, **study.spaces}, per=study.methods, trials=TRIALS, seeds=SEEDS,
            rounds_first=study.rounds_first, out=args.out / name, jobs=args.jobs, say=lambda line: print(line, flush=True),
        )  # fmt: skip
        kept = json.loads(args.json.read_text(encoding="utf-8")) if args.json.is_file() else {}
        kept[name] = record(found)
        text = json.dumps({name: kept[name] for name in STUDIES if name in kept}, indent=1) + "\n"
        args.json.write_text(text, encoding="utf-8")
        print(f"{name}: {len(kept[name]['rows'])} rows")


if __name__ == "__main__":
    main()
