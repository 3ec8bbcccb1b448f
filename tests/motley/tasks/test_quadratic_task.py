import numpy as np
import pytest
import torch

from motley.core.errors import ConfigError
from motley.core.keys import Key
from motley.core.ragged import Ragged
from motley.tasks import TASKS
from motley.tasks.federate import Split, federate, partition_input
from motley.tasks.flat import FlatModule
from motley.tasks.quadratic import (
    Quadratic,
    fedavg_fixed_point,
    fedavg_round,
    fednova_fixed_point,
    minimum,
)

A = [1.0, 1.0]
M = [0.0, 10.0]
TAU = [2, 20]
P = [0.5, 0.5]


def test_fixed_points_of_the_reference() -> None:
    """10 (1 - .99^20) / (2 - .99^2 - .99^20) = 9.014818."""
    assert fedavg_fixed_point(P, A, M, TAU, 0.01) == pytest.approx(9.014818, abs=5e-7)
    assert fedavg_fixed_point(P, A, M, TAU, 0.1) == pytest.approx(8.221679, abs=5e-7)
    assert fednova_fixed_point(P, A, M, TAU, 0.01) == pytest.approx(4.778178, abs=5e-7)
    assert fednova_fixed_point(P, A, M, TAU, 0.1) == pytest.approx(3.161589, abs=5e-7)
    assert fednova_fixed_point(P, A, M, TAU, 0.001) == pytest.approx(4.977530, abs=5e-7)


def test_a_round_by_hand_and_its_fixed_point() -> None:
    """x = 4, lr .1, steps (2, 4): y = (3.24, 6.0634), FedAvg 4.6517. The map repeated ends in the
    closed form."""
    assert fedavg_round(4.0, P, A, M, [2, 4], 0.1) == pytest.approx((3.24 + 6.0634) / 2, abs=1e-12)
    w = np.zeros(())
    for _ in range(400):
        w = fedavg_round(w, [0.3, 0.7], [1.0, 2.5], M, TAU, 0.05)
    assert w == pytest.approx(fedavg_fixed_point([0.3, 0.7], [1.0, 2.5], M, TAU, 0.05), abs=1e-12)


def test_closed_forms_in_more_dimensions() -> None:
    centres = [[0.0, 2.0], [10.0, 4.0]]
    assert fedavg_fixed_point(P, A, centres, TAU, 0.01)[0] == pytest.approx(9.014818, abs=5e-7)
    assert minimum([0.5, 0.5], [1.0, 3.0], centres).tolist() == [7.5, 3.5]
    assert fedavg_round([1.0, 1.0], P, A, centres, [1, 1], 0.5).tolist() == [3.0, 2.0]


def test_gradient_of_the_linear_layer_is_that_of_the_parabola() -> None:
    """f = a/2 |w - m|^2 at w: value and gradient a (w - m)."""
    source = Quadratic(dim=2, curvatures=(4.0, 1.0), minima=(1.0, -1.0, 5.0, 0.0), examples=(3, 1))
    pool = source.load(Key(0), 2)
    flat = FlatModule(source.factory(pool)(), torch.float64)
    flat.w.copy_(torch.tensor([2.0, 3.0]))
    rows = torch.from_numpy(np.flatnonzero((pool.groups == 0) & ~pool.test))
    assert len(rows) == 3
    loss = ((flat.module(pool.x[rows]) - pool.y[rows]).square().sum(-1) / 2).mean()
    assert loss.item() == pytest.approx(4.0 / 2 * (1.0 + 16.0))
    assert flat.gradient(loss).tolist() == pytest.approx([4.0, 16.0])


def test_clients_and_their_test_rows() -> None:
    source = TASKS.build({"name": "quadratic", "examples": [2, 1, 4]})
    pool = source.load(Key(0), 3)
    rows = partition_input(pool, Split(), Key(0))
    assert rows.groups is not None
    parts = Ragged.of([np.flatnonzero(rows.groups == k) for k in range(3)])
    fed = federate(pool, rows, parts, Split(), Key(0))
    assert fed.train.sizes.tolist() == [2, 1, 4]
    assert fed.test.sizes.tolist() == [1, 1, 1]
    for k in range(3):
        assert torch.equal(fed.y[fed.test[k][0]], fed.y[fed.train[k][0]])
    task = source.task("quadratic", pool, fed)
    assert (task.loss, task.metric, task.layout.size) == ("half_squared_error", "loss", 1)


def test_bad_options() -> None:
    with pytest.raises(
        ConfigError, match=r"task: curvatures: got \[0.0\]; expected numbers above 0"
    ):
        TASKS.build({"name": "quadratic", "curvatures": [0]})
    with pytest.raises(ConfigError, match=r"task: dim: got 0"):
        TASKS.build({"name": "quadratic", "dim": 0})
    with pytest.raises(ConfigError, match=r"task: examples: got \[0\]"):
        TASKS.build({"name": "quadratic", "examples": [0]})
    with pytest.raises(ConfigError, match=r"task.minima: got 3 numbers; this population needs 4"):
        Quadratic(dim=2, minima=(1.0, 2.0, 3.0)).load(Key(0), 2)
