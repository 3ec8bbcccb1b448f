"""Cheap features: a few dozen numbers per sample in which near samples are alike, without training
anything.

* images: mean pixels of a grid of 8 x 8 cells per channel, and the roughness (mean difference of
  neighbouring pixels) of 2 x 2 cells, which pixel noise and blur change although mean pixels stay;
* tokens (whole numbers): how often each token occurs, and the last one, folded to 64 numbers each;
* everything else: the numbers, or 64 random projections of more.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from motley.core.keys import Key

_CELLS = 8
_ROUGH = 2
_WIDTH = 64
Features = NDArray[np.float32]


def cheap_features(samples: NDArray[Any], key: Key) -> Features:
    """Return the cheap features of raw samples ``[m, ...]``, float32 ``[m, d]``.

    Parameters
    ----------
    key: of the random projection.
    """
    if samples.dtype.kind == "i" and samples.ndim == 2:
        return _tokens(samples)
    x = samples.astype(np.float32)
    if x.ndim in (3, 4) and min(x.shape[-2:]) >= 4:
        return _images(x if x.ndim == 4 else x[:, None])
    x = x.reshape(len(x), -1)
    if x.shape[1] > _WIDTH:
        drawn = key.fold("projection").numpy().standard_normal((x.shape[1], _WIDTH))
        return np.asarray(x @ drawn.astype(np.float32) / np.sqrt(_WIDTH), np.float32)
    return standardised(x)


def standardised(x: Features) -> Features:
    """Return columns with mean 0 and deviation 1; a column that does not vary becomes 0."""
    spread = x.std(axis=0)
    return np.asarray((x - x.mean(axis=0)) / np.where(spread > 1e-6, spread, np.inf), np.float32)


def _images(x: Features) -> Features:
    across = np.abs(np.diff(x, axis=3))
    down = np.abs(np.diff(x, axis=2))
    scale = max(float(x.std()), 1e-6)
    parts = [_pooled(x, _CELLS), _pooled(across, _ROUGH), _pooled(down, _ROUGH)]
    return np.asarray(np.concatenate(parts, axis=1) / scale, np.float32)


def _pooled(x: Features, cells: int) -> Features:
    """Return the means of at most ``cells`` x ``cells`` rectangles of each channel,
    ``[m, channels * cells^2]``."""
    for axis in (2, 3):
        size = x.shape[axis]
        edges = np.linspace(0, size, min(cells, size) + 1).astype(np.int64)
        shape = [1] * 4
        shape[axis] = len(edges) - 1
        x = np.asarray(
            np.add.reduceat(x, edges[:-1], axis=axis) / np.diff(edges).reshape(shape), np.float32
        )
    return x.reshape(len(x), -1)


def _tokens(x: NDArray[Any]) -> Features:
    folded = x % _WIDTH
    counts = np.zeros((len(x), 2 * _WIDTH), np.float32)
    np.add.at(counts, (np.arange(len(x))[:, None], folded), np.float32(1 / x.shape[1]))
    counts[np.arange(len(x)), _WIDTH + folded[:, -1]] = 1
    return counts
