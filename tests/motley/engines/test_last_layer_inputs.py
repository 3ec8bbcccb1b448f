"""Losses that compare features of several models: training against a loop written out, and the
engines that take them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from motley.algorithms.losses import CrossEntropy
from motley.algorithms.moon import ContrastiveLoss, PreviousModel
from motley.core.work import LocalWork
from motley.engines import resolve_auto
from motley.engines.batched import Batched, Vmap
from motley.engines.batches import BatchPlan
from motley.engines.engine import Job
from motley.engines.local import Sequential, Threads

from .conftest import TwoProcesses


def normed():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


def _module(x, buffers, counters=None):
    """The network with these vectors: running means, then variances."""
    module = normed().double()
    nn.utils.vector_to_parameters(x, module.parameters())
    module[1].running_mean.copy_(buffers[:5]), module[1].running_var.copy_(buffers[5:])
    return module


@pytest.mark.parametrize("engine", [Sequential, Threads, TwoProcesses])
def test_training_is_the_loop_written_out(setting, jobs, download, engine):
    """Three modules, the frozen ones in eval mode with statistics of their own; batches from the
    job's plan; SGD by hand."""
    s = setting(
        normed,
        local=PreviousModel(),
        loss=ContrastiveLoss(CrossEntropy(), 2.0, 0.5),
        threads=2,
    )
    s = type(s)(
        s.task,
        s.algorithm,
        s.solver,
        LocalWork(batch_size=5, epochs=2, drop_single=True),
        s.streams,
        s.dtype,
    )
    sent = download(s)
    first = PreviousModel().initial_state(type("State", (), sent)())
    job = Job(5, 3, 6, 0.1)
    before = next(iter(engine(s).train([job], sent, {5: first})))
    client_state = before.client_state
    assert client_state["rounds"].item() == 1
    torch.testing.assert_close(
        client_state["x"], sent["x"] + before.parts["delta"].value, rtol=1e-14, atol=1e-15
    )
    again = Job(5, 9, 6, 0.1)
    found = next(iter(engine(s).train([again], sent, {5: client_state})))

    data = s.task.federation
    rows = torch.from_numpy(data.train[5])
    offset = int(data.train.offsets[5])
    net = _module(sent["x"].clone(), sent["buffers"].clone()).train()
    received = _module(sent["x"], sent["buffers"]).eval()
    previous = _module(client_state["x"], client_state["buffers"]).eval()
    plan = BatchPlan.draw(s.key("batches", again), len(rows), s.work, 6)
    for step in range(6):
        at = torch.from_numpy(plan[step])
        inputs = data.x[rows[at]].double()
        targets = data.labels[offset + at]
        z = net[:3](inputs)
        with torch.no_grad():
            cosines = [
                nn.functional.cosine_similarity(z, other[:3](inputs))
                for other in (received, previous)
            ]
        near, far = (
            nn.functional.cosine_similarity(z, other[:3](inputs).detach())
            for other in (received, previous)
        )
        assert not torch.equal(*cosines)
        logits = torch.stack([near, far], 1) / 0.5
        extra = nn.functional.cross_entropy(logits, torch.zeros(len(z), dtype=torch.int64))
        loss = nn.functional.cross_entropy(net[3](z), targets) + 2.0 * extra
        slopes = torch.autograd.grad(loss, list(net.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(net.parameters(), slopes, strict=True):
                parameter -= 0.1 * slope
    after = nn.utils.parameters_to_vector(net.parameters()).detach()
    torch.testing.assert_close(found.client_state["x"], after, rtol=1e-11, atol=1e-13)
    wanted = torch.cat([net[1].running_mean, net[1].running_var])
    torch.testing.assert_close(found.client_state["buffers"], wanted, rtol=1e-11, atol=1e-13)
    assert found.client_state["rounds"].item() == 2


def test_only_engines_with_one_client_a_module_take_it(setting):
    s = setting(normed, loss=ContrastiveLoss(CrossEntropy()), local=PreviousModel())
    assert (
        "compares features of several models, which sequential and threads compute"
        in Batched.refuses(
            setting(
                lambda: nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4)),
                loss=ContrastiveLoss(CrossEntropy()),
            )
        )
    )
    assert Vmap.refuses(s) is not None
    assert resolve_auto(s) == "threads"
    conv = setting(
        lambda: nn.Sequential(nn.Conv2d(1, 4, 6), nn.Flatten()),
        (1, 6, 6),
        loss=ContrastiveLoss(CrossEntropy()),
    )
    assert "the model has no linear layer" in Sequential.refuses(conv)
    assert "the model has no linear layer" in Threads.refuses(conv)
