"""Draw random experiments: components of every kind, mixed at random, of which every name in the
catalogues is drawn once.

The parts come from the small experiments of :mod:`same_results.experiments`, which together use
every component in every one of its words; a drawn experiment is one of them in which the parts of
others replace its own, as long as the checks of the configuration and the build accept the mixture.
"""

from __future__ import annotations

import importlib
import json
import os
import random
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from same_results import coverage
from same_results.digests import filled
from same_results.experiments import DIGITS, EXPERIMENTS
from same_results.own import made

from motley import report, run
from motley.core.errors import UserError
from motley.experiments import registry
from motley.experiments.build import build
from motley.experiments.config import Experiment

__all__ = ["Combination", "Drawing", "Entry", "Keys", "threads_of"]

Keys = dict[str, Any]
Entry = tuple[str, str]
"""A kind and a name in its catalogue."""

TOGETHER: tuple[tuple[str, ...], ...] = (
    ("selector", "weights", "allocator", "compressor", "budget", "feedback", "quantizer"),
    ("algorithm", "loss", "public"),
    ("aggregator",),
    ("server",),
    ("synchrony",),
    ("device",),
    ("network",),
    ("availability",),
    ("failures",),
    ("split",),
    ("partition",),
    ("label_noise",),
    ("feature_shift",),
    ("concept_shift",),
    ("drift",),
    ("evaluate",),
    ("recalibrate",),
    ("local",),
    ("dtype",),
    ("method",),
)
"""Keys that one experiment takes over from another in one piece."""
ENGINES: tuple[Keys, ...] = (
    {"name": "auto", "threads": 1},
    {"name": "batched", "threads": 1},
    {"name": "vmap", "threads": 1},
    {"name": "sequential", "threads": 1},
    {"name": "debug"},
    {"name": "threads", "threads": 2},
)
PROCESSES: Keys = {"name": "processes", "workers": 2, "threads": 2}
"""Costs seconds for every attempt, so it is drawn where it must be and seldom elsewhere."""
GUARDS: tuple[Any, ...] = ("off", None)
WARM = (
    "engine vmap",
    "selector fedcor",
    "selector fedstas",
    "task tabular",
    "task text, transformer, last",
)
"""Experiments that together import about everything."""
MUTATIONS = 9
"""Parts that are tried in place of an experiment's own."""


@dataclass(frozen=True)
class Combination:
    """One drawn experiment.

    Parameters
    ----------
    keys: of the experiment file. own: the name of a task made in Python (:mod:`same_results.own`),
    or none. entry: of the catalogues that it had to use. used: all entries that it uses.
    """

    keys: Keys
    own: str | None
    entry: Entry
    used: tuple[Entry, ...]


class Drawing:
    """Draws combinations.

    Parameters
    ----------
    files: folder filled by :func:`same_results.files.write`.
    """

    def __init__(self, files: Path) -> None:
        self.cases = {
            name: case
            for name, case in EXPERIMENTS.items()
            if case.pack is None and "grid" not in case.keys
        }
        self.files = files
        self.given = {
            name: _without_none(filled(case.keys, files)) for name, case in self.cases.items()
        }
        self.users: dict[Entry, list[str]] = {}

    def look(self, out: Path) -> None:
        """Write which entries each experiment of the list uses, and which modules runs import, for
        :meth:`learn`; reading data starts threads, and a process with threads cannot be forked."""
        used = {
            name: sorted(set(_entries(Experiment(**keys)))) for name, keys in self.given.items()
        }
        for name in WARM:
            run(self.given[name], out=out.with_name("warm") / name)
        report(out.with_name("warm") / WARM[0], out.with_name("warm") / "report.html")
        out.write_text(json.dumps({"used": used, "modules": sorted(sys.modules)}), encoding="utf-8")

    def learn(self, file: Path) -> None:
        """Read what :meth:`look` wrote, and import those modules once for all processes to come."""
        found = json.loads(file.read_text(encoding="utf-8"))
        for name, entries in found["used"].items():
            for kind, entry in entries:
                self.users.setdefault((kind, entry), []).append(name)
        for module in found["modules"]:
            with suppress(Exception):  # some cannot be imported by their names
                importlib.import_module(module)

    def entries(self) -> list[Entry]:
        """Return every entry of the catalogues that can be run here; the engine ``ray`` needs a
        cluster."""
        found = [(kind, row["name"]) for kind in registry.KINDS for row in registry.listing(kind)]
        return [entry for entry in found if entry not in coverage.ELSEWHERE]

    def draw(self, rng: random.Random, entry: Entry) -> Combination:
        """Return a random experiment that uses ``entry``.

        Raises
        ------
        UserError: no experiment of the list uses it, and the smallest one does not take it either.
        """
        kind, name = entry
        if entry in self.users:
            base = rng.choice(self.users[entry])
            keys = dict(self.given[base])
            own = self.cases[base].own
        else:
            keys = {**DIGITS, kind: {"name": name}}
            own = None
        keys |= {"name": "chaos", "seed": rng.randrange(1000), "checkpoint": _checkpoint(rng)}
        keys["stop"] = (
            {**keys["stop"], "rounds": rng.randint(6, 14)}
            if "rounds" in keys["stop"]
            else keys["stop"]
        )
        keys = self._mixed(keys, own, rng, entry)
        return Combination(keys, own, entry, tuple(sorted(set(_entries(_checked(keys, own))))))

    def _mixed(self, keys: Keys, own: str | None, rng: random.Random, entry: Entry) -> Keys:
        """Return the keys with parts of other experiments, an engine, a guard and a place for
        client states, as far as they fit."""
        changes: list[Keys] = []
        for together in rng.sample(TOGETHER, MUTATIONS):
            other = self.given[
                rng.choice([name for name, given in self.given.items() if together[0] in given])
            ]
            changes.append({key: other.get(key) for key in together})
        changes += [
            {"client_state": rng.choice(("ram", "disk", "auto"))},
            {"guard": rng.choice(GUARDS)},
        ]
        if entry[0] != "engine":
            changes.append({"engine": PROCESSES if rng.random() < 0.04 else rng.choice(ENGINES)})
        if rng.random() < 0.5 and "validation" not in keys.get("split", {}):
            changes.append({"split": {**keys.get("split", {}), "validation": 0.2}})
        _checked(keys, own)
        for change in changes:
            changed = _without_none({**keys, **change})
            try:
                if entry in set(_entries(_checked(changed, own))):
                    keys = changed
            except UserError:
                continue
        return keys


def _checkpoint(rng: random.Random) -> Keys:
    return {"every_rounds": rng.randint(1, 4), "every_s": 1000.0, "keep": rng.random() < 0.8}


def _checked(keys: Keys, own: str | None) -> Experiment:
    """Return the experiment after all checks that come before its first round.

    Raises
    ------
    UserError: they refuse it.
    """
    os.environ["OMP_NUM_THREADS"] = threads_of(keys)
    experiment = Experiment(**(keys if own is None else {**keys, "task": made(own)}))
    loop = build(experiment)
    loop.engine.close()
    return experiment


def threads_of(keys: Keys) -> str:
    """Return the cores that the experiment's engine asks for, for ``OMP_NUM_THREADS``; no engine
    takes more than that names."""
    return str(keys.get("engine", {}).get("threads", 1))


def _without_none(keys: Keys) -> Keys:
    return {key: value for key, value in keys.items() if value is not None}


def _entries(experiment: Experiment) -> Iterator[Entry]:
    """Yield kind and name of every component that an experiment uses."""
    table: Mapping[str, Any] = experiment.resolved()
    for kind, name, _ in coverage.components(table):
        yield kind, name
