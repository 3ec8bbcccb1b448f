"""Data as users have it on disk: MNIST IDX, CIFAR binary batches, LEAF JSON, folders of pictures, ``.npz``."""

from __future__ import annotations

from pathlib import Path

from motley.core.errors import DataError
from motley.tasks.base import Pool

__all__ = ["read"]


def read(path: Path) -> Pool:
    """The samples under a path, whatever format they are in; pixels as stored, images ``[n, C, H, W]``.

    Raises
    ------
    DataError: nothing there, of no known format, or broken.
    """
    from motley.tasks.formats import cifar, idx, leaf, npz, pictures

    if not path.exists():
        raise DataError(f"{path} does not exist")
    if path.is_file():
        if path.suffix == ".npz":
            return npz.read(path)
        raise DataError(
            f"{path.name} is of no known format; expected an .npz file or a folder (IDX, CIFAR, LEAF JSON, pictures)"
        )
    readers = (
        (idx.recognises, idx.read),
        (cifar.recognises, cifar.read),
        (leaf.recognises, leaf.read),
        (pictures.recognises, pictures.read),
    )
    for recognises, reader in readers:
        if recognises(path):
            return reader(path)
    raise DataError(
        f"{path} holds no known format; expected MNIST IDX files (*-images-idx3-ubyte), CIFAR binary batches (*.bin), "
        "LEAF JSON (train/*.json), or one sub-folder of pictures per class"
    )
