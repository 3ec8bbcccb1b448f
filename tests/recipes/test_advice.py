"""Advice and its proof, with made numbers worked by hand."""

from math import isnan, nan

import pytest

from motley.core.errors import DataError
from motley.recipes.advice import (
    Effect,
    Evidence,
    advice_lines,
    advise,
    distance,
    evidence_csv,
    league_evidence,
    profiles_csv,
    proof,
    read_evidence,
)

KINDS = {"base": "selection, under FedAvg", "label": "one model, uniform selection", "speed": "selection, under FedAvg",
         "own": "a model for each client"}  # fmt: skip


def profile(label, speed):
    return {"label_divergence": label, "speed_spread": speed, "size_gini": 0.0, "drift": nan}


def world(gain=10.0, loss=-8.0):
    """Six environments with skewed labels, in which `label` helps, and six with unequal speeds, in which `speed` does."""
    effects, profiles = {}, {}
    for i in range(6):
        for kind, helps in (("labels", "label"), ("speeds", "speed")):
            name = f"{kind} {i}"
            other = {"label": "speed", "speed": "label"}[helps]
            effects[name] = {
                "base": Effect(0.0, 1.0, 1.0),
                helps: Effect(gain + 0.1 * i, 0.5, 2.0),
                other: Effect(loss, nan, nan),
                "own": Effect(1.0 + 0.1 * i, 1.0, 1.0),
            }
            profiles[name] = profile(0.8, 0.01 * i) if helps == "label" else profile(0.01 * i, 0.8)
    return Evidence(effects, profiles, "base", KINDS)


def test_distance_by_hand():
    # 0.5 and 0.1 and 0 over the three that both have; drift is known of neither
    assert distance(profile(0.5, 0.1), profile(0.0, 0.0)) == pytest.approx(0.2)
    assert isnan(distance({"size_gini": 0.0, "drift": 1.0}, profile(0.0, 0.0)))


def test_advice_looks_at_the_nearest_environments():
    found = advise(profile(0.9, 0.0), world(), by_likeness=True)
    assert found.entrant == "label"
    assert list(found.environments) == [f"labels {i}" for i in range(5)]
    assert found.difference.mean == pytest.approx(10.2)  # 10, 10.1, ..., 10.4
    assert advise(profile(0.0, 0.9), world(), by_likeness=True).entrant == "speed"


def test_the_overall_winner_by_hand():
    # label: six times 10.25 and six times -8: 1.125 in the mean; own: 1.25
    found = advise(profile(0.9, 0.0), world(), by_likeness=False)
    assert (found.entrant, found.difference.mean) == ("own", pytest.approx(1.25))


def test_nothing_is_recommended_whose_gain_may_be_none():
    # label: -0.25, -0.15, ..., 0.25 and six zeros
    found = advise(profile(0.9, 0.0), world(gain=-0.25, loss=0.0), by_likeness=False, entrants=["base", "label"])
    assert found.entrant == "base"
    effects = {f"e{i}": {"base": Effect(0.0), "x": Effect(float(i % 2) - 0.5)} for i in range(6)}
    profiles = {f"e{i}": profile(0.1 * i, 0.0) for i in range(6)}
    lines = advice_lines(profile(0.9, 0.0), Evidence(effects, profiles, "base", {}))
    assert any(line.startswith("Nothing here beats base") for line in lines)


def test_the_proof_by_hand():
    shown = proof(world())
    # by likeness always the best: the five nearest are the other five of its kind
    assert shown.advice == pytest.approx(0.0)
    # without an environment of one kind the other kind's method wins, (6 * 10.25 - 5 * 8) / 11 = 1.95 against 1.25 of `own`, and then
    # stays 10 + 0.1 i + 8 behind
    assert shown.winner == pytest.approx(18.25)
    assert shown.control == pytest.approx(10.25)
    assert shown.holds
    assert shown.by_environment["labels 0"][0] == "label"


def test_advice_that_does_not_beat_the_winner_gives_way_to_it():
    flat = world()
    effects = {name: {**one, "own": Effect(20.0)} for name, one in flat.effects.items()}
    even = Evidence(effects, flat.profiles, "base", KINDS)
    assert not proof(even).holds  # both always name `own`: no gain
    lines = advice_lines(profile(0.9, 0.0), even)
    assert lines[0] == "What differs most between these clients: skewed labels (label_divergence 0.90)."
    assert lines[1].startswith("Try own first (a model for each client): +20.0 points")
    assert "over the 12 environments of the league." in lines[1]
    assert lines[2].startswith("With one model for all")
    assert lines[-1].endswith(". Likeness does not surely pay, so this is the overall winner.")
    assert len(lines) <= 5


def test_five_lines_with_costs():
    lines = advice_lines(profile(0.9, 0.0), world())
    online = advice_lines({**profile(0.9, 0.0), "availability": 0.7}, world())[0]
    assert online == (
        "What differs most between these clients: skewed labels (label_divergence 0.90), absent clients (availability 0.70)."
    )
    assert advice_lines({**profile(0.0, 0.0), "availability": 1.0}, world())[0] == "These clients hardly differ."
    assert lines[1].startswith("Try label first (one model, uniform selection): +10.2 points [+10.0, +10.4] against base")
    assert "labels 0; labels 1; labels 2; labels 3; labels 4" in lines[1]
    assert lines[2] == "To the same accuracy it takes 0.5 times the time and 2 times the traffic, where both reach it."
    assert lines[3].startswith("Left out one by one, 12 environments stayed 0.0 points behind")
    assert len(lines) <= 5


def test_evidence_is_read_as_it_was_written():
    made = world()
    again = read_evidence(evidence_csv(made.effects), profiles_csv(made.profiles), "base", KINDS)
    assert again.effects["labels 1"]["label"] == Effect(10.1, 0.5, 2.0)
    assert again.profiles["labels 1"] == {"label_divergence": 0.8, "speed_spread": 0.01, "size_gini": 0.0}
    assert advice_lines(profile(0.9, 0.0), again) == advice_lines(profile(0.9, 0.0), made)
    with pytest.raises(DataError, match="is damaged"):
        read_evidence("environment,entrant\na,b\n", "", "base", {})


def test_the_leagues_own_evidence_is_whole_or_not_there():
    found = league_evidence()
    if found is None:
        assert advice_lines(profile(0.9, 0.0)) == []
    else:
        assert found.control in found.entrants
        assert set(found.effects) <= set(found.profiles)


def test_federations_outside_are_advised_from_all_of_the_evidence():
    outside = Evidence({"new": {"base": Effect(0.0), "label": Effect(3.0), "speed": Effect(5.0), "own": Effect(4.0)}},
                       {"new": profile(0.9, 0.0)}, "base", KINDS)  # fmt: skip
    shown = proof(world(), outside)
    # likeness says `label`, 5 - 3 behind; the winner over all twelve is `own`, 5 - 4 behind
    assert shown.by_environment == {"new": ("label", 2.0, 1.0, 5.0)}
    assert not shown.holds
    assert advice_lines(profile(0.9, 0.0), world(), outside)[-1].endswith(
        "; on federations outside the league (1) 2.0, 1.0 and 5.0."
    )
