"""A server and t - 1 clients, fewer than the threshold t, subtract the clients' own updates from a
sum of t.

python benchmarks/privacy_attacks/colluders.py
"""

from __future__ import annotations

import json
import os

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import RoundAbandonedError
from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.secure_round import SecureRound
from motley_flower.secure.server import SecureServer
from motley_flower.secure.terms import SecureOptions, SecureTerms

N = 3
SIZE = 50
VICTIM = 0
COLLUDER = 1
LOST = 2
OPTIONS = SecureOptions(clip=1.0, bits=24, security="honest_but_curious")


def main() -> None:
    keys = {k: os.urandom(32) for k in range(N)}
    public = {
        k: Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
        for k, key in keys.items()
    }
    clients = {k: SecureClient(k, keys[k], public, OPTIONS) for k in range(N)}
    terms = SecureTerms(bytes(16), 1, 0, OPTIONS, SIZE, tuple(range(N)))
    updates = np.random.default_rng(0).uniform(-0.5, 0.5, (N, SIZE))
    steps = {1: SecureClient.begin, 2: SecureClient.share, 5: SecureClient.unmask}
    it = SecureRound(
        terms, public, lambda asked: {k: steps[m[0]](clients[k], m) for k, m in asked.items()}
    )
    vectors = {k: terms.encoding.encode(updates[k], 1, os.urandom) for k in range(N)}
    masked = {
        k: clients[k].mask(message, vectors[k]) for k, message in it.open().items() if k != LOST
    }
    fault = "5: fewer colluders than the threshold, in the smallest cohort"
    try:
        mean, weight = it.close(masked)
    except RoundAbandonedError as problem:
        print(
            json.dumps(
                {"fault": fault, "succeeded": False, "figure": f"nothing came out: {problem}"}
            )
        )
        return
    assert isinstance(it.server, SecureServer)
    error = float(np.abs(mean * weight - updates[COLLUDER] - updates[VICTIM]).max())
    figure = (
        f"threshold {terms.threshold}, {terms.threshold - 1} colluder: the other survivor's "
        f"update came out to {error:.1e}"
    )
    print(json.dumps({"fault": fault, "succeeded": error < 1e-5, "figure": figure}))


if __name__ == "__main__":
    main()
