"""What a server and its clients must agree on before a round of secure aggregation, and the form of
the messages.

A round has five steps. Each message begins with the step's number and 16 bytes of the digest of the
round's terms, so a message of another run, round, attempt or cohort is refused by whoever receives
it. Where clients are listed, it has a bitmap of the cohort.

    step         client -> server                       server -> client
    KEYS         two X25519 keys and a signature,       the terms: run, round, attempt, options,
                 128 bytes                              cohort, 4 bytes for each client
    SHARES       60 bytes for each peer                 who answered, and their keys, 128 bytes
                                                        each
    MASKED       whose envelopes cannot be opened,      who answered, and their envelopes,
                 and the masked vector, 4 or 8 bytes    60 bytes each
                 a number
    CONSISTENCY  a signature of the survivors,          who answered: the survivors
                 64 bytes
    UNMASK       one share for each peer, 16 bytes      who signed, and their signatures,
                 each: of its own mask for a            64 bytes each
                 survivor, of its mask key for a
                 lost client

CONSISTENCY is left out under ``security = "honest_but_curious"``. Masks are AES-256-CTR streams
under HKDF-SHA256 keys; messages are signed with Ed25519 keys, and envelopes are AES-GCM; shares are
Shamir's, by pycryptodome, all else is by ``cryptography``.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
import math
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from motley.core.errors import ConfigError, SecureAggregationError
from motley_flower.secure.drawable import DrawRule
from motley_flower.secure.encoding import FixedPoint

LARGEST_COHORT = 200
"""Every client shares with every other one; for larger cohorts a sparse graph would be needed,
which is not built."""
KEYS_SIZE = 128
SIGNATURE = 64
LONGEST_CHAIN = 100_000
"""Rounds of verifiable draws, at most: a client hashes as often to check one."""
HEADER = 17
VERSION = 2
"""Of the messages of a round: raised when their form or meaning changes."""
_TERMS = struct.Struct("<B16sIQHBdBQBIII")


class Step(enum.IntEnum):
    """The steps of a round."""

    KEYS = 1
    SHARES = 2
    MASKED = 3
    CONSISTENCY = 4
    UNMASK = 5


@dataclass(frozen=True)
class SecureOptions:
    """The options of secure aggregation, alike at the server and at all clients:
    ``secure_aggregation = { clip = 0.1 }``.

    Parameters
    ----------
    clip: every coordinate of an update is clipped to ``[-clip, clip]``.
    bits: of one coordinate.
    max_weight: the largest weight of a client, its number of samples; 1: all clients weigh the
    same.
    modulus_bits: 32 or 64, the width of a coordinate on the wire.
    security: ``"active"``: the server may send anything; ``"honest_but_curious"``: it follows the
    protocol, and one step is saved.
    threshold: share of the cohort above which clients must remain in every step. None: the least
    that bears ``colluders``.
    draws: rounds whose cohorts are drawn so that clients can recompute them
    (:mod:`motley_flower.secure.verifiable_draws`); 0: none are.
    draw_rule: how they are drawn, ``"uniform"``, ``"weighted"`` by samples or by ``"tiers"``
    (:mod:`motley_flower.secure.drawable`).
    colluders: clients of a cohort that may work together with the server, and it still learns no
    single update: a share of the cohort below 1, or a number.
    cohort: clients of a drawn round; needed with ``draws``: in larger cohorts, which share more
    clients, a server that says that clients dropped out has the difference of two sums.

    Raises
    ------
    ConfigError: an option out of range.
    """

    clip: float
    bits: int = 16
    max_weight: int = 1
    modulus_bits: int = 32
    security: Literal["active", "honest_but_curious"] = "active"
    threshold: float | None = None
    draws: int = 0
    draw_rule: DrawRule = "uniform"
    colluders: float = 1 / 3
    cohort: int = 0

    def __post_init__(self) -> None:
        if self.security not in ("active", "honest_but_curious"):
            raise ConfigError(
                f"got {self.security!r}; expected 'active' or 'honest_but_curious'", "security"
            )
        if self.threshold is not None and not 0 < self.threshold < 1:
            raise ConfigError(
                f"got {self.threshold}; expected a share above 0 and below 1", "threshold"
            )
        if not 0 < self.colluders < LARGEST_COHORT or (
            self.colluders > 1 and self.colluders != int(self.colluders)
        ):
            raise ConfigError(
                f"got {self.colluders}; expected a share above 0 and below 1, or a whole number of "
                "clients: the claim against a server that works together with no client at all is "
                "empty",
                "colluders",
            )
        if (
            isinstance(self.draws, bool)
            or not isinstance(self.draws, int)
            or not 0 <= self.draws <= LONGEST_CHAIN
        ):
            raise ConfigError(
                f"got {self.draws!r}; expected a whole number of rounds from 0 to {LONGEST_CHAIN}",
                "draws",
            )
        if (
            isinstance(self.cohort, bool)
            or not isinstance(self.cohort, int)
            or (self.cohort > 0) != (self.draws > 0)
        ):
            raise ConfigError(
                f"got cohort = {self.cohort!r} with draws = {self.draws}; expected the clients of "
                "a drawn round where draws are verified, SecureOptions(..., draws=200, cohort=10), "
                "and none without",
                "cohort",
            )
        if self.draw_rule not in get_args(DrawRule):
            raise ConfigError(
                f"got {self.draw_rule!r}; expected one of {', '.join(get_args(DrawRule))}",
                "draw_rule",
            )
        self.encoding(1)
        if self.cohort:
            self.check_cohort(self.cohort)

    @property
    def active(self) -> bool:
        """Whether the server may send anything."""
        return self.security == "active"

    def encoding(self, clients: int) -> FixedPoint:
        """Return the encoding for a cohort of this size; a sum that could overflow is refused."""
        return FixedPoint(
            clip=self.clip,
            bits=self.bits,
            clients=clients,
            max_weight=self.max_weight,
            modulus_bits=self.modulus_bits,
        )

    def upload_bytes(self, size: int) -> int:
        """Return the bytes of a masked update of this many numbers in the largest cohort."""
        return HEADER + LARGEST_COHORT // 8 + (size + 1) * self.modulus_bits // 8

    def asked_colluders(self, clients: int) -> int:
        """Return how many clients of a cohort the options let work together with the server, at
        least 1."""
        if self.colluders < 1:
            # 1e-9: 0.29 * 100 is a bit less than 29 in floats.
            share = math.floor(self.colluders * clients + 1e-9)
        else:
            share = int(self.colluders)
        return max(share, 1)

    def needed(self, clients: int) -> int:
        """Return how many of a cohort must remain in every step.

        >>> SecureOptions(1.0).needed(100)
        67
        >>> SecureOptions(1.0, security="honest_but_curious").needed(100)
        51
        """
        if self.threshold is not None:
            return min(math.floor(self.threshold * clients) + 1, clients)
        colluders = self.asked_colluders(clients)
        return max(colluders + 2, (clients + colluders if self.active else clients) // 2 + 1)

    def tolerated(self, clients: int) -> int:
        """Return how many clients of a cohort may work together with the server, and it still
        learns no single update.

        With n clients, a threshold t and c colluders every sum that is opened holds t - c honest
        clients, at least two where c <= t - 2. Under ``"active"``, two different lists of survivors
        are never both opened where c < 2t - n: the n - c honest clients sign one list each, and t
        signatures of both lists take 2(t - c) of them.
        ``docs/deploy/secure-aggregation.md#what-it-hides-and-from-whom``.

        >>> SecureOptions(1.0).tolerated(10), SecureOptions(1.0, threshold=0.8).tolerated(10)
        (3, 7)
        """
        t = self.needed(clients)
        return min(t - 2, 2 * t - clients - 1) if self.active else t - 2

    def claim(self, clients: int) -> str:
        """Return what is claimed of the sums of cohorts of this size, in a sentence."""
        whom = "may send anything" if self.active else "follows the protocol"
        return (
            f"of every cohort of {clients}, {self.needed(clients)} clients must remain; no single "
            f"update is opened to a server that {whom} and works together with up to "
            f"{self.tolerated(clients)} clients of the cohort"
        )

    def record(self, clients: int) -> dict[str, Any]:
        """Return what ``run.json`` says of the sums of cohorts of this size: the options, and
        against whom they hide updates."""
        return {"secure_aggregation": {**dataclasses.asdict(self), "claim": self.claim(clients)}}

    def check_cohort(self, clients: int) -> None:
        """Refuse a cohort that is too small or too large, whose sum could overflow, or that does
        not bear the colluders.

        Raises
        ------
        ConfigError: one of these.
        """
        if not 3 <= clients <= LARGEST_COHORT:
            raise ConfigError(
                f"got a cohort of {clients}; expected 3 to {LARGEST_COHORT} clients: in a smaller "
                "one a client could subtract its own upload from the sum, and for a larger one a "
                "sparse graph of shares would be needed, which is not built"
            )
        if self.cohort not in (0, clients):
            raise ConfigError(
                f"got a cohort of {clients}, and the options draw cohorts of {self.cohort}; write "
                f"SecureOptions(..., cohort={clients}) at both ends",
                "cohort",
            )
        self.encoding(clients)
        borne = self.tolerated(clients)
        colluders = self.asked_colluders(clients)
        t = self.needed(clients)
        if t > clients or borne < colluders:
            mend = "leave threshold out" if self.threshold is not None else "lower colluders"
            raise ConfigError(
                f"{t} of {clients} clients must remain, and with them {max(borne, 0)} colluding "
                f"clients are borne; colluders = {self.colluders:.4g} asks for {colluders}, and no "
                f"cohort of {clients} bears more than {clients - 2}: {mend}",
                "colluders" if self.threshold is None else "threshold",
            )


@dataclass(frozen=True)
class SecureTerms:
    """The terms of one round.

    Parameters
    ----------
    run: name of the run, 16 bytes.
    round: its number.
    attempt: grows with every try of a round.
    options: of the protocol.
    size: numbers in a client's vector, without its weight.
    cohort: client ids, rising.

    Raises
    ------
    ConfigError: a cohort that is too small or too large.
    """

    run: bytes
    round: int
    attempt: int
    options: SecureOptions
    size: int
    cohort: tuple[int, ...]

    def __post_init__(self) -> None:
        self.options.check_cohort(len(self.cohort))
        rising = all(a < b for a, b in zip(self.cohort, self.cohort[1:], strict=False))
        if len(self.run) != 16 or not rising or self.cohort[0] < 0 or not 0 < self.size < 2**31:
            raise ConfigError(
                f"got a cohort {self.cohort[:5]}, ... or a size {self.size} that no round has"
            )

    @property
    def threshold(self) -> int:
        """How many clients must remain in every step."""
        return self.options.needed(len(self.cohort))

    @property
    def encoding(self) -> FixedPoint:
        """The encoding of the vectors."""
        return self.options.encoding(len(self.cohort))

    @cached_property
    def body(self) -> bytes:
        """The terms as bytes; equal terms have equal bytes."""
        o = self.options
        head = _TERMS.pack(
            VERSION,
            self.run,
            self.round,
            self.attempt,
            self.threshold,
            o.active,
            o.clip,
            o.bits,
            o.max_weight,
            o.modulus_bits,
            o.draws,
            self.size,
            len(self.cohort),
        )
        return head + struct.pack(f"<{len(self.cohort)}I", *self.cohort)

    @cached_property
    def digest(self) -> bytes:
        """The SHA-256 of the terms, to which keys, signatures and envelopes are bound."""
        return hashlib.sha256(self.body).digest()

    @classmethod
    def read(cls, body: bytes, options: SecureOptions) -> SecureTerms:
        """Return the terms in a message, which must have this client's own options.

        Raises
        ------
        SecureAggregationError: other options, or bytes that are no terms.
        """
        if len(body) < _TERMS.size:
            raise SecureAggregationError(f"got {len(body)} bytes; expected the terms of a round")
        _, run, round_, attempt, *_, size, n = _TERMS.unpack(body[: _TERMS.size])
        if n > LARGEST_COHORT or len(body) != _TERMS.size + 4 * n:
            raise SecureAggregationError(
                f"got {len(body)} bytes for the terms of a round with {n} clients"
            )
        cohort = struct.unpack(f"<{n}I", body[_TERMS.size :])
        try:
            terms = cls(
                run=run, round=round_, attempt=attempt, options=options, size=size, cohort=cohort
            )
        except ConfigError as error:
            raise SecureAggregationError(f"the round is refused: {error}") from None
        if terms.body != body:
            raise SecureAggregationError(
                "the server proposes other options than this client's "
                f"{dataclasses.asdict(options)} for a cohort of {n}, or another version; give the "
                "server and all clients the same"
            )
        return terms

    def bits(self, clients: Collection[int]) -> bytes:
        """Return a set of clients of the cohort as a bitmap."""
        return bitmap(self.cohort, clients)

    def members(
        self, body: bytes, each: int = 0, without: int | None = None
    ) -> tuple[tuple[int, ...], Mapping[int, bytes]]:
        """Return the clients of a bitmap, and for each of them its ``each`` bytes behind it.

        ``without``: a client that has none of these bytes.

        Raises
        ------
        SecureAggregationError: another length, a bit of no client, or fewer clients than the
        threshold.
        """
        parts = listed(self.cohort, body, each, without)
        clients = tuple(parts)
        if len(clients) < self.threshold:
            raise SecureAggregationError(
                f"got {len(clients)} of {len(self.cohort)} clients; expected at least "
                f"{self.threshold}: nothing is revealed"
            )
        return clients, {client: part for client, part in parts.items() if client != without}

    def signed_keys(self, client: int, keys: bytes) -> bytes:
        """Return what a client signs of its two public keys."""
        return b"keys" + self.digest + struct.pack("<I", client) + keys

    def signed_survivors(self, survivors: bytes) -> bytes:
        """Return what a client signs of the survivors' bitmap."""
        return b"survivors" + self.digest + survivors

    def pair(self, *clients: int) -> bytes:
        """Return the bytes to which a key of two clients is bound: the round's terms and both ids,
        in this order."""
        return self.digest + struct.pack(f"<{len(clients)}I", *clients)


def sealed(step: Step, terms: SecureTerms, *parts: bytes) -> bytes:
    """Return a message of a round."""
    return b"".join((bytes([step]), terms.digest[: HEADER - 1], *parts))


def opened(message: object, step: Step, terms: SecureTerms) -> bytes:
    """Return the body of a message of this step and round.

    Raises
    ------
    SecureAggregationError: a message of another step, round, attempt, run or cohort, or none at
    all.
    """
    if not isinstance(message, bytes) or len(message) < HEADER:
        raise SecureAggregationError("got no message of secure aggregation")
    if message[1:HEADER] != terms.digest[: HEADER - 1]:
        raise SecureAggregationError(
            "got a message of another run, round, attempt or cohort than this one's"
        )
    if message[0] != step:
        raise SecureAggregationError(
            f"got a message of step {message[0]}; expected step {step.value}, {step.name.lower()}"
        )
    return message[HEADER:]


def bitmap(order: Sequence[int], clients: Collection[int]) -> bytes:
    """Return a set of clients as a bitmap; ``order``: all that there may be."""
    number = sum(1 << i for i, client in enumerate(order) if client in clients)
    return number.to_bytes((len(order) + 7) // 8, "little")


def listed(
    order: Sequence[int], body: bytes, each: int, without: int | None = None
) -> dict[int, bytes]:
    """Return the clients of a bitmap, and for each of them its ``each`` bytes behind it.

    ``without``: a client that has none of these bytes.

    Raises
    ------
    SecureAggregationError: another length, or a bit of no client.
    """
    size = (len(order) + 7) // 8
    number = int.from_bytes(body[:size], "little")
    sizes = {
        client: each * (client != without) for i, client in enumerate(order) if number >> i & 1
    }
    if len(body) != size + sum(sizes.values()) or number >> len(order):
        raise SecureAggregationError(
            f"got {len(body)} bytes; expected {size + sum(sizes.values())} for {len(sizes)} clients"
        )
    bodies = {}
    at = size
    for client, length in sizes.items():
        bodies[client] = body[at : at + length]
        at += length
    return bodies


def peers(clients: Sequence[int], client: int) -> list[int]:
    """Return the other clients of a sequence."""
    return [peer for peer in clients if peer != client]
