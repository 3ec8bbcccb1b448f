"""The private sum of a server step: clip each upload as one vector, add noise once to the sum, divide by a fixed number.

McMahan, Ramage, Talwar, Zhang, ICLR 2018 (arXiv:1710.06963); the adaptive clip is Andrew, Thakkar, McMahan, Ramaswamy, NeurIPS 2021
(arXiv:1905.03871). Reference: docs/privacy.md#sums.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from motley.algorithms.base import Parts, Upload
from motley.privacy.noise import Source, noise

__all__ = ["UPDATES_OF_A_SUM", "clipped", "next_clip", "noised_sum", "update_multiplier"]

UPDATES_OF_A_SUM = ("mean", "sum")
"""The ways of aggregation that a private sum has: weighted, and as it is."""
_BELOW = 1.0 - 2.0**-40
"""Factor that keeps a clipped norm at or below C whatever the rounding."""


def clipped(upload: Upload, clip: float, shares: Mapping[str, float]) -> tuple[Upload, bool]:
    """Return an upload whose weighted parts, as one vector, have at most the norm ``clip``, and whether they had before.

    The weight goes into the values and is 1 afterwards: what enters the sum is bounded, whatever the weight.

    Parameters
    ----------
    clip: C, of the whole vector. shares: part -> its clip over C (1 where left out); a part's values are divided by it for the norm.
    """
    real = {name: part for name, part in upload.parts.items() if part.fold in UPDATES_OF_A_SUM and part.value.numel()}
    weighed = {name: part.value.double() * (upload.weight if part.fold == "mean" else 1.0) for name, part in real.items()}
    norm = math.sqrt(sum(float((value / shares.get(name, 1.0)).square().sum()) for name, value in weighed.items()))
    factor = 1.0 if norm <= clip else clip / norm * _BELOW
    parts = {name: part._replace(value=factor * weighed[name]) for name, part in real.items()}
    return upload._replace(parts={**upload.parts, **parts}, weight=1.0), norm <= clip


def noised_sum(
    total: Mapping[str, Tensor], empty: Parts, deviation: float, shares: Mapping[str, float], divisor: float, source: Source
) -> dict[str, Tensor]:
    """Return the sums of a step with Gaussian noise on every coordinate, ``mean`` parts divided by a fixed number.

    Parameters
    ----------
    total: sums by part; empty if nobody's upload was accepted, which noise must hide. empty: an upload whose model did not move.
    deviation: z C, of a part whose share is 1.
    """
    out = dict(total)
    for name, part in empty.items():
        n = part.value.numel()
        if part.fold not in UPDATES_OF_A_SUM or not n:
            continue
        drawn = torch.from_numpy(noise(source.fold("sum", name), np.arange(n), "gaussian")).reshape(part.value.shape)
        before = total[name] if name in total else torch.zeros_like(part.value, dtype=torch.float64)
        value = before + (deviation * shares.get(name, 1.0) * drawn).to(before.device)
        out[name] = value / divisor if part.fold == "mean" else value
    return out


def update_multiplier(noise_multiplier: float, count_noise: float) -> float:
    """Return the noise multiplier of the updates that, with noise ``count_noise`` on the count, makes up ``noise_multiplier``.

    ``(z^-2 - (2 sigma_b)^-2)^(-1/2)``, since one client moves the count minus a half per client by a half.

    >>> round(update_multiplier(1.0, 5.0), 5)
    1.00504
    """
    return 1.0 / math.sqrt(noise_multiplier**-2 - (2.0 * count_noise) ** -2)


def next_clip(clip: float, unclipped: float, uploads: int, divisor: float, count: float, rate: float, quantile: float) -> float:
    """Return the clip of the next sum, ``C exp(-rate (b - quantile))``.

    Parameters
    ----------
    unclipped: how many of the ``uploads`` had at most the norm C. divisor: the fixed number of a sum. count: noise on the count.

    >>> round(next_clip(0.1, 100, 100, 100, 0.0, 0.2, 0.5), 6)  # nobody was clipped: b = 1
    0.090484
    """
    b = (unclipped - 0.5 * uploads + count) / divisor + 0.5
    return clip * math.exp(-rate * (b - quantile))
