"""FedDF: the worked numbers of docs/methods/algorithms.md#feddf, its edges, and the traps of
weighting and early stopping."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from torch import nn

from motley.algorithms.feddf import FedDF, divergence, ensemble
from motley.algorithms.flat_adam import FlatAdam, clipped
from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.tasks.flat import FlatNetwork
from motley.tasks.task import LossGradient, ModelState
from tests.motley.algorithms.server_contexts import context, folded, model, network, ones, state

HELD = (ones(2), torch.tensor([0, 1]))


def test_logits_are_averaged_before_the_softmax():
    """Logits (2, 0), (0, 0): mean (1, 0), softmax (e/(e+1), 1/(e+1)) = (.731059, .268941). The
    average of the two softmaxes (.880797, .119203), (.5, .5) would be (.690399, .309601). KL to a
    uniform student: .731059 ln(1.462117) + .268941 ln(.537883)
    = .277753 - .166810 = .110944."""
    q = ensemble([model(2.0, 0.0), model(0.0, 0.0)], ones(1), network())
    assert q[0].tolist() == pytest.approx([0.731059, 0.268941], abs=5e-7)
    assert divergence(q)(torch.zeros(1, 2).double()).item() == pytest.approx(0.110944, abs=5e-7)


def test_one_output_for_two_classes_teaches_as_two_outputs_do():
    """The outputs 2 and 0 stand for the logits (0, 2), (0, 0): q = (.268941, .731059)."""
    network = FlatNetwork(lambda: nn.Linear(1, 1, bias=False), torch.float64)
    teachers = [dataclasses.replace(model(2.0, 0.0), x=torch.tensor([w]).double()) for w in (2, 0)]
    q = ensemble(teachers, torch.ones(1, 1).double(), network)
    assert q[0].tolist() == pytest.approx([0.268941, 0.731059], abs=5e-7)
    assert divergence(q)(torch.zeros(1, 1).double()).item() == pytest.approx(0.110944, abs=5e-7)


def test_temperature_divides_logits_on_both_sides_and_multiplies_nothing():
    """T = 2: q of (2, 0), (0, 0) is softmax(.5, 0); a student with logits (1, 0) says the same, so
    the loss is 0."""
    q = ensemble([model(2.0, 0.0), model(0.0, 0.0)], ones(1), network(), temperature=2.0)
    assert q[0, 0].item() == pytest.approx(1 / (1 + math.exp(-0.5)))
    assert divergence(q, 2.0)(torch.tensor([[1.0, 0.0]]).double()).item() == pytest.approx(
        0.0, abs=1e-15
    )


def test_identical_teachers_and_student_have_nothing_to_learn():
    """Loss and gradient are 0 up to rounding."""
    torch.manual_seed(0)
    net = FlatNetwork(
        lambda: nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 5)), torch.float64
    )
    same = net.flat.state()
    inputs = torch.randn(20, 3, generator=torch.Generator().manual_seed(1)).double()
    slope = net.loss_gradient(same, inputs, divergence(ensemble([same] * 3, inputs, net)))
    assert slope.loss == pytest.approx(0.0, abs=1e-14)
    assert slope.gradient.abs().max().item() < 1e-15


def test_a_teacher_that_is_not_finite_is_left_out():
    q = ensemble([model(2.0, 0.0), model(math.nan, 0.0), model(math.inf, 0.0)], ones(1), network())
    assert q[0, 0].item() == pytest.approx(1 / (1 + math.exp(-2.0)))
    assert ensemble([model(math.nan, 0.0)], ones(1), network()) is None


def test_without_any_teacher_the_average_stays():
    total = folded([math.inf, 0.0], [math.inf, 0.0])
    total["delta"] = torch.tensor([1.0, 2.0]).double()
    after = FedDF(steps=3).update(state(0.0, 0.0), total, context(public=ones(4), validation=HELD))
    assert after.model.x.tolist() == [1.0, 2.0]


def test_one_upload_is_not_distilled():
    """And needs no room for it."""
    after = FedDF(steps=50).update(state(1.0, 1.0), folded([2.0, -1.0]), context(network=None))
    assert after.model.x.tolist() == [3.0, 0.0]


def test_weights_count_in_the_average_and_not_among_teachers():
    """Weights 3 and 1: the student starts at .75 of the way, the ensemble's logits are the plain
    mean."""
    total = folded([4.0, 0.0], [0.0, 0.0], weights=[3.0, 1.0])
    assert FedDF(steps=0).update(state(0.0, 0.0), total, context()).model.x.tolist() == [3.0, 0.0]
    spy = Scripted([0.5])
    FedDF(steps=1).update(
        state(0.0, 0.0), total, context(network=spy, public=ones(1), validation=HELD)
    )
    loss = spy.losses[0]
    assert loss(torch.tensor([[2.0, 0.0]]).double()).item() == pytest.approx(0.0, abs=1e-15)


class Scripted:
    """A network with a constant gradient, whose validation accuracy is told beforehand."""

    def __init__(self, accuracies, gradient=(1.0, -1.0)):
        self.accuracies = list(accuracies)
        self.g = torch.tensor(gradient).double()
        self.losses = []
        self.modes = []

    def outputs(self, state, inputs):
        if inputs is not HELD[0]:
            return state.x.expand(len(inputs), -1)
        right = self.accuracies.pop(0)
        return torch.tensor(
            [[1.0, 0.0] if right > 0.25 else [0.0, 1.0], [0.0, 1.0] if right > 0.75 else [1.0, 0.0]]
        ).double()

    def loss_gradient(self, state, inputs, loss, training=None):
        self.losses.append(loss)
        self.modes.append(training)
        return LossGradient(1.0, self.g, state)


def distilled(spy, **options):
    total = folded([0.0, 0.0], [0.0, 0.0])
    return (
        FedDF(**options)
        .update(state(0.0, 0.0), total, context(network=spy, public=ones(8), validation=HELD))
        .model.x
    )


def test_adam_anneals_along_a_cosine():
    """A constant gradient makes every Adam step its rate long (m^ = g, v^ = g^2). J = 2: rates .001
    (1 + cos 0) / 2 = .001 and .001 (1 + cos(pi/2)) / 2 = .0005, so the student goes .0015 against
    the gradient's signs."""
    x = distilled(Scripted([0.5]), steps=2, batch_size=4)
    assert x.tolist() == pytest.approx([-0.0015, 0.0015], rel=1e-6)


def test_the_best_student_on_validation_is_kept_not_the_last():
    """Measured at steps 1 to 4 with accuracies .5, 1, .5, 1: the second is kept (a tie is no
    improvement). Four steps of a cosine over J = 4: 1, .853553, .5, .146447 thousandths; after two
    of them 1.853553."""
    x = distilled(Scripted([0.5, 1.0, 0.5, 1.0]), steps=4, every=1, batch_size=4)
    assert -x[0].item() == pytest.approx(0.001853553, rel=1e-6)


def test_it_stops_when_nothing_improves():
    """Every 2, patience 4: best at step 2; 4 - 2 < 4 goes on; 6 - 2 = 4 stops."""
    spy = Scripted([0.5, 0.5, 0.5])
    distilled(spy, steps=100, every=2, patience=4, batch_size=4)
    assert len(spy.losses) == 6


def test_the_average_may_win():
    """Accuracy 1 before, .5 after: kept only where it may be."""
    assert distilled(Scripted([1.0, 0.5]), steps=1, keep_average=True).tolist() == [0.0, 0.0]
    assert distilled(Scripted([0.5]), steps=1).tolist() != [0.0, 0.0]


def test_a_gradient_that_is_not_finite_ends_it():
    spy = Scripted([0.5], gradient=(math.nan, 0.0))
    assert distilled(spy, steps=5).tolist() == [0.0, 0.0]
    assert len(spy.losses) == 1


def test_statistics_may_be_frozen():
    spy = Scripted([0.5])
    distilled(spy, steps=3, freeze_statistics=True)
    assert spy.modes == [None] * 3
    spy = Scripted([0.5])
    distilled(spy, steps=3)
    assert None not in spy.modes
    assert len(set(spy.modes)) == 3  # a stream of its own for every step


def test_the_student_s_statistics_adapt_in_train_mode_only():
    torch.manual_seed(0)
    net = FlatNetwork(
        lambda: nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3), nn.Linear(3, 2)), torch.float64
    )
    start = net.flat.state()
    inputs = torch.randn(16, 2, generator=torch.Generator().manual_seed(1)).double()
    loss = divergence(ensemble([start], inputs, net))
    assert torch.equal(net.loss_gradient(start, inputs, loss).state.buffers, start.buffers)
    moved = net.loss_gradient(start, inputs, loss, Key(0)).state
    assert not torch.equal(moved.buffers, start.buffers)
    assert torch.equal(moved.x, start.x)
    assert torch.equal(
        net.loss_gradient(
            start, inputs[:1], loss=lambda out: out.sum(), training=Key(0)
        ).state.buffers,
        start.buffers,
    )


def test_the_same_key_gives_the_same_student():
    def run(key):
        torch.manual_seed(0)
        net = FlatNetwork(lambda: nn.Linear(2, 2, bias=False), torch.float64)
        public = torch.randn(50, 2, generator=torch.Generator().manual_seed(1)).double()
        total = folded([1.0, 0.0, 0.5, 0.0], [0.0, 1.0, 0.0, 2.0])
        given = {
            "network": net,
            "public": public,
            "validation": (public[:9], torch.arange(9) % 2),
            "key": key,
        }
        start = state(0.0, 0.0, 0.0, 0.0)
        return (
            FedDF(steps=20, every=5, batch_size=8, lr=0.1)
            .update(start, total, context(4, **given))
            .model.x
        )

    assert torch.equal(run(Key(1)), run(Key(1)))
    assert not torch.equal(run(Key(1)), run(Key(2)))


def test_batches_run_through_all_samples_and_leave_the_short_one_out():
    server = FedDF(batch_size=4)
    key = Key(0)
    first = np.concatenate([server._batch(key, step, 10) for step in (0, 1)])
    assert len(set(first.tolist())) == 8
    assert not np.array_equal(server._batch(key, 2, 10), server._batch(key, 0, 10))
    assert sorted(server._batch(key, 0, 3).tolist()) == [0, 1, 2]


def test_a_long_gradient_is_shortened_to_five():
    assert clipped(torch.tensor([6.0, 8.0]), 5.0).tolist() == [3.0, 4.0]
    assert clipped(torch.tensor([0.6, 0.8]), 5.0).tolist() == pytest.approx([0.6, 0.8])


def test_adam_is_torch_s():
    w = torch.tensor([1.0, -2.0, 0.5]).double().requires_grad_()
    theirs = torch.optim.Adam([w], lr=0.1)
    mine = w.detach().clone()
    adam = FlatAdam.fresh(w.detach())
    for step in range(5):
        w.grad = torch.tensor([1.0, -0.1, 3.0]).double() * (step - 2)
        mine, adam = adam.step(mine, w.grad, 0.1)
        theirs.step()
    assert mine.tolist() == pytest.approx(w.tolist(), rel=1e-12)


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"steps": -1}, "got steps = -1; expected at least 0"),
        ({"patience": 0}, "patience = 0"),
        ({"lr": 0.0}, "lr = 0.0"),
    ],
)
def test_options_out_of_range_are_refused(option, message):
    with pytest.raises(ConfigError, match=message):
        FedDF(**option)


def test_needs_follow_the_options():
    assert FedDF().needs == {"public", "validation", "classes"}
    assert FedDF(steps=0).needs == frozenset()


def test_models_come_back_where_they_came_from():
    """The average is what is handed on when nothing was measured better; shapes and dtypes stay."""
    x = distilled(Scripted([0.5]), steps=1)
    assert (x.dtype, tuple(x.shape)) == (torch.float64, (2,))
    assert isinstance(model(1.0), ModelState)
