"""A class per position, and several labels per sample: every engine does what the reference does,
and hits are counted by hand."""

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.flash_robust import FlashRobust
from motley.algorithms.losses import BinaryCrossEntropy, CrossEntropy
from motley.core.keys import Key
from motley.engines.batched import Batched, Vmap
from motley.engines.local import Sequential, Threads
from motley.tasks.task import ModelState

from .conftest import TwoProcesses


class Steps(nn.Module):
    """A small network with an output per position: [B, 3, 2] -> [B, 3, 4]."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(2, 5)
        self.outer = nn.Linear(5, 4)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def stack():
    return nn.Sequential(nn.Flatten(), nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 4))


def positions(setting, **given):
    made = setting(Steps, (3, 2), threads=2, **given)
    data = made.task.federation
    rng = np.random.default_rng(1)
    y = torch.from_numpy(rng.integers(0, 4, (len(data.y), 3)))
    y[::4, 1:] = -100
    data = dataclasses.replace(data, y=y, labels=y[torch.from_numpy(data.train.values)])
    return dataclasses.replace(made, task=dataclasses.replace(made.task, federation=data))


def multilabel(setting):
    made = setting(stack, (3, 2), loss=BinaryCrossEntropy(), threads=2)
    data = made.task.federation
    rng = np.random.default_rng(1)
    y = torch.from_numpy(rng.integers(0, 2, (len(data.y), 4))).double()
    data = dataclasses.replace(data, y=y, labels=y[torch.from_numpy(data.train.values)])
    return dataclasses.replace(
        made, task=dataclasses.replace(made.task, federation=data, loss="bce")
    )


CASES = {
    "positions": (positions, (Threads, Vmap, TwoProcesses)),
    "robust": (
        lambda setting: positions(setting, loss=FlashRobust()),
        (Threads, Vmap, TwoProcesses),
    ),
    "multilabel": (multilabel, (Threads, Batched, Vmap, TwoProcesses)),
}


@pytest.mark.parametrize(
    ("case", "engine"),
    [(case, engine) for case, (_, engines) in CASES.items() for engine in engines],
)
def test_engines_agree(setting, jobs, download, case, engine):
    s = CASES[case][0](setting)
    sent = download(s)
    want = frozenset({"loss_rms"})
    work = jobs(s)
    other = engine(s)
    reference = Sequential(s)
    for a, b in zip(
        reference.train(work, sent, {}, want), other.train(work, sent, {}, want), strict=True
    ):
        torch.testing.assert_close(
            b.parts["delta"].value, a.parts["delta"].value, rtol=1e-10, atol=1e-12
        )
        assert b.signals["loss"] == pytest.approx(a.signals["loss"], rel=1e-10)
        assert b.signals["loss_rms"] == pytest.approx(a.signals["loss_rms"], rel=1e-10)
    probed = {"loss": 1, "grad_norm": None} | (
        {"robust_loss": None} if case != "multilabel" else {}
    )
    measured = [e.measure(np.arange(8), sent, {}, probed, Key(5)) for e in (reference, other)]
    for name in probed:
        np.testing.assert_allclose(measured[1][name], measured[0][name], rtol=1e-10)
    model = ModelState(sent["x"], sent["buffers"], sent["counters"])
    want = frozenset(
        {"hit", "predicted", "outputs", *(("nll", "top2") if case != "multilabel" else ())}
    )
    found = [e.evaluate(model, np.arange(20), want=want) for e in (reference, other)]
    assert found[0].keys() == found[1].keys() == want | {"loss"}
    for name in want:
        np.testing.assert_allclose(found[1][name], found[0][name], rtol=1e-12)
    other.close()


def test_a_stack_has_no_output_per_position(setting):
    made = positions(setting)
    stacked = dataclasses.replace(
        made, task=dataclasses.replace(made.task, model=stack, layout=None)
    )
    assert (
        Batched.refuses(stacked)
        == "the targets are a class per position, and a stack gives one output per sample"
    )


def test_the_share_of_right_positions_by_hand(setting):
    made = positions(setting)
    x = torch.tensor([[[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]] * 2)
    # the module below says 0, 1, 0: 1 of 2 right, 2 of 3 right
    y = torch.tensor([[0, 0, -100], [0, 1, 1]])
    data = dataclasses.replace(made.task.federation, x=x, y=y, classes=2)

    def module():
        linear = nn.Linear(2, 2, bias=False)
        linear.weight.data.copy_(torch.eye(2))
        return linear

    task = dataclasses.replace(made.task, federation=data, model=module, layout=None)
    engine = Sequential(dataclasses.replace(made, task=task))
    model = ModelState(
        torch.eye(2).double().flatten(), torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    )
    found = engine.evaluate(model, np.arange(2))
    loss = found["loss"]
    hit = found["hit"]
    assert hit.tolist() == pytest.approx([1 / 2, 2 / 3])
    right = np.log(1 + np.exp(-1))
    wrong = np.log(1 + np.exp(1))
    assert loss.tolist() == pytest.approx([(right + wrong) / 2, (2 * right + wrong) / 3])


def test_the_share_of_right_labels_by_hand(setting):
    made = multilabel(setting)
    data = dataclasses.replace(
        made.task.federation,
        x=torch.tensor([[1.0, -1.0, 2.0, 0.5]]),
        y=torch.tensor([[1.0, 0.0, 0.0, 1.0]]),
    )
    task = dataclasses.replace(
        made.task, federation=data, model=lambda: nn.Linear(4, 4, bias=False), layout=None
    )
    engine = Sequential(dataclasses.replace(made, task=task))
    model = ModelState(
        torch.eye(4).double().flatten(), torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    )
    assert engine.evaluate(model, np.arange(1))["hit"].tolist() == [3 / 4]


def test_the_loss_is_bound_to_the_targets(setting):
    assert positions(setting).algorithm.loss.within() == CrossEntropy()
    assert positions(setting).algorithm.loss != CrossEntropy()
