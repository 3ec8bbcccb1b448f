"""A malicious server asks a drawn cohort twice for one round, the second time without one client,
and subtracts the sums.

python benchmarks/privacy_attacks/second_attempt.py
"""

from __future__ import annotations

import dataclasses
import json
import tempfile
from pathlib import Path

import numpy as np

from motley.core.errors import SecureAggregationError
from motley_flower.deployed.secure_rounds import ClientSecrets
from motley_flower.secure.keyfiles import new_identity
from motley_flower.secure.secure_round import SecureRound
from motley_flower.secure.terms import SecureOptions, SecureTerms
from motley_flower.secure.verifiable_draws import DrawServer

N = 6
SIZE = 50
VICTIM = 5
KNOWN = {f.name for f in dataclasses.fields(SecureOptions)}
OPTIONS = SecureOptions(clip=1.0, bits=24, draws=3, **({"cohort": N} if "cohort" in KNOWN else {}))


def attack(folder: Path) -> float:
    """Return the largest error of what the server learned of the victim's update; infinite where it
    learned nothing."""
    register = {k: bytes.fromhex(new_identity(folder / f"key-{k}")) for k in range(N)}
    secrets = ClientSecrets(OPTIONS, folder / "key-{client}", register)
    updates = np.random.default_rng(0).uniform(-0.5, 0.5, (N, SIZE))

    def endpoint(client):
        return secrets.endpoint(folder / "clients", "run", client)

    def ask(asked):
        answers = {}
        for client, message in asked.items():
            try:
                answers[client] = endpoint(client).answer(message)
            except SecureAggregationError:
                continue
        return answers

    draws = DrawServer(register, N, 3)
    draws.agree(ask)
    cohort, link = draws.draw(1)
    sums = []
    for attempt, lost in enumerate(((), (VICTIM,))):
        it = SecureRound(
            SecureTerms(bytes(16), 1, attempt, OPTIONS, SIZE, cohort), register, ask, link
        )
        try:
            told = it.open()
            masked = {k: endpoint(k).masked(told[k], updates[k], 1) for k in told if k not in lost}
            mean, weight = it.close(masked)
        except SecureAggregationError:
            return float("inf")
        sums.append(mean * weight)
    return float(np.abs(sums[0] - sums[1] - updates[VICTIM]).max())


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        error = attack(Path(folder))
    won = error < 1e-5
    figure = (
        f"the update came out to {error:.1e}"
        if won
        else "every client refused the second attempt; nothing came out"
    )
    print(
        json.dumps(
            {"fault": "4a: a second attempt of a drawn round", "succeeded": won, "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
