"""The plain loop in a process for each core, one torch thread in each, which share the weights: a
bound for whatever trains clients in processes of their own."""

from __future__ import annotations

from threading import Barrier
from typing import TYPE_CHECKING

from work import CLIENTS, Run, cores, model_of, parse, train

if TYPE_CHECKING:
    from torch import Tensor

WAIT_S = 120
"""Seconds after which a process that nobody answers ends, and the run fails."""


def main() -> None:
    run = parse()
    import torch
    from torch import multiprocessing, nn

    parallel = multiprocessing.get_context("spawn")
    workers = cores()
    weights = nn.utils.parameters_to_vector(model_of(run).parameters()).detach().share_memory_()
    sums = torch.zeros(workers, len(weights)).share_memory_()
    steps = torch.zeros(workers, dtype=torch.int64).share_memory_()
    barrier = parallel.Barrier(workers + 1)
    processes = [
        parallel.Process(
            target=train_clients, args=(number, run, weights, sums, steps, barrier), daemon=True
        )
        for number in range(workers)
    ]
    for process in processes:
        process.start()
    torch.set_num_threads(1)
    for _ in range(run.rounds):
        barrier.wait(WAIT_S)  # the weights are there
        barrier.wait(WAIT_S)  # the sums are there
        torch.sum(sums, 0, out=weights).div_(CLIENTS)
        run.mark()
    for process in processes:
        process.join()
    run.finish(int(steps.sum()), [weights])


def train_clients(
    number: int, run: Run, weights: Tensor, sums: Tensor, steps: Tensor, barrier: Barrier
) -> None:
    """Train the process's clients in each round and add up their models. ``number``: of the first
    of them; every ``len(sums)``-th after it is one, too."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = model_of(run)
    parts = [run.client(k) for k in range(number, CLIENTS, len(sums))]
    for _ in range(run.rounds):
        barrier.wait(WAIT_S)
        sums[number].zero_()
        for x, y in parts:
            nn.utils.vector_to_parameters(weights.clone(), model.parameters())
            steps[number] += train(model, x, y, run)
            sums[number] += nn.utils.parameters_to_vector(model.parameters()).detach()
        barrier.wait(WAIT_S)


if __name__ == "__main__":
    main()
