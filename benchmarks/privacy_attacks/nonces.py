"""A malicious server sees all nonces, and leaves out those that make the first two cohorts differ
in one client.

python benchmarks/privacy_attacks/nonces.py
"""

from __future__ import annotations

import itertools
import json
import os

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import SecureAggregationError
from motley_flower.secure.terms import bitmap
from motley_flower.secure.verifiable_draws import DRAWS, DrawClient, DrawServer, draw

N = 12
M = 4
LEFT_OUT = 3


def found(server: DrawServer, nonces: dict[int, bytes]) -> tuple[dict[int, bytes], int]:
    """Return the nonces that are kept, and the number of choices that were tried."""
    tries = 0
    for size in range(1, LEFT_OUT + 1):
        for out in itertools.combinations(range(N), size):
            tries += 1
            kept = {k: nonce for k, nonce in nonces.items() if k not in out}
            first, second = (set(draw(server._chain[t], kept, M, t, server.table)) for t in (1, 2))
            if len(first & second) == M - 1:
                return kept, tries
    return {}, tries


def main() -> None:
    keys = {k: os.urandom(32) for k in range(N)}
    public = {
        k: Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
        for k, key in keys.items()
    }
    clients = {k: DrawClient(k, keys[k], public) for k in range(N)}
    server = DrawServer(public, M, 2)

    def ask(asked):
        return {k: clients[k].answer(message) for k, message in asked.items()}

    answers = ask(server.committed(ask(server.freeze())))
    nonces = answers if len(answers[0]) == 32 else ask(server.signed(answers))
    kept, tries = found(server, nonces)
    told = bytes([DRAWS["opened"]]) + bitmap(range(N), kept) + b"".join(kept.values())
    try:
        answers = {k: clients[k].answer(told) for k in kept}
        if answers[min(kept)] != b"ready":
            server.nonces = kept
            ask(server.signed(answers))
        for t in (1, 2):
            cohort, link = server.draw(t)
            for k in cohort:
                clients[k].check(t, cohort, link)
        won = True
        figure = (
            f"{tries} tries gave two cohorts that differ in one client, and every client took part"
        )
    except SecureAggregationError as refused:
        won = False
        figure = f"after {tries} tries a client refused: {refused}"
    print(
        json.dumps(
            {"fault": "4b: nonces chosen by who is left out", "succeeded": won, "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
