"""Tasks: model, loss, data and metric.

For data of your own use :func:`from_arrays`, :func:`from_clients` or :func:`from_files`, which
the distribution ``motley-data`` adds, for a model of your own :func:`own_task`; they are imported
when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from motley.core.components import Catalogue, class_named
from motley.core.extensions import added_function

if TYPE_CHECKING:
    from motley.tasks.metrics import Metric
    from motley.tasks.own import own_task
    from motley_data.own_federation import from_arrays, from_clients, from_files

__all__ = ["TASKS", "Metric", "from_arrays", "from_clients", "from_files", "own_task"]

TASKS = Catalogue(
    "task",
    {
        "clustered_regression": "motley.tasks.clustered_regression:ClusteredRegression",
        "image": "motley.tasks.image:Image",
        "own": "motley.tasks.own:Own",
        "quadratic": "motley.tasks.quadratic:Quadratic",
        "synthetic": "motley.tasks.synthetic:Synthetic",
    },
    base="motley.tasks.task:TaskSource",
    beside={
        "hf": "PretrainedModel",
        "tabular": "Tabular",
        "tabular_regression": "TabularRegression",
        "text": "NextCharacter",
    },
)
_ADDED = ("from_arrays", "from_clients", "from_files")
"""Functions of the distribution ``motley-data``."""


def __getattr__(name: str) -> Any:
    if name == "Metric":
        return importlib.import_module("motley.tasks.metrics").Metric
    if name in _ADDED:
        return added_function(name)
    if name in __all__:
        return getattr(importlib.import_module("motley.tasks.own"), name)
    catalogues = [TASKS]
    if name[:1].isupper():
        catalogues.append(importlib.import_module("motley.tasks.models").MODELS)
    return class_named(tuple(catalogues), name)
