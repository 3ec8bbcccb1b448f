"""Readers of two data sets of digits that their authors publish as MATLAB's ``.mat`` files: SVHN
and Digit-Five."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.core.files import check_file
from motley.tasks.task import Dataset
from motley_data.formats.sample_checks import grouped

_LARGEST = 4 * 2**30
"""Largest file that is read, by the number of values that it says it holds."""
_SIDE = 32
"""Pixels of each side of an image."""
_Half = tuple[NDArray[np.uint8], NDArray[np.int64]]  # pixels [n, 3, 32, 32], digits [n]


def read_svhn(folder: Path) -> Dataset:
    """Read ``train_32x32.mat`` and ``test_32x32.mat``, ``[n, 3, 32, 32]`` uint8, training half
    first. Class k is digit k; the files call 0 class 10.

    Raises
    ------
    DataError: a missing or damaged file, or other arrays than SVHN's.
    """
    return _joined(
        {"": [_housenumbers(folder / f"{half}_32x32.mat") for half in ("train", "test")]}, folder
    )


def read_digit_five(folder: Path) -> Dataset:
    """Read the five domains of Digit-Five (Peng et al., arXiv 1812.01754), each of which is a
    natural client, ``[n, 3, 32, 32]`` uint8, training halves first.

    As its authors' code does it, grey images have three equal channels, and images of 28 x 28 are
    scaled by Pillow's bilinear filter. Fractions of USPS's pixels are cut off.

    Raises
    ------
    DataError: a missing or damaged file, or other arrays than Digit-Five's.
    """
    return _joined({name: read(folder) for name, read in _DOMAINS.items()}, folder)


def _joined(domains: Mapping[str, list[_Half]], folder: Path) -> Dataset:
    """Return the training halves of all domains, then their test halves; a domain is a natural
    client if there are several."""
    parts = [(name, *halves[at], at) for at in (0, 1) for name, halves in domains.items()]
    clients = np.repeat([name for name, *_ in parts], [len(y) for _, _, y, _ in parts])
    groups, names = grouped(clients, str(folder), len(clients)) if len(domains) > 1 else (None, ())
    return Dataset(
        x=torch.from_numpy(np.concatenate([x for _, x, _, _ in parts])),
        y=torch.from_numpy(np.concatenate([y for _, _, y, _ in parts])),
        classes=10,
        test=np.repeat([bool(at) for *_, at in parts], [len(y) for _, _, y, _ in parts]),
        groups=groups,
        names=tuple("0123456789"),
        notes={"data": f"MATLAB files of {folder.name}"},
        client_names=names,
    )


def _arrays(path: Path, *names: str) -> list[Any]:
    """Return arrays of a file by their names."""
    from scipy.io import loadmat, whosmat

    try:
        with check_file(path).open("rb") as file:
            shapes = {name: shape for name, shape, _ in whosmat(file)}
            missing = [name for name in names if name not in shapes]
            if missing:
                raise DataError(
                    f"{path} has the arrays {', '.join(shapes)}; expected {', '.join(names)}: "
                    "it is truncated or another file, get it again"
                )
            values = sum(math.prod(shapes[name]) for name in names)
            if values > _LARGEST:
                raise DataError(f"{path} says that it holds {values:,} values; expected fewer")
            file.seek(0)
            arrays = loadmat(file, variable_names=names)
    except (DataError, MemoryError):
        raise
    except Exception as error:  # a damaged file raises nearly anything
        raise DataError(
            f"{path} cannot be read as MATLAB's ({error}); it may be truncated, get it again"
        ) from None
    return [arrays[name] for name in names]


def _half(images: Any, labels: Any, path: Path, order: str, top: float = 255.0) -> _Half:
    """Return pixels uint8 ``[n, 3, 32, 32]`` and digits ``[n]`` of one half.

    Parameters
    ----------
    order: what the axes of ``images`` are, of ``n``, ``h``, ``w`` and ``c``; grey without ``c``.
    top: value of white.
    """
    pixels = np.asarray(images)
    if pixels.ndim != len(order) or pixels.dtype.kind not in "uif" or not pixels.size:
        raise DataError(
            f"{path} holds images of {pixels.dtype} and shape {list(pixels.shape)}; expected "
            f"numbers, {len(order)} axes"
        )
    pixels = pixels.transpose([order.index(axis) for axis in "nhwc" if axis in order])
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    side, channels = pixels.shape[1], pixels.shape[3]
    if pixels.shape[1:3] not in ((28, 28), (_SIDE, _SIDE)) or channels not in (1, 3):
        raise DataError(
            f"{path} holds images of {' x '.join(map(str, pixels.shape[1:]))}; expected 28 x 28 or "
            "32 x 32, grey or in colour"
        )
    if pixels.dtype != np.uint8:
        high = float(pixels.max())
        if not (float(pixels.min()) >= 0.0 and top / 255 < high <= top):
            raise DataError(
                f"{path} holds pixels from {float(pixels.min()):g} to {high:g}; expected 0 to "
                f"{top:g}"
            )
        pixels = (pixels * (255.0 / top)).astype(np.uint8)
    if side != _SIDE:
        pixels = _scaled(pixels)
    x = np.broadcast_to(pixels, (*pixels.shape[:3], 3)).transpose(0, 3, 1, 2)
    return np.ascontiguousarray(x), _digits(labels, path, len(x))


def _scaled(pixels: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return images ``[n, h, w, c]`` of 32 x 32 pixels."""
    from PIL import Image

    out = np.empty((len(pixels), _SIDE, _SIDE, pixels.shape[3]), np.uint8)
    for image, scaled in zip(pixels, out, strict=True):
        picture = Image.fromarray(image[..., 0] if image.shape[2] == 1 else image)
        picture = picture.resize((_SIDE, _SIDE), Image.Resampling.BILINEAR)
        scaled[...] = np.asarray(picture).reshape(scaled.shape)
    return out


def _digits(labels: Any, path: Path, count: int) -> NDArray[np.int64]:
    """Return digits 0 to 9 of labels, one per image or ``[n, 10]`` zeros and a one. Label 10 is
    digit 0."""
    y = np.asarray(labels)
    if y.shape == (count, 10) and y.dtype.kind in "buif" and ((y == 1).sum(1) == 1).all():
        y = y.argmax(1)
    if y.size != count or y.dtype.kind not in "uif" or not np.isin(y, np.arange(11)).all():
        raise DataError(
            f"{path} has labels of {y.dtype} and shape {list(y.shape)} for {count} images; "
            "expected a digit, or 10 for 0, for each"
        )
    digits: NDArray[np.int64] = y.ravel().astype(np.int64)
    if (digits == 0).any() and (digits == 10).any():
        raise DataError(f"{path} has labels 0 and 10; expected one of them for the digit 0")
    return digits % 10


def _housenumbers(path: Path) -> _Half:
    images, labels = _arrays(path, "X", "y")
    return _half(images, labels, path, "hwcn")


def _mnist(folder: Path) -> list[_Half]:
    path = folder / "mnist_data.mat"
    train, y_train, test, y_test = _arrays(path, "train_32", "label_train", "test_32", "label_test")
    return [_half(_grey(train), y_train, path, "nhw"), _half(_grey(test), y_test, path, "nhw")]


def _grey(images: Any) -> Any:
    """Return images of 32 x 32 pixels as ``[n, h, w]``, whatever axes they have."""
    whole = images.ndim > 1 and images.size == len(images) * _SIDE**2
    return images.reshape(len(images), _SIDE, _SIDE) if whole else images


def _mnist_m(folder: Path) -> list[_Half]:
    path = folder / "mnistm_with_label.mat"
    train, y_train, test, y_test = _arrays(path, "train", "label_train", "test", "label_test")
    return [_half(train, y_train, path, "nhwc"), _half(test, y_test, path, "nhwc")]


def _svhn(folder: Path) -> list[_Half]:
    return [_housenumbers(folder / f"svhn_{half}_32x32.mat") for half in ("train", "test")]


def _syn(folder: Path) -> list[_Half]:
    path = folder / "syn_number.mat"
    train, y_train, test, y_test = _arrays(
        path, "train_data", "train_label", "test_data", "test_label"
    )
    return [_half(train, y_train, path, "nhwc"), _half(test, y_test, path, "nhwc")]


def _usps(folder: Path) -> list[_Half]:
    path = folder / "usps_28x28.mat"
    (cells,) = _arrays(path, "dataset")
    if cells.shape != (2, 2) or cells.dtype != object:
        raise DataError(
            f"{path} holds {cells.dtype} of shape {list(cells.shape)} as dataset; expected cells "
            "of images and labels, 2 x 2"
        )
    return [_half(images, labels, path, order="nchw", top=1.0) for images, labels in cells]


_DOMAINS: Mapping[str, Callable[[Path], list[_Half]]] = {
    "mnist": _mnist,
    "mnist_m": _mnist_m,
    "svhn": _svhn,
    "syn": _syn,
    "usps": _usps,
}
