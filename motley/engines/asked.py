"""What a server rule asks of clients in the middle of a round."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.keys import Key
from motley.engines.base import Engine, Sight
from motley.tasks.base import ModelState

__all__ = ["Sights", "own_losses"]

Sights = Callable[[NDArray[np.int64]], Sight | None]
"""Ids -> what these clients see now."""


def own_losses(engine: Engine, clients: Sequence[int], models: Sequence[ModelState], sights: Sights | None = None) -> Tensor:
    """Mean loss of ``models[i]`` on all training samples of ``clients[i]``, in eval mode, of the algorithm: float64 ``[n]``;
    ``sights``: what they see of them now; None: all."""
    found = []
    for client, model in zip(clients, models, strict=True):
        sent = {"x": model.x, "buffers": model.buffers, "counters": model.counters}
        sight = None if sights is None else sights(np.array([client]))
        met = engine.measure(np.array([client]), sent, {client: sent}, {"loss": None}, Key(0), sight)
        found.append(float(met["loss"][0]))
    return torch.tensor(found, dtype=torch.float64)
