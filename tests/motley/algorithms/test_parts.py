"""Weightings, the mean, the server step, the plain losses: numbers worked by hand.

Worked numbers: docs/methods/algorithms.md#fedavg.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motley.algorithms import CATALOGUE, LOSSES, SCHEDULES
from motley.algorithms.aggregators.mean import Mean
from motley.algorithms.fedavg import Average, FedAvg
from motley.algorithms.fedprox import FedProx, Proximal
from motley.algorithms.losses import CrossEntropy, HalfSquaredError
from motley.algorithms.parts import (
    Algorithm,
    JobContext,
    LocalRule,
    Part,
    ServerContext,
    ServerState,
    Upload,
    aggregate,
)
from motley.algorithms.schedules import (
    ConstantSchedule,
    CosineSchedule,
    ExponentialSchedule,
    LinearSchedule,
    MilestoneSchedule,
)
from motley.algorithms.weights import divide_by, raw_weights
from motley.core.errors import ConfigError
from motley.core.layout import Entry, Layout
from motley.core.records import Cohort
from motley.tasks.task import ModelState

NONE = torch.zeros(0)
COUNTERS = torch.zeros(0, dtype=torch.int64)


def _total(deltas: list[list[float]], weights: list[float], mode: str) -> list[float]:
    uploads = [
        Upload({"delta": Part(torch.tensor(d), "mean")}, w)
        for d, w in zip(deltas, weights, strict=True)
    ]
    return aggregate(Mean(), uploads, divide_by(mode))["delta"].tolist()


def test_two_clients_under_every_weighting() -> None:
    """Deltas (1,0) and (0,1), n = (3,1): ratio (.75,.25), uniform (.5,.5); ht with K=4: K p_k over
    the count: sum n = 8 gives 4 (3/8, 1/8) / 2 = (.75, .25), sum n = 16 gives (.375, .125)."""
    cohort = Cohort(np.array([0, 1]), scores=np.array([0.2, 0.6]))
    n = np.array([3, 1])
    deltas = [[1.0, 0.0], [0.0, 1.0]]
    expected = {
        ("examples", 8): [0.75, 0.25],
        ("uniform", 8): [0.5, 0.5],
        ("horvitz_thompson", 8): [0.75, 0.25],
        ("horvitz_thompson", 16): [0.375, 0.125],
        ("score", 8): [0.25, 0.75],
    }
    for (mode, total), want in expected.items():
        raw = raw_weights(mode, cohort, n, total=total, population=4)
        assert _total(deltas, raw.tolist(), mode) == pytest.approx(want), (mode, total)


def test_all_scores_zero_falls_back_to_uniform() -> None:
    cohort = Cohort(np.array([0, 1]), scores=np.zeros(2))
    assert raw_weights("score", cohort, np.array([3, 1]), 8, 4).tolist() == [1.0, 1.0]


def test_selector_coefficients_are_never_renormalised_unless_asked() -> None:
    cohort = Cohort(np.array([0, 1]), weights=np.array([0.5, 1.5]))
    raw = raw_weights("selector", cohort, np.array([3, 1]), 8, 4).tolist()
    assert _total([[1.0, 0.0], [0.0, 1.0]], raw, "selector") == [0.5, 1.5]
    assert _total([[1.0, 0.0], [0.0, 1.0]], raw, "selector_ratio") == [0.25, 0.75]


def test_a_client_drawn_twice_counts_twice() -> None:
    cohort = Cohort(np.array([0, 1]), multiplicity=np.array([2, 1]))
    raw = raw_weights("uniform", cohort, np.array([5, 5]), 10, 2).tolist()
    assert _total([[3.0], [0.0]], raw, "uniform") == [2.0]


@pytest.mark.parametrize(
    ("mode", "word"), [("score", "no scores"), ("selector", "no coefficients")]
)
def test_a_weighting_the_selector_cannot_serve_says_so(mode: str, word: str) -> None:
    with pytest.raises(ConfigError, match=f"weights: .*{word}"):
        raw_weights(mode, Cohort(np.array([0])), np.array([1]), 1, 1)


def test_unknown_weighting_is_refused() -> None:
    with pytest.raises(ConfigError, match="weights: got 'exmaples'"):
        divide_by("exmaples")


def test_mean_folds_each_part_as_it_declares() -> None:
    """Weights 1 and 3. mean: (1*2 + 3*6)/4 = 5; sum: 8; convex (buffers): 5; max of counters: 7.
    Under ``none`` the mean is 20 and the buffers are still convex: a variance must never be
    extrapolated."""
    parts = [
        {
            "delta": Part(torch.tensor([v]), "mean"),
            "c": Part(torch.tensor([v]), "sum"),
            "buffers": Part(torch.tensor([v]), "convex"),
            "counters": Part(torch.tensor([c]), "max"),
        }
        for v, c in ((2.0, 7), (6.0, 4))
    ]
    uploads = [Upload(parts[0], 1.0), Upload(parts[1], 3.0)]
    total = aggregate(Mean(), uploads, "weight")
    assert {k: v.item() for k, v in total.items()} == {
        "delta": 5.0,
        "c": 8.0,
        "buffers": 5.0,
        "counters": 7,
    }
    total = aggregate(Mean(), uploads, "none")
    assert (total["delta"].item(), total["buffers"].item()) == (20.0, 5.0)
    assert total["counters"].dtype == torch.int64


def test_buffers_are_folded_with_weights_of_at_least_zero_only() -> None:
    """Coefficients 3 and -1 would give (3 * 0.5 - 1 * 2) / 2 = -0.25, which is no variance."""
    variances = [Part(torch.tensor([v]), "convex") for v in (0.5, 2.0)]
    uploads = [
        Upload({"buffers": part}, weight)
        for part, weight in zip(variances, (3.0, -1.0), strict=True)
    ]
    assert aggregate(Mean(), uploads, "none")["buffers"].item() == 0.5


def test_updates_without_any_weight_leave_the_model_and_its_buffers() -> None:
    """The one client left has score 0 (the others were rejected): a variance of 0 must not come of
    it."""
    parts = {"delta": Part(torch.ones(2), "mean"), "buffers": Part(torch.ones(1), "convex")}
    total = aggregate(Mean(), [Upload(parts, 0.0)], "weight")
    model = ModelState(torch.tensor([1.0, 2.0]), torch.tensor([0.7]), torch.tensor([3]))
    context = ServerContext(Layout((Entry("w", "", (2,), 0),)), population=4, accepted=1)
    after = Average().update(ServerState(model), total, context).model
    assert torch.equal(after.x, model.x)
    assert torch.equal(after.buffers, model.buffers)


def test_nothing_to_fold_is_an_empty_total() -> None:
    assert aggregate(Mean(), [], "weight") == {}


def test_server_adds_in_float64_and_keeps_the_dtype() -> None:
    model = ModelState(torch.tensor([1.0, 2.0]), torch.tensor([1.0]), torch.tensor([3]))
    context = ServerContext(Layout((Entry("w", "", (2,), 0),)), population=4, accepted=2)
    total = {
        "delta": torch.tensor([0.5, -1.0], dtype=torch.float64),
        "buffers": torch.tensor([0.25], dtype=torch.float64),
    }
    after = Average(lr=2.0).update(ServerState(model), total, context).model
    assert after.x.tolist() == [2.0, 0.0]
    assert after.x.dtype == torch.float32
    assert (after.buffers.item(), after.counters.item()) == (0.25, 3)


@pytest.mark.parametrize("loss", [CrossEntropy(), HalfSquaredError()])
@pytest.mark.parametrize("lead", [(5,), (3, 5)])
def test_gradients_by_hand_equal_autograd(loss: object, lead: tuple[int, ...]) -> None:
    generator = torch.Generator().manual_seed(0)
    outputs = torch.randn(*lead, 4, dtype=torch.float64, generator=generator)
    targets = (
        torch.randint(4, lead, generator=generator)
        if isinstance(loss, CrossEntropy)
        else torch.randn_like(outputs)
    )
    before = outputs.clone()
    by_hand = loss.gradient(outputs, targets, {})
    by_autograd = super(type(loss), loss).gradient(outputs, targets, {})
    torch.testing.assert_close(by_hand, by_autograd, rtol=1e-12, atol=1e-14)
    assert torch.equal(outputs, before), "the outputs were overwritten"
    assert loss.loss(outputs, targets, {}).shape == lead


def test_cross_entropy_of_a_known_row() -> None:
    """p = (.7,.2,.1) is softmax of its logs; -log .7 = .356675 (FLASH's example c)."""
    outputs = torch.tensor([[0.7, 0.2, 0.1]], dtype=torch.float64).log()
    assert CrossEntropy().loss(outputs, torch.tensor([0]), {}).item() == pytest.approx(
        0.356675, abs=5e-7
    )


def test_fedprox_changes_the_correction_only() -> None:
    plain = Algorithm(CrossEntropy(), LocalRule(), Mean(), Average())
    method = FedProx(mu=0.5).change(plain)
    assert method.local == Proximal(0.5)
    assert (method.loss, method.aggregator, method.server) == (
        plain.loss,
        plain.aggregator,
        plain.server,
    )
    ctx = JobContext(NONE, {}, None, 1, 0.1, 1, 1.0, Layout(()))
    assert method.local.correction(ctx).proximal == 0.5
    assert FedAvg(server_lr=0.5).change(plain).server == Average(0.5)


def test_upload_is_after_minus_before() -> None:
    x = torch.tensor([1.0, 1.0])
    after = ModelState(torch.tensor([1.5, 0.0]), torch.tensor([9.0]), torch.tensor([2]))
    ctx = JobContext(x, {}, None, 1, 0.1, 1, 1.0, Layout(()))
    parts, client_state = LocalRule().finish(after, ctx)
    assert parts["delta"].value.tolist() == [0.5, -1.0]
    assert [parts[k].fold for k in ("delta", "buffers", "counters")] == ["mean", "convex", "max"]
    assert client_state is None


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (
            {"name": "fedprox", "mu": -1},
            "algorithm: got mu = -1.0; expected a finite number of at least 0",
        ),
        ({"name": "fedprx"}, "algorithm.name: got 'fedprx' .did you mean 'fedprox'.."),
        ({"name": "fedavg", "server_lr": 0}, "expected a positive number"),
        (
            {"name": "fedprox", "nu": 1},
            "algorithm.nu: 'fedprox' has no such option; its options: mu, adaptive",
        ),
    ],
)
def test_bad_methods_are_refused_by_name(record: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        CATALOGUE.build(record)


def test_losses_are_found_by_name() -> None:
    assert LOSSES.build("half_squared_error") == HalfSquaredError()


def test_schedules() -> None:
    """Linear to .5 over 100 rounds: .9 at 20 (HeteRo-Select v2's lr .05 -> .045), .5 at the end and
    after."""
    assert ConstantSchedule().factor(7, None) == 1.0
    assert [LinearSchedule(0.5).factor(t, 100) for t in (20, 100, 150)] == pytest.approx(
        [0.9, 0.5, 0.5]
    )
    assert ExponentialSchedule(0.5).factor(3, None) == 0.25
    with pytest.raises(ConfigError, match=r"stop\.rounds"):
        LinearSchedule().factor(1, None)


def test_the_milestone_schedule_is_torchs() -> None:
    """``MultiStepLR`` that steps at the end of each round, milestones 2 and 5."""
    optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
    torchs = torch.optim.lr_scheduler.MultiStepLR(optimizer, milestones=[2, 5], gamma=0.5)
    wanted = []
    for _ in range(7):
        wanted.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        torchs.step()
    schedule = MilestoneSchedule(rounds=(2, 5), decay=0.5)
    assert [schedule.factor(t, None) for t in range(1, 8)] == wanted
    assert wanted == [1.0, 1.0, 0.5, 0.5, 0.5, 0.25, 0.25]
    with pytest.raises(ConfigError, match=r"got rounds = \[0, 3\]; expected rounds from 1 on"):
        MilestoneSchedule(rounds=(0, 3))
    with pytest.raises(ConfigError, match=r"got decay = 2\.0; expected a number"):
        MilestoneSchedule(decay=2.0)


def test_the_cosine_schedule_by_hand() -> None:
    """Six rounds to .2: angles of 0, 30, 60, 90, 120, 150 degrees, so .6 + .4 cos; what trains
    after the last round has its factor."""
    last = 0.6 - 0.4 * 0.75**0.5
    wanted = [1.0, 0.6 + 0.4 * 0.75**0.5, 0.8, 0.6, 0.4, last, last, last]
    assert [CosineSchedule(end=0.2).factor(t, 6) for t in range(1, 9)] == pytest.approx(wanted)
    with pytest.raises(
        ConfigError,
        match=r"a cosine schedule needs the number of rounds; set stop = \{ rounds = ... \}",
    ):
        CosineSchedule().factor(1, None)
    with pytest.raises(ConfigError, match=r"got end = 2; expected a number from 0 to 1"):
        CosineSchedule(end=2)


def test_schedules_say_whether_they_read_the_horizon() -> None:
    """One that says no gives the same factors for every planned number of rounds, and one that says
    yes does not."""
    for name in SCHEDULES.names():
        schedule = SCHEDULES.build(name)
        same = len({schedule.factor(3, rounds) for rounds in (5, 10, 100)}) == 1
        assert schedule.horizon != same
