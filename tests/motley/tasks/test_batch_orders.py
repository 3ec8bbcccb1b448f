"""Orders of batches: passes that go on across rounds, torch's own, and what engines make of
them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

import motley
from motley.core.errors import ConfigError, DataError
from motley.tasks import from_clients, own_task
from motley.tasks.batch_orders import Carried, TorchLoaders, batches_of

SIZES = (5, 3)


def lists(order, seed: int, client: int, count: int) -> list[list[int]]:
    return [batch.tolist() for batch in itertools.islice(order(seed, client), count)]


def test_passes_go_on_and_are_without_replacement():
    """Five samples in batches of 2: 2, 2, 1; the next pass is another permutation."""
    batches = lists(Carried(SIZES, 2), 0, 0, 6)
    assert [len(batch) for batch in batches] == [2, 2, 1, 2, 2, 1]
    passes = [np.concatenate(half).tolist() for half in (batches[:3], batches[3:])]
    assert [sorted(order) for order in passes] == [[0, 1, 2, 3, 4]] * 2
    assert passes[0] != passes[1]
    assert lists(Carried(SIZES, 2), 1, 0, 6) != batches != lists(Carried(SIZES, 2), 0, 1, 6)


class Loaders:
    """Loaders of torch that take turns, as a training script has them."""

    def __init__(self, seed: int, made_before: bool) -> None:
        self.loaders = [DataLoader(range(n), batch_size=2, shuffle=True) for n in SIZES]
        self.iterators: list[Iterator[torch.Tensor] | None] = [None, None]
        if made_before:
            self.iterators = [iter(loader) for loader in self.loaders]
        torch.manual_seed(seed)

    def batch(self, client: int) -> list[int]:
        iterator = self.iterators[client]
        batch = None if iterator is None else next(iterator, None)
        if batch is None:
            iterator = self.iterators[client] = iter(self.loaders[client])
            batch = next(iterator)
        return batch.tolist()


@pytest.mark.parametrize("made_before", [True, False])
@pytest.mark.parametrize("turns", [(), (1, 1, 0, 1)])
def test_torchs_loaders_give_the_same_batches(made_before, turns):
    with torch.random.fork_rng(devices=[]):
        loaders = Loaders(42, made_before)
        taken: list[list[list[int]]] = [[], []]
        for client in turns or (0, 1, 0, 1):
            taken[client] += [loaders.batch(client) for _ in range(4)]
    order = TorchLoaders(SIZES, 2, steps=4, turns=turns, made_before=made_before)
    for client, batches in enumerate(taken):
        assert lists(order, 42, client, len(batches)) == batches


def test_first_passes_that_were_drawn_before_the_seed():
    """Loaders with workers draw the first pass when they are made; the second is then the first
    that is drawn after the seed."""
    ahead = lists(TorchLoaders(SIZES, 2, steps=6, turns=(0,), first_seeds=(7, 9)), 42, 0, 6)
    first = torch.randperm(5, generator=torch.Generator().manual_seed(7)).tolist()
    assert ahead[:3] == [first[:2], first[2:4], first[4:]]
    assert ahead[3:] == lists(TorchLoaders(SIZES, 2, steps=3, turns=(0,)), 42, 0, 3)


def test_an_order_that_ends_is_told():
    order = TorchLoaders(SIZES, 2, steps=4, turns=(1,))
    message = "ends after 4 local steps of client 1, and 6 are needed"
    with pytest.raises(DataError, match=message):
        batches_of(order, 42, 1, range(2, 6), examples=3)


@pytest.mark.parametrize("batch", [[], [3], [-1], [[0, 1]]])
def test_batches_are_of_the_clients_own_samples(batch):
    with pytest.raises(DataError, match=r"at step 0 of client 1; expected positions from 0 to 2"):
        batches_of(lambda seed, client: [batch], 0, 1, range(1), examples=3)


def in_turn(seed: int, client: int) -> Iterator[list[int]]:
    """One sample after the other."""
    return ([number % 3] for number in itertools.count())


def experiment(**keys):
    base = {
        "task": "own",
        "cohort": 1,
        "stop": {"rounds": 2},
        "local": {"steps": 2, "batch_size": 1, "optimizer": {"lr": 1.0}},
        "dtype": "float64",
        "evaluate": {"per_client": False},
    }
    return {**base, **keys}


@pytest.mark.parametrize("engine", ["sequential", "batched", "vmap"])
def test_rounds_go_on_in_the_order(engine, tmp_path):
    """Targets 1, 10, 100; a step of rate 1 on (w - y)^2 / 2 lands on the sample's own target. After
    two rounds of two steps the last sample was number 3, which is 0 again: 1. Begun anew in every
    round it would be 10."""
    x = np.ones((3, 1), np.float32)
    y = np.array([[1.0], [10.0], [100.0]], np.float32)
    federation = from_clients([(x, y)], test=[(x, y)], regression=True)
    for batches, target in [(in_turn, 1.0), (lambda seed, client: ([1],) * 2, None)]:
        task = own_task(federation, lambda: nn.Linear(1, 1, bias=False), batches=batches)
        out = tmp_path / str(target)
        if target is None:
            with pytest.raises(DataError, match="ends after 2 local steps of client 0"):
                motley.run(experiment(engine=engine), task=task, out=out)
        else:
            run = motley.run(experiment(engine=engine), task=task, out=out)
            assert run.module().weight.item() == pytest.approx(target)


def test_a_run_that_goes_on_goes_on_in_the_order(tmp_path):
    x = np.ones((3, 1), np.float32)
    y = np.array([[1.0], [10.0], [100.0]], np.float32)
    federation = from_clients([(x, y)], test=[(x, y)], regression=True)
    task = own_task(federation, lambda: nn.Linear(1, 1, bias=False), batches=in_turn)
    for rounds, target in [(1, 10.0), (2, 1.0)]:
        keys = experiment(stop={"rounds": rounds})
        run = motley.run(keys, task=task, out=tmp_path / "run", resume=rounds == 2)
        assert run.module().weight.item() == pytest.approx(target)


def test_phases_of_a_methods_own_are_refused():
    x = np.ones((4, 1), np.float32)
    federation = from_clients([(x, np.array([0, 1, 0, 1]))], test_fraction=0.5)
    task = own_task(federation, lambda: nn.Linear(1, 2), batches=in_turn)
    with pytest.raises(ConfigError, match="OwnModel has phases of its own"):
        motley.run(experiment(algorithm="ditto"), task=task)


def test_the_order_is_in_the_run_id():
    x = np.ones((4, 1), np.float32)
    federation = from_clients([(x, np.array([0, 1, 0, 1]))], test_fraction=0.5)

    def run_id(batches):
        task = own_task(federation, lambda: nn.Linear(1, 2), batches=batches)
        return motley.Experiment(**experiment(task=task)).run_id()

    ids = {run_id(order) for order in (None, in_turn, Carried((2,), 1), Carried((2,), 2))}
    assert len(ids) == 4
