"""Where a comparison lies in the picture of verdicts, worked by hand, and what is drawn."""

import re

import pytest

from motley.results.measures import Censored
from motley_papers.recipe import Claim, Exhibit
from motley_papers.verdict_picture import distance, verdict_picture
from motley_papers.verdicts import judge

pytestmark = pytest.mark.usefixtures("drawn")

TABLE = Exhibit(name="table 1", title="", measures=["final"], axes={"method": {"a": {}, "b": {}}})
HALF = 4.302652729911275 / 3**0.5
"""Half width of the 95% interval of three differences with a standard deviation of 1."""


def judged(a, **keys):
    """A claim on cell a, with three seeds, against b, which has 10, 10, 10."""
    values = {
        ("final", (name,)): {i: Censored(float(n), True) for i, n in enumerate(one)}
        for name, one in (("a", a), ("b", [10] * 3))
    }
    return judge(Claim(text="a <is> best", exhibit="table 1", **keys), TABLE, values)


A = {"method": "a"}
B = {"method": "b"}


@pytest.mark.parametrize(
    ("a", "keys", "place"),
    [
        ([12, 13, 14], {"higher": A, "than": B}, 3 / HALF),  # differences 2, 3, 4
        ([12, 13, 14], {"lower": A, "than": B}, -3 / HALF),  # the other side is claimed
        # -1 of the 2 that still count as no worse
        ([9, 10, 8], {"higher": A, "than": B, "margin": 2.0}, 1 / HALF),
        ([12, 13, 14], {"above": 10.0, "where": A}, 3 / HALF),
        ([12, 13, 14], {"below": 20.0, "where": A}, 7 / HALF),
        # a grid of two: deviation 2 / sqrt 2
        ([12, 12, 12], {"higher": A, "than": B}, 2 / (HALF * 2**0.5)),
        ([10, 10, 10], {"higher": A, "than": B}, 0.0),
    ],
)
def test_the_distance_is_in_half_widths_towards_the_claimed_side(a, keys, place):
    one = judged(a, **keys)
    (contrast,) = one.contrasts
    assert distance(one, contrast) == pytest.approx(place)
    if place:
        assert {
            "confirmed": place > 1,
            "contradicted": place < -1,
            "not confirmed": abs(place) < 1,
        }[contrast.verdict]


def test_every_comparison_that_was_tested_is_a_dot_with_its_verdict():
    tested = [
        judged([12, 13, 14], higher=A, than=B),
        judged([8, 7, 6], higher=A, than=B),
        judged([10, 10, 10], higher=A, than=B),
    ]
    picture = verdict_picture([*tested, judged([12], higher=A, than=B)])
    assert (
        picture.about
        == "Where the comparisons of 3 claims lie: 1 confirmed, 1 contradicted, 1 not confirmed"
    )
    said = re.findall(r"<title>(.*?)</title>", picture.svg)
    assert said == [
        "a against b: confirmed",
        "a against b: contradicted",
        "a against b: not confirmed",
    ]
    assert picture.svg.count("a &lt;is&gt; best") == 3
    assert verdict_picture([judged([12], higher=A, than=B)]) is None
