"""Verdicts on cells of a published table, worked by hand."""

from __future__ import annotations

from math import inf, isnan, nan, sqrt
from statistics import stdev

import pytest

from motley_papers.cell_verdicts import deviation_behind, judge
from motley_papers.published_table import PrintedNumber


def printed(text: str) -> PrintedNumber:
    number = PrintedNumber.read(text)
    assert number is not None
    return number


def test_the_interval_by_hand():
    """Measured 1, 2, 3 (mean 2, deviation 1) and printed 2.5 ± 2 of 3: s^2 = (2 * 1 + 2 * 4) / 4 =
    2.5, error = sqrt(2.5) sqrt(2/3) = 1.2910, t of 4 degrees of freedom 2.7764: half 3.5844."""
    cell = judge(printed("2.5 ± 2"), 3, [1.0, 2.0, 3.0], cells=1, matters=4.0)
    assert (cell.mean, cell.deviation, cell.difference) == (2.0, 1.0, -0.5)
    assert cell.half == pytest.approx(3.5844, abs=5e-5)
    assert cell.verdict == "inside"
    narrow = judge(printed("2.5 ± 2"), 3, [1.0, 2.0, 3.0], cells=1, matters=3.0)
    assert narrow.verdict == "undecided"  # an interval wider than what matters decides nothing


def test_a_printed_number_without_a_deviation_is_one_run():
    """Measured 1, 2, 3 beside one run: s = 1, error = sqrt(1/3 + 1), t of 2 degrees 4.3027."""
    cell = judge(printed("8.0"), None, [1.0, 2.0, 3.0], cells=1, matters=10.0)
    assert cell.half == pytest.approx(4.302653 * sqrt(4 / 3), rel=1e-5)
    assert cell.verdict == "outside"
    assert judge(printed("6.0"), None, [1.0, 2.0, 3.0], 1, 10.0).verdict == "inside"


def test_the_correction_for_many_cells_makes_the_interval_wider():
    """s = .0816 and .1, together .0913, error .0645, t of 6 degrees 2.447: half .158, beyond which
    .4 less its rounding lies; for a million cells t is about 12."""
    values = [1.9, 2.0, 2.1, 2.0]
    alone = judge(printed("2.4 ± .1"), 4, values, cells=1, matters=1.0)
    among = judge(printed("2.4 ± .1"), 4, values, cells=10**6, matters=1.0)
    assert (alone.verdict, among.verdict) == ("outside", "undecided")


def test_lucky_seeds_of_the_print_count_as_little_as_they_know():
    """FedAdam on Fed-TCGA-BRCA: printed .8152 ± .0256 of five seeds; twenty others have .770 ±
    .083. s^2 = (19 .083^2 + 4 .0256^2) / 23 = .0762^2, error = .0762 sqrt(1/20 + 1/5) = .0381, t of
    23 degrees 2.0687: half .0788, and the difference of .045 is inside."""
    values = [0.770 + 0.083 * sqrt(19 / 20) * (-1) ** i for i in range(20)]
    cell = judge(printed(".8152 ± .0256"), 5, values, cells=104, matters=0.1)
    assert cell.deviation == pytest.approx(0.083)
    assert cell.half == pytest.approx(0.0788, abs=5e-5)
    assert cell.verdict == "inside"


def test_what_does_not_vary_and_differs_is_outside():
    assert judge(printed(".75 ± .00"), 5, [0.75] * 5, 10, 0.1).verdict == "inside"
    assert judge(printed(".75 ± .00"), 5, [0.77] * 5, 10, 0.1).verdict == "outside"


def test_a_printed_deviation_of_0_may_be_half_of_its_last_digit():
    """.005 over five runs beside five of none: s = .005 sqrt(4 / 8) = .00354, error = s sqrt(2 / 5)
    = .00224, t of 8 degrees of freedom among ten cells 3.833: .00857, and .76 lies .005 away."""
    assert judge(printed(".75 ± .00"), 5, [0.76] * 5, 10, 0.1).verdict == "undecided"
    among = [
        judge(printed(".75 ± .00"), 5, [0.755 + away] * 5, 10, 0.1).verdict
        for away in (0.0085, 0.0087)
    ]
    assert among == ["undecided", "outside"]


def test_equal_runs_beside_a_number_without_a_deviation_are_no_certainty():
    """The client that is asked most often took part 17 times, three times over; 16 is printed."""
    cell = judge(printed("16"), 3, [17.0] * 3, 100, 1.0)
    assert (cell.half, cell.verdict) == (0.0, "undecided")
    assert judge(printed("17"), 3, [17.0] * 3, 100, 1.0).verdict == "inside"


def test_one_run_beside_one_run_decides_nothing():
    cell = judge(printed(".75"), None, [0.10], 10, 0.1)
    assert cell.half == inf
    assert cell.verdict == "undecided"
    assert isnan(cell.deviation)


def test_a_run_without_a_number_is_in_no_interval():
    cell = judge(printed("70 ± 1"), 3, [nan, 10.0, 11.0], cells=1, matters=5.0)
    assert isnan(cell.mean)
    assert cell.verdict == "undecided"


@pytest.mark.parametrize(
    ("text", "same"),
    [(".667 ± .577", True), (".667", True), (".667 (.577)", True), (".667 ± .578", False)],
)
def test_the_printed_digits(text, same):
    """0, 1, 1: mean 2/3, deviation sqrt(1/3) = .57735."""
    assert judge(printed(text), 3, [0.0, 1.0, 1.0], 1, 1.0).same_digits == same


@pytest.mark.parametrize(
    ("text", "spread", "same"),
    [
        ("99.67 ± .12", "population_deviation", True),
        ("99.67 ± .12", "deviation", False),
        ("99.67 ± .15", "deviation", True),
        ("99.67 ± .15", "population_deviation", False),
        ("99.67 ± .09", "standard_error", True),
        ("99.67 ± .38", "interval", True),
        ("99.67 ± .4", "interval", True),
        ("99.7 ± .15", "deviation", True),
        ("99.7 ± .153", "deviation", True),
        ("99.7 ± .154", "deviation", False),
    ],
)
def test_the_printed_digits_are_those_of_the_spread_that_is_printed(text, spread, same):
    """99.5, 99.7, 99.8: mean 99.6667, squares about it .02778 + .00111 + .01778 = .04667. The
    deviation is sqrt(.04667 / 2) = .15275, the population's sqrt(.04667 / 3) = .12472, the standard
    error .15275 / sqrt(3) = .08819, half of the interval 4.30265 times that, .37946. A spread may
    have other digits than its mean."""
    number = deviation_behind(printed(text), spread, 3)
    cell = judge(number, 3, [99.5, 99.7, 99.8], cells=1, matters=0.1)
    assert cell.same_digits == same
    assert cell.verdict == ("inside" if same else "undecided")


def test_a_run_without_a_finite_figure_is_outside_and_ends_nothing():
    cell = judge(printed("1.5 ± .2"), 3, [inf, 1.0, 2.0], cells=1, matters=1.0)
    assert (cell.mean, cell.verdict) == (inf, "outside")
    assert isnan(cell.deviation)


def test_the_printed_digits_of_mean_and_deviation_are_inside_however_wide_the_interval():
    """0, 1, 1 again: half of the interval is 1.31, and what matters .1."""
    verdicts = [
        judge(printed(text), 3, [0.0, 1.0, 1.0], 1, 0.1).verdict
        for text in (".667 ± .577", ".668 ± .577", ".667")
    ]
    assert verdicts == ["inside", "undecided", "undecided"]


@pytest.mark.parametrize(
    ("text", "away", "equal"), [(".7 ± .1", 0.06, False), (".70 ± .06", 0.06, True)]
)
def test_printed_digits_that_chance_makes_decide_nothing(text, away, equal):
    """Three runs of deviation .06 about .7: an independent rerun of them has the mean .7 in one
    digit in more than half of the cases. A unit of .1 or .01 of both is .1^2 sqrt(12) / (2 pi) =
    .0055 or .000055, and a twentieth of the variance .00018."""
    cell = judge(printed(text), 3, [0.7 - away, 0.7, 0.7 + away], cells=1, matters=0.01)
    assert cell.same_digits
    assert cell.equal == equal
    assert cell.verdict == ("inside" if equal else "undecided")


def test_near_is_less_than_the_tolerance_and_the_rounding():
    cell = judge(printed(".70 ± .01"), 2, [0.712, 0.712], 1, 1.0)
    assert (cell.near(0.007), cell.near(0.006)) == (True, False)


@pytest.mark.parametrize(
    ("spread", "text"), [("standard_error", ".7 ± .1"), ("interval", ".7 ± .2")]
)
def test_a_printed_error_or_interval_has_its_own_digits(spread, text):
    """Of 4 runs with a deviation of .13 the standard error is .065, printed .1, and half of the
    interval 3.1824 x .065 = .207, printed .2."""
    values = [0.7 + 0.13 * away for away in (-1, -sqrt(0.5), sqrt(0.5), 1)]
    assert stdev(values) == pytest.approx(0.13)
    assert judge(deviation_behind(printed(text), spread, 4), 4, values, 1, 0.0).same_digits
