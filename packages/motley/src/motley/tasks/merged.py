"""Models into which products of low-rank factors are merged: every layer with an adapter also adds
``s P x``, s the constant before its ``B A x`` and P a buffer, zeros at first.

So it computes what the layer would with ``W + s P`` in place of its frozen W, which all modules of
a process share.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from motley.core.adapters import MERGED, Adapter, adapters_of
from motley.core.errors import ModelError
from motley.tasks.flat import layout_of

CLOSE = 1e-9
"""Share by which a layer in float64 may differ from ``W x + s B A x``: rounding."""


def merging(factory: Callable[[], nn.Module]) -> nn.Module:
    """Return a fresh module with a product for each of its adapters.

    Raises
    ------
    ModelError: it has no adapters, or one of another form than ``s B A x`` on vectors, or beside a
    weight that has two places.

    Example
    -------
    >>> from motley.testing.algorithms import Adapted
    >>> module = merging(lambda: Adapted(3, 2))
    >>> module.merged_product.shape, module.merged_scale
    (torch.Size([2, 3]), 1.0)
    """
    module = factory()
    shared = Counter(
        id(p) for submodule in module.modules() for p in submodule.parameters(recurse=False)
    )
    for adapter in adapters_of(layout_of(module)):
        submodule = module.get_submodule(adapter.owner)
        frozen = [p for p in submodule.parameters() if not p.requires_grad]
        if any(shared[id(p)] > 1 for p in frozen):
            raise ModelError(
                f"the weight of the layer {adapter.owner!r} is used in another place of the model, "
                "too, which a merged product would change; leave the layer out of task.targets"
            )
        if len(adapter.a.shape) != 2 or len(adapter.b.shape) != 2 or hasattr(submodule, MERGED):
            raise _refused(adapter)
        scale = _scale(submodule, adapter)
        submodule.register_buffer(MERGED, torch.zeros(adapter.b.shape[0], adapter.a.shape[1]))
        submodule.merged_scale = scale  # type: ignore[assignment]
        submodule.register_forward_hook(_with_product)
    return module


def fold_in(module: nn.Module) -> None:
    """Add ``s P`` to the frozen weights of a ``peft`` model's layers, in place."""
    for layer in module.modules():
        product = getattr(layer, MERGED, None)
        if product is not None:
            if layer.fan_in_fan_out:
                change = layer.merged_scale * product.mT
            else:
                change = layer.merged_scale * product
            layer.get_base_layer().weight.data.add_(change)  # type: ignore[operator]


def _with_product(layer: nn.Module, inputs: tuple[Tensor, ...], outputs: Tensor) -> Tensor:
    """Add what the products merged so far give; a hook, so that a copied layer uses its own."""
    product: Tensor = getattr(layer, MERGED)
    # in the first round, and where memory and operations are counted, which is on the CPU; to look
    # at another device's numbers would wait for it
    if product.device.type == "cpu" and not product.any():
        return outputs
    scale: float = layer.merged_scale  # type: ignore[assignment]
    return torch.add(outputs, F.linear(inputs[0], product.to(inputs[0].dtype)), alpha=scale)


def _scale(layer: nn.Module, adapter: Adapter) -> float:
    """Return the constant s of a layer that adds ``s B A x``, after trying that it does."""
    training = layer.training
    layer.eval()
    values = {name: value.detach().double() for name, value in layer.named_parameters()}
    own = len(adapter.owner) + 1 if adapter.owner else 0
    a = torch.linspace(-1, 1, adapter.a.size).double().view(adapter.a.shape)
    b = torch.linspace(1, -2, adapter.b.size).double().view(adapter.b.shape)
    x = torch.linspace(1, 2, adapter.a.shape[1]).double()[None]

    def outputs(factor: Tensor) -> Tensor:
        changed = {adapter.a.name[own:]: a, adapter.b.name[own:]: factor}
        out: Tensor = functional_call(layer, {**values, **changed}, (x,))
        return out

    with torch.no_grad():
        added = outputs(b) - outputs(torch.zeros_like(b))
        twice = outputs(2 * b) - outputs(torch.zeros_like(b))
    layer.train(training)
    product = x @ a.mT @ b.mT
    scale = float((added * product).sum() / product.square().sum())
    far = max((added - scale * product).abs().max(), (twice - 2 * scale * product).abs().max())
    if not far <= CLOSE * product.abs().max() or not scale:
        raise _refused(adapter)
    return float(torch.tensor(scale, dtype=torch.float32))


def _refused(adapter: Adapter) -> ModelError:
    return ModelError(
        f"the layer {adapter.owner!r} does not add s B A x of one adapter of vectors, so that its "
        'product cannot be merged; use algorithm = "flexlora", or adapters of linear layers'
    )
