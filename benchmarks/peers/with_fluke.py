"""fluke: its ``FedAVG`` with its own server and clients, which train one after another in this
process, on its ``FastDataLoader``; no evaluation.

Its multiprocessing, ``fluke.distr``, asks for two GPUs. What it imports only for its command line,
loggers, named networks and data sets (wandb, clearml, hydra, datasets, torchvision, ...) is never
reached from here and not installed; nothing is stubbed.
"""

from __future__ import annotations

from work import CLIENTS, Run, StepCounter, model_of, parse, set_threads


def main() -> None:
    run = parse()
    from fluke import DDict, FlukeENV
    from fluke.algorithms.fedavg import FedAVG
    from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
    from fluke.utils import FederationObserver

    class Marks(FederationObserver):
        def end_round(self, round: int) -> None:
            run.mark()

    def loader(k: int) -> FastDataLoader:
        return FastDataLoader(
            *run.client(k), num_labels=run.load.classes, batch_size=run.batch, shuffle=True
        )

    set_threads(run)
    counter = StepCounter()
    FlukeENV().set_eval_cfg(server=False)
    parts = [loader(k) for k in range(CLIENTS)]
    data = DummyDataContainer(parts, [None] * CLIENTS, None, run.load.classes)
    algorithm = FedAVG(CLIENTS, DataSplitter(data), DDict(hyper_parameters(run)))
    algorithm.set_callbacks(Marks())
    algorithm.run(run.rounds, 1.0)
    run.finish(counter.steps, list(algorithm.server.model.parameters()))


def hyper_parameters(run: Run) -> dict:
    """Return the model and what clients and server do, as fluke's configuration has them."""
    return {
        "model": model_of(run),
        "client": {
            "batch_size": run.batch,
            "local_epochs": run.epochs,
            "loss": "CrossEntropyLoss",
            "optimizer": {"name": "SGD", "lr": run.lr},
            "scheduler": {"step_size": 1, "gamma": 1},
        },
        "server": {"weighted": True},
    }


if __name__ == "__main__":
    main()
