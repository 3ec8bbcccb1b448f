"""What a server rule asks of clients in the middle of a round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from motley.core.keys import Key
from motley.engines.base import Engine
from motley.tasks.base import ModelState

__all__ = ["own_losses"]


def own_losses(engine: Engine, clients: Sequence[int], models: Sequence[ModelState]) -> Tensor:
    """Mean loss of ``models[i]`` on all training samples of ``clients[i]``, in eval mode, of the algorithm: float64 ``[n]``."""
    found = []
    for client, model in zip(clients, models, strict=True):
        sent = {"x": model.x, "buffers": model.buffers, "counters": model.counters}
        met = engine.measure(np.array([client]), sent, {client: sent}, {"loss": None}, Key(0))
        found.append(float(met["loss"][0]))
    return torch.tensor(found, dtype=torch.float64)
