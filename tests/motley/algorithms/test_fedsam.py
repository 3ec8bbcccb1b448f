"""FedSAM and FedLESAM: steps worked by hand."""

from __future__ import annotations

import pytest
import torch

from motley.algorithms.fedsam import FedLESAM, FedSAM, ascent
from motley.core.errors import ConfigError
from motley.testing.algorithms import Play
from tests.motley.theory.test_algorithms import run, simulate


def test_the_ascent_has_its_length_and_a_zero_vector_has_none() -> None:
    assert ascent(torch.tensor([3.0, 4.0]), 0.5).tolist() == pytest.approx([0.3, 0.4])
    assert ascent(torch.zeros(2), 0.5).tolist() == [0.0, 0.0]


def test_a_step_at_two_coordinates() -> None:
    """F = (w1^2 + 9 w2^2) / 2 at (1, 1), rho .1: the gradient at w + e."""
    rule = FedSAM(rho=0.1).change(simulate().algorithm).local
    curve = torch.tensor([1.0, 9.0], dtype=torch.float64)
    (phase,) = rule.phases(None)
    found = phase.direction(lambda at, batch=0: curve * at, {"": torch.ones(2).double()}, 0)
    assert found.tolist() == pytest.approx([1.011043, 9.894495], abs=1e-6)
    assert rule.step_cost == 2.0


@pytest.mark.parametrize(("steps", "x"), [(1, 0.41), (2, 0.779)])
def test_fedsam_on_a_parabola(steps, x) -> None:
    """Minimum 4, lr = rho = .1, from 0: every gradient is .1 longer: 4.1, then 3.69."""
    keys = {"minima": (4.0,), "taus": (steps,), "lr": 0.1, "start": 0.0}
    assert run(algorithm={"name": "fedsam", "rho": 0.1}, **keys) == pytest.approx(x, rel=1e-12)


def test_fedlesam_looks_back_to_the_model_that_was_received() -> None:
    """Minimum 4, lr .5, rho .1, from 0. Round 1 is plain: 2. In round 2 the client came from 0, so
    e = -.1 and the gradient at 1.9 is -2.1: 3.05. In round 3, from 2, e = -.1 again: 2.95 - 4 =
    -1.05: 3.575."""
    keys = {"minima": (4.0,), "taus": (1,), "lr": 0.5, "start": 0.0}
    loop = simulate(algorithm={"name": "fedlesam", "rho": 0.1}, rounds=3, **keys)
    path = []
    while not loop.done:
        loop.step()
        path.append(loop.state.server.model.x.item())
    assert path == pytest.approx([2.0, 3.05, 3.575], rel=1e-12)


def test_an_absent_client_keeps_the_model_that_it_received_last() -> None:
    play = Play(FedLESAM(rho=0.5), "examples", simulate().config.setting.solver)
    sent = {}
    for number, cohort in enumerate(((2, 0), (1, 7), (0, 1))):
        sent[number] = play.server.model.x
        play.round(number, cohort)
        assert {k: int(s["rounds"]) for k, s in play.client_states.items()} == [
            {0: 1, 2: 1},
            {0: 1, 1: 1, 2: 1, 7: 1},
            {0: 2, 1: 2, 2: 1, 7: 1},
        ][number]
    last = {0: 2, 1: 2, 2: 0, 7: 1}
    assert all(torch.equal(play.client_states[k]["x"], sent[number]) for k, number in last.items())


@pytest.mark.parametrize("method", [FedSAM(rho=0.0), FedLESAM(rho=0.0)])
def test_without_a_distance_it_is_averaging(method) -> None:
    plain = simulate().algorithm
    assert method.change(plain) is plain


@pytest.mark.parametrize("name", ["fedsam", "fedlesam"])
@pytest.mark.parametrize("rho", [-1.0, float("inf")])
def test_distances_that_are_none_are_refused(name, rho) -> None:
    with pytest.raises(ConfigError, match=f"got rho = {rho}; expected a finite number"):
        simulate(algorithm={"name": name, "rho": rho})


def test_a_second_gradient_takes_time() -> None:
    took = []
    for name in ("fedavg", "fedlesam", "fedsam"):
        loop = simulate(algorithm=name, device={"name": "constant", "seconds": 1.0})
        loop.step()
        took.append(loop.state.clients.now_s)
    assert took[0] == took[1]
    assert took[2] == pytest.approx(2 * took[0])
