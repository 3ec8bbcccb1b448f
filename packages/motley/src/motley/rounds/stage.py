"""What cuts through every round: privacy, signals of uploads, staleness, refused steps, an audit.

A run has a list of stages in a fixed order, made once with the loop
(:class:`~motley.rounds.loop.RoundLoop`) from what the experiment asks for; the loop calls all of
them at the places below. A place that a stage does not override changes nothing.

    available   choose      which of the available clients may be asked
    weights     dispatch    raw weights of the updates of a cohort
    reports     learn       what the selector hears of clients; tables show all
    upload      learn       one upload before it is added
    total       learn       the aggregate before the server steps on it
    after       learn       the server has stepped
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from motley.algorithms.parts import Tensors, Upload
from motley.core.arrays import Floats, Ids
from motley.core.records import Reports
from motley.core.server_signals import Value
from motley.rounds.round import Round
from motley.rounds.state import RunState
from motley.rounds.upload_pipeline import ReceivedUpload

__all__ = ["Arrived", "Stage"]


class Arrived(NamedTuple):
    """One upload on its way into the sum.

    Parameters
    ----------
    row: of the landed dispatches. received: as the server decoded it. download: the message that
    its client trained from. upload: as it enters the sum. signals: that the server computes of it.
    """

    row: int
    received: ReceivedUpload
    download: Tensors
    upload: Upload
    signals: Mapping[str, Value] = {}


class Stage:
    """Something that the round loop calls at the places above. What evolves is in the run's state,
    which every place takes."""

    single_updates: str | None = None
    """Why every update must travel to the server, after "every update travels: "; None: sums
    may."""

    def available(self, state: RunState, ids: Ids) -> Ids:
        """Return which of these clients may be asked now."""
        return ids

    def weights(self, state: RunState, ids: Ids, weights: Floats) -> Floats:
        """Return the raw weights ``[m]`` of the updates of a cohort that is sent out now."""
        return weights

    def reports(self, state: RunState, reports: Reports) -> Reports:
        """Return reports as the selector hears them."""
        return reports

    def upload(self, state: RunState, step: Round, arrived: Arrived) -> Arrived:
        """Return one upload before it is added to the sum."""
        return arrived

    def total(self, state: RunState, step: Round) -> Round:
        """Return the round after its uploads were added, with what the server steps on."""
        return step

    def after(self, state: RunState, step: Round) -> None:
        """Take in that the server has stepped on the round's total."""
