"""Model, loss, data and metric."""

from __future__ import annotations

from motley.core.components import Catalogue

__all__ = ["TASKS"]

TASKS = Catalogue(
    "task",
    {
        "image": "motley.tasks.image:Image",
        "quadratic": "motley.tasks.quadratic:Quadratic",
        "synthetic": "motley.tasks.synthetic:Synthetic",
        "tabular": "motley.tasks.tabular:Tabular",
        "tabular_regression": "motley.tasks.tabular:TabularRegression",
    },
)
