"""Readers of image data on disk: MNIST IDX, CIFAR binary batches, LEAF JSON, WILDS' patches,
folders of images, ``.npz``; and of single data sets as MATLAB's files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from motley.core.errors import DataError
from motley.core.files import check_file, is_folder
from motley.tasks.task import Dataset

__all__ = ["read", "recognises"]


def recognises(folder: Path) -> bool:
    """Return whether a folder holds samples in one of these formats."""
    return any(recognises_format(folder) for recognises_format, _ in _readers())


def read(path: Path) -> Dataset:
    """Return the samples under a path in any of these formats; pixels as stored, images
    ``[n, C, H, W]``.

    Raises
    ------
    DataError: the path does not exist, has no known format, or is corrupt.
    """
    from motley_data.formats import npz

    if not is_folder(path):
        check_file(path)
        if path.suffix == ".npz":
            return npz.read(path)
        raise DataError(
            f"{path.name} is of no known format; expected an .npz file or a folder (IDX, CIFAR, "
            "LEAF JSON, patches of WILDS, pictures)"
        )
    for recognises_format, reader in _readers():
        if recognises_format(path):
            return reader(path)
    raise DataError(
        f"{path} holds no known format; expected MNIST IDX files (*-images-idx3-ubyte), CIFAR "
        "binary batches (*.bin), LEAF JSON (train/*.json), Camelyon17's metadata.csv beside "
        "patches/, or one sub-folder of pictures per class"
    )


def _readers() -> tuple[tuple[Callable[[Path], bool], Callable[[Path], Dataset]], ...]:
    """Return what recognizes each format of folders, and what reads it."""
    from motley_data.formats import binary, image_folders, leaf, patches

    return (
        (binary.has_idx, binary.read_idx),
        (binary.has_cifar, binary.read_cifar),
        (leaf.recognises, leaf.read),
        (patches.recognises, patches.read),
        (image_folders.recognises, image_folders.read),
    )
