"""What clients hold of the model, where that is not all of it: slices of less width, heads of their
own classes, prototypes, one of several models. A run of whole models imports nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from motley.algorithms.parts import ClientState
from motley.core.arrays import Floats, Ids
from motley.engines.engine import Setting
from motley.world.interfaces import World

if TYPE_CHECKING:
    from motley.rounds.holdings.holding import Holding

__all__ = ["StatesOf", "StepSeconds", "holding_of"]

StepSeconds = Callable[[Ids, int], Floats]
"""Client ids and a round -> the seconds of a step on the whole model, ``[n]``."""
StatesOf = Callable[[Iterable[int]], Mapping[int, ClientState | None]]
"""Client ids -> what the algorithm keeps of these clients."""


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
        from motley.rounds.holdings.holding import ChosenModel

        return ChosenModel(setting)
    return None
