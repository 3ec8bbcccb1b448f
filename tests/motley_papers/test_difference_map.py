"""The map of differences: the order of its rows, and its colours."""

from math import nan

import pytest

from motley_papers.difference_map import cell_colour, difference_map, rows_of
from motley_papers.mean_ranks import rank

pytestmark = pytest.mark.usefixtures("drawn")

GROUPS = {"one": ["base", "low", "part"], "two": ["high", "nobody"]}


def ranking():
    values = {"base": 50.0, "low": 40.0, "high": 70.0}
    scores = {
        (f"e{i}", name): {0: value, 1: value} for name, value in values.items() for i in (0, 1)
    }
    return rank({**scores, ("e0", "part"): {0: 99.0}, ("e1", "high"): {0: nan, 1: nan}}, "base")


def test_groups_and_entrants_are_sorted_by_their_ranks():
    # mean ranks: base (2 + 1) / 2, high (1 + 3) / 2 as it diverged in e1, low (3 + 2) / 2; part
    # lacks e1
    assert rows_of(ranking(), GROUPS) == [
        ("one", "base"),
        ("one", "low"),
        ("one", "part"),
        ("two", "high"),
    ]


def test_colours_by_hand():
    assert cell_colour(10.0, sure=True) == pytest.approx([0x00 / 255, 0x57 / 255, 0x9B / 255])
    assert cell_colour(-99.0, sure=True) == pytest.approx([0xB3 / 255, 0x47 / 255, 0])
    assert cell_colour(0.0, sure=False) == pytest.approx([1, 1, 1])
    # 2.5 points are half of full colour, of which a pale cell keeps 0.3: red is 1 - 0.15
    assert cell_colour(2.5, sure=False)[0] == pytest.approx(0.85)
    # a sure difference, however small, has a quarter of it
    assert cell_colour(0.1, sure=True)[0] == pytest.approx(0.75)
    assert len(set(cell_colour(nan, sure=False))) == 1


def test_the_picture_says_what_it_shows():
    picture = difference_map(ranking(), GROUPS, "stable (%)")
    assert picture is not None
    assert picture.about == "stable (%): difference of 4 entrants to base in 2 environments"
    assert "high" in picture.svg
    assert difference_map(rank({}, "base"), GROUPS, "stable (%)") is None
