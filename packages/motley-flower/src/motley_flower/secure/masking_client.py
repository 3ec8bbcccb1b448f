"""One client's side of secure aggregation: five messages in, five out, each step once.

A client refuses, with a :class:`~motley.core.errors.SecureAggregationError`, a message of another
run, round, attempt or cohort, one whose signatures or envelopes are not those of the register, a
second message of a step, a cohort without itself, other options, and fewer clients than the
threshold. A peer whose envelope it cannot open counts as one that sent none. It never reveals
shares of both secrets of one client: it answers one request to unmask, for one set of survivors,
and forgets.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from motley.core import codec
from motley.core.errors import CodecError, SecureAggregationError
from motley_flower.secure.encoding import Entropy, Words
from motley_flower.secure.primitives import (
    ENVELOPE,
    SEED,
    add_stream,
    agree,
    derive,
    open_envelope,
    public_key,
    seal_envelope,
    sign,
    split_seed,
    verify,
)
from motley_flower.secure.terms import (
    KEYS_SIZE,
    SIGNATURE,
    SecureOptions,
    SecureTerms,
    Step,
    opened,
    peers,
    sealed,
)


class SecureClient:
    """The state machine of one client.

    Parameters
    ----------
    client: its id.
    identity: its Ed25519 private key, 32 bytes.
    register: client -> Ed25519 public key, 32 bytes; known to clients, and not from the server.
    options: of the protocol.
    entropy: where secrets come from.
    """

    def __init__(
        self,
        client: int,
        identity: bytes,
        register: Mapping[int, bytes],
        options: SecureOptions,
        entropy: Entropy = os.urandom,
    ) -> None:
        self.client = client
        self.identity = identity
        self.register = register
        self.options = options
        self.entropy = entropy
        self.terms: SecureTerms | None = None
        self._last: dict[bytes, tuple[int, int]] = {}
        self._forget()

    def _forget(self) -> None:
        """Forget the secrets of a round; only its terms and that it is over remain."""
        self._next: Step | None = None
        self._box = b""
        self._mask = b""
        self._own = b""
        self._keys: dict[int, bytes] = {}
        self._shares: dict[int, bytes] = {}
        self._survivors = b""

    # ------------------------------------------------------------------------------- the five steps

    def begin(self, message: object) -> bytes:
        """Take the terms of a new round and return two fresh public keys, signed.

        Raises
        ------
        SecureAggregationError: terms that are not this client's, a cohort without it, or a round
        that has begun before.
        """
        if not isinstance(message, bytes) or len(message) < 1 or message[0] != Step.KEYS:
            raise SecureAggregationError("got no terms of a round; expected them first")
        terms = SecureTerms.read(message[1:], self.options)
        if self.client not in terms.cohort:
            raise SecureAggregationError(
                f"client {self.client} is not in the cohort of round {terms.round}"
            )
        strange = sorted(set(terms.cohort) - set(self.register))
        if strange:
            raise SecureAggregationError(
                f"client {strange[0]} of the cohort is not in this client's register of keys"
            )
        if (terms.round, terms.attempt) <= self._last.get(terms.run, (-1, -1)):
            raise SecureAggregationError(
                f"round {terms.round}, attempt {terms.attempt}, is not later than the last; it is "
                "a replay"
            )
        self._forget()
        self.terms, self._last[terms.run] = terms, (terms.round, terms.attempt)
        self._box, self._mask, self._own = self.entropy(32), self.entropy(SEED), self.entropy(SEED)
        keys = self._public_keys(terms)
        self._next = Step.SHARES
        return sealed(
            Step.KEYS, terms, keys, sign(self.identity, terms.signed_keys(self.client, keys))
        )

    def share(self, message: object) -> bytes:
        """Take the cohort's keys and return, encrypted for each peer, its shares of the two
        secrets.

        Raises
        ------
        SecureAggregationError: a key that is not signed by its client, a key that occurs twice, or
        this client's own key changed.
        """
        terms, body = self._opened(message, Step.SHARES)
        clients, keys_of = terms.members(body, KEYS_SIZE)
        for client, keys in keys_of.items():
            public = keys[:-SIGNATURE]
            signature = keys[-SIGNATURE:]
            if not verify(self.register[client], signature, terms.signed_keys(client, public)):
                raise SecureAggregationError(f"the keys of client {client} are not signed by it")
        own = self._public_keys(terms)
        if keys_of.get(self.client, b"")[:-SIGNATURE] != own:
            raise SecureAggregationError(
                "this client's own keys are missing or changed in the list of the cohort's"
            )
        parts = [half for keys in keys_of.values() for half in (keys[:32], keys[32:64])]
        if len(set(parts)) != len(parts):
            raise SecureAggregationError("a key occurs twice in the list of the cohort's")
        self._keys = {client: keys[:-SIGNATURE] for client, keys in keys_of.items()}
        at = {client: i for i, client in enumerate(terms.cohort)}
        n = len(terms.cohort)
        shares = list(
            zip(
                split_seed(self._own, terms.threshold, n),
                split_seed(self._mask, terms.threshold, n),
                strict=True,
            )
        )
        self._shares = {self.client: b"".join(shares[at[self.client]])}
        envelopes = [
            seal_envelope(
                self._envelope_key(terms, peer, self.client, peer),
                b"".join(shares[at[peer]]),
                b"",
                self.entropy,
            )
            for peer in peers(clients, self.client)
        ]
        self._next = Step.MASKED
        return sealed(Step.SHARES, terms, *envelopes)

    def mask(self, message: object, vector: Words) -> bytes:
        """Take the peers' envelopes and return whose cannot be opened, and this client's encoded
        vector under its masks.

        A peer whose envelope cannot be opened counts as one that sent none: there is no mask with
        it, and this client signs no list of survivors that holds it.

        Parameters
        ----------
        vector: by the terms' encoding, [size + 1].

        Raises
        ------
        SecureAggregationError: an envelope of a client without keys, or fewer sound envelopes than
        the threshold.
        """
        terms, body = self._opened(message, Step.MASKED)
        if vector.shape != (terms.size + 1,) or vector.dtype != terms.encoding.dtype:
            raise SecureAggregationError(
                f"got a vector {vector.dtype}{list(vector.shape)}; expected {terms.size + 1} "
                "numbers"
            )
        clients, envelopes = terms.members(body, ENVELOPE, self.client)
        if self.client not in clients or not set(clients) <= set(self._keys):
            raise SecureAggregationError(
                "the list of shares lacks this client, or holds one that sent no keys"
            )
        shares = {self.client: self._shares[self.client]}
        for peer, envelope in envelopes.items():
            shares[peer] = (
                open_envelope(self._envelope_key(terms, peer, peer, self.client), envelope, b"")
                or b""
            )
        spoilt = [peer for peer, share in shares.items() if not share]
        if len(shares) - len(spoilt) < terms.threshold:
            raise SecureAggregationError(
                f"client {self.client} cannot open the envelopes of clients "
                f"{', '.join(map(str, spoilt))}, and without them {len(shares) - len(spoilt)} are "
                f"left, fewer than {terms.threshold}; nothing is sent"
            )
        self._shares = shares
        # Masks are added in place, and the vector is the caller's.
        total = vector.copy()
        add_stream(total, derive(self._own, b"own mask", terms.digest), 1)
        private = mask_key(self._mask, terms, self.client)
        for peer in peers([peer for peer, share in shares.items() if share], self.client):
            key = pair_key(
                private=private,
                public=self._keys[peer][32:],
                terms=terms,
                client=self.client,
                peer=peer,
            )
            add_stream(total, key, 1 if self.client < peer else -1)
        self._next = Step.CONSISTENCY if terms.options.active else Step.UNMASK
        return sealed(Step.MASKED, terms, terms.bits(spoilt), total.tobytes())

    def confirm(self, message: object) -> bytes:
        """Take the list of survivors and return its signature.

        Raises
        ------
        SecureAggregationError: too few, one that sent no shares, or this client is missing.
        """
        terms, body = self._opened(message, Step.CONSISTENCY)
        self._take_survivors(terms, body)
        self._next = Step.UNMASK
        return sealed(Step.CONSISTENCY, terms, sign(self.identity, terms.signed_survivors(body)))

    def unmask(self, message: object) -> bytes:
        """Return one share for each client that sent shares: of its own mask where it survived,
        else of its mask key.

        All secrets of the round are forgotten.

        Raises
        ------
        SecureAggregationError: fewer signatures of the same survivors than the threshold.
        """
        terms, body = self._opened(message, Step.UNMASK)
        if terms.options.active:
            _, signatures = terms.members(body, SIGNATURE)
            for client, signature in signatures.items():
                if not verify(
                    self.register[client], signature, terms.signed_survivors(self._survivors)
                ):
                    raise SecureAggregationError(
                        f"client {client} has not signed the list of survivors that this client "
                        "signed"
                    )
        else:
            self._take_survivors(terms, body)
        survivors, _ = terms.members(self._survivors)
        parts = [
            (share[:SEED] if client in survivors else share[SEED:]) or bytes(SEED)
            for client, share in sorted(self._shares.items())
        ]
        self._forget()
        return sealed(Step.UNMASK, terms, *parts)

    def _take_survivors(self, terms: SecureTerms, body: bytes) -> None:
        survivors, _ = terms.members(body)
        if self.client not in survivors or not all(
            self._shares.get(client) for client in survivors
        ):
            raise SecureAggregationError(
                "the list of survivors lacks this client, or holds one that sent no shares that it "
                "could open"
            )
        self._survivors = body

    # ------------------------------------------------------------------------------------- keys

    def _opened(self, message: object, step: Step) -> tuple[SecureTerms, bytes]:
        if self.terms is None or self._next is None:
            raise SecureAggregationError(
                f"client {self.client} is in no round: it has not begun, or is over and its "
                "secrets forgotten"
            )
        body = opened(message, step, self.terms)
        if step != self._next:
            raise SecureAggregationError(
                f"got a message of step {step.name.lower()}; expected {self._next.name.lower()}: "
                "each step once"
            )
        return self.terms, body

    def _public_keys(self, terms: SecureTerms) -> bytes:
        return public_key(self._box) + public_key(mask_key(self._mask, terms, self.client))

    def _envelope_key(self, terms: SecureTerms, peer: int, sender: int, receiver: int) -> bytes:
        return agree(self._box, self._keys[peer][:32], b"envelope", terms.pair(sender, receiver))

    # ------------------------------------------------------------------------ between two processes

    def save(self) -> bytes:
        """Return the state between two messages; it holds the secrets of a round under way."""
        state = {
            "terms": None if self.terms is None else self.terms.body,
            "next": self._next and int(self._next),
            "box": self._box,
            "mask": self._mask,
            "own": self._own,
            "keys": self._keys,
            "shares": self._shares,
            "survivors": self._survivors,
            "last": [[run.hex(), *numbers] for run, numbers in self._last.items()],
        }
        return codec.encode(state)

    def restore(self, saved: bytes) -> None:
        """Take over what :meth:`save` returned.

        Raises
        ------
        SecureAggregationError: bytes that are no state.
        """
        try:
            state: dict[str, Any] = codec.decode(saved)
        except CodecError as error:
            raise SecureAggregationError(
                f"the state of client {self.client} cannot be read: {error}"
            ) from None
        self.terms = (
            None if state["terms"] is None else SecureTerms.read(state["terms"], self.options)
        )
        self._next = None if state["next"] is None else Step(state["next"])
        self._box = state["box"]
        self._mask = state["mask"]
        self._own = state["own"]
        self._keys = dict(state["keys"])
        self._shares = dict(state["shares"])
        self._survivors = state["survivors"]
        self._last = {
            bytes.fromhex(run): (round_, attempt) for run, round_, attempt in state["last"]
        }


def mask_key(seed: bytes, terms: SecureTerms, client: int) -> bytes:
    """Return the X25519 private key that a client's shared seed stands for."""
    return derive(seed, b"mask key", terms.pair(client))


def pair_key(private: bytes, public: bytes, terms: SecureTerms, client: int, peer: int) -> bytes:
    """Return the key of the mask that two clients share; the same from both sides."""
    return agree(private, public, b"pair mask", terms.pair(min(client, peer), max(client, peer)))
