"""How long a round of secure aggregation takes beside the training, and how many bytes each step
sends.

    python benchmarks/secure_sum.py [--clients 100] [--size 1000000] [--dropouts 0 0.1 0.3]

Two processes work for half of the clients each, on vectors that stand for trained updates; then
both combine shares for the server. No network is between them. The clients' steps are timed
together, as two cores take for all of them, although clients of a deployment compute each on its
own machine. ``busy_s`` is the processor time of the busiest process of each step, added over the
steps: what two idle cores take, also where the machine has other work. ``wall_s`` is what passed.
The sum is compared with the plain sum of the encoded vectors. Writes
``benchmarks/measured/secure_sum.json``.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import time
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from motley_flower.secure.masking_client import SecureClient
from motley_flower.secure.primitives import combine_shares
from motley_flower.secure.server import SecureServer
from motley_flower.secure.terms import SecureOptions, SecureTerms

OUT = Path(__file__).resolve().parent / "measured" / "secure_sum.json"
OPTIONS = SecureOptions(clip=1.0, bits=20)
STEPS = ("keys", "shares", "masked", "consistency", "unmask")


def vector(terms: SecureTerms, client: int) -> Any:
    """Return a client's encoded vector."""
    return terms.encoding.encode(
        np.random.default_rng(client).normal(size=terms.size) / 3,
        1,
        np.random.default_rng(client).bytes,
    )


def worker(
    pipe: Connection, identities: dict[int, bytes], register: dict[int, bytes], terms: SecureTerms
) -> None:
    """Answer for some of the clients, or combine shares, as the main process asks; each answer
    comes with its processor time."""
    clients = {k: SecureClient(k, key, register, OPTIONS) for k, key in identities.items()}
    vectors = {k: vector(terms, k) for k in clients}
    while (order := pipe.recv()) is not None:
        step, given = order
        began = time.process_time()
        if step == "combine":
            done: Any = [combine_shares(one) for one in given]
        else:
            done = {k: answer(step, clients[k], message, vectors) for k, message in given.items()}
        pipe.send((done, time.process_time() - began))


def answer(step: str, client: SecureClient, message: bytes, vectors: dict[int, Any]) -> bytes:
    if step == "masked":
        return client.mask(message, vectors[client.client])
    return {
        "keys": client.begin,
        "shares": client.share,
        "consistency": client.confirm,
        "unmask": client.unmask,
    }[step](message)


class Measured:
    """A round whose clients live in two processes."""

    def __init__(
        self, terms: SecureTerms, identities: dict[int, bytes], register: dict[int, bytes]
    ) -> None:
        self.pipes = []
        self.server = SecureServer(terms, register, self.combined)
        self.combine_s = 0.0
        self.workers = []
        for half in range(2):
            ours, theirs = multiprocessing.Pipe()
            own = {k: key for k, key in identities.items() if k % 2 == half}
            process = multiprocessing.Process(
                target=worker, args=(theirs, own, register, terms), daemon=True
            )
            process.start()
            self.pipes.append(ours)
            self.workers.append(process)
        self.rows: list[dict[str, Any]] = []

    def asked(self, orders: list[Any]) -> tuple[list[Any], float]:
        for pipe, order in zip(self.pipes, orders, strict=True):
            pipe.send(order)
        answers = [pipe.recv() for pipe in self.pipes]
        return [done for done, _ in answers], max(seconds for _, seconds in answers)

    def combined(self, _: Any, shares: Iterable[Any]) -> Iterator[bytes]:
        shares = list(shares)
        (even, odd), self.combine_s = self.asked(
            [("combine", shares[::2]), ("combine", shares[1::2])]
        )
        for i in range(len(shares)):
            yield (even, odd)[i % 2][i // 2]

    def step(self, name: str, messages: dict[int, bytes], then: Any) -> Any:
        wall = time.perf_counter()
        server = 0.0
        done, clients_s = self.asked(
            [(name, {k: m for k, m in messages.items() if k % 2 == half}) for half in range(2)]
        )
        answers = {k: body for half in done for k, body in half.items()}
        began = time.process_time()
        following = then(answers)
        server = time.process_time() - began + self.combine_s
        self.rows.append(
            {
                "step": name,
                "bytes_up": max(map(len, answers.values())),
                "bytes_down": max(map(len, messages.values())),
                "clients_s": round(clients_s, 2),
                "server_s": round(server, 2),
                "wall_s": round(time.perf_counter() - wall, 2),
            }
        )
        return following

    def run(self, lost: set[int]) -> Any:
        server = self.server
        alive = self.step("keys", server.open(), server.keys)
        alive = self.step("shares", alive, server.shares)
        alive = self.step(
            "masked", {k: m for k, m in alive.items() if k not in lost}, server.masked
        )
        alive = self.step("consistency", alive, server.signatures)
        return self.step("unmask", alive, server.unmask)

    def end(self) -> None:
        for pipe, process in zip(self.pipes, self.workers, strict=True):
            pipe.send(None)
            process.join()


def measured(clients: int, size: int, share: float) -> dict[str, Any]:
    identities = {k: os.urandom(32) for k in range(clients)}
    register = {
        k: Ed25519PrivateKey.from_private_bytes(v).public_key().public_bytes_raw()
        for k, v in identities.items()
    }
    terms = SecureTerms(os.urandom(16), 1, 0, OPTIONS, size, tuple(range(clients)))
    lost = set(range(round(share * clients)))
    it = Measured(terms, identities, register)
    total = it.run(lost)
    it.end()
    plain = np.sum(
        [vector(terms, k) for k in range(clients) if k not in lost], axis=0, dtype=total.dtype
    )
    busy = sum(row["clients_s"] + row["server_s"] for row in it.rows)
    return {
        "dropped": share,
        "threshold": terms.threshold,
        "equals_plain_sum": bool(np.array_equal(total, plain)),
        "busy_s": round(busy, 1),
        "wall_s": round(sum(row["wall_s"] for row in it.rows), 1),
        "steps": it.rows,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--size", type=int, default=1_000_000)
    parser.add_argument("--dropouts", type=float, nargs="+", default=[0.0, 0.1, 0.3])
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args()
    load = os.getloadavg()[0]
    rounds = []
    for share in args.dropouts:
        rounds.append(measured(args.clients, args.size, share))
        print(json.dumps({k: v for k, v in rounds[-1].items() if k != "steps"}), flush=True)
    result = {
        "clients": args.clients,
        "size": args.size,
        "bits": OPTIONS.bits,
        "modulus_bits": OPTIONS.modulus_bits,
        "security": OPTIONS.security,
        "processes": 2,
        "load_before": round(load, 1),
        "cores": os.cpu_count(),
        "machine": platform.processor() or platform.machine(),
        "python": platform.python_version(),
        "rounds": rounds,
    }
    args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
