"""Tasks whose data no machine has as a whole: each client has its own, the server has a model and,
perhaps, test samples.

>>> import numpy as np
>>> from torch import nn
>>> x, y = np.random.default_rng(0).normal(size=(20, 3)), np.arange(20) % 2
>>> task = client_task(7, 10, x, y, lambda: nn.Linear(3, 2), classes=2)
>>> len(task.federation), task.federation.train.sizes.tolist()
(10, [0, 0, 0, 0, 0, 0, 0, 20, 0, 0])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from motley.core.arrays import Ints
from motley.core.errors import ConfigError, DataError
from motley.core.ragged import Ragged
from motley.tasks.own import own_task
from motley.tasks.own_loss import LossFunction, Over
from motley.tasks.task import Federation, Task, Transform
from motley_data.formats.sample_checks import class_labels, features

Make = Callable[[], nn.Module]


def client_task(
    client: int,
    population: int,
    x: ArrayLike,
    y: ArrayLike,
    model: Make,
    *,
    classes: int | None,
    loss: str | Mapping[str, Any] | LossFunction | None = None,
    over: Over | None = None,
    transform: Transform | None = None,
) -> Task:
    """Return one client's training samples as a task of the whole federation, in which the other
    clients have none.

    Parameters
    ----------
    client, population: its number, and K.
    x, y: ``[n, ...]`` inputs, ``[n]`` classes from 0, ``[n, T]`` a class per position, or ``[n]``,
    ``[n, d]`` numbers.
    model, loss, over, transform: as for :func:`motley.tasks.own_task`.
    classes: C, all of the federation's; None in regression.

    Raises
    ------
    ConfigError: a client outside the federation. DataError: samples that cannot be used.
    """
    if not 0 <= client < population:
        raise ConfigError(f"got client {client}; expected a number from 0 to {population - 1}")
    rows, targets = _samples(x, y, classes)
    sizes = np.zeros(population, np.int64)
    sizes[client] = len(rows)
    mine = Ragged(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), np.arange(len(rows)))
    return own_task(
        _federation(rows, y=targets, train=mine, held=None, classes=classes),
        model,
        loss=loss,
        over=over,
        transform=transform,
    )


def server_task(
    population: int,
    x: ArrayLike,
    y: ArrayLike,
    model: Make,
    *,
    classes: int | None,
    loss: str | Mapping[str, Any] | LossFunction | None = None,
    over: Over | None = None,
    transform: Transform | None = None,
    test: bool = True,
) -> Task:
    """Return the server's side of a task: the model, and samples ``x, y`` on which it is evaluated.

    Parameters
    ----------
    test: False where the samples only show what inputs look like and nothing is evaluated. The rest
    as :func:`client_task`.
    """
    rows, targets = _samples(x, y, classes)
    nobody = Ragged(np.zeros(population + 1, np.int64), np.zeros(0, np.int64))
    held = np.arange(len(rows)) if test else None
    return own_task(
        _federation(rows, y=targets, train=nobody, held=held, classes=classes),
        model,
        loss=loss,
        over=over,
        transform=transform,
    )


def _samples(x: ArrayLike, y: ArrayLike, classes: int | None) -> tuple[Tensor, Tensor]:
    where = "the arrays given"
    rows = features(x, where, whole_numbers=True)
    if classes is not None:
        return rows, class_labels(y, where, len(rows), classes, positions=True)[0]
    targets = features(y, where, quantity="targets").float()
    if len(targets) != len(rows):
        raise DataError(f"{where}: {len(targets)} targets for {len(rows)} samples")
    return rows, targets.view(len(rows), -1)


def _federation(
    x: Tensor, y: Tensor, train: Ragged, held: Ints | None, classes: int | None
) -> Federation:
    none = Ragged(np.zeros(len(train) + 1, np.int64), np.zeros(0, np.int64))
    labels = y[torch.from_numpy(train.values)]
    return Federation(
        x=x,
        y=y,
        train=train,
        labels=labels,
        validation=none,
        test=none,
        global_test=held,
        classes=classes,
        own_rows=True,
    )
