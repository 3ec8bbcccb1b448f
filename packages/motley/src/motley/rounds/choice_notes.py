"""What rules note of the clients that they choose, as rows of the table ``choices``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from typing_extensions import override

from motley.core.arrays import Ints
from motley.core.records import Cohort
from motley.rounds.round import Round
from motley.rounds.stage import ChosenCohort, Stage
from motley.rounds.state import RunState

__all__ = ["ChoiceNotes", "choice_rows"]


def choice_rows(cohort: Cohort, dispatch: Ints) -> dict[str, Any]:
    """Return the rows of the table ``choices``, without the column ``round``.

    Parameters
    ----------
    dispatch: of each of the cohort, ``[m]``.
    """
    notes = cohort.client_notes
    return {
        "dispatch": np.tile(dispatch, len(notes)).tolist(),
        "client": np.tile(cohort.ids, len(notes)).tolist(),
        "name": np.repeat(list(notes), len(cohort.ids)).tolist(),
        "value": np.concatenate(list(notes.values())) if notes else [],
    }


class ChoiceNotes(Stage):
    """Writes one row for each chosen client and each number that the rule noted of it
    (``Cohort.client_notes``)."""

    def __init__(self) -> None:
        self._rows: list[dict[str, Any]] = []

    @override
    def chosen(self, state: RunState[Any], step: Round, choice: ChosenCohort) -> Round:
        cohort = choice.cohort
        if cohort.client_notes:
            self._rows.append(choice_rows(cohort, state.dispatch + np.arange(len(cohort.ids))))
        return step

    @override
    def rows(self, state: RunState[Any], last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        rows = self._rows
        self._rows = []
        return [("choices", columns) for columns in rows]
