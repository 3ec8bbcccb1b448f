"""Whether a tuned value transfers, on numbers worked by hand."""

import pytest

from motley.core.errors import ConfigError
from motley.results.measures import Censored
from motley_papers.recipe import Claim, Exhibit, read
from motley_papers.verdicts import judge
from tests.motley_papers.toy import RECIPE, folder

TABLE = Exhibit(
    name="t",
    title="",
    measures=["final"],
    axes={"data": {"x": {}, "y": {}, "z": {}}, "mu": {"0": {}, "1": {}}},
)
CLAIM = {
    "text": "mu does not transfer",
    "exhibit": "t",
    "tuned": "mu",
    "higher": {"mu": "own"},
    "than": {"mu": "elsewhere"},
}


def values(measure, **rows):
    """``x=([1, 2], [3, 4])``: of mu 0 and mu 1, a number a seed; None is missing."""
    return {
        (measure, (data, mu)): {
            seed: Censored(float(n), True) for seed, n in enumerate(by) if n is not None
        }
        for data, both in rows.items()
        for mu, by in zip(("0", "1"), both, strict=True)
    }


# validation chooses mu 1 in x, mu 0 in y and (of equals) in z, with both seeds
CHOICES = values("validation", x=([1, 1], [2, 2]), y=([3, 3], [1, 1]), z=([5, 5], [5, 5]))
MEASURED = values("final", x=([10, 12], [20, 21]), y=([40, 40], [35, 36]), z=([7, 8], [9, 11]))


def test_own_choices_against_those_of_the_others():
    """x: 20 and 21 at its own mu 1, 10 and 12 at the mu 0 of y and z. y: 40 and 40 at its own mu 0;
    x's mu 1 gives 35 and 36, z's mu 0 gives 40: means 37.5 and 38. z: 7 and 8 at its own; x's gives
    9 and 11, y's 7 and 8: means 8 and 9.5."""
    found = judge(Claim(**CLAIM, where={"data": ["x", "y", "z"]}), TABLE, {**CHOICES, **MEASURED})
    means = [(one.ours.mean, one.rival.mean) for one in found.contrasts]
    assert means == [(20.5, 11.0), (40.0, 37.75), (7.5, 8.75)]
    assert [one.label for one in found.contrasts] == [
        f"own against elsewhere ({data})" for data in "xyz"
    ]


def test_without_a_setting_it_is_the_mean_over_all():
    (one,) = judge(Claim(**CLAIM), TABLE, {**CHOICES, **MEASURED}).contrasts
    assert one.ours.mean == pytest.approx((20.5 + 40 + 7.5) / 3)
    assert one.rival.mean == pytest.approx((11 + 37.75 + 8.75) / 3)


def test_a_seed_chooses_only_where_every_value_has_been_run():
    """Seed 1 of mu 1 is missing in x, so x has no choice with it, and y and z have each other's
    alone: mu 0, their own."""
    partly = values("validation", x=([1, 1], [2, None]), y=([3, 3], [1, 1]), z=([5, 5], [5, 5]))
    found = judge(Claim(**CLAIM, where={"data": ["x", "y"]}), TABLE, {**partly, **MEASURED})
    assert [one.interval.n for one in found.contrasts] == [1, 2]
    assert found.contrasts[1].rival.mean == pytest.approx((37.5 + 40) / 2)


def test_an_axis_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match="table 1 has no axis 'mu' to tune; it has: method"):
        read(folder(tmp_path / "toy", RECIPE.replace("above = 1", 'above = 1\ntuned = "mu"')))
