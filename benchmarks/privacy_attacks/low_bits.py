"""Tell a loss of 0 from one of 5 by the low bits of one noisy number: not every double can come out
of both.

``python benchmarks/privacy_attacks/low_bits.py`` prints one JSON object. The adversary knows how
noise is made: of a uniform number (k + 1/2) 2^-52 by inversion. It asks which of both losses has a
k for the number that it saw (Mironov, CCS 2012), or whether all numbers seen lie on one grid, of
which every point comes out of both.
"""

from __future__ import annotations

import json
import math

import numpy as np

from motley_privacy.noise import SystemRandomness, released
from motley_privacy.options import SignalNoise

HOW = SignalNoise(5.0, 0.0, 5.0)
TRIALS = 1000
NEAR = np.arange(-200, 201)


def possible(seen: float, loss: float) -> bool:
    """Return whether a uniform number exists from which this loss becomes the number seen."""
    z = (seen - loss) / HOW.scale
    u = 0.5 * math.exp(z) if z < 0 else 1.0 - 0.5 * math.exp(-z)
    k = np.clip(math.floor(u * 2.0**52) + NEAR, 0, 2**52 - 1)
    tried = (k + 0.5) * 2.0**-52
    noise = -np.sign(tried - 0.5) * np.log1p(-2.0 * np.abs(tried - 0.5))
    return bool((loss + HOW.scale * noise == seen).any())


def main() -> None:
    seen = np.concatenate(
        [
            released(SystemRandomness(), range(TRIALS), "loss", np.full(TRIALS, loss), HOW)
            for loss in (0.0, 5.0)
        ]
    )
    truth = np.repeat([0.0, 5.0], TRIALS)
    told = 0
    if not (seen * 2.0**24 % 1.0 == 0.0).all():
        for value, loss in zip(seen, truth, strict=True):
            found = [one for one in (0.0, 5.0) if possible(float(value), one)]
            told += found == [loss]
    share = told / len(seen)
    print(
        json.dumps(
            {
                "fault": "one noisy loss in floating point tells 0 from 5 with certainty",
                "succeeded": share > 0.05,
                "figure": f"{100 * share:.1f} % of {len(seen)} cases told with certainty",
            }
        )
    )


if __name__ == "__main__":
    main()
