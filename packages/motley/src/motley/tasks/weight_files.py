"""Files of weights (safetensors) with a digest of what they hold, so that a changed bit is never
another model.

>>> import tempfile
>>> with tempfile.TemporaryDirectory() as folder:
...     path = Path(folder, "model.safetensors")
...     save_weights({"bias": torch.zeros(2)}, path)
...     read_weights(path)["bias"].tolist()
[0.0, 0.0]
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from motley.core.errors import DataError
from motley.core.files import replacing


def save_weights(weights: Mapping[str, Tensor], path: Path) -> None:
    """Replace a file by one that holds these tensors, and their digest among its metadata.

    Raises
    ------
    OSError: the disk is full or refuses.
    """
    plain = {name: value.contiguous().clone() for name, value in weights.items()}
    with replacing(path) as file:
        file.write(save(plain, {"digest": _digest((name, plain[name]) for name in sorted(plain))}))


def read_weights(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a file by name, after checking them against their digest; a file that
    others wrote has none.

    Raises
    ------
    DataError: the file cannot be read, or holds other tensors than were written.
    """
    try:
        with safe_open(path, "pt") as file:
            written = (file.metadata() or {}).get("digest")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - not a mapping
    except (OSError, SafetensorError, ValueError) as error:
        raise DataError(
            f"{path} is not a file of weights alone ({error}); restore it, or save the weights "
            "again"
        ) from None
    if written not in (None, _digest((name, tensors[name]) for name in sorted(tensors))):
        raise DataError(
            f"{path} is damaged (the digest of its weights differs); restore it, or make the run "
            "again"
        )
    return tensors


def _digest(weights: Iterable[tuple[str, Tensor]]) -> str:
    """Return a hash of names, types, shapes and bytes."""
    hashed = hashlib.blake2b(digest_size=8)
    for name, value in weights:
        hashed.update(f"{name}\0{value.dtype}\0{list(value.shape)}\0".encode())
        hashed.update(value.reshape(-1).view(torch.uint8).numpy().data)
    return hashed.hexdigest()
