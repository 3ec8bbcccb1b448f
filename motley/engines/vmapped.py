"""Other small models, many clients at once: ``torch.func.vmap`` over the gradient of one client's weighted mean loss.

No BatchNorm (its running statistics change in place), no dropout (its masks would not be those of a client training alone), no
hooks (they would see many clients at once).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap
from torch.nn.modules.batchnorm import _NormBase

from motley.algorithms.base import Tensors
from motley.algorithms.local import Block
from motley.core.layout import Entry, Layout
from motley.engines.base import Setting
from motley.engines.chunk import Chunk, Executor
from motley.tasks.flat import construct, hooked
from motley.tasks.nn import stochastic_layers

__all__ = ["Vmapped", "refuses_vmap"]


def refuses_vmap(module: nn.Module) -> str | None:
    """Why a module cannot be trained by vmap, or None."""
    norms = [name for name, m in module.named_modules() if isinstance(m, _NormBase)]
    if norms:
        return f"layer {norms[0]!r} keeps statistics that change while training"
    if stochastic_layers(module):
        return "it has dropout, whose masks are drawn client by client"
    if hooked(module):
        return "it has hooks, which would see many clients at once"
    if any(True for _ in module.buffers()):
        return "it has buffers"
    return None


class Vmapped(Executor):
    """Runs chunks of any module without buffers, random layers or hooks.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        self.solver = setting.solver
        self.loss = setting.algorithm.loss
        self.module = construct(setting.task.model, 0).to(setting.device, setting.dtype)
        self.slopes: Callable[..., tuple[dict[str, Tensor], tuple[Tensor, Tensor]]] = vmap(
            grad_and_value(self._objective, has_aux=True)
        )

    def _objective(
        self, weights: dict[str, Tensor], inputs: Tensor, targets: Tensor, share: Tensor, extra: Tensors
    ) -> tuple[Tensor, Tensor]:
        """One client's loss and its outputs; ``share`` ``[B]`` sums to 1 over the client's own batch."""
        outputs = functional_call(self.module, weights, (inputs,))
        return (self.loss.loss(outputs, targets, extra) * share).sum(), outputs

    def run(self, chunk: Chunk) -> Tensor:
        """See :meth:`Executor.run`."""
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
            gradient, (_, outputs) = self.slopes(now, inputs, step.targets, share, step.extra)
            chunk.met(step, outputs)
            chunk.met_gradient(gradient.values())
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
            rate, drawn = (scale[:p] if isinstance(scale, Tensor) else scale for scale in (lr, proximal))
            self.solver.step(blocks, rate, drawn, step.number)
        return torch.cat([own[entry.name].flatten(1) for entry in layout], dim=1)


def _blocks(layout: Layout, rows: Tensor) -> dict[str, Tensor]:
    """Views of flat rows ``[c, D]``, by parameter."""
    return {entry.name: _view(rows, entry) for entry in layout}


def _view(rows: Tensor, entry: Entry) -> Tensor:
    return rows[:, entry.slice].view(-1, *entry.shape)
