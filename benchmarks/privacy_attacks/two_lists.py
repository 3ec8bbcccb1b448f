"""A malicious server and one lying client let two halves of the clients agree on different draws.

python benchmarks/privacy_attacks/two_lists.py
"""

from __future__ import annotations

import json
import random

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import SecureAggregationError
from motley_flower.secure.terms import bitmap
from motley_flower.secure.verifiable_draws import DRAWS, DrawClient, DrawServer

N = 9
M = 4
LIAR = 8
GROUPS = {(0, 1, 2, 3): (0, 1, 2, 3, 4, 5, LIAR), (4, 5, 6, 7): (0, 1, 4, 5, 6, 7, LIAR)}
"""Honest clients, each in one group -> the clients on the list that the group is told."""


def message(step: str, told: dict[int, bytes]) -> bytes:
    return bytes([DRAWS[step]]) + bitmap(range(N), told) + b"".join(told.values())


def main() -> None:
    keys = {k: random.Random(k).randbytes(32) for k in range(N)}
    public = {
        k: Ed25519PrivateKey.from_private_bytes(key).public_key().public_bytes_raw()
        for k, key in keys.items()
    }

    def client(k):
        return DrawClient(k, keys[k], public, None, random.Random(100 + k).randbytes)

    honest = {k: client(k) for k in range(LIAR)}
    liars = [client(LIAR), client(LIAR)]

    def heard(message):
        lie, _ = [one.answer(message) for one in liars]  # the same from both
        return {k: one.answer(message) for k, one in honest.items()} | {LIAR: lie}

    told = heard(DrawServer(public, M, 5).freeze()[0])
    step = "committed"
    # the base commit: nonces are opened before a list of them is signed
    if list(DRAWS)[2] == "opened":
        told = heard(message("committed", told))
        step = "opened"
    reached = 0
    why = ""
    for (group, listed), liar in zip(GROUPS.items(), liars, strict=True):
        there = {k: honest[k] for k in group} | {LIAR: liar}
        signatures = {
            k: one.answer(message(step, {k: told[k] for k in listed})) for k, one in there.items()
        }
        try:
            for k in group:
                honest[k].answer(message("signed", signatures))
            reached += 1
        except SecureAggregationError as refused:
            why = f": {refused}"
    figure = (
        f"{reached} of 2 different lists were taken as signed, with one liar among {N} clients{why}"
    )
    print(
        json.dumps(
            {
                "fault": "4c: two lists, each with a quorum",
                "succeeded": reached == 2,
                "figure": figure,
            }
        )
    )


if __name__ == "__main__":
    main()
