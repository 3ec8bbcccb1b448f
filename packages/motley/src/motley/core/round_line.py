"""The line about one round that a deployment prints.

>>> totals = {"total_bits": 98.4e6, "time_s": 41.2}
>>> round_line(3, 6, asked=[1, 0], accepted=2, score="accuracy 0.810", **totals)
'round 3 of 6, asked 0 and 1, 2 accepted, accuracy 0.810, 12.3 MB, 41 s'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

NO_NAMES: Mapping[int, str] = MappingProxyType({})
"""Clients without names."""
MANY = 8
"""Up to so many clients of a round are named."""


def round_of(step: int, rounds: int | None) -> str:
    """Return ``round 40 of 100``; ``rounds``: None where the end is not known."""
    return f"round {step}" + ("" if rounds is None else f" of {rounds}")


def asked_in_words(ids: Sequence[int], names: Mapping[int, str] = NO_NAMES) -> str:
    """Return which clients were sent out, in words: each client of a few, by name where it has one,
    the number of many."""
    if not ids:
        return "asked nobody"
    if len(ids) > MANY:
        return f"asked {len(ids)} clients"
    *earlier, last = (names.get(client, str(client)) for client in sorted(ids))
    return "asked " + " and ".join(filter(None, (", ".join(earlier), last)))


def round_line(
    step: int,
    rounds: int | None,
    *,
    asked: Sequence[int],
    accepted: int,
    score: str,
    total_bits: float,
    time_s: float,
    names: Mapping[int, str] = NO_NAMES,
) -> str:
    """Return the line about a round that is over.

    Parameters
    ----------
    step: number of the round, of ``rounds``.
    asked: clients sent out.
    accepted: how many of their updates were used.
    score: the newest metric with its name; empty: none.
    total_bits, time_s: all traffic, and the seconds of wall time, since the beginning.
    names: of clients, by id.
    """
    spent = f"{total_bits / 8e6:.3g} MB, {time_s:.0f} s"
    words = (
        round_of(step, rounds),
        asked_in_words(asked, names),
        f"{accepted} accepted",
        score,
        spent,
    )
    return ", ".join(filter(None, words))
