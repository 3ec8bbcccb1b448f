"""Trains many clients of a stack of linear layers with ReLU at once, with hand-written forward and
backward passes.

Storage is parameter-major: per parameter one contiguous block ``[c, out, in]``. A step is one
gather and, per layer, one ``baddbmm`` forward, one ``bmm`` for the layer below, and one ``baddbmm``
that computes the weight gradient *into* the weights:

    W <- (1 - lr mu) W - lr/B d h^T,    then    W <- W + lr mu x

with mu the proximal coefficient; this is ``W - lr (g + mu (W - x))``. With momentum, clipping,
weight decay, or rates that differ between clients, the gradient is stored and :meth:`Solver.step`
updates the weights. Activations are stored features first, ``[c, features, B]``: thin layers
multiply twice as fast that way.

In bfloat16, every step converts the weights once; activations and the slopes between layers are
bfloat16, and a product's result is rounded to it once before it is added to the float32 weights.
Layers of fewer than 16 outputs are faster in float32, and stay in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.algorithms.local_optimisers import Block, Scale, Solver
from motley.core.layout import Entry, Layout
from motley.engines.chunk import BatchStep, Chunk, Executor
from motley.engines.engine import Setting
from motley.tasks.flat import hooked, layout_of
from motley.tasks.nn import Dropout
from motley.tasks.precision import widened

__all__ = ["Layer", "StackedLinear", "layers_of"]


@dataclass(frozen=True)
class Layer:
    """One linear layer: indices of its weight and bias among the parameters, and whether a ReLU
    follows."""

    weight: int
    bias: int | None
    relu: bool


def layers_of(module: nn.Module) -> tuple[Layer, ...] | None:
    """Return the layers of a stack of ``Flatten``, ``Linear``, ``ReLU`` (nested ``Sequential``
    allowed) that ends with ``Linear``; None for any other module.

    A module with hooks, which ``weight_norm`` adds, is no stack.
    """
    flat = list(_leaves(module))
    kinds = [type(m) for m in flat]
    linear = [i for i, kind in enumerate(kinds) if kind is nn.Linear]
    ends = [kind for kind in kinds if kind is not nn.Identity]
    first = linear[0] if linear else 0  # nothing but Flatten may come before it, and none after
    if not linear or set(kinds) - {nn.Linear, nn.ReLU, nn.Flatten, nn.Identity}:
        return None
    wrong = any(kind is nn.Flatten for kind in kinds[first:]) or any(
        kind is nn.ReLU for kind in kinds[:first]
    )
    own = [id(p) for m in flat for p in m.parameters()]
    twice = len(set(own)) != len(own)  # a layer, or a parameter of it, that is used in two places
    frozen = any(not p.requires_grad for p in module.parameters())
    if (
        wrong
        or ends[-1] is nn.ReLU
        or twice
        or frozen
        or hooked(module)
        or any(m.start_dim != 1 or m.end_dim != -1 for m in flat if isinstance(m, nn.Flatten))
    ):
        return None
    return _layers(module, flat)


def _leaves(module: nn.Module) -> Iterator[nn.Module]:
    """Yield the layers in the order of the forward pass, without dropout of probability 0."""
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
"""Parameter-major storage, one block per parameter in layout order: weights ``[c, out, in]``,
biases ``[c, out, 1]``."""


def _blocks(layout: Layout, rows: Tensor) -> Blocks:
    """Return parameter-major views of flat rows ``[c, D]``."""
    return [rows[:, entry.slice].reshape(-1, *_stored(entry)) for entry in layout]


def _stored(entry: Entry) -> tuple[int, ...]:
    return entry.shape if len(entry.shape) > 1 else (*entry.shape, 1)


def _rows(layout: Layout, blocks: Blocks) -> Tensor:
    """Return the blocks as flat rows ``[c, D]``."""
    return torch.cat([block.flatten(1) for block in blocks], dim=1)


_THIN = 16
"""Outputs of a layer below which its products are faster in float32."""


class _Fused:
    """Plain SGD with one learning rate for all clients; the gradient is accumulated into the
    weights and never stored."""

    def __init__(self, lr: float, proximal: float) -> None:
        self.lr = lr
        self.proximal = lr * proximal

    def layer(
        self,
        weight: Block | None,
        bias: Block | None,
        factor: Tensor,
        slope: Tensor,
        h: Tensor,
        scale: float,
    ) -> None:
        """Update one layer by the gradient ``scale slope h^T``; ``slope`` ``[p, out, B]``, the
        layer's input ``h`` ``[p, in, B]``;
        None: stands still. ``factor``: the weights in the type of products."""
        if weight is not None and slope.dtype == weight.w.dtype:
            weight.w.baddbmm_(slope, h.mT, beta=1.0 - self.proximal, alpha=-self.lr * scale)
            self._correct(weight)
        elif weight is not None:
            self._add(weight, torch.bmm(slope, h.mT), factor, -self.lr * scale)
        if bias is not None:
            if self.proximal:
                bias.w.mul_(1.0 - self.proximal)
            bias.w.add_(slope.sum(2, keepdim=True, dtype=bias.w.dtype), alpha=-self.lr * scale)
            self._correct(bias)

    def _add(self, weight: Block, added: Tensor, factor: Tensor, rate: float) -> None:
        """Add products in bfloat16 to the weights and round these: on a CPU client by client, while
        a client's lie in the cache."""
        size = 1 if weight.w.is_cpu else len(weight.w)
        for at in (slice(i, i + size) for i in range(0, len(weight.w), size)):
            client_block = Block(*(t if t is None or len(t) == 1 else t[at] for t in weight))  # type: ignore[arg-type]
            if self.proximal:
                client_block.w.mul_(1.0 - self.proximal)
            client_block.w.add_(added[at], alpha=rate)
            self._correct(client_block)
            factor[at].copy_(client_block.w)

    def _correct(self, block: Block) -> None:
        if self.proximal:
            block.w.add_(block.x, alpha=self.proximal)
        for correction in (block.offset, block.drift):
            if correction is not None:
                block.w.add_(correction, alpha=-self.lr)

    def end(self, blocks: list[Block], number: int) -> None:
        """Do nothing; the layers are updated already."""


class _Gathered:
    """Any solver: gradients are stored, then :meth:`Solver.step` updates all parameters of the
    clients."""

    def __init__(self, solver: Solver, lr: Scale, proximal: Scale) -> None:
        self.solver = solver
        self.lr = lr
        self.proximal = proximal

    def layer(
        self,
        weight: Block | None,
        bias: Block | None,
        factor: Tensor,
        slope: Tensor,
        h: Tensor,
        scale: float,
    ) -> None:
        """Store one layer's gradient; arguments as in :meth:`_Fused.layer`."""
        if weight is not None:
            if slope.dtype == weight.g.dtype:
                torch.bmm(slope, h.mT, out=weight.g)
            else:
                weight.g.copy_(torch.bmm(slope, h.mT))
            weight.g.mul_(scale)
        if bias is not None:
            torch.sum(slope, 2, keepdim=True, dtype=bias.g.dtype, out=bias.g).mul_(scale)

    def end(self, blocks: list[Block], number: int) -> None:
        """Update the parameters."""
        p = len(blocks[0].w) if blocks else 0
        lr, proximal = (
            scale[:p] if isinstance(scale, Tensor) else scale for scale in (self.lr, self.proximal)
        )
        self.solver.step(blocks, lr, proximal, number)


def _prefix(block: Block, p: int) -> Block:
    """Return the block of the first p clients; tensors shared by all clients stay whole."""
    return Block(*(t if t is None or len(t) == 1 else t[:p] for t in block))  # type: ignore[arg-type]


class StackedLinear(Executor):
    """Trains chunks of a stack of linear layers.

    Parameters
    ----------
    layers: of the model.
    setting: of the run.
    """

    def __init__(self, layers: tuple[Layer, ...], setting: Setting) -> None:
        self.layers = layers
        self.solver = setting.solver
        self.loss = setting.algorithm.loss
        sizes = [setting.task.layout.entries[layer.weight].shape[0] for layer in layers]
        self.dtype = setting.dtype
        rounded = setting.precision == "bfloat16"
        self.kinds = [
            torch.bfloat16 if rounded and size >= _THIN else setting.dtype for size in sizes
        ]

    @override
    def run(self, chunk: Chunk) -> Tensor:
        update = self._update(chunk)
        everything = current = self._blocks(chunk, isinstance(update, _Gathered))
        full_factors = factors = self._factors(everything)
        for step in chunk.steps():
            if step.active != len(current[0].w):
                current = [_prefix(block, step.active) for block in everything]
                factors = [factor[: step.active] for factor in full_factors]
            inputs = (
                chunk.inputs(step) if self.kinds[0] == self.dtype else chunk.rounded_inputs(step)
            )
            hs = self._forward(factors, inputs.view(step.active, step.width, -1).mT)
            outputs = widened(hs.pop()).mT
            chunk.record_outputs(step, outputs)
            slope, scale = self._slope(step, outputs)
            self._backward(
                blocks=current,
                factors=factors,
                moves=chunk.moves,
                hs=hs,
                slope=slope,
                scale=scale,
                update=update,
            )
            moving = [block for block, moves in zip(current, chunk.moves, strict=True) if moves]
            chunk.record_gradients(block.g for block in moving)
            update.end(moving, step.number)
            self._round(current, factors, isinstance(update, _Gathered))
        return _rows(chunk.layout, [block.w for block in everything])

    def _update(self, chunk: Chunk) -> _Fused | _Gathered:
        lr = chunk.lr
        proximal = chunk.proximal
        unread = chunk.max_squared_norm is None  # no signal needs the gradients
        if (
            self.solver.plain
            and unread
            and not isinstance(lr, Tensor)
            and not isinstance(proximal, Tensor)
        ):
            return _Fused(lr, proximal)
        return _Gathered(self.solver, lr, proximal)

    def _blocks(self, chunk: Chunk, gradients: bool) -> list[Block]:
        """Return every client's weights, as the phase begins, with gradients and solver state where
        needed."""
        start = _blocks(chunk.layout, chunk.start)
        anchor = _blocks(chunk.layout, chunk.anchor)
        offsets, drifts = (
            [None] * len(start) if rows is None else _blocks(chunk.layout, rows)
            for rows in (chunk.offset, chunk.drift)
        )
        out = []
        for first, x, offset, drift in zip(start, anchor, offsets, drifts, strict=True):
            # Expanded rows share their memory, and the solver writes in place.
            w = first.expand(len(chunk), *first.shape[1:]).clone(
                memory_format=torch.contiguous_format
            )
            g = torch.zeros_like(w) if gradients else w
            out.append(Block(w, g, x, offset, *self.solver.fresh(w), drift))
        return out

    def _slope(self, step: BatchStep, outputs: Tensor) -> tuple[Tensor, float]:
        """Return the gradient of the losses by the outputs ``[p, C, B]``, and the factor still
        missing for the batch mean."""
        slope = self.loss.gradient(outputs, step.targets, step.extra).mT
        if step.weight is None:
            return slope, 1.0 / step.width
        return slope * step.weight.unsqueeze(1), 1.0

    def _factors(self, blocks: list[Block]) -> Blocks:
        """Return the weights as products take them: themselves, or in bfloat16."""
        factors = [block.w for block in blocks]
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            for i in (layer.weight, layer.bias):
                if i is not None:
                    factors[i] = factors[i].to(kind)
        return factors

    def _round(self, blocks: list[Block], factors: Blocks, weights: bool) -> None:
        """Round the biases that a step has changed, and the weights, unless the update has done
        so."""
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            for i in (layer.weight if weights else None, layer.bias):
                if i is not None and kind != self.dtype:
                    factors[i].copy_(blocks[i].w)

    def _forward(self, factors: Blocks, h: Tensor) -> list[Tensor]:
        """Return the inputs of every layer ``[p, in, B]``, then the outputs."""
        hs = []
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            h = h.to(kind)
            hs.append(h)
            weight = factors[layer.weight]
            if layer.bias is None:
                h = torch.bmm(weight, h)
            else:
                h = torch.baddbmm(factors[layer.bias], weight, h)
            h = h.relu_() if layer.relu else h
        return [*hs, h]

    def _backward(
        self,
        blocks: list[Block],
        factors: Blocks,
        moves: list[bool],
        hs: list[Tensor],
        slope: Tensor,
        scale: float,
        update: _Fused | _Gathered,
    ) -> None:
        """Update from the last layer down to the first that moves; the slope of the layer below is
        computed before the weights change."""
        of_layer = [
            moves[linear.weight] or (linear.bias is not None and moves[linear.bias])
            for linear in self.layers
        ]
        for at in range(
            len(self.layers) - 1,
            of_layer.index(True) - 1 if any(of_layer) else len(self.layers),
            -1,
        ):
            slope = slope.to(self.kinds[at])
            layer = self.layers[at]
            below = slope
            weight = blocks[layer.weight]
            if any(of_layer[:at]):
                below = torch.bmm(factors[layer.weight].mT, slope)
                if self.layers[at - 1].relu:
                    torch.ops.aten.threshold_backward.grad_input(below, hs[at], 0, grad_input=below)
            bias = None if layer.bias is None or not moves[layer.bias] else blocks[layer.bias]
            update.layer(
                weight=weight if moves[layer.weight] else None,
                bias=bias,
                factor=factors[layer.weight],
                slope=slope,
                h=hs[at],
                scale=scale,
            )
            slope = below
