"""FedBiO, instance A: the worked number of docs/methods/algorithms.md#fedbio, its equalities
(docs/methods/algorithms.md#equalities) and edges."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.aggregators.gather import Gather
from motley.algorithms.fedbio import FedBiO
from motley.algorithms.losses import HalfSquaredError
from motley.algorithms.parts import Part, ServerState, Upload, aggregate
from motley.core.errors import ConfigError
from motley.tasks.task import ModelState
from tests.motley.algorithms.server_contexts import context, folded, model, ones

DELTAS = ([1.0, 0.0], [0.0, 1.0], [-1.0, -1.0])
HELD = (ones(3), torch.ones(3, 2).double())  # L = |w - (1, 1)|^2 / 2


def play(server, total, start=(0.0, 0.0), before=None, **given):
    state = before or server.init(model(*start), 8)
    return server.update(state, total, context(**{"validation": HELD, **given}))


def test_by_hand():
    """x = 0, L = |w - (1,1)|^2 / 2, psi = 0: p = 1/3 each and w = 0, so G = (-1, -1) and <G, Delta>
    = (-1, -1, 2), whose mean under p is 0; the gradient is p times that, (-1/3, -1/3, 2/3). After
    one step psi = (1/3, 1/3, -2/3), p = (.422319, .422319, .155362) and w = p_1 - p_3 = .266956 in
    both coordinates (not rescaled, no floor)."""
    after = play(FedBiO(steps=1, rescale=False, floor=0.0), folded(*DELTAS))
    assert after.extra["psi"][:3].tolist() == pytest.approx([1 / 3, 1 / 3, -2 / 3], rel=1e-12)
    p = after.extra["psi"][:3].softmax(0)
    assert p.tolist() == pytest.approx([0.422319, 0.422319, 0.155362], abs=5e-7)
    assert after.model.x.tolist() == pytest.approx([0.266956, 0.266956], abs=5e-7)


def test_rescaled_by_hand():
    """The same with max_k |<G, Delta_k>| = 1: <G, Delta> / 2 = (-.5, -.5, 1), the step is half as
    long."""
    after = play(FedBiO(steps=1, floor=0.0), folded(*DELTAS))
    assert after.extra["psi"][:3].tolist() == pytest.approx([1 / 6, 1 / 6, -1 / 3], rel=1e-12)


def test_the_gradient_is_met_anew_at_every_step():
    """Second step from p = (.422319, .422319, .155362): w = .266956, G = -(.733044, .733044), <G,
    Delta> = (-.733044, -.733044, 1.466087), mean under p -.391383; gradient p (<G, Delta> - mean) =
    (-.144290, -.144290, .288580)."""
    after = play(FedBiO(steps=2, rescale=False, floor=0.0), folded(*DELTAS))
    want = [1 / 3 + 0.144290, 1 / 3 + 0.144290, -2 / 3 - 0.288580]
    assert after.extra["psi"][:3].tolist() == pytest.approx(want, abs=3e-6)


def test_the_hyper_gradient_is_the_derivative_of_the_validation_loss():
    """Central differences of J(psi) at a crooked psi."""
    deltas = torch.tensor(DELTAS).double()
    psi = torch.tensor([0.3, -0.2, 0.5]).double()

    def loss(psi):
        return ((psi.softmax(0) @ deltas - 1.0) ** 2).sum().item() / 2

    p = psi.softmax(0)
    inner = deltas @ (p @ deltas - 1.0)
    moved, _ = FedBiO(rescale=False, floor=0.0).stepped(psi, p, inner)
    for k in range(3):
        step = 1e-6 * torch.eye(3).double()[k]
        assert (psi - moved)[k].item() == pytest.approx(
            (loss(psi + step) - loss(psi - step)) / 2e-6, abs=1e-9
        )


@pytest.mark.parametrize(
    ("weights", "want"), [([6.0, 2.0, 2.0], [0.4, 0.0]), ([1.0, 1.0, 1.0], [0.0, 0.0])]
)
def test_rate_zero_is_averaging(weights, want):
    """psi = log n_k: .6 (1, 0) + .2 (0, 1) + .2 (-1, -1) = (.4, 0), the weighted mean; equal
    weights: the plain one (E)."""
    after = play(FedBiO(rate=0.0, floor=0.0), folded(*DELTAS, weights=weights))
    assert after.model.x.tolist() == pytest.approx(want, abs=1e-12)


def test_the_floor_holds_and_weights_sum_to_one():
    """p = (1, 0, 0) is lifted to (1, .1/3, .1/3) and divided by 1 + .2/3."""
    p = FedBiO().shares(torch.tensor([0.0, -500.0, -500.0]).double())
    assert p.tolist() == pytest.approx([15 / 16, 0.5 / 16, 0.5 / 16])


def test_no_direction_no_step():
    """At the optimum G = 0 (all inner products 0): psi stays."""
    after = play(FedBiO(), folded(*DELTAS), start=(1.0, 1.0))
    assert after.extra["psi"][:3].tolist() == [0.0, 0.0, 0.0]
    assert after.model.x.tolist() == pytest.approx([1.0, 1.0], abs=1e-15)


def test_a_gradient_that_is_not_finite_changes_no_weight():
    psi = torch.tensor([0.1, 0.2]).double()
    assert (
        FedBiO().stepped(psi, psi.softmax(0), torch.tensor([torch.nan, 1.0]).double())[1] is False
    )


def test_scaling_the_loss_changes_nothing():
    """G is rescaled, so a validation loss of ten times the size learns the same weights."""

    class Tenfold(HalfSquaredError):
        def loss(self, outputs, targets, extra):
            return 10 * super().loss(outputs, targets, extra)

    total = folded(*DELTAS)
    assert torch.allclose(
        play(FedBiO(), total).model.x, play(FedBiO(), total, criterion=Tenfold()).model.x
    )


def test_psi_stays_with_its_client():
    """Client 5 comes back beside a newcomer with n = 4, who begins at log 4; a reset begins anew
    from log n."""
    server = FedBiO(steps=1, rescale=False, floor=0.0)
    first = play(server, folded(*DELTAS, clients=[2, 5, 7]))
    learned = first.extra["psi"][5].item()
    still = FedBiO(steps=0)
    after = play(
        still, folded([0.0, 0.0], [0.0, 0.0], weights=[4.0, 9.0], clients=[1, 5]), before=first
    )
    assert after.extra["psi"][1].item() == pytest.approx(1.386294, abs=5e-7)
    assert after.extra["psi"][5].item() == learned
    assert after.extra["psi"][[2, 7]].tolist() == first.extra["psi"][[2, 7]].tolist()
    anew = play(
        FedBiO(steps=0, reset=True), folded([0.0, 0.0], weights=[9.0], clients=[5]), before=first
    )
    assert anew.extra["psi"][5].item() == pytest.approx(2.197225, abs=5e-7)


def test_buffers_are_mixed_by_the_same_weights():
    """Weights 3 and 1, rate 0: .75 * 4 + .25 * 8 = 5, a running variance that stays one."""
    uploads = [
        Upload(
            {
                "delta": Part(torch.zeros(2).double(), "mean"),
                "buffers": Part(torch.tensor([value]).double(), "convex"),
                "counters": Part(torch.tensor([k]), "max"),
            },
            weight,
            client=k,
        )
        for k, value, weight in ((0, 4.0, 3.0), (1, 8.0, 1.0))
    ]
    start = ModelState(torch.zeros(2).double(), torch.ones(1).double(), torch.tensor([0]))
    server = FedBiO(steps=0, floor=0.0)
    after = server.update(
        server.init(start, 8), aggregate(Gather(), uploads, "weight"), context(validation=HELD)
    )
    assert after.model.buffers.tolist() == pytest.approx([5.0])
    assert after.model.counters.tolist() == [1]


@pytest.mark.parametrize(
    ("option", "message"),
    [({"steps": -1}, "steps = -1"), ({"rate": -1.0}, "rate = -1"), ({"floor": 1.0}, "floor = 1.0")],
)
def test_options_out_of_range_are_refused(option, message):
    with pytest.raises(ConfigError, match=message):
        FedBiO(**option)


def test_an_old_state_is_a_value():
    server = FedBiO()
    before = server.init(model(0.0, 0.0), 8)
    kept = {name: value.clone() for name, value in before.extra.items()}
    play(server, folded(*DELTAS), before=before)
    assert isinstance(before, ServerState)
    assert all(torch.equal(before.extra[name], value) for name, value in kept.items())
