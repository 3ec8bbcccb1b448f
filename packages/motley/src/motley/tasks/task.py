"""Basic types of tasks: data set, federation, model state, task, and the source that an experiment
names.

All samples are in one tensor; a client is a slice of a list of row numbers
(:class:`~motley.core.ragged.Ragged`).
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from typing_extensions import override

from motley.core.arrays import Floats, Ints
from motley.core.card import Carded
from motley.core.client_names import client_in_words
from motley.core.errors import ConfigError, DataError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.ragged import Ragged
from motley.tasks.architectures import Architectures
from motley.tasks.batch_orders import BatchOrder
from motley.tasks.divided_rows import DividedRows
from motley.tasks.flat import (
    LossGradient,
    ModelState,
    construct,
    layout_of,
    of_architecture,
)
from motley.tasks.metrics import Metric
from motley.tasks.origin import Origin
from motley.tasks.own_loss import LossFunction
from motley.tasks.preparation import Preparation, StatisticsTraffic, UnfittedTable
from motley.tasks.targets import IGNORED, NO_CLASSES, SAID, Targets, class_logits, targets_of

__all__ = [
    "IGNORED",
    "NO_CLASSES",
    "SAID",
    "Dataset",
    "Federation",
    "LossGradient",
    "ModelState",
    "Targets",
    "Task",
    "TaskSource",
    "Transform",
    "class_logits",
    "label_counts",
    "model_input",
    "of_architecture",
]


@dataclass(frozen=True)
class Dataset:
    """Samples before they are divided among clients.

    Parameters
    ----------
    x: uint8, int64 or float ``[n, ...]`` (images ``[n, C, H, W]``); int64, such as the characters
    of a text, stays whole numbers.
    y: int64 ``[n]`` classes, int64 ``[n, T]`` a class per position (:data:`IGNORED` where there is
    none), float ``[n, C]`` labels (multi-label, 0 or 1), or float ``[n, d]`` numbers.
    classes: number of classes or of labels, C; None for regression.
    test: bool ``[n]``, whether a row is in the data set's own test half.
    groups: int64 ``[n]``, the natural client of each row (writer), or None.
    client_names: of the natural clients, by their number in ``groups``; empty: they have none.
    names: class names, for plots.
    notes: remarks of the loader for readers of the results.
    black_white: values of black and white in the units of ``x``, a number each or one per channel
    ``[C]``.
    preparation: the map from raw samples to ``x``, for new samples; None where ``x`` is what users
    have.
    table: the columns that become ``x`` when training rows are known (``x`` then holds raw values);
    None: ``x`` is final.
    measured: what was worked out from the rows of all clients and changes their samples, their
    targets or the model's shape: a phrase -> the key and the line that do without. A private run
    refuses it, so a source that measures must say so.
    generated: the rows were drawn by a source that made up the clients, too, and belong to nobody.
    divided: by what clients divide their rows, in place of drawing test rows one by one; None.
    target_shape: of a sample's targets per pixel, e.g. ``(H, W)``, which ``y`` has as positions
    ``[n, H * W]``; empty: as ``y`` has them.
    reading: how the columns of a table were read; None: it was none.
    places: int64 ``[n]``, the place of each row in its half of the original files; None: rows stand
    in that order; empty: it is not known.
    windows: how it shows that samples are windows of a series that overlap; empty: it does not.
    in_order: the column of a table by which rows are in order of time, "order" where no column says
    so; empty: rows look to be in no such order.

    Raises
    ------
    DataError: a sample that has no position with a target.
    """

    x: Tensor
    y: Tensor
    classes: int | None
    test: NDArray[np.bool_]
    groups: NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    black_white: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float] = (0.0, 1.0)
    preparation: Preparation | None = None
    table: UnfittedTable | None = None
    measured: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    client_names: tuple[str, ...] = ()
    generated: bool = False
    divided: DividedRows | None = None
    target_shape: tuple[int, ...] = ()
    reading: object = None
    places: NDArray[np.int64] | None = None
    windows: str = ""
    in_order: str = ""

    def __post_init__(self) -> None:
        if self.targets == "positions":
            nothing = (self.y == IGNORED).all(1).nonzero()
            if len(nothing):
                first = Origin.of_clients(
                    "the samples", self.groups, self.client_names, parts="its samples"
                ).row(int(nothing[0]))
                raise DataError(
                    f"{first}: no position has a target (so in {len(nothing)} samples); drop such "
                    "samples"
                )

    @property
    def targets(self) -> Targets:
        """The kind of targets."""
        return targets_of(self.y, self.classes)


@dataclass(frozen=True, repr=False)
class Federation(Carded):
    """Samples divided among clients.

    Parameters
    ----------
    x: ``[n, ...]`` features of all rows.
    y: clean targets of all rows, as in :class:`Dataset`.
    train: rows of each client's training part.
    labels: ``[len(train.values)]`` targets aligned with ``train.values``, as the clients have them
    (possibly noisy).
    validation, test: rows of each client's own other parts (empty parts where there are none).
    global_test: rows of the common test set, or None.
    classes: number of classes or of labels, None for regression.
    names: class names.
    noise: intended share of wrong labels per client, ``[K]``.
    validation_labels: ``[len(validation.values)]`` targets aligned with ``validation.values``,
    noisy like ``labels``; None if they are the clean ones.
    server: samples that the server validates with, as stored, and their clean targets; None if it
    holds none.
    public: unlabelled samples, as stored, that server and clients may use; None if there are none.
    No client and no test set contains any of these.
    domain, cluster: ``[K]``, each client's feature shift and concept shift, as numbers; all 0
    without such a shift.
    window: the number of training samples that each client uses at a time, ``[K]``, under drift;
    None: all.
    preparation: the map from raw samples to ``x``; None where ``x`` is what users have.
    statistics: what its one-off exchange of statistics costs; None where there was none.
    held_out: the same federation with the samples of the clients that no round asks, which have
    none here; None if there are none.
    measured: what was worked out from the rows of all clients, as in :class:`Dataset`.
    client_names: ``[K]``, the names that the clients came with; empty: they have none.
    shares: of the samples, as they were asked for: ``test_fraction`` (absent where the data brought
    test samples of its own) and ``validation``; None where another than
    :func:`~motley.tasks.federate.federate` divided them.
    own_rows: the clients came with their rows, so that what is drawn for a row is a function of the
    client and the row's position there; else a pool was dealt out, and it follows the row's number.
    target_shape: of a sample's targets per pixel, as in :class:`Dataset`.
    reading: how the columns of a table were read, as in :class:`Dataset`.
    """

    x: Tensor
    y: Tensor
    train: Ragged
    labels: Tensor
    validation: Ragged
    test: Ragged
    global_test: NDArray[np.int64] | None
    classes: int | None
    names: tuple[str, ...] = ()
    noise: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    notes: Mapping[str, str] = field(default_factory=dict)
    validation_labels: Tensor | None = None
    server: tuple[Tensor, Tensor] | None = None
    public: Tensor | None = None
    domain: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    cluster: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    window: NDArray[np.int64] | None = None
    preparation: Preparation | None = None
    statistics: StatisticsTraffic | None = None
    held_out: Federation | None = None
    measured: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    client_names: tuple[str, ...] = ()
    shares: Mapping[str, float] | None = None
    own_rows: bool = False
    target_shape: tuple[int, ...] = ()
    reading: object = None

    def __len__(self) -> int:
        """Return K, the population."""
        return len(self.train)

    @override
    def facts(self) -> dict[str, Any]:
        """Return how many clients and samples there are, and of which form."""
        sizes = self.train.sizes
        tested = self.test.sizes.sum() if self.global_test is None else len(self.global_test)
        low, high = (int(sizes.min()), int(sizes.max())) if len(sizes) else (0, 0)
        few = f", {low} to {high} a client" if low < high else f", {high} a client"
        shape = " x ".join(map(str, self.x.shape[1:])) or "1"
        if self.classes is not None and self.targets == "classes":
            kind = f"{self.classes} classes"
        else:
            kind = self.targets
        return {
            "clients": len(self),
            "training samples": f"{sizes.sum()}{few}",
            "validation samples": self.validation.sizes.sum(),
            "test samples": tested,
            "inputs": f"{shape} {str(self.x.dtype).removeprefix('torch.')}",
            "targets": kind,
        }

    @property
    def new_clients(self) -> NDArray[np.int64]:
        """The ids of the clients that no round asks, sorted."""
        if self.held_out is None:
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.held_out.train.sizes)

    @property
    def pool(self) -> int:
        """The number of clients that rounds may ask."""
        return len(self) - len(self.new_clients)

    @property
    def targets(self) -> Targets:
        """The kind of targets."""
        return targets_of(self.y, self.classes)

    def positions(self, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """Return the number of positions with a target in each of these rows; None where targets
        are not classes per position."""
        if self.targets != "positions":
            return None
        counts: NDArray[np.int64] = (self.y[torch.from_numpy(rows)] != IGNORED).sum(1).cpu().numpy()
        return counts

    def row(self, row: int) -> str:
        """Return a row of ``x`` in words for a message: its client by name, and its number among
        the client's samples, from 1."""
        for k in range(len(self)):
            mine = np.concatenate(
                [
                    part.values[slice(*part.offsets[k : k + 2])]
                    for part in (self.train, self.validation, self.test)
                ]
            )
            if row in mine:
                return (
                    f"{client_in_words(k, self.client_names)}, row "
                    f"{int((mine < row).sum()) + 1} of its samples"
                )
        return f"row {row + 1} of the samples"

    @cached_property
    def seen(self) -> NDArray[np.int64]:
        """The number of training samples that each client uses at a time, ``[K]``."""
        return self.train.sizes if self.window is None else self.window

    def histogram(self, clean: bool = False, clients: slice = slice(None)) -> NDArray[np.float64]:
        """Return the number of training labels per client and class, ``[K, C]``; noisy labels
        unless ``clean``.

        With a class per position they are numbers of positions; of a multi-label sample every label
        is counted.

        Parameters
        ----------
        clients: those to count, one after the other."""
        first, end, _ = clients.indices(len(self))
        if self.classes is None:
            return np.zeros((end - first, 0))
        rows = slice(*self.train.offsets[[first, end]].tolist())
        labels = (
            (self.y[torch.from_numpy(self.train.values[rows])] if clean else self.labels[rows])
            .cpu()
            .numpy()
        )
        return label_counts(labels, self.train.sizes[clients], self.targets, self.classes)


def label_counts(labels: NDArray[Any], sizes: Ints, targets: Targets, classes: int) -> Floats:
    """Return the number of labels per client and class, ``[k, C]``, of clients whose samples lie
    one after the other; ``sizes``: of each, ``[k]``."""
    owner = np.repeat(np.arange(len(sizes)), sizes)
    if targets == "multilabel":
        row, labels = np.nonzero(labels)
        owner = owner[row]
    elif targets == "positions":
        row, column = np.nonzero(labels != IGNORED)
        owner = owner[row]
        labels = labels[row, column]
    counts = np.bincount(owner * classes + labels, minlength=len(sizes) * classes)
    return counts.reshape(len(sizes), classes).astype(np.float64)


def model_input(x: Tensor, dtype: torch.dtype, device: str | torch.device | None = None) -> Tensor:
    """Return samples as a model takes them: int64 as they are (characters, words, categories),
    everything else in ``dtype``."""
    return x.to(device) if x.dtype == torch.int64 else x.to(device, dtype)


Transform = Callable[[Tensor, Key | None], Tensor]
"""Function of a raw batch ``[B, ...]`` (as stored): the model input. The key draws augmentation,
None switches it off."""


@dataclass(frozen=True, repr=False)
class Task(Carded):
    """A model, a loss, a federation and a metric.

    Parameters
    ----------
    name: of the experiment file.
    federation: the data.
    model: makes a fresh module (its weights are drawn under a forked generator, see
    :func:`motley.tasks.flat.initial`).
    loss: name of the default loss, e.g. ``"cross_entropy"``, or name and options, or a function of
    outputs and targets that returns the loss of each sample ``[B]``; in an experiment an object in
    place of the name of a loss of one's own.
    metric: the headline: ``"accuracy"`` (share of right classes, positions or labels), ``"loss"``
    (regression), or the name of one of ``metrics``, which are measured beside loss and accuracy.
    transform: maps a raw batch to model input; None if stored samples are model inputs.
    layout: positions of the model's parameters in the flat vector; computed from a fresh module by
    default.
    heads: number of each class's head ``[C]``, where groups of clients tell different classes
    apart: a sample is told from the classes of its own head, and a client holds the heads of its
    own classes. Empty: one head.
    architectures: the models of a federation whose clients hold different ones, ``model`` and
    ``layout`` being the first; None: all hold ``model``.
    batches: the order of batches of every client, :data:`motley.tasks.batch_orders.BatchOrder`;
    None: a new pass over its samples in every round.
    """

    name: str
    federation: Federation
    model: Callable[[], nn.Module]
    loss: str | Mapping[str, Any] | LossFunction = "cross_entropy"
    metric: str = "accuracy"
    transform: Transform | None = None
    layout: Layout = None  # type: ignore[assignment]  # filled below
    metrics: tuple[Metric, ...] = ()
    heads: tuple[int, ...] = ()
    architectures: Architectures | None = None
    batches: BatchOrder | None = None

    def __post_init__(self) -> None:
        if self.layout is None:
            object.__setattr__(self, "layout", layout_of(construct(self.model, 0)))

    def with_models(self, architectures: Architectures) -> Task:
        """Return the task with these models, of which clients hold different ones."""
        return dataclasses.replace(
            self,
            model=architectures.factories[0],
            layout=architectures.layouts[0],
            architectures=architectures,
        )

    def alike(self) -> tuple[Task, ...]:
        """Return the task of each architecture, whose clients all hold the same model; this one
        alone where all do."""
        unlike = self.architectures
        if unlike is None:
            return (self,)
        return tuple(
            dataclasses.replace(self, model=factory, layout=layout, architectures=None)
            for factory, layout in zip(unlike.factories, unlike.layouts, strict=True)
        )

    def with_model(self, model: Callable[[], nn.Module]) -> Task:
        """Return the task with another model, and with its layout."""
        layout = layout_of(construct(model, 0))
        return dataclasses.replace(self, model=model, layout=layout)

    @override
    def facts(self) -> dict[str, Any]:
        """Return what is learned, and from what."""
        if isinstance(self.loss, str):
            loss = self.loss
        else:
            loss = getattr(self.loss, "__name__", "loss of your own")
        parameters: int | str = self.layout.size
        if self.architectures is not None:
            parameters = ", ".join(str(layout.size) for layout in self.architectures.layouts)
        return {
            "name": self.name,
            "parameters": parameters,
            "loss": loss,
            "metric": self.metric,
            **self.federation.facts(),
        }


class TaskSource(ABC):
    """The data and model that an experiment's ``task = { name = ... }`` names: a frozen dataclass
    of options.

    The builder calls :meth:`load`, divides the rows into a :class:`Federation`
    (:mod:`motley.tasks.federate`), and calls :meth:`task`.
    """

    loss: ClassVar[str] = "cross_entropy"
    metric: ClassVar[str] = "accuracy"
    makes_clients: ClassVar[bool] = False
    """Whether the data is made for as many clients as the experiment's ``population`` says."""
    has_clients: ClassVar[bool] = False
    """Whether the data comes with clients of its own, which are kept where no partition is
    named."""

    @abstractmethod
    def load(self, key: Key, population: int, folder: Path | None = None) -> Dataset:
        """Return the samples.

        Parameters
        ----------
        key: of everything drawn (purpose ``data``).
        population: number of clients for sets that are made for so many.
        folder: searched first for data packs.

        Raises
        ------
        DataError: missing, corrupt or invalid data. ConfigError: options that do not fit the data.
        """

    def files_digest(self) -> str:
        """Return a hash of the user's own files that :meth:`load` reads, a part of the run id;
        empty for data known by name."""
        return ""

    def public(
        self, dataset: Dataset, data: str, examples: int, key: Key, folder: Path | None = None
    ) -> Tensor:
        """Return ``examples`` unlabelled samples of another data set, drawn by ``key``, stored and
        scaled like this one's ``x``.

        Raises
        ------
        ConfigError: there is no such set, or it does not fit.
        """
        raise ConfigError(
            "this task knows no other data sets; hold back a share of its own samples, public = "
            "0.1",
            "public.data",
        )

    def warn_of_order(self, dataset: Dataset) -> None:
        """Warn where the samples look to be in an order in time, and test rows would be drawn at
        random among them; a source that cannot tell warns of nothing."""
        return

    @abstractmethod
    def factory(self, dataset: Dataset) -> Callable[[], nn.Module]:
        """Return a function that makes fresh modules for this data. Raises ConfigError if model and
        data do not fit."""

    def transform(self, dataset: Dataset) -> Transform | None:
        """Return the map of raw batches to model input; None if the data set holds model inputs."""
        return None

    def task(self, name: str, dataset: Dataset, federation: Federation) -> Task:
        """Return the task; ``name`` is its name in the experiment."""
        if dataset.table is not None:  # the inputs are known now
            dataset = dataclasses.replace(dataset, x=federation.x, table=None)
        heads = tuple(getattr(self, "heads", ()))
        return Task(
            name,
            federation,
            model=self.factory(dataset),
            loss=self.loss,
            metric=self.metric,
            transform=self.transform(dataset),
            heads=heads,
        )
