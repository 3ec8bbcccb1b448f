"""The ClientApp of both benchmarks of Flower: a model is received, trained and sent back with the
numbers of samples and steps."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor, nn

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_worker_niceness": "0",
}


def client_app(
    make_model: Callable[[], nn.Module],
    samples: Callable[[int], tuple[Tensor, Tensor]],
    train: Callable[[nn.Module, Tensor, Tensor], int],
) -> object:
    """Return the app.

    Parameters
    ----------
    samples: inputs and labels of a client.
    train: trains a model in place and returns the number of steps.
    """
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        model = make_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = samples(context.node_config["partition-id"])
        steps = train(model, x, y)
        metrics = MetricRecord({"num-examples": len(x), "steps": steps})
        return Message(
            RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
            reply_to=message,
        )

    return app


def simulate(server_app: object, app: object, clients: int) -> None:
    """Run both apps on the simulation's Ray backend, a core for each of its actors."""
    os.environ |= QUIET
    from flwr.simulation import run_simulation

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(server_app, app, num_supernodes=clients, backend_config=resources)
