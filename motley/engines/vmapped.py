"""Trains many clients of a small model at once with ``torch.func.vmap`` over the gradient of one client's weighted mean loss.

Models with BatchNorm (its running statistics change in place), dropout (its masks would not be those of a client training alone) or
hooks (they would run once for many clients) are refused.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _NormBase
from typing_extensions import override

from motley.algorithms.base import Tensors
from motley.algorithms.local import Block
from motley.core.layout import Layout
from motley.engines.base import Setting
from motley.engines.chunk import Chunk, Executor
from motley.tasks.flat import construct, hooked
from motley.tasks.nn import stochastic_layers

__all__ = ["Vmapped", "refuses_vmap"]


def refuses_vmap(module: nn.Module) -> str | None:
    """Return why a module cannot be trained by vmap, or None if it can."""
    norms = [name for name, m in module.named_modules() if isinstance(m, _NormBase)]
    if norms:
        return f"layer {norms[0]!r} keeps statistics that change while training"
    if stochastic_layers(module):
        return "it has dropout, whose masks are drawn client by client"
    if hooked(module):
        return "it has hooks, which would run once for many clients"
    if any(True for _ in module.buffers()):
        return "it has buffers"
    return None


class Vmapped(Executor):
    """Trains chunks of any module without buffers, random layers or hooks.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        self.solver = setting.solver
        self.loss = setting.algorithm.loss
        self.module = construct(setting.task.model, 0).to(setting.device, setting.dtype)
        self.gradients: Callable[..., tuple[dict[str, Tensor], tuple[Tensor, Tensor]]] = vmap(
            grad_and_value(self._objective, has_aux=True)
        )

    def _objective(
        self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor, share: Tensor, extra: Tensors
    ) -> tuple[Tensor, Tensor]:
        """Return one client's loss and outputs; ``share`` ``[B]`` sums to 1 over the client's own batch."""
        outputs = functional_call(self.module, weights, (inputs,))
        return (self.loss.loss(outputs, targets, extra) * share).sum(), outputs

    @override
    def run(self, chunk: Chunk) -> Tensor:
        layout, c = chunk.layout, len(chunk)
        received = _blocks(layout, chunk.received)
        own = {name: x.expand(c, *x.shape[1:]).clone(memory_format=torch.contiguous_format) for name, x in received.items()}
        offset = None if chunk.offset is None else _blocks(layout, chunk.offset)
        kept = {name: self.solver.fresh(w) for name, w in own.items()}
        lr, proximal = chunk.lr, chunk.proximal
        for step in chunk.steps():
            p = step.active
            inputs = chunk.inputs(step)
            inputs = inputs.view(p, step.width, *inputs.shape[1:])
            share = inputs.new_full((p, step.width), 1.0 / step.width) if step.weight is None else step.weight
            now = {name: w[:p] for name, w in own.items()}
            gradient, (_, outputs) = self.gradients(now, inputs, step.targets, share, step.extra)
            chunk.record_outputs(step, outputs)
            chunk.record_gradients(gradient.values())
            blocks = [
                Block(
                    w[:p],
                    gradient[name].contiguous(),
                    received[name] if len(received[name]) == 1 else received[name][:p],
                    None if offset is None else offset[name][:p],
                    *(None if t is None else t[:p] for t in kept[name]),
                )
                for name, w in own.items()
            ]
            rates, proximals = (scale[:p] if isinstance(scale, Tensor) else scale for scale in (lr, proximal))
            self.solver.step(blocks, rates, proximals, step.number)
        return torch.cat([own[entry.name].flatten(1) for entry in layout], dim=1)


def _blocks(layout: Layout, rows: Tensor) -> dict[str, Tensor]:
    """Return views of flat rows ``[c, D]``, by parameter."""
    return {entry.name: rows[:, entry.slice].view(-1, *entry.shape) for entry in layout}
