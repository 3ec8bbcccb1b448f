"""The server's side of secure aggregation: it forwards what it cannot read, and opens the sum of
those that remain.

Each method takes the answers to one step, by client, and returns the messages of the next, by
client. A client without a sound answer has dropped out; why stands in ``problems``. With fewer
clients than the threshold the round is abandoned: the server forgets what it holds, and no client
is asked to unmask anything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import numpy as np

from motley.core.errors import RoundAbandonedError, SecureAggregationError
from motley_flower.secure.encoding import Words
from motley_flower.secure.masking_client import mask_key, pair_key
from motley_flower.secure.primitives import (
    ENVELOPE,
    SEED,
    add_stream,
    combine_shares,
    derive,
    is_public_key,
    public_key,
    verify,
)
from motley_flower.secure.terms import (
    KEYS_SIZE,
    SIGNATURE,
    SecureTerms,
    Step,
    listed,
    opened,
    peers,
    sealed,
)

Messages = dict[int, bytes]
Answers = Mapping[int, object]
Combine = Callable[[Callable[[Any], bytes], Iterable[Any]], Iterator[bytes]]


class SecureServer:
    """The state machine of the server, for one attempt of one round.

    Parameters
    ----------
    terms: of the round.
    register: client -> Ed25519 public key.
    mapped: how shares are combined, ``map`` or that of a pool of processes.
    """

    def __init__(
        self, terms: SecureTerms, register: Mapping[int, bytes], mapped: Combine = map
    ) -> None:
        self.terms = terms
        self.register = register
        self.mapped = mapped
        self.problems: dict[int, str] = {}
        self.survivors: tuple[int, ...] = ()
        self._keys: Messages = {}
        self._sharing: tuple[int, ...] = ()
        self._accused: dict[int, set[int]] = {}  # client -> peers whose envelopes it could not open
        self._total: Words = np.zeros(terms.size + 1, terms.encoding.dtype)

    def open(self) -> Messages:
        """Return the terms of the round for every client of the cohort."""
        return dict.fromkeys(self.terms.cohort, bytes([Step.KEYS]) + self.terms.body)

    def keys(self, answers: Answers) -> Messages:
        """Take the clients' keys and return the list of them."""
        bodies = self._read(answers, Step.KEYS, self.terms.cohort, KEYS_SIZE)
        counts = Counter(half for keys in bodies.values() for half in (keys[:32], keys[32:64]))
        for client, keys in list(bodies.items()):
            # of either kind every client would refuse the whole list
            halves = keys[:32], keys[32:64]
            if any(counts[half] > 1 or not is_public_key(half) for half in halves):
                self._strike(client, "its keys are another's, or none", bodies)
            elif not verify(
                self.register[client],
                keys[-SIGNATURE:],
                self.terms.signed_keys(client, keys[:-SIGNATURE]),
            ):
                self._strike(client, "its keys are not signed by it", bodies)
        self._keys = self._enough(bodies)
        return self._told(Step.SHARES, self._keys, *self._keys.values())

    def shares(self, answers: Answers) -> Messages:
        """Take the envelopes and return to every client those that are for it."""
        size = (len(self._keys) - 1) * ENVELOPE
        bodies = self._enough(self._read(answers, Step.SHARES, self._keys, size))
        self._sharing = tuple(bodies)
        peers_of = {client: peers(list(self._keys), client) for client in bodies}
        boxes = {
            client: {
                to: body[i * ENVELOPE : (i + 1) * ENVELOPE] for i, to in enumerate(peers_of[client])
            }
            for client, body in bodies.items()
        }
        bitmap = self.terms.bits(bodies)
        return {
            client: sealed(
                Step.MASKED,
                self.terms,
                bitmap,
                *(boxes[peer][client] for peer in peers(self._sharing, client)),
            )
            for client in bodies
        }

    def masked(self, answers: Answers) -> Messages:
        """Take the masked vectors and return the list of survivors, none of whom could not open
        another's envelope."""
        marks = len(self.terms.bits(()))
        bodies = self._read(answers, Step.MASKED, self._sharing, marks + self._total.nbytes)
        for client, body in list(bodies.items()):
            try:
                accused = listed(self.terms.cohort, body[:marks], 0)
                self._accused[client] = accused.keys() & set(self._sharing) - {client}
            except SecureAggregationError as problem:
                self._strike(client, str(problem), bodies)
        self._strike_accused(bodies)
        for body in self._enough(bodies).values():
            self._total += np.frombuffer(body, self._total.dtype, offset=marks)
        self.survivors = tuple(bodies)
        return self._told(Step.CONSISTENCY if self.terms.options.active else Step.UNMASK, bodies)

    def _strike_accused(self, bodies: Messages) -> None:
        """Strike clients off until nobody left accuses another: always those in most accusations,
        as accuser or accused, so that one client whose envelopes are garbage goes alone, and one
        that accuses many goes alone; of a single accusation nobody knows who is right, and both
        go."""
        for accused in self._accused.values():
            for client in accused:
                accusers = [
                    str(accuser) for accuser, names in self._accused.items() if client in names
                ]
                self.problems[client] = (
                    f"its envelopes could not be opened by clients {', '.join(accusers)}"
                )
        while pairs := [(a, b) for a in bodies for b in self._accused[a] if b in bodies]:
            counts = Counter(client for pair in pairs for client in pair)
            most = max(counts.values())
            for client in [client for client, count in counts.items() if count == most]:
                names = ", ".join(str(b) for a, b in pairs if a == client)
                why = self.problems.get(
                    client, f"it could not open the envelopes of clients {names}"
                )
                self._strike(client, why, bodies)

    def signatures(self, answers: Answers) -> Messages:
        """Take the signatures of the survivors and return all of them; only under security =
        "active"."""
        bodies = self._read(answers, Step.CONSISTENCY, self.survivors, SIGNATURE)
        statement = self.terms.signed_survivors(self.terms.bits(self.survivors))
        for client, signature in list(bodies.items()):
            if not verify(self.register[client], signature, statement):
                self._strike(client, "its signature of the survivors is wrong", bodies)
        return self._told(Step.UNMASK, self._enough(bodies), *bodies.values())

    def unmask(self, answers: Answers) -> Words:
        """Take the shares and return the sum of the survivors' vectors, [size + 1], modulo 2^32 or
        2^64.

        Raises
        ------
        SecureAggregationError: shares that do not fit together, because a client told an untruth;
        the round is abandoned.
        """
        terms = self.terms
        bodies = self._enough(
            self._read(answers, Step.UNMASK, self.survivors, SEED * len(self._sharing))
        )
        at = {client: i + 1 for i, client in enumerate(terms.cohort)}
        shares: dict[int, list[tuple[int, bytes]]] = {}
        for i, client in enumerate(self._sharing):
            holders = self._holders(client)
            givers = [giver for giver in bodies if giver in holders][: terms.threshold]
            if holders and len(givers) < terms.threshold:
                raise RoundAbandonedError(
                    f"{len(givers)} clients have shares of client {client}, and {terms.threshold} "
                    f"are needed: {self.problems.get(client, '')}; the round is abandoned"
                )
            if holders:
                shares[client] = [
                    (at[giver], bodies[giver][i * SEED : (i + 1) * SEED]) for giver in givers
                ]
        for client, seed in zip(shares, self.mapped(combine_shares, shares.values()), strict=True):
            if client in self.survivors:
                add_stream(self._total, derive(seed, b"own mask", terms.digest), -1)
            else:
                self._remove_lost(client, seed)
        total = self._total
        self._total = self._total[:0]
        weight = int(total[-1])
        n = len(self.survivors)
        if not n <= weight <= terms.options.max_weight * n:
            raise RoundAbandonedError(
                f"the sum of {n} clients has a weight of {weight}, which they cannot send within "
                "max_weight: a client told an untruth, or its share was wrong; the sum is thrown "
                "away"
            )
        return total

    def _holders(self, client: int) -> list[int]:
        """Return the survivors that have a share of this client's secrets and, if they are others,
        a mask with it."""
        return [survivor for survivor in self.survivors if client not in self._accused[survivor]]

    def _remove_lost(self, client: int, seed: bytes) -> None:
        """Remove what the survivors' masks with a lost client left in the sum."""
        private = mask_key(seed, self.terms, client)
        if public_key(private) != self._keys[client][32:64]:
            raise RoundAbandonedError(
                f"the shares of client {client}'s mask key do not fit together; the round is "
                "abandoned"
            )
        for holder in self._holders(client):
            key = pair_key(
                private=private,
                public=self._keys[holder][32:64],
                terms=self.terms,
                client=client,
                peer=holder,
            )
            add_stream(self._total, key, -1 if holder < client else 1)

    # ------------------------------------------------------------------------------------- answers

    def _told(self, step: Step, clients: Mapping[int, bytes], *parts: bytes) -> Messages:
        """Return the same message for all of these clients: who they are, and what they sent."""
        return dict.fromkeys(clients, sealed(step, self.terms, self.terms.bits(clients), *parts))

    def _read(self, answers: Answers, step: Step, clients: Iterable[int], size: int) -> Messages:
        """Return the bodies of sound answers, in order of client id."""
        bodies = {}
        for client in clients:
            try:
                if client in answers:
                    bodies[client] = opened(answers[client], step, self.terms)
                    if len(bodies[client]) != size:
                        raise SecureAggregationError(
                            f"got {len(bodies[client])} bytes; expected {size}"
                        )
            except SecureAggregationError as problem:
                self._strike(client, str(problem), bodies)
        return bodies

    def _strike(self, client: int, why: str, bodies: Messages) -> None:
        self.problems[client] = why
        bodies.pop(client, None)

    def _enough(self, bodies: Messages) -> Messages:
        """Return the answers if there are enough of them.

        Raises
        ------
        RoundAbandonedError: fewer than the threshold.
        """
        if len(bodies) < self.terms.threshold:
            self._total = self._total[:0]
            why = "".join(
                f"; client {client}: {reason}"
                for client, reason in sorted(self.problems.items())[:3]
            )
            raise RoundAbandonedError(
                f"round {self.terms.round}: {len(bodies)} of {len(self.terms.cohort)} clients are "
                f"left, and {self.terms.threshold} are needed; the round is abandoned and nothing "
                f"is unmasked{why}"
            )
        return bodies
