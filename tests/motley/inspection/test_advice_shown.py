"""What an inspection ends with: nothing before the league was run, then its advice for a single
federation."""

import motley
from motley.inspection import inspecting

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
