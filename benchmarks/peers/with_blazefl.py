"""BlazeFL: its ``contrib`` FedAvg, in its pool of processes in the first turn and in its pool of
threads in the second, one torch thread in each; no evaluation.

It ships no data set: the clients' samples and the model go into its two protocols, a partitioned
data set and a selector of models.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from work import CLIENTS, Run, cores, model_of, parse, samples

if TYPE_CHECKING:
    from torch import Generator, nn
    from torch.utils.data import DataLoader, TensorDataset


class Name(StrEnum):
    """The one model that there is."""

    MODEL = "model"


class Models:
    """BlazeFL's ``ModelSelector``."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def select_model(self, model_name: Name) -> nn.Module:
        return model_of(self.run)


class Clients:
    """BlazeFL's ``PartitionedDataset``."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def get_dataset(self, type_: StrEnum, cid: int | None) -> TensorDataset:
        from torch.utils.data import TensorDataset

        return TensorDataset(*samples(self.run, cid))

    def set_dataset(self, type_: StrEnum, cid: int | None, dataset: TensorDataset) -> None:
        """Keep nothing: training changes no sample."""

    def get_dataloader(
        self,
        type_: StrEnum,
        cid: int | None,
        batch_size: int | None,
        generator: Generator | None = None,
    ) -> DataLoader:
        from torch.utils.data import DataLoader

        return DataLoader(
            self.get_dataset(type_, cid), batch_size, shuffle=True, generator=generator
        )


def main() -> None:
    run = parse()
    import torch
    from blazefl.contrib.fedavg import (
        FedAvgBaseServerHandler,
        FedAvgProcessPoolClientTrainer,
        FedAvgThreadPoolClientTrainer,
    )
    from blazefl.core import IPCMode

    torch.set_num_threads(1)
    common = {
        "model_selector": Models(run),
        "model_name": Name.MODEL,
        "dataset": Clients(run),
        "device": "cpu",
        "num_clients": CLIENTS,
        "batch_size": run.batch,
        "seed": 0,
    }
    server = FedAvgBaseServerHandler(global_round=run.rounds, sample_ratio=1.0, **common)
    local = {"epochs": run.epochs, "lr": run.lr, "num_parallels": cores()}
    trainer = (
        FedAvgThreadPoolClientTrainer(**common, **local)
        if run.parallel
        else FedAvgProcessPoolClientTrainer(
            share_dir=run.out / "shared",
            state_dir=run.out / "states",
            ipc_mode=IPCMode.SHARED_MEMORY,
            **common,
            **local,
        )
    )
    steps = 0
    while not server.if_stop():
        trainer.local_process(server.downlink_package(), server.sample_clients())
        for package in trainer.uplink_package():
            steps += package.data_size // run.batch
            server.load(package)
        run.mark()
    run.finish(steps, list(server.model.parameters()))


if __name__ == "__main__":
    main()
