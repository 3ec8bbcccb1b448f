"""In which number format matrix products and convolutions are computed: float32, or bfloat16 with
float32 around them.

bfloat16 has float32's range and 8 bits of its mantissa. A product rounds its operands to it and
adds up in float32, which processors and GPUs with instructions for it do several times faster.
Weights, optimizer state, sums over samples and losses stay float32 (docs/decisions.md#precision).
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

Precision = Literal["float32", "bfloat16"]
"""Format of the operands of matrix products and convolutions; ``float32``: that of the weights."""


@contextmanager
def products(precision: Precision, device: str | torch.device) -> Iterator[None]:
    """Compute the matrix products and convolutions of the block in a precision, in this thread.

    Only the forward pass belongs in the block: gradients are computed as it was. Normalization of
    layers and groups and softmax are computed in float32; BatchNorm takes bfloat16 and keeps its
    statistics in float32. Weights are converted at every use, for copies that torch keeps would
    outlive a step that changes them in place.
    """
    if precision == "float32":
        yield
        return
    with (
        _InFloat32(),
        torch.autocast(torch.device(device).type, torch.bfloat16, cache_enabled=False),
    ):
        yield


_WIDE = frozenset(
    {
        F.layer_norm,
        F.group_norm,
        F.rms_norm,
        F.softmax,
        F.log_softmax,
        torch.softmax,
        torch.log_softmax,
        torch.logsumexp,
        Tensor.softmax,
        Tensor.log_softmax,
        Tensor.logsumexp,
    }
)


class _InFloat32(TorchFunctionMode):
    """Computes the functions of ``_WIDE`` in float32, which torch's autocast does on a GPU
    alone."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        if func in _WIDE:
            args = tuple(widened(value) if isinstance(value, Tensor) else value for value in args)
        return func(*args, **(kwargs or {}))


@contextmanager
def precise() -> Iterator[None]:
    """Compute the block in the types of its tensors, also where the caller has switched on torch's
    autocast.

    Autocast belongs to one Python thread: without this, results would depend on which thread
    computes them."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    before = {kind: torch.get_autocast_dtype(kind) for kind in kinds}
    for kind in kinds:
        torch.set_autocast_enabled(kind, False)
    try:
        yield
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)
            torch.set_autocast_dtype(kind, before[kind])


def widened(values: Tensor) -> Tensor:
    """Return values in float32 where they are bfloat16, as they are otherwise."""
    return values.float() if values.dtype == torch.bfloat16 else values


def bfloat16_instructions(device: str | torch.device) -> str | None:
    """Return the name of the instructions with which a device multiplies in bfloat16; None if it
    has none and emulates them."""
    if torch.device(device).type == "cuda":
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else None
    if torch.cpu._is_amx_tile_supported():
        return "amx_bf16"
    if torch.cpu._is_avx512_bf16_supported():
        return "avx512_bf16"
    arm = platform.machine().lower() in ("aarch64", "arm64")
    return "bf16" if arm and torch.ops.mkldnn._is_mkldnn_bf16_supported() else None


def slower(precision: Precision, device: str | torch.device) -> str | None:
    """Return one sentence where a precision is slower than float32 on a device; None elsewhere."""
    if precision == "float32" or bfloat16_instructions(device) is not None:
        return None
    return (
        f"{'this GPU' if torch.device(device).type == 'cuda' else 'this processor'} has no "
        "instructions for bfloat16 "
        '(avx512_bf16, amx_bf16, bf16 of ARM), so precision = "bfloat16" is slower here than '
        '"float32"'
    )


def uncomputable(precision: Precision, device: str | torch.device, module: nn.Module) -> str | None:
    """Return why a processor cannot compute a module in a precision, in one sentence; None if it
    can.

    Recurrent layers alone have no bfloat16 form on every processor, and each is tried on one
    number.
    """
    if precision == "float32" or torch.device(device).type != "cpu":
        return None
    for layer in module.modules():
        if isinstance(layer, nn.RNNBase):
            try:
                with torch.no_grad(), products(precision, device):
                    layer(torch.zeros(1, 1, layer.input_size))
            except RuntimeError:
                return f"this processor cannot compute {type(layer).__name__} in bfloat16"
    return None
