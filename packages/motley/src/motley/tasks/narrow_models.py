"""Narrower models: which units of a network belong together, and the same network with fewer of
them.

The structure is read from the module's graph (torch.fx): which layer's outputs are the inputs of
which other, and which are added, so that they must keep the same units. Linear layers, convolutions
without groups, BatchNorm, pools, activations without weights, flattening and sums are known; a
network with anything else is refused.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import operator
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveAvgPoolNd, _AdaptiveMaxPoolNd, _AvgPoolNd, _MaxPoolNd
from torch.utils.flop_counter import FlopCounterMode
from typing_extensions import override

from motley.core.errors import ModelError
from motley.core.layout import Axis, Entry, Layout
from motley.tasks.flat import construct
from motley.tasks.nn import Dropout

_KEEPS_UNITS = (
    nn.ReLU,
    nn.ReLU6,
    nn.LeakyReLU,
    nn.ELU,
    nn.GELU,
    nn.SiLU,
    nn.Tanh,
    nn.Sigmoid,
    nn.Hardtanh,
    nn.Softplus,
    nn.Identity,
    _DropoutNd,
    Dropout,
    _AvgPoolNd,
    _MaxPoolNd,
    _AdaptiveAvgPoolNd,
    _AdaptiveMaxPoolNd,
)
_KEEPS_UNITS_TOO: frozenset[Any] = frozenset(
    {
        F.relu,
        torch.relu,
        F.leaky_relu,
        F.elu,
        F.gelu,
        F.silu,
        torch.tanh,
        torch.sigmoid,
        F.max_pool2d,
        F.avg_pool2d,
        F.adaptive_avg_pool2d,
        F.adaptive_max_pool2d,
        F.dropout,
        "relu",
        "tanh",
        "sigmoid",
        "contiguous",
    }
)
_SUMS: frozenset[Any] = frozenset({operator.add, operator.iadd, torch.add, "add", "add_"})
_FLATTENS: frozenset[Any] = frozenset({torch.flatten, "flatten"})
_WHOLE = 0
"""The group of units that are never cut: the network's inputs and outputs."""


class _Flow(NamedTuple):
    """What passes between two layers: the group of its units, and whether they are features (last
    axis) or channels (second axis)."""

    group: int
    features: bool


class _Tracer(fx.Tracer):
    """Records layers without parts of their own as one step."""

    @override
    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return not isinstance(m, nn.Sequential) and (
            m.__module__.startswith("torch.nn") or not any(True for _ in m.children())
        )


class _Structure:
    """The groups of units of a network.

    Attributes
    ----------
    axes: parameter or buffer -> group and length of each axis.
    """

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self.units: list[int | None] = [None]  # of each group
        self.joined: list[int] = [_WHOLE]  # group -> a group with the same units, or itself
        self.axes: dict[str, list[tuple[int, int] | None]] = {}
        flows: dict[fx.Node, _Flow] = {}
        for node in _traced(module).nodes:
            if node.op == "output":
                (end,) = node.args
                self._join(self._flow(flows, end).group, _WHOLE)
            else:
                flows[node] = self._step(node, flows)

    def group(self, number: int) -> int:
        """Return the number that stands for all groups joined with one."""
        while self.joined[number] != number:
            number = self.joined[number]
        return number

    def axis(self, place: tuple[int, int] | None) -> Axis | None:
        """Return how an axis is cut; None: never."""
        if place is None or self.group(place[0]) == _WHOLE:
            return None
        group = self.group(place[0])
        units = self.units[self.group(place[0])] or 1
        return Axis(group, units, place[1] // units)

    def _join(self, first: int, second: int) -> None:
        first, second = sorted((self.group(first), self.group(second)))
        if first != _WHOLE and self.units[first] != self.units[second]:
            raise ModelError("it adds layers of different widths")
        self.joined[second] = first

    def _flow(self, flows: dict[fx.Node, _Flow], value: Any) -> _Flow:
        if not isinstance(value, fx.Node) or value not in flows:
            raise ModelError("its parts are not connected by tensors alone")
        return flows[value]

    def _step(self, node: fx.Node, flows: dict[fx.Node, _Flow]) -> _Flow:
        """Return what leaves a step of the network."""
        if node.op == "placeholder":
            return _Flow(_WHOLE, False)
        if node.op == "call_module":
            return self._layer(str(node.target), self._flow(flows, node.args[0]))
        if node.op in ("call_function", "call_method"):
            if node.target in _SUMS:
                left, right = (self._flow(flows, value) for value in node.args)
                self._join(left.group, right.group)
                return left
            if node.target in _FLATTENS and (*node.args[1:], *node.kwargs.values()) == (1,):
                return self._flow(flows, node.args[0])._replace(features=True)
            if node.target in _KEEPS_UNITS_TOO:
                return self._flow(flows, node.args[0])
        raise ModelError(f"it calls {getattr(node.target, '__name__', node.target)}")

    def _layer(self, name: str, came: _Flow) -> _Flow:
        layer = self.module.get_submodule(name)
        if isinstance(layer, _KEEPS_UNITS):
            return came
        if isinstance(layer, nn.Flatten) and (layer.start_dim, layer.end_dim) == (1, -1):
            return came._replace(features=True)
        if f"{name}.weight" in self.axes:
            raise ModelError(f"it uses the layer {name!r} twice")
        if isinstance(layer, _BatchNorm):
            self._check(came, layer.num_features, name)
            for kind in ("weight", "bias", "running_mean", "running_var"):
                self.axes[f"{name}.{kind}"] = [(came.group, layer.num_features)]
            return came
        convolves = (
            isinstance(layer, _ConvNd)
            and not isinstance(layer, _ConvTransposeNd)
            and layer.groups == 1
        )
        if type(layer) is nn.Linear or convolves:
            return self._weights(name, layer, came)
        raise ModelError(f"it has a layer {type(layer).__name__}, {name!r}")

    def _weights(self, name: str, layer: nn.Module, came: _Flow) -> _Flow:
        weight: Tensor = layer.get_parameter("weight")
        units, inputs, *kernel = weight.shape
        linear = type(layer) is nn.Linear
        if linear != came.features and self.group(came.group) != _WHOLE:
            raise ModelError(f"{name!r} mixes positions, not units; flatten before it")
        self._check(came, inputs, name)
        group = len(self.units)
        self.units.append(units)
        self.joined.append(group)
        self.axes[f"{name}.weight"] = [
            (group, units),
            (came.group, inputs),
            *[None for _ in kernel],
        ]
        self.axes[f"{name}.bias"] = [(group, units)]
        return _Flow(group, linear)

    def _check(self, came: _Flow, length: int, name: str) -> None:
        if length % (self.units[self.group(came.group)] or 1):
            raise ModelError(
                f"the {length} inputs of {name!r} are not those of the layer before it"
            )


def _traced(module: nn.Module) -> fx.Graph:
    try:
        return _Tracer().trace(module)
    except Exception as error:  # control flow, or whatever else the module does while it is traced
        message = str(error).partition(". ")[0].splitlines()
        raise ModelError(
            f"its graph cannot be read ({message[0] if message else type(error).__name__})"
        ) from None


def cuttable(layout: Layout, module: nn.Module) -> Layout:
    """Return the layout of a module with the units along each axis, so that :meth:`Layout.slices`
    works.

    All units of inputs and outputs stay; hidden layers whose outputs are added share their units.

    Raises
    ------
    ModelError: the structure cannot be derived, some parameters are frozen, or no hidden layer
    could be narrower.

    Example
    -------
    >>> from motley.tasks.flat import layout_of
    >>> hidden = nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 200), nn.ReLU()
    >>> module = nn.Sequential(*hidden, nn.Linear(200, 10))
    >>> 4 * cuttable(layout_of(module), module).kept_size(0.5)
    358440
    """
    sentence = f"a {type(module).__name__} cannot be cut into slices of its width"
    if any(not parameter.requires_grad for parameter in module.parameters()):
        raise ModelError(f"{sentence}: some of its parameters are frozen")
    try:
        structure = _Structure(copy.deepcopy(module))
    except ModelError as error:
        raise ModelError(
            f"{sentence}: {error}; linear layers, convolutions and residual sums can be cut"
        ) from None

    def known(entries: tuple[Entry, ...]) -> Iterator[Entry]:
        for entry in entries:
            if entry.name not in structure.axes:
                raise ModelError(
                    f"{sentence}: it is not known which units {entry.name!r} belongs to"
                )
            yield dataclasses.replace(
                entry, axes=tuple(map(structure.axis, structure.axes[entry.name]))
            )

    cut = Layout(tuple(known(layout.entries)), tuple(known(layout.buffers)), layout.counters)
    if not any(axis for entry in cut for axis in entry.axes or ()):
        raise ModelError(f"{sentence}: it has no hidden layer")
    return cut


_ROUNDED = 1e-4
"""Share of the largest output that rounding may change in float32."""


def require_slices(factory: Callable[[], nn.Module], layout: Layout, inputs: Tensor) -> None:
    """Refuse a model whose narrower form does not compute what the whole one does without its other
    units, as with a hook, a layer of one's own that is derived from a known one, or outputs of a
    linear layer that are flattened position by position.

    Parameters
    ----------
    factory, layout: of the whole model, the layout from :func:`cuttable`.
    inputs: of the model, ``[B, ...]``.

    Raises
    ------
    ModelError: it differs.
    """
    whole = construct(factory, 0).eval()
    narrow = construct(lambda: narrowed(factory, layout, 0.5, divided=False), 0).eval()
    draws = torch.Generator().manual_seed(0)
    kind = type(whole).__name__
    sentence = f"a {kind} cannot be cut into slices of its width: half of it"
    with torch.no_grad():
        for entry in layout:
            held = np.ix_(*entry.kept(0.5))
            fan_in = math.prod(entry.shape[1:])
            value = torch.randn(entry.shape, generator=draws) / math.sqrt(fan_in)
            narrow.get_parameter(entry.name).copy_(value[held])
            zeroed = torch.zeros_like(value)
            zeroed[held] = value[held]
            whole.get_parameter(entry.name).copy_(zeroed)
        expected = whole(inputs.clone())
        try:
            outputs = narrow(inputs.clone())
        except Exception as error:  # a forward of one's own may raise anything
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise ModelError(f"{sentence} fails ({reason})") from error
    if not float((outputs - expected).abs().max()) <= _ROUNDED * float(expected.abs().max()):
        raise ModelError(
            f"{sentence} computes something else than the whole without the other half: a hook, a "
            "layer of your own in place of torch's, or positions that are flattened after a linear "
            "layer; leave it out, or use a method of whole models"
        )


_SIZES = {
    "in_features": 1,
    "out_features": 0,
    "in_channels": 1,
    "out_channels": 0,
    "num_features": 0,
}
"""Attribute of a layer -> the axis of its weight whose length it tells."""


def narrowed(
    factory: Callable[[], nn.Module], layout: Layout, width: float, divided: bool
) -> nn.Module:
    """Return a fresh module that is ``width`` times as wide, with the first units of every hidden
    layer.

    Parameters
    ----------
    factory, layout: of the whole model, the layout from :func:`cuttable`.
    divided: whether in training the outputs of hidden linear layers and convolutions are divided by
    the width, so that they are about as large as the whole model's.
    """
    module = factory()
    for entry in (*layout.entries, *layout.buffers):
        owner = module.get_submodule(entry.layer)
        name = entry.name.rpartition(".")[2]
        value = getattr(owner, name).detach()
        for axis, index in enumerate(entry.kept(width)):
            value = value.index_select(axis, torch.from_numpy(index))
        setattr(
            owner,
            name,
            nn.Parameter(value) if isinstance(getattr(owner, name), nn.Parameter) else value,
        )
        if name == "weight":
            for attribute, axis in _SIZES.items():
                if hasattr(owner, attribute):
                    setattr(owner, attribute, value.shape[axis])
            if (
                divided
                and entry.axes is not None
                and len(entry.axes) > 1
                and entry.axes[0] is not None
            ):
                owner.forward = _Divided(owner, width)
    return module


class _Divided:
    """What a linear layer or convolution computes, divided by the width of its model in training
    alone.

    The weights are divided, which are fewer numbers than the outputs."""

    def __init__(self, layer: Any, width: float) -> None:
        self.layer = layer
        self.width = width

    def __call__(self, inputs: Tensor) -> Tensor:
        layer = self.layer
        scale = self.width if self.layer.training else 1.0
        weight, bias = (
            value if value is None or scale == 1.0 else value / scale
            for value in (layer.weight, layer.bias)
        )
        if isinstance(layer, nn.Linear):
            outputs: Tensor = F.linear(inputs, weight, bias)
        else:
            outputs = layer._conv_forward(inputs, weight, bias)
        return outputs


def rough_operations(module: nn.Module, sample: Tensor) -> int:
    """Return about how many floating-point operations a forward pass of ``sample`` ``[1, ...]``
    takes: those of the weights of each layer, at each of its outputs.

    :func:`operations` counts exactly; its first call imports a compiler, which takes a second.
    """
    total = 0

    def count(layer: nn.Module, inputs: object, outputs: object) -> None:
        nonlocal total
        first = outputs[0] if isinstance(outputs, tuple) and outputs else outputs
        if isinstance(first, Tensor):
            own = [p for p in layer.parameters(recurse=False) if p.ndim > 1]
            total += sum(2 * p.numel() * first.numel() // max(p.shape[0], 1) for p in own)

    hooks = [
        layer.register_forward_hook(count)
        for layer in module.modules()
        if not isinstance(layer, torch.jit.ScriptModule)  # takes none
    ]
    with torch.no_grad():
        module.eval()(sample)
    for hook in hooks:
        hook.remove()
    return total


def operations(module: nn.Module, sample: Tensor) -> int:
    """Return the floating-point operations of linear layers and convolutions in a forward pass of
    ``sample`` ``[1, ...]``."""
    module.eval()
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        module(sample)
    return int(counter.get_total_flops())
