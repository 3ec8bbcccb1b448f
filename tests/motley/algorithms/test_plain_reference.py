"""Rounds of FedAvg, FedPer, FedRep and Ditto against the methods' descriptions written out with
torch alone, on the same batches.

Nothing of the library computes here but the batches' indices: models are whole modules that are
copied, and optimizers are torch's.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from motley.algorithms.ditto import Ditto
from motley.algorithms.fedavg import FedAvg
from motley.algorithms.fedper import FedPer
from motley.algorithms.fedrep import FedRep
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.parts import Method
from motley.core.keys import Key
from motley.core.work import LocalWork
from motley.engines.batches import BatchPlan
from motley.engines.engine import Job
from motley.tasks.flat import initial
from motley.tasks.task import ModelState
from motley.testing.algorithms import COHORTS, MODELS, SIZES, Play

LR = 0.1
HEAD = "2."
LAM = 0.7
HEAD_EPOCHS = 2
WORK = LocalWork(batch_size=5, epochs=2)


class Plain:
    """The shared model, and what each client keeps, as modules."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.data = play.setting.task.federation
        self.shared = MODELS[play.model]().double()
        start = initial(play.setting.task.model, Key(1), torch.float64)  # where Play starts
        nn.utils.vector_to_parameters(start.x.clone(), self.shared.parameters())
        self.first = copy.deepcopy(self.shared)
        self.own: dict[int, nn.Module] = {}

    def batches(self, job: Job, steps: int, phase: str = ""):
        key = self.play.setting.key("batches", job)
        plan = BatchPlan.draw(key.fold(phase) if phase else key, SIZES[job.client], WORK, steps)
        rows = torch.from_numpy(self.data.train[job.client])
        for step in range(steps):
            mine = rows[torch.from_numpy(plan[step])]
            yield self.data.x[mine], self.data.y[mine]

    def train(
        self, model: nn.Module, batches, moved: str = "", towards: nn.Module | None = None
    ) -> None:
        """Descend on the cross entropy, with lam / 2 times the squared distance to ``towards``;
        ``moved``: "head", "base" or all."""
        names = [name for name, _ in model.named_parameters()]
        chosen = [name for name in names if not moved or name.startswith(HEAD) == (moved == "head")]
        anchor = {} if towards is None else dict(copy.deepcopy(towards).named_parameters())
        values = dict(model.named_parameters())
        optimiser = torch.optim.SGD([values[name] for name in chosen], lr=LR)
        for x, y in batches:
            loss = F.cross_entropy(model(x), y)
            loss = loss + sum(
                LAM / 2 * (values[name] - anchor[name].detach()).square().sum() for name in anchor
            )
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()


def average(models: dict[int, nn.Module], into: nn.Module, only_base: bool) -> None:
    """Set the shared model to the mean of the clients', weighted by their samples."""
    total = sum(SIZES[k] for k in models)
    with torch.no_grad():
        for name, value in into.named_parameters():
            if not (only_base and name.startswith(HEAD)):
                value.copy_(
                    sum(
                        SIZES[k] / total * dict(model.named_parameters())[name]
                        for k, model in models.items()
                    )
                )


def plain_round(plain: Plain, method: Method, jobs: list[Job]) -> None:
    """Run one round of the method; the clients' own models end in ``plain.own``."""
    trained = {}
    for job in jobs:
        model = copy.deepcopy(plain.shared)
        steps = job.steps
        trained[job.client] = model
        if isinstance(method, FedPer | FedRep) and job.client in plain.own:
            model[2].load_state_dict(plain.own[job.client][2].state_dict())
        if isinstance(method, FedRep):
            whole = -(-SIZES[job.client] // WORK.batch_size)
            plain.train(model, plain.batches(job, HEAD_EPOCHS * whole), moved="head")
            plain.train(model, plain.batches(job, steps, "base"), moved="base")
        else:
            plain.train(model, plain.batches(job, steps))
        if isinstance(method, Ditto):
            own = plain.own.get(job.client) or copy.deepcopy(plain.first)
            plain.train(own, plain.batches(job, steps), towards=plain.shared)
            plain.own[job.client] = own
        elif not isinstance(method, FedAvg):
            plain.own[job.client] = model
    average(trained, plain.shared, only_base=isinstance(method, FedPer | FedRep))


@pytest.mark.parametrize(
    "method", [FedAvg(), FedPer(), FedRep(head_epochs=HEAD_EPOCHS), Ditto(lam=LAM)], ids=str
)
def test_rounds_are_those_of_the_method_written_out(method: Method) -> None:
    """Float64, unequal clients, short last batches, another cohort every round: all agree to
    1e-9."""
    play = Play(method, "examples", SGD(lr=LR))
    plain = Plain(play)
    for number, cohort in enumerate(COHORTS):
        play.round(number, cohort)
        plain_round(plain, method, play.jobs(number, tuple(sorted(cohort))))
        download = play.algorithm.local.download(play.server)
        for client in range(len(SIZES)):
            examined = play.algorithm.local.examined(
                download, play.client_states.get(client, play.first)
            )
            close(examined, expected(plain, method, client))


def expected(plain: Plain, method: Method, client: int) -> nn.Module:
    """Return the model that a client uses."""
    if isinstance(method, Ditto):
        return plain.own.get(client, plain.first)
    model = copy.deepcopy(plain.shared)
    if client in plain.own:
        model[2].load_state_dict(plain.own[client][2].state_dict())
    return model


def close(found: ModelState, want: nn.Module) -> None:
    flat = nn.utils.parameters_to_vector(want.parameters()).detach()
    torch.testing.assert_close(found.x, flat, rtol=0.0, atol=1e-9)
