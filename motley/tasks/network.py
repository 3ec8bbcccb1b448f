"""A task's network as a function of a model state: outputs and slopes, for server rules that compute with it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from motley.core.keys import Key
from motley.tasks.base import ModelState, Slope
from motley.tasks.flat import FlatModule
from motley.tasks.nn import set_stream

__all__ = ["FlatNetwork"]


class FlatNetwork:
    """One reusable module over a flat vector; states may come from any device, results lie on this one's.

    Parameters
    ----------
    factory: makes fresh modules. dtype, device: of the arithmetic. chunk: samples that go through together in :meth:`outputs`.

    Example
    -------
    >>> network = FlatNetwork(lambda: nn.Linear(2, 1, bias=False), torch.float64)
    >>> state = ModelState(torch.tensor([3.0, 4.0]).double(), torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    >>> network.slope(state, torch.ones(1, 2).double(), lambda outputs: outputs.sum())[:2]
    (7.0, tensor([1., 1.], dtype=torch.float64))
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        chunk: int = 256,
    ) -> None:
        self.flat = FlatModule.of(factory, dtype, device)
        self.chunk = chunk

    def outputs(self, state: ModelState, inputs: Tensor) -> Tensor:
        """``[B, ...]`` in eval mode, without gradients."""
        self.flat.load(state)
        self.flat.module.eval()
        with torch.no_grad():
            return torch.cat([self.flat.module(some) for some in torch.split(inputs, self.chunk)])

    def slope(self, state: ModelState, inputs: Tensor, loss: Callable[[Tensor], Tensor], training: Key | None = None) -> Slope:
        """A scalar ``loss`` of the outputs; in eval mode, or in training mode with dropout drawn by a key. One sample has no
        variance, so it goes through in eval mode."""
        self.flat.load(state)
        module = self.flat.module
        module.train(training is not None and len(inputs) > 1)
        if training is not None:
            set_stream(module, training)
        value = loss(module(inputs))
        gradient = self.flat.gradient(value).clone()
        return Slope(float(value.detach()), gradient, self.flat.state())
