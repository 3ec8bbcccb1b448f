"""A folder under secure aggregation: the run is written down, and is not resumed."""

from __future__ import annotations

import numpy as np
import pytest

import motley
from motley.adapters.flower.messages import flower
from motley.adapters.flower.strategy.wrapper import with_selector
from motley.core.errors import ConfigError
from motley.selectors import build
from tests.adapters.flower.apps import fedavg, model, weights
from tests.adapters.flower.strategy.test_secure_strategy import LEVEL, OPTIONS, federation, keys, run

__all__ = ["keys"]


class KilledError(BaseException):
    """As if the process were gone."""


def deploy(keys, out, killed=None, rounds=3):
    def evaluate(step, arrays):
        if step == killed:
            raise KilledError
        return flower().MetricRecord({"loss": 1.0})

    on = federation(keys)
    wrapped = with_selector(
        fedavg(), build("uniform", seed=0), 6, clock=on.clock, wait_s=10, query_limit_s=30.0, secure_aggregation=OPTIONS,
        register=keys / "register.json", out=out,
    )  # fmt: skip
    return wrapped, wrapped.start(on, model(), num_rounds=rounds, timeout=60, evaluate_fn=evaluate)


@pytest.fixture(autouse=True)
def _no_report(monkeypatch):
    monkeypatch.setattr("motley.adapters.flower.recorded.run_files.RunFiles.report", lambda self: None)


def test_a_run_is_written_down_with_all_its_traffic(keys, tmp_path):
    wrapped, result = deploy(keys, tmp_path / "out")
    done = motley.load(tmp_path / "out")
    assert done.column("rounds", "accepted").tolist() == [6, 6, 6]
    assert done.column("rounds", "total_bits")[-1] == sum(wrapped.motley.traffic.values())
    assert wrapped.motley.traffic["secure_bits_up"] > 0
    np.testing.assert_allclose(weights(result), weights(run(federation(keys), keys, rounds=3)[1]), atol=6 * LEVEL)


def test_a_killed_server_does_not_go_on_with_the_keys_of_before(keys, tmp_path):
    with pytest.raises(KilledError):
        deploy(keys, tmp_path / "out", killed=2)
    with pytest.raises(ConfigError, match=r"keys and draws of secure aggregation are those of one start.*model.safetensors"):
        deploy(keys, tmp_path / "out")
    assert motley.load(tmp_path / "out").column("rounds", "round").tolist() == [1]
