"""FedBench's SCAFFOLD by hand, the laws that follow from its rule, and SCAFFOLD where all of its
differences are repaired."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from motley.algorithms.fedavg import FedAvg
from motley.algorithms.local_optimisers import SGD
from motley.algorithms.scaffold import Scaffold
from motley.core.errors import ConfigError
from motley_papers.rules.fedbench import FedbenchScaffold
from tests.motley.algorithms.toys import Toy

REPAIRED: dict[str, Any] = {"reads": True, "sign": -1, "sends": "change"}
MOMENTUM = SGD(lr=0.1, momentum=0.9, weight_decay=0.01)
LR_STEPS = 0.1 * 3


def rounds(method: Any, number: int, steps: int = 1, **keys: Any) -> list[float]:
    """The server's weight after each round."""
    toy = Toy(method, **keys)
    xs = []
    for _ in range(number):
        toy.round(steps)
        xs += toy.x
    return xs


@pytest.mark.parametrize(
    ("options", "xs"),
    [
        ({}, [0.1, 0.09, 0.091]),
        ({"reads": True}, [0.1, 0.19, 0.171]),
        ({"sign": -1}, [0.1, 0.29, 0.651]),
        ({"sends": "change"}, [0.1, 0.09, 0.191]),
        (REPAIRED, [0.1, 0.19, 0.271]),
    ],
)
def test_one_client_by_hand(options: dict[str, Any], xs: list[float]) -> None:
    """F = (w - 1)^2 / 2, lr .1, one step a round from 0, as the module works it out."""
    found = rounds(FedbenchScaffold(**options), 3, targets=(1.0,))
    assert found == pytest.approx(xs, rel=1e-12)
    if options == REPAIRED:
        assert found == pytest.approx(rounds(FedAvg(), 3, targets=(1.0,)), rel=1e-12)


def test_with_one_step_every_round_starts_over() -> None:
    """x_{t+1} = x_0 + G_t; with the change sent x_{t+1} = x_{t-1} + G_t; with the sign repaired
    x_{t+1} = 2 x_t - x_0 + G_t; with the variate read x_{t+1} = x_t + G_t - sum_{s<t} (x_s -
    x_0). G_t = .1 (1 - x_t), for the targets' mean is 1."""
    first, targets = 0.5, (1.0, 4.0, -2.0)
    laws: list[tuple[dict[str, Any], Any]] = [
        ({}, lambda xs: first),
        ({"sends": "change"}, lambda xs: xs[-2] if len(xs) > 1 else first),
        ({"sign": -1}, lambda xs: 2 * xs[-1] - first),
        ({"reads": True}, lambda xs: xs[-1] - sum(x - first for x in xs[:-1])),
    ]
    for options, begin in laws:
        xs = [first]
        found = rounds(FedbenchScaffold(**options), 6, start=(first,), targets=targets)
        for x in found:
            expected = begin(xs) + 0.1 * (1.0 - xs[-1])
            assert x == pytest.approx(expected, rel=1e-10)
            xs.append(x)


def test_with_unequal_steps_what_is_taken_back_is_not_what_was_added() -> None:
    """F = (w - 1)^2 / 2 for both clients, lr .5, two steps and one, weighed alike, from 0.
    Round 1: .75 and .5, x = .625; c = (.375 + .5) / 2 / .5 = .875.
    Round 2: the optimizer adds .1875 + .3125 and .1875, the mean .34375; taken back are 1.5 steps
    of .4375, and x = .3125, not 0 + .34375. c = (.25 + .1875) / 2 / .5 = .4375.
    Round 3: .625 and .34375, mean .484375; taken back 1.5 x .21875: x = .46875."""
    toy = Toy(FedbenchScaffold(), targets=(1.0, 1.0), solver=SGD(lr=0.5))
    xs = []
    variates = []
    for _ in range(3):
        toy.round((2, 1))
        xs += toy.x
        variates.append(toy.server.extra["c"].item())
    assert xs == pytest.approx([0.625, 0.3125, 0.46875], rel=1e-12)
    assert variates[:2] == pytest.approx([0.875, 0.4375], rel=1e-12)


def test_under_momentum_the_variate_is_the_way_from_the_first_model() -> None:
    """c = (x_t - x_0) / (lr K) at K = 3 steps for everybody, so that the next round's correction
    takes all of it back: the model stays one round of local work from the first, where FedAvg goes
    on to the minimum 4."""
    toy = Toy(FedbenchScaffold(), targets=(3.0, 5.0), start=(-1.0,), solver=MOMENTUM)
    for _ in range(12):
        before = toy.server.model.x.clone()
        results = toy.round(3)
        c = toy.server.extra["c"]
        assert c.item() == pytest.approx((toy.x[0] + 1.0) / LR_STEPS, rel=1e-10)
        for result in results:  # the correction is what c was, on each of three steps
            own_steps = result.parts["delta"].value + (before + 1.0)
            assert abs(own_steps.item()) < 4.5
    distance = toy.algorithm.server.notes(toy.server)["from_start"]
    assert distance == pytest.approx(abs(toy.x[0] + 1.0), rel=1e-12)
    assert distance < 3.0
    (plain,) = rounds(FedAvg(), 12, 3, targets=(3.0, 5.0), start=(-1.0,), solver=MOMENTUM)[-1:]
    assert plain == pytest.approx(3.9, abs=0.3)


def test_all_repaired_is_scaffold() -> None:
    keys: dict[str, Any] = {"targets": (1.0, 4.0, -2.0), "solver": MOMENTUM}
    scaffold = Scaffold(corrects="weights", divisor="steps")
    assert rounds(FedbenchScaffold(**REPAIRED), 5, 3, **keys) == pytest.approx(
        rounds(scaffold, 5, 3, **keys), rel=1e-10
    )


def test_a_client_keeps_its_variate_only_where_it_reads_it() -> None:
    for reads in (False, True):
        toy = Toy(FedbenchScaffold(reads=reads), targets=(1.0, 2.0))
        toy.round()
        assert set(toy.kept) == ({0, 1} if reads else set())
        if reads:  # c_i = 0 - 0 + v, the displacement .1 (target - 0) / .1
            assert torch.cat([toy.kept[k]["c"] for k in (0, 1)]).tolist() == pytest.approx([1, 2])


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"sign": 2}, "got sign = 2; expected 1 or -1"),
        ({"sends": "c"}, "got sends = 'c'; expected 'displacement' or 'change'"),
    ],
)
def test_bad_options_are_refused(option: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        FedbenchScaffold(**option)
