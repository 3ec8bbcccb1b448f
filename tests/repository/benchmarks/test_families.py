"""How often a table of comparisons errs: where no method differs from the reference, at most 5 % of
tables have a wrong verdict."""

import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[3]
TABLES = 6_000
ERROR = 3 * np.sqrt(0.05 * 0.95 / TABLES)
"""Three standard errors of a share of 5 %."""


@pytest.fixture
def families(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    import families

    yield families
    sys.modules.pop("families", None)


def test_an_interval_among_nine_is_bonferronis(families):
    """t(1 - .05 / 18, 4) and t(.975, 4) of scipy."""
    assert families.factor(9, 5) == pytest.approx(5.436592, abs=1e-6)
    assert families.factor(1, 5) == pytest.approx(2.776445, abs=1e-6)


@pytest.mark.parametrize("seeds", [3, 5, 8, 10])
@pytest.mark.parametrize("methods", [2, 5, 10])
@pytest.mark.parametrize(
    "kind",
    [
        "normal, all alike",
        "normal, deviations from 0.3 to 3",
        "normal, the reference's deviation five times the others'",
        "exponential, all alike",
        "lognormal, all alike",
    ],
)
def test_at_most_five_percent_of_tables_have_a_wrong_verdict(families, methods, seeds, kind):
    rng = np.random.default_rng([methods, seeds])
    numbers = families.drawn(rng, kind, TABLES, seeds, methods)
    assert families.wrong(numbers, methods - 1) <= 0.05 + ERROR
    assert families.bold(numbers) <= 0.05 + ERROR


def test_plain_intervals_err_in_a_third_of_tables_of_ten(families):
    numbers = families.drawn(np.random.default_rng(0), "normal, all alike", TABLES, 5, 10)
    assert families.wrong(numbers, 1) == pytest.approx(0.30, abs=0.02)


def test_a_real_difference_is_found(families):
    """Seven deviations with five seeds: all but few tables."""
    numbers = families.drawn(np.random.default_rng(0), "normal, all alike", 1000, 5, 10)
    numbers[:, :, 1] += 7
    assert families.wrong(numbers, 9) > 0.9
