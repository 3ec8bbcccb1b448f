"""How large a comparison is in the picture of verdicts, worked by hand, and what is drawn."""

import math
import re

import pytest

from motley.results.measures import Censored
from motley_papers.recipe import Claim, Exhibit
from motley_papers.recipe_claim import WHOLE, Protocol
from motley_papers.verdict_picture import TONES, printed_here, reach, towards, verdict_picture
from motley_papers.verdicts import corrected, judge

pytestmark = pytest.mark.usefixtures("drawn")

TABLE = Exhibit(name="table 1", title="", measures=["final"], axes={"method": {"a": {}, "b": {}}})
HALF = 4.302652729911275 / 3**0.5
"""Half width of the 95% interval of three differences with a standard deviation of 1."""


A = {"method": "a"}
B = {"method": "b"}
PRINTED = {("final", ("a",)): 20.0, ("final", ("b",)): 11.0}


def judged(a, protocol=WHOLE, text="a <is> best", **keys):
    """A claim on cell a, with three seeds, against b, which has 10, 10, 10; the paper prints 20 and
    11."""
    values = {
        ("final", (name,)): {i: Censored(float(n), True) for i, n in enumerate(one)}
        for name, one in (("a", a), ("b", [10] * 3))
    }
    claim = Claim(text=text, exhibit="table 1", **keys)
    return judge(claim, TABLE, values, PRINTED, protocol=protocol)


@pytest.mark.parametrize(
    ("a", "keys", "size"),
    [
        ([12, 13, 14], {"higher": A, "than": B}, 3),  # differences 2, 3, 4
        ([12, 13, 14], {"lower": A, "than": B}, -3),  # the other side is claimed
        ([9, 10, 8], {"higher": A, "than": B, "margin": 2.0}, 1),  # -1, and 2 count as no worse
        ([12, 13, 14], {"above": 10.0, "where": A}, 3),
        ([12, 13, 14], {"below": 20.0, "where": A}, 7),
        ([10, 10, 10], {"higher": A, "than": B}, 0),
    ],
)
def test_the_size_is_in_the_unit_of_the_measure_towards_the_claimed_side(a, keys, size):
    one = judged(a, **keys)
    (contrast,) = one.contrasts
    assert towards(one, contrast.interval.mean) == pytest.approx(size)
    far = contrast.interval.high if one.up else contrast.interval.low
    if size:  # equal differences have no spread of their own
        assert towards(one, far) == pytest.approx(size + HALF)


@pytest.mark.parametrize(
    ("protocol", "printed", "furthest"),
    [
        (WHOLE, 9, 9),
        (Protocol("reduced", "a tenth of the rounds"), math.nan, 3 + HALF),
        (Protocol("other data", "digits"), math.nan, 3 + HALF),
    ],
)
def test_a_printed_number_is_drawn_where_it_is_the_same_thing(protocol, printed, furthest):
    """Printed 20 against 11; measured 3 with its half width on either side."""
    one = judged([12, 13, 14], protocol, higher=A, than=B)
    (contrast,) = one.contrasts
    assert printed_here(one, contrast) == pytest.approx(printed, nan_ok=True)
    assert reach(one, one.contrasts) == pytest.approx(furthest)
    drawn = verdict_picture([one]).svg
    assert ("a against b: published 9" in drawn) is (protocol == WHOLE)
    assert ("diamond: published" in drawn) is (protocol == WHOLE)


def test_sentences_are_whole():
    text = "a is best, " + ", ".join(f"with the {i}th of all its words" for i in range(12))
    drawn = verdict_picture([judged([12, 13, 14], text=text, higher=A, than=B)]).svg
    assert "…" not in drawn
    for word in text.split():
        assert word in drawn
    assert "confirmed: final (%), +3.00 [0.52, 5.48], x 1.3" in drawn


def test_every_comparison_that_was_tested_is_a_dot_with_its_verdict():
    tested = [
        judged([12, 13, 14], higher=A, than=B),
        judged([8, 7, 6], higher=A, than=B),
        judged([10, 10, 10], higher=A, than=B),
    ]
    picture = verdict_picture([*tested, judged([12], higher=A, than=B)])
    assert (
        picture.about
        == "Where the comparisons of 3 claims lie: 1 confirmed, 1 undecided, 1 contradicted"
    )
    said = re.findall(r"<title>(.*?)</title>", picture.svg)
    assert [one for one in said if "published" not in one] == [
        "a against b: confirmed",
        "a against b: contradicted",
        "a against b: undecided",
    ]
    assert picture.svg.count("a &lt;is&gt; best") == 3
    assert verdict_picture([judged([12], higher=A, than=B)]) is None


def test_what_the_correction_took_back_is_neither_counted_nor_coloured():
    """Alone p = 0.035; among two claims not below 0.05."""
    a = judged([12, 13, 14], higher=A, than=B)
    equal = judged([10, 10, 11], text="the same", higher=A, than=B)
    picture = verdict_picture(corrected([a, equal]))
    assert picture.about == "Where the comparisons of 2 claims lie: 2 undecided"
    assert "a against b: confirmed alone" in picture.svg
    assert TONES["confirmed"] in verdict_picture([a]).svg.upper()
    assert TONES["confirmed"] not in picture.svg.upper()
