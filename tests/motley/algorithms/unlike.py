"""Two tiny linear architectures, small enough to work every number out by hand, and server
contexts in which clients hold them.

Architecture 0: ``outputs = w u`` (two weights, no bias). Architecture 1: ``outputs = w u + b``.
On the sample u = 1 a model of the first is its outputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import nn

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.parts import ServerContext, Upload, aggregate
from motley.core.keys import Key
from motley.tasks.architectures import Architectures, UnlikeNetwork
from motley.tasks.flat import FlatNetwork
from tests.motley.algorithms.server_contexts import ones

FACTORIES = (lambda: nn.Linear(1, 2, bias=False), lambda: nn.Linear(1, 2))
ARCHITECTURES = Architectures.of(("slope", "line"), FACTORIES)


def kept(*x: float) -> dict[str, torch.Tensor]:
    """What a client with these weights keeps."""
    none = torch.zeros(0)
    return {"x": torch.tensor(x).double(), "buffers": none.double(), "counters": none.long()}


def context(holders: Sequence[int], **given) -> ServerContext:
    """A server context in which client k holds the architecture ``holders[k]``, with one public
    sample u = 1."""
    base = {
        "network": UnlikeNetwork(tuple(FlatNetwork(f, torch.float64) for f in FACTORIES)),
        "public": ones(1),
        "key": Key(5),
        "architectures": np.array(holders),
    }
    return ServerContext(ARCHITECTURES.layouts[0], len(holders), 1, **{**base, **given})


def without_parts(clients: Sequence[int]) -> Mapping[str, torch.Tensor]:
    """The total of uploads without parts, of these clients."""
    return aggregate(Gather(), [Upload({}, 1.0, client=client) for client in clients], "weight")
