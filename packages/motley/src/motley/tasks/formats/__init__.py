"""Readers of image data on disk: MNIST IDX, CIFAR binary batches, LEAF JSON, folders of images,
``.npz``."""

from __future__ import annotations

from pathlib import Path

from motley.core.errors import DataError
from motley.core.files import check_file, is_folder
from motley.tasks.task import Dataset

__all__ = ["read"]


def read(path: Path) -> Dataset:
    """Return the samples under a path in any of these formats; pixels as stored, images
    ``[n, C, H, W]``.

    Raises
    ------
    DataError: the path does not exist, has no known format, or is corrupt.
    """
    from motley.tasks.formats import binary, image_folders, leaf, npz

    if not is_folder(path):
        check_file(path)
        if path.suffix == ".npz":
            return npz.read(path)
        raise DataError(
            f"{path.name} is of no known format; expected an .npz file or a folder (IDX, CIFAR, "
            "LEAF JSON, pictures)"
        )
    readers = (
        (binary.has_idx, binary.read_idx),
        (binary.has_cifar, binary.read_cifar),
        (leaf.recognises, leaf.read),
        (image_folders.recognises, image_folders.read),
    )
    for recognises, reader in readers:
        if recognises(path):
            return reader(path)
    raise DataError(
        f"{path} holds no known format; expected MNIST IDX files (*-images-idx3-ubyte), CIFAR "
        "binary batches (*.bin), LEAF JSON (train/*.json), or one sub-folder of pictures per class"
    )
