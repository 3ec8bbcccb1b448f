"""Which of the methods that came after the league help in two of its environments, and in two sets
of data.

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

- ``fiarse``: the world of ``examples/unequal_capacity.toml``, on MNIST with a twentieth of its
  samples; levels of as many weights as those of ``fjord``, beside ``fjord`` and beside FedAvg with
  the narrow model that all can hold.
- ``greedyfed``: the league's *labels*, 0.5 % of the samples at the server, beside uniform FedAvg.
- ``fedcompass``: the league's *speeds (strong), labels*, 18 virtual seconds, all 40 clients under
  way, beside a buffer of six updates with as many under way. The measure is the mean of the
  evaluations of the last fifth of the time, since steps are not as long.
- ``fedkd``: 16 clients in Dirichlet(.5) with two MLPs and a small common one, beside local training
  and beside ``fml``, which sends the small model whole; on MNIST with a twentieth of its samples.
- ``fedpac`` and ``fedas``: the league's *labels (strong)* on MNIST, as on Fashion-MNIST before,
  ``fedpac`` with the ``lam`` that was chosen there. So ``pfedfda``, on both, with the rates .03 and
  .1, once it is built.

Claim of each: it *helps* where the interval lies above zero in both sets of data, *loses* where it
lies below in both; all else is undecided, and said with both intervals. Nothing is corrected; if no
method differed, one comparison would help by chance once in 1,600. The sizes were chosen so that
all takes about 20 minutes of one core, by six runs of seed 99 whose scores were not looked at.
Cells run in the order below; a pair that was not finished is left out whole.

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
MNIST: Keys = {"task.data": "mnist"}
AT_SERVER: Keys = {"split.server": 0.005, "public": 0.845}
SECONDS: Keys = {"stop": {"rounds": 100_000, "virtual_hours": 0.005}}
MANY_STEPS: Keys = {"evaluate": {"every": 20}, "cohort": 40}
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
TWENTIETH: Keys = {**MNIST, "split.server": 0.95}
WORLDS: dict[str, tuple[str | Keys, Keys]] = {
    "unequal capacity, digits": (CAPACITY, {}),
    "unequal capacity, MNIST": (CAPACITY, TWENTIETH),
    "unlike models, digits": (UNLIKE, {}),
    "unlike models, MNIST": (UNLIKE, TWENTIETH),
    "labels-strong, MNIST": ("labels-strong", MNIST),
    "labels, samples at the server": ("labels", AT_SERVER),
    "labels, samples at the server, MNIST": ("labels", {**AT_SERVER, **MNIST}),
    "speeds-strong, labels, 18 s": ("speeds-strong, labels", SECONDS),
    "speeds-strong, labels, 18 s, MNIST": ("speeds-strong, labels", {**SECONDS, **MNIST}),
}
"""The worlds that are no environment of the league: what they are made of, and what is changed."""


def levels(*shares: float) -> Keys:
    """Return the capacity of clients that can hold these shares of the width."""
    return {"capacity": {"name": "by_speed", "step_s": 0.01, "levels": list(shares)}}


PERSONAL = {
    TUNED: of("fine_tuned", {"epochs": 2}),
    "fedpac": of("fedpac", {"lam": 0.1}),
    "fedas": of("fedas", {}),
}
SELECTION = {
    "FedAvg": of("fedavg", *RATES),
    "greedyfed": of("fedavg", *RATES, selector="greedyfed"),
}
ASYNCHRONY = {
    BUFFER_OF_ALL: of("fedavg", *THREE_RATES, synchrony=BUFFER, **MANY_STEPS),
    "fedcompass": of(
        "fedavg",
        *THREE_RATES,
        synchrony={"name": "fedcompass", "min_steps": 2, "max_steps": 10},
        **MANY_STEPS,
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
    "unequal capacity, MNIST": SLICES,
    "labels, samples at the server": SELECTION,
    "labels, samples at the server, MNIST": SELECTION,
    "speeds-strong, labels, 18 s": ASYNCHRONY,
    "speeds-strong, labels, 18 s, MNIST": ASYNCHRONY,
    "unlike models, digits": MENTORS,
    "unlike models, MNIST": MENTORS,
    "labels-strong, MNIST": PERSONAL,
}
REFERENCES = {
    "ca2fl": ("FedAvg in a buffer",),
    "fedpac": (TUNED,),
    "fedas": (TUNED,),
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
    made_of, changes = WORLDS.get(cell, (cell, {}))
    if isinstance(made_of, str):
        return league_run(made_of, {**changes, **setting}, seed)
    return motley.run(set_keys({**made_of, "seed": seed}, changes, setting))


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
