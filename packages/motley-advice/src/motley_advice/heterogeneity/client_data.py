"""The samples of clients as the estimators read them: classes, rows of samples, and a small random
part of both.

Targets of every kind become classes where that is possible: numbers are cut at the quantiles of all
clients' first target. Samples are read by row, so that memory does not grow with the number of
samples.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from motley.core.arrays import Bools, Floats, Ids, Ints
from motley.core.client_names import name_of
from motley.core.errors import DataError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.preparation import ArrayPreparation, Preparation
from motley.tasks.task import Federation, Targets, label_counts
from motley_advice.heterogeneity.features import cheap_features
from motley_data.table_preparation import NumberColumn, TablePreparation

BINS = 5
"""Quantile bins of a regression's first target, which stand for classes."""
BUDGET = 6000
"""Samples that the estimators of features, concept and label noise read in all."""
CLIENTS = 300
"""Clients that they read at most."""


@dataclass(frozen=True)
class TableColumns:
    """The inputs of a table's samples: names, and ``x * scale + shift`` in raw units; ``column``:
    number of the table's column that each is of; ``fill``: what fills its gaps in raw units, NaN
    where nothing does. Empty where nothing is known."""

    names: tuple[str, ...] = ()
    shift: Floats = field(default_factory=lambda: np.zeros(0))
    scale: Floats = field(default_factory=lambda: np.zeros(0))
    column: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    fill: Floats = field(default_factory=lambda: np.zeros(0))


@dataclass(frozen=True)
class ClientData:
    """The training samples of all clients.

    Parameters
    ----------
    rows: the rows of each client's samples.
    read: returns the samples of rows ``[m]`` as an array ``[m, ...]``.
    labels: aligned with ``rows.values``: int64 classes ``[n]``, a class per position ``[n, T]``, or
    labels 0 and 1 ``[n, C]``.
    classes: number of classes, C.
    targets: the kind of the targets as the task has them.
    columns: of the samples.
    names, class_names: of the clients and the classes; empty: they have none.
    target: the numbers whose quantile bins ``labels`` are ``[n]``; empty for classes.
    """

    rows: Ragged
    read: Callable[[Ints], NDArray[Any]]
    labels: NDArray[Any]
    classes: int
    targets: Targets
    columns: TableColumns = TableColumns()
    names: tuple[str, ...] = ()
    class_names: tuple[str, ...] = ()
    target: Floats = field(default_factory=lambda: np.zeros(0))

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def per_sample(self) -> bool:
        """Whether every sample has one class."""
        return self.targets in ("classes", "numbers")

    def name(self, client: int) -> str:
        """Return a client's name; its number where it has none."""
        return name_of(client, self.names)

    def class_name(self, label: int) -> str:
        """Return a class's name; its number where it has none."""
        return self.class_names[label] if self.class_names else str(label)

    def histogram(self, clients: slice) -> Floats:
        """Return the number of labels per client and class, ``[k, C]``, for clients one after the
        other."""
        first, end, _ = clients.indices(len(self))
        labels = self.labels[slice(*self.rows.offsets[[first, end]].tolist())]
        return label_counts(labels, self.rows.sizes[first:end], self.targets, self.classes)

    def without(self, clients: Collection[int]) -> ClientData:
        """Return the samples of all other clients, which are numbered anew."""
        remaining = ~np.isin(np.arange(len(self)), list(clients))
        sizes = self.rows.sizes
        of_kept = np.repeat(remaining, sizes)
        return dataclasses.replace(
            self,
            rows=Ragged(
                np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes[remaining])]),
                self.rows.values[of_kept],
            ),
            labels=self.labels[of_kept],
            target=self.target[of_kept] if len(self.target) else self.target,
            names=tuple(name for name, keep in zip(self.names, remaining, strict=False) if keep),
        )

    def sample(self, key: Key, budget: int = BUDGET, clients: int = CLIENTS) -> Sample:
        """Return a random part of the samples: at most ``clients`` clients, about equally many
        samples each, ``budget`` in all."""
        held = np.flatnonzero(self.rows.sizes)
        each = max(budget // max(min(len(held), clients), 1), 20)
        shuffled = held[key.fold("clients").numpy().permutation(len(held))[:clients]]
        wanted = np.cumsum(np.minimum(self.rows.sizes[shuffled], each))
        chosen = np.sort(shuffled[: max(int(np.searchsorted(wanted, budget, side="right")), 1)])
        drawn = [
            _some(key.fold("rows", int(k)), self.rows.offsets[k], int(self.rows.sizes[k]), each)
            for k in chosen
        ]
        at = np.concatenate(drawn)
        owner = np.repeat(np.arange(len(chosen)), [len(positions) for positions in drawn])
        return Sample(
            clients=chosen,
            owner=owner,
            x=cheap_features(self.read(self.rows.values[at]), key),
            y=self.labels[at],
            classes=self.classes,
        )


@dataclass(frozen=True)
class Sample:
    """A random part of the clients' samples.

    Parameters
    ----------
    clients: ids of the S clients drawn, ascending.
    owner: position in ``clients`` of each sample's client ``[m]``.
    x: float32 cheap features ``[m, d]``.
    y: int64 classes ``[m]``.
    classes: C.
    """

    clients: Ids
    owner: Ids
    x: NDArray[np.float32]
    y: Ints
    classes: int

    def part(self, which: Bools) -> Sample:
        """Return the sample with some of its samples ``[m]``."""
        return dataclasses.replace(self, owner=self.owner[which], x=self.x[which], y=self.y[which])


def _some(key: Key, first: int, size: int, each: int) -> Ints:
    """Return the positions of at most ``each`` of a client's samples, ascending."""
    return np.sort(key.numpy().choice(size, min(size, each), replace=False)) + first


def of_federation(
    federation: Federation, first: Ints | None = None, names: Ints | None = None
) -> ClientData:
    """Return the training samples of a federation, with the labels that its clients have.

    Parameters
    ----------
    first: the position at which each client's window of ``federation.seen`` samples begins ``[K]``,
    under a drift; None: 0.
    names: what each client calls each class now, ``[K, C]``, under a drift; None: classes keep
    their names.
    """
    rows = federation.train
    labels = federation.labels.cpu().numpy()
    if federation.window is not None:
        begin = np.zeros(len(rows), np.int64) if first is None else first
        seen = Ragged(
            np.concatenate([np.zeros(1, np.int64), np.cumsum(federation.seen)]),
            np.zeros(0, np.int64),
        )
        within = np.arange(seen.offsets[-1]) - np.repeat(seen.offsets[:-1], seen.sizes)
        at = rows.offsets[:-1][seen.owner] + (within + begin[seen.owner]) % rows.sizes[seen.owner]
        rows = Ragged(seen.offsets, rows.values[at])
        labels = labels[at]
    if names is not None:
        labels = names[rows.owner, labels]

    def read(at: Ints) -> NDArray[Any]:
        return np.asarray(federation.x[torch.from_numpy(at)].cpu().numpy())

    columns = _columns(federation.preparation)
    clients = federation.client_names
    if federation.classes is None:
        target = np.asarray(labels, np.float64).reshape(len(labels), -1)[:, 0]
        return ClientData(
            rows=rows,
            read=read,
            labels=quantile_bins(target, BINS),
            classes=BINS,
            targets="numbers",
            columns=columns,
            names=clients,
            target=target,
        )
    return ClientData(
        rows=rows,
        read=read,
        labels=labels,
        classes=federation.classes,
        targets=federation.targets,
        columns=columns,
        names=clients,
        class_names=tuple(federation.names),
    )


def _columns(preparation: Preparation | None) -> TableColumns:
    """Return the names and raw units of prepared columns; a client that has statistics of its own
    keeps its own units."""
    if isinstance(preparation, ArrayPreparation) and len(preparation.shape) == 1:
        names = tuple(f"column {j}" for j in range(preparation.shape[0]))
        return TableColumns(
            names=names,
            shift=np.asarray(preparation.shift),
            scale=np.asarray(preparation.scale),
            column=np.arange(len(names)),
            fill=np.full(len(names), np.nan),
        )
    if not isinstance(preparation, TablePreparation):
        return TableColumns()
    names = tuple(name for column in preparation.columns for name in column.inputs())
    parts = []
    for column in preparation.columns:
        scale = (0.0, 1.0, np.nan)
        if isinstance(column, NumberColumn) and not preparation.clients:
            scale = (float(column.mean[0]), float(column.deviation[0]), float(column.fill[0]))
        parts += [scale for _ in column.inputs()]
    return TableColumns(
        names=names,
        shift=np.array([mean for mean, _, _ in parts]),
        scale=np.array([deviation for _, deviation, _ in parts]),
        column=np.array(
            [j for j, column in enumerate(preparation.columns) for _ in column.inputs()], np.int64
        ),
        fill=np.array([fill for _, _, fill in parts]),
    )


def of_arrays(features: ArrayLike, labels: ArrayLike, client_ids: ArrayLike) -> ClientData:
    """Return the samples of plain arrays.

    Parameters
    ----------
    features: ``[n, ...]`` numbers.
    labels: ``[n]`` classes as whole numbers or strings, or real numbers of a regression.
    client_ids: ``[n]`` numbers or strings; clients are numbered in sorted order.

    Raises
    ------
    DataError: lengths that differ, no samples, or features or labels that are no finite numbers.
    """
    x = np.asarray(features)
    y = np.asarray(labels)
    ids = np.asarray(client_ids)
    if not len(x) == len(y) == len(ids) or not len(x):
        raise DataError(
            f"got {len(x)} features, {len(y)} labels and {len(ids)} client ids; expected one of "
            "each per sample, and a sample"
        )
    if y.ndim != 1 or ids.ndim != 1:
        raise DataError(
            f"got labels {list(y.shape)} and client ids {list(ids.shape)}; expected one of each "
            "per sample, [n]"
        )
    if x.dtype.kind not in "biuf" or (x.dtype.kind == "f" and not np.isfinite(x).all()):
        raise DataError("the features are not all finite numbers; fill gaps and encode words first")
    if y.dtype.kind == "f" and not np.isfinite(y).all():
        raise DataError(
            f"{int((~np.isfinite(y)).sum())} of {len(y)} labels are no finite numbers; leave these "
            "samples out: features[np.isfinite(labels)], and so on"
        )
    order = np.argsort(ids, kind="stable")
    distinct, sizes = np.unique(ids, return_counts=True)
    clients = tuple(
        f"client {client}" if ids.dtype.kind in "biuf" else str(client)
        for client in distinct.tolist()
    )
    rows = Ragged(np.concatenate([[0], np.cumsum(sizes)]), order)
    if y.dtype.kind == "f" and len(np.unique(y)) > 2 * BINS:
        return ClientData(
            rows=rows,
            read=lambda at: x[at],
            labels=quantile_bins(y[order], BINS),
            classes=BINS,
            targets="numbers",
            names=clients,
            target=np.asarray(y[order], np.float64),
        )
    names, classes = np.unique(y, return_inverse=True)
    labels = classes[order].astype(np.int64)
    class_names = tuple(map(str, names.tolist()))
    return ClientData(
        rows=rows,
        read=lambda at: x[at],
        labels=labels,
        classes=len(names),
        targets="classes",
        names=clients,
        class_names=class_names,
    )


def quantile_bins(target: Floats, number: int) -> Ints:
    """Return the quantile bin of each number ``[n]``, of so many bins."""
    edges = np.quantile(target, np.arange(1, number) / number)
    return np.searchsorted(edges, target, side="right")
