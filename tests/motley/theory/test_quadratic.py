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
        "stop": {"rounds": 265},
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


def test_fedavg_stands_still_where_its_closed_form_says() -> None:
    """tau = (2, 20), lr .01, weights (.5, .5): the fixed point is 9.014818, not the minimum 5.
    A round contracts by (.99^2 + .99^20) / 2 = .899, so 265 rounds leave 6e-13 of the way."""
    x = _run().item()
    want = float(fedavg_fixed_point([0.5, 0.5], [1, 1], [0, 10], [2, 20], lr=0.01))
    assert x == pytest.approx(want, rel=1e-10)
    assert x == pytest.approx(9.014818, abs=5e-7)


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
    plain = _run(stop={"rounds": 20})
    assert torch.equal(plain, _run(stop={"rounds": 20}, algorithm={"name": "fedprox", "mu": 0.0}))
    assert not torch.equal(
        plain, _run(stop={"rounds": 20}, algorithm={"name": "fedprox", "mu": 0.1})
    )


def test_fedprox_fixed_point() -> None:
    """A client's tau steps under pull mu go to (m_k + mu x) / (1 + mu), leaving r_k = (1 - lr (1 +
    mu))^tau of the way from x: delta_k = (1 - r_k)(m_k - x)/(1 + mu). The fixed point weighs the
    minima by 1 - r_k."""
    mu = 0.5
    lr = 0.01
    tau = np.array([2, 20])
    m = np.array([0.0, 10.0])
    moved = 1 - (1 - lr * (1 + mu)) ** tau
    x = _run(algorithm={"name": "fedprox", "mu": mu}, stop={"rounds": 280}).item()
    assert x == pytest.approx((moved * m).sum() / moved.sum(), rel=1e-10)


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
