"""One experiment of the list, and what many of them are made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "DIGITS",
    "EXPERIMENTS",
    "FIFTH",
    "LINKS",
    "LOSSY",
    "NORMED",
    "ONE",
    "PARABOLAS",
    "SGD",
    "SPEEDS",
    "STEPS",
    "SYNTHETIC",
    "VALIDATED",
    "Case",
    "Keys",
    "add",
]

Keys = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One experiment: its keys, and how it is run.

    Parameters
    ----------
    keys: of the experiment file. own: the name of a task made in Python (:mod:`same_results.own`),
    or none.
    stop_after: server steps after which the run is broken off, to be resumed from its checkpoint;
    0: never.
    pack: file of a data pack without which the experiment is skipped; none: it needs no pack.
    threads: of torch and of engines.
    """

    keys: Keys = field(default_factory=dict)
    own: str | None = None
    stop_after: int = 0
    pack: str | None = None
    threads: int = 1


EXPERIMENTS: dict[str, Case] = {}
"""By name."""


def add(name: str, base: Keys, how: Case | None = None, **keys: Any) -> None:
    """Put one experiment into the list: a base with some keys replaced whole."""
    if name in EXPERIMENTS:
        raise ValueError(f"there are two experiments {name!r}")
    how = how or Case()
    EXPERIMENTS[name] = Case(
        {"name": "same", **base, **keys}, how.own, how.stop_after, how.pack, how.threads
    )


ONE = {"name": "sequential", "threads": 1}
SGD = {"name": "sgd", "lr": 0.05}
STEPS = {"steps": 3, "batch_size": 16, "optimizer": SGD}
LINKS = {"name": "uniform", "up_mbps": [1.0, 5.0], "down_mbps": [5.0, 20.0]}
SPEEDS = {"name": "uniform", "low": 0.1, "high": 0.5}
VALIDATED = {"test": "client", "validation": 0.2}
BUFFER = {"name": "buffered", "refill": "idle"}
FIFTH = {"name": "constant", "average": 0.2}

DIGITS: Keys = {
    "population": 10,
    "cohort": 4,
    "stop": {"rounds": 5},
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "split": {"test": "global"},
    "partition": {"name": "dirichlet", "alpha": 0.5, "min_size": 5},
    "local": STEPS,
    "device": SPEEDS,
    "network": LINKS,
    "evaluate": {"every": 2},
    "engine": ONE,
}
SYNTHETIC: Keys = {
    "population": 8,
    "cohort": 3,
    "stop": {"rounds": 5},
    "task": {"name": "synthetic", "dim": 8, "classes": 4, "examples": 40, "sizes": "equal"},
    "local": {"epochs": 1, "batch_size": 8, "optimizer": {"name": "sgd", "lr": 0.1}},
    "device": SPEEDS,
    "network": LINKS,
    "evaluate": {"every": 2},
    "engine": ONE,
}
PARABOLAS: Keys = {
    "population": 8,
    "cohort": 3,
    "stop": {"rounds": 6},
    "task": {"name": "quadratic", "dim": 3, "examples": [4] * 8},
    "local": {"epochs": 2, "batch_size": 2, "optimizer": {"name": "sgd", "lr": 0.1}},
    "device": SPEEDS,
    "network": LINKS,
    "evaluate": {"every": 2},
    "engine": ONE,
    "dtype": "float64",
}
NORMED = {"name": "image", "data": "digits", "model": {"name": "digits_mlp", "norm": "batch"}}
LOSSY = {"name": "drop_out", "rate": 0.2}
