"""A run that goes on under other conditions: the same state in a loop of another configuration."""

from __future__ import annotations

import dataclasses
from typing import Any

from motley.engines.engine import Engine
from motley.rounds.loop import RoundLoop
from motley.rounds.simulated import simulation

__all__ = ["going_on"]


def going_on(
    loop: RoundLoop,
    *,
    engine: Engine | None = None,
    config: dict[str, Any] | None = None,
    **world: Any,
) -> RoundLoop:
    """Return a loop with the state of ``loop`` whose engine, fields of the configuration or parts
    of the world are others."""
    changed = dataclasses.replace(
        loop.config, world=dataclasses.replace(loop.config.world, **world), **(config or {})
    )
    engine = engine or loop.engine
    if engine is not loop.engine:
        changed = dataclasses.replace(changed, setting=loop.setting)
    state = loop.state
    new = simulation(
        changed,
        engine,
        state.selector,
        state.server.model,
        loop.tables.writer,
        state.clients.client_states,
    )
    new.state = state
    new.backend.clients = state.clients
    new.channel.ledger = state.ledger
    return new
