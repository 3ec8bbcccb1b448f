"""What the rules that look at FLASH's contexts have in common: options, needs, first round, whom they measure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from motley.core.arrays import Ids
from motley.core.records import SelectionContext, SignalRequirements
from motley.selectors.base import SelectionRule
from motley.selectors.common.client_contexts import Contexts, Drop, FirstRound, Probe, Tau, first_size
from motley.selectors.common.sampling import Ties

__all__ = ["ContextualRule"]

S = TypeVar("S")


@dataclass(frozen=True)
class ContextualRule(SelectionRule[S]):
    """Options of every rule with contexts; see :mod:`motley.selectors.flash` for what they mean.

    Parameters
    ----------
    tau: which duration.
    probe: whose losses are measured before the choice.
    probe_batches: batches of that measurement (``probe = "all"``); None is all training data.
    drop: the paper's ablations: one element left out of the context.
    first_round: ``"all"``, or ``"cohort"``: m clients at random.
    ties: ``"random"``, or ``"lowest_id"`` for tests.
    """

    tau: Tau = "mean"
    probe: Probe = "all"
    probe_batches: int | None = None
    drop: Drop = "none"
    first_round: FirstRound = "all"
    ties: Ties = "random"

    def __post_init__(self) -> None:
        _ = self.contexts  # checks the options it is made of

    @property
    def contexts(self) -> Contexts:
        """How contexts and rewards are measured."""
        return Contexts(self.tau, self.probe, self.drop, self.probe_batches)

    def needs(self) -> SignalRequirements:
        """The losses of the context."""
        return self.contexts.needs()

    def size(self, round: int, m: int, available: int) -> int:
        """Everybody in round 1, unless asked otherwise."""
        return first_size(self.first_round, round, m, available)

    def candidates(self, state: S, context: SelectionContext) -> Ids:
        """Everybody available, or nobody."""
        return self.contexts.candidates(context)
