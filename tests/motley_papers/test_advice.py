"""Advice and its proof, with made numbers worked by hand."""

from math import nan

import pytest

from motley.core.errors import DataError
from motley_papers.advice import (
    ABSTAINED,
    NAMED,
    PROFILES,
    PROOF,
    UNPROVEN,
    UNSHOWN,
    Advised,
    Evidence,
    Gain,
    Proof,
    advice_lines,
    advise,
    evidence_texts,
    factors,
    league_evidence,
    prove,
    prove_left_out,
    read_evidence,
    speaks,
)

EVEN = {"label_divergence": 0.0}
SKEWED = {"label_divergence": 0.7, "drift": 0.9}
SLOW = {"speed_spread": 0.4}
BOTH = {**SKEWED, **SLOW}
PAID = Proof([Advised("a", "one", 2.0, "one", 2.0), Advised("b", "one", 2.2, "one", 2.2)])


def world(gains, profiles, proofs=None):
    """Evidence for one model."""
    return Evidence({False: gains}, profiles, proofs or {})


LABELS = world({"labels": {"one": Gain([1.0, 2.0, 3.0])}}, {"labels": SKEWED})


def test_factors_are_what_is_large_and_drift_is_none():
    assert factors({**SKEWED, "availability": 1.0, "largest_share": 0.125, "size_gini": nan}) == {
        ("label_divergence", True)
    }
    assert factors({"availability": 0.7}) == {("availability", False)}


def test_a_gain_has_its_interval():
    # t of 2 degrees 4.303, deviation 1: 2 -+ 4.303 / 3^0.5
    assert Gain([1.0, 2.0, 3.0]).interval.low == pytest.approx(2 - 4.3027 / 3**0.5, abs=1e-3)


def test_a_gain_is_sure_after_holm_over_its_kind_of_model():
    """With two degrees of freedom p = 1 - t / sqrt(t^2 + 2): t = 10 sqrt 3 has p .0033, t = 3 sqrt
    3 p .0351, which two environments double."""
    sure, alone = Gain([9.0, 10.0, 11.0]), Gain([2.0, 3.0, 4.0])
    assert (sure.p, alone.p) == pytest.approx((1 - (300 / 302) ** 0.5, 1 - (27 / 29) ** 0.5))
    assert world({"labels": {"one": alone}}, {}).sign(False, "labels", "one") == 1
    both = world({"labels": {"one": alone}, "even": {"one": Gain([2.0, 3.0, 4.0])}}, {})
    assert both.sign(False, "labels", "one") == 0
    beside = Evidence({False: {"labels": {"one": alone}}, True: {"even": {"two": sure}}}, {})
    assert beside.sign(False, "labels", "one") == 1  # the other kind is corrected apart
    lost = Gain([-9.0, -10.0, -11.0])
    assert world({"labels": {"one": lost}}, {}).sign(False, "labels", "one") == -1
    # the seeds that chose it flatter it, and a run that diverged is no gain
    chose = Gain([9.0, 10.0, 11.0], again=False)
    assert world({"labels": {"one": chose}}, {}).sign(False, "labels", "one") == 0
    diverged = Gain([9.0, nan, 11.0])
    assert world({"labels": {"one": diverged}}, {}).sign(False, "labels", "one") == 0


def test_an_environment_speaks_if_it_has_what_it_is_named_after():
    assert speaks("labels-strong", SKEWED)
    assert speaks("writers", BOTH)
    assert not speaks("even", EVEN)
    assert not speaks("noise-weak, labels", SKEWED)  # too weak to be seen: it would be of labels
    assert not speaks("liars-weak, labels", SKEWED)  # nothing in a profile shows liars


def evidence(**more):
    return world(
        {name: {"one": Gain([9.0, 10.0, 11.0])} for name in ("labels", *more)},
        {"labels": SKEWED, **more},
    )


def test_only_environments_that_differ_alike_speak():
    found = advise(BOTH, evidence(), personal=False)
    assert found is not None
    assert (found[0], list(found[1])) == ("one", ["labels"])
    assert advise(EVEN, evidence(), personal=False) is None
    assert advise(SLOW, evidence(), personal=False) is None
    assert advise({"label_divergence": 0.3}, evidence(), personal=False) is None  # not so strong
    assert advise(BOTH, evidence(), personal=True) is None  # the other kind of model
    crossed = world(
        {"speeds-weak, labels": {"one": Gain([9.0, 10.0, 11.0])}}, {"speeds-weak, labels": BOTH}
    )
    assert advise(SLOW, crossed, personal=False) is None  # the gain may be of the labels


def test_the_nearest_environment_silences_those_that_it_includes():
    known = world(
        {"labels": {"one": Gain([9.0, 10.0, 11.0])}, "speeds, labels": {"one": Gain([0.0, 1.0])}},
        {"labels": SKEWED, "speeds, labels": BOTH},
    )
    assert advise(SKEWED, known, personal=False) is not None
    assert advise(BOTH, known, personal=False) is None


def test_who_is_behind_in_another_environment_that_speaks_is_not_named():
    there = {
        "labels": {"one": Gain([9.0, 10.0, 11.0]), "two": Gain([1.0, 1.1, 1.2], again=False)},
        "writers": {"one": Gain([-1.0, -0.5], again=False), "two": Gain([2.0, 2.1, 2.2])},
    }
    found = advise(SKEWED, world(there, dict.fromkeys(there, SKEWED)), personal=False)
    assert found is not None
    assert (found[0], list(found[1])) == ("two", ["writers", "labels"])


def test_the_proof_by_hand():
    outside = {
        "new": {"one": [2.0, 4.0], "best": [1.0, 1.0]},
        "even": {"one": [-4.0, -2.0], "best": [-3.0, -1.0]},
    }
    shown = prove(evidence(), outside, {"new": BOTH, "even": EVEN}, "best", False)
    assert [(one.entrant, one.gain, one.winners_gain) for one in shown.advised] == [
        ("one", 3.0, 1.0),
        ("", 0.0, -2.0),
    ]
    assert shown.counts == (1, 0, 1)
    assert (shown.gain.mean, shown.winners_gain.mean) == (1.5, -0.5)
    assert not shown.holds  # 1.5 -+ 12.7 x 2.1 / 2^0.5


def test_the_proof_with_each_environment_left_out_by_hand():
    there = {
        "labels": {"one": Gain([9.0, 10.0, 11.0]), "two": Gain([1.0, 3.0], again=False)},
        "writers": {"two": Gain([2.0, 2.1, 2.2]), "one": Gain([5.0, 7.0], again=False)},
        "speeds": {"one": Gain([0.0, 1.0], again=False), "two": Gain([3.0, 5.0], again=False)},
    }
    known = world(there, {"labels": SKEWED, "writers": SKEWED, "speeds": SLOW})
    for name in ("labels", "writers"):  # with its own evidence, one is named in both
        assert advise(known.profiles[name], known, personal=False)[0] == "one"
    measured = {
        place: {e: gain.points for e, gain in some.items()} for place, some in there.items()
    }
    winners = {"labels": "one", "writers": "two", "speeds": "two"}
    shown = prove_left_out(known, measured, winners, False)
    assert [(one.federation, one.entrant, one.gain) for one in shown.advised] == [
        ("labels", "two", 2.0),
        ("writers", "one", 6.0),
        ("speeds", "", 0.0),
    ]
    assert [one.winners_gain for one in shown.advised] == pytest.approx([10.0, 2.1, 4.0])
    assert shown.counts == (2, 0, 1)
    # deviation (28 / 3)^0.5, t of 2 degrees 4.303
    assert shown.gain.mean == pytest.approx(8 / 3)
    assert shown.gain.low == pytest.approx(8 / 3 - 4.3027 * 28**0.5 / 3, abs=1e-3)


def test_advice_is_given_only_where_it_has_paid():
    known = evidence()
    paid = Evidence(known.gains, known.profiles, {False: PAID})
    lines = advice_lines(BOTH, paid)
    assert lines == [
        "These clients differ in: skewed labels (strong), unequal speeds (weak).",
        "With one model for all, one has gained over uniform FedAvg: +10.0 points [+7.5, +12.5] "
        "in labels. Clients there did not differ in: unequal speeds (weak).",
        "Such advice in federations that it was not learned from: +2.1 points [+0.8, +3.4] in "
        "the mean; it helped 2 times, hurt 0 and abstained 0.",
    ]
    differ = lines[0].replace(", unequal speeds (weak)", "")
    assert advice_lines(SKEWED, known) == [differ, UNPROVEN]
    assert advice_lines(SLOW, paid) == ["These clients differ in: unequal speeds (weak).", UNSHOWN]
    assert advice_lines(EVEN, paid) == [ABSTAINED]


def test_a_cost_is_told_beside_the_gain():
    gain = Gain([9.0, 10.0, 11.0], seconds=0.5, traffic=2.0)
    known = Evidence({False: {"labels": {"one": gain}}}, {"labels": SKEWED}, {False: PAID})
    (_, told, _) = advice_lines(SKEWED, known)
    assert told.endswith("in labels (0.5 times its time, 2 times its traffic to one target).")


def test_evidence_is_read_as_it_was_written():
    known = evidence(writers=BOTH)
    made = Evidence(known.gains, known.profiles, {False: PAID})
    texts = evidence_texts(made)
    again = read_evidence(texts[NAMED], texts[PROFILES], texts[PROOF])
    assert evidence_texts(again) == texts
    assert advice_lines(BOTH, again) == advice_lines(BOTH, made)
    with pytest.raises(DataError, match="is damaged"):
        read_evidence("environment,entrant\na,b\n", texts[PROFILES], texts[PROOF])
    with pytest.raises(DataError, match="is damaged"):
        read_evidence(texts[NAMED], texts[PROFILES], texts[PROOF].replace("2.2", "much"))


def test_the_leagues_own_advice():
    """Clients that are alike are told of no method, and what is named was measured again with five
    seeds."""
    found = league_evidence()
    assert found is not None
    assert advice_lines(
        {"label_divergence": 0.0, "availability": 1.0, "drift": 0.4, "largest_share": 0.2}
    ) == [ABSTAINED]
    # while the proof of neither kind holds, as docs/league.md and docs/inspect.md say
    assert not any(shown.holds for shown in found.proofs.values())
    assert advice_lines({**SKEWED, "size_gini": 0.4})[1:] == [UNPROVEN]
    for environments in found.gains.values():
        assert set(environments) <= set(found.profiles)
        for entrants in environments.values():
            assert {len(gain.points) for gain in entrants.values() if gain.again} <= {5}
            assert sum(gain.again for gain in entrants.values()) <= 1
