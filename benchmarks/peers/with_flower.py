"""Flower: a ServerApp with FedAvg and a ClientApp on the simulation's Ray backend, a core for each
of its actors."""

from __future__ import annotations

import os

from work import CLIENTS, Run, model_of, parse, samples, train


def client_app(run: Run) -> object:
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    @app.train()
    def fit(message: Message, context: Context) -> Message:
        model = model_of(run)
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        x, y = samples(run, context.node_config["partition-id"])
        steps = train(model, x, y, run)
        metrics = MetricRecord({"num-examples": len(x), "steps": steps})
        return Message(
            RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}),
            reply_to=message,
        )

    return app


def server_app(run: Run) -> object:
    from flwr.app import ArrayRecord, Context
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg

    app = ServerApp()
    steps = []

    class Marked(FedAvg):
        def aggregate_train(self, server_round: int, replies: object) -> tuple:
            replies = list(replies)
            steps.extend(int(reply.content["metrics"]["steps"]) for reply in replies)
            made = super().aggregate_train(server_round, replies)
            run.mark()
            return made

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = Marked(
            fraction_train=1.0,
            fraction_evaluate=0.0,
            min_train_nodes=CLIENTS,
            min_available_nodes=CLIENTS,
        )
        initial = ArrayRecord(model_of(run).state_dict())
        done = strategy.start(grid=grid, initial_arrays=initial, num_rounds=run.rounds)
        run.finish(sum(steps), list(done.arrays.to_torch_state_dict().values()))

    return app


def main() -> None:
    os.environ |= {
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_worker_niceness": "0",
    }
    run = parse()
    from flwr.simulation import run_simulation

    resources = {"client_resources": {"num_cpus": 1, "num_gpus": 0.0}}
    run_simulation(
        server_app(run), client_app(run), num_supernodes=CLIENTS, backend_config=resources
    )


if __name__ == "__main__":
    main()
