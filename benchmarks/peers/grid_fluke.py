"""One run of the grid by fluke: its own five algorithms with its own servers and clients, which
train one after another in this process, the server's model examined after each round."""

from __future__ import annotations

from grid_work import (
    BATCH,
    CLIENTS,
    COHORT,
    EPOCHS,
    LR,
    GridRun,
    accuracy,
    digits_model,
    grid_run,
)
from work import StepCounter

OF_CLIENTS = {"fedprox": {"mu": 0.01}, "feddyn": {"alpha": 0.01}}
OF_SERVER = {"scaffold": {"global_step": 1.0}, "feddyn": {"alpha": 0.01}}


def algorithm_of(name: str) -> type:
    from fluke.algorithms.fedavg import FedAVG
    from fluke.algorithms.feddyn import FedDyn
    from fluke.algorithms.fednova import FedNova
    from fluke.algorithms.fedprox import FedProx
    from fluke.algorithms.scaffold import SCAFFOLD

    return {
        "fedavg": FedAVG,
        "fedprox": FedProx,
        "scaffold": SCAFFOLD,
        "fednova": FedNova,
        "feddyn": FedDyn,
    }[name]


def main() -> None:
    run = grid_run()
    import torch
    from fluke import DDict, FlukeENV
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
    from fluke.evaluation import ClassificationEval
    from torchmetrics import Accuracy

    def loader(client: int | str, size: int) -> FastDataLoader:
        return FastDataLoader(*run.samples(client), num_labels=10, batch_size=size, shuffle=True)

    torch.manual_seed(run.seed)
    counter = StepCounter()
    FlukeENV().set_seed(run.seed)
    # its command takes seven metrics, this one alone: less than its users wait for
    share_right = Accuracy(task="multiclass", num_classes=10)
    FlukeENV().set_evaluator(ClassificationEval(1, 10, accuracy=share_right))
    FlukeENV().set_eval_cfg(task="classification", eval_every=1, server=True)
    parts = [loader(client, BATCH) for client in range(CLIENTS)]
    data = DummyDataContainer(parts, [None] * CLIENTS, loader("", 512), 10)
    algorithm = algorithm_of(run.algorithm)(CLIENTS, DataSplitter(data), DDict(options(run)))
    algorithm.run(run.rounds, COHORT / CLIENTS)
    run.write(counter.steps, accuracy(algorithm.server.model, *run.samples()))


def options(run: GridRun) -> dict:
    """Return the model and what clients and server do, as fluke's configuration has them."""
    return {
        "model": digits_model(),
        "client": {
            "batch_size": BATCH,
            "local_epochs": EPOCHS,
            "loss": "CrossEntropyLoss",
            "optimizer": {"name": "SGD", "lr": LR},
            "scheduler": {"step_size": 1, "gamma": 1},
            **OF_CLIENTS.get(run.algorithm, {}),
        },
        "server": {"weighted": True, **OF_SERVER.get(run.algorithm, {})},
    }


if __name__ == "__main__":
    main()
