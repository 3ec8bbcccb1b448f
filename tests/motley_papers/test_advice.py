"""Advice and its proof, with made numbers worked by hand."""

from math import nan

import pytest

from motley.core.errors import DataError
from motley_papers.advice import (
    ABSTAINED,
    OUTSIDE,
    UNSHOWN,
    Evidence,
    advice_lines,
    advise,
    evidence_csv,
    factors,
    league_evidence,
    profiles_csv,
    proof,
    read_evidence,
)

KINDS = {
    "base": "selection, under FedAvg",
    "one": "one model, uniform selection",
    "own": "a model for each client",
}
EVEN = {"label_divergence": 0.0}
SKEWED = {"label_divergence": 0.7, "drift": 0.9}
SLOW = {"speed_spread": 0.4}
BOTH = {**SKEWED, **SLOW}


def world(differences, profiles, control="base"):
    made = {name: {"base": [0.0, 0.0, 0.0], **entrants} for name, entrants in differences.items()}
    return Evidence(made, profiles, control, KINDS)


def skewed(*shifts, own=(9.0, 10.0, 11.0)):
    """As many environments with skewed labels alone: `own` gains about 10 in each, `one` may gain
    nothing."""
    names = [f"labels {i}" for i in range(len(shifts))]
    differences = {
        n: {"own": [v + d for v in own], "one": [-1.0, 0.0, 3.0]}
        for n, d in zip(names, shifts, strict=True)
    }
    return world(differences, dict.fromkeys(names, SKEWED))


def test_factors_are_what_is_large_and_drift_is_none():
    assert factors({**SKEWED, "availability": 1.0, "largest_share": 0.125, "size_gini": nan}) == {
        ("label_divergence", True)
    }
    assert factors({"availability": 0.7}) == {("availability", False)}


def test_only_environments_that_differ_alike_speak():
    found = advise(BOTH, skewed(0.0), personal=True)
    # level 1 - 0.05 / (1 environment x 1 entrant): t of 2 degrees 4.303, deviation 1, three seeds:
    # 10 -+ 4.303 / 3^0.5
    assert found is not None
    assert (found.entrant, list(found.gains)) == ("own", ["labels 0"])
    assert found.gains["labels 0"].low == pytest.approx(10 - 4.3027 / 3**0.5, abs=1e-3)
    assert advise(EVEN, skewed(0.0), personal=True) is None  # differs in nothing
    # not in what the environment differs in
    assert advise(SLOW, skewed(0.0), personal=True) is None
    # not at this strength
    assert advise({"label_divergence": 0.3}, skewed(0.0), personal=True) is None
    crossed = world({"labels and speeds": {"own": [9.0, 10.0, 11.0]}}, {"labels and speeds": BOTH})
    assert advise(SLOW, crossed, personal=True) is None  # the gain may be of the labels
    assert advise(SKEWED, crossed, personal=True) is None


def test_one_model_for_all_is_judged_apart_and_a_gain_that_may_be_none_is_no_gain():
    assert advise(SKEWED, skewed(0.0), personal=False) is None


def test_every_environment_must_show_the_gain():
    assert advise(SKEWED, skewed(0.0, 5.0), personal=True) is not None
    # the second: 1 -+ 1 x t / 3^0.5
    assert advise(SKEWED, skewed(0.0, -9.0), personal=True) is None


def test_many_methods_must_show_more():
    """With one method the t of 2 degrees is 4.3, with twenty it is 20: 10 -+ 20 / 3^0.5 holds
    zero."""
    names = [f"own {i}" for i in range(20)]
    made = {"labels": {"base": [0.0] * 3, **{name: [9.0, 10.0, 11.0] for name in names}}}
    kinds = {"base": KINDS["base"], **dict.fromkeys(names, KINDS["own"])}
    assert advise(SKEWED, Evidence(made, {"labels": SKEWED}, "base", kinds), personal=True) is None


def test_the_proof_by_hand():
    outside = world(
        {
            "new": {"own": [2.0, 4.0], "one": [1.0, 1.0]},
            "even": {"own": [-4.0, -2.0], "one": [0.0, 0.0]},
        },
        {"new": BOTH, "even": EVEN},
    )
    shown = proof(skewed(0.0, 2.0), outside, personal=True)
    # each of the two is advised from the other; `new` from both; nothing is advised where nothing
    # differs, where the winner loses 3
    assert dict(shown.by_environment.items()) == {
        "labels 0": ("own", 10.0, 10.0),
        "labels 1": ("own", 12.0, 12.0),
        "new": ("own", 3.0, 3.0),
        "even": ("", 0.0, -3.0),
    }
    assert shown.counts == (3, 0, 1)
    assert (shown.gain.mean, shown.winner.mean) == (6.25, 5.5)
    assert not shown.holds  # 6.25 -+ 3.182 x 5.68 / 2


def test_advice_is_given_only_where_it_has_paid():
    paid = skewed(0.0, 1.0, 2.0)
    unpaid = skewed(0.0)
    lines = advice_lines(SKEWED, paid)
    assert lines[0] == "These clients differ in: skewed labels (strong)."
    assert lines[1].startswith(
        "With a model for each client, own has gained over base: +10.0 points ["
    )
    assert lines[2].endswith("it helped 3 times, hurt 0 and abstained 0.")
    assert advice_lines(SKEWED, unpaid) == [lines[0], UNSHOWN]  # left out, nothing speaks for it
    assert advice_lines(EVEN, paid) == [ABSTAINED]


def test_a_run_that_diverged_is_no_gain():
    assert advise(SKEWED, skewed(0.0, own=(9.0, nan, 11.0)), personal=True) is None


def test_evidence_is_read_as_it_was_written():
    made = skewed(0.0, 1.0)
    again = read_evidence(
        evidence_csv(made.differences), profiles_csv(made.profiles), "base", KINDS
    )
    assert again.differences == made.differences
    assert again.profiles == made.profiles
    with pytest.raises(DataError, match="is damaged"):
        read_evidence("environment,entrant\na,b\n", "", "base", {})


def test_the_leagues_own_evidence_differs_in_what_it_is_named_after():
    """No environment on which advice rests has skewed labels beside something else, so that IID
    clients are told of no method."""
    found = league_evidence()
    outside = league_evidence(OUTSIDE)
    assert found is not None
    assert outside is not None
    assert set(found.differences) <= set(found.profiles)
    assert not set(found.differences) & set(outside.differences)
    for name in found.differences:
        assert {factor for factor, _ in factors(found.profiles[name])} <= {
            "label_divergence",
            "size_gini",
            "feature_shift",
            "label_noise",
        }
    assert advice_lines(
        {"label_divergence": 0.0, "availability": 1.0, "drift": 0.4, "largest_share": 0.2}
    ) == [ABSTAINED]
    assert not any("fine_tuned" in line for line in advice_lines(BOTH))
