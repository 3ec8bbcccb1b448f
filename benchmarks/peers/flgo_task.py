"""FLGo's description of a task, which it copies into the task's folder: clients' data, model, loss
and loader."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

import torch
from work import CLIENTS, batches, model_of, parse

RUN = parse(json.loads(os.environ["PEERS_RUN"]))


class Part(torch.utils.data.Dataset):
    """A client's samples."""

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
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        return batches(self.dataset.x, self.dataset.y, self.batch_size)


train_data = [Part(*RUN.client(k)) for k in range(CLIENTS)]


def data_to_device(
    batch: tuple[torch.Tensor, ...], device: torch.device
) -> tuple[torch.Tensor, ...]:
    return tuple(values.to(device) for values in batch)


def eval(model: torch.nn.Module, loader: DataLoader, device: torch.device) -> dict[str, float]:  # noqa: A001 - FLGo's name
    return {}


def compute_loss(
    model: torch.nn.Module, batch: tuple[torch.Tensor, ...], device: torch.device
) -> dict[str, torch.Tensor]:
    x, y = data_to_device(batch, device)
    return {"loss": torch.nn.functional.cross_entropy(model(x), y)}


def get_model() -> torch.nn.Module:
    return model_of(RUN)
