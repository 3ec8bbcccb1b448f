"""Copies of arrays from the host to a device that the host does not wait for."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["to_device"]

_COPIED_AT_ONCE = ("cpu", "mps")
"""Types of devices to which nothing is copied while the host goes on."""


def to_device(values: NDArray[Any], device: str | torch.device) -> Tensor:
    """Return an array as a tensor on a device; on a CPU the tensor shares the array's memory.

    A GPU copies from page-locked memory while the host goes on, so that such a copy between two local steps stops neither of them.

    >>> import numpy as np
    >>> to_device(np.arange(3), "cpu")
    tensor([0, 1, 2])
    """
    found, device = torch.from_numpy(values), torch.device(device)
    if device.type == "cuda":
        found = found.pin_memory()
    return found.to(device, non_blocking=device.type not in _COPIED_AT_ONCE)
