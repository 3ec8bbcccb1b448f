"""Probe one client's loss 20,000 times in one round, and over more rounds and runs than its
``max_signals`` allows.

``python benchmarks/privacy_attacks/probes.py`` prints one JSON object. It stops after 45 seconds.
"""

from __future__ import annotations

import json
import tempfile
import time

import numpy as np
from asked_client import MULTIPLIER, asked, client

from motley.core.errors import UserError

ASKED = 20_000
SECONDS = 45.0


def main() -> None:
    values = []
    with tempfile.TemporaryDirectory() as folder:
        at = client(folder)
        until = time.monotonic() + SECONDS
        while len(values) < ASKED and time.monotonic() < until:
            try:
                values.append(asked(at, "probe", "loss", MULTIPLIER))
            except UserError:
                break
    distinct = len(set(values))
    print(
        json.dumps(
            {
                "fault": "the client answers any number of probes of one round",
                "succeeded": distinct > 1,
                "figure": f"{distinct} different noisy losses in {len(values)} probes of one "
                "round; the deviation of their mean is "
                f"{MULTIPLIER * 5.0 * 2.0**0.5 / np.sqrt(max(distinct, 1)):.2f}, of one noisy loss "
                "35.36",
            }
        )
    )


if __name__ == "__main__":
    main()
