"""Draws of cohorts that every client can recompute, by commitments and a hash chain.

    freeze     the server publishes the roster, keys, cohort size, rounds, the rule and the numbers
               by which it draws (:mod:`motley_flower.secure.drawable`), and s_0, the end of a chain
               s_(t-1) = SHA-256(s_t)
    commit     every client commits to a nonce, by its signed hash; the server publishes the list
               of all commitments
    sign       every client signs this list, and no other; the server publishes the signatures
    open       a client that sees signatures of more than two thirds of the register reveals its
               nonce; the server publishes all
    round t    the server reveals s_t with the cohort, which must be the draw keyed by
               SHA-256(s_t, nonces, t)

The chain is fixed before any commitment, and whose nonces count before any of them is known: a
client takes part only if every nonce of the signed list is there, each fits its commitment, and
each round is asked once, in rising order. If one is withheld, the agreement has failed. If two
different lists were both signed by q = floor(2n/3) + 1 clients of a register of n, at least 2q - n
> n/3 clients would have signed both, and an honest client signs one. What is left to a server that
knows all draws is to break off and begin anew, to leave out rounds, and to say that clients dropped
out: ``docs/deploy/verified-draws.md#what-a-malicious-server-can-still-do``.

The draw is that of a selector over the whole roster, whoever is connected. Whoever can verify a
draw knows the cohort.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from motley.core import codec
from motley.core.errors import (
    CodecError,
    ConfigError,
    RoundAbandonedError,
    SecureAggregationError,
    StoreError,
)
from motley.core.saved_state import restore, save
from motley_flower.secure.drawable import DrawRule, DrawTable
from motley_flower.secure.encoding import Entropy
from motley_flower.secure.keyfiles import strict_json
from motley_flower.secure.primitives import sign, verify
from motley_flower.secure.terms import LONGEST_CHAIN, SIGNATURE, bitmap, listed

DRAWS = {"freeze": 11, "committed": 12, "signed": 13, "opened": 14}
"""The first byte of each message of the server."""
LINK = 32
"""Bytes of a link of the chain, of a nonce and of a commitment."""
VERSION = 3
_SIZES = struct.Struct("<IIII")
_FIXED = _SIZES.size + 2 * LINK
"""Bytes of what is frozen before the table: sizes, the end of the chain, a hash of the register."""


def _hash(*parts: bytes) -> bytes:
    return hashlib.sha256(
        b"motley draws" + b"".join(struct.pack("<I", len(part)) + part for part in parts)
    ).digest()


def _frozen(
    register: Mapping[int, bytes], cohort: int, rounds: int, end: bytes, table: DrawTable
) -> bytes:
    """Return what is frozen before the first round, as bytes."""
    keys = b"".join(struct.pack("<I", client) + register[client] for client in sorted(register))
    return (
        _SIZES.pack(VERSION, len(register), cohort, rounds)
        + end
        + _hash(keys)
        + table.body(sorted(register))
    )


def draw(
    link: bytes, nonces: Mapping[int, bytes], cohort: int, round: int, table: DrawTable
) -> tuple[int, ...]:
    """Return the cohort of a round, rising.

    Parameters
    ----------
    link: s_t.
    nonces: client -> its nonce; these clients are the roster.
    cohort: clients a round.
    round: t.
    table: rule and numbers of the draw.
    """
    nonce_list = b"".join(struct.pack("<I", client) + nonces[client] for client in sorted(nonces))
    seed = int.from_bytes(_hash(link, nonce_list, struct.pack("<Q", round))[:15], "little")
    chosen = table.selector(seed, sorted(nonces)).select(round, sorted(nonces), cohort)
    return tuple(sorted(chosen.ids.tolist()))


class DrawServer:
    """The server's side: four steps before the first round, each with the answers to the last, then
    one draw a round.

    Parameters
    ----------
    register: client -> Ed25519 public key: the roster.
    cohort: clients a round.
    rounds: length of the chain.
    table: rule and numbers of the draws.
    entropy: of the chain.

    Raises
    ------
    ConfigError: a chain of no rounds or of too many.
    """

    def __init__(
        self,
        register: Mapping[int, bytes],
        cohort: int,
        rounds: int,
        table: DrawTable | None = None,
        entropy: Entropy = os.urandom,
    ) -> None:
        if not 1 <= rounds <= LONGEST_CHAIN:
            raise ConfigError(
                f"got draws for {rounds} rounds; expected 1 to {LONGEST_CHAIN}", "draws"
            )
        self.register = dict(register)
        self.cohort = cohort
        self.roster = tuple(sorted(register))
        self._chain = [entropy(LINK)]
        for _ in range(rounds):
            self._chain.append(_hash(self._chain[-1]))
        self._chain.reverse()  # s_0, s_1, ...
        self.table = table or DrawTable()
        self.frozen = _frozen(
            register=self.register,
            cohort=cohort,
            rounds=rounds,
            end=self._chain[0],
            table=self.table,
        )
        self.commitments: dict[int, bytes] = {}
        self.nonces: dict[int, bytes] = {}
        self.signatures: dict[int, bytes] = {}
        self.rounds: list[dict[str, Any]] = []
        self.lost = 0  # the round that was next when this server was saved; 0: it was not

    def save(self) -> bytes:
        """Return the state between two rounds; it holds the links that are not revealed yet."""
        return codec.encode(
            {
                "seed": self._chain[-1],
                "frozen": self.frozen,
                "commitments": self.commitments,
                "nonces": self.nonces,
                "signatures": self.signatures,
                "rounds": self.rounds,
            }
        )

    @classmethod
    def restored(cls, saved: bytes, register: Mapping[int, bytes]) -> DrawServer:
        """Return the server that :meth:`save` stored, which goes on with its chain.

        Raises
        ------
        ConfigError: another register than the one that the clients agreed on.
        """
        state: dict[str, Any] = codec.decode(saved)
        frozen: bytes = state["frozen"]
        _, clients, cohort, rounds = _SIZES.unpack(frozen[: _SIZES.size])
        server = None
        if clients == len(register):
            table = DrawTable.read(frozen[_FIXED:], sorted(register))
            server = cls(
                register=register,
                cohort=cohort,
                rounds=rounds,
                table=table,
                entropy=lambda size: state["seed"],
            )
        if server is None or server.frozen != frozen:
            raise ConfigError(
                f"got a register of {len(register)} clients; expected the one that the clients "
                f"agreed on before the first round, of {clients}: start the server again with that "
                "register",
                "register",
            )
        server.commitments = dict(state["commitments"])
        server.nonces = dict(state["nonces"])
        server.signatures = dict(state["signatures"])
        server.rounds = list(state["rounds"])
        server.lost = server.rounds[-1]["round"] + 1 if server.rounds else 1
        return server

    def check(self, round: int) -> None:
        """Refuse to ask clients for the round that was next when the server was killed: some may
        have begun it, and a drawn round has one attempt.

        Raises
        ------
        RoundAbandonedError: it is that round.
        """
        if round == self.lost:
            raise RoundAbandonedError(
                f"the server was started again, and clients may have begun round {round}, of which "
                "there is one attempt; it is left out"
            )

    def agree(self, ask: Callable[[Mapping[int, bytes]], Mapping[int, object]]) -> None:
        """Let the clients agree on the draws: the four steps before the first round.

        Parameters
        ----------
        ask: sends one message to each of these clients, waits, and returns the answers by client.

        Raises
        ------
        ConfigError: too few of them answer.
        """
        try:
            signed = self.signed(ask(self.committed(ask(self.freeze()))))
            ask(self.opened(ask(signed)))
        except RoundAbandonedError as problem:
            raise ConfigError(
                f"the draws cannot be agreed on: {problem}; start the run again when all clients "
                "are there"
            ) from None

    def freeze(self) -> dict[int, bytes]:
        """Return what is frozen, for every client."""
        return dict.fromkeys(self.roster, bytes([DRAWS["freeze"]]) + self.frozen)

    def committed(self, answers: Mapping[int, object]) -> dict[int, bytes]:
        """Take the commitments and return the list of them."""
        bodies = self._sound(answers, self.roster, LINK + SIGNATURE)
        self.commitments = {
            k: body
            for k, body in bodies.items()
            if verify(self.register[k], body[LINK:], _said_commitment(self.frozen, k, body[:LINK]))
        }
        if len(self.commitments) < max(_needed(self.roster), self.cohort):
            raise RoundAbandonedError(
                f"{len(self.commitments)} of {len(self.roster)} clients are left for the draws; "
                "too few"
            )
        return self._told("committed", self.commitments)

    def signed(self, answers: Mapping[int, object]) -> dict[int, bytes]:
        """Take the signatures of the list of commitments and return them."""
        statement = _said_list(self.frozen, self.commitments)
        bodies = self._sound(answers, self.commitments, SIGNATURE)
        self.signatures = {
            k: signature
            for k, signature in bodies.items()
            if verify(self.register[k], signature, statement)
        }
        if len(self.signatures) < _needed(self.roster):
            raise RoundAbandonedError(
                f"{len(self.signatures)} of {len(self.roster)} clients signed the list of "
                "commitments: too few for a draw"
            )
        return self._told("signed", self.signatures)

    def opened(self, answers: Mapping[int, object]) -> dict[int, bytes]:
        """Take the nonces and return the list of them: all that were committed to."""
        bodies = self._sound(answers, self.commitments, LINK)
        self.nonces = {
            k: nonce for k, nonce in bodies.items() if _hash(nonce) == self.commitments[k][:LINK]
        }
        missing = sorted(self.commitments.keys() - self.nonces.keys())
        if missing:
            raise RoundAbandonedError(
                f"clients {', '.join(map(str, missing))} committed to a nonce and did not reveal "
                "it, and none may be left out"
            )
        return self._told("opened", self.nonces)

    def draw(self, round: int) -> tuple[tuple[int, ...], bytes]:
        """Return the cohort of a round, and the link s_t that proves it.

        Raises
        ------
        ConfigError: a round beyond the chain.
        """
        if not 1 <= round < len(self._chain):
            raise ConfigError(
                f"round {round} has no draw; the chain was made for {len(self._chain) - 1} rounds",
                "draws",
            )
        link = self._chain[round]
        cohort = draw(
            link=link, nonces=self.nonces, cohort=self.cohort, round=round, table=self.table
        )
        self.rounds.append({"round": round, "link": link.hex(), "cohort": list(cohort)})
        return cohort, link

    def transcript(self) -> str:
        """Return all that was published, as JSON, for :func:`verify_draws`."""
        tables = {
            "commitments": self.commitments,
            "nonces": self.nonces,
            "signatures": self.signatures,
        }
        published = {
            name: {str(k): value.hex() for k, value in table.items()}
            for name, table in tables.items()
        }
        size = {"cohort": self.cohort, "length": len(self._chain) - 1, "end": self._chain[0].hex()}
        table = {"rule": self.table.rule, "table": self.table.body(self.roster).hex()}
        return json.dumps({"version": VERSION, **table, **size, **published, "rounds": self.rounds})

    def _sound(
        self, answers: Mapping[int, object], clients: Collection[int], size: int
    ) -> dict[int, bytes]:
        return {
            k: body
            for k in sorted(clients)
            if isinstance(body := answers.get(k), bytes) and len(body) == size
        }

    def _told(self, step: str, bodies: Mapping[int, bytes]) -> dict[int, bytes]:
        message = bytes([DRAWS[step]]) + bitmap(self.roster, bodies) + b"".join(bodies.values())
        return dict.fromkeys(self.commitments, message)


@dataclass
class _DrawState:
    """What a client keeps of its draws from message to message: the step that comes next, what is
    frozen, its nonce, the commitments and nonces of all; the last round that it was asked in."""

    next: str = "freeze"
    frozen: bytes = b""
    nonce: bytes = b""
    commitments: dict[int, bytes] = field(default_factory=dict)
    nonces: dict[int, bytes] = field(default_factory=dict)
    last: int = 0


class DrawClient:
    """A client's side: it takes each message once, in order, and then checks the draw of every
    round it is asked in.

    Parameters
    ----------
    client, identity, register: as of :class:`~motley_flower.secure.masking_client.SecureClient`.
    rule: by which it lets itself be drawn.
    rounds: of the chain, at most: a server that knows all draws may leave out rounds, and has the
    more choice the longer the chain is.
    cohort: clients of every round; None: as many as the server says.
    """

    def __init__(
        self,
        client: int,
        identity: bytes,
        register: Mapping[int, bytes],
        entropy: Entropy = os.urandom,
        rule: DrawRule = "uniform",
        rounds: int = LONGEST_CHAIN,
        cohort: int | None = None,
    ) -> None:
        self.rule = rule
        self.rounds = rounds
        self.cohort = cohort
        self._table = DrawTable(rule)
        self.client = client
        self.identity = identity
        self.register = dict(register)
        self.entropy = entropy
        self.roster = tuple(sorted(register))
        self._state = _DrawState()

    def answer(self, message: bytes) -> bytes:
        """Return the answer to a message of the server.

        Raises
        ------
        SecureAggregationError: a message out of turn, or one that does not follow from those
        before.
        """
        step = self._state.next
        if not message or step not in DRAWS or message[0] != DRAWS[step]:
            raise SecureAggregationError(
                f"got a message of the draws out of turn; expected {step}: each step once"
            )
        steps = {
            "freeze": self._commit,
            "committed": self._sign,
            "signed": self._open,
            "opened": self._end,
        }
        return steps[step](message[1:])

    def _commit(self, body: bytes) -> bytes:
        _, _, cohort, rounds = _SIZES.unpack(body[: _SIZES.size].ljust(_SIZES.size, b"\0"))
        table = DrawTable.read(body[_FIXED:], self.roster)
        end = body[_SIZES.size : _SIZES.size + LINK]
        if (
            body
            != _frozen(register=self.register, cohort=cohort, rounds=rounds, end=end, table=table)
            or not 1 <= rounds <= self.rounds
        ):
            raise SecureAggregationError(
                "what the server freezes is not this client's register and version, or more rounds "
                "than SecureOptions(draws=...)"
            )
        if cohort != (self.cohort or cohort):
            raise SecureAggregationError(
                f"the server draws cohorts of {cohort} clients, and this client expects "
                f"{self.cohort}"
            )
        if table.rule != self.rule:
            raise SecureAggregationError(
                f'the server draws by "{table.rule}", and this client expects '
                f'draw_rule="{self.rule}"'
            )
        self._table = table
        self._state.frozen, self._state.nonce, self._state.next = (
            body,
            self.entropy(LINK),
            "committed",
        )
        commitment = _hash(self._state.nonce)
        return commitment + sign(self.identity, _said_commitment(body, self.client, commitment))

    def _sign(self, body: bytes) -> bytes:
        commitments = listed(self.roster, body, LINK + SIGNATURE)
        _check_commitments(self.register, self._state.frozen, commitments)
        if commitments.get(self.client, b"")[:LINK] != _hash(self._state.nonce):
            raise SecureAggregationError("this client's own commitment is missing or changed")
        self._state.commitments = commitments
        self._state.next = "signed"
        return sign(self.identity, _said_list(self._state.frozen, commitments))

    def _open(self, body: bytes) -> bytes:
        signatures = listed(self.roster, body, SIGNATURE)
        _check_signatures(self.register, self._state.frozen, self._state.commitments, signatures)
        self._state.next = "opened"
        return self._state.nonce

    def _end(self, body: bytes) -> bytes:
        nonces = listed(self.roster, body, LINK)
        _check_nonces(self._state.commitments, nonces)
        self._state.nonces = nonces
        self._state.commitments = {}
        self._state.next = "the rounds"
        return b"ready"

    def check(self, round: int, cohort: Sequence[int], link: bytes) -> None:
        """Refuse a cohort that is not the draw of its round, and a second attempt of a round.

        Raises
        ------
        SecureAggregationError: one of these.
        """
        if self._state.next != "the rounds":
            raise SecureAggregationError(
                "got a cohort before its draws were agreed on, or after this client has lost what "
                "it agreed on"
            )
        _, _, size, rounds = _SIZES.unpack(self._state.frozen[: _SIZES.size])
        _check_link(link, round, rounds, self._state.frozen[_SIZES.size : _SIZES.size + LINK])
        if tuple(cohort) != draw(
            link=link, nonces=self._state.nonces, cohort=size, round=round, table=self._table
        ):
            raise SecureAggregationError(
                f"the cohort of round {round} is not the one that was drawn"
            )
        if round <= self._state.last:
            raise SecureAggregationError(
                f"got round {round} after round {self._state.last}; a drawn round is asked once, "
                "in rising order: go on with a later one"
            )
        self._state.last = round

    def check_samples(self, samples: int) -> None:
        """Refuse draws by another number of samples than this client has.

        Raises
        ------
        SecureAggregationError: the frozen number is another.
        """
        frozen = self._table.numbers.get(self.client, samples)
        if self.rule == "weighted" and frozen != samples:
            raise SecureAggregationError(
                f"client {self.client} has other samples than the {frozen:.0f} by which the "
                "cohorts are drawn"
            )

    def save(self) -> bytes:
        """Return the state between two messages."""
        return codec.encode(save(self._state))

    def restore(self, saved: bytes) -> None:
        """Take over what :meth:`save` returned; raises SecureAggregationError for bytes that are no
        state."""
        try:
            restore(self._state, codec.decode(saved))
        except (CodecError, StoreError) as error:
            raise SecureAggregationError(
                f"the state of client {self.client}'s draws cannot be read: {error}"
            ) from None
        frozen = self._state.frozen
        self._table = (
            DrawTable.read(frozen[_FIXED:], self.roster) if frozen else DrawTable(self.rule)
        )


def verify_draws(transcript: str, register: Mapping[int, bytes]) -> int:
    """Recompute a run's draws from what was published; return how many rounds were verified.

    Parameters
    ----------
    transcript: of :meth:`DrawServer.transcript`.
    register: client -> public key, known from elsewhere.

    Raises
    ------
    SecureAggregationError: the first thing that does not follow, with its round or client.
    """
    try:
        content = strict_json(transcript)
        tables = {
            name: {int(k): bytes.fromhex(v) for k, v in content[name].items()}
            for name in ("commitments", "nonces", "signatures")
        }
        table = DrawTable.read(bytes.fromhex(content["table"]), sorted(register))
        frozen = _frozen(
            register=register,
            cohort=content["cohort"],
            rounds=content["length"],
            end=bytes.fromhex(content["end"]),
            table=table,
        )
        rounds = [
            (int(row["round"]), bytes.fromhex(row["link"]), tuple(row["cohort"]))
            for row in content["rounds"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError, struct.error):
        raise SecureAggregationError("got a transcript that cannot be read") from None
    commitments, nonces, signatures = tables.values()
    _check_commitments(register, frozen, commitments)
    _check_signatures(register, frozen, commitments, signatures)
    _check_nonces(commitments, nonces)
    last = 0
    for round_, link, cohort in rounds:
        if round_ <= last:
            raise SecureAggregationError(
                f"round {round_} comes after round {last}; a drawn round is asked once, in rising "
                "order"
            )
        last = round_
        _check_link(link, round_, content["length"], bytes.fromhex(content["end"]))
        if cohort != draw(
            link=link, nonces=nonces, cohort=content["cohort"], round=round_, table=table
        ):
            raise SecureAggregationError(
                f"the cohort of round {round_} is not the one that was drawn"
            )
    return len(rounds)


def _check_commitments(
    register: Mapping[int, bytes], frozen: bytes, commitments: Mapping[int, bytes]
) -> None:
    """Refuse a list of commitments that are not signed by their clients, or of too few of the
    register."""
    for client, signed in commitments.items():
        statement = _said_commitment(frozen, client, signed[:LINK])
        if client not in register or not verify(register[client], signed[LINK:], statement):
            raise SecureAggregationError(f"the commitment of client {client} is not signed by it")
    _enough(register, commitments, "commitments")


def _check_signatures(
    register: Mapping[int, bytes],
    frozen: bytes,
    commitments: Mapping[int, bytes],
    signatures: Mapping[int, bytes],
) -> None:
    """Refuse signatures of another list of commitments, or of too few of the register."""
    statement = _said_list(frozen, commitments)
    for client, signature in signatures.items():
        if client not in commitments or not verify(register[client], signature, statement):
            raise SecureAggregationError(f"client {client} has not signed this list of commitments")
    _enough(register, signatures, "signatures of the list of commitments")


def _check_nonces(commitments: Mapping[int, bytes], nonces: Mapping[int, bytes]) -> None:
    """Refuse nonces that are not exactly those that were committed to."""
    for client in sorted(commitments.keys() | nonces.keys()):
        if client not in nonces:
            raise SecureAggregationError(
                f"the nonce of client {client}, which committed to one, is left out"
            )
        if commitments.get(client, b"")[:LINK] != _hash(nonces[client]):
            raise SecureAggregationError(
                f"the nonce of client {client} is not the one that it committed to"
            )


def _enough(register: Mapping[int, bytes], clients: Collection[int], kind: str) -> None:
    if len(clients) < _needed(register):
        raise SecureAggregationError(
            f"got {len(clients)} {kind} of {len(register)} clients; expected {_needed(register)}"
        )


def _check_link(link: bytes, round: int, rounds: int, end: bytes) -> None:
    digest = link
    for _ in range(round if 1 <= round <= rounds else 0):
        digest = _hash(digest)
    if not 1 <= round <= rounds or digest != end:
        raise SecureAggregationError(
            f"the link of round {round} is not of the chain that the server committed to"
        )


def _needed(clients: Collection[int]) -> int:
    """Return the least number of more than two thirds of these clients."""
    return 2 * len(clients) // 3 + 1


def _said_commitment(frozen: bytes, client: int, commitment: bytes) -> bytes:
    return b"commitment" + _hash(frozen, struct.pack("<I", client), commitment)


def _said_list(frozen: bytes, commitments: Mapping[int, bytes]) -> bytes:
    return b"list" + _hash(
        frozen, *(struct.pack("<I", k) + commitments[k] for k in sorted(commitments))
    )
