"""Average the noise of a number that a client sends once, by asking with multipliers that differ by
1e-9.

``python benchmarks/privacy_attacks/multiplier.py`` prints one JSON object.
"""

from __future__ import annotations

import json
import tempfile

import numpy as np
from asked_client import INTERVALS, MULTIPLIER, asked, client

from motley.core.errors import UserError

ASKED = 4000


def main() -> None:
    found = []
    refused = 0
    with tempfile.TemporaryDirectory() as folder:
        at = client(folder)
        clear = float(at.setting.task.federation.train.sizes[0])
        for i in range(ASKED):
            try:
                found.append(asked(at, "enrol", "num_examples", MULTIPLIER + 1e-9 * i))
            except UserError:
                refused += 1
    distinct = len(set(found))
    low, high = INTERVALS["num_examples"]
    error = abs(float(np.mean(found)) - clear) if found else float("inf")
    noise = MULTIPLIER * (high - low) * 2.0**0.5
    print(
        json.dumps(
            {
                "fault": "a number that is drawn once is drawn again for every multiplier",
                "succeeded": distinct > 1,
                "figure": f"{distinct} different values of one size in {ASKED} requests ({refused} "
                f"refused); their mean is {error:.1f} off, where the noise has a deviation of "
                f"{noise:.0f}",
            }
        )
    )


if __name__ == "__main__":
    main()
