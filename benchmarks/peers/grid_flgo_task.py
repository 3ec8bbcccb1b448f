"""FLGo's description of the grid's task, which it copies into the task's folder: clients' and
test data, model, loss and loader."""

from __future__ import annotations

import json
import os

import torch
from flgo_parts import DataLoader, Part, compute_loss, data_to_device
from grid_work import CLIENTS, accuracy, digits_model, grid_run

__all__ = [
    "DataLoader",
    "compute_loss",
    "data_to_device",
    "eval",
    "get_model",
    "test_data",
    "train_data",
]

RUN = grid_run(json.loads(os.environ["GRID_RUN"]))

train_data = [Part(*RUN.samples(client)) for client in range(CLIENTS)]
test_data = Part(*RUN.samples())


def eval(model: torch.nn.Module, loader: DataLoader, device: torch.device) -> dict[str, float]:  # noqa: A001 - FLGo's name
    return {"accuracy": accuracy(model, loader.dataset.x, loader.dataset.y)}


def get_model() -> torch.nn.Module:
    return digits_model()
