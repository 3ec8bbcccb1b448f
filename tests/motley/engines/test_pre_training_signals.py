"""What a correction may know before the first step: the loss and the gradient of the received
model, on every engine."""

import dataclasses

import pytest
import torch
from torch import nn

from motley.algorithms.parts import JobContext, LocalRule, Part
from motley.engines.batched import Batched, Vmap
from motley.engines.local import Debug, Sequential, Threads

from .conftest import TwoProcesses


@dataclasses.dataclass(frozen=True)
class Curious(LocalRule):
    """Uploads the signals that were measured for it."""

    wants: frozenset = frozenset({"loss", "gradient"})

    @property
    def pre_training(self):
        return self.wants

    def finish(self, after, ctx: JobContext):
        parts, client_state = super().finish(after, ctx)
        measured = torch.tensor([ctx.pre_training.loss], dtype=torch.float64)
        gradient = (
            torch.zeros(0) if ctx.pre_training.gradient is None else ctx.pre_training.gradient
        )
        return {
            **parts,
            "loss": Part(measured, "mean"),
            "gradient": Part(gradient, "mean"),
        }, client_state


def mlp():
    return nn.Sequential(nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


def normed():
    return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 4))


@pytest.mark.parametrize(
    ("engine", "model"),
    [
        (Sequential, mlp),
        (Threads, mlp),
        (Batched, mlp),
        (Vmap, mlp),
        (Debug, mlp),
        (TwoProcesses, mlp),
        (Sequential, normed),
        (Threads, normed),
        (TwoProcesses, normed),
    ],
)
def test_it_is_the_received_model_in_eval_mode_over_all_samples(
    setting, jobs, download, engine, model
):
    s = setting(model, local=Curious(), threads=2)
    sent = download(s)
    data = s.task.federation
    done = list(engine(s).train(jobs(s), sent, {}))
    for trained in done:
        module = model().double()
        # its running statistics are those of the start: 0 and 1
        nn.utils.vector_to_parameters(sent["x"], module.parameters())
        rows = torch.from_numpy(data.train[trained.client])
        first = int(data.train.offsets[trained.client])
        loss = nn.functional.cross_entropy(
            module.eval()(data.x[rows].double()), data.labels[first : first + len(rows)]
        )
        gradient = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(module.parameters()))]
        )
        assert trained.parts["loss"].value.item() == pytest.approx(loss.item(), rel=1e-12)
        torch.testing.assert_close(trained.parts["gradient"].value, gradient, rtol=1e-9, atol=1e-12)
    # measuring moves no statistics: training is what it is without
    if engine is Sequential and model is normed:
        plain = list(engine(setting(model)).train(jobs(s), sent, {}))
        for a, b in zip(done, plain, strict=True):
            assert all(torch.equal(a.parts[name].value, b.parts[name].value) for name in b.parts)


def test_only_requested_signals_are_measured(setting, jobs, download):
    s = setting(mlp, local=Curious(frozenset({"loss"})))
    trained = next(
        iter(
            Sequential(s).train(jobs(s), download(s), {}, frozenset({"arrival_loss", "grad_norm"}))
        )
    )
    assert not trained.parts["gradient"].value.numel()
    assert trained.signals["arrival_loss"] == trained.parts["loss"].value.item()
    nothing = next(
        iter(Sequential(setting(mlp, local=Curious(frozenset()))).train(jobs(s), download(s), {}))
    )
    assert nothing.parts["loss"].value.isnan()
    assert not nothing.finite
