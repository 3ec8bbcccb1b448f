"""Trains many clients of a stack of linear layers with ReLU at once, with hand-written forward and
backward passes.

Storage is parameter-major: per parameter one contiguous block ``[c, out, in]``. A step is one
gather and, per layer, one product forward, one for the layer below, and one that computes the
weight gradient *into* the weights, by the library that :mod:`motley.engines.matrix_products` says:

    W <- (1 - lr mu) W - lr/B d^T h,    then    W <- W + lr mu x

with mu the proximal coefficient; this is ``W - lr (g + mu (W - x))``. With momentum, clipping,
weight decay, or rates that differ between clients, the gradient is stored and :meth:`Solver.step`
updates the weights. Activations ``[c, B, features]`` lie in memory as the library multiplies
fastest.

In bfloat16, every step converts the weights once; activations and the slopes between layers are
bfloat16, and a product's result is rounded to it once before it is added to the float32 weights.
Layers of fewer than 16 outputs are faster in float32, and stay in it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn
from typing_extensions import override

from motley.algorithms.local_optimisers import Block, Scale, Solver
from motley.core.layout import Entry, Layout
from motley.engines.chunk import BatchStep, Chunk, Executor
from motley.engines.engine import Setting
from motley.engines.matrix_products import MatrixProducts
from motley.tasks.flat import hooked, layout_of
from motley.tasks.nn import Dropout
from motley.tasks.precision import widened


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
biases ``[c, 1, out]``."""


def _blocks(layout: Layout, rows: Tensor) -> Blocks:
    """Return parameter-major views of flat rows ``[c, D]``."""
    return [rows[:, entry.slice].reshape(-1, *_stored(entry)) for entry in layout]


def _stored(entry: Entry) -> tuple[int, ...]:
    return entry.shape if len(entry.shape) > 1 else (1, *entry.shape)


def _rows(layout: Layout, blocks: Blocks) -> Tensor:
    """Return the blocks as flat rows ``[c, D]``."""
    return torch.cat([block.flatten(1) for block in blocks], dim=1)


_THIN = 16
"""Outputs of a layer below which its products are faster in float32."""


class _LayerViews(NamedTuple):
    """What a layer needs in a step of p clients with B places each, all of it views of tensors that
    are made once.

    Parameters
    ----------
    factor, factor_transposed: the weights in the type of products, ``[p, out, in]`` and ``[p, in,
    out]``; the weights themselves where that is their type.
    bias_factor: the bias in the same type, ``[p, 1, out]``, where outputs are ``turned`` ``[p, out,
    1]``; None: the layer has none.
    weight, bias: what moves; None: stands still.
    converts: whether inputs come in another type than that of products.
    relu: whether a ReLU follows.
    turned: whether outputs are computed as ``[p, out, B]``.
    outputs: where outputs are written, ``[p, B, out]``; None for the last layer, whose outputs are
    kept.
    slope_below: where the slope of the layer below is written, ``[p, B, in]``; None where no layer
    below moves.
    relu_below: whether the inputs come from a ReLU.
    """

    factor: Tensor
    factor_transposed: Tensor
    bias_factor: Tensor | None
    weight: Block | None
    bias: Block | None
    converts: bool
    relu: bool
    turned: bool
    outputs: Tensor | None
    slope_below: Tensor | None
    relu_below: bool


class _Fused:
    """Plain SGD with one learning rate for all clients; the gradient is accumulated into the
    weights and never stored.

    ``corrected``: whether a step has more terms than the gradient.
    """

    stores = False

    def __init__(
        self, products: MatrixProducts, lr: float, proximal: float, corrected: bool
    ) -> None:
        self.products = products
        self.lr = lr
        self.proximal = lr * proximal
        self.corrected = corrected or bool(self.proximal)

    def layer(self, layer: _LayerViews, slope: Tensor, inputs: Tensor, scale: float) -> None:
        """Update one layer by the gradient ``scale slope^T inputs``; ``slope`` ``[p, B, out]``, the
        layer's ``inputs`` ``[p, B, in]``."""
        weight, bias = layer.weight, layer.bias
        rate = -self.lr * scale
        if weight is not None and layer.factor is weight.w:
            self.products.add(weight.w, slope.mT, inputs, beta=1.0 - self.proximal, alpha=rate)
            self._correct(weight)
        elif weight is not None:
            self._add(weight, torch.bmm(slope.mT, inputs), layer.factor, rate)
        if bias is not None:
            if self.proximal:
                bias.w.mul_(1.0 - self.proximal)
            bias.w.add_(slope.sum(1, keepdim=True, dtype=bias.w.dtype), alpha=rate)
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
        if not self.corrected:
            return
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

    stores = True

    def __init__(
        self, products: MatrixProducts, solver: Solver, lr: Scale, proximal: Scale
    ) -> None:
        self.products = products
        self.solver = solver
        self.lr = lr
        self.proximal = proximal

    def layer(self, layer: _LayerViews, slope: Tensor, inputs: Tensor, scale: float) -> None:
        """Store one layer's gradient; arguments as in :meth:`_Fused.layer`."""
        weight, bias = layer.weight, layer.bias
        if weight is not None:
            if slope.dtype == weight.g.dtype:
                self.products.add(weight.g, slope.mT, inputs, beta=0.0, alpha=scale)
            else:
                weight.g.copy_(torch.bmm(slope.mT, inputs)).mul_(scale)
        if bias is not None:
            torch.sum(slope, 1, keepdim=True, dtype=bias.g.dtype, out=bias.g).mul_(scale)

    def end(self, blocks: list[Block], number: int) -> None:
        """Update the parameters."""
        p = len(blocks[0].w) if blocks else 0
        lr, proximal = (
            scale[:p] if isinstance(scale, Tensor) else scale for scale in (self.lr, self.proximal)
        )
        self.solver.step(blocks, lr, proximal, number)


def _prefix(block: Block, p: int) -> Block:
    """Return the block of the first p clients; tensors shared by all clients stay whole."""
    if p == block.w.shape[0]:
        return block
    first = (t if t is None or t.shape[0] == 1 else t[:p] for t in block)
    return Block(*first)  # type: ignore[arg-type]


class _Stack:
    """The weights of a chunk's clients, and buffers for what a step computes, which every step
    overwrites.

    Parameters
    ----------
    layers: of the model.
    kinds: the type in which each layer multiplies.
    blocks: every client's parameters.
    moves: which parameters do.
    places: of the largest step, over all of its clients.
    products: of matrices.
    """

    def __init__(
        self,
        layers: tuple[Layer, ...],
        kinds: list[torch.dtype],
        blocks: list[Block],
        moves: list[bool],
        places: int,
        products: MatrixProducts,
    ) -> None:
        self.layers = layers
        self.products = products
        self.kinds = kinds
        self.blocks = blocks
        self.moves = moves
        self.dtype = blocks[0].w.dtype
        self.rounds = any(kind != self.dtype for kind in kinds)
        self.factors = self._factors()
        moved = [any(moves[i] for i in (at.weight, at.bias) if i is not None) for at in layers]
        self.lowest = moved.index(True) if True in moved else len(layers)
        first = blocks[0].w
        # of each layer: its outputs, and the slope of what it takes in
        self._outputs = [
            first.new_empty(0 if at is layers[-1] else places * size, dtype=kind)
            for at, size, kind in zip(layers, self._sizes(-2), kinds, strict=True)
        ]
        self._slopes = [
            first.new_empty(places * size if at > self.lowest else 0, dtype=kind)
            for at, (size, kind) in enumerate(zip(self._sizes(-1), kinds, strict=True))
        ]
        self._steps: dict[tuple[int, int], tuple[list[_LayerViews], list[Block]]] = {}

    def _sizes(self, axis: int) -> list[int]:
        return [self.blocks[layer.weight].w.shape[axis] for layer in self.layers]

    def _factors(self) -> Blocks:
        """Return the weights as products take them: themselves, or in bfloat16."""
        factors = [block.w for block in self.blocks]
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            for i in (layer.weight, layer.bias):
                if i is not None:
                    factors[i] = factors[i].to(kind)
        return factors

    def step(self, p: int, width: int) -> tuple[list[_LayerViews], list[Block]]:
        """Return the views for a step of p clients with ``width`` places, and the parameters that
        move."""
        views = self._steps.get((p, width))
        if views is None:
            views = self._steps[p, width] = self._views(p, width)
        return views

    def _views(self, p: int, width: int) -> tuple[list[_LayerViews], list[Block]]:
        blocks = [_prefix(block, p) for block in self.blocks]
        factors = [
            block.w if factor is own.w else factor[:p]
            for factor, own, block in zip(self.factors, self.blocks, blocks, strict=True)
        ]
        inputs = [self.kinds[0], *self.kinds]  # the types in which each layer's inputs come
        layers = []
        for at, (layer, kind) in enumerate(zip(self.layers, self.kinds, strict=True)):
            factor = factors[layer.weight]
            _, outs, ins = factor.shape
            turned = layer is self.layers[-1] and outs < self.products.few
            bias = None if layer.bias is None else factors[layer.bias]
            outputs = (
                None
                if layer is self.layers[-1]
                else self.products.places(self._outputs[at], p, width, outs)
            )
            layers.append(
                _LayerViews(
                    factor=factor,
                    factor_transposed=factor.mT,
                    bias_factor=bias.mT if turned and bias is not None else bias,
                    weight=blocks[layer.weight] if self.moves[layer.weight] else None,
                    bias=(
                        None
                        if layer.bias is None or not self.moves[layer.bias]
                        else blocks[layer.bias]
                    ),
                    converts=inputs[at] != kind,
                    relu=layer.relu,
                    turned=turned,
                    outputs=outputs,
                    slope_below=(
                        self.products.places(self._slopes[at], p, width, ins)
                        if at > self.lowest
                        else None
                    ),
                    relu_below=at > 0 and self.layers[at - 1].relu,
                )
            )
        return layers, [block for block, moves in zip(blocks, self.moves, strict=True) if moves]

    def round(self, p: int, weights: bool) -> None:
        """Round the biases that a step of p clients has changed, and the ``weights``, unless the
        update has done so."""
        for layer, kind in zip(self.layers, self.kinds, strict=True):
            for i in (layer.weight if weights else None, layer.bias):
                if i is not None and kind != self.dtype:
                    self.factors[i][:p].copy_(self.blocks[i].w[:p])


class StackedLinear(Executor):
    """Trains chunks of a stack of linear layers.

    Parameters
    ----------
    layers: of the model.
    setting: of the run.
    products: of matrices.
    """

    def __init__(
        self, layers: tuple[Layer, ...], setting: Setting, products: MatrixProducts
    ) -> None:
        self.layers = layers
        self.products = products
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
        blocks = self._blocks(chunk, update.stores)
        stack = _Stack(
            self.layers,
            self.kinds,
            blocks,
            moves=chunk.moves,
            places=chunk.places,
            products=self.products,
        )
        for step in chunk.steps():
            layers, moving = stack.step(step.active, step.width)
            inputs = (
                chunk.inputs(step) if self.kinds[0] == self.dtype else chunk.rounded_inputs(step)
            )
            inputs_by_layer, last = _forward(
                layers, inputs.view(step.active, step.width, -1), self.products
            )
            outputs = widened(last)
            chunk.record_outputs(step, outputs)
            slope, scale = self._slope(step, outputs)
            _backward(
                layers[stack.lowest :],
                inputs_by_layer[stack.lowest :],
                slope=slope,
                scale=scale,
                update=update,
            )
            chunk.record_gradients(block.g for block in moving)
            update.end(moving, step.number)
            if stack.rounds:
                stack.round(step.active, update.stores)
        return _rows(chunk.layout, [block.w for block in blocks])

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
            return _Fused(self.products, lr, proximal, chunk.corrected)
        return _Gathered(self.products, self.solver, lr, proximal)

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
        """Return the gradient of the losses by the outputs ``[p, B, C]``, and the factor still
        missing for the batch mean."""
        slope = self.loss.gradient(outputs, step.targets, step.extra)
        if step.weight is None:
            return slope, 1.0 / step.width
        return slope * step.weight.unsqueeze(2), 1.0


def _forward(
    layers: Sequence[_LayerViews], x: Tensor, products: MatrixProducts
) -> tuple[list[Tensor], Tensor]:
    """Return every layer's inputs ``[p, B, in]``, and the outputs of the last ``[p, B, out]``;
    ``x`` ``[p, B, in]``."""
    inputs = []
    h = x
    for layer in layers:
        if layer.converts:
            h = h.to(layer.factor.dtype)
        inputs.append(h)
        if layer.turned:
            h = products.forward(layer.factor, h.mT, layer.bias_factor, None).mT
        else:
            h = products.forward(h, layer.factor_transposed, layer.bias_factor, layer.outputs)
        if layer.relu:
            h.relu_()
    return inputs, h


def _backward(
    layers: Sequence[_LayerViews],
    inputs: Sequence[Tensor],
    slope: Tensor,
    scale: float,
    update: _Fused | _Gathered,
) -> None:
    """Update these layers, the lowest of which moves, from the last down; the slope of the layer
    below is computed before the weights change."""
    for layer, h in zip(reversed(layers), reversed(inputs), strict=True):
        if slope.dtype != layer.factor.dtype:
            slope = slope.to(layer.factor.dtype)
        below = layer.slope_below
        if below is not None:
            update.products.multiply(slope, layer.factor, below)
            if layer.relu_below:
                torch.ops.aten.threshold_backward.grad_input(below, h, 0, grad_input=below)
        update.layer(layer, slope, h, scale)
        slope = slope if below is None else below
