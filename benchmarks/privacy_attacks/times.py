"""Attack: one client's number of samples decides which other clients are asked, and which enter a
sum.

Two worlds with the same seed differ in the number of client 0's samples. Devices take time
proportional to that number, and a rule or a server that looks at time then takes other clients.
What a cohort or a sum shows of the others is covered by no account.
"""

from __future__ import annotations

import json

import numpy as np
from torch import nn

import motley
from motley.core.errors import ConfigError
from motley.tasks import from_clients, own_task

CLIENTS = 12
ROUNDS = 8
LOOKERS = {
    "fedcs": {"selector": {"name": "fedcs", "deadline": 2000.0}},
    "deadline": {"synchrony": {"name": "deadline", "over_select": 1.5}},
    "buffered": {"synchrony": {"name": "buffered", "refill": "idle", "buffer": 3}},
}


def task(samples: int):  # type: ignore[no-untyped-def]
    """Return data of twelve clients, of which client 0 has so many samples."""
    rng = np.random.default_rng(0)
    sizes = [samples, *rng.integers(20, 60, CLIENTS - 1)]
    clients = [(rng.normal(size=(200, 4))[:n], (np.arange(200) % 2)[:n]) for n in sizes]
    try:
        data = from_clients(clients, classes=2)
    except TypeError:  # before classes could be said
        data = from_clients(clients)
    return own_task(data, lambda: nn.Linear(4, 2))


def others(samples: int, looker: dict[str, object]) -> list[set[int]]:
    """Return the clients but client 0 whose updates enter each sum."""
    keys = {
        "task": task(samples),
        "population": CLIENTS,
        "cohort": 6,
        "stop": {"rounds": ROUNDS},
        "weights": "uniform",
        "local": {"steps": 2},
        "device": {"name": "shifted_exponential"},
        "engine": "sequential",
        "privacy": {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 1000.0},
    }
    loop = motley.build({**keys, **looker})
    found: list[set[int]] = []
    clipped = loop.private.clipped
    loop.private.clipped = lambda state, upload: (
        found[-1].add(upload.client) or clipped(state, upload)
    )
    while not loop.done:
        found.append(set())
        loop.step()
    return [members - {0} for members in found]


def main() -> None:
    """Print what the attack got, as one JSON object."""
    said = []
    succeeded = False
    for name, looker in LOOKERS.items():
        try:
            few, many = (others(samples, looker) for samples in (20, 190))
        except ConfigError as refused:
            said.append(f"{name}: refused ({refused.key})")
            continue
        changed = sum(one != two for one, two in zip(few, many, strict=True))
        succeeded |= changed > 0
        said.append(
            f"{name}: other clients enter in {changed} of {ROUNDS} sums when client 0 has 190 "
            "samples and not 20"
        )
    print(json.dumps({"fault": "times", "succeeded": succeeded, "figure": "; ".join(said)}))


if __name__ == "__main__":
    main()
