"""Trains many clients of a small model at once: ``torch.func.vmap`` computes the outputs of all
clients, and autograd the gradients of their losses, each of which depends on a client's own weights
alone.

Models with BatchNorm (its running statistics change in place), dropout (its masks would not be
those of a client training alone), hooks (they would run once for many clients), or layers and
operations that torch cannot batch over clients are refused.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap
from torch.nn.modules.batchnorm import _NormBase
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from motley.algorithms.local_optimisers import Block
from motley.core.layout import Layout
from motley.engines.chunk import Chunk, Executor
from motley.engines.engine import Setting
from motley.tasks.flat import construct, hooked, placed
from motley.tasks.nn import stochastic_layers
from motley.tasks.precision import products, widened
from motley.tasks.task import model_input

_CLIENT_BY_CLIENT = (nn.RNNBase, nn.RNNCellBase, nn.MultiheadAttention, nn.EmbeddingBag)
"""Layers of torch that vmap computes client by client, or step by step, several times slower than
threads do."""


_EMBEDDINGS: Mapping[object, tuple[str, ...]] = {
    nn.functional.embedding: tuple(inspect.signature(nn.functional.embedding).parameters),
    torch.embedding: ("weight", "indices", "padding_idx", "scale_grad_by_freq", "sparse"),
}
"""Functions that look up embeddings, with the names of their arguments."""


def refuses_vmap(setting: Setting) -> str | None:
    """Return why a setting's model cannot be trained by vmap, or None if it can.

    What a table of layers does not know, such as an operation in a module's own ``forward``, is
    found by one gradient of two clients: torch warns where it has no batching rule.
    """
    module = placed(construct(setting.task.model, 0), setting.dtype, "cpu")
    return _refuses_layers(module) or _refuses_gradient(setting)


def _refuses_layers(module: nn.Module) -> str | None:
    norms = [name for name, m in module.named_modules() if isinstance(m, _NormBase)]
    if norms:
        return f"layer {norms[0]!r} keeps statistics that change while training"
    if stochastic_layers(module):
        return "it has dropout, whose masks are drawn client by client"
    if hooked(module):
        return "it has hooks, which would run once for many clients"
    if any(True for _ in module.buffers()):
        return "it has buffers"
    narrow = [name for name, p in module.named_parameters() if p.dtype.itemsize < 4]
    if narrow:
        return (
            f"parameter {narrow[0]!r} has 16 bits, whose rounding depends on how many clients are "
            "computed at once"
        )
    slow = [
        (name, type(m).__name__)
        for name, m in module.named_modules()
        if isinstance(m, _CLIENT_BY_CLIENT)
    ]
    if slow:
        return (
            f"layer {slow[0][0] or 'the model itself'!r} ({slow[0][1]}) would be computed "
            "client by client"
        )
    return None


def _refuses_gradient(setting: Setting) -> str | None:
    """Return why the gradient of two clients with two samples each is not computed in one, or None
    if it is."""
    data = setting.task.federation
    loss = setting.algorithm.loss
    module = placed(construct(setting.task.model, 0), setting.dtype, setting.device)
    raw = data.x[torch.from_numpy(data.train.values[:2])]
    targets = data.labels[:2]
    inputs = model_input(
        raw if setting.task.transform is None else setting.task.transform(raw, None), setting.dtype
    )
    targets = targets.to(setting.dtype) if targets.is_floating_point() else targets
    inputs, targets = (torch.stack([t, t]).to(setting.device) for t in (inputs, targets))
    weights = {
        name: torch.stack([w.detach()] * 2)
        for name, w in module.named_parameters()
        if w.requires_grad
    }
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            with _Embeddings() as embeddings:
                leaves, outputs = _ManyClients(setting, module).outputs(weights, weights, inputs)
            if embeddings.option is not None:
                return f"it has an embedding with {embeddings.option}, which is a client's own"
            slope = outputs.detach()
            _gradients(
                leaves, outputs, slope if loss.prepares else loss.gradient(slope, targets, {})
            )
        except Exception as error:  # torch raises different errors for what it cannot batch
            return (
                "torch cannot batch it over clients "
                f"({(str(error).splitlines() or [type(error).__name__])[0]})"
            )
    missing = [str(w.message).partition("batching rule for ")[2].partition(".")[0] for w in caught]
    return next(
        (
            f"torch has no batching rule for {name} and would compute client by client"
            for name in missing
            if name
        ),
        None,
    )


class _Embeddings(TorchFunctionMode):
    """Notes an option of embeddings that changes their gradients alone. It would be that of the
    clients' tables one below the other: a row that stands still, or how often a row is used."""

    option: str | None = None

    @override
    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = {**dict(zip(_EMBEDDINGS.get(func, ()), args, strict=False)), **(kwargs or {})}
        if func in _EMBEDDINGS:
            if given.get("padding_idx") not in (None, -1):
                self.option = "padding_idx"
            if given.get("scale_grad_by_freq") or given.get("sparse"):
                self.option = "scale_grad_by_freq or sparse"
        return func(*args, **(kwargs or {}))


class _ManyClients:
    """A module with the weights of many clients. ``setting``: of the run; it is not kept, for the
    data would stay with it until Python looks for cycles."""

    def __init__(self, setting: Setting, module: nn.Module) -> None:
        self.precision = setting.precision
        self.device = setting.device
        self.module = module
        self._together = vmap(self._of_client)

    def _of_client(self, weights: dict[str, Tensor], inputs: Tensor) -> Tensor:
        with products(self.precision, self.device):
            return widened(functional_call(self.module, weights, (inputs,)))

    def outputs(
        self, weights: Mapping[str, Tensor], moving: Collection[str], inputs: Tensor
    ) -> tuple[dict[str, Tensor], Tensor]:
        """Return the weights that move, by name, and the outputs ``[p, B, ...]``, which remember
        how they were computed of them.

        Parameters
        ----------
        weights: by name, ``[p, ...]``.
        moving: names of those that move.
        inputs: ``[p, B, ...]``.
        """
        leaves = {name: w.detach().requires_grad_(name in moving) for name, w in weights.items()}
        with torch.enable_grad():
            outputs: Tensor = self._together(leaves, inputs)
        return {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}, outputs


def _gradients(leaves: Mapping[str, Tensor], outputs: Tensor, slope: Tensor) -> dict[str, Tensor]:
    """Return the gradients of the leaves, ``[p, ...]``; 0 of those that no output depends on.
    ``slope``: of the losses by the outputs, in their shape."""
    if not leaves or not outputs.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    gradients = torch.autograd.grad(
        outputs, list(leaves.values()), slope, allow_unused=True, materialize_grads=True
    )
    return dict(zip(leaves, gradients, strict=True))


class Vmapped(Executor):
    """Trains chunks of any module without buffers, random layers or hooks.

    Parameters
    ----------
    setting: of the run.
    """

    def __init__(self, setting: Setting) -> None:
        self.solver = setting.solver
        self.loss = setting.algorithm.loss
        module = placed(construct(setting.task.model, 0), setting.dtype, setting.device)
        self.model = _ManyClients(setting, module)

    @override
    def run(self, chunk: Chunk) -> Tensor:
        layout = chunk.layout
        c = len(chunk)
        start = _blocks(layout, chunk.start)
        anchor = _blocks(layout, chunk.anchor)
        own = {
            # Expanded rows share their memory: each client needs its own before a step in place.
            name: x.expand(c, *x.shape[1:]).clone(memory_format=torch.contiguous_format)
            for name, x in start.items()
        }
        moving = {entry.name for entry, moves in zip(layout, chunk.moves, strict=True) if moves}
        offset, drift = (
            None if rows is None else _blocks(layout, rows) for rows in (chunk.offset, chunk.drift)
        )
        optimizer_states = {name: self.solver.fresh(w) for name, w in own.items()}
        lr = chunk.lr
        proximal = chunk.proximal
        for step in chunk.steps():
            p = step.active
            inputs = chunk.inputs(step)
            inputs = inputs.view(p, step.width, *inputs.shape[1:])
            if step.weight is None:
                share = chunk.weight.new_full((p, step.width), 1.0 / step.width)
            else:
                share = step.weight
            now = {name: w[:p] for name, w in own.items()}
            leaves, with_graph = self.model.outputs(now, moving, inputs)
            outputs = with_graph.detach()
            slope = self.loss.gradient(outputs, step.targets, step.extra)
            slope = slope * share.view(*share.shape, *[1] * (slope.dim() - 2))
            gradient = _gradients(leaves, with_graph, slope)
            chunk.record_outputs(step, outputs)
            chunk.record_gradients(gradient[name] for name in own if name in moving)
            blocks = [
                Block(
                    w[:p],
                    gradient[name].contiguous(),
                    anchor[name] if len(anchor[name]) == 1 else anchor[name][:p],
                    None if offset is None else offset[name][:p],
                    *(None if t is None else t[:p] for t in optimizer_states[name]),
                )._replace(drift=None if drift is None else drift[name][:p])
                for name, w in own.items()
                if name in moving
            ]
            rates, proximals = (
                scale[:p] if isinstance(scale, Tensor) else scale for scale in (lr, proximal)
            )
            self.solver.step(blocks, rates, proximals, step.number)
        return torch.cat([own[entry.name].reshape(c, entry.size) for entry in layout], dim=1)


def _blocks(layout: Layout, rows: Tensor) -> dict[str, Tensor]:
    """Return views of flat rows ``[c, D]``, by parameter."""
    return {entry.name: rows[:, entry.slice].view(len(rows), *entry.shape) for entry in layout}
