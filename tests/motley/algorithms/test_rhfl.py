"""RHFL: the worked numbers of docs/methods/algorithms.md#rhfl, feedback alignment by hand, and the
edges of the confidence."""

from __future__ import annotations

import math

import pytest
import torch

from motley.algorithms.parts import ExtraExchange
from motley.algorithms.rhfl import (
    RHFL,
    Alignment,
    ConfidenceServer,
    PersonalModel,
    confidence,
    feedback,
)
from motley.algorithms.symmetric import SymmetricLoss
from motley.core.errors import ConfigError
from motley.experiments.build import build
from tests.motley.algorithms.server_contexts import context, folded, model, network, ones

NONE = math.nan


def told(*losses):
    """Clients that answer with these losses."""
    return lambda clients, models: torch.tensor(losses[: len(clients)]).double()


def test_symmetric_loss_by_hand():
    """p = (.7, .2, .1), y = 0: CE .356675, RCE 9.210340 * .3 = 2.763102, .1 CE + RCE = 2.798770."""
    outputs = torch.tensor([[0.7, 0.2, 0.1]]).double().log()
    y = torch.tensor([0])
    assert SymmetricLoss().loss(outputs, y, {}).item() == pytest.approx(2.798770, abs=5e-7)
    assert SymmetricLoss(weight=0.0).loss(outputs, y, {}).item() == pytest.approx(
        2.763102, abs=5e-7
    )


def test_symmetric_gradient_is_the_derivative():
    outputs = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0)).double()
    y = torch.tensor([[0, 1, 2, 3, 0], [3, 3, 1, 0, 2]])
    loss = SymmetricLoss()
    want = super(SymmetricLoss, loss).gradient(outputs, y, {})
    assert torch.allclose(loss.gradient(outputs, y, {}), want, atol=1e-14)


def test_confidence_by_hand():
    """L_prev = 2, L = (1, 1.5, 1.8, 2): F = (1, .3333, .1111, 0), w = 1/3 + .5 F / 1.4444 =
    (.679487, .448718, .371795, .333333), W = softmax(w)."""
    w = confidence([1.0, 1.5, 1.8, 2.0], [2.0] * 4, beta=0.5, first=0.25)
    assert w.tolist() == pytest.approx([0.308979, 0.245305, 0.227143, 0.218573], abs=5e-7)


def test_beta_zero_is_uniform():
    assert confidence([1.0, 1.5, 1.8], [2.0] * 3, beta=0.0, first=0.5).tolist() == pytest.approx(
        [1 / 3] * 3
    )


@pytest.mark.parametrize("before", [[1.0, 1.0], [1.5, 1.5]], ids=["worse", "as before"])
def test_no_progress_in_sum_is_uniform(before):
    """L = (2, 1.5): F = (-.5, -.3333) sums below 0 and would turn the order round; F = (-.25, 0)
    likewise."""
    assert confidence([2.0, 1.5], before, beta=0.5, first=0.5).tolist() == [0.5, 0.5]


def test_first_timers_get_the_mean_of_the_others():
    """F = (1, .5, mean .75): like a client who went from 1.75 to 1."""
    w = confidence([1.0, 1.0, 3.0], [2.0, 1.5, NONE], beta=0.5, first=1.0)
    assert w.tolist() == pytest.approx(
        confidence([1.0, 1.0, 1.0], [2.0, 1.5, 1.75], beta=0.5, first=1.0).tolist()
    )


def test_nobody_with_a_past_is_uniform_and_alone_is_all():
    assert confidence([1.0, 2.0], [NONE, NONE], beta=0.5, first=0.5).tolist() == [0.5, 0.5]
    assert confidence([1.0], [2.0], beta=0.5, first=0.0).tolist() == [1.0]


def test_feedback_is_the_weighted_divergence_from_the_others():
    """Own R is left out: sum over i != 1 of W_i KL(R_i || p), W unnormalized as it is."""
    soft = torch.tensor([[[0.9, 0.1]], [[0.5, 0.5]], [[0.2, 0.8]]]).double()
    weights = torch.tensor([0.5, 0.3, 0.7]).double()
    logits = torch.tensor([[1.0, 0.0]]).double()
    p = logits.softmax(-1)[0]

    def kl(q):
        return sum(a * math.log(a / b) for a, b in zip(q, p.tolist(), strict=True))

    assert feedback(soft, weights, 1)(logits).item() == pytest.approx(
        0.5 * kl((0.9, 0.1)) + 0.7 * kl((0.2, 0.8))
    )


def test_identical_models_have_nothing_to_say_to_each_other():
    """HFL loss and gradient 0."""
    soft = torch.tensor([[[0.7, 0.3]]] * 3).double()
    logits = torch.tensor([[0.7, 0.3]]).double().log().requires_grad_()
    loss = feedback(soft, torch.ones(3).double() / 3, 0)(logits)
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-15)
    assert logits.grad.abs().max().item() < 1e-15


def align(models, weights, public=4, **options):
    return Alignment(**options)(
        models, torch.tensor(weights).double(), context(public=ones(public), network=network())
    )


def test_one_alignment_step_by_hand():
    """Logits (2, 0) and (0, 0), W = (.5, .5): model 1 feels .5 (p_1 - R_2) = .5 (.380797,
    -.380797), model 2 the opposite; a first Adam step is its rate long: (2 - lr, lr) and (lr,
    -lr)."""
    first, second = align([model(2.0, 0.0), model(0.0, 0.0)], [0.5, 0.5], lr=0.01)
    assert first.x.tolist() == pytest.approx([1.99, 0.01], rel=1e-6)
    assert second.x.tolist() == pytest.approx([0.01, -0.01], rel=1e-6)


def test_all_outputs_are_computed_before_anybody_moves():
    """Were the models taught one after the other, the second would hear the first as it already is;
    both orders agree here."""
    one = align([model(2.0, 0.0), model(0.0, 0.0)], [0.5, 0.5], lr=0.5)
    two = align([model(0.0, 0.0), model(2.0, 0.0)], [0.5, 0.5], lr=0.5)
    assert one[0].x.tolist() == two[1].x.tolist()
    assert one[1].x.tolist() == two[0].x.tolist()


def test_outputs_are_exchanged_by_the_batch_or_by_the_round():
    """Steps of .6 by fresh Adam on two batches. Logits (2, 0) and (0, 0) become (1.4, .6) and (.6,
    -.6): differences .8 and 1.2, they have overtaken each other. Exchanged anew, both turn back to
    where they were. Exchanged once, each still hears what the other said first, difference 0 and 2,
    and goes on to (.8, 1.2) and (1.2, -1.2)."""
    models = [model(2.0, 0.0), model(0.0, 0.0)]
    anew = align(models, [0.5, 0.5], lr=0.6, batch_size=2, exchange="batch")
    assert anew[0].x.tolist() == pytest.approx([2.0, 0.0], abs=1e-6)
    assert anew[1].x.tolist() == pytest.approx([0.0, 0.0], abs=1e-6)
    once = align(models, [0.5, 0.5], lr=0.6, batch_size=2, exchange="round")
    assert once[0].x.tolist() == pytest.approx([0.8, 1.2], abs=1e-6)
    assert once[1].x.tolist() == pytest.approx([1.2, -1.2], abs=1e-6)


def test_adam_is_fresh_for_every_batch_or_kept():
    """Three batches whose second gradient is smaller: a fresh Adam takes full steps all the same, a
    kept one does not."""
    models = [model(2.0, 0.0), model(0.0, 0.0)]
    fresh = align(models, [0.5, 0.5], public=6, lr=0.1, batch_size=2)
    kept = align(models, [0.5, 0.5], public=6, lr=0.1, batch_size=2, adam="kept")
    assert fresh[0].x[0].item() == pytest.approx(1.7, rel=1e-6)
    assert 1.7 < kept[0].x[0].item() < 1.9


def test_the_last_short_batch_is_left_out_unless_it_is_the_only_one():
    assert Alignment(batch_size=256).batches(5000) == (19, 256)
    assert Alignment(batch_size=256).batches(100) == (1, 100)


def test_aggregation_by_hand():
    """Two clients, no alignment. Round 1: uniform. Round 2 with L_prev = (2, 2), L = (1, 2): F =
    (1, 0), w = 1 + .5 (1, 0), and W = softmax(1.5, 1) = (.622459, .377541); deltas (1, 0) and
    (0, 1) from (.5, .5) give (1.122459, .877541)."""
    server = ConfidenceServer(align=False)
    start = server.init(model(0.0, 0.0), 8)
    total = folded([1.0, 0.0], [0.0, 1.0], clients=[3, 6])
    first = server.update(start, total, context(losses=told(2.0, 2.0)))
    assert first.model.x.tolist() == [0.5, 0.5]
    second = server.update(first, total, context(losses=told(1.0, 2.0)))
    assert second.model.x.tolist() == pytest.approx([1.122459, 0.877541], abs=5e-7)
    assert second.extra["loss"][[3, 6]].tolist() == [1.0, 2.0]
    assert second.extra["told"].nonzero().flatten().tolist() == [3, 6]


def test_losses_are_those_of_the_trained_models():
    """y_k = x + Delta_k is what each client is asked about. (Trap: the loss of the received
    model.)"""
    asked = {}

    def losses(clients, models):
        asked.update(
            {client: found.x.tolist() for client, found in zip(clients, models, strict=True)}
        )
        return torch.ones(len(clients)).double()

    server = ConfidenceServer(align=False)
    server.update(
        server.init(model(1.0, 1.0), 8),
        folded([1.0, 0.0], [0.0, 2.0], clients=[2, 4]),
        context(losses=losses),
    )
    assert asked == {2: [2.0, 1.0], 4: [1.0, 3.0]}


def test_aligned_aggregation():
    """Models (2, 0) and (0, 0) aligned by one step of .01, then the mean of what they became:
    alignment moves both into the sum."""
    server = ConfidenceServer(alignment=Alignment(lr=0.01, exchange="batch"))
    total = folded([2.0, 0.0], [0.0, 0.0])
    after = server.update(
        server.init(model(0.0, 0.0), 8), total, context(public=ones(4), losses=told(1.0, 1.0))
    )
    assert after.model.x.tolist() == pytest.approx([(1.99 + 0.01) / 2, (0.01 - 0.01) / 2], abs=1e-8)


def test_alone_there_is_no_alignment():
    server = ConfidenceServer()
    after = server.update(
        server.init(model(0.0, 0.0), 8), folded([2.0, 1.0]), context(network=None, losses=told(1.0))
    )
    assert after.model.x.tolist() == [2.0, 1.0]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_does_not_count(bad):
    server = ConfidenceServer(align=False)
    start = server.init(model(0.0, 0.0), 8)
    total = folded([1.0, 0.0], [0.0, 8.0], [0.0, 2.0])
    after = server.update(start, total, context(losses=told(1.0, bad, 1.0)))
    assert after.model.x.tolist() == [0.5, 1.0]
    assert after.extra["told"].tolist()[:3] == [True, False, True]
    nobody = server.update(start, folded([1.0, 0.0]), context(losses=told(bad)))
    assert nobody.model.x.tolist() == [0.0, 0.0]


def kept(*models):
    return {
        k: {"x": m.x, "buffers": m.buffers, "counters": m.counters} for k, m in enumerate(models)
    }


def test_own_models_learn_from_each_other_and_the_server_s_stays():
    """Round 1 of kd: W = 1/(M-1) = 1 each; the step is a sign, so the numbers are those of one
    alignment step. A third model whose loss is not finite is left out: it is not in the answer, and
    keeps what it had."""
    server = ConfidenceServer(own=True, alignment=Alignment(lr=0.01))
    total = {"each.client": torch.tensor([0, 1, 2])}
    given = context(public=ones(4), losses=told(1.0, 1.0, math.nan))
    memories = kept(model(2.0, 0.0), model(0.0, 0.0), model(9.0, 9.0))
    after, answer = server.update_with_clients(
        server.init(model(7.0, 7.0), 8), total, memories, given
    )
    assert after.model.x.tolist() == [7.0, 7.0]
    assert sorted(answer) == [0, 1]
    assert answer[0]["x"].tolist() == pytest.approx([1.99, 0.01], rel=1e-6)
    assert answer[1]["x"].tolist() == pytest.approx([0.01, -0.01], rel=1e-6)
    assert memories[0]["x"].tolist() == [2.0, 0.0]


def test_what_own_models_cost():
    """|D_0| = 5000, C = 10, batches of 256: 19 * 256 * 10 soft outputs each way and one loss up; 4
    passes of 19 batches and one over the client's own data. As a column of aggregators: one
    number."""
    kd = ConfidenceServer(own=True).extra_exchange(5000, 10)
    # nothing is exchanged for an alignment that is left out, and no public sample is needed
    assert ConfidenceServer(own=True, align=False).extra_exchange(0, 10) == ExtraExchange(
        up=1, own=1.0
    )
    agg = ConfidenceServer().extra_exchange(5000, 10)
    assert (kd.up, kd.down, kd.own, kd.batches) == (48_641, 48_640, 1.0, 76.0)
    assert (agg.up, agg.down, agg.own, agg.batches) == (1, 0, 1.0, 0.0)
    assert PersonalModel().download(None) == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beta": -1.0}, "got beta = -1.0"),
        ({"lr": 0.0}, "got lr = 0.0"),
        ({"batch_size": 0}, "got batch_size = 0"),
        ({"exchange": "batch"}, "where the server has all models"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        RHFL(**options)
    with pytest.raises(ConfigError, match="expected a number of at least 0"):
        SymmetricLoss(weight=-1.0)


def test_a_server_of_another_method_has_nothing_to_step_with_where_clients_upload_no_updates():
    keys = {"population": 4, "cohort": 2, "stop": {"rounds": 1}, "task": "synthetic", "public": 0.1}
    keys |= {"algorithm": {"name": "rhfl", "mode": "kd"}, "weights": "uniform"}
    build(keys)
    with pytest.raises(
        ConfigError,
        match=r"algorithm: in mode 'kd' clients upload no updates, of which .*Adagrad makes its "
        r"step",
    ):
        build({**keys, "server": "adagrad"})
