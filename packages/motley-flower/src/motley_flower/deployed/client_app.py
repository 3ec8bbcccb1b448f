"""A deployed client in a Flower ``ClientApp``, with one line::

    app = ClientApp()
    serve(app, Path(__file__).with_name("experiment.toml"))

torch and the data are loaded with the first order: Flower starts a process for every message, also
for the short one that asks a node which client it is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from motley.core.errors import ConfigError
from motley.core.files import private_files
from motley_flower.client_failures import text_stays
from motley_flower.messages import MEMORY, SHARE, flower
from motley_flower.node_config import client_of_node
from motley_flower.node_registry import ENROL

if TYPE_CHECKING:
    from motley.experiments.config import Experiment
    from motley.tasks.task import Task
    from motley_flower.deployed.client_runtime import ClientRuntime
    from motley_flower.deployed.secure_rounds import ClientSecrets
    from motley_flower.secure.terms import SecureOptions

MakeTask = Callable[[int, Mapping[str, Any]], "Task"]
"""A client's number and its node's configuration -> its data and model."""


class Node:
    """Answers messages at a node; see :func:`serve`."""

    def __init__(
        self,
        experiment: Experiment | str | Path | Mapping[str, Any],
        folder: str | Path | None = None,
        task: MakeTask | None = None,
        data: str | Path | None = None,
        key: str = "partition-id",
        secrets: ClientSecrets | None = None,
    ) -> None:
        self.experiment = experiment
        self.folder = folder
        self.task = task
        self.data = data
        self.key = key
        self.secrets = secrets
        self._runtime: tuple[object, ClientRuntime] | None = None

    def runtime(self, client: int, config: Mapping[str, Any]) -> ClientRuntime:
        """Return the runtime of a client: one for all clients of this process where the experiment
        brings the data, else its own.

        Raises
        ------
        ConfigError: the node has no folder.
        """
        from motley.experiments.run import as_experiment
        from motley_flower.deployed.client_runtime import ClientRuntime

        folder = self.folder or config.get("folder")
        data = self.data or config.get("data")
        if not folder:
            raise ConfigError(
                "this node has no folder for what its clients keep; start the node with "
                '--node-config folder="/..."'
            )
        share = config.get(SHARE, 1.0)
        memory_mb = config.get(MEMORY)
        which = (
            client if self.task is not None else None,
            str(folder),
            str(data),
            share,
            memory_mb,
        )
        if self._runtime is None or self._runtime[0] != which:
            task = None if self.task is None else self.task(client, config)
            runtime = ClientRuntime(
                as_experiment(self.experiment),
                Path(folder),
                task,
                data=Path(data) if data else None,
                secrets=self.secrets,
                share=share,
                memory_mb=memory_mb,
            )
            self._runtime = which, runtime
        return self._runtime[1]

    def client(self, context: Any) -> int:
        """Return the client that this node is.

        Raises
        ------
        ConfigError: its configuration does not say.
        """
        return client_of_node(context.node_config, self.key)

    def _private(self) -> bool:
        """Return whether the experiment has ``[privacy]``, under which no sentence about a failure
        leaves."""
        from motley.experiments.run import as_experiment

        return as_experiment(self.experiment).privacy is not None

    def enrol(self, message: Any, context: Any) -> Any:
        """Answer which client this node is."""
        app = flower()
        with text_stays(self._private):
            report = app.MetricRecord({self.key: self.client(context)})
        return app.Message(app.RecordDict({"motley": report}), reply_to=message)

    def answer(self, message: Any, context: Any) -> Any:
        """Answer an order."""
        from motley_flower.deployed.grid_transport import bytes_in, content_of

        with text_stays(self._private), private_files():
            client = self.client(context)
            runtime = self.runtime(client, context.node_config)
            return flower().Message(
                content_of(runtime.answer(client, bytes_in(message))), reply_to=message
            )


def serve(
    app: Any,
    experiment: Experiment | str | Path | Mapping[str, Any],
    folder: str | Path | None = None,
    *,
    task: MakeTask | None = None,
    data: str | Path | None = None,
    key: str = "partition-id",
    secure_aggregation: SecureOptions | None = None,
    identity: str | Path = "",
    register: Mapping[int, bytes] | str | Path = "",
    cap: int | None = None,
    agreements: int = 8,
) -> Node:
    """Let a Flower ``ClientApp`` answer the requests of
    :func:`motley_flower.deployed.server_app.run`; its other functions stay as they are.

    Parameters
    ----------
    app: the ClientApp.
    experiment: the same as the server's.
    folder: for what its clients keep between rounds, an absolute path; None: as the node's
    configuration says, ``--node-config 'partition-id=3 folder="/srv/client"'``, to which
    ``share=0.5`` adds that the client can hold half of the ranks of adapters, under ``lora_fedavg``
    and ``flexlora``; ``memory_mb=512`` says what it has for training, where ``capacity`` is
    ``by_memory``.
    task: makes a client's data and model (:func:`~motley_flower.deployed.own_data.client_task`),
    for ``task = "own"``; None: as the experiment says.
    data: folder to look into first for data packs; None: as the node's configuration says, or none.
    key: of ``--node-config``.
    secure_aggregation: as the server's; then the client sends masked updates only.
    identity: file of the client's private key; ``{client}`` in it stands for the client's number.
    register: all clients' public keys, or their file.
    cap: rounds that the client takes part in at most, in all runs with this register; None: all.
    agreements: on draws that it takes part in at most, likewise: a server that begins anew chooses
    among draws.
    """
    secrets = None
    if secure_aggregation is not None:
        from motley_flower.deployed.secure_rounds import ClientSecrets

        secrets = ClientSecrets(
            options=secure_aggregation,
            identity=identity,
            register=register,
            cap=cap,
            agreements=agreements,
        )
    node = Node(
        experiment=experiment, folder=folder, task=task, data=data, key=key, secrets=secrets
    )
    app.query(ENROL.partition(".")[2])(node.enrol)
    app.query("motley")(node.answer)
    app.train("motley")(node.answer)
    return node
