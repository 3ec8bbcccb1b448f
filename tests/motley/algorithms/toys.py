"""Two problems of one and two weights, small enough to work every number out by hand.

Toy A: one weight w, loss (w - c)^2 / 2 with the client's own c; the gradient at w is w - c.
Toy B: base b and head h, loss (h b - c)^2 / 2; the gradients are (h b - c) h and (h b - c) b.

Every client has one sample, and an epoch is one step.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average
from motley.algorithms.local_optimisers import SGD, Solver
from motley.algorithms.losses import HalfSquaredError
from motley.algorithms.parts import (
    Algorithm,
    ClientState,
    LocalRule,
    Loss,
    Method,
    ServerContext,
    Upload,
    aggregate,
)
from motley.core.keys import Streams
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines.engine import AdaptInputs, Job, Setting, TrainResult
from motley.engines.local import Sequential
from motley.tasks.task import Federation, ModelState, Task


def A():
    return nn.Linear(1, 1, bias=False)


def B():
    return nn.Sequential(nn.Linear(1, 1, bias=False), nn.Linear(1, 1, bias=False))


class Toy:
    """A method on a toy problem, round by round, with uniform weights.

    Parameters
    ----------
    method: under test. model: A or B. start: initial weights. targets: of each client. solver:
    local optimizer.
    loss: of targets that are classes; None: half the squared error.
    """

    def __init__(
        self,
        method: Method,
        model=A,
        start: Sequence[float] = (0.0,),
        targets: Sequence[float] = (4.0,),
        solver: Solver = SGD(lr=0.1),  # noqa: B008
        loss: Loss | None = None,
    ) -> None:
        count = len(targets)
        x = torch.ones(count, 1).double()
        y = torch.tensor(targets).double().unsqueeze(1)
        y = y if loss is None else y.flatten().long()
        train = Ragged(np.arange(count + 1), np.arange(count))
        none = Ragged(np.zeros(count + 1, np.int64), np.zeros(0, np.int64))
        task = Task(
            "toy",
            Federation(x, y, train, y.clone(), none, none, None, None),
            model,
            loss="half_squared_error",
        )
        plain = Algorithm(loss or HalfSquaredError(), LocalRule(), Mean(), Average())
        work = LocalWork(batch_size=1, epochs=1)
        self.setting = Setting(task, method.change(plain), solver, work, Streams(3), torch.float64)
        self.algorithm = self.setting.algorithm
        self.engine = Sequential(self.setting)
        model_state = ModelState(
            torch.tensor(start).double(), torch.zeros(0).double(), torch.zeros(0, dtype=torch.int64)
        )
        self.server = self.algorithm.server.init(self.algorithm.local.sent(model_state), count)
        self.first = self.algorithm.local.initial_state(model_state)
        self.kept: dict[int, ClientState] = {}
        self.number = 0

    def round(self, steps: int | Sequence[int] = 1) -> list[TrainResult]:
        """Run a round of all clients, with so many steps for all or for each."""
        clients = range(len(self.setting.task.federation))
        each = [steps] * len(clients) if isinstance(steps, int) else steps
        jobs = [Job(k, 10 * self.number + k, each[k], self.setting.solver.lr) for k in clients]
        states = {k: self.kept.get(k, self.first) for k in clients}
        done = list(self.engine.train(jobs, self.download, states))
        total = aggregate(
            self.algorithm.aggregator,
            [Upload(one.parts, 1.0, client=one.client) for one in done],
            "weight",
        )
        context = ServerContext(self.setting.task.layout, len(clients), len(clients))
        self.server = self.algorithm.server.update(self.server, total, context)
        self.kept |= {one.client: one.client_state for one in done if one.client_state is not None}
        self.number += 1
        return done

    @property
    def download(self):
        """What clients receive now."""
        return self.algorithm.local.download(self.server)

    @property
    def x(self) -> list[float]:
        """The server's weights."""
        return self.server.model.x.tolist()

    def examined(self, client: int = 0) -> list[float]:
        """The weights of the model that a client uses, before fine-tuning."""
        return self.algorithm.local.examined(
            self.download, self.kept.get(client, self.first)
        ).x.tolist()

    def adapted(self, steps: int) -> list[float]:
        """The weights of the model of client 0 after so many steps, if it were new."""
        model = self.algorithm.local.start(self.download, self.first)
        (after,) = self.engine.adapt(
            [Job(0, self.number, steps, self.setting.solver.lr)], [AdaptInputs(model)], "new"
        )
        return after.x.tolist()

    def tuned(self, client: int = 0) -> list[float]:
        """The weights of the model that a client uses."""
        model = self.algorithm.local.examined(self.download, self.kept.get(client, self.first))
        tuning = self.algorithm.tuning
        steps = self.setting.tuning_steps(np.array([client]))
        lr = tuning.lr or self.setting.solver.lr
        (after,) = self.engine.adapt(
            [Job(client, self.number, int(steps[0]), lr)], [AdaptInputs(model)]
        )
        return after.x.tolist()

    def prepared(self, client: int = 0) -> list[float]:
        """The weights of the model that a client uses, after the local work that its method asks
        for before an examination."""
        begun = AdaptInputs(
            self.algorithm.local.start(self.download, self.kept[client]), self.kept[client]
        )
        (after,) = self.engine.adapt(
            [Job(client, self.number, 0, self.setting.solver.lr)], [begun], "examine"
        )
        return after.x.tolist()
