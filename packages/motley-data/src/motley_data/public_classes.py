"""Classes that are known before anybody looks at the data: their number, or a list of their
names."""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Sequence

import torch
from torch import Tensor

from motley.core.errors import ConfigError, DataError, suggest
from motley.tasks.targets import IGNORED
from motley.tasks.task import Dataset

_WHOLE = re.compile(r"-?\d+")

Classes = int | tuple[str, ...] | None
"""A number of classes, their names, or None: as many as the labels of all clients show."""


def with_classes(
    dataset: Dataset,
    classes: int | Sequence[str] | None,
    where: str,
    line: str = "task.classes = 10",
) -> Dataset:
    """Return the data set with these classes; None: with those that its labels show, which is then
    noted as measured.

    Parameters
    ----------
    classes: their number, or their names in the order of their numbers.
    line: what a private run should write.

    Raises
    ------
    DataError: a label of no class. ConfigError: words as labels, and no names; fewer than two
    classes.
    """
    if dataset.targets in ("numbers", "multilabel"):
        if classes is not None:
            raise ConfigError("these targets are no classes; leave classes out", "task.classes")
        return dataset
    if classes is None:
        _warn_of_gaps(dataset, where, line)
        collected = {
            "the classes are collected": ("task.classes", f"{line}, or the list of their names")
        }
        return dataclasses.replace(dataset, measured={**dataset.measured, **collected})
    names = () if isinstance(classes, int) else tuple(str(name) for name in classes)
    count = classes if isinstance(classes, int) else len(names)
    if count < 2 or len(set(names)) < len(names):
        raise ConfigError(
            f"got {classes!r}; expected at least two classes, each once", "task.classes"
        )
    if isinstance(classes, int):
        dataset = _by_number(dataset, count)
    elif not dataset.names and all(map(_WHOLE.fullmatch, names)):
        dataset = _by_name(dataset)
    if dataset.names and not names:
        shown = ", ".join(repr(name) for name in dataset.names[:3])
        raise ConfigError(
            f"got {classes}, and the labels are words ({shown}); give the list of their names",
            "task.classes",
        )
    if not dataset.names:
        if dataset.classes is not None and dataset.classes > count:
            raise DataError(
                f"{where}: labels up to {dataset.classes - 1}; task.classes has {count}, so "
                f"expected up to {count - 1}"
            )
        return dataclasses.replace(dataset, classes=count, names=names)
    for name in dataset.names:
        if name not in names:
            raise DataError(
                f"{where}: the label {name!r}{suggest(name, names)} is not in task.classes; add "
                "it, or drop its rows"
            )
    y = _renumbered(dataset.y, [names.index(name) for name in dataset.names])
    return dataclasses.replace(dataset, y=y, classes=count, names=names)


_FIRST_ROWS = 2**14
"""Rows in which nearly always every class has a sample."""


def _warn_of_gaps(dataset: Dataset, where: str, line: str) -> None:
    """Warn that classes, which are the numbers up to the largest label, have no sample: labels may
    be numbered from 1, or be codes with gaps."""
    if dataset.names or dataset.classes is None or dataset.targets != "classes":
        return
    for part in (dataset.y[:_FIRST_ROWS], dataset.y):
        counts = torch.bincount(part, minlength=dataset.classes)
        empty = (counts == 0).nonzero().flatten().tolist()
        if not empty or (dataset.classes == 2 and empty == [1]):  # zeros: data without labels
            return
    several = len(empty) > 1
    shown = ", ".join(map(str, empty[:5])) + (", .." if len(empty) > 5 else "")
    warnings.warn(
        f"{where}: no sample has the label{'s' * several} {shown}, and the model gets "
        f"{dataset.classes} classes, 0 to {dataset.classes - 1}; number the classes without gaps "
        f"from 0, or write {line.replace('10', str(dataset.classes))} where that is their number",
        stacklevel=3,
    )


def _renumbered(y: Tensor, numbers: Sequence[int]) -> Tensor:
    """Return targets with class k called ``numbers[k]``; positions without one stay so."""
    return torch.where(y == IGNORED, y, torch.tensor(numbers)[y.clamp(min=0)])


def _by_number(dataset: Dataset, count: int) -> Dataset:
    """Return a data set whose classes are called by whole numbers with these as its labels, where
    they are below the number of classes.

    Raises
    ------
    ConfigError: there are as many of them, and some are not.
    """
    if not dataset.names or not all(map(_WHOLE.fullmatch, dataset.names)):
        return dataset
    numbers = [int(name) for name in dataset.names]
    if min(numbers) >= 0 and max(numbers) < count:
        y = _renumbered(dataset.y, numbers)
        return dataclasses.replace(dataset, y=y, classes=max(numbers) + 1, names=())
    listed = ", ".join(f'"{name}"' for name in dataset.names[:20])
    raise ConfigError(
        f"got {count}, which are 0 .. {count - 1}, and the labels are "
        f"{', '.join(dataset.names[:20])}; write classes = [{listed}]",
        "task.classes",
    )


def _by_name(dataset: Dataset) -> Dataset:
    """Return a data set whose labels are numbers with these as the names of its classes, so that a
    list of numbers says which number is which class, whoever has which."""
    distinct = torch.unique(dataset.y[dataset.y != IGNORED])
    places = torch.searchsorted(distinct, dataset.y)
    return dataclasses.replace(
        dataset,
        y=torch.where(dataset.y == IGNORED, dataset.y, places),
        names=tuple(str(number) for number in distinct.tolist()),
    )
