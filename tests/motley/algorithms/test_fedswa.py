"""FedSWA and FedMoSWA: falling rates and control variates by hand."""

from __future__ import annotations

import pytest

from motley.algorithms.fedswa import FedMoSWA, FedSWA
from motley.core.errors import ConfigError
from tests.motley.algorithms.toys import Toy
from tests.motley.theory.test_algorithms import run, simulate

TARGETS = (4.0, 2.0)


def test_steps_grow_shorter_and_the_server_goes_beyond():
    """Rates .1 and .05: .4, then .05 * 3.6 = .18 more; half of it at 2."""
    toy = Toy(FedSWA(rho=0.0), targets=TARGETS)
    toy.round(steps=2)
    assert toy.x == pytest.approx([1.5 * (0.58 + 0.29) / 2], rel=1e-12)


def test_the_last_rate_is_not_quite_rho():
    """Rates .1 (1, .775, .55, .325): w <- w + rate (4 - w)."""
    toy = Toy(FedSWA(server_lr=1.0), targets=(4.0,))
    toy.round(steps=4)
    w = 0.0
    for share in (1.0, 0.775, 0.55, 0.325):
        w += 0.1 * share * (4.0 - w)
    assert toy.x == pytest.approx([w], rel=1e-12)


def test_two_rounds_with_control_variates():
    """c+ = -.58 / .15 and -.29 / .15; m = .2 of their mean, -.58. Round 2 from .435: gradients plus
    m - c: -3.565 + 3.286667, and -1.565 + 1.353333, at rates .1 and .05."""
    toy = Toy(FedMoSWA(rho=0.0, server_lr=1.0), targets=TARGETS)
    toy.round(steps=2)
    assert toy.x == pytest.approx([0.435], rel=1e-12)
    c = [-0.58 / 0.15, -0.29 / 0.15]
    assert [toy.kept[k]["c"].item() for k in (0, 1)] == pytest.approx(c, rel=1e-12)
    m = 0.2 * sum(c) / 2
    assert m == pytest.approx(-0.58, rel=1e-12)
    assert toy.server.extra["m"].item() == pytest.approx(m, rel=1e-12)
    toy.round(steps=2)
    ends, renewed = [], []
    for target, own in zip(TARGETS, c, strict=True):
        first = 0.435 - target
        w = 0.435 - 0.1 * (first + m - own)
        second = w - target
        ends.append(w - 0.05 * (second + m - own))
        renewed.append((0.1 * first + 0.05 * second) / 0.15)
    assert toy.x == pytest.approx([sum(ends) / 2], rel=1e-12)
    assert [toy.kept[k]["c"].item() for k in (0, 1)] == pytest.approx(renewed, rel=1e-12)
    m += 0.2 * (sum(renewed) / 2 - m)
    assert toy.server.extra["m"].item() == pytest.approx(m, rel=1e-12)


@pytest.mark.parametrize("weights", ["uniform", "examples"])
def test_with_an_even_rate_and_a_whole_step_it_is_averaging(weights):
    keys = {"taus": (2, 7), "rounds": 4, "lr": 0.1, "weights": weights}
    method = {"name": "fedswa", "rho": 1.0, "server_lr": 1.0}
    assert run(algorithm=method, **keys) == pytest.approx(run(**keys), rel=1e-12)


def test_with_everybody_and_all_of_the_news_it_is_scaffold():
    """gamma = 1 and everybody in each round: m is the mean of the clients' variates."""
    keys = {"minima": (1.0, 3.0), "taus": (3, 3), "rounds": 5, "lr": 0.1}
    method = {"name": "fedmoswa", "rho": 1.0, "server_lr": 1.0, "gamma": 1.0}
    assert run(algorithm=method, **keys) == pytest.approx(
        run(algorithm="scaffold", **keys), rel=1e-12
    )


def test_drift_is_corrected():
    """Steps of unlike number, curvature alike: averaging rests off the mean minimum, 2, and
    FedMoSWA does not. FedSWA comes within 1e-6 of its rest in 40 rounds, FedMoSWA in 130."""
    keys = {"minima": (1.0, 3.0), "taus": (1, 8), "lr": 0.1}
    method = {"name": "fedmoswa", "server_lr": 1.0}
    assert abs(run(algorithm="fedswa", rounds=50, **keys) - 2.0) > 0.4
    assert run(algorithm=method, rounds=130, **keys) == pytest.approx(2.0, abs=1e-3)


@pytest.mark.parametrize("name", ["fedswa", "fedmoswa"])
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"local": {"optimizer": "adam"}}, "takes the learning rate alone; write"),
        ({"algorithm": {"rho": 1.5}}, "got rho = 1.5; expected at least 0 and at most 1"),
        ({"algorithm": {"server_lr": 0}}, "got lr = 0.0; expected a positive"),
    ],
)
def test_what_does_not_go_together_is_refused(name, keys, message):
    algorithm = {"name": name, **keys.get("algorithm", {})}
    with pytest.raises(ConfigError, match=message):
        simulate(**{**keys, "algorithm": algorithm})


def test_a_variate_needs_its_server():
    with pytest.raises(ConfigError, match="keeps m, which the server rule Momentum does not"):
        simulate(algorithm="fedmoswa", server="momentum")
