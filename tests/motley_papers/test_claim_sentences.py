"""Claims in sentences: what came of them stands before the verdict, with numbers and units."""

import re

import pytest

from motley_papers.claim_sentences import tell
from motley_papers.measuring import MEASURES, measure_of
from motley_papers.recipe import names, read
from motley_papers.recipe_claim import Claim

FASTER = Claim(
    text="Faster than FedCG to 90 %",
    exhibit="table 1",
    lower={"method": ["ours"]},
    than={"method": ["fedcg"]},
)
ROW = {
    "claim": FASTER.text,
    "measure": "paper_seconds_to_target",
    "comparison": "ours against fedcg",
    "ours": "124",
    "other": "111",
    "difference": "13",
    "low": "-4",
    "high": "30",
    "pairs": "10",
    "sign": "undecided",
    "resolves": "22.13",
    "decided_by": "41",
    "plain_low": "-4",
    "plain_high": "30",
    "looks": "",
    "published": "118 s",
    "size": "",
    "claim_printed": "nan",
    "verdict": "undecided",
    "alone": "undecided",
}


def test_a_claim_that_did_not_hold():
    assert tell(FASTER, [ROW]) == (
        "**Faster than FedCG to 90 %.** It cannot be told; the mean leans the other way: 124.0 s "
        "(ours) against 111.0 s (fedcg), "
        "difference +13.00 s [−4.00, +30.00] over 10 pairs (s to target, papers' count); "
        "10 pairs resolve 22.13 s, and 41 would decide if mean and spread stay; published: 118 s. "
        "*Undecided*."
    )


@pytest.mark.parametrize(
    ("difference", "sign", "verdict", "alone", "lead", "end"),
    [
        ("-13", "confirmed", "confirmed", "confirmed", "It was so: ", "*Confirmed*."),
        (
            "-13",
            "confirmed",
            "undecided",
            "confirmed",
            "It was so, but not beyond chance among so many claims: ",
            "*Undecided* (alone: confirmed).",
        ),
        (
            "-13",
            "undecided",
            "undecided",
            "undecided",
            "It cannot be told; the mean leans towards the claim: ",
            "*Undecided*.",
        ),
        (
            "13",
            "contradicted",
            "contradicted",
            "contradicted",
            "The opposite was seen: ",
            "*Contradicted*.",
        ),
        (
            "13",
            "not seen here",
            "not seen here",
            "not seen here",
            "The opposite was seen on these data: ",
            "*Not seen here*.",
        ),
        (
            "13",
            "contradicted",
            "undecided",
            "contradicted",
            "The opposite was seen, but not beyond chance among so many claims: ",
            "*Undecided* (alone: contradicted).",
        ),
    ],
)
def test_the_sentence_begins_with_what_came_of_it(difference, sign, verdict, alone, lead, end):
    row = {**ROW, "difference": difference, "sign": sign, "verdict": verdict, "alone": alone}
    said = tell(FASTER, [row])
    assert said.startswith(f"**Faster than FedCG to 90 %.** {lead}124.0 s (ours)")
    assert said.endswith(end)


def test_of_several_comparisons_the_one_that_decides():
    """It is the one that does not hold, though another is nearer to zero."""
    higher = FASTER.model_copy(update={"lower": None, "higher": FASTER.lower})
    rows = [
        {
            **ROW,
            "measure": "peak",
            "difference": "1",
            "low": "0.5",
            "high": "2",
            "sign": "confirmed",
        },
        {**ROW, "measure": "peak", "comparison": "ours against oort (noise15)"},
    ]
    assert tell(higher, rows) == (
        "**Faster than FedCG to 90 %.** It cannot be told; the mean leans towards the claim: "
        "124.0 % (ours) against 111.0 % (oort), difference +13.00 points [−4.00, +30.00] over 10 "
        "pairs (peak, noise15); "
        "this is the weakest of 2 comparisons, 1 of which hold; 10 pairs resolve 22.13 points, and "
        "41 would decide if mean and spread stay; published: 118 s. *Undecided*."
    )


def test_comparisons_that_were_not_made_are_counted():
    missing = {**ROW, **dict.fromkeys(("difference", "low", "high"), "nan"), "sign": "not tested"}
    said = tell(FASTER, [missing, ROW])
    assert "difference +13.00 s" in said
    assert "the weakest of 2 comparisons, 0 of which hold, and 1 of which was not made;" in said
    assert "3 comparisons, 0 of which hold, and 2 of which were not made;" in tell(
        FASTER, [missing, ROW, missing]
    )


def test_the_pairs_that_would_decide_are_those_of_all_comparisons():
    """The larger difference varies more, and needs more pairs than the weakest."""
    weakest = {**ROW, "difference": "-5", "low": "-12", "high": "2"}
    wide = {**ROW, "difference": "-9", "low": "-30", "high": "12", "decided_by": "77"}
    assert "and 77 would decide" in tell(FASTER, [weakest, wide])
    away = {**weakest, "difference": "5", "low": "-2", "high": "12"}
    assert "and 41 would decide" in tell(FASTER, [away, wide])


def test_a_negative_margin_asks_for_more():
    asks = FASTER.model_copy(update={"margin": -1.5})
    assert "leans the other way (more than 1.5 s claimed): " in tell(asks, [ROW])


def test_a_margin_moves_what_still_counts_as_so():
    within = {**ROW, "difference": "0.5", "low": "-2", "high": "3"}
    assert "the mean leans the other way" in tell(FASTER, [within])
    allowed = FASTER.model_copy(update={"margin": 1.0})
    assert "the mean leans towards the claim" in tell(allowed, [within])


def test_how_many_pairs_would_decide_may_be_out_of_reach():
    assert "and more than 100,000 would decide" in tell(FASTER, [{**ROW, "decided_by": "inf"}])
    assert "pairs resolve" not in tell(FASTER, [{**ROW, "resolves": "nan"}])
    decided = dict.fromkeys(("sign", "verdict", "alone"), "contradicted")
    assert "pairs resolve" not in tell(FASTER, [{**ROW, **decided}])


def test_a_plan_that_was_lengthened_says_what_it_has_spent():
    """5 % at the planned end; 0.8 x 0.2 of it at the first lengthening, a fifth of that at the
    second."""
    said = tell(FASTER, [{**ROW, "looks": "5 13 20", "plain_low": "2", "plain_high": "24"}])
    assert (
        "; its plan spent 5 % at 5 and 0.8 % at 13 pairs, which leaves 0.16 % for 20; the plain "
        "95 % interval is [+2.00, +24.00]; published"
    ) in said
    assert "it was looked at after every pair of at most 20; the plain" in tell(
        FASTER, [{**ROW, "looks": "20"}]
    )


def test_a_counterexample_is_told_in_place_of_numbers():
    broken = FASTER.model_copy(update={"counterexample": "2 is even and prime"})
    row = {**ROW, **dict.fromkeys(("difference", "low", "high", "resolves"), "nan")}
    row |= dict.fromkeys(("sign", "verdict", "alone"), "false as stated")
    assert tell(broken, [row]) == (
        "**Faster than FedCG to 90 %.** By calculation: 2 is even and prime. *False as stated*."
    )


def test_the_printed_difference_and_a_name_with_a_hyphen():
    row = {
        **ROW,
        "comparison": "top-k against e-1",
        "size": "below",
        "claim_printed": "-2264",
        "low": "nan",
        "high": "nan",
    }
    said = tell(FASTER, [row])
    assert "124.0 s (top-k) against 111.0 s (e-1), difference +13.00 s without an interval" in said
    assert "the printed difference, −2\u202f264, lies below the interval" in said


def test_of_several_comparisons_the_size_is_that_of_the_weakest_printed():
    """The rival that is weakest in the paper is another than the weakest one measured."""
    higher = FASTER.model_copy(update={"lower": None, "higher": FASTER.lower})
    of_all = {"size": "inside", "claim_printed": "0.75", "claim_low": "-4.77", "claim_high": "2.68"}
    rows = [
        {**ROW, **of_all, "comparison": f"ours against {name}", "difference": off, "printed": said}
        for name, off, said in (("random", "2", "3.89"), ("active (x)", "1", "0.75"))
    ]
    said = tell(higher, [{**rows[0], "difference": "-1"}, rows[1]])
    assert "(ours) against 111.0 s (random), difference −1.00 s" in said
    assert (
        "; the least printed difference, +0.750 (against active, x), lies inside "
        "[−4.77, +2.68], the interval of the least measured. "
    ) in said
    # of a claim that something is lower, the largest is the weakest
    assert "the least printed difference, +0.750 (against random)" in tell(
        FASTER, [{**rows[0], "printed": "0.75"}, {**rows[1], "printed": "-2"}]
    )


def test_an_interval_too_wide_to_tell_the_size_says_so():
    wide = {**ROW, "size": "too wide", "claim_printed": "-3"}
    said = tell(FASTER, [wide])
    assert "; the printed difference, −3.00, lies inside the interval, too wide to tell. " in said
    several = {**wide, "claim_low": "-9", "claim_high": "5", "printed": "-3"}
    assert "lies inside [−9.00, +5.00], the interval of the least measured, too wide to tell" in (
        tell(FASTER, [several, several])
    )


@pytest.mark.parametrize("name", names())
def test_a_claim_with_a_margin_names_it(name):
    """In its own words, and in the sentence of what came of it."""
    recipe = read(name)
    for claim in recipe.claim:
        measure = claim.measures(recipe.named(claim.exhibit).measures)[0]
        said = tell(claim, [{**ROW, "measure": measure}])
        unit = measure_of(measure).unit.replace("%", "points")
        allowed = f" (up to {claim.margin:g}{' ' * bool(unit)}{unit} the other way allowed): "
        assert (allowed in said) == bool(claim.margin)
        if claim.margin:
            assert re.search("(at most|no more than|no gain of more than|within) ", claim.text)


@pytest.mark.parametrize(
    ("name", "unit"),
    [
        ("paper_seconds", "s"),
        ("seconds_to_target", "s"),
        ("traffic_mb", "MB"),
        ("choosing_ms", "ms"),
        ("rounds_to_target", "rounds"),
        ("peak", "%"),
        ("deviation", ""),
        ("reached", ""),
        ("drop", ""),
    ],
)
def test_units_of_measures(name, unit):
    assert measure_of(name).unit == unit


def test_a_unit_is_known_or_there_is_none():
    assert {one.unit for one in MEASURES.values()} == {"", "%", "MB", "ms", "rounds", "s"}
