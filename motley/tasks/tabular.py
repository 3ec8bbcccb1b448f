"""Tables of numbers with a class or number to predict: ``task = { name = "tabular", data = "breast_cancer" }``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn
from typing_extensions import override

from motley.core.keys import Key
from motley.tasks.base import Dataset, TaskSource
from motley.tasks.models import factory
from motley.tasks.tables import read_table, standardised

__all__ = ["Tabular", "TabularRegression"]


@dataclass(frozen=True)
class Tabular(TaskSource):
    """Classification of rows of numbers.

    Parameters
    ----------
    data: ``breast_cancer``, ``iris`` or ``wine`` (scikit-learn's), or the path of an ``.npz`` (arrays ``x``, ``y`` and
        perhaps ``client``), ``.parquet`` or ``.csv`` file.
    label: the column of targets. client: the column of client ids, which define the natural clients; None: there are none.
    model: a name of :data:`motley.tasks.models.MODELS`, or its record. dropout: of the model, if it has dropout layers.
    scale: ``standard``: every column to mean 0 and standard deviation 1 over all rows (READING: the split is drawn later); ``none``.
    """

    data: str = "breast_cancer"
    label: str = "label"
    client: str | None = None
    model: str | Mapping[str, Any] = "logistic_regression"
    scale: Literal["standard", "none"] = "standard"
    dropout: float = 0.0

    _classes: ClassVar[bool] = True

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        dataset = read_table(self.data, self.label, self.client, self._classes)
        return dataclasses.replace(dataset, x=standardised(dataset.x) if self.scale == "standard" else dataset.x.float())

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        return factory(self.model, tuple(dataset.x.shape[1:]), dataset.classes or dataset.y.shape[1], self.dropout)


@dataclass(frozen=True)
class TabularRegression(Tabular):
    """Regression on rows of numbers (half the squared error); scikit-learn's ``diabetes`` by default.

    Targets are not scaled: scale them in the file if their size matters for the learning rate.
    """

    loss: ClassVar[str] = "half_squared_error"
    metric: ClassVar[Literal["accuracy", "loss"]] = "loss"

    data: str = "diabetes"
    model: str | Mapping[str, Any] = "linear"

    _classes: ClassVar[bool] = False
