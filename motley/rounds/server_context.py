"""What a server rule finds in its room at a step, and what it asks of participants beside their local work."""

from __future__ import annotations

import dataclasses
from functools import partial

from motley.algorithms.base import ExtraExchange, ServerContext
from motley.engines.base import DataViews, Engine, client_losses
from motley.rounds.config import RunConfig

__all__ = ["extra_exchange_of", "server_context_at"]


def server_context_at(plan: RunConfig, engine: Engine, version: int, accepted: int, data_views: DataViews) -> ServerContext:
    """What the experiment gave, a key of this step, and clients that can be asked for losses on what they see now (``data_views``)."""
    given = plan.room or ServerContext(plan.setting.task.layout, len(plan.setting.task.federation), 0)
    key = plan.setting.streams.key("server").fold(version)
    return dataclasses.replace(given, accepted=accepted, key=key, losses=partial(client_losses, engine, data_views=data_views))


def extra_exchange_of(plan: RunConfig) -> ExtraExchange:
    """What every participant sends, receives and computes in a round because the server rule wants it."""
    public = None if plan.room is None else plan.room.public
    classes = plan.setting.task.federation.classes or 0
    return plan.setting.algorithm.server.extra_exchange(0 if public is None else len(public), classes)
