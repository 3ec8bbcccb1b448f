"""Deployments on the tests' grid in one process: real messages, and a clock that only waiting
moves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from same_results import trees

__all__ = ["DEPLOYMENTS", "STRATEGIES", "chosen", "deployed"]

_BASE: dict[str, Any] = {
    "name": "deployed",
    "population": 6,
    "cohort": 3,
    "stop": {"rounds": 4},
    "task": {"name": "image", "data": "digits", "model": "digits_mlp"},
    "split": {"test": "global"},
    "partition": {"name": "dirichlet", "alpha": 0.5},
    "local": {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
    "evaluate": {"every": 1},
    "engine": {"name": "sequential", "threads": 1},
    "dtype": "float64",
}
_FIFTH = {"name": "constant", "average": 0.2}
_VALIDATED = {"test": "client", "validation": 0.2}
_SLOW = {client: 1.0 + 2.0 * client for client in range(6)}

BUFFER = {"name": "buffered", "refill": "idle"}

DEPLOYMENTS: dict[str, tuple[dict[str, Any], Mapping[int, float]]] = {
    "synchronous": ({**_BASE, "selector": {"name": "power_of_choice", "d": 5}}, {}),
    "buffered": (
        {
            **_BASE,
            "cohort": 4,
            "stop": {"rounds": 8},
            "weights": "uniform",
            "synchrony": {**BUFFER, "buffer": 2},
        },
        _SLOW,
    ),
    "asynchronous": (
        {**_BASE, "stop": {"rounds": 6}, "synchrony": "asynchronous", "weights": "uniform"},
        _SLOW,
    ),
    "deadline": (
        {**_BASE, "synchrony": {"name": "deadline", "seconds": 10.0, "over_select": 1.67}},
        {5: 12.0, 2: 4.0},
    ),
    "scaffold, compressed": (
        {
            **_BASE,
            "algorithm": {"name": "scaffold"},
            "weights": "uniform",
            "compressor": {"name": "topk"},
            "quantizer": {"name": "qsgd", "levels": 15},
            "budget": {"name": "constant", "average": 0.2},
            "feedback": {"name": "fixed"},
            "selector": {"name": "hetero_select_v1"},
        },
        {},
    ),
    "ef21": (
        {**_BASE, "weights": "uniform", "compressor": "topk", "budget": _FIFTH, "feedback": "ef21"},
        {},
    ),
    "feddyn, signs": (
        {
            **_BASE,
            "algorithm": "feddyn",
            "weights": "uniform",
            "compressor": "signs",
            "feedback": "fixed",
        },
        {},
    ),
    "moon, fedpaq": (
        {**_BASE, "algorithm": "moon", "compressor": {"name": "fedpaq", "levels": 5}},
        {},
    ),
    "randomk": ({**_BASE, "compressor": "randomk", "budget": _FIFTH, "selector": "oort"}, {}),
    "tensor_drop": (
        {**_BASE, "compressor": "tensor_drop", "budget": {"name": "constant", "average": 0.6}},
        {},
    ),
    "terngrad": ({**_BASE, "compressor": "terngrad", "selector": "divfl"}, {}),
    "qfedavg": (
        {
            **_BASE,
            "algorithm": "qfedavg",
            "weights": "uniform",
            "selector": "flash",
            "split": _VALIDATED,
        },
        {},
    ),
    "score and server momentum": (
        {
            **_BASE,
            "selector": "hetero_select",
            "weights": "score",
            "server": "momentum",
            "compressor": "topk",
            "allocator": {"name": "by_score", "cap": "none"},
            "budget": _FIFTH,
            "feedback": "adaptive",
        },
        {},
    ),
    "rehearsed": (
        {
            **_BASE,
            "selector": {
                "name": "fedcor",
                "warmup": 1,
                "interval": 2,
                "first_iterations": 10,
                "iterations": 5,
            },
        },
        {},
    ),
}
"""By name: keys of the experiment, and seconds that clients take to answer where it is not one."""

STRATEGIES: dict[str, Any] = {
    name: {"name": name}
    for name in (
        "uniform",
        "power_of_choice",
        "oort",
        "hetero_select_v1",
        "flash",
        "linucb",
        "ucb1",
        "fedcbs",
        "divfl",
    )
}
"""Selectors that choose for Flower's ``FedAvg``."""


def deployed(tree: Path, keys: Mapping[str, Any], delays: Mapping[int, float], folder: Path) -> Any:
    """Run one of them to its end, and load its results from ``folder / "real"``."""
    import motley

    trees.stand_ins(tree)
    sites = trees.sites(tree)
    experiment = motley.Experiment(**keys)
    return sites.deploy(
        sites.federation(experiment, folder, dict(delays)), experiment, folder / "real"
    )


def chosen(tree: Path, record: Any) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Five rounds of ``FedAvg`` with a selector: the rows of who took part, and the arrays in the
    end."""
    import motley

    with_selector = trees.module(tree, "motley_flower").with_selector

    trees.stand_ins(tree)
    apps = trees.apps(tree)
    strategy = sys.modules["flwr.serverapp.strategy"].FedAvg(fraction_evaluate=0.0)
    grid = apps.grid(9)
    selector = motley.selectors.build(record, seed=3, horizon=20)
    wrapped = with_selector(strategy, selector, 3, clock=grid.clock)
    result = wrapped.start(grid, apps.model(), num_rounds=5, timeout=100)
    rows = [{**vars(row), "signals": _plain(row.signals)} for row in trees.took_part(tree, wrapped)]
    return rows, {name: array.numpy() for name, array in result.arrays.items()}


def _plain(signals: Mapping[str, Any]) -> str:
    return json.dumps(
        {
            name: value.tolist() if hasattr(value, "tolist") else value
            for name, value in signals.items()
        }
    )
