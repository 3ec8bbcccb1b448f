"""The traffic ledger: bits by client, direction, purpose and round. Append-only.

There are two accounts. The *wire* account counts everything that is sent, in both directions. The
*paper* account follows the papers: uplink only, updates only, 32 bits per sent value; its entries
come with the entries of updates (``paper_bits``).

What was sent is billed whether or not it was used: an upload that was rejected or came late in
full, one that was cut up to the cut. What never left a client is billed nowhere.

Totals are kept by kind and direction, single entries for the current round only, so memory does not
grow with rounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from torch import Tensor

from motley.core.arrays import Ids
from motley.core.errors import ContractError, suggest
from motley.core.saved_state import restore_fields

Kind = Literal["model", "probe", "upload", "late", "enrol", "recalibrate"]
Direction = Literal["down", "up"]

KINDS: tuple[Kind, ...] = ("model", "probe", "upload", "late", "enrol", "recalibrate")
"""The purposes of traffic: the model to a cohort, a probe (model down, numbers up), an update, an
update that comes after the server has stopped waiting for it, enrolment, recalibration."""

DIRECTIONS: tuple[Direction, ...] = ("down", "up")

VALUE_BITS = 32
"""Bits of one real number on the wire, whatever dtype a run computes in."""


def message_bits(message: Mapping[str, Tensor]) -> int:
    """Return the bits of a message of named tensors: 32 for each real number, integers and flags at
    their own width (counters: 64)."""
    return sum(
        value.numel() * (VALUE_BITS if value.is_floating_point() else 8 * value.element_size())
        for value in message.values()
    )


def paper_bits(message: Mapping[str, Tensor]) -> int:
    """Return the bits of a message as papers count: 32 per real number, nothing else. Pass the
    parts of the update only, without buffers."""
    return sum(
        value.numel() * VALUE_BITS for value in message.values() if value.is_floating_point()
    )


class _Post(NamedTuple):
    """One call of :meth:`Ledger.post`: bits of each client ``[n]``, and its paper bits in sum."""

    kind: Kind
    direction: Direction
    ids: Ids
    bits: Ids
    paper: int


@dataclass(eq=False)
class Ledger:
    """Two accounts of all traffic of a run.

    Example
    -------
    >>> ledger = Ledger()
    >>> ledger.post("model", "down", [3, 5], 1000, round=1)
    >>> ledger.post("upload", "up", [3, 5], [800, 400], round=1)
    >>> ledger.total_bits, ledger.total(direction="up"), ledger.paper_bits
    (3200, 1200, 1200)
    >>> ledger.of([5, 3], "up").tolist()
    [400, 800]
    """

    round: int = 0
    _totals: dict[tuple[Kind, Direction], int] = field(
        default_factory=lambda: {(kind, way): 0 for kind in KINDS for way in DIRECTIONS}
    )
    _paper: int = 0
    _tail: list[_Post] = field(default_factory=list)

    def post(
        self,
        kind: Kind,
        direction: Direction,
        ids: ArrayLike,
        bits: ArrayLike,
        round: int,
        paper_bits: ArrayLike | None = None,
    ) -> None:
        """Add an entry: the bits that each of these clients sent or received.

        Parameters
        ----------
        ids: ``[n]``.
        bits: ``[n]`` or one number for all; whole numbers, at least 0.
        round: never before the last one posted.
        paper_bits: what the papers would count, ``[n]`` or one number for all; by default the bits
        of an ``upload`` and nothing of anything else. Upward only.

        Raises
        ------
        ContractError: an unknown kind or direction, invalid bits, a round before the current one.
        """
        _check_word("kind", kind, KINDS)
        _check_word("direction", direction, DIRECTIONS)
        clients = np.atleast_1d(np.array(ids, np.int64))
        sent = _whole(bits, len(clients), "bits")
        if paper_bits is None:
            paper_bits = sent if (kind, direction) == ("upload", "up") else 0
        paper = int(_whole(paper_bits, len(clients), "paper_bits").sum())
        if paper and direction == "down":
            raise ContractError(
                "the papers' account counts uploads only; got paper_bits of a message that goes "
                "down"
            )
        self._turn_to(round)
        self._totals[kind, direction] += int(sent.sum())
        self._paper += paper
        self._tail.append(
            _Post(kind=kind, direction=direction, ids=clients, bits=sent, paper=paper)
        )

    @property
    def total_bits(self) -> int:
        """All bits since the start."""
        return self.total()

    @property
    def paper_bits(self) -> int:
        """The papers' account since the start, in bits."""
        return self._paper

    @property
    def round_paper_bits(self) -> int:
        """The papers' account of the current round."""
        return sum(post.paper for post in self._tail)

    def total(self, kind: Kind | None = None, direction: Direction | None = None) -> int:
        """Return the bits since the start, of one kind and direction or of all."""
        return sum(
            bits
            for (k, d), bits in self._totals.items()
            if kind in (None, k) and direction in (None, d)
        )

    def current(self, kind: Kind | None = None, direction: Direction | None = None) -> int:
        """Return the bits of the current round, of one kind and direction or of all."""
        posts = (
            p for p in self._tail if kind in (None, p.kind) and direction in (None, p.direction)
        )
        return sum(int(post.bits.sum()) for post in posts)

    def of(self, ids: ArrayLike, direction: Direction) -> Ids:
        """Return the bits of these clients in the current round, of all kinds, ``[n]``."""
        wanted = np.atleast_1d(np.asarray(ids, np.int64))
        order = np.argsort(wanted, kind="stable")
        out = np.zeros(len(wanted), np.int64)
        for post in self._tail:
            if post.direction == direction:
                at = np.minimum(
                    np.searchsorted(wanted, post.ids, sorter=order), max(len(wanted) - 1, 0)
                )
                matched = (
                    wanted[order[at]] == post.ids if len(wanted) else np.zeros(len(post.ids), bool)
                )
                np.add.at(out, order[at[matched]], post.bits[matched])
        return out

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take over what was saved; a ledger written before a kind was there has none of it."""
        restore_fields(self, saved)
        self._totals = {**Ledger()._totals, **self._totals}

    def _turn_to(self, round: int) -> None:
        if round < self.round:
            raise ContractError(
                f"a post of round {round} after one of round {self.round}; the ledger only grows"
            )
        if round > self.round:
            self.round = round
            self._tail = []


def _check_word(name: str, word: str, allowed: tuple[str, ...]) -> None:
    if word not in allowed:
        raise ContractError(
            f"got {name} {word!r}{suggest(word, allowed)}; expected one of: {', '.join(allowed)}"
        )


def _whole(value: ArrayLike, n: int, name: str) -> Ids:
    values = np.asarray(value)
    if values.ndim and values.shape != (n,):
        raise ContractError(
            f"got {name} of shape {list(values.shape)} for {n} clients; expected [{n}] or one "
            "number"
        )
    is_whole = values.dtype.kind in "iu" or (
        np.isfinite(values).all() and (values == np.floor(values)).all()
    )
    if not is_whole or (values < 0).any():
        raise ContractError(f"got {name} {values.tolist()}; expected whole numbers of at least 0")
    whole = values.astype(np.int64)
    return whole if whole.ndim else np.broadcast_to(whole, n)
