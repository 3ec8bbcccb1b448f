"""The models that a server's state makes, for an examination."""

from __future__ import annotations

from collections.abc import Callable

from motley.algorithms.parts import ClientState, ServerState
from motley.core.arrays import Floats
from motley.engines.engine import Setting
from motley.rounds.evaluation import Personal
from motley.tasks.task import ModelState


class ExaminedModels:
    """The model at each width; as it stands, the whole one alone.

    Parameters
    ----------
    setting: of the run.
    server: state of the server.
    version: number of its model.
    memory: what a client keeps that never took part.
    collected: returns a model with BatchNorm statistics; None: those that it has.
    """

    def __init__(
        self,
        setting: Setting,
        server: ServerState,
        version: int,
        memory: ClientState | None,
        collected: Callable[[ModelState], ModelState] | None = None,
    ) -> None:
        self.setting = setting
        self.version = version
        self.memory = memory
        self.collected = collected
        self.download = setting.algorithm.local.download(server)
        self._models: dict[float, ModelState] = {}

    def at(self, width: float) -> ModelState:
        """Return the model of this width; 1: the whole one."""
        if width not in self._models:
            model = self.of_width(width)
            self._models[width] = model if self.collected is None else self.collected(model)
        return self._models[width]

    def of_width(self, width: float) -> ModelState:
        """Return a new model of this width."""
        return self.setting.algorithm.local.start(self.download, self.memory)

    def of(self, widths: Floats) -> Personal:
        """Return the models of clients at their own widths ``[K]``."""
        return lambda clients: (self.at(float(widths[k])) for k in clients)
