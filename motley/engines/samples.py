"""The federation's tensors where the engine computes: rows and targets of each client, raw batches to model inputs."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.tasks.base import Task

__all__ = ["Samples"]


class Samples:
    """Read-only access to a federation on one device.

    Parameters
    ----------
    task: whose data. dtype: of model inputs and of regression targets. device: where they are computed on.
    """

    def __init__(self, task: Task, dtype: torch.dtype, device: str) -> None:
        data = task.federation
        self.dtype = dtype
        self.transform = task.transform
        self.x = data.x.to(device) if task.transform is not None else data.x.to(device, dtype)
        self.y = self._cast(data.y.to(device))
        self.labels = self._cast(data.labels.to(device))
        self.rows = torch.from_numpy(data.train.values).to(device)
        self.offsets = data.train.offsets
        self.sizes = data.train.sizes

    def _cast(self, targets: Tensor) -> Tensor:
        return targets.to(self.dtype) if targets.is_floating_point() else targets

    def positions(self, clients: NDArray[np.int64]) -> NDArray[np.int64]:
        """Places of these clients' samples in ``rows`` and ``labels``, one client after the other."""
        sizes = self.sizes[clients]
        starts = np.repeat(self.offsets[clients] - np.concatenate([[0], np.cumsum(sizes)[:-1]]), sizes)
        places: NDArray[np.int64] = np.arange(int(sizes.sum())) + starts
        return places

    def inputs(self, rows: Tensor, key: Key | None = None) -> Tensor:
        """Model inputs ``[len(rows), ...]`` of these rows; ``key`` draws augmentation, None switches it off."""
        raw = self.x.index_select(0, rows)
        return raw if self.transform is None else self.transform(raw, key).to(self.dtype)
