"""Tables with a class or number to predict:
``task = { name = "tabular", data = "breast_cancer" }``."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from torch import nn
from typing_extensions import override

from motley.core.errors import ConfigError, DataError
from motley.core.files import files_digest
from motley.core.keys import Key
from motley.tasks.models import Model, factory
from motley.tasks.task import Dataset, TaskSource
from motley_data.public_classes import Classes, with_classes
from motley_data.row_splits import RowSplit, row_split
from motley_data.row_times import TOML_LINE, check_no_windows, warn_of_times
from motley_data.table_options import TableOptions
from motley_data.table_readers import BUILTIN, read_table


@dataclass(frozen=True)
class Tabular(TableOptions, TaskSource):
    """Classification of the rows of a table: numbers and words, with gaps.

    How the file is written and how its columns become model inputs are the options of
    :class:`~motley_data.table_options.TableOptions`.

    Parameters
    ----------
    data: ``breast_cancer``, ``iris`` or ``wine`` (scikit-learn's), or the path of an ``.npz``
        (arrays ``x``, ``y`` and perhaps ``client``), ``.parquet`` or ``.csv`` file.
    label: the column of targets.
    client: the column of client ids, which define the natural clients; None: there are none.
    client_groups: the column ``client`` holds numbers, which are cut into so many groups of about
        equal size, the clients; None: each of its entries is a client.
    model: a name of :data:`motley.tasks.models.MODELS`, or its record.
    dropout: of the model, if it has dropout layers.
    classes: of a file, the number of classes or the list of their names; left out: those of its
    labels, which a private run refuses.
    heads: number of each class's head, see :class:`motley.tasks.task.Task`.
    test: which of each client's rows test, in place of a random share: the last in time,
        ``{ last = 0.2, by = "day" }``, or whole groups, ``{ groups = 0.2, by = "patient" }``; the
        column is no input, and ``by = "order"`` means the order of the rows.
    """

    data: str = "breast_cancer"
    label: str = "label"
    client: str | None = None
    client_groups: int | None = None
    model: str | Mapping[str, Any] | Model = "logistic_regression"
    dropout: float = 0.0
    heads: tuple[int, ...] = ()
    classes: Classes = None
    test: Mapping[str, Any] = field(default_factory=dict)

    has_classes: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self._divided()
        if self.client_groups is not None and (self.client is None or self.client_groups < 2):
            raise ConfigError(
                f"got client_groups = {self.client_groups} and client = {self.client!r}; expected "
                "at least 2 groups of the numbers of "
                'a column, e.g. client = "mean radius", client_groups = 20'
            )

    @cached_property
    def options(self) -> TableOptions:
        """How the file is written, and how its columns become inputs."""
        return TableOptions(
            **{f.name: getattr(self, f.name) for f in dataclasses.fields(TableOptions)}
        )

    def _divided(self) -> RowSplit | None:
        split = row_split(self.test)
        if split is None and self.test:
            raise ConfigError(
                f"test: got {', '.join(self.test)}; expected {{ last = 0.2, by = "
                '"day" } or { groups = 0.2, by = "patient" }'
            )
        return split

    @override
    def files_digest(self) -> str:
        return "" if self.data in BUILTIN else files_digest(self.data)

    @override
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        dataset = read_table(
            self.data,
            self.label,
            self.client,
            self.has_classes,
            options=self.options,
            client_groups=self.client_groups,
            test=self._divided(),
        )
        if self.has_classes and dataset.y.dim() > 1:
            raise DataError(
                f"{self.data}: labels of shape {list(dataset.y.shape)}; expected one class per row"
            )
        if self.data not in BUILTIN or self.classes is not None:
            dataset = with_classes(dataset, self.classes, self.data)
        if not dataset.test.any() and dataset.divided is None:
            check_no_windows(dataset, TOML_LINE)
        if dataset.table is not None:
            return dataset
        return dataclasses.replace(dataset, x=dataset.x.float())

    @override
    def warn_of_order(self, dataset: Dataset) -> None:
        warn_of_times(dataset, TOML_LINE)

    @override
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        return factory(
            self.model,
            tuple(dataset.x.shape[1:]),
            dataset.classes or dataset.y.shape[1],
            self.dropout,
        )


@dataclass(frozen=True)
class TabularRegression(Tabular):
    """Regression on rows of numbers (half the squared error); scikit-learn's ``diabetes`` by
    default.

    Targets are not scaled: scale them in the file if their size matters for the learning rate.
    """

    loss: ClassVar[str] = "half_squared_error"
    metric: ClassVar[Literal["accuracy", "loss"]] = "loss"

    data: str = "diabetes"
    model: str | Mapping[str, Any] | Model = "linear"

    has_classes: ClassVar[bool] = False
