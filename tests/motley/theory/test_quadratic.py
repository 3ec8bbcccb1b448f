"""Theory on the quadratic task, through the whole simulation: closed forms, and special cases that
must coincide.

Worked numbers: docs/methods/algorithms.md#fedavg.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motley.experiments.build import build
from motley.experiments.config import Experiment
from motley.rounds.loop import RoundLoop
from motley.tasks.quadratic import fedavg_fixed_point, fedavg_round


def _simulation(**keys: object) -> RoundLoop:
    """Two parabolas of curvature 1 with minima 0 and 10; client k has tau_k = n_k samples, batches
    of one, one epoch."""
    base = {
        "task": {"name": "quadratic", "minima": [0.0, 10.0], "examples": [2, 20]},
        "population": 2,
        "cohort": 2,
        "partition": "by_writer",
        "stop": {"rounds": 40},
        "local": {"batch_size": 1, "optimizer": {"name": "sgd", "lr": 0.01}},
        "weights": "uniform",
        "dtype": "float64",
        "engine": "sequential",
        "evaluate": {"every": 1000, "per_client": False},
    }
    return build(Experiment(**{**base, **keys}))


def _run(**keys: object) -> torch.Tensor:
    simulation = _simulation(**keys)
    while not simulation.done:
        simulation.step()
    return simulation.state.server.model.x


def _comes_to_rest(at: float, left: float, **keys: object) -> None:
    """Require that each round leaves this share of the way to a fixed point, where it stays."""
    simulation = _simulation(**keys)
    way = simulation.state.server.model.x.item() - at
    for number in range(1, 41):
        simulation.step()
        x = simulation.state.server.model.x.item()
        assert x == pytest.approx(at + left**number * way, rel=1e-10)
    resting = _simulation(**keys, stop={"rounds": 1})
    resting.state.server.model.x.fill_(at)
    resting.step()
    assert resting.state.server.model.x.item() == pytest.approx(at, rel=1e-14)


def test_fedavg_stands_still_where_its_closed_form_says() -> None:
    """tau = (2, 20), lr .01, weights (.5, .5): the fixed point is 9.014818, not the minimum 5.
    A round contracts by (.99^2 + .99^20) / 2 = .899."""
    want = float(fedavg_fixed_point([0.5, 0.5], [1, 1], [0, 10], [2, 20], lr=0.01))
    assert want == pytest.approx(9.014818, abs=5e-7)
    left = (0.99**2 + 0.99**20) / 2
    assert left == pytest.approx(0.899, abs=5e-4)
    _comes_to_rest(want, left)


@pytest.mark.parametrize(
    ("weights", "p"),
    [
        ("uniform", [0.5, 0.5]),
        ("examples", [2 / 22, 20 / 22]),
        ("horvitz_thompson", [2 / 22, 20 / 22]),
    ],
)
def test_one_round_equals_its_closed_form_under_every_weighting(
    weights: str, p: list[float]
) -> None:
    """With everybody taking part ``horvitz_thompson`` (K p_k / M, M = K) and ``examples`` are the
    same."""
    start = _simulation().state.server.model.x.item()
    x = _run(weights=weights, stop={"rounds": 1}).item()
    assert x == pytest.approx(
        float(fedavg_round(start, p, [1, 1], [0, 10], [2, 20], 0.01)), rel=1e-12
    )


def test_fedprox_at_zero_is_fedavg_bit_for_bit() -> None:
    plain = _run(stop={"rounds": 8})
    assert torch.equal(plain, _run(stop={"rounds": 8}, algorithm={"name": "fedprox", "mu": 0.0}))
    assert not torch.equal(
        plain, _run(stop={"rounds": 8}, algorithm={"name": "fedprox", "mu": 0.1})
    )


def test_fedprox_fixed_point() -> None:
    """A client's tau steps under pull mu go to (m_k + mu x) / (1 + mu), leaving r_k = (1 - lr (1 +
    mu))^tau of the way from x: delta_k = (1 - r_k)(m_k - x)/(1 + mu). The fixed point weighs the
    minima by 1 - r_k, and a round goes the mean of (1 - r_k) / (1 + mu) of the way."""
    mu = 0.5
    lr = 0.01
    tau = np.array([2, 20])
    m = np.array([0.0, 10.0])
    moved = 1 - (1 - lr * (1 + mu)) ** tau
    at, left = (moved * m).sum() / moved.sum(), 1 - moved.mean() / (1 + mu)
    _comes_to_rest(at, left, algorithm={"name": "fedprox", "mu": mu})


def test_full_batch_full_participation_is_gradient_descent() -> None:
    """One local step on everything, weights n_k / n: x <- x - lr grad of sum p_k f_k."""
    keys = {
        "local": {"batch_size": 100, "optimizer": {"name": "sgd", "lr": 0.1}},
        "weights": "examples",
        "stop": {"rounds": 1},
    }
    start = _simulation(**keys).state.server.model.x.item()
    gradient = 2 / 22 * (start - 0.0) + 20 / 22 * (start - 10.0)
    assert _run(**keys).item() == pytest.approx(start - 0.1 * gradient, rel=1e-12)


def test_a_diverging_client_is_rejected_and_the_run_goes_on() -> None:
    """lr 10^200 overflows in two steps: both uploads are non-finite, the model stays, the round
    counts, the traffic is paid."""
    simulation = _simulation(
        local={"batch_size": 1, "optimizer": {"name": "sgd", "lr": 1e200}}, stop={"rounds": 2}
    )
    before = simulation.state.server.model.x.clone()
    done = [simulation.step(), simulation.step()]
    assert [r.accepted for r in done] == [0, 0]
    assert torch.equal(simulation.state.server.model.x, before)
    assert simulation.done
    # heads and checksum
    assert simulation.state.ledger.total("upload", "up") == 2 * 2 * (32 + 8 * 67)
