"""A strategy of Flower's older API and clients of a ``client_fn``, as they are, with a selector."""

from __future__ import annotations

import numpy as np
import pytest

import motley
from motley.core.errors import ConfigError
from motley.selectors import build
from motley_flower import with_reports, with_selector
from tests.motley_flower import apps
from tests.motley_flower.conftest import HERE
from tests.motley_flower.fake_grid import FakeGrid, FakeNode

pytestmark = [
    pytest.mark.skipif(not HERE, reason="Flower is not installed; make test-flower runs these"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

D = 3


def client_app(broken=()):
    """Client k moves the model half way to (k, k, k), and says how far that is."""
    from flwr.client import NumPyClient
    from flwr.clientapp import ClientApp

    class Client(NumPyClient):
        def __init__(self, k):
            self.k = k

        def get_parameters(self, config):
            return [np.full(D, 8.0)]

        def fit(self, parameters, config):
            if self.k in broken:
                raise RuntimeError("no samples")
            (w,) = parameters
            return (
                [w + 0.5 * (self.k - w)],
                10 + self.k,
                {"loss": float(abs(w - self.k).mean()), "site": f"ward {self.k}"},
            )

        def evaluate(self, parameters, config):
            return float(abs(parameters[0] - self.k).mean()), 10, {"accuracy": 0.5}

    def client_fn(context):
        return Client(context.node_config["partition-id"]).to_client()

    return ClientApp(client_fn)


def grid(n=4, **options):
    app = client_app(**options)
    return FakeGrid({1000 + 7 * k: FakeNode(app, {"partition-id": k}) for k in range(n)})


def legacy(name="FedAvg", **options):
    import flwr.server.strategy
    from flwr.common import ndarrays_to_parameters

    first = {"initial_parameters": ndarrays_to_parameters([np.zeros(D)]), **options}
    return getattr(flwr.server.strategy, name)(**{"fraction_evaluate": 0.0, **first})


def run(on, strategy, selector="uniform", m=2, rounds=3, **options):
    """Return the wrapped strategy and the final model."""
    wrapped = with_selector(
        strategy,
        build(selector, seed=0, horizon=50),
        m,
        clock=on.clock,
        max_examples=100,
        **options,
    )
    result = wrapped.start(on, num_rounds=rounds, timeout=200)
    return wrapped, next(iter(result.arrays.values())).numpy()


def test_the_selector_chooses_and_the_strategy_averages():
    """By hand: all four clients, weights 10 .. 13, from 0: the mean of k / 2 is (0 + 5.5 + 12 +
    19.5) / 46."""
    wrapped, w = run(grid(), legacy(), m=4, rounds=1)
    np.testing.assert_allclose(w, np.full(D, (11 * 0.5 + 12 * 1 + 13 * 1.5) / 46))
    assert [(row.client, row.outcome, row.signals["loss"]) for row in wrapped.motley.rows] == [
        (k, "accepted", float(k)) for k in range(4)
    ]


def test_the_same_clients_as_under_the_strategy_of_today():
    from flwr.serverapp.strategy import FedAvg

    chosen = [
        row.client
        for row in run(grid(), legacy(min_fit_clients=4, min_available_clients=4))[0].motley.rows
    ]
    on = apps.grid(4)
    wrapped = with_selector(
        FedAvg(fraction_evaluate=0.0), build("uniform", seed=0), 2, clock=on.clock
    )
    wrapped.start(on, apps.model(), num_rounds=3, timeout=200)
    assert chosen == [row.client for row in wrapped.motley.rows]


def test_a_round_s_config_and_a_failed_client(caplog):
    seen = []
    strategy = legacy(on_fit_config_fn=lambda t: seen.append(t) or {"lr": 0.1}, min_fit_clients=3)
    wrapped, _ = run(grid(broken=(1,)), strategy, m=4, rounds=2)
    assert seen == [1, 2]
    assert {row.outcome for row in wrapped.motley.rows if row.client == 1} == {"dropped"}
    assert "its client app raised RuntimeError; the node's own log" in caplog.text
    assert "no samples" not in caplog.text


def test_the_first_model_is_a_client_s_where_the_strategy_has_none():
    _, w = run(grid(), legacy(initial_parameters=None), m=4, rounds=1)
    np.testing.assert_allclose(w, np.full(D, (10 * 4 + 11 * 4.5 + 12 * 5 + 13 * 5.5) / 46))


def test_evaluations_of_clients_and_server(tmp_path):
    def central(step, arrays, config):
        return float(arrays[0].mean()), {"accuracy": 0.1 * step}

    strategy = legacy(
        evaluate_fn=central,
        fraction_evaluate=1.0,
        evaluate_metrics_aggregation_fn=lambda pairs: {"accuracy": pairs[0][1]["accuracy"]},
    )
    _, w = run(grid(), strategy, rounds=2, out=tmp_path / "out")
    done = motley.load(tmp_path / "out")
    evaluated = done.tables["evaluations"].to_pylist()
    central_rows = [
        (row["round"], row["accuracy"]) for row in evaluated if row["scope"] == "global"
    ]
    assert central_rows == [(0, 0.0), (1, 0.1), (2, 0.2)]
    assert [row["loss"] for row in evaluated if row["scope"] == "global"][-1] == w.mean()
    assert sum(row["scope"] == "client" for row in evaluated) == 8


class KilledError(BaseException):
    """As if the process were gone."""


def test_a_killed_server_goes_on_with_the_strategy_s_moments(tmp_path):
    def central(killed):
        def evaluate(step, arrays, config):
            if step == killed:
                raise KilledError
            return 1.0, {}

        return evaluate

    _, whole = run(
        grid(), legacy("FedAdam", evaluate_fn=central(None)), rounds=4, out=tmp_path / "whole"
    )
    with pytest.raises(KilledError):
        run(grid(), legacy("FedAdam", evaluate_fn=central(2)), rounds=4, out=tmp_path / "cut")
    _, again = run(
        grid(), legacy("FedAdam", evaluate_fn=central(None)), rounds=4, out=tmp_path / "cut"
    )
    np.testing.assert_array_equal(whole, again)


def test_the_older_server_is_refused_with_the_lines_that_replace_it():
    from flwr.server import SimpleClientManager
    from flwr.server.server import Server

    wrapped = with_selector(legacy(), build("uniform", seed=0), 2)
    with pytest.raises(
        ConfigError, match=r"app = ServerApp\(\), @app.main\(\) and strategy.start\(grid"
    ):
        Server(client_manager=SimpleClientManager(), strategy=wrapped).fit(1, None)


def test_the_one_line_measures_a_client_of_the_older_api_in_training_and_not_before_a_choice():
    import torch
    from flwr.client import NumPyClient
    from flwr.clientapp import ClientApp

    class Client(NumPyClient):
        def fit(self, parameters, config):
            w = torch.tensor(parameters[0], requires_grad=True)
            optimizer = torch.optim.SGD([w], lr=0.1)
            for _ in range(2):
                torch.nn.functional.mse_loss(w, torch.ones(D, dtype=w.dtype)).backward()
                optimizer.step()
                optimizer.zero_grad()
            return [w.detach().numpy()], 5, {}

    app = with_reports(ClientApp(lambda context: Client().to_client()))
    on = FakeGrid({1000 + 7 * k: FakeNode(app, {"partition-id": k}) for k in range(3)})
    wrapped, _ = run(on, legacy(), "oort", rounds=1)
    # three samples of squares 1, then, after a step of 2/3 * 0.1 to each, (1 - 0.2 / 3)^2: their
    # root mean square
    second = (1 - 0.2 / 3) ** 2
    assert [row.outcome for row in wrapped.motley.rows] == ["accepted"] * 2
    assert wrapped.motley.rows[0].signals["loss_rms"] == pytest.approx(((1 + second**2) / 2) ** 0.5)
    with pytest.raises(ConfigError, match="PowerOfChoice needs loss before a choice"):
        run(on, legacy(), "power_of_choice")
