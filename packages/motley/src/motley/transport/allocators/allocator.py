"""The interface of an allocator: it divides the round's upload budget among the clients of the
cohort.

An allocator is a frozen dataclass of options and pure functions of (state, context). Its state, if
it has any, is a dict of plain arrays that only ``observe`` changes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import NDArray

from motley.core.arrays import Floats, Ids
from motley.core.errors import ConfigError
from motley.core.records import Outcome, Reports
from motley.core.table import ClientTable
from motley.transport.budgets import Budget
from motley.transport.ledger import VALUE_BITS

State: TypeAlias = Mapping[str, NDArray[Any]]

LEAST = 0.005
"""The smallest upload ratio, as in the authors' code of HeteRo-Select v2."""
LARGEST = 1e100
"""Largest norm: larger ones, of runs that diverge, are replaced by it, so that their squares are
finite."""


@dataclass(frozen=True, slots=True)
class AllocationContext:
    """The cohort and its planned work, before training. Columns are ``[m]`` float64, in the order
    of the cohort.

    Parameters
    ----------
    ids: the cohort.
    budget: mean upload ratio of the round, theta_t.
    average: theta_avg.
    warm: whether the round belongs to the warm-up.
    size: D, numbers in an update.
    examples: training samples.
    steps: local steps.
    compute_s: seconds they take.
    uplink_mbps: 10^6 bits a second; infinite: free.
    scores, upload_ratio: the selector's, None where it gives none.
    """

    ids: Ids
    budget: float
    average: float
    warm: bool
    size: int
    examples: Floats
    steps: Floats
    compute_s: Floats
    uplink_mbps: Floats
    scores: Floats | None = None
    upload_ratio: Floats | None = None

    @property
    def whole_s(self) -> Floats:
        """The seconds that uploading a whole update takes, 32 bits a number: ``32 D / B``; infinite
        on a dead link."""
        # A link of 0 Mbit/s is dead, not an error: its upload takes forever.
        with np.errstate(divide="ignore"):
            return np.asarray(VALUE_BITS * self.size / (1e6 * self.uplink_mbps), np.float64)

    @property
    def shares(self) -> Floats:
        """The clients' shares p_k of the cohort's samples."""
        return np.asarray(self.examples / self.examples.sum(), np.float64)


class Allocator(ABC):
    """A rule that sets the upload ratio of each client. ``requires`` names columns of
    :class:`AllocationContext` that it needs: ``"scores"`` and ``"upload_ratio"`` of the selector,
    ``"uplink_mbps"`` of a network in which uploads take time.

    ``least``: the smallest ratio that it gives; an option of most.

    ``looks_at_work``: ratios depend on ``examples``, ``steps`` or ``compute_s``; a class that does
    not say otherwise is taken to do so, because private runs rely on it."""

    requires: ClassVar[frozenset[str]] = frozenset()
    least: float = 0.0
    looks_at_work: ClassVar[bool] = True

    def refuses(self, budget: Budget) -> str | None:
        """Return why the allocator does not go with this budget, in one sentence with a remedy;
        None if it does."""
        if budget.average < self.least:
            return (
                f"got average = {budget.average}, and every client sends at least the allocator's "
                f"least = {self.least}; set least = {budget.average} there, or less"
            )
        return None

    def init(self) -> State:
        """Return the state before round 1."""
        return {}

    @abstractmethod
    def ratios(self, state: State, context: AllocationContext) -> Floats:
        """Return the share of its update that each client may send, ``[m]``, in (0, 1]."""

    def observe(self, state: State, budget: Budget, reports: Reports, step_norm: float) -> State:
        """Return the state after a server step.

        Parameters
        ----------
        reports: of the step's clients, with the signal ``update_norm``.
        step_norm: Euclidean norm of the weighted mean of the decoded updates; NaN when there were
        none.
        """
        return state


def check_least(least: float) -> None:
    """Raise ConfigError unless ``least`` is a share in (0, 1]."""
    if not 0 < least <= 1:
        raise ConfigError(f"got least = {least}; expected a share in (0, 1]")


def no_errors() -> State:
    """Return the state of :func:`remember_errors` before any update."""
    return {"ids": np.zeros(0, np.int64), "square": np.zeros(0)}


def remember_errors(state: State, reports: Reports) -> State:
    """Return the state ``ids`` and ``square`` with the squared norms of the accepted updates: A_k,
    the error of sending nothing."""
    done = reports.of(Outcome.ACCEPTED)
    norm = np.minimum(done.signal("update_norm"), LARGEST)
    good = np.isfinite(norm)
    if not good.any():
        return state
    table = ClientTable({"square": np.nan}, state["ids"], {"square": state["square"]})
    table = table.put(done.ids[good], {"square": norm[good] ** 2})
    return {"ids": table.ids, "square": table.columns["square"]}


def last_errors(state: State, ids: Ids) -> Floats:
    """Return A_k over their mean, ``[m]``; 1 for a client without an accepted update, and for all
    if there is no such update."""
    square = ClientTable({"square": np.nan}, state["ids"], {"square": state["square"]}).get(
        "square", ids
    )
    mean = square[~np.isnan(square)].mean() if not np.isnan(square).all() else 0.0
    return np.nan_to_num(square / mean, nan=1.0) if mean > 0 else np.ones(len(ids))
