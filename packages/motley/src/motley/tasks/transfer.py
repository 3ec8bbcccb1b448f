"""Copies of arrays from the host to a device that the host does not wait for, and whether a device
has room for them."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from motley.core.errors import ConfigError

_COPIED_AT_ONCE = ("cpu", "mps")
"""Types of devices to which nothing is copied while the host goes on."""


def to_device(values: NDArray[Any], device: str | torch.device) -> Tensor:
    """Return an array as a tensor on a device; on a CPU the tensor shares the array's memory.

    A GPU copies from page-locked memory while the host goes on, so that such a copy between two
    local steps stops neither of them.

    >>> import numpy as np
    >>> to_device(np.arange(3), "cpu")
    tensor([0, 1, 2])
    """
    tensor = torch.from_numpy(values)
    device = torch.device(device)
    if device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(device, non_blocking=device.type not in _COPIED_AT_ONCE)


def free_bytes(device: str | torch.device) -> int | None:
    """Return the free memory of a GPU in bytes; None for other devices."""
    device = torch.device(device)
    return torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else None


def require_room(needed: int, device: str | torch.device) -> None:
    """Refuse samples of so many bytes where they would take more than nine tenths of a GPU's free
    memory.

    Raises
    ------
    ConfigError: they would.
    """
    free = free_bytes(device)
    if free is not None and needed > 0.9 * free:
        sentence = (
            f"the samples of the federation take {needed / 2**30:.1f} GiB on the device, of "
            f"which {free / 2**30:.1f} GiB are free"
        )
        raise ConfigError(
            f'{sentence}; use another GPU, dtype = "float32", fewer samples, or device = "cpu"',
            "engine.device",
        )
