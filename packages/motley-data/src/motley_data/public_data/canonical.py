"""The order in which images of a public data set are used, and digests by which the same images are
known from every source.

A digest is the sha256 of the decoded arrays: pixels uint8 ``[n, H, W]`` or ``[n, H, W, 3]`` and
classes int64 ``[n]`` of the training half, then those of the test half. In canonical order, each
half is sorted by class, ties by the bytes of the image.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from motley.core.errors import DataError
from motley.tasks.task import Dataset
from motley_data.public_data.facts import Variant

OTHER_ORDER = (
    "in another order than the original's, therefore sorted by class and bytes: other "
    "partitions than from other sources"
)


def by_class(data: Dataset) -> Dataset:
    """Return the samples with the training half first, each half sorted by class and otherwise as
    it was, with their places there."""
    places = np.where(data.test, np.cumsum(data.test), np.cumsum(~data.test)) - 1
    return _taken(dataclasses.replace(data, places=places), np.lexsort((data.y.numpy(), data.test)))


def canonical(data: Dataset) -> Dataset:
    """Return the samples in canonical order: training half first, each half sorted by class, ties
    by the bytes of the image."""
    flat = _pixels(data).reshape(len(data.test), -1)
    order = np.argsort(flat.view(f"S{flat.shape[1]}")[:, 0], kind="stable")
    return _taken(data, order[np.lexsort((data.y.numpy()[order], data.test[order]))])


def digest(data: Dataset) -> str:
    """Return the sha256 of the decoded arrays in the order in which they are, 64 hex digits."""
    pixels = _pixels(data)
    labels = data.y.numpy().astype("<i8")
    sha = hashlib.sha256()
    for half in (~data.test, data.test):
        sha.update(np.ascontiguousarray(pixels[half]).data)
        sha.update(np.ascontiguousarray(labels[half]).data)
    return sha.hexdigest()


def checked(data: Dataset, variant: Variant, where: str) -> Dataset:
    """Return the samples, which are those of the variant; in canonical order where the source has
    another order than the original.

    Raises
    ------
    DataError: other samples than the variant's.
    """
    for half, count, wanted in _counts(data, variant):
        if wanted and count != wanted:
            raise DataError(
                f"{where} has {count} {half}; expected {wanted}: a part is missing, get it again"
            )
    _check_means(data, variant.means, where)
    if variant.digest is None:
        return data
    comparable = without(data, variant.unknown)
    if digest(comparable) == variant.ordered:
        return data
    digest_found = digest(canonical(comparable))
    if digest_found != variant.digest:
        raise DataError(
            f"{where} is corrupt or no original: the digest of its decoded images is "
            f"{digest_found[:12]}..., expected {variant.digest[:12]}...; get it again"
        )
    note = f"{data.notes.get('data', variant.about)}; {OTHER_ORDER}"
    return dataclasses.replace(
        canonical(data),
        notes={**data.notes, "data": note},
        places=np.zeros(0, np.int64),
    )


def _counts(data: Dataset, variant: Variant) -> Iterator[tuple[str, int, int]]:
    """Yield what is counted, in words, how many there are and how many there must be; 0: any."""
    for client, wanted in variant.clients.items():
        groups = np.zeros(0) if data.groups is None else data.groups
        own = groups == data.client_names.index(client)
        yield f"training samples of {client}", int((own & ~data.test).sum()), wanted[0]
        yield f"test samples of {client}", int((own & data.test).sum()), wanted[1]
    yield "training samples", int((~data.test).sum()), variant.train
    yield "test samples", int(data.test.sum()), variant.test
    yield "samples", len(data.test), variant.total


def _check_means(data: Dataset, wanted: Sequence[float], where: str) -> None:
    if not wanted:
        return
    sums = data.x.numpy()[~data.test].sum((0, 2, 3), dtype=np.int64)
    means = sums / 255 / (int((~data.test).sum()) * data.x.shape[2] * data.x.shape[3])
    if np.abs(means - np.asarray(wanted)).max() > 1e-8:
        listed = ", ".join(f"{mean:.8f}" for mean in means)
        raise DataError(
            f"{where} is corrupt or no original: the means of its channels are {listed}; "
            f"expected {', '.join(map(str, wanted))}; get it again"
        )


def _pixels(data: Dataset) -> NDArray[np.uint8]:
    """``[n, H, W]`` or ``[n, H, W, 3]``."""
    x: NDArray[np.uint8] = data.x.numpy()
    return np.ascontiguousarray(x[:, 0] if x.shape[1] == 1 else x.transpose(0, 2, 3, 1))


def without(data: Dataset, rows: Sequence[int]) -> Dataset:
    """Return the samples without some rows."""
    return _taken(data, np.delete(np.arange(len(data.test)), list(rows))) if rows else data


def _taken(data: Dataset, rows: NDArray[np.int64]) -> Dataset:
    if np.array_equal(rows, np.arange(len(data.test))):
        return data
    at = torch.from_numpy(rows)
    groups = None if data.groups is None else data.groups[rows]
    places = data.places[rows] if data.places is not None and len(data.places) else data.places
    return dataclasses.replace(
        data, x=data.x[at], y=data.y[at], test=data.test[rows], groups=groups, places=places
    )
