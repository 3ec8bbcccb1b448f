"""How far a client moves the final model of a run in one round, where its hardest image is a last
batch of its own, and where that image belongs to the batch before.

    python benchmarks/last_batch.py RUN_FOLDER [--client K] [--orders 8] [--data FOLDER]

Every order of batches is taken twice: images and their order are the same, and only the cut between
the last two batches of each epoch differs. The hardest image, which has the largest loss under the
final model, comes last in the first epoch. The client is the one with the smallest last batch.
Training is a plain PyTorch loop of SGD with the run's own epochs, batches, rate, momentum and
decay. Takes ten seconds of one core an order on MNIST.
"""

from __future__ import annotations

import argparse
import copy
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from motley.core.components import imports
from motley.experiments.config import Experiment
from motley.experiments.run_data import task_of
from motley.experiments.trained import load
from motley.tasks.task import Task


def samples_of(task: Task, client: int) -> tuple[Tensor, Tensor]:
    """Return a client's training inputs and labels."""
    train = task.federation.train
    rows = torch.from_numpy(train.values[train.offsets[client] : train.offsets[client + 1]])
    inputs = task.federation.x[rows]
    if task.transform is not None:
        inputs = task.transform(inputs, None)
    return inputs, task.federation.y[rows]


def moved(
    module: nn.Module,
    batches: list[list[Tensor]],
    samples: tuple[Tensor, Tensor],
    step: Mapping[str, float],
) -> float:
    """Return the Euclidean length of what the batches of several epochs change of the weights.

    ``step``: options of :class:`torch.optim.SGD`."""
    trained = copy.deepcopy(module).train()
    optimizer = torch.optim.SGD(trained.parameters(), **step)
    for batch in (batch for epoch in batches for batch in epoch):
        optimizer.zero_grad()
        loss = cross_entropy(trained(samples[0][batch]), samples[1][batch])
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    after, before = (nn.utils.parameters_to_vector(m.parameters()) for m in (trained, module))
    return float((after - before).detach().norm())


def orders(samples: int, epochs: int, last: int, seed: int) -> list[Tensor]:
    """Return an order of the samples for each epoch; in the first the sample of number ``last``
    ends it."""
    generator = torch.Generator().manual_seed(seed)
    drawn = [torch.randperm(samples, generator=generator) for _ in range(epochs)]
    first = drawn[0]
    first[first == last] = int(first[-1])
    first[-1] = last
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    parser.add_argument("--client", type=int, default=None)
    parser.add_argument("--orders", type=int, default=8)
    parser.add_argument("--data", type=Path, default=None)
    options = parser.parse_args()
    run = load(options.run)
    with imports(True):
        task = task_of(Experiment(**run.config), data=options.data)
    local = run.config["local"]
    size = local["batch_size"]
    optimizer = local["optimizer"]
    step = {name: optimizer[name] for name in ("lr", "momentum", "weight_decay")}
    client = options.client
    if client is None:
        client = int(np.argmin((task.federation.train.sizes - 1) % size))
    inputs, labels = samples_of(task, client)
    module = run.module()
    with torch.no_grad():
        losses = cross_entropy(module.eval()(inputs), labels, reduction="none")
    rest = (len(labels) - 1) % size + 1
    print(
        f"client {client}: {len(labels)} samples, last batch {rest}; mean loss "
        f"{losses.mean():.4f}, largest {losses.max():.2f}"
    )
    for seed in range(options.orders):
        drawn = orders(len(labels), local["epochs"], int(losses.argmax()), seed)
        alone = [list(torch.split(order, size)) for order in drawn]
        joined = [[*epoch[:-2], torch.cat(epoch[-2:])] for epoch in alone]
        lengths = [moved(module, batches, (inputs, labels), step) for batches in (alone, joined)]
        print(f"order {seed}: {lengths[0]:.2f} alone, {lengths[1]:.2f} with the batch before")


if __name__ == "__main__":
    main()
