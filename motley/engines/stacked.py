"""Linear layers with ReLU between them, many clients at once, forward and backward by hand.

Storage is parameter-major: per parameter one contiguous block ``[c, out, in]``. A step is one gather and, per layer, one
``baddbmm`` forward, one ``bmm`` for the layer below, and one ``baddbmm`` that computes the weight gradient *into* the weights:

    W <- (1 - lr pull) W - lr/B d h^T,    then    W <- W + lr pull x

which is ``W - lr (g + pull (W - x))``. With momentum, clipping, weight decay, or rates that differ between clients, the
gradient gets a block of its own and :meth:`SGD.step` does the rest. Activations are kept features first, ``[c, features, B]``:
so thin layers multiply twice as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from motley.algorithms.local import SGD, Block, Scale, descend
from motley.core.layout import Entry, Layout
from motley.engines.base import Setting
from motley.engines.chunk import Chunk, Executor, Step
from motley.tasks.flat import layout_of
from motley.tasks.nn import Dropout

__all__ = ["Layer", "StackedLinear", "layers_of"]


@dataclass(frozen=True)
class Layer:
    """One linear layer: numbers of its weight and bias among the parameters, and whether a ReLU follows."""

    weight: int
    bias: int | None
    relu: bool


def layers_of(module: nn.Module) -> tuple[Layer, ...] | None:
    """The layers of a stack of ``Flatten``, ``Linear``, ``ReLU`` (nested ``Sequential`` allowed); None for any other module."""
    flat = list(_leaves(module))
    kinds = [type(m) for m in flat]
    linear = [i for i, kind in enumerate(kinds) if kind is nn.Linear]
    first = linear[0] if linear else 0
    if not linear or linear[-1] != len(flat) - 1 or set(kinds) - {nn.Linear, nn.ReLU, nn.Flatten, nn.Identity}:
        return None
    wrong = any(kind is nn.Flatten for kind in kinds[first:]) or any(kind is nn.ReLU for kind in kinds[:first])
    twice = len({id(m) for m in flat if type(m) is nn.Linear}) != len(linear)
    frozen = any(not p.requires_grad for p in module.parameters())
    if wrong or twice or frozen or any(m.start_dim != 1 or m.end_dim != -1 for m in flat if isinstance(m, nn.Flatten)):
        return None
    return _layers(module, flat)


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """Layers in the order of the forward pass, without what does nothing."""
    if type(module) is nn.Sequential:
        for child in module:
            yield from _leaves(child)
    elif not (isinstance(module, Dropout) and module.p == 0.0):
        yield module


def _layers(module: nn.Module, flat: list[nn.Module]) -> tuple[Layer, ...]:
    names = {id(m): name for name, m in module.named_modules()}
    entries = {entry.name: i for i, entry in enumerate(layout_of(module))}
    out: list[Layer] = []
    for m in flat:
        if type(m) is nn.Linear:
            prefix = f"{names[id(m)]}." if names[id(m)] else ""
            out.append(Layer(entries[prefix + "weight"], entries.get(prefix + "bias"), False))
        elif type(m) is nn.ReLU and out:
            out[-1] = Layer(out[-1].weight, out[-1].bias, True)
    return tuple(out)


Blocks = list[Tensor]
"""Parameter-major storage, one block per parameter in layout order: weights ``[c, out, in]``, biases ``[c, out, 1]``."""


def _blocks(layout: Layout, rows: Tensor) -> Blocks:
    """Views of flat rows ``[c, D]``."""
    return [rows[:, entry.slice].reshape(-1, *_stored(entry)) for entry in layout]


def _stored(entry: Entry) -> tuple[int, ...]:
    return entry.shape if len(entry.shape) > 1 else (*entry.shape, 1)


def _rows(layout: Layout, blocks: Blocks) -> Tensor:
    """Flat rows ``[c, D]`` again."""
    return torch.cat([block.flatten(1) for block in blocks], dim=1)


class _Fused:
    """Plain SGD with one rate for all: the weights' gradient never exists, it is multiplied straight into them."""

    def __init__(self, own: Blocks, received: Blocks, shift: Blocks | None, lr: float, pull: float) -> None:
        self.own, self.received, self.shift = own, received, shift
        self.lr, self.pull = lr, pull

    def layer(self, layer: Layer, slope: Tensor, h: Tensor, scale: float) -> None:
        """One layer's step: ``slope`` ``[p, out, B]`` and the layer's input ``h`` ``[p, in, B]``; the gradient is
        ``scale slope h^T``."""
        p, keep = len(h), 1.0 - self.lr * self.pull
        weight = self.own[layer.weight][:p]
        weight.baddbmm_(slope, h.mT, beta=keep, alpha=-self.lr * scale)
        if self.pull:
            weight.add_(_prefix(self.received[layer.weight], p), alpha=self.lr * self.pull)
        if self.shift is not None:
            weight.add_(_prefix(self.shift[layer.weight], p), alpha=-self.lr)
        if layer.bias is not None:
            shift = None if self.shift is None else _prefix(self.shift[layer.bias], p)
            gradient = slope.sum(2, keepdim=True).mul_(scale)
            descend(Block(self.own[layer.bias][:p], gradient, _prefix(self.received[layer.bias], p), shift), self.lr, self.pull)

    def end(self, p: int) -> None:
        """Everything is done already."""


class _Gathered:
    """Any SGD: gradients in blocks of their own, then :meth:`SGD.step` over all parameters of a client."""

    def __init__(self, own: Blocks, received: Blocks, shift: Blocks | None, lr: Scale, pull: Scale, solver: SGD) -> None:
        self.own, self.received, self.shift = own, received, shift
        self.lr, self.pull, self.solver = lr, pull, solver
        self.gradient = [torch.zeros_like(block) for block in own]
        self.velocity = [torch.zeros_like(block) for block in own] if solver.momentum else None

    def layer(self, layer: Layer, slope: Tensor, h: Tensor, scale: float) -> None:
        """One layer's gradient, see :meth:`_Fused.layer`."""
        p = len(h)
        torch.bmm(slope, h.mT, out=self.gradient[layer.weight][:p]).mul_(scale)
        if layer.bias is not None:
            torch.sum(slope, 2, keepdim=True, out=self.gradient[layer.bias][:p]).mul_(scale)

    def end(self, p: int) -> None:
        """The step of the first p clients."""
        blocks = [
            Block(
                own[:p],
                self.gradient[i][:p],
                _prefix(self.received[i], p),
                None if self.shift is None else _prefix(self.shift[i], p),
                None if self.velocity is None else self.velocity[i][:p],
            )
            for i, own in enumerate(self.own)
        ]
        lr, pull = (s[:p] if isinstance(s, Tensor) else s for s in (self.lr, self.pull))
        self.solver.step(blocks, lr, pull)


def _prefix(block: Tensor, p: int) -> Tensor:
    """The first p clients of a block that may be shared by all."""
    return block if len(block) == 1 else block[:p]


class StackedLinear(Executor):
    """Runs chunks of a stack of linear layers.

    Parameters
    ----------
    layers: of the model. setting: of the run.
    """

    def __init__(self, layers: tuple[Layer, ...], setting: Setting) -> None:
        self.layers = layers
        self.solver = setting.solver
        self.loss = setting.algorithm.loss

    def run(self, chunk: Chunk) -> Tensor:
        """See :meth:`Executor.run`."""
        received = _blocks(chunk.layout, chunk.received)
        own = [block.expand(len(chunk), *block.shape[1:]).clone(memory_format=torch.contiguous_format) for block in received]
        update = self._update(chunk, own, received)
        for step in chunk.steps():
            hs = self._forward(own, chunk.inputs(step).view(step.active, step.width, -1).mT)
            outputs = hs.pop().mT
            chunk.met(step, outputs)
            slope, scale = self._slope(step, outputs)
            self._backward(own, hs, slope, scale, update)
            update.end(step.active)
        return _rows(chunk.layout, own)

    def _update(self, chunk: Chunk, own: Blocks, received: Blocks) -> _Fused | _Gathered:
        shift = None if chunk.shift is None else _blocks(chunk.layout, chunk.shift)
        lr, pull = chunk.lr, chunk.pull
        if self.solver.plain and not isinstance(lr, Tensor) and not isinstance(pull, Tensor):
            return _Fused(own, received, shift, lr, pull)
        return _Gathered(own, received, shift, lr, pull, self.solver)

    def _slope(self, step: Step, outputs: Tensor) -> tuple[Tensor, float]:
        """Gradient of the losses by the outputs ``[p, C, B]``, and what is still to be multiplied for the batches' means."""
        slope = self.loss.gradient(outputs, step.targets, {}).mT
        if step.weight is None:
            return slope, 1.0 / step.width
        return slope * step.weight.unsqueeze(1), 1.0

    def _forward(self, own: Blocks, h: Tensor) -> list[Tensor]:
        """Inputs of every layer ``[p, in, B]``, then the outputs."""
        hs, p = [h], len(h)
        for layer in self.layers:
            weight = own[layer.weight][:p]
            h = torch.bmm(weight, h) if layer.bias is None else torch.baddbmm(own[layer.bias][:p], weight, h)
            hs.append(h.relu_() if layer.relu else h)
        return hs

    def _backward(self, own: Blocks, hs: list[Tensor], slope: Tensor, scale: float, update: _Fused | _Gathered) -> None:
        """From the last layer to the first; what the layer below needs is taken before the weights move."""
        for at in range(len(self.layers) - 1, -1, -1):
            layer, below = self.layers[at], slope
            if at:
                below = torch.bmm(own[layer.weight][: len(slope)].mT, slope)
                if self.layers[at - 1].relu:
                    torch.ops.aten.threshold_backward.grad_input(below, hs[at], 0, grad_input=below)
            update.layer(layer, slope, hs[at], scale)
            slope = below
