"""A worker: an engine of the usual kind on its own cores, told what to do from elsewhere."""

from __future__ import annotations

import dataclasses
from typing import Any

from motley.core.errors import ConfigError, MotleyError
from motley.engines import ENGINES, resolve_auto
from motley.engines.base import Engine, Setting
from motley.engines.serialization import Block, unwrap
from motley.engines.worker_pool import Failed, Order

__all__ = ["Worker", "engine_of"]


def engine_of(setting: Setting) -> str:
    """The engine of a worker, chosen as ``auto`` does; one core needs no threads."""
    name = resolve_auto(setting)
    return "sequential" if name == "threads" and setting.threads == 1 else name


class Worker:
    """What a worker does, whoever carries its orders.

    Parameters
    ----------
    setting: block with the run's setting; its tensors stay where they are. device: in place of the setting's own.
    """

    def __init__(self, setting: Block, device: str | None = None) -> None:
        self._engine: Engine | None = None
        self._broken: Exception | None = None
        try:
            found: Setting = unwrap(setting)
            found = found if device is None else dataclasses.replace(found, device=device)
            self._engine = ENGINES.get(engine_of(found))(found)
        except MotleyError as error:
            self._broken = error
        except Exception as error:  # whatever a user's module raises when it is imported
            said = f"a worker process cannot make the run's model ({type(error).__name__}: {error})"
            self._broken = ConfigError(f"{said}; it must be importable there", "engine")

    def execute(self, order: Order, posted: Any) -> Any:
        """The answer to an order, or :class:`Failed`; ``posted`` is what all workers were given with it."""
        engine = self._engine
        if engine is None:
            return Failed(self._broken or RuntimeError("this worker was ended"))
        try:
            if order.call == "train":
                jobs, client_states, want = order.own
                return list(engine.train(jobs, posted, client_states, want))
            if order.call == "measure":
                clients, client_states, wanted, key, data_view = order.own
                return engine.measure(clients, posted, client_states, wanted, key, data_view)
            return engine.evaluate(posted, *order.own)
        except Exception as error:
            return Failed(error)

    def end(self) -> None:
        """Give back what the engine holds."""
        if self._engine is not None:
            self._engine.close()
            self._engine = None
