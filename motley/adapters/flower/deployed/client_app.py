"""A site in a Flower ``ClientApp``, with one line::

    app = ClientApp()
    serve(app, Path(__file__).with_name("experiment.toml"))

What is heavy (torch, the data) is loaded when the first order for training comes: Flower starts a process for every message, also for
the short one that asks a node who it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motley.adapters.flower.messages import flower
from motley.adapters.flower.node_registry import ENROL
from motley.core.errors import ConfigError

if TYPE_CHECKING:
    from motley.adapters.flower.deployed.client_runtime import ClientRuntime
    from motley.experiments.config import Experiment
    from motley.tasks.base import Task

__all__ = ["Node", "serve"]

Own = Callable[[int, Mapping[str, Any]], "Task"]
"""A client's number and its node's configuration -> its data and model."""


class Node:
    """What answers messages at a node; see :func:`serve`."""

    def __init__(
        self,
        experiment: Experiment | str | Path | Mapping[str, Any],
        folder: str | Path | None = None,
        task: Own | None = None,
        data: str | Path | None = None,
        key: str = "partition-id",
    ) -> None:
        self.experiment, self.folder, self.task, self.data, self.key = experiment, folder, task, data, key
        self._site: tuple[object, ClientRuntime] | None = None

    def site(self, client: int, config: Mapping[str, Any]) -> ClientRuntime:
        """The site of a client: one for all clients of this process where the experiment brings the data, else its own.

        Raises
        ------
        ConfigError: nobody says where its folder is.
        """
        from motley.adapters.flower.deployed.client_runtime import ClientRuntime
        from motley.experiments.run import as_experiment

        folder, data = self.folder or config.get("folder"), self.data or config.get("data")
        if not folder:
            raise ConfigError(
                'this site has no folder for what its clients keep; start the node with --node-config folder="/..."'
            )
        which = (client if self.task is not None else None, str(folder), str(data))
        if self._site is None or self._site[0] != which:
            task = None if self.task is None else self.task(client, config)
            made = ClientRuntime(as_experiment(self.experiment), Path(folder), task, Path(data) if data else None)
            self._site = which, made
        return self._site[1]

    def whom(self, context: Any) -> int:
        """The client that this node is.

        Raises
        ------
        ConfigError: its configuration does not say.
        """
        value = context.node_config.get(self.key)
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ConfigError(f'got {self.key} = {value!r}; start the node with --node-config "{self.key}=<whole number>"')
        return value

    def enrol(self, message: Any, context: Any) -> Any:
        """Who this node is."""
        app = flower()
        told = app.MetricRecord({self.key: self.whom(context)})
        return app.Message(app.RecordDict({"motley": told}), reply_to=message)

    def answer(self, message: Any, context: Any) -> Any:
        """The answer to a letter."""
        from motley.adapters.flower.deployed.grid_transport import letter_in, sealed

        client = self.whom(context)
        site = self.site(client, context.node_config)
        return flower().Message(sealed(site.answer(client, letter_in(message))), reply_to=message)


def serve(
    app: Any,
    experiment: Experiment | str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    task: Own | None = None,
    data: str | Path | None = None,
    key: str = "partition-id",
) -> Node:
    """Let a Flower ``ClientApp`` answer the requests of :func:`motley.adapters.flower.deployed.server_app.run`; its other
    functions stay as they are.

    Parameters
    ----------
    app: the ClientApp. experiment: the same as the server's. folder: of this site, for what its clients keep, an absolute path;
    None: as the node's configuration says, ``--node-config 'partition-id=3 folder="/srv/site"'``.
    task: makes a client's data and model (:func:`~motley.adapters.flower.deployed.own_data.site_task`), for ``task = "own"``;
    None: as the
    experiment says. data: folder to look into first for data packs; None: as the node's configuration says, or none.
    key: of ``--node-config``.
    """
    node = Node(experiment, folder, task, data, key)
    app.query(ENROL.partition(".")[2])(node.enrol)
    app.query("motley")(node.answer)
    app.train("motley")(node.answer)
    return node
