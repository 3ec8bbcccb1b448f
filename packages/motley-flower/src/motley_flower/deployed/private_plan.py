"""The plan of a private run as a deployment needs it; a deployment without one imports nothing of
it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from motley.rounds.run_config import RunConfig
from motley.rounds.stage import PrivateStage

if TYPE_CHECKING:
    from motley.privacy.privacy_plan import PrivacyPlan
    from motley.privacy.private_rounds import PrivateRounds

__all__ = ["plan_of", "rounds_of"]


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
