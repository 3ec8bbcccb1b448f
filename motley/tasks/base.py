"""Words of the tasks: a pool of samples, a federation of them, the state of a model, a task.

Samples live in one tensor for everybody; a client is a slice of a list of row numbers (:class:`~motley.core.ragged.Ragged`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.layout import Layout
from motley.core.ragged import Ragged
from motley.tasks.flat import ModelState, construct, layout_of

__all__ = ["Federation", "ModelState", "Pool", "Slope", "Task", "TaskSource", "Transform"]


@dataclass(frozen=True)
class Pool:
    """Samples before they are anybody's.

    Parameters
    ----------
    x: uint8 or float ``[n, ...]`` (images ``[n, C, H, W]``).
    y: int64 ``[n]`` classes, or float ``[n, d]`` targets.
    classes: number of classes; None for regression.
    test: bool ``[n]``, the rows of the data set's own test half.
    groups: int64 ``[n]``, the natural client of each row (writer), or None.
    names: class names, for plots.
    notes: what the loader wants a reader of the results to know.
    tones: what black and white are in the units of ``x``, a number each or one per channel ``[C]``.
    """

    x: Tensor
    y: Tensor
    classes: int | None
    test: NDArray[np.bool_]
    groups: NDArray[np.int64] | None = None
    names: tuple[str, ...] = ()
    notes: Mapping[str, str] = field(default_factory=dict)
    tones: tuple[NDArray[np.float64] | float, NDArray[np.float64] | float] = (0.0, 1.0)


@dataclass(frozen=True)
class Federation:
    """Samples and whose they are.

    Parameters
    ----------
    x: ``[n, ...]`` features of all rows. y: ``[n]`` or ``[n, d]`` clean targets of all rows.
    train: rows of each client's training part. labels: ``[len(train.values)]`` targets aligned with ``train.values``, as the
    clients have them (possibly noisy).
    validation, test: rows of each client's own other parts (empty parts where there are none).
    global_test: rows of the common test set, or None.
    classes: number of classes, None for regression. names: class names.
    noise: share of labels each client was given wrong on purpose, ``[K]``.
    validation_labels: ``[len(validation.values)]`` targets aligned with ``validation.values``, noisy like ``labels``;
    None when they are the clean ones.
    server: samples the server validates with, as stored, and their clean targets; None where it holds none. public: unlabelled
    samples, as stored, that everybody may see; None where there are none. No client and no test set has any of these.
    domain, cluster: ``[K]``, what each client's features look like and what its labels mean, as numbers; all 0 without such a shift.
    window: how many of its training samples each client sees at a time, ``[K]``, where the data drifts; None: all.
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

    def __len__(self) -> int:
        """K, the population."""
        return len(self.train)

    @cached_property
    def seen(self) -> NDArray[np.int64]:
        """Training samples each client works with at a time, ``[K]``."""
        return self.train.sizes if self.window is None else self.window

    def histogram(self, clean: bool = False) -> NDArray[np.float64]:
        """Training labels per client and class, ``[K, C]``; the clients' own (noisy) ones unless ``clean``."""
        if self.classes is None:
            return np.zeros((len(self), 0))
        labels = self.y[torch.from_numpy(self.train.values)] if clean else self.labels
        flat = self.train.owner * self.classes + labels.cpu().numpy()
        counts = np.bincount(flat, minlength=len(self) * self.classes)
        return counts.reshape(len(self), self.classes).astype(np.float64)


class Slope(NamedTuple):
    """A scalar loss at a model, its gradient ``[D]``, and the model after the pass, whose buffers move in training mode."""

    loss: float
    gradient: Tensor
    state: ModelState


Transform = Callable[[Tensor, Key | None], Tensor]
"""Raw batch ``[B, ...]`` (as stored) to model input, in batch on tensors; the key draws augmentation, None switches it off."""


@dataclass(frozen=True)
class Task:
    """Model, loss, data and metric.

    Parameters
    ----------
    name: of the experiment file.
    federation: the data.
    model: makes a fresh module (weights are drawn under a forked generator, see :func:`motley.tasks.flat.initial`).
    loss: catalogue name of the default loss, e.g. ``"cross_entropy"``.
    metric: ``"accuracy"`` (share of argmax hits) or ``"loss"`` (regression: the loss itself is what is reported).
    transform: raw batch to model input; None when stored samples are model inputs.
    layout: where the model's parameters lie in the flat vector; worked out from a fresh module when left out.
    """

    name: str
    federation: Federation
    model: Callable[[], nn.Module]
    loss: str = "cross_entropy"
    metric: Literal["accuracy", "loss"] = "accuracy"
    transform: Transform | None = None
    layout: Layout = None  # type: ignore[assignment]  # filled below

    def __post_init__(self) -> None:
        if self.layout is None:
            object.__setattr__(self, "layout", layout_of(construct(self.model, 0)))


class TaskSource(ABC):
    """What an experiment's ``task = { name = ... }`` becomes: a frozen dataclass of options that brings data and model.

    The builder calls, in this order: :meth:`pool`; then it divides the pool's rows and makes a :class:`Federation` of them
    (:mod:`motley.tasks.federate`); then :meth:`task`.
    """

    loss: ClassVar[str] = "cross_entropy"
    metric: ClassVar[Literal["accuracy", "loss"]] = "accuracy"
    makes_clients: ClassVar[bool] = False
    """Whether the data is made for as many clients as the experiment's ``population`` says."""

    @abstractmethod
    def pool(self, key: Key, population: int, folder: Path | None = None) -> Pool:
        """The samples. ``key`` draws what is drawn (purpose ``data``), ``population`` is used by sets made for so many clients,
        ``folder`` is looked into first for data packs.

        Raises DataError (missing, corrupt or strange data) and ConfigError (options that do not fit the data)."""

    def public(self, pool: Pool, data: str, examples: int, key: Key, folder: Path | None = None) -> Tensor:
        """So many samples of another data set, drawn by ``key``, stored and scaled like this pool's ``x``; their labels are left.

        Raises ConfigError where there is no such set or it does not fit."""
        raise ConfigError(
            "this task knows no other data sets; hold back a share of its own samples, public = 0.1", "public.data"
        )

    @abstractmethod
    def factory(self, pool: Pool) -> Callable[[], nn.Module]:
        """What makes fresh modules for this data. Raises ConfigError when model and data do not fit."""

    def transform(self, pool: Pool) -> Transform | None:
        """Raw batch to model input; None when the pool holds model inputs."""
        return None

    def task(self, name: str, pool: Pool, federation: Federation) -> Task:
        """Everything together; ``name`` is the experiment's word for it."""
        return Task(name, federation, self.factory(pool), self.loss, self.metric, self.transform(pool))
