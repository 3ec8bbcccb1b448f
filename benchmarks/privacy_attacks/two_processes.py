"""A malicious server sends two lists of survivors to two processes of one client at the same
moment; both sign.

python benchmarks/privacy_attacks/two_processes.py
"""

from __future__ import annotations

import json
import multiprocessing
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from motley.core.errors import MotleyError
from motley_flower.deployed.secure_rounds import ClientSecrets
from motley_flower.secure.keyfiles import new_identity
from motley_flower.secure.secure_round import SecureRound
from motley_flower.secure.terms import SecureOptions, SecureTerms, Step, sealed

N = 4
TRIALS = 40
OPTIONS = SecureOptions(clip=1.0, bits=20)


def sign(secrets: ClientSecrets, folder: Path, message: bytes, go: Any, answers: Any) -> None:
    go.wait()
    try:
        answers.put(bool(secrets.endpoint(folder, "run", 0).answer(message)))
    except (MotleyError, OSError):
        answers.put(False)


def trial(secrets: ClientSecrets, folder: Path, lists: list[bytes]) -> bool:
    """Return whether client 0 signed both lists."""
    fork = multiprocessing.get_context("fork")
    go = fork.Barrier(2)
    answers = fork.Queue()
    both = [
        fork.Process(target=sign, args=(secrets, folder, message, go, answers)) for message in lists
    ]
    for one in both:
        one.start()
    signed = [answers.get(timeout=30) for _ in both]
    for one in both:
        one.join()
    return all(signed)


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        register = {k: bytes.fromhex(new_identity(folder / f"key-{k}")) for k in range(N)}
        secrets = ClientSecrets(OPTIONS, folder / "key-{client}", register)
        at = folder / "clients"
        terms = SecureTerms(bytes(16), 1, 0, OPTIONS, 3, tuple(range(N)))
        it = SecureRound(
            terms,
            register,
            lambda asked: {k: secrets.endpoint(at, "run", k).answer(m) for k, m in asked.items()},
        )
        for k, message in it.open().items():
            secrets.endpoint(at, "run", k).masked(message, np.zeros(3), 1)
        lists = [
            sealed(Step.CONSISTENCY, terms, terms.bits(who)) for who in (range(N), range(N - 1))
        ]
        state = at / "run" / "secure-0.bin"
        before = state.read_bytes()
        broken = 0
        for _ in range(TRIALS):
            state.write_bytes(before)
            broken += trial(secrets, at, lists)
    figure = f"one client signed both lists of survivors in {broken} of {TRIALS} trials"
    print(
        json.dumps(
            {"fault": "6: no lock on the state file", "succeeded": broken > 0, "figure": figure}
        )
    )


if __name__ == "__main__":
    main()
