"""Image transformations: rotation, blur, contrast, brightness and noise, different for each image,
on whole batches.

Images are ``[n, C, H, W]`` with black 0 and white 1. The order is rotation (bilinear about the
centre, black outside), blur (Gaussian, the border repeated), contrast ``c (x - 1/2) + 1/2`` (-1 is
the negative), brightness ``b x``, both clipped to [0, 1], and noise ``N(0, s^2)``, which is not
clipped (as NIID-Bench adds it).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ints
from motley.core.keys import Key
from motley.world.interfaces import Appearance

Images = NDArray[np.float32]


def transformed(key: Key, x: Images, appearance: Appearance, rows: Ints) -> Images:
    """Return the transformed samples, ``[n, ...]`` like ``x``; the noise of a row depends on the
    key and its row number alone."""
    out = x
    if appearance.needs_images:
        out = blurred(rotated(out, appearance.degrees), appearance.blur)
        contrast, brightness = (
            v.astype(np.float32).reshape(-1, 1, 1, 1)
            for v in (appearance.contrast, appearance.brightness)
        )
        toned = np.clip(np.clip(contrast * (out - 0.5) + 0.5, 0, 1) * brightness, 0, 1)
        same = (appearance.contrast == 1) & (appearance.brightness == 1)
        out = np.where(same.reshape(-1, 1, 1, 1), out, toned)
    noisy = np.flatnonzero(appearance.noise > 0)
    if len(noisy):
        drawn = key.normal(rows[noisy], int(np.prod(x.shape[1:]))).reshape(len(noisy), *x.shape[1:])
        # Without another change these are still the caller's samples.
        out = out.copy()
        out[noisy] += (appearance.noise[noisy].reshape(-1, *(1,) * (x.ndim - 1)) * drawn).astype(
            np.float32
        )
    return out


def rotated(x: Images, degrees: Floats) -> Images:
    """Return each image rotated counter-clockwise about its centre."""
    turned = np.flatnonzero(degrees != 0)
    if not len(turned):
        return x
    n, (channels, height, width) = len(turned), x.shape[1:]
    angle = np.deg2rad(degrees[turned])[:, None, None]
    row = np.arange(height)[None, :, None] - (height - 1) / 2
    column = np.arange(width)[None, None, :] - (width - 1) / 2
    # where each pixel comes from, [n, H, W]
    from_row = np.cos(angle) * row + np.sin(angle) * column + (height - 1) / 2
    from_column = -np.sin(angle) * row + np.cos(angle) * column + (width - 1) / 2
    # 1e-9: a turn by 90 degrees lands on pixels but for rounding, and must not blend in the
    # neighbour above.
    top = np.floor(from_row + 1e-9).astype(np.int64)
    left = np.floor(from_column + 1e-9).astype(np.int64)
    down = from_row - top
    right = from_column - left
    padded = np.pad(x[turned], ((0, 0), (0, 0), (1, 1), (1, 1))).reshape(n, channels, -1)
    total = np.zeros((n, channels, height * width))
    for y, x_, share in (
        (top, left, (1 - down) * (1 - right)),
        (top, left + 1, (1 - down) * right),
        (top + 1, left, down * (1 - right)),
        (top + 1, left + 1, down * right),
    ):
        place = np.clip(y + 1, 0, height + 1) * (width + 2) + np.clip(x_ + 1, 0, width + 1)
        total += np.take_along_axis(padded, place.reshape(n, 1, -1), axis=2) * share.reshape(
            n, 1, -1
        )
    out = x.copy()
    out[turned] = total.reshape(n, channels, height, width)
    return out


def blurred(x: Images, sigma: Floats) -> Images:
    """Return each image convolved with its own Gaussian, cut off at three standard deviations of
    the widest."""
    blurry = np.flatnonzero(sigma > 0)
    if not len(blurry):
        return x
    reach = int(np.ceil(3 * sigma.max()))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma[blurry, None]) ** 2)
    weights = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    part = x[blurry]
    for axis in (2, 3):
        size = part.shape[axis]
        wide = np.pad(
            part, [(reach, reach) if a == axis else (0, 0) for a in range(4)], mode="edge"
        )
        part = sum(
            weights[:, i].reshape(-1, 1, 1, 1) * wide.take(range(i, i + size), axis=axis)
            for i in range(2 * reach + 1)
        )
    out = x.copy()
    out[blurry] = part
    return out
