"""Which of these a run needs; a run of whole models imports none of them."""

from __future__ import annotations

from motley.engines.engine import Setting
from motley.rounds.holdings.holding import ChosenModel, Holding, StatesOf, StepSeconds
from motley.world.interfaces import World


def holding_of(
    setting: Setting, world: World, step_s: StepSeconds, states_of: StatesOf | None
) -> Holding | None:
    """Return what clients hold of the model, None where that is all of it; no experiment combines
    two kinds.

    Parameters
    ----------
    setting: of the run.
    world: whose ``capacity`` says what each client can hold.
    step_s: how long a step on the whole model takes.
    states_of: returns what clients keep now; None: nobody has taken part.
    """
    local = setting.algorithm.local
    if local.slicing is not None:
        from motley.rounds.holdings.slices import HeldSlices

        return HeldSlices(setting, world, step_s, states_of)
    if setting.task.heads:
        from motley.rounds.holdings.heads import HeldHeads

        return HeldHeads(setting)
    if local.prototypes is not None:
        from motley.rounds.holdings.prototypes import HeldPrototypes

        return HeldPrototypes(setting)
    if local.choice is not None:
        return ChosenModel(setting)
    if local.groups:
        from motley.rounds.holdings.held_groups import HeldGroups

        return HeldGroups(setting)
    return None if setting.task.architectures is None else Holding(setting)
