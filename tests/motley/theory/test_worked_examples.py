"""The two worked examples of the chapter, to the last digit, through the parts that every run
uses."""

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms import CATALOGUE
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.losses import HalfSquaredError
from motley.algorithms.parts import Algorithm, LocalRule
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines.batched import Batched
from motley.engines.engine import Job, Setting
from motley.engines.local import Sequential
from motley.tasks.task import Federation, ModelState, Task


def trained(method, start, target, lr, steps, engine, memory=None, server=None):
    """The weight after local work on F = (w - target)^2 / 2: one sample with input 1, one weight,
    ``start`` received."""
    one = Ragged(np.array([0, 1]), np.array([0]))
    none = Ragged(np.array([0, 0]), np.zeros(0, np.int64))
    y = torch.tensor([[float(target)]], dtype=torch.float64)
    data = Federation(torch.ones(1, 1, dtype=torch.float64), y, one, y, none, none, None, None)
    task = Task("parabola", data, lambda: nn.Linear(1, 1, bias=False), "half_squared_error", "loss")
    algorithm = CATALOGUE.build(method).change(
        Algorithm(HalfSquaredError(), LocalRule(), Mean(), Average())
    )
    setting = Setting(task, algorithm, SGD(lr=lr), LocalWork(1, steps=steps), dtype=torch.float64)
    empty = torch.zeros(0, dtype=torch.float64)
    state = algorithm.server.init(
        ModelState(torch.tensor([start], dtype=torch.float64), empty, empty.long()), 1
    )
    state.extra.update({} if server is None else server)
    kept = {} if memory is None else {0: memory}
    (done,) = engine(setting).train(
        [Job(0, 0, steps, lr)], setting.algorithm.local.download(state), kept
    )
    return start + done.parts["delta"].value.item()


@pytest.mark.parametrize("engine", [Sequential, Batched])
def test_fedprox_of_the_chapter(engine):
    """w_t = 4, F = (w - 1)^2 / 2, mu = 0.5, lr = 0.2. Step 1: gradient 3, no pull, 4 - 0.6 = 3.4.
    Step 2: gradient 2.4, pull 0.5 (3.4 - 4) = -0.3, 3.4 - 0.2 * 2.1 = 2.98; without the pull 3.4 -
    0.2 * 2.4 = 2.92."""
    prox = {"name": "fedprox", "mu": 0.5}
    assert [round(trained(prox, 4.0, 1.0, 0.2, n, engine), 12) for n in (1, 2)] == [3.4, 2.98]
    assert [round(trained("fedavg", 4.0, 1.0, 0.2, n, engine), 12) for n in (1, 2)] == [3.4, 2.92]


@pytest.mark.parametrize("engine", [Sequential, Batched])
def test_scaffold_of_the_chapter(engine):
    """g = 6 (w = 3 on (w + 3)^2 / 2), c_k = 4.5, c = 2, lr = 0.1: w - 0.1 (6 - 4.5 + 2) = 3 - 0.35
    = 2.65; FedAvg 3 - 0.6 = 2.4."""
    variates = {
        "memory": {"c": torch.tensor([4.5]).double()},
        "server": {"c": torch.tensor([2.0]).double()},
    }
    assert round(trained("scaffold", 3.0, -3.0, 0.1, 1, engine, **variates), 12) == 2.65
    assert round(trained("fedavg", 3.0, -3.0, 0.1, 1, engine), 12) == 2.4
