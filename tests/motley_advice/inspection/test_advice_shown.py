"""What an inspection ends with: nothing before the league was run, then its advice for a single
federation."""

import numpy as np
import pytest

import motley
from motley.tasks import from_arrays
from motley_advice.inspection import inspecting

KEYS = {
    "task": {"name": "tabular", "data": "iris"},
    "population": 5,
    "cohort": 2,
    "stop": {"rounds": 1},
}


def test_advice_is_shown_for_a_single_federation(monkeypatch):
    seen = []

    def made(profile):
        seen.append(profile)
        return ["Try this first."]

    monkeypatch.setattr(inspecting, "extensions", lambda group: {"mine": None})
    monkeypatch.setattr(inspecting, "extension", lambda group, name: made)
    assert motley.inspect(KEYS).advice == ["Try this first."]
    assert "speed_spread" in seen[0]
    assert motley.inspect(KEYS, KEYS).advice == []


def test_an_outlying_client_does_not_count_for_advice(monkeypatch):
    draw = np.random.default_rng(0)
    x = draw.normal(5, 1, size=(2400, 3))
    client = np.arange(2400) % 10
    seen = []
    monkeypatch.setattr(inspecting, "extensions", lambda group: {"mine": None})
    monkeypatch.setattr(
        inspecting, "extension", lambda group, name: lambda one: [str(seen.append(one))]
    )
    clean = motley.inspect(from_arrays(x, np.arange(2400) % 2, client))
    assert len(clean.advice) == 1
    x[client == 4, 1] *= 100
    found = motley.inspect(from_arrays(x, np.arange(2400) % 2, client))
    assert found.advice[0] == "Outlying clients left out: client 4."
    assert found.federations[0].inspection.profile()["feature_shift"] > 0.02
    assert seen[1]["feature_shift"] < 0.02
    assert seen[1]["feature_shift"] == pytest.approx(seen[0]["feature_shift"], abs=0.02)
    assert seen[1]["speed_spread"] != seen[1]["speed_spread"]  # a table has none
