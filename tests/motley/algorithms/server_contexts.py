"""Rooms that are small enough to work out by hand: a bias-free linear layer of one input, so that
the model is its outputs."""

from __future__ import annotations

import torch
from torch import nn

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.losses import HalfSquaredError
from motley.algorithms.parts import Part, ServerContext, ServerState, Upload, aggregate
from motley.core.keys import Key
from motley.core.layout import Entry, Layout
from motley.tasks.flat import FlatNetwork
from motley.tasks.task import ModelState


def model(*outputs: float) -> ModelState:
    """A model that answers 1 with these outputs."""
    return ModelState(
        torch.tensor(outputs).double(), torch.zeros(0).double(), torch.zeros(0, dtype=torch.int64)
    )


def network(size: int = 2) -> FlatNetwork:
    return FlatNetwork(lambda: nn.Linear(1, size, bias=False), torch.float64)


def ones(count: int) -> torch.Tensor:
    return torch.ones(count, 1).double()


def context(size: int = 2, **given) -> ServerContext:
    layout = Layout((Entry("weight", "", (size, 1), 0, linear=True),))
    base = {"network": network(size), "criterion": HalfSquaredError(), "key": Key(5)}
    return ServerContext(layout, 8, 1, **{**base, **given})


def folded(*deltas, weights=None, clients=None, divide="weight"):
    """The total of these updates, as the server is given it."""
    weights = weights or [1.0] * len(deltas)
    clients = clients or list(range(len(deltas)))
    empty = {
        "buffers": Part(torch.zeros(0).double(), "convex"),
        "counters": Part(torch.zeros(0, dtype=torch.int64), "max"),
    }
    uploads = [
        Upload(
            {"delta": Part(torch.tensor(delta).double(), "mean"), **empty}, weight, client=client
        )
        for delta, weight, client in zip(deltas, weights, clients, strict=True)
    ]
    return aggregate(Gather(), uploads, divide)


def state(*outputs: float, **extra) -> ServerState:
    return ServerState(model(*outputs), extra)
