"""The table of which clients took part in which round, and of all traffic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from motley.core.server_signals import Value


@dataclass(frozen=True)
class ParticipationRow:
    """One client in one round.

    Parameters
    ----------
    outcome: ``"accepted"``, ``"dropped"`` or ``"rejected"``.
    seconds: from sending to arrival; NaN for a dropped client, also where its node said that it was
    lost.
    bits_down, bits_up: sizes of the message and the reply.
    signals: what the selector observes.
    reason: of a loss or rejection.
    """

    round: int
    client: int
    outcome: str
    seconds: float
    bits_down: float
    bits_up: float
    signals: Mapping[str, Value] = field(default_factory=dict)
    reason: str = ""


@dataclass(frozen=True)
class ExchangeRow:
    """A question to several clients beside training, in one round: a probe or a federated
    evaluation.

    Parameters
    ----------
    purpose: ``"probe"`` or ``"evaluate"``.
    asked, answered: clients.
    seconds: until the last answer, or the limit.
    bits_down, bits_up: sizes of all messages and of all answers.
    """

    round: int
    purpose: str
    asked: int
    answered: int
    seconds: float
    bits_down: float
    bits_up: float


class _Run(Protocol):
    """What a table of a whole run is made of."""

    @property
    def rows(self) -> list[ParticipationRow]:
        """One row for each client asked to train."""

    @property
    def exchanges(self) -> list[ExchangeRow]:
        """Probes and federated evaluations."""

    @property
    def traffic(self) -> dict[str, float]:
        """Bits by purpose and direction."""

    @property
    def names(self) -> dict[int, str]:
        """The clients' names by id, where a file of clients gives them."""


_CLIENT = len("client")
_DONE = {"probe": "probed", "evaluate": "evaluated"}


def participation(run: Iterable[ParticipationRow] | _Run) -> str:
    """Return a table to print: outcome, loss, seconds from sending to arrival, kilobytes down and
    up, and the reason of a loss.

    Parameters
    ----------
    run: ``strategy.motley``, whose table also has a line for every probe and federated evaluation,
    and the traffic of each purpose at the end; or rows alone.

    >>> there = ParticipationRow(1, 0, "accepted", 2.5, 8000.0, 8000.0, {"loss": 0.7})
    >>> lost = ParticipationRow(1, 2, "dropped", math.nan, 8000.0, 0.0)
    >>> print(participation([there, lost]))
    round  client  outcome           loss  seconds  kB down    kB up
        1       0  accepted        0.7000      2.5      1.0      1.0
        1       2  dropped              -        -      1.0      0.0
    """
    names = {} if isinstance(run, Iterable) else run.names
    width = max(_CLIENT, *map(len, names.values())) if names else _CLIENT
    lines = [f"round  {'client':>{width}}  outcome           loss  seconds  kB down    kB up"]
    if isinstance(run, Iterable):
        return "\n".join(lines + [_row(row, names, width) for row in run])
    each = [(row.round, 1, _row(row, names, width)) for row in run.rows]
    each += [
        (row.round, 0 if row.purpose == "probe" else 2, _exchange(row, width))
        for row in run.exchanges
    ]
    lines += [line for *_, line in sorted(each, key=lambda entry: entry[:2])]
    return "\n".join(lines + _totals(run.traffic, width))


def _row(row: ParticipationRow, names: Mapping[int, str], width: int) -> str:
    value = row.signals.get("loss", row.signals.get("loss_rms"))
    loss = "-" if value is None or np.ndim(value) else f"{float(value):.4f}"
    reason = f"  {' '.join(row.reason.split())[:60]}" if row.reason else ""
    client = names.get(row.client, row.client)
    return (
        _line(
            row.round,
            client,
            label=row.outcome,
            loss=loss,
            seconds=row.seconds,
            bits_down=row.bits_down,
            bits_up=row.bits_up,
            width=width,
        )
        + reason
    )


def _exchange(row: ExchangeRow, width: int) -> str:
    done = f"{_DONE[row.purpose]} {row.answered}/{row.asked}"
    return _line(
        row.round,
        client="-",
        label=done,
        loss="-",
        seconds=row.seconds,
        bits_down=row.bits_down,
        bits_up=row.bits_up,
        width=width,
    )


def _line(
    round: object,
    client: object,
    label: str,
    loss: str,
    seconds: float,
    bits_down: float,
    bits_up: float,
    width: int,
) -> str:
    elapsed = "-" if math.isnan(seconds) else f"{seconds:.1f}"
    return (
        f"{round:>5}  {client:>{width}}  "
        f"{label:<14}{loss:>8}{elapsed:>9}{bits_down / 8000:>9.1f}{bits_up / 8000:>9.1f}"
    )


def _totals(traffic: Mapping[str, float], width: int) -> list[str]:
    """Return one line for each purpose that had traffic, with its share of all, and one for the
    sum."""
    down, up = (
        {name.removesuffix(end): bits for name, bits in traffic.items() if name.endswith(end)}
        for end in _ENDS
    )
    total_bits = sum(traffic.values())
    lines = [
        _line(
            round="total",
            client="-",
            label=f"{name} {(down[name] + up[name]) / total_bits:.0%}",
            loss="-",
            seconds=math.nan,
            bits_down=down[name],
            bits_up=up[name],
            width=width,
        )
        for name in down
        if down[name] + up[name]
    ]
    return [
        *lines,
        _line(
            round="total",
            client="-",
            label="all",
            loss="-",
            seconds=math.nan,
            bits_down=sum(down.values()),
            bits_up=sum(up.values()),
            width=width,
        ),
    ]


_ENDS = ("_bits_down", "_bits_up")
