"""The plan of a private run as a deployment needs it; a deployment without one imports nothing of
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from motley.experiments.config import Experiment
from motley.rounds.run_config import RunConfig
from motley.rounds.stage import PrivateStage

if TYPE_CHECKING:
    from motley_privacy.privacy_plan import PrivacyPlan
    from motley_privacy.private_rounds import PrivateRounds


def hides_cohorts(experiment: Experiment) -> bool:
    """Return whether an experiment is private, and its account counts on hidden cohorts."""
    return experiment.privacy is not None and experiment.privacy.cohorts == "hidden"


def plan_of(config: RunConfig) -> PrivacyPlan | None:
    """Return the plan of a private run with all its numbers; None where nothing is private."""
    plan: Any = config.privacy
    private: PrivacyPlan | None = plan
    return private


def rounds_of(stage: PrivateStage) -> PrivateRounds:
    """Return the stage of a private run with its account."""
    private: Any = stage
    rounds: PrivateRounds = private
    return rounds
