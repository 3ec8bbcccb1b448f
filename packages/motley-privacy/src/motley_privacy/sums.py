"""The private sum of a server step: clip each upload as one vector, add noise once to the sum,
divide by a fixed number.

McMahan, Ramage, Talwar, Zhang, ICLR 2018 (arXiv:1710.06963); the adaptive clip is Andrew, Thakkar,
McMahan, Ramaswamy, NeurIPS 2021 (arXiv:1905.03871). Uploads are rounded toward zero onto the grid
of the noise (:func:`motley_privacy.noise.grid`), on which their sum is exact. Reference:
docs/privacy.md#sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.parts import Parts, Upload
from motley.core.arrays import Ids
from motley_privacy.correlated import correlated
from motley_privacy.noise import Source, grid, noise_steps

UPDATES_OF_A_SUM = ("mean", "sum", "weighted_sum")
"""The ways of aggregation that a private sum has: weighted, and as it is."""
MOST_UPLOADS = 2**26
"""Uploads of a sum over its noise multiplier: up to it a sum has fewer than 2^52 steps, and float64
adds them exactly."""
MOST_COUNT_NOISE = 2.0**23
"""Largest deviation of the noise on a count; then a step is at most a half, by which one client
moves the centred count."""
_BELOW = 1.0 - 2.0**-40
"""Factor that keeps a clipped norm at or below C whatever the rounding."""


def clipped(
    upload: Upload, clip: float, shares: Mapping[str, float], multiplier: float
) -> tuple[Upload, bool]:
    """Return an upload whose weighted parts, as one vector, have at most the norm ``clip``, and
    whether they had before.

    The weight goes into the values and is 1 afterwards: what enters the sum is bounded, whatever
    the weight. Values are rounded toward zero to the grid of the noise, which makes no vector
    longer.

    Parameters
    ----------
    clip: C, of the whole vector.
    shares: part -> its clip over C (1 where left out); a part's values are divided by it for the
    norm.
    multiplier: z of the noise, whose grid it is.
    """
    real = {
        name: part
        for name, part in upload.parts.items()
        if part.fold in UPDATES_OF_A_SUM and part.value.numel()
    }
    weighed = {
        name: part.value.double() * (upload.weight if part.fold == "mean" else 1.0)
        for name, part in real.items()
    }
    norm = math.sqrt(
        sum(
            float((value / shares.get(name, 1.0)).square().sum()) for name, value in weighed.items()
        )
    )
    below = norm <= clip * _BELOW
    factor = 1.0 if below else clip / norm * _BELOW
    steps = {name: grid(multiplier * clip * shares.get(name, 1.0))[0] for name in real}
    parts = {
        name: part._replace(value=(factor * weighed[name] / steps[name]).trunc() * steps[name])
        for name, part in real.items()
    }
    return upload._replace(parts={**upload.parts, **parts}, weight=1.0), below


def moves(upload: Upload) -> bool:
    """Return whether an upload adds anything to a private sum. One that does not is no part of the
    count of updates that are not clipped: a client whose data are replaced by nothing would else
    move the centred count by one, and not by a half."""
    return any(
        bool(part.value.any()) for part in upload.parts.values() if part.fold in UPDATES_OF_A_SUM
    )


def noised_sum(
    total: Mapping[str, Tensor],
    empty: Parts,
    deviation: float,
    shares: Mapping[str, float],
    divisor: float,
    source: Source,
    past: dict[str, list[Ids]] | None = None,
    bands: int = 1,
) -> dict[str, Tensor]:
    """Return the sums of a step with Gaussian noise on every coordinate's grid, ``mean`` parts
    divided by a fixed number.

    Parameters
    ----------
    total: sums by part; empty if nobody's upload was accepted, which noise must hide.
    empty: an upload whose model did not move.
    deviation: z C, of a part whose share is 1.
    past: noise of the newest sums in steps, by part, the newest first, to which this sum's is
    added.
    bands: how many successive sums have correlated noise; 1: none.
    """
    out = dict(total)
    for name, part in empty.items():
        n = part.value.numel()
        if part.fold not in UPDATES_OF_A_SUM or not n:
            continue
        step, scale = grid(deviation * shares.get(name, 1.0))
        drawn = noise_steps(source.fold("sum", name), np.arange(n), "gaussian", scale)
        if past is not None and bands > 1:
            recent = past.get(name, [])
            drawn = correlated(drawn, recent, bands)
            past[name] = [drawn, *recent][: bands - 1]
        before = total[name] if name in total else torch.zeros_like(part.value, dtype=torch.float64)
        value = before + (step * torch.from_numpy(drawn).double()).reshape(part.value.shape).to(
            before.device
        )
        out[name] = value / divisor if part.fold == "mean" else value
    return out


def noisy_count(unclipped: float, uploads: int, deviation: float, source: Source) -> float:
    """Return the centred count of updates that are not clipped, ``unclipped - uploads / 2``, with
    Gaussian noise on a grid.

    A half is a whole number of steps up to a deviation of :data:`MOST_COUNT_NOISE`.
    """
    step, scale = grid(deviation)
    return unclipped - 0.5 * uploads + step * int(noise_steps(source, [0], "gaussian", scale)[0])


def update_multiplier(noise_multiplier: float, count_noise: float) -> float:
    """Return the noise multiplier of the updates that, with noise ``count_noise`` on the count,
    makes up ``noise_multiplier``.

    ``(z^-2 - (2 sigma_b)^-2)^(-1/2)``, since one client moves the count minus a half per client by
    a half: one whose update is zero is not counted (:func:`moves`).

    >>> round(update_multiplier(1.0, 5.0), 5)
    1.00504
    """
    return 1.0 / math.sqrt(noise_multiplier**-2 - (2.0 * count_noise) ** -2)


def next_clip(clip: float, count: float, divisor: float, rate: float, quantile: float) -> float:
    """Return the clip of the next sum, ``C exp(-rate (b - quantile))``.

    Parameters
    ----------
    count: noisy, centred, of the uploads that had at most the norm C.
    divisor: the fixed number of a sum.

    >>> round(next_clip(0.1, 50, 100, 0.2, 0.5), 6)  # nobody of 100 was clipped: b = 1
    0.090484
    """
    return clip * math.exp(-rate * (count / divisor + 0.5 - quantile))
