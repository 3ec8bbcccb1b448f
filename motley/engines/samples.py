"""The federation's tensors where the engine computes: rows and targets of each client, raw batches to model inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks.base import Task

__all__ = ["Part", "Samples"]


class Part(NamedTuple):
    """The samples of all clients for one purpose.

    Parameters
    ----------
    rows: int64 ``[n]`` of the federation's features, client after client. labels: ``[n, ...]`` targets as the clients have them.
    offsets: ``[K + 1]``, where each client's begin. sizes: ``[K]``.
    """

    rows: Tensor
    labels: Tensor
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]

    def positions(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of these clients' samples in ``rows`` and ``labels``, one client after the other."""
        sizes = self.sizes[clients]
        starts = np.repeat(self.offsets[clients] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        places: NDArray[np.int64] = np.arange(int(sizes.sum())) + starts
        return places


class Samples:
    """Read-only access to a federation on one device.

    Parameters
    ----------
    task: whose data. dtype: of model inputs and of regression targets. device: where they are computed on.

    ``rows``, ``labels``, ``offsets`` and ``sizes`` are those of the part ``training``; ``validation`` is empty where none is held.
    """

    def __init__(self, task: Task, dtype: torch.dtype, device: str) -> None:
        data = task.federation
        self.dtype = dtype
        self.transform = task.transform
        self.x = data.x.to(device) if task.transform is not None else data.x.to(device, dtype)
        self.y = self._cast(data.y.to(device))
        held = data.y[torch.from_numpy(data.validation.values)] if data.validation_labels is None else data.validation_labels
        self.training = self._part(data.train, data.labels, device)
        self.validation = self._part(data.validation, held, device)
        self.rows, self.labels, self.offsets, self.sizes = self.training

    def _part(self, rows: Ragged, labels: Tensor, device: str) -> Part:
        return Part(torch.from_numpy(rows.values).to(device), self._cast(labels.to(device)), rows.offsets, rows.sizes)

    def _cast(self, targets: Tensor) -> Tensor:
        return targets.to(self.dtype) if targets.is_floating_point() else targets

    def inputs(self, rows: Tensor, key: Key | None = None) -> Tensor:
        """Model inputs ``[len(rows), ...]`` of these rows; ``key`` draws augmentation, None switches it off."""
        raw = self.x.index_select(0, rows)
        return raw if self.transform is None else self.transform(raw, key).to(self.dtype)
