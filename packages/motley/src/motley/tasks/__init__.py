"""Tasks: model, loss, data and metric.

For data of your own use :func:`from_arrays`, :func:`from_clients` or :func:`from_files`, for a
model of your own :func:`own_task` (all in :mod:`motley.tasks.own`, imported when first used).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from motley.core.components import Catalogue, class_named

if TYPE_CHECKING:
    from motley.tasks.metrics import Metric
    from motley.tasks.own import from_arrays, from_clients, from_files, own_task

__all__ = ["TASKS", "Metric", "from_arrays", "from_clients", "from_files", "own_task"]

TASKS = Catalogue(
    "task",
    {
        "clustered_regression": "motley.tasks.clustered_regression:ClusteredRegression",
        "hf": "motley.tasks.hf:PretrainedModel",
        "image": "motley.tasks.image:Image",
        "own": "motley.tasks.own:Own",
        "quadratic": "motley.tasks.quadratic:Quadratic",
        "synthetic": "motley.tasks.synthetic:Synthetic",
        "tabular": "motley.tasks.tabular:Tabular",
        "tabular_regression": "motley.tasks.tabular:TabularRegression",
        "text": "motley.tasks.text:NextCharacter",
    },
    base="motley.tasks.task:TaskSource",
)


def __getattr__(name: str) -> Any:
    if name == "Metric":
        return importlib.import_module("motley.tasks.metrics").Metric
    if name in __all__:
        return getattr(importlib.import_module("motley.tasks.own"), name)
    catalogues = [TASKS]
    if name[:1].isupper():
        catalogues.append(importlib.import_module("motley.tasks.models").MODELS)
    return class_named(tuple(catalogues), name)
