"""The verdict on one cell of a published table: is the measured mean one that the printed number
could have come out as?

Both are means of runs that chance moved. If printed and measured runs are the same experiment, they
share a mean and a standard deviation, so the deviation is that of both together:

    s^2 = ((n - 1) s_m^2 + (k - 1) s_p^2) / (n + k - 2),     error = s sqrt(1/n + 1/k)

with n measured and k printed runs; a printed deviation of few lucky seeds then counts as little as
it knows. The difference is taken less the rounding of the print. Its interval is Student's with
n + k - 2 degrees of freedom.

=============  ==================================================================================
``inside``     the difference lies in its 95 % interval, and that is no wider, either way, than
               what matters: by default the range of the column over the table's methods; or mean
               and deviation come out with the printed digits, and these are too fine for chance
``outside``    it lies out of the interval that is made wider for all cells of the table
               (Bonferroni), so that chance makes one cell of a correct table outside in one of
               twenty tables; a printed deviation of 0 counts there as half of its last digit, and
               equal runs beside a number without a deviation tell of none
``undecided``  all else; more seeds may decide it
=============  ==================================================================================

>>> from motley_papers.published_table import PrintedNumber
>>> printed = PrintedNumber.read(".70 ± .02")
>>> judge(printed, 5, [0.71, 0.73, 0.72], cells=10, matters=0.1).verdict
'inside'
>>> judge(printed, 5, [0.91, 0.93, 0.92], cells=10, matters=0.1).verdict
'outside'
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, isnan, nan, pi, sqrt
from statistics import fmean, stdev
from typing import Literal

from scipy.stats import t

from motley_papers.published_table import PrintedNumber, Spread

CellVerdict = Literal["inside", "undecided", "outside"]
MARKS: dict[CellVerdict, str] = {"inside": "", "undecided": "?", "outside": "!"}
"""What stands behind a measured number."""
LEVEL = 0.05


@dataclass(frozen=True)
class JudgedCell:
    """A cell with its verdict; numbers in the printed unit.

    Parameters
    ----------
    printed: the number as printed.
    values: of the measured runs.
    mean, deviation: of them; the deviation is NaN with one run.
    half: half of the difference's 95 % interval; inf where nothing gives a deviation.
    verdict: of them.
    """

    printed: PrintedNumber
    values: tuple[float, ...]
    mean: float
    deviation: float
    half: float
    verdict: CellVerdict

    @property
    def difference(self) -> float:
        """Measured minus printed mean."""
        return self.mean - self.printed.mean

    @property
    def same_digits(self) -> bool:
        """Whether the measured numbers, rounded as printed, are the printed ones."""
        printed = self.printed
        spread, times = printed.deviation, printed.per_spread
        return _same(self.mean, printed.mean, printed.decimals) and (
            isnan(spread) or _same(self.deviation / times, spread / times, printed.spread_decimals)
        )

    @property
    def equal(self) -> bool:
        """Whether mean and deviation are the printed ones, in digits so fine that chance makes
        fewer than one of twenty reruns so: by the normal laws of a mean and of a deviation of as
        many runs."""
        n, printed = len(self.values), self.printed
        if isnan(printed.deviation) or not self.same_digits:
            return False
        area = 4 * printed.rounding * printed.spread_rounding
        return area * sqrt(2 * n * (n - 1)) / (2 * pi) < LEVEL * self.deviation**2

    def near(self, within: float) -> bool:
        """Return whether the means differ by at most ``within``, rounding aside."""
        return abs(self.difference) <= within + self.printed.rounding + 1e-12


def deviation_behind(number: PrintedNumber, spread: Spread, runs: int | None) -> PrintedNumber:
    """Return a printed number with the standard deviation over its runs in place of what is
    printed.

    >>> number = PrintedNumber.read(".70 ± .01")
    >>> round(deviation_behind(number, "standard_error", 4).deviation, 6)  # .01 sqrt 4
    0.02
    >>> round(deviation_behind(number, "interval", 4).deviation, 6)  # .01 sqrt 4 / 3.182446
    0.006284
    >>> round(deviation_behind(number, "population_deviation", 4).deviation, 6)  # .01 sqrt(4 / 3)
    0.011547
    """
    if spread == "deviation" or runs is None:
        return number
    times = {
        "population_deviation": sqrt(runs / (runs - 1)),
        "standard_error": sqrt(runs),
        "interval": sqrt(runs) / float(t.ppf(1 - LEVEL / 2, runs - 1)),
    }[spread]
    return replace(number, deviation=number.deviation * times, per_spread=times)


def _same(measured: float, printed: float, decimals: int) -> bool:
    return abs(round(measured, decimals) - printed) < 1e-9


def judge(
    printed: PrintedNumber,
    printed_runs: int | None,
    values: Sequence[float],
    cells: int,
    matters: float,
) -> JudgedCell:
    """Return the verdict on a cell.

    Parameters
    ----------
    printed_runs: behind the printed number; None: not said, and taken as one.
    values: of the measured runs, in the printed unit.
    cells: of the table, among which one that is outside by chance is looked for.
    matters: the difference that an interval must tell apart.
    """
    n = len(values)
    k = printed_runs or 1
    mean = fmean(values)
    deviation = stdev(values) if n > 1 and isfinite(mean) else nan
    parts = [(n - 1, deviation), (k - 1, printed.deviation)]
    known = [(freedom, s) for freedom, s in parts if freedom > 0 and not isnan(s)]
    freedom = sum(f for f, _ in known)
    half = wide = inf
    if freedom:
        squares = sum(f * s * s for f, s in known)
        rounded = (k - 1) * printed.spread_rounding**2 if printed.deviation == 0 else 0.0
        half, wide = (
            sqrt(total / freedom * (1 / n + 1 / k)) * float(t.ppf(1 - LEVEL / 2 / among, freedom))
            for total, among in ((squares, 1), (squares + rounded, max(cells, 1)))
        )
    gap = max(abs(mean - printed.mean) - printed.rounding - 1e-12, 0.0)  # NaN stays
    cell = JudgedCell(
        printed,
        values=tuple(values),
        mean=mean,
        deviation=deviation,
        half=half,
        verdict="undecided",
    )
    if gap > wide > 0:
        return replace(cell, verdict="outside")
    return replace(cell, verdict="inside") if cell.equal or gap <= half <= matters else cell
