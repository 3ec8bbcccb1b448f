"""Models as flat vectors: their state, modules whose parameters are views into one vector, and a
network as a function of a state.

Loading a model is three copies, reading it three clones; no ``state_dict`` is made.
"""

from __future__ import annotations

import functools
import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.parameter import UninitializedParameter

from motley.core.errors import ModelError
from motley.core.keys import Key
from motley.core.layout import Entry, Layout
from motley.tasks.nn import set_stream
from motley.tasks.precision import Precision, products, widened

_BUILDING = threading.Lock()  # torch draws weights from one process-wide generator
_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm)


@dataclass(frozen=True)
class ModelState:
    """The state of a model: parameters, floating buffers and integer buffers.

    Reference: docs/methods/index.md#model-state.

    Parameters
    ----------
    x: ``[D]`` trainable parameters in ``named_parameters()`` order.
    buffers: ``[Bf]`` floating buffers (BatchNorm statistics), of the same dtype, or float64 where
    one of them is.
    counters: int64 ``[Bi]`` integer buffers.
    """

    x: Tensor
    buffers: Tensor
    counters: Tensor

    def to(self, device: torch.device | str) -> ModelState:
        """Return it on a device."""
        return replace(
            self,
            x=self.x.to(device),
            buffers=self.buffers.to(device),
            counters=self.counters.to(device),
        )


@dataclass(frozen=True)
class ArchitectureState(ModelState):
    """The state of a model of the architecture with a number; a plain :class:`ModelState` is one
    of the first."""

    architecture: int = 0


def architecture_of(model: ModelState) -> int:
    """Return the number of the architecture that a state belongs to."""
    return model.architecture if isinstance(model, ArchitectureState) else 0


def of_architecture(model: ModelState, number: int) -> ModelState:
    """Return a state as one of the architecture with this number."""
    return ArchitectureState(model.x, model.buffers, model.counters, number) if number else model


class LossGradient(NamedTuple):
    """A scalar loss at a model, its gradient ``[D]``, and the model after the pass (its buffers
    change in training mode)."""

    loss: float
    gradient: Tensor
    state: ModelState


def layout_of(module: nn.Module) -> Layout:
    """Return the position of each trainable parameter in the flat vector, in ``named_parameters()``
    order.

    A parameter shared by two layers occurs once, under its first name; frozen ones
    (``requires_grad=False``) do not occur.

    Raises
    ------
    ModelError: no trainable parameters, a lazy layer that was never called, complex weights, or two
    parameters that are different objects over the same memory (they would become independent).
    """
    entries = []
    start = 0
    memory = []
    for name, parameter in module.named_parameters():
        if isinstance(parameter, UninitializedParameter):
            raise ModelError(
                f"parameter {name!r} has no shape yet; call the lazy module once on a sample "
                "before handing it over"
            )
        if not parameter.is_floating_point():
            raise ModelError(
                f"parameter {name!r} is {parameter.dtype}; expected floating-point weights"
            )
        if parameter.requires_grad:
            _refuse_expanded(name, parameter)
            layer = name.rpartition(".")[0]
            owner = _submodule(module, layer)
            entries.append(_entry(name, owner, parameter.shape, start))
            memory.append((parameter.data_ptr(), parameter.data_ptr() + parameter.nbytes, name))
            start += parameter.numel()
    if not start:
        raise ModelError(f"the {type(module).__name__} has no trainable parameters")
    _refuse_overlap(sorted(memory))
    floating, integer = (
        tuple(_entry(b.full, b.owner, b.shape, b.place.start) for b in kind)
        for kind in _buffers(module)
    )
    return Layout(tuple(entries), floating, integer)


def _entry(name: str, owner: nn.Module, shape: torch.Size, start: int) -> Entry:
    return Entry(
        name,
        layer=name.rpartition(".")[0],
        shape=tuple(shape),
        start=start,
        norm=_is(owner, _NORMS),
        linear=_is(owner, (nn.Linear,)),
        batch_norm=_is(owner, (_BatchNorm,)),
    )


def _is(layer: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Return whether a layer is of one of these kinds; one that was scripted keeps the name of its
    kind alone."""
    if isinstance(layer, torch.jit.ScriptModule):
        named: object = getattr(nn, layer.original_name, None)
        return isinstance(named, type) and issubclass(named, kinds)
    return isinstance(layer, kinds)


def _refuse_expanded(name: str, parameter: nn.Parameter) -> None:
    steps = zip(parameter.shape, parameter.stride(), strict=True)
    if any(size > 1 and not step for size, step in steps):
        raise ModelError(
            f"several numbers of parameter {name!r} lie at one place in memory (expand), which no "
            "optimizer can step; write nn.Parameter(value.clone())"
        )


def _refuse_overlap(memory: list[tuple[int, int, str]]) -> None:
    for (_, end, first), (begin, _, second) in itertools.pairwise(memory):
        if begin < end:
            raise ModelError(
                f"parameters {first!r} and {second!r} lie over the same memory; share one "
                "nn.Parameter instead"
            )


class _Buffer(NamedTuple):
    """A registered buffer: its module, its name there, its full dotted name, its position in the
    flat vector, its shape and its type."""

    owner: nn.Module
    name: str
    full: str
    place: slice
    shape: torch.Size
    dtype: torch.dtype


def placed(module: nn.Module, dtype: torch.dtype, device: str | torch.device) -> nn.Module:
    """Return the module on a device, its trainable parameters of ``dtype``, in place. In float32
    buffers and frozen parameters keep their own types, as in plain torch.

    A buffer that several layers share stays one tensor, which torch's own conversion makes many."""
    shared = [group for group in _shared_buffers(module) if len(group) > 1]
    if dtype == torch.float32:
        module = module.to(device)
        for parameter in module.parameters():
            if parameter.requires_grad and parameter.dtype != dtype:
                parameter.data = parameter.data.to(dtype)
    else:
        module = module.to(device, dtype)
    for (first, its_name), *repeats in shared:
        for layer, name in repeats:
            setattr(layer, name, getattr(first, its_name))
    return module


def _shared_buffers(module: nn.Module) -> list[list[tuple[nn.Module, str]]]:
    """Return, for each buffer, the layers that hold it and its name in each."""
    places: dict[int, list[tuple[nn.Module, str]]] = {}
    for layer in module.modules():
        for name, value in layer.named_buffers(recurse=False):
            places.setdefault(id(value), []).append((layer, name))
    return list(places.values())


class FlatModule:
    """A module whose parameters, gradients and buffers are views into flat vectors.

    Parameters
    ----------
    module: changed in place: it is moved to ``dtype`` and ``device`` (:func:`placed`), and its
    parameters and buffers become views; buffers of another type than their vector's are copied.
    dtype, device: of the parameters, floating buffers and gradients.

    Attributes
    ----------
    w: ``[D]`` parameters; writing to it changes the module.
    g: ``[D]`` gradients; ``backward`` adds to it (never set ``parameter.grad`` to None, zero ``g``
    instead).
    buffers: ``[Bf]``.
    counters: int64 ``[Bi]``.
    layout: names of ``w``.

    Buffers registered with ``persistent=False`` and frozen parameters are constants of the module:
    they are not part of its state.
    """

    def __init__(
        self,
        module: nn.Module,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> None:
        self.module = placed(module, dtype, device)
        self.layout = layout_of(self.module)
        self.w = torch.empty(self.layout.size, dtype=dtype, device=device)
        self.g = torch.zeros_like(self.w)
        self._point_parameters()
        floating, integer = _buffers(self.module)
        double = any(buffer.dtype == torch.float64 for buffer in floating)
        self._views: list[tuple[_Buffer, Tensor]] = []
        self._copied: list[tuple[_Buffer, Tensor]] = []
        self.buffers = self._point_buffers(floating, torch.float64 if double else dtype)
        self.counters = self._point_buffers(integer, torch.int64)

    @classmethod
    def of(
        cls,
        factory: Callable[[], nn.Module],
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
    ) -> FlatModule:
        """Return a fresh module whose constants (frozen parameters) are the same every time; load
        its weights before use."""
        return cls(construct(factory, 0), dtype, device)

    def _point_parameters(self) -> None:
        parameters = dict(self.module.named_parameters())
        with torch.no_grad():
            for entry in self.layout:
                parameter = parameters[entry.name]
                view = self.w[entry.slice].view(entry.shape)
                view.copy_(parameter)
                parameter.data = view
                parameter.grad = self.g[entry.slice].view(entry.shape)

    def _point_buffers(self, buffers: list[_Buffer], dtype: torch.dtype) -> Tensor:
        row = torch.zeros(
            sum(buffer.shape.numel() for buffer in buffers), dtype=dtype, device=self.w.device
        )
        places = {id(getattr(*group[0])): group for group in _shared_buffers(self.module)}
        for buffer in buffers:
            view = row[buffer.place].view(buffer.shape)
            own = getattr(buffer.owner, buffer.name)
            view.copy_(own)
            alike = buffer.dtype == dtype
            # a copy, for the function that makes the module may give all modules the same tensor
            value = view if alike else own.clone()
            # a scripted layer gives another object each time
            for layer, name in places.get(id(own), [(buffer.owner, buffer.name)]):
                setattr(layer, name, value)
            (self._views if alike else self._copied).append((buffer, view))
        return row

    def load(self, state: ModelState) -> None:
        """Copy a state into the module; gradients do not change."""
        with torch.no_grad():
            self._gather()
            self.w.copy_(state.x)
            self.buffers.copy_(state.buffers)
            self.counters.copy_(state.counters)
            for buffer, view in self._copied:
                getattr(buffer.owner, buffer.name).copy_(view)

    def state(self) -> ModelState:
        """Return a copy of the current weights and buffers."""
        with torch.no_grad():
            self._gather()
            return ModelState(self.w.clone(), self.buffers.clone(), self.counters.clone())

    def gradient(self, loss: Tensor) -> Tensor:
        """Return the gradient of a scalar loss, ``[D]``: ``g`` itself, overwritten by the next
        call."""
        self.g.zero_()
        loss.backward()  # type: ignore[no-untyped-call]
        return self.g

    def bound_anew(self) -> list[str]:
        """Return the names of trainable parameters that no longer are views into ``w``, since a
        forward pass gave them other data or put other parameters in their place."""
        now = dict(self.module.named_parameters())
        return [
            entry.name
            for entry in self.layout
            if entry.name not in now
            or (entry.size and now[entry.name].data_ptr() != self.w[entry.slice].data_ptr())
        ]

    def _gather(self) -> None:
        """Copy back buffers that the module replaced instead of changing in place, and those of
        another type than their vector's."""
        for buffer, view in self._views:
            now = getattr(buffer.owner, buffer.name)
            if now is not view:
                view.copy_(now)
                setattr(buffer.owner, buffer.name, view)
        for buffer, view in self._copied:
            view.copy_(getattr(buffer.owner, buffer.name))


def _submodule(module: nn.Module, name: str) -> nn.Module:
    """Return the submodule of a dotted name; ``get_submodule`` refuses scripted modules."""
    return functools.reduce(getattr, name.split(".") if name else [], module)


def _named_buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    """Return the buffers that are part of the model's state."""
    persistent = module.state_dict(keep_vars=True).keys()
    return ((name, value) for name, value in module.named_buffers() if name in persistent)


def _buffers(module: nn.Module) -> tuple[list[_Buffer], list[_Buffer]]:
    """Return floating buffers, and integer ones, those of int64 first."""
    kinds: tuple[list[_Buffer], list[_Buffer]] = ([], [])
    for name, value in _named_buffers(module):
        if value.layout != torch.strided:
            raise ModelError(
                f"buffer {name!r} is sparse, and a model's state is a dense vector; write "
                f"register_buffer({name.rpartition('.')[2]!r}, ..., persistent=False) if it never "
                "changes, or store it with to_dense()"
            )
        if value.is_complex():
            raise ModelError(
                f"buffer {name!r} is {value.dtype}; expected floating-point or whole numbers"
            )
        layer, _, short = name.rpartition(".")
        owner = _submodule(module, layer)
        kinds[0 if value.is_floating_point() else 1].append(
            _Buffer(
                owner=owner,
                name=short,
                full=name,
                place=slice(0, 0),
                shape=value.shape,
                dtype=value.dtype,
            )
        )
    floating, integer = kinds
    integer.sort(key=lambda buffer: buffer.dtype != torch.int64)
    return _in_a_row(floating), _in_a_row(integer)


def _in_a_row(buffers: list[_Buffer]) -> list[_Buffer]:
    """Return the buffers with their positions, one after the other."""
    ends = itertools.accumulate(buffer.shape.numel() for buffer in buffers)
    return [
        buffer._replace(place=slice(end - buffer.shape.numel(), end))
        for buffer, end in zip(buffers, ends, strict=True)
    ]


def is_refusal_of_one(error: Exception) -> bool:
    """Return whether an error is torch's, of a normalization that got one value per channel."""
    return "more than 1 value per channel" in str(error)


def hooked(module: nn.Module) -> bool:
    """Return whether some layer or parameter has hooks (``weight_norm`` uses them), or some layer a
    ``forward`` of its own, which its type does not show."""
    return any(
        layer._forward_hooks
        or layer._forward_pre_hooks
        or layer._backward_hooks
        or layer._backward_pre_hooks
        or "forward" in vars(layer)
        for layer in module.modules()
    ) or any(p._backward_hooks or p._post_accumulate_grad_hooks for p in module.parameters())


@contextmanager
def torch_defaults() -> Iterator[None]:
    """Let torch make tensors in float32 on the CPU, and record what gradients need, inside the
    block, whatever the process's default type, device and mode are: weights that are drawn in
    another type are other numbers."""
    before = torch.get_default_dtype()
    on_cpu = torch.get_default_device().type == "cpu"
    torch.set_default_dtype(torch.float32)
    try:
        with (
            nullcontext() if on_cpu else torch.device("cpu"),
            torch.inference_mode(False),
            torch.enable_grad(),
        ):
            yield
    finally:
        torch.set_default_dtype(before)


def construct(factory: Callable[[], nn.Module], seed: int) -> nn.Module:
    """Return a fresh module with weights drawn from ``seed``; torch's process-wide generator and
    defaults are restored."""
    with _BUILDING, torch.random.fork_rng(devices=[]), torch_defaults():
        torch.default_generator.manual_seed(seed)
        return factory()


def initial(
    factory: Callable[[], nn.Module], key: Key, dtype: torch.dtype = torch.float32
) -> ModelState:
    """Return the initial model of a run: a function of the key alone, on the CPU; the same numbers
    in every ``dtype``."""
    return FlatModule(construct(factory, key.words()[0] >> 1), dtype).state()


class FlatNetwork:
    """A network as a function of a model state, for server rules that compute outputs and
    gradients; one reusable module.

    States may be on any device; results are on ``device``.

    Parameters
    ----------
    factory: makes fresh modules.
    dtype, device: of the arithmetic.
    precision: of matrix products and convolutions.
    chunk: batch size of :meth:`outputs`.

    Example
    -------
    >>> network = FlatNetwork(lambda: nn.Linear(2, 1, bias=False), torch.float64)
    >>> weights = torch.tensor([3.0, 4.0]).double()
    >>> state = ModelState(weights, torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    >>> network.loss_gradient(state, torch.ones(1, 2).double(), lambda outputs: outputs.sum())[:2]
    (7.0, tensor([1., 1.], dtype=torch.float64))
    """

    def __init__(
        self,
        factory: Callable[[], nn.Module],
        dtype: torch.dtype = torch.float32,
        device: str | torch.device = "cpu",
        chunk: int = 256,
        precision: Precision = "float32",
    ) -> None:
        self.flat = FlatModule.of(factory, dtype, device)
        self.chunk = chunk
        self.precision = precision

    def outputs(self, state: ModelState, inputs: Tensor) -> Tensor:
        """Return the outputs ``[B, ...]`` in eval mode, without gradients."""
        self.flat.load(state)
        self.flat.module.eval()
        with torch.no_grad():
            return torch.cat([self._forward(chunk) for chunk in torch.split(inputs, self.chunk)])

    def _forward(self, inputs: Tensor) -> Tensor:
        with products(self.precision, self.flat.w.device):
            return widened(self.flat.module(inputs))

    def loss_gradient(
        self,
        state: ModelState,
        inputs: Tensor,
        loss: Callable[[Tensor], Tensor],
        training: Key | None = None,
    ) -> LossGradient:
        """Return a scalar ``loss`` of the outputs and its gradient, in eval mode, or in training
        mode if a key for dropout is given.

        A single sample that torch refuses in training mode is evaluated in eval mode."""
        self.flat.load(state)
        module = self.flat.module
        module.train(training is not None)
        if training is not None:
            set_stream(module, training)
        try:
            outputs = self._forward(inputs)
        except (RuntimeError, ValueError) as error:
            if len(inputs) > 1 or not is_refusal_of_one(error):
                raise
            self.flat.load(state)
            module.eval()
            outputs = self._forward(inputs)
        value = loss(outputs)
        gradient = self.flat.gradient(value).clone()
        return LossGradient(float(value.detach()), gradient, self.flat.state())
