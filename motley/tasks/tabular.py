"""``task = { name = "tabular", data = "breast_cancer" }``: tables of numbers, with classes or a number to predict."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn

from motley.core.keys import Key
from motley.tasks.base import Pool, TaskSource
from motley.tasks.models import factory
from motley.tasks.tables import read_table, standardised

__all__ = ["Tabular", "TabularRegression"]


@dataclass(frozen=True)
class Tabular(TaskSource):
    """Rows of numbers that belong to classes.

    Parameters
    ----------
    data: ``breast_cancer``, ``iris`` or ``wine`` (scikit-learn's), or the path of an ``.npz`` (arrays ``x``, ``y`` and
        perhaps ``client``), ``.parquet`` or ``.csv`` file.
    label: the column of targets. client: the column that says whose each row is; those are the natural clients.
    model: a name of :data:`motley.tasks.models.MODELS`, or its record. dropout: of the model, where it has any.
    scale: ``standard``: every column to mean 0 and deviation 1 over all rows (READING: the split is drawn later); ``none``.
    """

    data: str = "breast_cancer"
    label: str = "label"
    client: str | None = None
    model: str | Mapping[str, Any] = "logistic_regression"
    scale: Literal["standard", "none"] = "standard"
    dropout: float = 0.0

    _classes: ClassVar[bool] = True

    def pool(self, key: Key, population: int, folder: Path | None = None) -> Pool:
        """The rows, float32 and scaled."""
        pool = read_table(self.data, self.label, self.client, self._classes)
        return dataclasses.replace(pool, x=standardised(pool.x) if self.scale == "standard" else pool.x.float())

    def factory(self, pool: Pool) -> Callable[[], nn.Module]:
        """Modules for so many columns and classes (or targets)."""
        return factory(self.model, tuple(pool.x.shape[1:]), pool.classes or pool.y.shape[1], self.dropout)


@dataclass(frozen=True)
class TabularRegression(Tabular):
    """The same with a number to predict (half the squared error); scikit-learn's ``diabetes`` by default.

    Targets are used as they are: scale them in the file where their size matters to the learning rate.
    """

    loss: ClassVar[str] = "half_squared_error"
    metric: ClassVar[Literal["accuracy", "loss"]] = "loss"

    data: str = "diabetes"
    model: str | Mapping[str, Any] = "linear"

    _classes: ClassVar[bool] = False
