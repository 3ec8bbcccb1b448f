"""Which of the methods that came after the league help in two of its environments, and in two small
sets of data.

    MOTLEY_DATA=... python benchmarks/later_methods.py [OUT.json] [--only CELL ...]

The plan, written before any run. The environments are the league's *absences (strong), with skewed
labels* and *labels (strong)*, base and model included. Every entrant has one setting or two, of
which the seeds 0 and 1 choose one by the mean of ``stable``, the mean of the last ten evaluations
of the mean accuracy over clients; the seeds 2 to 6, which choose nothing, measure it. Told are the
differences to the reference of the same seeds, FedAvg with uniform selection (in a buffer: FedAvg
in a buffer; of methods that yield a model for each client: FedAvg, fine-tuned for two epochs), in
percent points, with the 95 % interval of a paired t over five seeds. A method helps where the
interval lies above zero. Nothing is corrected for there being ten of them.

``fedpac`` and ``fedas`` came later. Of ``fedpac`` the seeds 0 and 1 had shown that its ``lam`` of 1
loses three points here, which is why its second setting is a tenth.

``fedawe`` runs a second time: its first runs examined the server's model, where the authors' code
examines the mean of all clients' (with it the seeds 0 and 1 gain 14 to 17 points; those two were
looked at, under several settings, to find the cause). Its second setting is the bound of that code.

The cells after the first two came later still, each a pair of two sets of data, for methods of
which nothing or two seeds had been seen. Their plan, written before any of their runs, is that of
above: at most three settings, of which the seeds 0 and 1 choose, and the seeds 2 to 6 measure.

- ``fiarse``: the world of ``examples/unequal_capacity.toml``, on digits and on the table; levels of
  as many weights as those of ``fjord``, beside ``fjord`` and beside FedAvg with the narrow model
  that all can hold.
- ``greedyfed``: 20 clients in Dirichlet(.3), 5 a round; a tenth of the samples at the server;
  beside uniform FedAvg.
- ``fedkd``: 16 clients in Dirichlet(.5) with two MLPs and a small common one, beside local training
  and beside ``fml``, which sends the small model whole.
- ``pfedfda``, ``fedpac``, ``fedas``: 20 clients in Dirichlet(.1), 5 a round, beside FedAvg,
  fine-tuned for two epochs.
- ``fedcompass``: 20 clients in Dirichlet(.3), all under way, whose speeds are the league's *strong*
  ones, 4 virtual seconds; beside a buffer of six updates with as many under way. The measure is the
  mean of the evaluations of the last fifth of the time, since steps are not as long.

The two sets are scikit-learn's digits and its table of tumours (``breast_cancer``), 30 rounds each.

Claim of each: it *helps* where the interval lies above zero in both sets of data, *loses* where it
lies below in both; all else is undecided, and said with both intervals. Nothing is corrected; if no
method differed, one comparison would help by chance once in 1,600. Cells run in the order below; a
pair that was not finished is left out whole. The first plan had MNIST in place of the table, and
Fashion-MNIST for all but two methods. It was given up after the first cell (*unequal capacity,
digits*), of which everything is kept, because the machine had three hundredths of a core for it; no
other run had been made.

Every finished run is written to OUT.json at once; what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from importlib.resources import files
from pathlib import Path
from typing import Any

import torch

import motley
from motley.experiments.document import parse, set_keys
from motley.results.measures import paired

OUT = Path(__file__).with_name("measured") / "later_methods.json"
CHOOSING, MEASURING = (0, 1), (2, 3, 4, 5, 6)
LR = "local.optimizer.lr"
BUFFER = {"name": "buffered", "buffer": 6, "staleness": "constant"}

Keys = dict[str, Any]


def of(algorithm: str, *settings: Keys, **keys: Any) -> list[Keys]:
    """Return the settings of an entrant: options of its algorithm, with the rate as ``lr``."""
    return [
        {
            "algorithm": {"name": algorithm, **{k: v for k, v in one.items() if k != "lr"}},
            LR: one.get("lr", 0.1),
            **keys,
        }
        for one in settings
    ]


RATES = ({"lr": 0.03}, {"lr": 0.1})
THREE_RATES = (*RATES, {"lr": 0.3})
TUNED = "FedAvg, fine-tuned"
NARROW = "FedAvg, narrow model"
BUFFER_OF_ALL = "FedAvg in a buffer, all under way"
MLP = {"name": "mlp", "hidden": [32]}
TABLE: Keys = {"task": {"name": "tabular", "data": "breast_cancer", "model": MLP}}
LABELS: Keys = {
    "population": 20,
    "cohort": 5,
    "stop": {"rounds": 30},
    "task": {"name": "image", "data": "digits", "model": MLP},
    "split": {"test": "client", "test_fraction": 0.25},
    "partition": {"name": "dirichlet", "alpha": 0.3},
    "local": {"epochs": 2, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "evaluate": {"every": 2},
}
AT_SERVER: Keys = {"split.server": 0.1}
STRONG: Keys = {"partition.alpha": 0.1}
SPEEDS: Keys = {
    "cohort": 20,
    "stop": {"rounds": 100_000, "virtual_hours": 4 / 3600},
    "device": {"name": "log_normal", "median": 0.02, "sigma": 1.5},
    "network": {"name": "log_normal", "up_mbps": 3.0, "sigma": 1.5, "per": "client"},
    "evaluate": {"every": 10},
}
CAPACITY: Keys = {
    "population": 20,
    "cohort": 10,
    "stop": {"rounds": 30},
    "task": {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [64]}},
    "split": {"test": "client", "test_fraction": 0.5},
    "partition": "iid",
    "local": {"epochs": 2, "batch_size": 10, "optimizer": {"name": "sgd", "lr": 0.1}},
    "device": {"name": "log_normal", "median": 0.04, "sigma": 1.5},
    "network": {"name": "uniform", "up_mbps": [1.0, 5.0]},
    "evaluate": {"every": 2},
}
UNLIKE: Keys = {
    "population": 16,
    "cohort": 8,
    "stop": {"rounds": 30},
    "task": {"name": "image", "data": "digits"},
    "models": {
        "of": [{"name": "mlp", "hidden": hidden} for hidden in ([128, 64], [256, 32], [32])],
        "share": [0.5, 0.5, 0.0],
        "by": "client",
    },
    "split": {"test": "client", "test_fraction": 0.25},
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "local": {"epochs": 2, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "evaluate": {"every": 2},
}
WORLDS: dict[str, tuple[Keys, Keys]] = {
    "unequal capacity, digits": (CAPACITY, {}),
    "unequal capacity, table": (CAPACITY, {**TABLE, "task.model.hidden": [64]}),
    "labels, samples at the server, digits": (LABELS, AT_SERVER),
    "labels, samples at the server, table": (LABELS, {**AT_SERVER, **TABLE}),
    "unlike models, digits": (UNLIKE, {}),
    "unlike models, table": (UNLIKE, {"task": {"name": "tabular", "data": "breast_cancer"}}),
    "labels-strong, digits": (LABELS, STRONG),
    "labels-strong, table": (LABELS, {**STRONG, **TABLE}),
    "speeds-strong, labels, digits": (LABELS, SPEEDS),
    "speeds-strong, labels, table": (LABELS, {**SPEEDS, **TABLE}),
}
"""The worlds that are no environment of the league: what they have in common, and what is their
own."""


def levels(*shares: float) -> Keys:
    """Return the capacity of clients that can hold these shares of the width."""
    return {"capacity": {"name": "by_speed", "step_s": 0.01, "levels": list(shares)}}


PERSONAL = {
    TUNED: of("fine_tuned", {"epochs": 2}),
    "pfedfda": of("pfedfda", *RATES),
    "fedpac": of("fedpac", {}, {"lam": 0.1}),
    "fedas": of("fedas", {}),
}
SELECTION = {
    "FedAvg": of("fedavg", *RATES),
    "greedyfed": of("fedavg", *RATES, selector="greedyfed"),
}
ASYNCHRONY = {
    BUFFER_OF_ALL: of("fedavg", *THREE_RATES, synchrony=BUFFER),
    "fedcompass": of(
        "fedavg",
        *THREE_RATES,
        synchrony={"name": "fedcompass", "min_steps": 2, "max_steps": 10},
    ),
}
SLICES = {
    NARROW: of("fedavg", *THREE_RATES, **{"task.model.hidden": [8]}),
    "fjord": of(
        "fjord",
        *({"widths": [1.0, 0.5, 0.125], **rate} for rate in THREE_RATES),
        **levels(1.0, 0.5, 0.125),
    ),
    "fiarse": of("fiarse", *THREE_RATES, **levels(1.0, 0.708, 0.356)),
}
MENTORS = {name: of(name, *THREE_RATES) for name in ("local_only", "fml", "fedkd")}
PLAN: dict[str, dict[str, list[Keys]]] = {
    "absences-strong, labels": {
        "FedAvg": of("fedavg", *RATES),
        "mifa": of("mifa", {}),
        "fedau": of("fedau", {}, {"cutoff": 5}),
        "fedawe": of("fedawe", {}, {"clip": 0.5}),
        "FedAvg in a buffer": of("fedavg", *RATES, synchrony=BUFFER),
        "ca2fl": of("ca2fl", {}, {"server_lr": 0.5}, synchrony=BUFFER),
    },
    "labels-strong": {
        "FedAvg": of("fedavg", *RATES),
        "fedswa": of("fedswa", {}, {"lr": 0.2}),
        "fedmoswa": of("fedmoswa", {}, {"server_lr": 1.0}),
        "fedadamw": of("fedadamw", {"lr": 0.001}, {"lr": 0.003}),
        "fedmuon": of("fedmuon", {"lr": 0.01}, {"lr": 0.03}),
        TUNED: of("fine_tuned", {"epochs": 2}),
        "fedpac": of("fedpac", {}, {"lam": 0.1}),
        "fedas": of("fedas", {}),
    },
    "unequal capacity, digits": SLICES,
    "unequal capacity, table": SLICES,
    "labels, samples at the server, digits": SELECTION,
    "labels, samples at the server, table": SELECTION,
    "unlike models, digits": MENTORS,
    "unlike models, table": MENTORS,
    "labels-strong, digits": PERSONAL,
    "labels-strong, table": PERSONAL,
    "speeds-strong, labels, digits": ASYNCHRONY,
    "speeds-strong, labels, table": ASYNCHRONY,
}
REFERENCES = {
    "ca2fl": ("FedAvg in a buffer",),
    "fedpac": (TUNED,),
    "fedas": (TUNED,),
    "pfedfda": (TUNED,),
    "fedcompass": (BUFFER_OF_ALL,),
    "fjord": (NARROW,),
    "fiarse": ("fjord", NARROW),
    "fml": ("local_only",),
    "fedkd": ("local_only", "fml"),
}
"""What an entrant stands beside; ``FedAvg`` if it is not here, and nothing if that is not in its
cell."""


def league_run(environment: str, setting: Keys, seed: int) -> motley.Run:
    """Run an entrant in an environment of the league."""
    recipe = files("motley_papers") / "league" / "recipe.toml"
    league = parse(recipe.read_text(encoding="utf-8"), "league")
    (shared,) = (e for e in league["exhibit"] if e["name"] == "shared")
    world = {k: v for k, v in shared["axes"]["environment"][environment].items() if k != "target"}
    return motley.run(set_keys({**league["base"], "seed": seed}, world, setting))


def cell_run(cell: str, setting: Keys, seed: int) -> motley.Run:
    """Run an entrant in a cell of the plan."""
    if cell not in WORLDS:
        return league_run(cell, setting, seed)
    common, own = WORLDS[cell]
    return motley.run(set_keys({**common, "seed": seed}, own, setting))


def stable(run: motley.Run) -> float:
    """Return the mean of a run's last ten evaluations, in percent."""
    return 100 * statistics.mean([score for _, score in _means(run)][-10:])


def late(run: motley.Run) -> float:
    """Return the mean of a run's evaluations in the last fifth of its virtual time, in percent."""
    means = _means(run)
    return 100 * statistics.mean(score for time_s, score in means if time_s >= 0.8 * means[-1][0])


def _means(run: motley.Run) -> list[tuple[float, float]]:
    """Return the times and mean accuracies over clients of a run's evaluations."""
    columns = (run.column("evaluations", name) for name in ("scope", "time_s", "accuracy"))
    return [(float(t), float(s)) for scope, t, s in zip(*columns, strict=True) if scope == "mean"]


def main() -> None:
    """Run what is missing, and tell the differences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", nargs="?", type=Path, default=OUT)
    parser.add_argument("--only", nargs="+", choices=PLAN, default=list(PLAN))
    options = parser.parse_args()
    out = options.out
    torch.set_num_threads(1)
    runs = json.loads(out.read_text(encoding="utf-8"))["runs"] if out.is_file() else []
    known = {(r["environment"], r["entrant"], r["setting"], r["seed"]): r["stable"] for r in runs}
    told: list[Keys] = []

    def written() -> None:
        lists = {name: ",\n".join(map(json.dumps, rows)) for name, rows in found.items()}
        body = ",\n".join(f'"{name}": [\n{rows}\n]' for name, rows in lists.items())
        out.write_text(f"{{\n{body}\n}}\n", encoding="utf-8")

    def measured(environment: str, entrant: str, number: int, seed: int) -> float:
        place = (environment, entrant, number, seed)
        if place not in known:
            began = time.process_time()
            measure = late if environment.startswith("speeds") else stable
            score = measure(cell_run(environment, PLAN[environment][entrant][number], seed))
            row = dict(zip(("environment", "entrant", "setting", "seed"), place, strict=True))
            cpu_s = round(time.process_time() - began, 1)
            runs.append({**row, "stable": round(score, 3), "cpu_s": cpu_s})
            known[place] = runs[-1]["stable"]
            written()
        return float(known[place])

    found = {"told": told, "runs": runs}
    for environment, entrants in PLAN.items():
        if environment not in options.only:
            continue
        ends: dict[str, list[float]] = {}
        for entrant, settings in entrants.items():
            tried = [
                statistics.mean(measured(environment, entrant, number, seed) for seed in CHOOSING)
                for number in range(len(settings))
                if len(settings) > 1
            ]
            best = tried.index(max(tried)) if tried else 0
            ends[entrant] = [measured(environment, entrant, best, seed) for seed in MEASURING]
            row = {
                "environment": environment,
                "entrant": entrant,
                "setting": settings[best]["algorithm"] | {"lr": settings[best][LR]},
                "stable": round(statistics.mean(ends[entrant]), 2),
            }
            references = [name for name in REFERENCES.get(entrant, ("FedAvg",)) if name in ends]
            for reference in references if entrant != "FedAvg" else ():
                gain = paired(ends[entrant], ends[reference])
                told.append(
                    row | {"reference": reference, "gain": [gain.mean, gain.low, gain.high]}
                )
            if not references or entrant == "FedAvg":
                told.append(row)
            print(json.dumps(told[-1]), flush=True)
    written()


if __name__ == "__main__":
    main()
