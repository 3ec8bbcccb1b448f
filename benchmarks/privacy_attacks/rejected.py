"""Attack: an upload that is not finite is heard by the selector as rejected, though that depends on
the client's data.

Two worlds differ in client 0's data: in one its training diverges. Oort takes a rejected client for
one that it knows nothing of, and asks it again and again; the table of participants tells the
worlds apart, whatever noise the sums and signals have.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass

import numpy as np
from scipy.stats import beta

import motley
from motley.core.errors import ConfigError
from motley.world.interfaces import Failures

CLIENTS = 20
ROUNDS = 12
TRIALS = 50
DELTA = 1e-5
NOISE = {"low": 0.0, "high": 5.0, "multiplier": 1000.0}


@dataclass(frozen=True)
class Diverged(Failures):
    """Client 0's training diverges, or not."""

    yes: bool = False

    def upload_factor(self, key, ids, round_index):  # type: ignore[no-untyped-def]
        """Return NaN for client 0 where its training diverges."""
        return np.where((ids == 0) & self.yes, np.nan, 1.0)


def asked(seed: int, diverged: bool) -> tuple[int, float]:
    """Return how often client 0 was asked, and the claimed epsilon."""
    loop = motley.build(
        {
            "seed": seed,
            "pin": {"data": 1, "init": 1},
            "task": "quadratic",
            "population": CLIENTS,
            "cohort": 4,
            "partition": "by_writer",
            "stop": {"rounds": ROUNDS},
            "weights": "uniform",
            "selector": "oort",
            "local": {"steps": 2},
            "engine": "sequential",
            "failures": Diverged(diverged),
            "evaluate": {"every": ROUNDS},
            "privacy": {
                "clip": 0.5,
                "delta": DELTA,
                "noise_multiplier": 1000.0,
                "adjacency": "replace_one",
                "signal_noise": {"loss_rms": NOISE, "num_examples": {**NOISE, "high": 100.0}},
            },
        }
    )
    times = 0
    while not loop.done:
        times += 0 in loop.step().asked
    return times, loop.config.privacy.bound.epsilon


def main() -> None:
    """Print what the attack got, as one JSON object."""
    try:
        worlds = [[asked(seed, diverged) for seed in range(TRIALS)] for diverged in (True, False)]
    except ConfigError as refused:
        print(
            json.dumps(
                {
                    "fault": "rejected",
                    "succeeded": False,
                    "figure": f"the run is refused: {refused}",
                }
            )
        )
        return
    far, near = (np.array([times for times, _ in world]) for world in worlds)
    epsilon = worlds[0][0][1]
    half = TRIALS // 2  # the first half chooses the threshold, the second is judged
    best = max(
        range(ROUNDS + 1), key=lambda t: (far[:half] >= t).mean() - (near[:half] >= t).mean()
    )
    hits = int((far[half:] >= best).sum())
    alarms = int((near[half:] >= best).sum())
    n = TRIALS - half
    low = beta.ppf(0.025, hits, n - hits + 1) if hits else 0.0
    high = beta.ppf(0.975, alarms + 1, n - alarms) if alarms < n else 1.0
    bound = max(0.0, math.log(max(low - DELTA, 1e-9) / high))
    figure = (
        f"client 0 is asked {far.mean():.1f} times of {ROUNDS} where its training diverges and "
        f"{near.mean():.1f} times where not; lower bound on epsilon {bound:.2f} at a claim of "
        f"{epsilon:.3f}, from {TRIALS} runs of each world"
    )
    print(json.dumps({"fault": "rejected", "succeeded": bound > epsilon, "figure": figure}))


if __name__ == "__main__":
    main()
