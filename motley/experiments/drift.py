"""A federation whose distribution moves: each client's training samples in the order in which its window passes over them."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from motley.core.errors import ConfigError
from motley.core.keys import Streams
from motley.core.ragged import Ragged
from motley.experiments.config import Experiment
from motley.tasks.base import Task
from motley.world.base import Drift

__all__ = ["drifting"]


def drifting(experiment: Experiment, streams: Streams, task: Task) -> Task:
    """The task as the experiment's ``drift`` wants it: samples in order of their true classes, and how many are seen at a time.

    Raises
    ------
    ConfigError: the task has no classes, or the drift does not fit them.
    """
    drift: Drift = experiment.part("drift")
    if experiment.drift["name"] == "none":
        return task
    data, key = task.federation, streams.key("shift").fold("drift")
    if data.classes is None:
        raise ConfigError("a drift needs classes; this task is a regression", "drift")
    train, ids = data.train, np.arange(len(data))
    try:
        drift.tables(key, ids[:1], data.classes, 1, 0.0)
    except ConfigError as error:
        raise ConfigError(str(error), "drift") from None
    clean = data.y[torch.from_numpy(train.values)].cpu().numpy().astype(np.int64)
    order = drift.order(key, clean, train.owner, data.classes, len(data))
    _, seen = drift.window(key, ids, train.sizes, 1, 0.0)
    ring = Ragged(train.offsets, train.values[order])
    moved = dataclasses.replace(data, train=ring, labels=data.labels[torch.from_numpy(order)], window=seen)
    return dataclasses.replace(task, federation=moved)
