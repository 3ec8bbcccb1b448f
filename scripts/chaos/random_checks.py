"""Compare random experiments with themselves, in every way in which nothing may change.

    # a campaign of an hour; the same command goes on with it
    scripts/test-random [--count 100000] [--minutes 60] [--seed 0] [--log FILE] [--summary FILE]
    # one experiment of a campaign again
    scripts/test-random --seed 0 --only 17

Experiments are drawn as by ``scripts/compose``. Each runs whole, and what holds of every run is
checked (:mod:`chaos.invariants`); then it runs once more in another way: on another engine, killed
and resumed, cut short and extended, from a file, with its clients renamed, as a grid in another
order, or as a deployment in one process. A fault is whatever differs, and whatever is no sentence
for users.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator, Mapping
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from same_results import deployments
from same_results.own import renamed

from chaos.combinations import Keys
from chaos.compare import differences
from chaos.compose import Row, Search, between, main, run_whole
from chaos.compositions import Composition, checked, own_task
from chaos.invariants import broken, prefix_differences
from motley import compare, run
from motley.core.errors import UserError
from motley.experiments import document
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.results.load import load

__all__ = ["KINDS", "Checks"]

KINDS = ("engine", "kill", "extension", "toml", "clients", "grid", "deployment")
"""Ways in which an experiment is run once more."""
ENGINES: tuple[Keys, ...] = (
    {"name": "threads", "threads": 2},
    {"name": "batched", "threads": 1},
    {"name": "vmap", "threads": 1},
    {"name": "debug"},
)
PROCESSES: Keys = {"name": "processes", "workers": 2, "threads": 2}
SHARE = 0.05
"""Of the comparisons of engines, those with worker processes, which cost seconds."""
CLOSE = 1e-6
"""Relative difference of two engines in float64 after a few rounds."""
EXACT = {
    "rounds": ("round", "selections", "dispatch", "time_s", "selected", "accepted", "late"),
    "clients": ("round", "dispatch", "client", "outcome", "staleness", "local_steps", "bits_up"),
}
NEAR = {"rounds": ("train_loss", "update_norm"), "clients": ("weight", "loss", "update_norm")}
WORLD = (
    "device",
    "network",
    "availability",
    "capacity",
    "failures",
    "dishonest",
    "synchrony",
    "drift",
    "concept_shift",
    "privacy",
    "guard",
    "defence",
    "engine",
    "precision",
    "recalibrate",
    "client_state",
)
"""Keys that a deployment in which all answer at once leaves out."""
BY_ID = ("ifca", "fjord", "fedrolex", "heterofl", "rhfl", "feddf", "fedbio", "flash_robust")
"""Algorithms that draw by a client's id, or need samples of the server."""
ROOT = Path(__file__).resolve().parents[2]


class Checks(Search):
    """Draws experiments and compares each with itself in one of :data:`KINDS`."""

    command: ClassVar[str] = "scripts/test-random"
    kind = "kill"

    def one(self, number: int, known: frozenset[str] = frozenset()) -> Row:
        """Draw one experiment and compare it."""
        self.drawn_kind = random.Random(f"{self.seed}/{number}/kind").choice(KINDS)
        self.kind = self.drawn_kind
        row = super().one(number, known)
        row.kind = self.kind
        return row

    def stages(
        self, composition: Composition, folder: Path, when: float
    ) -> Iterator[tuple[str, list[str]]]:
        """Run an experiment whole, check what holds of every run, and run it in another way."""
        self.kind = self.drawn_kind
        fitted = self.fitted(composition)
        if fitted is None:
            self.kind = "kill"
            fitted = composition
        steps = run_whole(fitted, folder / "whole")
        yield "when it was looked at", []
        yield "when it was looked at", broken(folder / "whole")
        if self.kind == "kill":
            yield from self.interrupted(fitted, folder, 1 + int(when * steps))
            return
        yield f"when it ran once more ({self.kind})", []
        ways = {
            "engine": _engine,
            "extension": _extension,
            "toml": _toml,
            "clients": _clients,
            "grid": _grid,
            "deployment": _deployment,
        }
        try:
            found = ways[self.kind](fitted, folder, when)
        except UserError:
            if self.kind != "deployment":
                raise
            self.kind = "kill"  # not everything can be deployed
            yield from self.interrupted(fitted, folder, 1 + int(when * steps))
            return
        yield f"when it ran once more ({self.kind})", found

    def fitted(self, composition: Composition) -> Composition | None:
        """Return the experiment as this kind of comparison needs it; None where that is refused."""
        fit = {
            "engine": _in_float64,
            "extension": _of_rounds,
            "clients": _of_all_clients,
            "deployment": _answered,
        }.get(self.kind)
        try:
            fitted = composition if fit is None else fit(composition)
            if fitted is not None and fitted is not composition:
                checked(fitted.keys, fitted.own)
        except UserError:
            return None
        return fitted


# ------------------------------------------------------------------------------------- engines


def _in_float64(composition: Composition) -> Composition:
    keys = {key: value for key, value in composition.keys.items() if key != "precision"}
    engine = {"name": "sequential", "threads": 1}
    return dataclasses.replace(composition, keys={**keys, "dtype": "float64", "engine": engine})


def _engine(composition: Composition, folder: Path, when: float) -> list[str]:
    """Run on another engine."""
    rng = random.Random(when)
    engines = [PROCESSES] if rng.random() < SHARE else rng.sample(ENGINES, len(ENGINES))
    for engine in engines:
        other = dataclasses.replace(composition, keys={**composition.keys, "engine": engine})
        try:
            checked(other.keys, other.own)
        except UserError:
            continue  # this engine does not take it
        run_whole(other, folder / "other")
        return [f"{engine['name']}: {text}" for text in _apart(folder / "whole", folder / "other")]
    return []


def _apart(whole: Path, other: Path, of: Mapping[str, tuple[str, ...]] = EXACT) -> list[str]:
    """Return what two runs of the same numbers up to rounding do not share."""
    one, two = load(whole), load(other)
    for table, names in of.items():
        for name in names:
            if name in one.tables[table].column_names and not one.tables[table][name].equals(
                two.tables[table][name]
            ):
                return [f"{table}.{name} differs"]
    for table, names in NEAR.items():
        for name in names:
            first, second = (np.array(each.column(table, name), float) for each in (one, two))
            if not np.allclose(first, second, rtol=CLOSE, atol=CLOSE, equal_nan=True):
                return [f"{table}.{name} differs by more than rounding"]
    return []


# ------------------------------------------------------------------------------------- extensions


def _of_rounds(composition: Composition) -> Composition | None:
    rounds = max(2, (composition.keys.get("stop") or {}).get("rounds") or 3)
    saved = {"every_rounds": 1, "keep": True}
    keys = {**composition.keys, "stop": {"rounds": rounds}, "checkpoint": saved}
    fitted = dataclasses.replace(composition, keys=keys)
    # whoever looks at the last round does otherwise from the first
    return None if checked(keys, composition.own).horizon_keys() else fitted


def _extension(composition: Composition, folder: Path, when: float) -> list[str]:
    """Run some rounds, and go on to the end."""
    rounds = composition.keys["stop"]["rounds"]
    stop = {"rounds": 1 + int(when * (rounds - 1))}
    short = dataclasses.replace(composition, keys={**composition.keys, "stop": stop})
    if checked(short.keys, short.own).horizon_keys():
        return []  # diagnostics of its last step, which are none of the longer run's
    run_whole(short, folder / "other")
    found = prefix_differences(folder / "other", folder / "whole")
    if not found:
        run_whole(composition, folder / "other")
        found = prefix_differences(folder / "whole", folder / "other")
    return found


# ------------------------------------------------------------------------------------- files, grids


def _toml(composition: Composition, folder: Path, when: float) -> list[str]:
    """Write the keys into a file and run that."""
    path = folder / "experiment.toml"
    path.write_text(document.to_toml(composition.keys), encoding="utf-8")
    task = None if composition.own is None else own_task(composition.own)
    run(path, out=folder / "other", task=task)
    return between(folder, "other")


def _grid(composition: Composition, folder: Path, when: float) -> list[str]:
    """Run a grid of two axes, and the same with axes and values in another order."""
    seed = composition.keys["seed"]
    axes = {"seed": [seed, seed + 1], "evaluate.every": [1, 2]}
    turned = {name: axes[name][::-1] for name in reversed(axes)}
    task = None if composition.own is None else own_task(composition.own)
    keys = {**composition.keys, "stop": {"rounds": 2}}
    runs = []
    for name, over in (("grid", axes), ("turned", turned)):
        done = compare(keys, over, out=folder / name, task=task)
        if done.failures:
            raise done.failures[0].error
        runs.append({_place(each.meta): each.directory for each in done.runs})
    first, second = runs
    if first.keys() != second.keys():
        return [f"{len(first)} runs, and {len(second)} in another order"]
    return [text for key in first for text in differences(Path(first[key]), Path(second[key]))]


def _place(meta: Mapping[str, Any]) -> tuple[int, int]:
    """Return where a run stands in the grid."""
    return meta["seed"], meta["config"]["evaluate"]["every"]


# ------------------------------------------------------------------------------------- clients


def _of_all_clients(composition: Composition) -> Composition | None:
    """Everybody takes part with all its samples, so that nothing is drawn; clients are tested on
    samples of their own."""
    kept = ("name", "seed", "algorithm", "loss", "aggregator", "server", "weights", "method")
    keys = {key: value for key, value in composition.keys.items() if key in kept}
    name = keys.get("algorithm", "fedavg")
    name = name["name"] if isinstance(name, Mapping) else name
    if "method" in keys or name in BY_ID or keys.get("weights") in ("selector", "score"):
        return None
    keys |= {
        "cohort": 6,
        "stop": {"rounds": 3},
        "dtype": "float64",
        "evaluate": {"every": 1},
        "engine": {"name": "sequential", "threads": 1},
        "local": {"steps": 2, "batch_size": 1000, "optimizer": {"name": "sgd", "lr": 0.05}},
    }
    return dataclasses.replace(composition, keys=keys, own="renamed")


def _clients(composition: Composition, folder: Path, when: float) -> list[str]:
    """Run with clients renamed."""
    order = random.Random(when).sample(range(6), 6)
    run(composition.keys, out=folder / "other", task=renamed(order))
    one, two = load(folder / "whole"), load(folder / "other")
    first, second = (_model(folder / name / "model.safetensors") for name in ("whole", "other"))
    if not np.allclose(first, second, rtol=CLOSE, atol=CLOSE):
        return ["the model differs"]
    for name in ("loss", "weight", "update_norm"):
        rows = {
            (row["round"], row["client"]): row[name] for row in one.tables["clients"].to_pylist()
        }
        for row in two.tables["clients"].to_pylist():
            mine = rows[row["round"], order[row["client"]]]
            if not np.isclose(row[name], mine, rtol=CLOSE, atol=CLOSE, equal_nan=True):
                return [f"clients.{name} differs"]
    return []


def _model(path: Path) -> Any:
    from safetensors.torch import load_file

    return torch.cat([value.double().flatten() for _, value in sorted(load_file(path).items())])


# ------------------------------------------------------------------------------------- deployments


def _answered(composition: Composition) -> Composition | None:
    """Without a world, and in float64: all clients answer at once."""
    if composition.own is not None:
        return None
    keys = {key: value for key, value in composition.keys.items() if key not in WORLD}
    local = {key: value for key, value in keys["local"].items() if key != "stragglers"}
    engine = {"name": "sequential", "threads": 1}
    rounds = (keys.get("stop") or {}).get("rounds") or 3  # bytes and seconds are others
    keys |= {"dtype": "float64", "engine": engine, "local": local, "stop": {"rounds": rounds}}
    experiment = Experiment(**keys)
    loop = build(experiment)
    loop.engine.close()
    population = len(loop.setting.task.federation)
    sizes = loop.setting.task.federation.train.sizes
    if sizes.max() > 10 * np.median(sizes):
        return None  # a deployed client counts at most ten times the median
    needs = experiment.part("selector").needs()
    heard = needs.columns | needs.enrolled | needs.probed.keys() | needs.reported
    if any(name.endswith(("_s", "_mbps")) for name in heard):
        return None  # answers take a second there, and nothing here
    return dataclasses.replace(composition, keys={**keys, "population": population})


def _deployment(composition: Composition, folder: Path, when: float) -> list[str]:
    """Run as a deployment whose clients are in this process."""
    with (folder / "said").open("w") as said, redirect_stdout(said), redirect_stderr(said):
        deployments.deployed(ROOT, composition.keys, {}, folder)
    same = {
        "rounds": ("round", "selections", "dispatch", "accepted"),
        "clients": ("client", "dispatch", "outcome", "local_steps", "theta"),
    }
    return _apart(folder / "whole", folder / "real", same)


if __name__ == "__main__":
    main(Checks, __doc__ or "")
