"""Flower: a ServerApp with FedAvg and a ClientApp on the simulation's Ray backend, a core for each
of its actors."""

from __future__ import annotations

from flower_client import client_app, simulate
from work import CLIENTS, Run, model_of, parse, samples, train


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
    run = parse()
    app = client_app(
        lambda: model_of(run),
        lambda client: samples(run, client),
        lambda model, x, y: train(model, x, y, run),
    )
    simulate(server_app(run), app, CLIENTS)


if __name__ == "__main__":
    main()
