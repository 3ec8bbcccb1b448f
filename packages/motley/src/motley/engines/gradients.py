"""Mean gradients of clients on one model, all their samples at once: client by client, on threads,
or for stacks of linear layers many clients together.

The gradient of a client's mean loss does not depend on how its samples are cut, so the passes take
as many samples at a time as are fast. They agree with each other up to rounding, and a client's
gradient does not depend on how many threads computed. ``vmap`` is not used: with the same weights
for all clients it was up to twice slower than client by client on a CPU, convolutions most.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import override

from motley.engines.client import Client
from motley.engines.cores import ThreadPool, torch_threads
from motley.engines.engine import Setting
from motley.engines.samples import Samples
from motley.engines.stacked import Layer
from motley.tasks.precision import widened
from motley.tasks.task import ModelState
from motley.tasks.transfer import to_device

BLOCK = 1024
"""Samples of a block of clients at most, unless one client has more: it is passed in pieces of so
many."""

UseGradient = Callable[[int, Tensor], None]
"""A function of a client's number and its gradient ``[D]``, which the next gradient overwrites.
Several threads may call it at once, for different clients."""


class ClientSamples(NamedTuple):
    """The samples on which a client's gradient is computed: its number in the call, rows of the
    federation's features ``[n]``, and targets ``[n, ...]``; at least one sample."""

    number: int
    rows: Tensor
    targets: Tensor


class GradientPass(ABC):
    """Computes the gradient of the mean loss over each client's samples, of one model in eval
    mode."""

    @abstractmethod
    def run(self, state: ModelState, clients: Sequence[ClientSamples], use: UseGradient) -> None:
        """Compute the gradients at this model and hand each to ``use``, in any order."""


class ModuleGradients(GradientPass):
    """One client after the other on one module, any module.

    Parameters
    ----------
    client: has the module.
    inner: torch threads inside one operation.
    """

    def __init__(self, client: Client, inner: int) -> None:
        self.client = client
        self.inner = inner

    @override
    def run(self, state: ModelState, clients: Sequence[ClientSamples], use: UseGradient) -> None:
        self.client.model.load(state)
        with torch_threads(self.inner):
            for number, rows, targets in clients:
                if self.client.separates_clients:
                    # a forward pass may change weights, as an embedding with max_norm does
                    self.client.model.load(state)
                use(number, self.client.mean_gradient(rows, targets))


class ThreadGradients(GradientPass):
    """One client on every thread of a pool, each with a module of its own; the clients with most
    samples first.

    Parameters
    ----------
    pool: of clients, one per thread; not used for anything else meanwhile.
    """

    def __init__(self, pool: ThreadPool[Client]) -> None:
        self.pool = pool

    @override
    def run(self, state: ModelState, clients: Sequence[ClientSamples], use: UseGradient) -> None:
        def work(client: Client, samples: ClientSamples) -> None:
            client.model.load(state)
            use(samples.number, client.mean_gradient(samples.rows, samples.targets))

        # a long pass begun last would leave the other threads idle
        for _ in self.pool.map(work, sorted(clients, key=lambda samples: -len(samples.rows))):
            pass


class BlockGradients(GradientPass):
    """Blocks of clients of a stack of linear layers: the samples of a whole block pass forward and
    back in one product per layer, and each client's gradient is one more product per layer, of its
    own samples.

    Parameters
    ----------
    layers: of the model.
    setting, samples: of the run.
    pool: its threads compute one block each.
    """

    def __init__(
        self, layers: tuple[Layer, ...], setting: Setting, samples: Samples, pool: ThreadPool[Any]
    ) -> None:
        self.layers = layers
        self.layout = setting.task.layout
        self.loss = setting.algorithm.loss
        self.samples = samples
        self.pool = pool
        self.products = torch.bfloat16 if setting.precision == "bfloat16" else setting.dtype

    @override
    def run(self, state: ModelState, clients: Sequence[ClientSamples], use: UseGradient) -> None:
        factors = [
            state.x[entry.slice].view(entry.shape).to(self.products) for entry in self.layout
        ]

        def work(_: object, block: list[ClientSamples]) -> None:
            with torch.no_grad():
                self._block(factors, block, state.x.new_empty(self.layout.size), use)

        for _ in self.pool.map(work, list(_blocks(clients))):
            pass

    def _block(
        self, factors: list[Tensor], block: list[ClientSamples], g: Tensor, use: UseGradient
    ) -> None:
        """Compute in ``g`` the gradients of a block, of several small clients or of one client in
        pieces."""
        rows = torch.cat([client.rows for client in block])
        targets = torch.cat([client.targets for client in block])
        sizes = np.array([len(client.rows) for client in block])
        share = to_device(np.repeat(1.0 / sizes, sizes), rows.device).to(g.dtype)
        views = [g[entry.slice].view(entry.shape) for entry in self.layout]
        for begin in range(0, len(rows), BLOCK):
            at = slice(begin, begin + BLOCK)
            inputs = self.samples.inputs(rows[at]).flatten(1).mT.to(self.products)
            hs, slopes = self._slopes(factors, inputs, targets[at], share[at])
            end = 0
            for client, size in zip(block, sizes.tolist(), strict=True):
                own = slice(end, end + size)
                self._gradient(
                    views,
                    [h[:, own] for h in hs],
                    [slope[:, own] for slope in slopes],
                    add=begin > 0,
                )
                end += size
                if at.stop >= len(rows):
                    use(client.number, g)

    def _slopes(
        self, factors: list[Tensor], h: Tensor, targets: Tensor, share: Tensor
    ) -> tuple[list[Tensor], list[Tensor]]:
        """Return every layer's inputs ``[in, B]``, and the gradients of the weighted losses by its
        outputs, ``[out, B]``."""
        hs = [h]
        for layer in self.layers:
            weight = factors[layer.weight]
            if layer.bias is None:
                h = weight @ h
            else:
                h = torch.addmm(factors[layer.bias][:, None], weight, h)
            hs.append(h.relu_() if layer.relu else h)
        slopes = [
            (self.loss.gradient(widened(hs.pop()).mT, targets, {}).mT * share).to(self.products)
        ]
        for above in range(len(self.layers) - 1, 0, -1):
            slope = factors[self.layers[above].weight].mT @ slopes[0]
            if self.layers[above - 1].relu:
                torch.ops.aten.threshold_backward.grad_input(slope, hs[above], 0, grad_input=slope)
            slopes.insert(0, slope)
        return hs, slopes

    def _gradient(
        self, views: list[Tensor], hs: list[Tensor], slopes: list[Tensor], add: bool
    ) -> None:
        """Write one client's gradient into the parameters' views, or add it to what is there."""
        for layer, h, slope in zip(self.layers, hs, slopes, strict=True):
            weight = views[layer.weight]
            if slope.dtype == weight.dtype:
                weight.addmm_(slope, h.mT, beta=float(add))
            else:
                weight.add_(slope @ h.mT) if add else weight.copy_(slope @ h.mT)
            if layer.bias is not None:
                bias = views[layer.bias]
                bias_gradient = slope.sum(1, dtype=weight.dtype)
                bias.add_(bias_gradient) if add else bias.copy_(bias_gradient)


def _blocks(clients: Sequence[ClientSamples]) -> Iterator[list[ClientSamples]]:
    """Yield neighbouring clients in blocks of at most BLOCK samples; a client with more is a block
    alone."""
    block: list[ClientSamples] = []
    samples = 0
    for client in clients:
        if block and samples + len(client.rows) > BLOCK:
            yield block
            block = []
            samples = 0
        block.append(client)
        samples += len(client.rows)
    if block:
        yield block
