"""What FLGo's description of a task is made of in both benchmarks: a client's samples, a loader of
batches, the loss."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from work import batches


class Part(torch.utils.data.Dataset):
    """Samples of a client, or of the test."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor) -> None:
        self.x = x
        self.y = y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, at: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.x[at], self.y[at]


class DataLoader:
    """Batches of preloaded tensors in a random order."""

    def __init__(self, dataset: Part, batch_size: int, **_: object) -> None:
        self.dataset = dataset
        self.batch_size = int(batch_size)

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return batches(self.dataset.x, self.dataset.y, self.batch_size)


def data_to_device(
    batch: tuple[torch.Tensor, ...], device: torch.device
) -> tuple[torch.Tensor, ...]:
    return tuple(values.to(device) for values in batch)


def compute_loss(
    model: torch.nn.Module, batch: tuple[torch.Tensor, ...], device: torch.device
) -> dict[str, torch.Tensor]:
    x, y = data_to_device(batch, device)
    return {"loss": torch.nn.functional.cross_entropy(model(x), y)}
