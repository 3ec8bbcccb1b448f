"""Motley: federated learning where clients differ in data, label quality, speed, bandwidth and
availability.

>>> import motley
>>> selector = motley.Selector(motley.selectors.build("uniform").rule, seed=0)
>>> len(selector.select(1, range(10), m=3).ids)
3

Names are looked up when they are first used: importing Motley loads neither torch nor scikit-learn.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from motley.core.errors import (
        CodecError,
        ConfigError,
        ContractError,
        DataError,
        EngineError,
        ModelError,
        MotleyError,
        NumericsError,
        StoreError,
        UserError,
    )
    from motley.core.keys import Key
    from motley.core.layout import Layout
    from motley.core.paper import Paper
    from motley.core.records import (
        Cohort,
        Outcome,
        Report,
        Reports,
        SelectionContext,
        SignalRequirements,
    )
    from motley.core.table import ClientTable
    from motley.experiments.build import build
    from motley.experiments.config import Experiment
    from motley.experiments.registry import register
    from motley.experiments.run import run
    from motley.experiments.sweep import compare
    from motley.experiments.trained import TrainedRun, load, load_all
    from motley.results.labels import frame
    from motley.results.load import Run
    from motley.selectors.selector import SelectionRule, Selector
    from motley_advice.explanation.explaining import explain
    from motley_advice.inspection.inspecting import inspect
    from motley_advice.tuning.study import tune
    from motley_data.flower_partitions import from_flower
    from motley_report.report import report

__version__ = "0.1.0"

__all__ = [
    "ClientTable",
    "CodecError",
    "Cohort",
    "ConfigError",
    "ContractError",
    "DataError",
    "EngineError",
    "Experiment",
    "Key",
    "Layout",
    "ModelError",
    "MotleyError",
    "NumericsError",
    "Outcome",
    "Paper",
    "Report",
    "Reports",
    "Run",
    "SelectionContext",
    "SelectionRule",
    "Selector",
    "SignalRequirements",
    "StoreError",
    "TrainedRun",
    "UserError",
    "build",
    "compare",
    "explain",
    "frame",
    "from_flower",
    "inspect",
    "load",
    "load_all",
    "register",
    "report",
    "run",
    "tune",
]

_NAMES = {
    "motley.core.errors": (
        "CodecError",
        "ConfigError",
        "ContractError",
        "DataError",
        "EngineError",
        "ModelError",
        "MotleyError",
        "NumericsError",
        "StoreError",
        "UserError",
    ),
    "motley.core.keys": ("Key",),
    "motley.core.layout": ("Layout",),
    "motley.core.paper": ("Paper",),
    "motley.core.records": (
        "Cohort",
        "Outcome",
        "Report",
        "Reports",
        "SelectionContext",
        "SignalRequirements",
    ),
    "motley.core.table": ("ClientTable",),
    "motley.experiments.build": ("build",),
    "motley.experiments.config": ("Experiment",),
    "motley.experiments.registry": ("register",),
    "motley.experiments.run": ("run",),
    "motley.experiments.sweep": ("compare",),
    "motley.results.labels": ("frame",),
    "motley.experiments.trained": ("TrainedRun", "load", "load_all"),
    "motley.results.load": ("Run",),
    "motley.selectors.selector": ("SelectionRule", "Selector"),
}
_ADDED = ("explain", "from_flower", "inspect", "report", "tune")
"""Functions of distributions beside this one."""
_HOME = {name: module for module, names in _NAMES.items() for name in names}
_ROOMS = frozenset(
    (
        "algorithms",
        "core",
        "engines",
        "experiments",
        "results",
        "rounds",
        "selectors",
        "tasks",
        "timing",
        "transport",
        "world",
    )
)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(_HOME[name]), name)
    if name in _ADDED:
        return importlib.import_module("motley.core.extensions").added_function(name)
    if name in _ROOMS:
        return importlib.import_module(f"motley.{name}")
    raise AttributeError(f"module 'motley' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_ROOMS})
