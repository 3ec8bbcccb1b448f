"""What tables set in bold: numbers that the seeds tell apart from all others."""

import numpy as np
import pytest

from motley.results import measures
from motley.results.best import BOLD, best_rows
from motley.results.labels import group_runs
from motley.results.measures import spread
from motley.results.tables import summary
from motley_report import latex
from motley_report.print_tables import print_tables
from tests.motley.results import fake

SEEDS = (0, 1, 2)
T = 4.302653
"""t(.975, 2)"""


def around(mean, half):
    """Three numbers of this mean whose 95 % interval is -+ half: their distance, and deviation, is
    half sqrt(3) / t."""
    distance = half * np.sqrt(3) / T
    return [mean - distance, mean, mean + distance]


def bold(*columns, higher=True, seeds=None):
    return best_rows(
        [spread(column) for column in columns], seeds or [SEEDS] * len(columns), higher
    )


def test_a_mean_that_its_interval_does_not_tell_apart_is_not_bold():
    """52.2 -+ 10.1 against 51.6 -+ 60.9: differences of 0.6 in the mean, and half an interval of
    50.8, for both rise with the seed."""
    first = around(52.2, 10.1)
    second = around(51.6, 60.9)
    assert measures.interval(spread(first)).high - 52.2 == pytest.approx(10.1, abs=1e-5)
    assert measures.paired(first, second).high - 0.6 == pytest.approx(50.8, abs=1e-5)
    assert bold(first, second) == set()


def test_a_mean_is_bold_where_the_paired_interval_tells_it_apart_though_the_seeds_differ_more():
    """Each seed is better by 1, 2, 3: mean 2 -+ 2.484 does not tell, by 2, 3, 4 (3 -+ 2.484) it
    does."""
    base = [10.0, 50.0, 90.0]
    assert bold(base, [11.0, 52.0, 93.0]) == set()
    assert bold(base, [12.0, 53.0, 94.0]) == {1}
    assert bold(base, [12.0, 53.0, 94.0], higher=False) == {0}
    assert bold(base, [12.0, 53.0, 94.0], [11.0, 54.0, 93.0]) == set()  # it must beat every other


def test_seeds_that_differ_by_the_same_are_bold_only_where_no_seed_moves_the_numbers():
    assert bold([10.0, 50.0, 90.0], [11.0, 51.0, 91.0]) == set()
    assert bold([10.0] * 3, [11.0] * 3) == {1}  # megabytes of a fixed number of messages


def test_equal_numbers_are_bold_together_or_not_at_all():
    zeros = [0.0] * 3
    assert bold(zeros, zeros, zeros) == {0, 1, 2}
    assert bold(zeros, zeros, zeros, [5.0, 6.0, 7.0], higher=False) == {0, 1, 2}
    assert bold(zeros, zeros, [0.0, 0.0, 0.1], higher=False) == set()
    # the same mean, and not the same numbers
    assert bold([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]) == set()


def test_one_method_one_seed_or_no_common_seed_tells_nothing():
    assert bold([1.0, 2.0, 3.0]) == set()
    assert bold([1.0], [5.0], seeds=[(0,), (0,)]) == set()
    assert bold([1.0, 1.1, 1.2], [5.0, 5.1, 5.2], seeds=[(0, 1, 2), (3, 4, 5)]) == set()
    assert bold([float("nan")] * 3, [float("nan")] * 3) == set()
    assert bold([float("nan")] * 3, [5.0, 5.1, 5.2]) == {1}


def runs_of(method, values):
    """Runs whose final accuracy is given, and the same all along, so that nothing is lost since the
    peak."""
    columns = {"round": range(20), "scope": ["global"] * 20, "client": [-1] * 20}
    return [
        fake.run(
            {"selector": {"name": method}},
            seed=seed,
            evaluations=fake.table("evaluations", accuracy=[v] * 20, **columns),
        )
        for seed, v in enumerate(values)
    ]


def test_the_page_and_the_latex_of_a_summary_follow_the_rule():
    """Finals that are not told apart are not bold; the three drops of 0 are, and the captions say
    the rule."""
    near = group_runs(
        [
            *runs_of("a", [0.4, 0.5, 0.6]),
            *runs_of("b", [0.41, 0.49, 0.62]),
            *runs_of("c", [0.39, 0.5, 0.6]),
        ]
    )
    far = group_runs([*runs_of("a", [0.4, 0.5, 0.6]), *runs_of("b", [0.6, 0.71, 0.8])])
    text = latex.table(print_tables(near)[0])
    assert text.count(r"\mathbf") == 3
    assert text.count(r"$\mathbf{0.00} \pm 0.00$") == 3
    assert text.replace(r"\,\%", " %").count(latex.escaped(BOLD)) == 1
    rows = latex.table(print_tables(far)[0]).splitlines()
    assert [line.count(r"\mathbf") for line in rows if line.strip().startswith(("a &", "b &"))] == [
        1,
        4,
    ]
    page = summary(near)
    assert [cell.best for row in page.rows for cell in row.cells[:4]] == [
        False,
        False,
        False,
        True,
    ] * 3
    assert BOLD in page.note
    assert BOLD not in summary({"a": runs_of("a", [0.5])}).note
