"""The tables of docs/measured.md with tuned rates: each method gets the same budget, and is
tested with seeds of its own.

    python benchmarks/tuned.py [--only label_noise,...] [--out runs/tuned] [--jobs N]

Every study goes on where it was stopped. What is finished is written into
benchmarks/measured/tuned.json, and a study that is not run stays there as it is; then
``python docs/generate.py`` puts the tables into the page. Three seeds judge a trial: with one, a
rate at the edge of stability may look the best. All studies together take about an hour and a half
on two cores, and 16 GB on the disk while that of the writers runs.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import motley
from motley.results.method_groups import MethodGroups
from motley.results.method_rows import MethodRow, differences, method_rows
from motley_advice.tuning.outcome import TunedMethod, TuningResult
from motley_advice.tuning.study_words import in_words

ROOT = Path(__file__).resolve().parents[1]
OUT = Path(__file__).with_name("measured") / "tuned.json"
TRIALS = 9
SEEDS = (0, 1, 2)
# Spaces beside the local rate's, for every method that has a constant of its own to tune.
SPACES: dict[str, dict[str, str]] = {
    "apfl": {"alpha": "0.1..0.9"},
    "ditto": {"lam": "log:0.01..10"},
    "fedadam": {"server_lr": "log:0.001..0.1"},
    "fedbabu": {"tune_epochs": "int:1..5"},
    "feddyn": {"alpha": "log:0.001..1"},
    "fedprox": {"mu": "log:0.001..1"},
    "fedproto": {"lam": "log:0.01..10"},
    "fedrep": {"head_epochs": "int:1..5"},
    "fine_tuned": {"epochs": "int:1..5"},
    "flash_robust": {"alpha": "log:0.01..1"},
    "ifca": {"k": "int:2..5"},
    "moon": {"mu": "log:0.01..10"},
    "per_fedavg": {"alpha": "log:0.003..0.3"},
    "pfedme": {"lam": "log:1..20", "lr_p": "log:0.005..0.3"},
    "qfedavg": {"q": "log:0.01..10"},
}


@dataclass(frozen=True)
class Study:
    """One study: the example, its methods (the others are compared with the first), and the local
    rate's space; ``rounds_first``: a third of its rounds, after which a third of the trials go on.
    So three whole runs are left to choose from: a rate that leads early may diverge late."""

    file: str
    methods: Mapping[str, Any]
    rounds_first: int
    rate: str = "log:0.01..0.5"

    def spaces(self) -> dict[str, str]:
        """Return the space of every key that is tuned: the rate for all, and each method's own
        constants."""
        own: dict[str, str] = {}
        for label, changes in self.methods.items():
            algorithm = changes.get("algorithm", {"name": "fedavg"})["name"]
            own |= {
                f"{label}:algorithm.{key}": space
                for key, space in SPACES.get(algorithm, {}).items()
            }
        return {"local.optimizer.lr": self.rate, **own}


def _named(*names: str) -> dict[str, Any]:
    return {name: _algorithm(name) for name in names}


def _algorithm(name: str, **options: Any) -> dict[str, Any]:
    return {"algorithm": {"name": name, **options}}


PERSONAL = {
    **_named(
        "fedavg",
        "local_only",
        "fedper",
        "lg_fedavg",
        "ditto",
        "apfl",
        "fine_tuned",
        "fedala",
        "per_fedavg",
        "fedproto",
    ),
    "fedrep": _algorithm("fedrep", head_epochs=1),
    "fedbabu": _algorithm("fedbabu", tune_epochs=1),
    "ifca": _algorithm("ifca", k=4),
    "pfedme": _algorithm("pfedme", lam=5.0),
}
SLICES = {"capacity": {"name": "by_speed", "step_s": 0.01, "levels": [1.0, 0.5, 0.125]}}
STUDIES = {
    "label_skew": Study(
        "label_skew",
        _named("fedavg", "fedprox", "scaffold", "fednova", "moon", "feddyn", "fedavgm", "fedadam"),
        20,
        "log:0.003..0.3",
    ),
    "writers_mnist": Study(
        "algorithms_mnist",
        _named("fedavg", "fedprox", "scaffold", "fednova", "moon", "qfedavg", "fedadam"),
        20,
        "log:0.003..0.3",
    ),
    "feature_shift": Study("feature_shift", _named("fedavg", "fedbn"), 5),
    "quantity_skew": Study("quantity_skew", _named("fedavg", "fednova"), 7, "log:0.003..0.3"),
    "label_noise": Study(
        "label_noise",
        {**_named("fedavg", "flash_robust"), "rhfl": _algorithm("rhfl", batch_size=64)},
        34,
        "log:0.003..0.3",
    ),
    "label_flip": Study(
        "label_flip",
        {
            "fedavg, mean": {"aggregator": "mean"},
            "fedavg, median": {"aggregator": "median"},
            "fedavg, trimmed_mean": {"aggregator": {"name": "trimmed_mean", "trim": 0.4}},
            "fedavg, krum": {"aggregator": {"name": "krum", "f": 8}},
            "fedavg, multi_krum": {"aggregator": {"name": "multi_krum", "f": 8}},
            "fedavg, norm_bound": {"aggregator": {"name": "norm_bound", "c": 0.5}},
            "rhfl": _algorithm("rhfl", batch_size=64),
            "qfedavg": _algorithm("qfedavg"),
        },
        14,
    ),
    "uneven_work": Study(
        "uneven_work",
        {
            "partial drop, fedavg": {"local.stragglers.partial": "drop"},
            "partial keep, fedavg": {"local.stragglers.partial": "keep"},
            "partial keep, fedprox": {"local.stragglers.partial": "keep", **_algorithm("fedprox")},
            "partial keep, fednova": {"local.stragglers.partial": "keep", **_algorithm("fednova")},
        },
        18,
    ),
    "personal_labels": Study("personal_labels", PERSONAL, 14),
    "personal_concepts": Study("personal_concepts", PERSONAL, 10),
    "personal_features": Study(
        "personal_features",
        {
            **PERSONAL,
            **_named("fedbn"),
            "fedbn, fine_tuned": _algorithm("fine_tuned", method="fedbn"),
            "fedper, own_norms": _algorithm("fedper", own_norms=True),
        },
        10,
    ),
    "unequal_capacity": Study(
        "unequal_capacity",
        {
            **_named("fedavg", "local_only", "fedper", "ditto", "fine_tuned"),
            "fedavg, 8 units for all": {"task.model.hidden": [8]},
            "heterofl": {**SLICES, **_algorithm("heterofl")},
            "fedrolex": {**SLICES, **_algorithm("fedrolex")},
            "fjord": {**SLICES, **_algorithm("fjord", widths=[1.0, 0.5, 0.125])},
        },
        10,
    ),
}


def record(found: TuningResult) -> dict[str, Any]:
    """Return what the page shows of a study."""
    groups = {method.label: list(method.test) for method in found.methods}
    compared = MethodGroups(groups, found.methods[0].label, plain_intervals=True)
    against = {one.label: one for one in differences(compared)}
    rows = {row.label: row for row in method_rows(groups)}
    plan = found.plan
    return {
        "experiment": plan.bases[0].name,
        "trials": plan.trials,
        "run_equivalents": round(plan.run_equivalents(plan.methods[0]), 3),
        "seeds": list(plan.seeds),
        "test_seeds": list(plan.test_seeds),
        "base": found.methods[0].label,
        "rows": [
            _row(method, rows[method.label], against.get(method.label)) for method in found.methods
        ],
    }


def _row(method: TunedMethod, row: MethodRow, against: Any) -> dict[str, Any]:
    out: dict[str, Any] = {"label": method.label, "chosen": in_words(method.values)}
    out["validation"] = round(100 * method.best.last.objectives[0].value, 2)
    spreads = {"final": row.end("final"), "stable": row.end("stable")}
    for name, spread in (spreads | {"worst_decile": row.served("worst_decile")}).items():
        out[name] = [round(spread.mean, 4), round(spread.std, 4)]
    if against is not None:
        bounds = (against.interval.mean, against.interval.low, against.interval.high)
        out["difference"] = {
            "interval": [round(one, 4) for one in bounds],
            "verdict": against.verdict,
        }
    return out


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default=",".join(STUDIES))
    parser.add_argument("--out", type=Path, default=Path("runs") / "tuned")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("json", type=Path, nargs="?", default=OUT)
    args = parser.parse_args()
    for name in args.only.split(","):
        study = STUDIES[name]
        found = motley.tune(
            ROOT / "examples" / f"{study.file}.toml",
            study.spaces(),
            per=study.methods,
            trials=TRIALS,
            seeds=SEEDS,
            rounds_first=study.rounds_first,
            out=args.out / name,
            jobs=args.jobs,
            say=lambda line: print(line, flush=True),
        )
        kept = json.loads(args.json.read_text(encoding="utf-8")) if args.json.is_file() else {}
        kept[name] = record(found)
        text = json.dumps({name: kept[name] for name in STUDIES if name in kept}, indent=1) + "\n"
        args.json.write_text(text, encoding="utf-8")
        print(f"{name}: {len(kept[name]['rows'])} rows")


if __name__ == "__main__":
    main()
