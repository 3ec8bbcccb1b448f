"""A folder under secure aggregation: the run is written down, and a server that was killed goes on,
with its draws, too."""

from __future__ import annotations

import json

import numpy as np
import pytest

import motley
from motley.core.errors import ConfigError
from motley.selectors import build
from motley_flower.messages import flower
from motley_flower.secure.keyfiles import as_register
from motley_flower.secure.secure_round import CohortHistory
from motley_flower.secure.verifiable_draws import verify_draws
from motley_flower.strategy.secure_sums import SecureSums
from motley_flower.strategy.wrapper import with_selector
from tests.motley_flower.apps import fedavg, model, outcomes, weights
from tests.motley_flower.strategy.test_secure_strategy import (
    DRAWN,
    LEVEL,
    OPTIONS,
    federation,
    keys,
    run,
)

__all__ = ["keys"]


class KilledError(BaseException):
    """As if the process were gone."""


def deploy(keys, out, killed=None, rounds=3, on=None, options=OPTIONS, m=6):
    def evaluate(step, arrays):
        if step == killed:
            raise KilledError
        return flower().MetricRecord({"loss": 1.0})

    on = federation(keys) if on is None else on
    wrapped = with_selector(
        fedavg(),
        build("uniform", seed=0),
        m,
        clock=on.clock,
        wait_s=10,
        query_limit_s=30.0,
        secure_aggregation=options,
        register=keys / "register.json",
        out=out,
    )
    return wrapped, wrapped.start(on, model(), num_rounds=rounds, timeout=60, evaluate_fn=evaluate)


@pytest.fixture(autouse=True)
def _no_report(monkeypatch):
    monkeypatch.setattr("motley_flower.recorded.run_files.RunFiles.report", lambda self: None)


def test_a_run_is_written_down_with_all_its_traffic(keys, tmp_path):
    wrapped, result = deploy(keys, tmp_path / "out")
    done = motley.load(tmp_path / "out")
    assert done.column("rounds", "accepted").tolist() == [6, 6, 6]
    assert done.column("rounds", "total_bits")[-1] == sum(wrapped.motley.traffic.values())
    assert wrapped.motley.traffic["secure_bits_up"] > 0
    np.testing.assert_allclose(
        weights(result), weights(run(federation(keys), keys, rounds=3)[1]), atol=6 * LEVEL
    )


def test_a_killed_server_goes_on_with_fresh_keys(keys, tmp_path):
    with pytest.raises(KilledError):
        deploy(keys, tmp_path / "out", killed=2)
    wrapped, result = deploy(keys, tmp_path / "out")
    assert motley.load(tmp_path / "out").column("rounds", "accepted").tolist() == [6, 6, 6]
    np.testing.assert_allclose(
        weights(result), weights(run(federation(keys), keys, rounds=3)[1]), atol=6 * LEVEL
    )
    assert wrapped.motley.secure.history.sums == [tuple(range(6))]


def test_what_was_disclosed_before_is_not_said_again(keys):
    """The sums of 0, 1, 2 and of 0, 1 disclose client 2."""
    assert CohortHistory([(0, 1, 2), (0, 1)]).disclosed == {2}


# ------------------------------------------------------------------------------------- draws


def submitted_again(keys, folder):
    """All ten clients of the register in a run of Flower's of their own: what lies with Flower is
    gone."""
    return federation(keys, 10, None, DRAWN, folder)


def test_a_killed_server_goes_on_with_its_chain(keys, tmp_path):
    out = tmp_path / "out"
    kept = tmp_path / "kept"
    with pytest.raises(KilledError):
        deploy(keys, out, 2, 5, submitted_again(keys, kept), DRAWN, 5)
    wrapped, _ = deploy(keys, out, None, 5, submitted_again(keys, kept), DRAWN, 5)
    told = wrapped.motley.secure.draws.transcript()
    assert verify_draws(told, as_register(keys / "register.json")) == 5
    for row in json.loads(told)["rounds"]:
        # the round after the kill, which clients may have begun
        said = "rejected" if row["round"] == 3 else "accepted"
        assert outcomes(wrapped.motley, row["round"]) == dict.fromkeys(row["cohort"], said)
    assert "of which there is one attempt" in next(
        row.reason for row in wrapped.motley.rows if row.round == 3
    )
    assert len(list(kept.glob("*/"))) == 1  # one run, whose draws were agreed on once


def test_clients_with_another_folder_have_forgotten_the_draws(keys, tmp_path):
    with pytest.raises(KilledError):
        deploy(keys, tmp_path / "out", 2, 4, submitted_again(keys, tmp_path / "kept"), DRAWN, 5)
    wrapped, _ = deploy(
        keys, tmp_path / "out", None, 4, submitted_again(keys, tmp_path / "new"), DRAWN, 5
    )
    assert set(outcomes(wrapped.motley, 4).values()) == {"dropped"}
    assert all(
        "got a cohort before its draws were agreed on" in row.reason
        for row in wrapped.motley.rows
        if row.round == 4
    )


def test_a_server_that_draws_anew_is_refused(keys, tmp_path, monkeypatch):
    out = tmp_path / "out"
    kept = tmp_path / "kept"
    with pytest.raises(KilledError):
        deploy(keys, out, 2, 3, submitted_again(keys, kept), DRAWN, 5)
    honest = SecureSums.restore
    monkeypatch.setattr(
        SecureSums, "restore", lambda self, saved: honest(self, {**saved, "draws": b""})
    )
    with pytest.raises(
        ConfigError, match="the draws cannot be agreed on: 0 of 10 clients are left"
    ):
        deploy(keys, out, None, 3, submitted_again(keys, kept), DRAWN, 5)


def test_another_folder_of_the_server_is_another_run(keys, tmp_path):
    kept = tmp_path / "kept"
    for name in ("first", "second"):
        wrapped, _ = deploy(keys, tmp_path / name, None, 1, submitted_again(keys, kept), DRAWN, 5)
        assert set(outcomes(wrapped.motley, 1).values()) == {"accepted"}
    assert len(list(kept.glob("*/"))) == 2  # which the clients see, and count
    assert len((kept / "agreements-0.txt").read_text().splitlines()) == 2
