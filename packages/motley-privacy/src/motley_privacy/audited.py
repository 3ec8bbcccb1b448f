"""Two worlds of a private experiment that differ in one client, the canary: what an audit needs of
them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar

from motley.selectors.defence import Defence
from motley.selectors.selector import SelectionRule
from motley_privacy.likelihood_ratios import Observed
from motley_privacy.privacy_plan import PrivacyPlan


@dataclass(frozen=True)
class AuditedWorlds(ABC):
    """Two worlds of a private experiment.

    Parameters
    ----------
    plan: the experiment's privacy.
    rule, defence: of its selector.
    population, cohort, rounds: K, m and R.
    clear: whether signals leave the clients without noise.
    """

    attacked: ClassVar[str]
    """What is attacked, in a few words."""

    plan: PrivacyPlan
    rule: SelectionRule[Any]
    defence: Defence | None
    population: int
    cohort: int
    rounds: int
    clear: bool = False

    @property
    def signals_seen(self) -> bool:
        """Whether the adversary sees noisy signals, as the claim says; the choices of the rule
        follow from them."""
        laws = {noise.noise for noise in self.plan.options.signal_noise.values()}
        return bool(laws) and "gumbel" not in laws and not self.clear and not self.hidden

    @property
    def hidden(self) -> bool:
        """Whether the adversary sees models alone, neither cohorts nor signals."""
        return self.plan.options.cohorts == "hidden"

    @abstractmethod
    def described(self) -> str:
        """Return a sentence or two on what is attacked."""

    def details(self) -> dict[str, Any]:
        """Return what ``audit.json`` says of these worlds besides."""
        return {}

    @abstractmethod
    def observed(self, far: bool, seeds: Iterable[int]) -> Observed:
        """Return what the adversary saw in one world, a trial per seed."""
