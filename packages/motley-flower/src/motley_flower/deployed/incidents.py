"""What goes wrong between a server and its clients, one row per event, for the table ``incidents``
of the run.

>>> log = IncidentLog(lambda: 12.5)
>>> log.note(3, "lost", "no answer within 600 s", dispatch=7)
>>> rows = log.take()
>>> rows["client"], rows["event"], rows["time_s"], log.take()
([3], ['lost'], [12.5], {})
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

Event = Literal[
    "lost",
    "rejected",
    "answered late",
    "unanswered",
    "disconnected",
    "connected",
    "state lost",
    "refused",
    "changed",
    "waits",
    "set aside",
    "capped",
    "left out",
]
"""What happened to a client: its dispatch was given up; its upload cannot be used; its upload came
after the server's step; it did not answer a question, or not as it should; its node went away, or
came back; it began anew without what it had kept; a node is not it (client -1: no client at all),
has taken its place from another, or claims it while another has it; it is asked no more, because
its uploads would have ruined steps; what it says of its number of samples counts in part; a metric
or record that most others do not send is left out."""

LONGEST = 300
"""Characters of a reason that are kept."""


class _Incident(NamedTuple):
    time_s: float
    at: str
    client: int
    event: Event
    dispatch: int | None
    reason: str


def in_a_line(reason: object) -> str:
    """Return a reason, in which a client's own words may stand, in one line of printable signs, at
    most :data:`LONGEST`: as it is logged, raised and written."""
    return "".join(letter if letter.isprintable() else " " for letter in str(reason)[:LONGEST])


class IncidentLog:
    """Collects incidents until the server's next step writes them.

    Parameters
    ----------
    now_s: returns the seconds that the deployment has run.
    """

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._incidents: list[_Incident] = []

    def note(self, client: int, event: Event, reason: str, dispatch: int | None = None) -> None:
        """Add what happened to a client now, and why in words, which may be the client's own: they
        are kept short and printable."""
        at = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        self._incidents.append(
            _Incident(
                time_s=self._now_s(),
                at=at,
                client=int(client),
                event=event,
                dispatch=dispatch,
                reason=in_a_line(reason),
            )
        )

    def take(self) -> dict[str, Any]:
        """Return the incidents since the last call as columns, and forget them; empty where there
        were none."""
        taken = self._incidents
        self._incidents = []
        if taken:
            return {
                name: [getattr(incident, name) for incident in taken] for name in _Incident._fields
            }
        return {}
