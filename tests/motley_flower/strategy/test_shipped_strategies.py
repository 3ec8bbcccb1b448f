"""The strategies that Flower ships, where Flower is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from motley.algorithms.fedopt import ServerAdagrad, ServerAdam, ServerYogi
from motley_flower.messages import flower
from tests.motley.algorithms.server_contexts import context, model
from tests.motley_flower.apps import D, fedavg, grid, nodes, outcomes, run, target, weights
from tests.motley_flower.conftest import HERE
from tests.motley_flower.fake_grid import FakeGrid
from tests.motley_flower.strategy.test_replies import GARBAGE, sends

pytestmark = pytest.mark.skipif(
    not HERE, reason="Flower is not installed; make test-flower runs these"
)

SHIPPED = (
    "FedAvg FedAvgM FedAdam FedAdagrad FedYogi FedMedian FedProx FedTrimmedAvg Krum "
    "MultiKrum Bulyan"
)


def build_strategy(name):
    strategies = flower("serverapp.strategy")
    extra = {
        "FedProx": {"proximal_mu": 0.1},
        "Krum": {"num_malicious_nodes": 1},
        "MultiKrum": {"num_malicious_nodes": 1},
    }
    return getattr(strategies, name)(
        fraction_evaluate=1.0, min_available_nodes=5, **extra.get(name, {})
    )


@pytest.mark.parametrize("name", SHIPPED.split())
def test_a_shipped_strategy_with_a_selector_and_a_client_of_bad_replies(name):
    on = FakeGrid(nodes(*range(7)) | nodes(7, app=sends(GARBAGE["not a number"])))
    coordinator, result = run(
        on,
        {"name": "hetero_select_v1", "probe": "last_report"},
        m=7,
        rounds=5,
        strategy=build_strategy(name),
    )
    assert np.isfinite(weights(result)).all()
    assert all("accepted" in outcomes(coordinator, t).values() for t in range(1, 6))
    assert {row.outcome for row in coordinator.rows if row.client == 7} <= {"rejected"}
    assert len(result.evaluate_metrics_clientapp) == 5


def test_the_differentially_private_wrapper():
    strategies = flower("serverapp.strategy")
    private = strategies.DifferentialPrivacyServerSideFixedClipping(fedavg(), 0.1, 10.0, 3)
    coordinator, result = run(grid(5), m=3, rounds=3, strategy=private)
    assert {row.outcome for row in coordinator.rows} == {"accepted"}
    assert np.isfinite(weights(result)).all()


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("FedAdam", ServerAdam(lr=0.1, bias_correction="flower")),
        ("FedYogi", ServerYogi(lr=0.1, first_v=0.0)),
        ("FedAdagrad", ServerAdagrad(lr=0.1, first_v=0.0)),
    ],
)
def test_adaptive_steps_are_those_of_our_own_server_rules(name, rule):
    strategy = getattr(flower("serverapp.strategy"), name)(fraction_evaluate=0.0, eta=0.1)
    _, result = run(grid(3), m=3, rounds=6, strategy=strategy)
    shares = np.arange(10, 13) / 33.0
    state = rule.init(model(*np.zeros(D)), population=3)
    for _ in range(6):
        moves = [0.5 * (target(client) - state.model.x.numpy()) for client in range(3)]
        total = {"delta": torch.from_numpy(shares @ np.stack(moves))}
        state = rule.update(state, total, context(3))
    assert np.abs(weights(result)).min() > 0.3
    assert weights(result) == pytest.approx(state.model.x.numpy(), rel=1e-5)
