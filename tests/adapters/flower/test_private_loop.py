"""A private run on real messages: the claim says where noise comes from, and the counts are kept."""

from __future__ import annotations

import pytest

from motley.adapters.flower.deployed.secure_rounds import secure_refusal
from motley.experiments.build import prepare
from motley.secure.terms import SecureOptions
from tests.adapters.flower.client_runtimes import deploy, experiment, federation

pytest.importorskip("dp_accounting")


def test_a_private_run_is_no_secure_sum_yet():
    setup = experiment(weights="uniform", privacy={"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0})
    assert "clips single uploads, which the server would not see" in (
        secure_refusal(prepare(setup), SecureOptions(clip=1.0)) or ""
    )


def test_a_private_deployment_counts_and_claims(tmp_path):
    signals = {
        "loss": {"low": 0.0, "high": 5.0, "multiplier": 20.0},
        "num_examples": {"low": 0.0, "high": 100.0, "multiplier": 20.0},
    }
    privacy = {"clip": 0.5, "delta": 1e-5, "noise_multiplier": 4.0, "signal_noise": signals}
    setup = experiment(weights="uniform", selector={"name": "power_of_choice", "d": 5}, privacy=privacy)
    done = deploy(federation(setup, tmp_path), setup, tmp_path / "real")
    claim = " ".join(done.meta["privacy"]["claim"])
    assert "The server adds the noise of the sums and of the signals" in claim
    assert "operating system's generator" in claim
    counts = done.tables["privacy"].to_pydict()
    accepted = done.tables["clients"].to_pydict()["client"]
    assert counts["sums"] == counts["choices"] == [accepted.count(client) for client in range(6)]
    assert all(n >= 1 for n in counts["signals"])
