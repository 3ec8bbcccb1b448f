"""What a server rule asks of clients in the middle of a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.engines.base import DataView, Engine
from motley.tasks.base import ModelState

__all__ = ["DataViews", "client_losses"]

DataViews = Callable[[NDArray[np.int64]], DataView | None]
"""Ids -> what these clients see now."""


def client_losses(
    engine: Engine, clients: Sequence[int], models: Sequence[ModelState], data_views: DataViews | None = None
) -> Tensor:
    """Mean loss of ``models[i]`` on all training samples of ``clients[i]``, in eval mode, of the algorithm: float64 ``[n]``;
    ``data_views``: what they see of them now; None: all."""
    found = []
    for client, model in zip(clients, models, strict=True):
        sent = {"x": model.x, "buffers": model.buffers, "counters": model.counters}
        data_view = None if data_views is None else data_views(np.array([client]))
        met = engine.measure(np.array([client]), sent, {client: sent}, {"loss": None}, Key(0), data_view)
        found.append(float(met["loss"][0]))
    return torch.tensor(found, dtype=torch.float64)
