"""Linear layers with ReLU between them, many clients at once, forward and backward by hand.

Storage is parameter-major: per parameter one contiguous block ``[c, out, in]``. A step is one gather and, per layer, one
``baddbmm`` forward, one ``bmm`` for the layer below, and one ``baddbmm`` that computes the weight gradient *into* the weights:

    W <- (1 - lr pull) W - lr/B d h^T,    then    W <- W + lr pull x

which is ``W - lr (g + pull (W - x))``. With momentum, clipping, weight decay, or rates that differ between clients, the
gradient gets a block of its own and :meth:`Solver.step` does the rest. Activations are kept features first, ``[c, features, B]``:
so thin layers multiply twice as fast.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from motley.algorithms.local import Block, Scale, Solver
from motley.core.layout import Entry, Layout
from motley.engines.base import Setting
from motley.engines.chunk import Chunk, Executor, Step
from motley.tasks.flat import hooked, layout_of
from motley.tasks.nn import Dropout

__all__ = ["Layer", "StackedLinear", "layers_of"]


@dataclass(frozen=True)
class Layer:
    """One linear layer: numbers of its weight and bias among the parameters, and whether a ReLU follows."""

    weight: int
    bias: int | None
    relu: bool


def layers_of(module: nn.Module) -> tuple[Layer, ...] | None:
    """The layers of a stack of ``Flatten``, ``Linear``, ``ReLU`` (nested ``Sequential`` allowed); None for any other module, also
    for one with hooks (``weight_norm`` is one)."""
    flat = list(_leaves(module))
    kinds = [type(m) for m in flat]
    linear = [i for i, kind in enumerate(kinds) if kind is nn.Linear]
    first = linear[0] if linear else 0  # nothing but Flatten may come before it, and none after
    if not linear or set(kinds) - {nn.Linear, nn.ReLU, nn.Flatten, nn.Identity}:
        return None
    wrong = any(kind is nn.Flatten for kind in kinds[first:]) or any(kind is nn.ReLU for kind in kinds[:first])
    own = [id(p) for m in flat for p in m.parameters()]
    twice = len(set(own)) != len(own)  # a layer, or a parameter of it, that is used in two places
    frozen = any(not p.requires_grad for p in module.parameters())
    if (
        wrong
        or twice
        or frozen
        or hooked(module)
        or any(m.start_dim != 1 or m.end_dim != -1 for m in flat if isinstance(m, nn.Flatten))
    ):
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

    def __init__(self, lr: float, proximal: float) -> None:
        self.lr, self.proximal = lr, lr * proximal

    def layer(self, weight: Block, bias: Block | None, slope: Tensor, h: Tensor, scale: float) -> None:
        """One layer's step: ``slope`` ``[p, out, B]``, the layer's input ``h`` ``[p, in, B]``; gradient ``scale slope h^T``."""
        weight.w.baddbmm_(slope, h.mT, beta=1.0 - self.proximal, alpha=-self.lr * scale)
        self._correct(weight)
        if bias is not None:
            if self.proximal:
                bias.w.mul_(1.0 - self.proximal)
            bias.w.add_(slope.sum(2, keepdim=True), alpha=-self.lr * scale)
            self._correct(bias)

    def _correct(self, block: Block) -> None:
        if self.proximal:
            block.w.add_(block.x, alpha=self.proximal)
        if block.offset is not None:
            block.w.add_(block.offset, alpha=-self.lr)

    def end(self, blocks: list[Block], number: int) -> None:
        """Everything is done already."""


class _Gathered:
    """Any solver: gradients in blocks of their own, then :meth:`Solver.step` over all parameters of a client."""

    def __init__(self, solver: Solver, lr: Scale, proximal: Scale) -> None:
        self.solver, self.lr, self.proximal = solver, lr, proximal

    def layer(self, weight: Block, bias: Block | None, slope: Tensor, h: Tensor, scale: float) -> None:
        """One layer's gradient, see :meth:`_Fused.layer`."""
        torch.bmm(slope, h.mT, out=weight.g).mul_(scale)
        if bias is not None:
            torch.sum(slope, 2, keepdim=True, out=bias.g).mul_(scale)

    def end(self, blocks: list[Block], number: int) -> None:
        """The step."""
        p = len(blocks[0].w)
        lr, proximal = (scale[:p] if isinstance(scale, Tensor) else scale for scale in (self.lr, self.proximal))
        self.solver.step(blocks, lr, proximal, number)


def _prefix(block: Block, p: int) -> Block:
    """The first p clients; what all share stays as it is."""
    return Block(*(t if t is None or len(t) == 1 else t[:p] for t in block))  # type: ignore[arg-type]


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
        update = self._update(chunk)
        everybody = now = self._blocks(chunk, isinstance(update, _Gathered))
        for step in chunk.steps():
            if step.active != len(now[0].w):
                now = [_prefix(block, step.active) for block in everybody]
            hs = self._forward(now, chunk.inputs(step).view(step.active, step.width, -1).mT)
            outputs = hs.pop().mT
            chunk.met(step, outputs)
            slope, scale = self._slope(step, outputs)
            self._backward(now, hs, slope, scale, update)
            chunk.met_gradient(block.g for block in now)
            update.end(now, step.number)
        return _rows(chunk.layout, [block.w for block in everybody])

    def _update(self, chunk: Chunk) -> _Fused | _Gathered:
        lr, proximal = chunk.lr, chunk.proximal
        known = chunk.steepest is None  # nobody wants to see the gradients
        if self.solver.plain and known and not isinstance(lr, Tensor) and not isinstance(proximal, Tensor):
            return _Fused(lr, proximal)
        return _Gathered(self.solver, lr, proximal)

    def _blocks(self, chunk: Chunk, gradients: bool) -> list[Block]:
        """Every client's weights, on their way from the received ones; room for gradients and the solver's own where needed."""
        received, offset = _blocks(chunk.layout, chunk.received), chunk.offset
        shifts = [None] * len(received) if offset is None else _blocks(chunk.layout, offset)
        out = []
        for x, shifted in zip(received, shifts, strict=True):
            w = x.expand(len(chunk), *x.shape[1:]).clone(memory_format=torch.contiguous_format)
            g = torch.zeros_like(w) if gradients else w
            out.append(Block(w, g, x, shifted, *self.solver.fresh(w)))
        return out

    def _slope(self, step: Step, outputs: Tensor) -> tuple[Tensor, float]:
        """Gradient of the losses by the outputs ``[p, C, B]``, and what is still to be multiplied for the batches' means."""
        slope = self.loss.gradient(outputs, step.targets, step.extra).mT
        if step.weight is None:
            return slope, 1.0 / step.width
        return slope * step.weight.unsqueeze(1), 1.0

    def _forward(self, blocks: list[Block], h: Tensor) -> list[Tensor]:
        """Inputs of every layer ``[p, in, B]``, then the outputs."""
        hs = [h]
        for layer in self.layers:
            weight = blocks[layer.weight].w
            h = torch.bmm(weight, h) if layer.bias is None else torch.baddbmm(blocks[layer.bias].w, weight, h)
            hs.append(h.relu_() if layer.relu else h)
        return hs

    def _backward(self, blocks: list[Block], hs: list[Tensor], slope: Tensor, scale: float, update: _Fused | _Gathered) -> None:
        """From the last layer to the first; what the layer below needs is taken before the weights move."""
        for at in range(len(self.layers) - 1, -1, -1):
            layer, below = self.layers[at], slope
            weight, bias = blocks[layer.weight], None if layer.bias is None else blocks[layer.bias]
            if at:
                below = torch.bmm(weight.w.mT, slope)
                if self.layers[at - 1].relu:
                    torch.ops.aten.threshold_backward.grad_input(below, hs[at], 0, grad_input=below)
            update.layer(weight, bias, slope, hs[at], scale)
            slope = below
