"""FLGo's description of a task, which it copies into the task's folder: clients' data, model, loss
and loader."""

from __future__ import annotations

import json
import os

import torch
from flgo_parts import DataLoader, Part, compute_loss, data_to_device
from work import CLIENTS, model_of, parse

__all__ = ["DataLoader", "compute_loss", "data_to_device", "eval", "get_model", "train_data"]

RUN = parse(json.loads(os.environ["PEERS_RUN"]))

train_data = [Part(*RUN.client(k)) for k in range(CLIENTS)]


def eval(model: torch.nn.Module, loader: DataLoader, device: torch.device) -> dict[str, float]:  # noqa: A001 - FLGo's name
    return {}


def get_model() -> torch.nn.Module:
    return model_of(RUN)
