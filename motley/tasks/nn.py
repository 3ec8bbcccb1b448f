"""Layers that draw random numbers from a job's own key instead of torch's process-wide generator."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from typing_extensions import override

from motley.core.errors import ConfigError, ModelError
from motley.core.keys import Key

__all__ = ["Dropout", "replace_stochastic", "require_keyed", "set_stream", "stochastic_layers"]


class Dropout(nn.Module):
    """``torch.nn.Dropout`` whose masks come from the job's own key: the same job has the same masks on any thread.

    Parameters
    ----------
    p: share of values set to zero, in [0, 1); the others are divided by ``1 - p``.
    channels: drop whole channels of ``[B, C, ...]`` (``torch.nn.Dropout1d``, ``2d``, ``3d``) instead of single values.

    Before training, :func:`set_stream` gives every such layer of a module its generator, which then draws the masks of all steps.
    Masks are drawn in float32 whatever the dtype, so that float32 and float64 runs have the same ones.
    """

    def __init__(self, p: float = 0.5, channels: bool = False) -> None:
        super().__init__()
        if not 0.0 <= p < 1.0:
            raise ConfigError(f"got {p}; expected a share of at least 0 and below 1", "dropout")
        self.p = p
        self.channels = channels
        self._seed: int | None = None
        self._generator: torch.Generator | None = None

    def reseed(self, key: Key) -> None:
        """Restart this layer's masks from a key."""
        self._seed = key.words()[0] >> 1
        if self._generator is not None:
            self._generator.manual_seed(self._seed)

    def _stream(self, device: torch.device) -> torch.Generator:
        if self._seed is None:
            raise ModelError("a Dropout in training mode has no key; call motley.tasks.nn.set_stream(module, key) first")
        if self._generator is None or self._generator.device != device:
            self._generator = torch.Generator(device).manual_seed(self._seed)
        return self._generator

    @override
    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` in evaluation mode, the masked and rescaled ``x`` in training mode; any shape with the batch first."""
        if not self.training or self.p == 0.0:
            return x
        shape = (*x.shape[:2], *(1,) * (x.dim() - 2)) if self.channels else x.shape
        keep = torch.rand(shape, generator=self._stream(x.device), device=x.device) >= self.p
        return x * (keep.to(x.dtype) / (1.0 - self.p))

    @override
    def extra_repr(self) -> str:
        return f"p={self.p}, channels={self.channels}"


def stochastic_layers(module: nn.Module) -> list[Dropout]:
    """Return the layers of a module that draw random numbers in training; empty for a deterministic module."""
    return [layer for layer in module.modules() if isinstance(layer, Dropout) and layer.p > 0]


def set_stream(module: nn.Module, key: Key) -> None:
    """Give every random layer of a module its own key, folded from ``key`` (a job's key of purpose ``dropout``)."""
    for index, layer in enumerate(stochastic_layers(module)):
        layer.reseed(key.fold(index))


_CHANNELS = {nn.Dropout: False, nn.Dropout1d: True, nn.Dropout2d: True, nn.Dropout3d: True}


def replace_stochastic(module: nn.Module) -> nn.Module:
    """Replace torch's dropout layers in a module by :class:`Dropout`, in place, and return the module.

    Raises
    ------
    ModelError: a layer draws random numbers that cannot be tied to a key; the message names it.
    """
    if type(module) in _CHANNELS:
        return _keyed(module)
    for name, layer in list(module.named_modules(remove_duplicate=True)):
        for child_name, child in list(layer.named_children()):
            if type(child) in _CHANNELS:
                setattr(layer, child_name, _keyed(child))
        reason = _unkeyed(layer)
        if reason:
            raise ModelError(
                f"layer {name or 'the module itself'!r} ({type(layer).__name__}) {reason}, which cannot be tied to a client's "
                "own seed; set its dropout to 0 and put motley.tasks.nn.Dropout around it, or remove it"
            )
    return module


def _keyed(layer: nn.Module) -> Dropout:
    keyed = Dropout(float(getattr(layer, "p")), _CHANNELS[type(layer)])  # type: ignore[index]  # noqa: B009
    return keyed.train(layer.training)


def _unkeyed(layer: nn.Module) -> str | None:
    """Return how a layer draws from torch's process-wide generator; None if it does not."""
    if isinstance(layer, _DropoutNd) and type(layer) not in _CHANNELS and layer.p > 0:
        return f"drops values (p = {layer.p})"
    if isinstance(layer, nn.RReLU):
        return "draws random slopes"
    if isinstance(layer, nn.FractionalMaxPool2d | nn.FractionalMaxPool3d):
        return "pools at random places"
    if isinstance(layer, nn.MultiheadAttention) and layer.dropout > 0:
        return f"drops attention weights (dropout = {layer.dropout})"
    if isinstance(layer, nn.RNNBase) and layer.dropout > 0 and layer.num_layers > 1:
        return f"drops values between its layers (dropout = {layer.dropout})"
    return None


def require_keyed(module: nn.Module, forward: Callable[[nn.Module], object]) -> None:
    """Run ``forward`` on the module in training mode; raise ModelError if it used torch's process-wide generator.

    This finds cases that no list of layer types can: ``F.dropout`` or ``torch.rand`` inside a module's own ``forward``.
    """
    set_stream(module, Key(0))
    training = module.training
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        before = torch.default_generator.get_state()
        forward(module.train())
        drawn = not torch.equal(before, torch.default_generator.get_state())
    module.train(training)
    if drawn:
        raise ModelError(
            f"the {type(module).__name__} draws from torch's process-wide generator in its forward (F.dropout, torch.rand), "
            "which cannot be tied to a client's own seed; use a motley.tasks.nn.Dropout layer instead"
        )
