"""What is compared: the examples with ``[privacy]``, and every selector, synchrony, device and
scale of the catalogues."""

from __future__ import annotations

import itertools
import json
import random
import sys
import typing
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from motley.core.components import imports
from motley.core.errors import DataError, UserError
from motley.core.records import HISTOGRAM, SIGNALS
from motley.experiments.build import prepare
from motley.experiments.config import Experiment, load
from motley.experiments.disclosure import noised
from motley.experiments.registry import build, catalogue
from motley.experiments.run_data import task_of
from motley.experiments.sweep import expand
from motley.tasks.image import Image
from motley.tasks.task import Task
from motley_data.tabular import Tabular

__all__ = ["Case", "combinations", "examples", "privacy_table"]

ROOT = Path(__file__).resolve().parents[2]
PRIVACY = {"clip": 0.5, "noise_multiplier": 4.0, "delta": 1e-5, "noise_seed": 0}
INTERVALS = {"num_examples": 400.0}
"""Largest value of a signal; 5 for all others."""
BASE: dict[str, Any] = {
    "population": 8,
    "cohort": 4,
    "stop": {"rounds": 4},
    "weights": "uniform",
    "split": {"validation": 0.2},
    "local": {"steps": 2, "batch_size": 8},
    "evaluate": {"every": 2},
    "engine": "sequential",
}
OPTIONS: dict[tuple[str, str], dict[str, Any]] = {
    ("selector", "fedcs"): {"deadline": 0.8},
    ("selector", "fedcor"): {"warmup": 1, "interval": 1, "iterations": 5, "first_iterations": 5},
    ("selector", "hetero_select"): {"w_direction": 0.0},
    ("selector", "poisson"): {"rate": 0.5},
    ("selector", "tifl"): {"tiers": 2},
    ("synchrony", "buffered"): {"buffer": 2, "refill": "idle"},
    ("synchrony", "deadline"): {"seconds": 0.9, "over_select": 1.5},
    ("device", "shifted_exponential"): {"a_t": 0.001, "lambda_t": 0.01},
}
"""Options that matter in a small run: deadlines that some miss, buffers that fill."""

FIXED = {
    f"{part} {side} (cm)": [4.0, 2.0] for part in ("sepal", "petal") for side in ("length", "width")
}
"""Public means and deviations of the iris table."""


class Case(NamedTuple):
    """A private experiment to compare: what it is called, and its keys or why it is refused."""

    name: str
    experiment: Experiment | None
    refused: str = ""


def _record(kind: str, name: str, trace: Path) -> dict[str, Any]:
    measured = kind == "device" and name in ("recorded", "trace")
    more = {"file": str(trace)} if measured else {}
    return {"name": name, **OPTIONS.get((kind, name), {}), **more}


def _noise(name: str) -> dict[str, Any]:
    if name == HISTOGRAM:
        return {"multiplier": 4.0}
    return {"low": 0.0, "high": INTERVALS.get(name, 5.0), "multiplier": 4.0}


def privacy_table(selector: dict[str, Any]) -> dict[str, Any]:
    """Return the table that bounds what a selector needs; vectors have no bound, and are
    refused."""
    wanted = noised(build("selector", selector).needs())
    bounded = [name for name in wanted if SIGNALS[name].scalar or name == HISTOGRAM]
    return {**PRIVACY, "signal_noise": {name: _noise(name) for name in bounded}}


def scales() -> list[dict[str, Any]]:
    """Return small tasks, one for each way of scaling that images and tables name."""
    found = []
    model = {"name": "mlp", "hidden": [4]}
    for kind, task in (
        (Image, {"name": "image", "data": "digits"}),
        (Tabular, {"name": "tabular", "data": "iris"}),
    ):
        hint = typing.get_type_hints(kind)["scale"]
        names = _words(hint)
        found += [{**task, "model": model, "scale": name} for name in names]
    return [{**task, "fixed": FIXED} if task["scale"] == "fixed" else task for task in found]


def _words(hint: Any) -> list[str]:
    """Return the words of a Literal, also inside a union."""
    if typing.get_origin(hint) is typing.Literal:
        return [str(word) for word in typing.get_args(hint)]
    return [word for inner in typing.get_args(hint) for word in _words(inner)]


def combinations(trace: Path) -> Iterator[Case]:
    """Yield every combination of selector, synchrony, device and scale, those that are refused as
    well.

    Parameters
    ----------
    trace: file of a device's speeds, written here.
    """
    trace.write_text("client,step_s\n0,0.1\n1,0.2\n2,0.4\n")
    names = [catalogue(kind).names() for kind in ("selector", "synchrony", "device")]
    products = list(itertools.product(scales(), *names))
    # so that few of them, or those before time is up, are spread over all
    random.Random(0).shuffle(products)
    for task, selector, synchrony, device in products:
        name = f"{task['name']}.{task['scale']} {selector} {synchrony} {device}"
        rule = _record("selector", selector, trace)
        keys = {
            **BASE,
            "task": task,
            "selector": rule,
            "synchrony": _record("synchrony", synchrony, trace),
            "device": _record("device", device, trace),
            "privacy": privacy_table(rule),
        }
        case = _case(name, keys)
        yield case
        if case.experiment is None and device == "shifted_exponential" and task["scale"] == "unit":
            yield _case(
                f"{name}, public sizes", {**keys, "privacy": {**keys["privacy"], "sizes": "public"}}
            )


@cache
def _task(keys: str) -> Task:
    """Return the task of an experiment, given as JSON: reading its samples takes most of the
    time."""
    return task_of(Experiment(**json.loads(keys)))


def _case(name: str, keys: dict[str, Any]) -> Case:
    plain = {**BASE, "task": keys["task"]}
    try:
        experiment = Experiment(**keys)
        prepare(experiment, task=_task(json.dumps(plain))).engine.close()
    except UserError as error:
        return Case(name, None, str(error))
    return Case(name, experiment)


def examples() -> Iterator[Case]:
    """Yield every grid entry of the examples with ``[privacy]``, in small."""
    sys.path.insert(0, str(ROOT / "examples"))  # where their own models lie
    for file in sorted((ROOT / "examples").glob("private*.toml")):
        with imports(True):
            points = expand(load(file))
        for point in points:
            if point.experiment.privacy is not None:
                yield _small(f"{file.name} {point.label}", point.experiment)


def _small(name: str, experiment: Experiment) -> Case:
    """Return an experiment with fewer clients and rounds and given noise, on the digits where its
    data pack is absent."""
    changes: dict[str, Any] = {
        "cohort": 8,
        "stop": {"rounds": 4},
        "privacy.epsilon": None,
        "privacy.noise_multiplier": 4.0,
        "engine": "sequential",
    }
    if experiment.selector["name"] == "poisson":
        changes["selector"] = {"name": "poisson", "rate": 0.3, "largest": 12}
    scale = {"scale": experiment.task["scale"]} if "scale" in experiment.task else {}
    digits = {"name": "image", "data": "digits", "model": {"name": "mlp", "hidden": [4]}, **scale}
    small = {**changes, "population": 24}
    stand_in = {**small, "task": digits, "partition": {"name": "iid"}}
    for given in (changes if experiment.population is None else small, stand_in):
        try:
            made = experiment.replace(given)
            with imports(True):
                prepare(made).engine.close()
        except DataError:  # there is no such data pack here
            continue
        except UserError as error:
            return Case(name, None, str(error))
        return Case(name, made)
    return Case(name, None, "its data are not here")
