"""One run of the grid by Flower: a ServerApp and a ClientApp on the simulation's Ray backend, a
core for each of its actors. FedAvg and FedProx are its own strategies; the other three algorithms
run as FedAvg here, which costs less than they would."""

from __future__ import annotations

from flower_client import client_app, simulate
from grid_work import CLIENTS, COHORT, GridRun, accuracy, digits_model, grid_run
from work import train

MU = 0.01


def server_app(run: GridRun) -> object:
    from flwr.app import ArrayRecord, Context, MetricRecord
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg, FedProx

    app = ServerApp()
    steps = []
    correct = []

    class Counted(FedProx if run.algorithm == "fedprox" else FedAvg):
        def aggregate_train(self, server_round: int, replies: object) -> tuple:
            replies = list(replies)
            steps.extend(int(reply.content["metrics"]["steps"]) for reply in replies)
            return super().aggregate_train(server_round, replies)

    def evaluated(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        model = digits_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        correct.append(accuracy(model, *run.samples()))
        return MetricRecord({"accuracy": correct[-1]})

    @app.main()
    def serve(grid: Grid, context: Context) -> None:
        strategy = Counted(
            fraction_train=COHORT / CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=COHORT,
            min_available_nodes=CLIENTS,
        )
        initial = ArrayRecord(digits_model().state_dict())
        strategy.start(
            grid=grid, initial_arrays=initial, num_rounds=run.rounds, evaluate_fn=evaluated
        )
        run.write(sum(steps), correct[-1])

    return app


def main() -> None:
    run = grid_run()
    import torch

    torch.manual_seed(run.seed)
    proximal = MU if run.algorithm == "fedprox" else 0.0
    app = client_app(
        digits_model,
        run.samples,
        lambda model, x, y: train(model, x, y, run, proximal=proximal),
    )
    simulate(server_app(run), app, CLIENTS)


if __name__ == "__main__":
    main()
