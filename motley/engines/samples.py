"""The federation's tensors where the engine computes: rows and targets of each client, raw batches to model inputs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.engines.base import DataView
from motley.tasks.base import Task

__all__ = ["Part", "Samples"]


class Part(NamedTuple):
    """The samples of all clients for one purpose.

    Parameters
    ----------
    rows: int64 ``[n]`` of the federation's features, client after client. labels: ``[n, ...]`` targets as the clients have them.
    offsets: ``[K + 1]``, where each client's begin. sizes: ``[K]``. seen: how many of them it sees at a time, ``[K]``.
    """

    rows: Tensor
    labels: Tensor
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    seen: NDArray[np.int64]

    def positions(self, clients: NDArray[np.int64], data_view: DataView | None = None) -> NDArray[np.int64]:
        """Places of the samples these clients see in ``rows`` and ``labels``, one client after the other."""
        seen = self.seen[clients]
        within = np.arange(int(seen.sum())) - np.repeat(np.cumsum(seen) - seen, seen)
        if data_view is not None:
            within = (within + np.repeat(data_view.first, seen)) % np.repeat(self.sizes[clients], seen)
        places: NDArray[np.int64] = within + np.repeat(self.offsets[clients], seen)
        return places

    def targets(self, places: Tensor, data_view: DataView | None = None, owner: NDArray[np.int64] | None = None) -> Tensor:
        """Targets at ``places``, as the clients call them now; ``owner``: whose row of ``data_view`` each is, None: the only one."""
        labels = self.labels[places]
        if data_view is None or data_view.names is None:
            return labels
        names = torch.from_numpy(data_view.names).to(labels.device)
        return names[0][labels] if owner is None else names[torch.from_numpy(owner).to(labels.device), labels]


class Samples:
    """Read-only access to a federation on one device.

    Parameters
    ----------
    task: whose data. dtype: of model inputs and of regression targets. device: where they are computed on.

    ``rows`` and ``seen`` are those of the part ``training``; ``validation`` is empty where none is held.
    """

    def __init__(self, task: Task, dtype: torch.dtype, device: str) -> None:
        data = task.federation
        self.dtype = dtype
        self.transform = task.transform
        self.x = data.x.to(device) if task.transform is not None else data.x.to(device, dtype)
        self.y = self._cast(data.y.to(device))
        held = data.y[torch.from_numpy(data.validation.values)] if data.validation_labels is None else data.validation_labels
        self.training = self._part(data.train, data.labels, data.seen, device)
        self.validation = self._part(data.validation, held, data.validation.sizes, device)
        self.rows, self.seen = self.training.rows, data.seen

    def _part(self, rows: Ragged, labels: Tensor, seen: NDArray[np.int64], device: str) -> Part:
        return Part(torch.from_numpy(rows.values).to(device), self._cast(labels.to(device)), rows.offsets, rows.sizes, seen)

    def _cast(self, targets: Tensor) -> Tensor:
        return targets.to(self.dtype) if targets.is_floating_point() else targets

    def inputs(self, rows: Tensor, key: Key | None = None) -> Tensor:
        """Model inputs ``[len(rows), ...]`` of these rows; ``key`` draws augmentation, None switches it off."""
        raw = self.x.index_select(0, rows)
        return raw if self.transform is None else self.transform(raw, key).to(self.dtype)
