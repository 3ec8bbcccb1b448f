"""One client sends garbage in place of its encrypted shares, so that every honest client drops out
of the round.

python benchmarks/privacy_attacks/envelopes.py
"""

from __future__ import annotations

import json
import os

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import SecureAggregationError
from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.secure_round import SecureRound
from motley_flower.secure.terms import HEADER, SecureOptions, SecureTerms

N = 8
SIZE = 20
BAD = 3
OPTIONS = SecureOptions(clip=1.0, bits=20)


def main() -> None:
    keys = {k: os.urandom(32) for k in range(N)}
    public = {
        k: Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
        for k, key in keys.items()
    }
    clients = {k: SecureClient(k, keys[k], public, OPTIONS) for k in range(N)}
    terms = SecureTerms(bytes(16), 1, 0, OPTIONS, SIZE, tuple(range(N)))
    steps = {
        1: SecureClient.begin,
        2: SecureClient.share,
        4: SecureClient.confirm,
        5: SecureClient.unmask,
    }

    def answer(k, message):
        said = steps[message[0]](clients[k], message)
        return (
            said[:HEADER] + os.urandom(len(said) - HEADER) if (k, message[0]) == (BAD, 2) else said
        )

    it = SecureRound(
        terms, public, lambda asked: {k: answer(k, message) for k, message in asked.items()}
    )
    masked = {}
    refused = 0
    for k, message in it.open().items():
        try:
            masked[k] = clients[k].mask(
                message, terms.encoding.encode(np.zeros(SIZE), 1, os.urandom)
            )
        except SecureAggregationError:
            refused += 1
    try:
        _, weight = it.close(masked)
        figure = (
            f"the sum of {weight} of {N} clients was opened; the server notes {it.server.problems}"
        )
    except SecureAggregationError as problem:
        weight = 0
        figure = (
            f"{refused} honest clients dropped out, and the server notes "
            f"{it.server.problems}: {problem}"
        )
    won = weight != N - 1 or list(it.server.problems) != [BAD]
    print(
        json.dumps(
            {"fault": "9: one client's garbage envelopes", "succeeded": won, "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
