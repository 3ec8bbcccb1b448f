"""What happened to the machines and workers of an engine, in the table ``incidents``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from typing_extensions import override

from motley.engines.engine import Engine
from motley.rounds.stage import Stage
from motley.rounds.state import RunState


class EngineEvents(Stage):
    """Writes the events of an engine with workers, which are about no client (-1).

    Parameters
    ----------
    engine: of the run.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    @override
    def rows(self, state: RunState[Any], last: bool) -> Iterable[tuple[str, Mapping[str, Any]]]:
        events = self.engine.take_events()
        if not events:
            return ()
        count = len(events)
        columns = {
            "at": [event.at for event in events],
            "event": [event.event for event in events],
            "reason": [event.reason for event in events],
            "time_s": [state.clients.now_s] * count,
            "client": [-1] * count,
            "dispatch": [None] * count,
        }
        return [("incidents", columns)]
