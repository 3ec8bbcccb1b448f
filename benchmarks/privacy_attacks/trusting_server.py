"""The server of a deployment with [privacy] recovers one client's update.

The attacker is the server, which keeps to the protocol and knows the other five updates. Without
noise by clients it is sent every update whole; with it, it opens one noisy sum of masked updates.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley.core.errors import ConfigError
from motley.experiments.config import Experiment
from motley.transport import wire
from motley_flower.deployed.client_runtime import ClientRuntime
from motley_flower.deployed.protocol import Order, open_answer, pack
from motley_flower.deployed.secure_rounds import ClientSecrets
from motley_flower.secure.keyfiles import new_identity
from motley_flower.secure.secure_round import SecureRound
from motley_flower.secure.terms import SecureOptions, SecureTerms

CLIP = 0.5
CLIENTS = 6
PRIVACY = {"clip": CLIP, "delta": 1e-5, "noise_multiplier": 1.0}
KEYS: dict[str, Any] = {
    "population": CLIENTS,
    "cohort": CLIENTS,
    "stop": {"rounds": 1},
    "weights": "uniform",
    "task": {"name": "image", "data": "digits", "model": "digits_mlp", "scale": "unit"},
    "split": {"test": "global"},
    "partition": "iid",
    "engine": "sequential",
    "dtype": "float64",
    "local": {"steps": 3, "batch_size": 16, "optimizer": {"name": "sgd", "lr": 0.1}},
}


def answered(at: ClientRuntime, kind: str, client: int, **more: Any) -> bytes:
    order = Order(kind, "run", at.agreed, client, 1, **more)
    return open_answer(at.answer(client, order.seal()), 10**9).upload


def trained(at: ClientRuntime, client: int, secure: bytes = b"") -> bytes:
    work = {"dispatch": client, "steps": 3, "lr": 0.1, "model": pack(at.like), "secure": secure}
    return answered(at, "train", client, **work)


def clear(at: ClientRuntime, client: int) -> Any:
    value = wire.decode(trained(at, client))["delta"].dense().numpy()
    return value * min(1.0, CLIP / float(np.linalg.norm(value)))


def opened(setup: Experiment, folder: Path, size: int) -> Any:
    """Return the sum that a server opens, as it follows from what six clients send."""
    options = SecureOptions(clip=CLIP)
    for k in range(CLIENTS):
        new_identity(folder / f"key-{k}")
    private = [bytes.fromhex((folder / f"key-{k}").read_text()) for k in range(CLIENTS)]
    keys = [Ed25519PrivateKey.from_private_bytes(one).public_key() for one in private]
    register = {k: key.public_bytes_raw() for k, key in enumerate(keys)}
    at = ClientRuntime(
        setup, folder, secrets=ClientSecrets(options, folder / "key-{client}", register)
    )
    terms = SecureTerms(b"r" * 16, 1, 1, options, size, tuple(range(CLIENTS)))
    ask = lambda told: {k: answered(at, "secure", k, secure=m) for k, m in told.items()}  # noqa: E731
    begun = SecureRound(terms, register, ask)
    masked = {k: trained(at, k, message) for k, message in begun.open().items()}
    return at.sums.noise.opened(begun.opened(masked)[:-1])  # type: ignore[union-attr]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain = ClientRuntime(Experiment(**KEYS), folder)
        updates = [clear(plain, k) for k in range(CLIENTS)]
        try:
            setup = Experiment(**KEYS, privacy={**PRIVACY, "noise_by": "clients"})
        except ConfigError:  # there is no such option: the server is sent the update itself
            found = clear(ClientRuntime(Experiment(**KEYS, privacy=PRIVACY), folder), 0)
        else:
            found = opened(setup, folder, updates[0].size) - np.sum(updates[1:], axis=0)
    error = float(np.linalg.norm(found - updates[0])) / CLIP
    figure = (
        f"client 0's update of {updates[0].size} numbers with an error of {error:.3g} C in norm"
    )
    fault = "the server of a private deployment sees every update"
    print(json.dumps({"fault": fault, "succeeded": error < 0.5, "figure": figure}))


if __name__ == "__main__":
    main()
