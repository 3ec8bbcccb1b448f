"""Refuse a client's clock that is wrong, before its SuperNode is started:
``python -m motley_flower.operator.clocks SERVER PORT CA.CRT``.

Flower's SuperLink refuses each request whose signature is from the future or too old, and the
SuperNode says of that only that it is not authenticated.

>>> from datetime import UTC, datetime
>>> now = datetime(2026, 11, 28, 12, 0, 30, tzinfo=UTC)
>>> ahead_s("Sat, 28 Nov 2026 12:00:00 GMT", now)
30.0
>>> clock_problem(30.0, "fl.example.org")[:66]
"this machine's clock is 30 s ahead of fl.example.org's, and Flower"
>>> clock_problem(-2.0, "fl.example.org")
''
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from motley_flower.operator.calls import Address, call

MOST_APART_S = 4.0
"""Seconds that the clocks of two machines may differ: Flower refuses a signature that is 5 s from
the future, or 305 s old."""


def ahead_s(date: str, now: datetime) -> float:
    """Return the seconds by which a clock is ahead of a server's.

    Parameters
    ----------
    date: the server's, as HTTP writes it.
    now: of the clock.

    Raises
    ------
    ValueError: no date.
    """
    try:
        return (now - parsedate_to_datetime(date)).total_seconds()
    except TypeError:
        raise ValueError(f"got {date!r:.80}; expected a date") from None


def clock_problem(ahead: float, server: str) -> str:
    """Return why a clock that is ``ahead`` of a server's by so many seconds is refused; empty where
    it is not."""
    if abs(ahead) <= MOST_APART_S:
        return ""
    where = "ahead of" if ahead > 0 else "behind"
    return (
        f"this machine's clock is {abs(ahead):.0f} s {where} {server}'s, and Flower refuses "
        "signatures from another time; set it (NTP), and start again"
    )


def main(argv: Sequence[str]) -> str | None:
    """Return a sentence about a wrong clock, which ends the process with 1; None where it is right,
    or the server cannot be asked.

    Parameters
    ----------
    argv: the server's name, its port, and the file of its authority's certificate.
    """
    server, port, authority = argv
    answer = call(Address(server, int(port), Path(authority)), "/")
    if "certificate is not yet valid" in answer.why or "certificate has expired" in answer.why:
        return (
            f"this machine's clock says {datetime.now(UTC):%Y-%m-%d %H:%M} UTC, when the server's "
            f"certificate is not valid ({answer.why}); set the clock (NTP), or ask the operator"
        )
    try:
        return clock_problem(ahead_s(answer.date, datetime.now(UTC)), server) or None
    except ValueError:
        return None  # the SuperNode itself says what it cannot reach, and tries again


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
