"""What a server rule finds in its room at a step, and what it asks of participants beside their local work."""

from __future__ import annotations

import dataclasses
from functools import partial

from motley.algorithms.base import Exchange, Room
from motley.engines.asked import Sights, own_losses
from motley.engines.base import Engine
from motley.simulation.plan import Plan

__all__ = ["exchange_of", "room_at"]


def room_at(plan: Plan, engine: Engine, version: int, accepted: int, sights: Sights) -> Room:
    """What the experiment gave, a key of this step, and clients that can be asked for losses on what they see now (``sights``)."""
    given = plan.room or Room(plan.setting.task.layout, len(plan.setting.task.federation), 0)
    key = plan.setting.streams.key("server").fold(version)
    return dataclasses.replace(given, accepted=accepted, key=key, losses=partial(own_losses, engine, sights=sights))


def exchange_of(plan: Plan) -> Exchange:
    """What every participant sends, receives and computes in a round because the server rule wants it."""
    public = None if plan.room is None else plan.room.public
    classes = plan.setting.task.federation.classes or 0
    return plan.setting.algorithm.server.exchange(0 if public is None else len(public), classes)
