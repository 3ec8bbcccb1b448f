"""Draw compositions: tiny experiments whose parts are drawn from the registry one by one, each with
its switches turned at random.

Where :mod:`chaos.combinations` mixes the parts of experiments that are known to run, these are
mixed from what the registry offers, so that a component that was added yesterday is drawn as well.
A composition that is refused is mended by leaving out, or drawing again, one of its parts, as a
user would; every such refusal is a test of its own: anything but a sentence for users is a fault.
"""

from __future__ import annotations

import dataclasses
import os
import random
import typing
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from privacy.combinations import PRIVACY, privacy_table
from same_results import coverage
from same_results.cases import SPEEDS
from same_results.digests import filled
from same_results.experiments import EXPERIMENTS
from same_results.own import made

from chaos.combinations import Entry, Keys, threads_of
from motley.algorithms.local_optimisers import Clip
from motley.algorithms.weights import Weighting
from motley.core.errors import UserError
from motley.experiments import document, registry
from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.experiments.run import with_own
from motley.selectors.defence import Defence
from motley.tasks.metrics import known
from motley.timing.stragglers import Stragglers
from motley_privacy.options import Privacy

__all__ = [
    "SHARES",
    "SLOW",
    "Composition",
    "Compositions",
    "RefusedError",
    "Repeat",
    "checked",
    "laid",
    "own_task",
]

Parts = dict[str, Keys]
"""What was drawn, by axis: the keys that each part sets."""
Draw = Callable[[random.Random], Keys]

BASE: Keys = {
    "name": "composed",
    "stop": {"rounds": 3},
    "cohort": 3,
    "evaluate": {"every": 2},
    "checkpoint": {"every_rounds": 1},
    "local": {
        "epochs": 1,
        "batch_size": 16,
        "max_steps": 2,
        "optimizer": {"name": "sgd", "lr": 0.05},
    },
    "device": SPEEDS,
    "network": {"name": "uniform", "up_mbps": [1.0, 5.0], "down_mbps": [5.0, 20.0]},
    "engine": {"name": "sequential", "threads": 1},
}
PICTURES: Keys = {
    "task": {
        "name": "image",
        "data": "{files}/pictures.npz",
        "model": {"name": "mlp", "hidden": [6]},
    }
}
TASKS: tuple[tuple[Keys, str | None], ...] = (
    (
        {
            "task": {"name": "synthetic", "dim": 4, "classes": 3, "examples": 16, "sizes": "equal"},
            "population": 6,
        },
        None,
    ),
    (
        {
            "task": {
                "name": "synthetic",
                "dim": 4,
                "classes": 4,
                "examples": 24,
                "model": {"name": "mlp", "hidden": [5]},
            },
            "population": 7,
        },
        None,
    ),
    ({"task": {"name": "quadratic", "dim": 3}, "population": 6}, None),
    ({"task": {"name": "clustered_regression", "examples": 12}, "population": 6}, None),
    (
        {
            "task": {"name": "tabular", "data": "{files}/table.csv", "label": "kind"},
            "population": 6,
        },
        None,
    ),
    (
        {
            "task": {
                "name": "tabular",
                "data": "{files}/table.csv",
                "label": "kind",
                "client": "owner",
            },
            "partition": "by_writer",
        },
        None,
    ),
    ({"task": {"name": "tabular_regression"}, "population": 6}, None),
    (
        {
            "task": {
                "name": "text",
                "data": "{files}/texts",
                "window": 5,
                "model": {"name": "leaf_lstm", "hidden": 4},
            }
        },
        None,
    ),
    (
        {
            "task": {
                "name": "text",
                "data": "{files}/texts",
                "window": 5,
                "model": {
                    "name": "transformer",
                    "width": 4,
                    "layers": 1,
                    "heads": 1,
                    "targets": "every",
                },
                "targets": "every",
            }
        },
        None,
    ),
    ({**PICTURES, "population": 6}, None),
    (
        {
            "task": {
                "name": "image",
                "data": "{files}/digits.npz",
                "model": {"name": "digits_mlp", "hidden": [6, 6]},
            },
            "population": 6,
        },
        None,
    ),
    (
        {
            "task": {
                "name": "image",
                "data": "{files}/digits.npz",
                "model": {"name": "digits_mlp", "hidden": [6, 6], "norm": "batch"},
            },
            "population": 6,
        },
        None,
    ),
    (
        {
            "task": {
                "name": "image",
                "data": "{files}/written.npz",
                "model": {"name": "mlp", "hidden": [6]},
            },
            "partition": "by_writer",
        },
        None,
    ),
    (
        {
            "task": {"name": "image", "data": "{files}/leaf", "model": "linear"},
            "partition": "by_writer",
        },
        None,
    ),
    ({"task": {"name": "own"}}, "classes"),
    ({"task": {"name": "own"}}, "halves"),
    ({"task": {"name": "own"}}, "numbers"),
    ({"task": {"name": "own"}}, "global"),
    ({"task": {"name": "own"}}, "adapters"),
    ({"task": {"name": "own"}}, "merged"),
)
"""Small tasks of every kind: keys, and the name of one that is made in Python."""
PUBLIC: dict[str, Keys] = {
    "image": {"scale": "unit"},
    "tabular": {"scale": "client"},
    "tabular_regression": {"scale": "client"},
    "text": {"alphabet": " abcdefghijklmnopqrstuvwxyz.,"},
}
"""What a private task must say of itself."""
ADAPTED = {
    **dict.fromkeys(("lora_fedavg", "ffa_lora", "fedsa_lora", "flexlora", "hetlora"), "adapters"),
    **dict.fromkeys(("flora", "fedex_lora"), "merged"),
}
"""Algorithms of models with adapters, and the task that has such a model."""
BUDGETED = ("topk", "randomk", "tensor_drop")
"""Compressors that send a share of an update."""
SLOW = {("model", "alexnet"), ("model", "resnet9"), ("model", "resnet18"), ("engine", "processes")}
"""Seconds a run: drawn where it is their turn, and not beside others."""
LAID = ("task", "local", "split", "evaluate", "stop", "checkpoint")
"""Tables to which several parts may add keys."""
COMPONENTS = (
    "partition",
    "label_noise",
    "feature_shift",
    "concept_shift",
    "drift",
    "algorithm",
    "loss",
    "aggregator",
    "server",
    "selector",
    "device",
    "network",
    "availability",
    "capacity",
    "failures",
    "dishonest",
    "synchrony",
    "compressor",
    "quantizer",
    "feedback",
    "allocator",
    "budget",
)
COMPANIONS = (
    "weights",
    "selector",
    "compressor",
    "budget",
    "allocator",
    "feedback",
    "quantizer",
    "split",
    "algorithm",
    "loss",
    "public",
    "capacity",
    "aggregator",
    "method",
)
"""Keys that a component may need beside it: taken, too, from an experiment that uses it."""
OF_SAMPLES = ("partition", "label_noise", "feature_shift", "concept_shift")
"""Kinds that change samples, which a task made in Python has for good."""
PLACES = {"optimizer": "local", "lr_schedule": "local", "model": "task"}
"""Kinds whose component stands in a table."""
SHARES = (0.08, 0.15, 0.25)
"""Shares of the axes that compositions draw beside the component whose turn it is."""
MENDED = 14
"""Times that a refused composition is mended before it is drawn anew."""
DRAWN_ANEW = 6
"""Times that a composition with a component is drawn before it counts as refused."""


class Repeat(NamedTuple):
    """A composition that was refused, and the key that the sentence named, if any."""

    sentence: str
    key: str | None


class RefusedError(Exception):
    """No composition with a component was accepted, mended as it was."""


@dataclasses.dataclass(frozen=True)
class Composition:
    """One drawn experiment.

    Parameters
    ----------
    keys: of the experiment file. own: the name of a task made in Python, or none. entry: that it
    had to use. parts: what was drawn, by axis. refused: the sentences with which earlier forms of
    it were refused.
    """

    keys: Keys
    own: str | None
    entry: Entry
    parts: Parts
    refused: tuple[str, ...]


def laid(parts: Iterable[Keys]) -> Keys:
    """Return the keys of several parts, later ones over earlier ones; of the tables that they
    share, key by key."""
    out: Keys = {}
    for part in parts:
        for key, value in part.items():
            both = key in LAID and isinstance(out.get(key), Mapping)
            out[key] = {**out[key], **value} if both else value
    return {key: value for key, value in out.items() if value is not None}


own_task = cache(made)
"""A task made in Python, once: it changes in no run."""


def checked(keys: Keys, own: str | None) -> Experiment:
    """Return the experiment after all checks that come before its first round.

    Raises
    ------
    UserError: they refuse it.
    """
    os.environ["OMP_NUM_THREADS"] = threads_of(keys)
    experiment = Experiment(**keys) if own is None else with_own(keys, own_task(own))
    build(experiment).engine.close()
    return experiment


class Compositions:
    """Draws compositions.

    Parameters
    ----------
    files: folder filled by :func:`same_results.files.write`. shares: of all axes that are drawn;
    one of these for each composition.
    """

    def __init__(self, files: Path, shares: tuple[float, ...] = SHARES) -> None:
        self.files = files
        self.shares = shares
        self.seen: dict[Entry, list[Keys]] = {}
        self.beside: dict[Entry, list[Keys]] = {}
        for case in EXPERIMENTS.values():
            keys = filled(case.keys, files)
            others = {key: keys[key] for key in COMPANIONS if key in keys}
            for kind, name, options in coverage.components(
                {key: _named(value) for key, value in keys.items()}
            ):
                kept = self.seen.setdefault((kind, name), [])
                if options not in kept:
                    kept.append(dict(options))
                self.beside.setdefault((kind, name), []).append({**others, **_shared(keys, kind)})
        self.tasks = [(filled(keys, files), own) for keys, own in TASKS]
        self.axes = {**{kind: self._component(kind) for kind in (*COMPONENTS, *PLACES)}, **_TABLES}

    def entries(self) -> list[Entry]:
        """Return every entry of the catalogues that can be run here, the presets, and the tables
        beside components; ``privacy``, which refuses most of what it is drawn beside, several
        times."""
        found = [(kind, row["name"]) for kind in registry.KINDS for row in registry.listing(kind)]
        found += [("method", name) for name in document.presets()]
        found += [("table", name) for name in (*_TABLES, *["privacy"] * 9) if name != "method"]
        return [entry for entry in found if entry not in coverage.ELSEWHERE]

    def draw(self, rng: random.Random, entry: Entry) -> Composition:
        """Return a random experiment that uses ``entry`` and that is accepted.

        Raises
        ------
        RefusedError: none was. Exception: whatever else came out of the checks; ``composition`` of
        it is what they were given.
        """
        refused: list[str] = []
        for _ in range(DRAWN_ANEW):
            parts, own = self._drawn(rng, entry)
            for left in reversed(range(MENDED)):
                keys = laid(parts.values())
                said = self._refusal(Composition(keys, own, entry, parts, tuple(refused)))
                if said is None:
                    return Composition(keys, own, entry, parts, tuple(refused))
                refused.append(said.sentence)
                if not self._mend(rng, entry, parts, said, left > MENDED // 2):
                    break
        raise RefusedError(f"{' '.join(entry)}: {refused[-1]}")

    def _refusal(self, composition: Composition) -> Repeat | None:
        try:
            checked(composition.keys, composition.own)
        except UserError as error:
            return Repeat(f"{type(error).__name__}: {error}", getattr(error, "key", None))
        except BaseException as error:
            error.composition = composition  # type: ignore[attr-defined]
            raise
        return None

    # --------------------------------------------------------------------------------- parts

    def _drawn(self, rng: random.Random, entry: Entry) -> tuple[Parts, str | None]:
        """Return parts that were drawn without regard to each other, the entry that must be among
        them last."""
        kind, name = entry
        tasks = [
            task for task in self.tasks if kind != "task" or task[0]["task"]["name"] == name
        ] or [({"task": self.record(rng, "task", name), "population": 6}, None)]
        if kind in OF_SAMPLES:
            tasks = [task for task in tasks if task[1] is None]
        if kind == "algorithm" and name in ADAPTED:
            tasks = [task for task in self.tasks if task[1] == ADAPTED[name]]
        task, own = rng.choice(tasks)
        share = rng.choice(self.shares)
        parts: Parts = {"base": {**BASE, "seed": rng.randrange(1000)}, "data": task}
        if kind == "task" and rng.random() < 0.5:
            parts["data"] = {**task, "task": {**self.switched(rng, "task", name, task["task"])}}
        for axis in rng.sample(sorted(self.axes), len(self.axes)):
            if axis != kind and rng.random() < share * (0.2 if axis == "model" else 1.0):
                parts[axis] = self.axes[axis](rng)
        for key, value in rng.choice(self.beside.get(entry, [{}])).items():
            if key != kind:
                parts[f"{key} beside"] = {key: value}
        if kind == "table":
            parts[name] = self.axes[name](rng)
        elif kind != "task":
            parts["entry"] = _placed(
                kind, name if kind == "method" else self.record(rng, kind, name)
            )
        if not parts.keys() & {"compressor", "compressor beside"} and parts.keys() & {
            "budget",
            "allocator",
            "feedback",
        }:
            parts["compressor"] = _placed(
                "compressor", self.record(rng, "compressor", rng.choice(BUDGETED))
            )
        self._bounded(parts)
        return parts, own

    def _bounded(self, parts: Parts) -> None:
        """Give a private composition the table that bounds what its selector needs, and a task
        without statistics of all clients."""
        if "privacy" in parts:
            keys = laid(parts.values())
            parts["private task"] = {"task": PUBLIC.get(keys["task"]["name"], {})}
            rule = keys.get("selector", "uniform")
            table = PRIVACY
            with suppress(UserError):  # then it is refused anyway
                table = privacy_table(rule)
            parts["privacy"] = {
                **parts["privacy"],
                "privacy": {**table, **parts["privacy"]["privacy"]},
            }

    def _mend(
        self, rng: random.Random, entry: Entry, parts: Parts, said: Repeat, anew: bool
    ) -> bool:
        """Leave out, or draw anew, a part of a refused composition; return whether there was
        one."""
        drawn = [
            axis
            for axis in parts
            if axis not in ("base", "data", "entry", "private task", *entry[1:])
        ]
        key = (said.key or "").partition(".")[0]
        named = [axis for axis in drawn if key in parts[axis] or axis == key]
        if said.key == "population":
            parts["data"] = {**parts["data"], "population": rng.choice((None, 5, 6))}
            return True
        if not drawn:
            return False
        axis = rng.choice(named if named and rng.random() < 0.85 else drawn)
        del parts[axis]
        if anew and rng.random() < 0.4:
            other = rng.choice(sorted(set(self.axes) - set(entry)))
            last = parts.pop("entry", {})
            parts |= {other: self.axes[other](rng), "entry": last}
        if "privacy" in parts:
            parts["privacy"] = _TABLES["privacy"](rng)
            self._bounded(parts)
        return True

    def _component(self, kind: str) -> Draw:
        def drawn(rng: random.Random) -> Keys:
            names = [
                name
                for name in registry.catalogue(_KIND.get(kind, kind)).names()
                if (kind, name) not in SLOW
            ]
            return _placed(kind, self.record(rng, _KIND.get(kind, kind), rng.choice(names)))

        return drawn

    def record(self, rng: random.Random, kind: str, name: str) -> Keys:
        """Return a component with options of an experiment that is known to run, or with none, and
        some switches turned."""
        if not dataclasses.is_dataclass(registry.catalogue(kind).get(name)):  # an engine
            return rng.choice(self.seen.get((kind, name), [{"name": name}]))
        usual = registry.catalogue(kind).options(name)
        given = [{}] * (not any(option.default is ... for option in usual)) + self.seen.get(
            (kind, name), []
        )
        return self.switched(rng, kind, name, rng.choice(given or [{}]))

    def switched(self, rng: random.Random, kind: str, name: str, options: Keys) -> Keys:
        """Return a component with some of its words, flags and numbers changed."""
        out = {**options, "name": name}
        for option, words in switches(registry.catalogue(kind).get(name)).items():
            if rng.random() < 0.25:
                out[option] = rng.choice(words)
        for option in registry.catalogue(kind).options(name):
            value = out.get(option.name, option.default)
            if type(value) in (int, float) and rng.random() < 0.08:
                out[option.name] = (
                    max(1, value + rng.choice((-1, 1)))
                    if type(value) is int
                    else value * rng.choice((0.5, 1.5))
                )
        return {key: value for key, value in out.items() if value is not None}


_KIND = {"quantizer": "compressor"}


def _named(value: Any) -> Any:
    """Return the value of a key with bare names of components as records."""
    return {"name": value} if isinstance(value, str) else value


def _shared(keys: Keys, kind: str) -> Keys:
    """Return the task of an experiment, and the number of its clients, where a model was made for
    it."""
    return (
        {key: keys.get(key) for key in ("task", "population", "partition")}
        if kind == "model"
        else {}
    )


def _placed(kind: str, record: Any) -> Keys:
    return {PLACES[kind]: {kind: record}} if kind in PLACES else {kind: record}


@cache
def switches(cls: type) -> dict[str, list[Any]]:
    """Return the words and flags that the options of a dataclass take, those without any left
    out."""
    hints = typing.get_type_hints(cls)
    found = {
        field.name: _words(hints[field.name]) for field in dataclasses.fields(cls) if field.init
    }
    return {name: words for name, words in found.items() if words}


def _words(hint: Any) -> list[Any]:
    """Return the words of a Literal and both flags of a bool, also inside a union."""
    if hint is bool:
        return [False, True]
    if typing.get_origin(hint) is typing.Literal:
        return list(typing.get_args(hint))
    many = typing.get_origin(hint) in (tuple, list, dict)
    return [] if many else [word for inner in typing.get_args(hint) for word in _words(inner)]


# ------------------------------------------------------------------------- tables beside components


def _options(cls: type, given: Mapping[str, list[Any]], least: tuple[str, ...] = ()) -> Draw:
    """Return what draws the options of a table: its words and flags, and other values as ``given``;
    ``least``: which it needs."""
    values = {**switches(cls), **given}

    def drawn(rng: random.Random) -> Keys:
        chosen = [name for name in values if name in least or rng.random() < 0.3]
        found = {name: rng.choice(values[name]) for name in chosen}
        return {name: value for name, value in found.items() if value is not None}

    return drawn


def _table(key: str, draw: Draw) -> Draw:
    return lambda rng: {key: draw(rng)}


def _one(key: str, *values: Any) -> Draw:
    return lambda rng: {key: rng.choice(values)}


_PRIVACY = _options(
    Privacy,
    {
        "max_rounds": [2, 3],
        "min_separation": [1, 2],
        "max_signals": [2, 3],
        "max_examples": [5, 20],
        "clip": [0.5, {"initial": 0.5, "quantile": 0.5}],
    },
)


def _private(rng: random.Random) -> Keys:
    """Return a private table; the keys beside it are those without which nothing private is
    accepted."""
    return {
        "weights": rng.choice(("uniform", "examples")),
        "guard": rng.choice(("off", "on")),
        "privacy": _PRIVACY(rng),
    }


_SPLIT: dict[str, list[Any]] = {
    "test": ["client", "global"],
    "test_fraction": [0.2, 0.4],
    "validation": [0.0, 0.2, 0.3],
    "server": [0.0, 0.1],
    "holdout_clients": [0.0, 0.2, 0.34],
}
_WORK: tuple[Keys, ...] = (
    {"epochs": 2},
    {"epochs": None, "max_steps": None, "steps": 2},
    {"epochs": None, "steps": 1},
    {"max_steps": 1},
    {"max_steps": None},
    {"batch_size": 1},
    {"batch_size": 5},
    {"batch_size": 500},
    {"epochs": 3, "max_steps": 4},
)
_STOPS: tuple[Keys, ...] = (
    {"rounds": 1},
    {"rounds": 2},
    {"rounds": 4},
    {"rounds": 5},
    {"rounds": 4, "virtual_hours": 0.001},
    {"rounds": 4, "uplink_gb": 1e-6},
    {"rounds": 4, "target": {"loss": 0.5}},
    {"rounds": 4, "target": {"accuracy": 0.5}},
)
_TABLES: dict[str, Draw] = {
    "split": lambda rng: {
        "split": {name: rng.choice(values) for name, values in _SPLIT.items() if rng.random() < 0.4}
    },
    "work": _one("local", *_WORK),
    "clip": lambda rng: {"local": {"clip": _options(Clip, {"norm": [0.1, 1.0]}, ("norm",))(rng)}},
    "stragglers": lambda rng: {
        "local": {"epochs": 3, "stragglers": _options(Stragglers, {"share": [0.0, 0.5, 1.0]})(rng)}
    },
    "stop": _one("stop", *_STOPS),
    "evaluate": lambda rng: {
        "evaluate": {
            "every": rng.choice((1, 2, 3)),
            "per_client": rng.random() < 0.7,
            "diagnostics": rng.random() < 0.5,
            "adapt_epochs": rng.choice(((0, 1), (2,), ())),
        }
    },
    "weights": _one("weights", *typing.get_args(Weighting)),
    "probe": _one("probe", {"batches": "all"}, {"batches": 1}, {"batches": 2}),
    "metrics": lambda rng: {
        "metrics": rng.sample(known(rng.choice(("classes", "positions", "numbers"))), 2)
    },
    "recalibrate": _one(
        "recalibrate",
        {"batches": 3, "clients": 2},
        {"batches": 2, "clients": 1, "cumulative": True},
    ),
    "guard": _one("guard", "off", "on", {"factor": 1.5, "window": 2}),
    "defence": _table(
        "defence",
        _options(Defence, {"outliers": [1.0, 3.0], "clip": [0.5, 0.95], "cap": [1.0, 2.0]}),
    ),
    "privacy": _private,
    "public": _one("public", 0.2, 0.4),
    "engine": _one(
        "engine",
        *(
            {"name": name, "threads": 1}
            for name in ("auto", "batched", "vmap", "sequential", "debug")
        ),
        {"name": "threads", "threads": 2},
    ),
    "client_state": _one("client_state", "disk", "ram"),
    "dtype": _one("dtype", "float64", "float32"),
    "precision": _one("precision", "bfloat16", "float32"),
    "pin": _one("pin", {"partition": 7}, {"select": 3, "init": 2}),
    "size": _one("cohort", 1, 2, 4, 5, 6),
    "keep": _one("checkpoint", {"keep": False}, {"every_rounds": 2}),
    "heads": _one("task", {"heads": [0, 0, 1, 1]}, {"heads": [0, 0, 0]}),
    "method": lambda rng: {"method": rng.choice(document.presets())},
}
"""Axes that are no components."""
