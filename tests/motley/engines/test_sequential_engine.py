"""The reference engine against plain PyTorch, and the worked example of the chapter."""

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.fedprox import Proximal
from motley.algorithms.local_optimisers import SGD, Clip
from motley.algorithms.losses import HalfSquaredError
from motley.core.ragged import Ragged
from motley.core.work import LocalWork
from motley.engines.batches import BatchPlan
from motley.engines.engine import Job, Setting
from motley.engines.local import Sequential
from motley.tasks.task import Federation, Task


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


def by_hand(
    setting: Setting, job: Job, x: torch.Tensor, mu: float, optimizer
) -> tuple[torch.Tensor, list[float]]:
    """The textbook loop: a module, torch's own optimizer, the proximal term in the loss."""
    model = setting.task.model().double()
    nn.utils.vector_to_parameters(x.clone(), model.parameters())
    anchor = [p.detach().clone() for p in model.parameters()]
    data = setting.task.federation
    solver = optimizer(model.parameters())
    rows = torch.from_numpy(data.train[job.client])
    labels = data.labels[
        int(data.train.offsets[job.client]) : int(data.train.offsets[job.client + 1])
    ]
    plan = BatchPlan.draw(setting.key("batches", job), len(rows), setting.work, job.steps)
    losses = []
    for step in range(job.steps):
        at = torch.from_numpy(plan[step])
        loss = nn.functional.cross_entropy(model(data.x[rows[at]].double()), labels[at])
        losses.append(loss.item())
        prox = sum(((p - a) ** 2).sum() for p, a in zip(model.parameters(), anchor, strict=True))
        solver.zero_grad()
        (loss + mu / 2 * prox).backward()
        if setting.solver.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), setting.solver.clip.norm)
        solver.step()
    return nn.utils.parameters_to_vector(model.parameters()).detach(), losses


CASES = [
    (SGD(lr=0.1), 0.0),
    (SGD(lr=0.1), 0.7),
    (SGD(lr=0.1, momentum=0.9), 0.7),
    (SGD(lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01), 0.3),
    (SGD(lr=0.1, momentum=0.5, clip=Clip(0.3)), 0.3),
]


@pytest.mark.parametrize(("solver", "mu"), CASES)
def test_the_reference_is_the_textbook_loop(setting, jobs, download, solver, mu):
    s = setting(mlp, solver=solver, local=Proximal(mu))
    sent = download(s)
    for job, out in zip(jobs(s), Sequential(s).train(jobs(s), sent, {}), strict=True):
        wanted, losses = by_hand(
            s,
            job,
            sent["x"],
            mu,
            lambda p: torch.optim.SGD(
                p,
                solver.lr,
                solver.momentum,
                weight_decay=solver.weight_decay,
                nesterov=solver.nesterov,
            ),
        )
        # torch divides the norm by 1e-6 more when it clips, hence the tolerance
        tolerance = 1e-5 if solver.clip else 1e-12
        torch.testing.assert_close(
            sent["x"] + out.parts["delta"].value, wanted, rtol=tolerance, atol=tolerance
        )
        assert out.signals["loss"] == pytest.approx(np.mean(losses), rel=max(tolerance, 1e-9))
        assert out.steps == job.steps


def parabola() -> Task:
    """F = (w - 1)^2 / 2: one sample with input 1 and target 1, one weight."""
    one = Ragged(np.array([0, 1]), np.array([0]))
    none = Ragged(np.array([0, 0]), np.zeros(0, np.int64))
    data = Federation(
        torch.ones(1, 1), torch.ones(1, 1), one, torch.ones(1, 1), none, none, None, None
    )
    return Task("parabola", data, lambda: nn.Linear(1, 1, bias=False), "half_squared_error", "loss")


@pytest.mark.parametrize(
    ("mu", "steps", "wanted"), [(0.5, 1, 3.4), (0.5, 2, 2.98), (0.0, 1, 3.4), (0.0, 2, 2.92)]
)
def test_the_worked_example_of_the_chapter(setting, mu, steps, wanted):
    """w = 4, lr = 0.2. Step 1: gradient 3, no pull yet, 4 - 0.6 = 3.4. Step 2: gradient 2.4, pull
    0.5 * (3.4 - 4) = -0.3, 3.4 - 0.2 * 2.1 = 2.98; without the pull 3.4 - 0.48 = 2.92."""
    plain = setting(mlp, local=Proximal(mu), loss=HalfSquaredError()).algorithm
    s = Setting(parabola(), plain, SGD(lr=0.2), LocalWork(1, steps=steps), dtype=torch.float64)
    empty = torch.zeros(0, dtype=torch.float64)
    sent = {
        "x": torch.tensor([4.0], dtype=torch.float64),
        "buffers": empty,
        "counters": empty.long(),
    }
    (out,) = Sequential(s).train([Job(0, 0, steps, 0.2)], sent, {})
    assert 4.0 + out.parts["delta"].value.item() == pytest.approx(wanted, abs=1e-12)


def test_fedprox_at_zero_is_fedavg_bit_for_bit(setting, jobs, download):
    plain = setting(mlp, dtype=torch.float32)
    prox = setting(mlp, local=Proximal(0.0), dtype=torch.float32)
    sent = download(plain)
    pairs = zip(
        Sequential(plain).train(jobs(plain), sent, {}),
        Sequential(prox).train(jobs(prox), sent, {}),
        strict=True,
    )
    for a, b in pairs:
        assert torch.equal(a.parts["delta"].value, b.parts["delta"].value)
