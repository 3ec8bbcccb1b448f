"""Attack: ``stop.target`` ends a run by an evaluation of clients' clear data, and the number of
rounds tells it.

Two worlds differ in the data of one client, on which the model is evaluated as well: where its
labels are wrong, the mean of the clients' accuracies reaches the target later, or never. The noise
of the sums is that of the account.
"""

from __future__ import annotations

import json

import numpy as np
from torch import nn

import motley
from motley.core.errors import ConfigError
from motley.tasks import from_clients, own_task

CLIENTS = 5
ROUNDS = 12
TRIALS = 20


def task(wrong: bool):  # type: ignore[no-untyped-def]
    """Return data that a line separates; client 0's labels are turned round, or not."""
    rng = np.random.default_rng(0)
    clients = []
    for k in range(CLIENTS):
        x = rng.normal(size=(60, 4))
        y = (x[:, 0] > 0).astype(np.int64)
        clients.append((x, 1 - y if wrong and k == 0 else y))
    try:
        data = from_clients(clients, classes=2)
    except TypeError:  # before classes could be said
        data = from_clients(clients)
    return own_task(data, lambda: nn.Linear(4, 2))


def rounds(seed: int, wrong: bool) -> tuple[int, float]:
    """Return how many rounds the run lasts, and the claimed epsilon."""
    loop = motley.build(
        {
            "seed": seed,
            "pin": {"data": 1, "split": 1},
            "task": task(wrong),
            "population": CLIENTS,
            "cohort": CLIENTS,
            "stop": {"rounds": ROUNDS, "target": {"accuracy": 0.85}},
            "weights": "uniform",
            "engine": "sequential",
            "local": {"steps": 20, "optimizer": {"name": "sgd", "lr": 0.1}},
            "evaluate": {"every": 1},
            "privacy": {"clip": 1.0, "delta": 1e-5, "noise_multiplier": 2.0},
        }
    )
    last = 0
    while not loop.done:
        last = loop.step().step
    return last, loop.config.privacy.bound.epsilon


def main() -> None:
    """Print what the attack got, as one JSON object."""
    try:
        worlds = [[rounds(seed, wrong)[0] for seed in range(TRIALS)] for wrong in (True, False)]
    except ConfigError as refused:
        print(
            json.dumps(
                {"fault": "target", "succeeded": False, "figure": f"the run is refused: {refused}"}
            )
        )
        return
    wrong, right = map(np.array, worlds)
    never = (wrong == ROUNDS).mean()
    never_right = (right == ROUNDS).mean()
    figure = (
        f"runs end after {right.mean():.1f} rounds where client 0's labels are right, and "
        f"{wrong.mean():.1f} where they are wrong: {never:.0%} against {never_right:.0%} go to the "
        f"last of {ROUNDS} rounds, a look in no account"
    )
    succeeded = bool(never - never_right > 0.3)
    print(json.dumps({"fault": "target", "succeeded": succeeded, "figure": figure}))


if __name__ == "__main__":
    main()
