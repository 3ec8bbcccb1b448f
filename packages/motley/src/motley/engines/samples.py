"""The samples of a federation on an engine's device: rows and targets of each client, and model
inputs of a batch."""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.engines.engine import DataView
from motley.tasks.pixels import ImageTransform
from motley.tasks.task import Task, model_input
from motley.tasks.transfer import require_room, to_device


class SampleSplit(NamedTuple):
    """The training, the validation or the test samples of all clients.

    Parameters
    ----------
    rows: int64 ``[n]``, rows of the federation's features, client after client.
    labels: ``[n, ...]``, targets as the clients have them (possibly noisy).
    offsets: ``[K + 1]``, where each client's samples begin.
    sizes: ``[K]``, samples of each client.
    seen: ``[K]``, samples that each client uses at a time; fewer than ``sizes`` under drift.
    """

    rows: Tensor
    labels: Tensor
    offsets: NDArray[np.int64]
    sizes: NDArray[np.int64]
    seen: NDArray[np.int64]

    def positions(
        self, clients: NDArray[np.int64], data_view: DataView | None = None
    ) -> NDArray[np.int64]:
        """Return the positions in ``rows`` and ``labels`` of the samples that these clients use,
        one client after the other."""
        seen = self.seen[clients]
        within = np.arange(int(seen.sum())) - np.repeat(np.cumsum(seen) - seen, seen)
        if data_view is not None:
            within = (within + np.repeat(data_view.first, seen)) % np.repeat(
                self.sizes[clients], seen
            )
        positions: NDArray[np.int64] = within + np.repeat(self.offsets[clients], seen)
        return positions

    def targets(
        self,
        positions: Tensor,
        data_view: DataView | None = None,
        owner: NDArray[np.int64] | None = None,
    ) -> Tensor:
        """Return the targets at these positions under the clients' data view.

        ``owner``: row of ``data_view`` for each position; None: its only row.
        """
        labels = self.labels[positions]
        if data_view is None or data_view.names is None:
            return labels
        names = to_device(data_view.names, labels.device)
        return names[0][labels] if owner is None else names[to_device(owner, labels.device), labels]


class Samples:
    """Read-only samples of a federation on one device.

    Parameters
    ----------
    task: has the federation.
    dtype: of model inputs (but whole numbers stay int64) and of regression targets.
    device: of all tensors.

    ``rows`` and ``seen`` are those of ``training``; ``validation`` and ``test`` are empty if
    clients have no such samples.
    """

    def __init__(self, task: Task, dtype: torch.dtype, device: str) -> None:
        data = task.federation
        self.dtype = dtype
        self.transform = task.transform
        if isinstance(task.transform, ImageTransform):  # its constants lie where the samples lie
            self.transform = task.transform.to(device)
        require_room(device_bytes(task, dtype), device)
        self.x = (
            data.x.to(device) if task.transform is not None else model_input(data.x, dtype, device)
        )
        self.y = self._cast(data.y.to(device))
        self.training = self._split(data.train, data.labels, data.seen)
        self.rows = self.training.rows
        self.seen = data.seen
        self._data = data

    @cached_property
    def validation(self) -> SampleSplit:
        """The clients' validation samples."""
        rows = self._data.validation
        own_labels = self._data.validation_labels
        labels = self._data.y[torch.from_numpy(rows.values)] if own_labels is None else own_labels
        return self._split(rows, labels, rows.sizes)

    @cached_property
    def test(self) -> SampleSplit:
        """The clients' own test samples."""
        rows = self._data.test
        return self._split(rows, self._data.y[torch.from_numpy(rows.values)], rows.sizes)

    def _split(self, rows: Ragged, labels: Tensor, seen: NDArray[np.int64]) -> SampleSplit:
        return SampleSplit(
            rows=torch.from_numpy(rows.values).to(self.x.device),
            labels=self._cast(labels.to(self.x.device)),
            offsets=rows.offsets,
            sizes=rows.sizes,
            seen=seen,
        )

    def _cast(self, targets: Tensor) -> Tensor:
        return targets.to(self.dtype) if targets.is_floating_point() else targets

    def inputs(self, rows: Tensor, key: Key | None = None) -> Tensor:
        """Return the model inputs ``[len(rows), ...]`` of these rows; ``key`` draws augmentation,
        None switches it off."""
        raw = self.x.index_select(0, rows)
        return raw if self.transform is None else model_input(self.transform(raw, key), self.dtype)


def device_bytes(task: Task, dtype: torch.dtype) -> int:
    """Return the bytes of all samples as an engine keeps them, with their targets and row
    numbers."""
    data = task.federation
    size = dtype.itemsize
    stored = task.transform is not None or data.x.dtype == torch.int64
    targets = data.y.numel() + data.labels.numel()
    rows = len(data.train.values) + len(data.validation.values) + 2 * len(data.test.values)
    return data.x.numel() * (data.x.element_size() if stored else size) + 8 * (targets + rows)
