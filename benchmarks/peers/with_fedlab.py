"""FedLab: the standalone pipeline with its serial SGD trainer, which trains client after client in
one process."""

from __future__ import annotations

from collections.abc import Iterator

from work import CLIENTS, Run, StepCounter, batches, model_of, parse, set_threads, torchvision_stub


class Dataset:
    """Loaders of the clients' samples, as FedLab asks for them: batches of preloaded tensors."""

    def __init__(self, run: Run) -> None:
        self.parts = [run.client(k) for k in range(CLIENTS)]

    def get_dataloader(self, k: int, batch_size: int) -> Loader:
        return Loader(self.parts[k], batch_size)


class Loader:
    def __init__(self, part: tuple, size: int) -> None:
        self.part = part
        self.size = size

    def __iter__(self) -> Iterator:
        return batches(*self.part, self.size)


def main() -> None:
    run = parse()
    torchvision_stub()
    from fedlab.contrib.algorithm.basic_client import SGDSerialClientTrainer
    from fedlab.contrib.algorithm.basic_server import SyncServerHandler
    from fedlab.core.standalone import StandalonePipeline

    class Pipeline(StandalonePipeline):
        def evaluate(self) -> None:
            run.mark()

    set_threads(run)
    counter = StepCounter()
    model = model_of(run)
    handler = SyncServerHandler(model, run.rounds, 1.0)
    trainer = SGDSerialClientTrainer(model, CLIENTS, cuda=False)
    trainer.setup_dataset(Dataset(run))
    trainer.setup_optim(run.epochs, run.batch, run.lr)
    Pipeline(handler, trainer).main()
    run.finish(counter.steps, list(handler.model.parameters()))


if __name__ == "__main__":
    main()
