"""How often verdicts are wrong, in simulated experiments: equal rivals, a winner, ties, whole
numbers, plans that are lengthened, skewed differences. The rates of few seeds and of skewed
differences stand in docs/recipe-verdicts.md.

A claim "best of k" is simulated as a recipe tests it: n seeds, the same for all, paired differences
from each rival. Each rule may confirm or refute a claim wrongly in 2.5 % of experiments at most.
"""

import numpy as np
import pytest
from scipy.special import stdtrit

from motley.results.measures import Censored
from motley_papers.power import LEVEL, holm
from motley_papers.recipe import Claim, Exhibit
from motley_papers.sequential import SpendingPlan
from motley_papers.sides import least_std, of_all, sides_of
from motley_papers.verdicts import judge

MANY = 8_000
MOST = LEVEL / 2 + 3 * (LEVEL / 2 * (1 - LEVEL / 2) / MANY) ** 0.5
"""2.5 % and three standard errors of the share of so many experiments."""


def numbers(k, n, off=0.0, kind="normal", seed=3, many=MANY):
    """``ours`` [many, 1, n] and the ``rivals`` [many, k, n]; ``off``: how far ours lies above each
    of them [k]."""
    rng = np.random.default_rng(seed)
    below = np.broadcast_to(np.asarray(off, float), (k,))[:, None]
    if kind == "counts":  # rounds: whole numbers that are often equal
        return rng.binomial(3, 0.5, (many, 1, n)), rng.binomial(3, 0.5, (many, k, n))
    if kind == "yes or no":
        return rng.integers(0, 2, (many, 1, n)), rng.integers(0, 2, (many, k, n))
    return rng.standard_normal((many, 1, n)), rng.standard_normal((many, k, n)) - below


def sides(ours, rivals):
    differences = ours - rivals
    mean = differences.mean(axis=-1)
    std = differences.std(axis=-1, ddof=1)
    return of_all(*sides_of(mean, np.maximum(std, least_std(ours, rivals, mean)), ours.shape[-1]))


def rates(ours, rivals):
    """The shares of experiments that confirm and that refute "ours is best"."""
    found = sides(ours, rivals)
    return (found.confirms <= LEVEL / 2).mean(), (found.refutes <= LEVEL / 2).mean()


@pytest.mark.parametrize("kind", ["normal", "counts", "yes or no"])
@pytest.mark.parametrize(("k", "n"), [(1, 2), (1, 3), (7, 3), (3, 5), (7, 10)])
def test_equal_rivals_are_seldom_told_apart(k, n, kind):
    confirmed, refuted = rates(*numbers(k, n, kind=kind))
    assert confirmed <= MOST
    assert refuted <= MOST


def test_without_the_correction_best_of_seven_is_refuted_in_one_case_of_nine():
    ours, rivals = numbers(7, 3)
    differences = ours - rivals
    one = sides_of(differences.mean(axis=-1), differences.std(axis=-1, ddof=1), 3).refutes
    assert (one <= LEVEL / 2).any(axis=1).mean() > 0.08


def test_without_the_least_deviation_two_equal_counts_prove_anything():
    ours, rivals = numbers(1, 2, kind="yes or no")
    same = np.ptp(ours - rivals, axis=-1) == 0
    # all of these had p = 0
    assert ((ours - rivals)[same[:, 0]].mean(axis=(1, 2)) > 0).mean() * same.mean() > 0.05


def test_a_tie_with_the_best_rival_is_not_a_win():
    # the worst case of confirming: equal to one, far above the six others
    for kind in ((0.0, *[9.0] * 6), (0.0,)):
        assert rates(*numbers(len(kind), 5, off=kind))[0] <= MOST


@pytest.mark.parametrize("n", [5, 10])
def test_a_true_winner_is_found_as_easily_as_a_true_loser(n):
    confirmed, refuted = rates(*numbers(7, n, off=3.0))
    assert refuted == 0
    _, lost = rates(*numbers(7, n, off=(-3.0, *[0.0] * 6)))
    assert confirmed >= lost > 0.15


def near(share, stated):
    """Whether a simulated share is the stated one within three standard errors and its rounding."""
    return abs(share - stated) <= 0.0005 + 3 * (stated * (1 - stated) / MANY) ** 0.5


def test_with_five_seeds_one_standard_deviation_is_seldom_found():
    ahead, _ = rates(*numbers(7, 5, off=1.0))
    _, behind = rates(*numbers(7, 5, off=(-1.0, *[0.0] * 6)))
    assert near(ahead, 0.009)
    assert near(behind, 0.063)
    assert near(rates(*numbers(7, 5, off=3.0))[0], 0.73)
    assert rates(*numbers(7, 10, off=3.0))[0] > 0.999


@pytest.mark.parametrize(
    ("kind", "mean", "stated"), [("lognormal", np.exp(0.5), 0.18), ("exponential", 1.0, 0.114)]
)
def test_skewed_differences_err_on_one_side(kind, mean, stated):
    """The t test supposes normal differences. Two sides that are equally skewed have even ones."""
    x, y = getattr(np.random.default_rng(7), kind)(size=(2, MANY, 5))

    def wrong(differences):
        found = sides_of(differences.mean(axis=1), differences.std(axis=1, ddof=1), 5)
        return (found.confirms <= LEVEL / 2).mean(), (found.refutes <= LEVEL / 2).mean()

    confirmed, refuted = wrong(x - mean)
    assert confirmed <= MOST
    assert near(refuted, stated)
    assert max(wrong(x - y)) <= MOST


@pytest.mark.parametrize("off", [(0.0,) * 7, (0.5, *[3.0] * 6), (-1.0, *[0.0] * 6)])
def test_the_size_is_inside_the_interval_in_95_of_100(off):
    ours, rivals = numbers(7, 4, off=off)
    differences = ours - rivals
    mean = differences.mean(axis=-1)
    error = differences.std(axis=-1, ddof=1) / 2
    low = (mean - stdtrit(3, 1 - LEVEL / 2) * error).min(axis=1)
    high = (mean + stdtrit(3, 1 - LEVEL / 14) * error).min(axis=1)
    inside = (low <= min(off)) & (min(off) <= high)
    assert inside.mean() >= 1 - LEVEL - 3 * (LEVEL * (1 - LEVEL) / MANY) ** 0.5


def test_a_claim_is_judged_by_what_is_simulated_here():
    methods = [f"m{i}" for i in range(8)]
    exhibit = Exhibit(
        name="t", title="", measures=["final"], axes={"method": {name: {} for name in methods}}
    )
    claim = Claim(text="best", exhibit="t", higher={"method": "m0"}, than={"method": methods[1:]})
    ours, rivals = numbers(7, 4, off=1.0, many=20)
    expected = sides(ours, rivals)
    for i in range(20):
        cells = [ours[i, 0], *rivals[i]]
        seen = {
            ("final", (m,)): {s: Censored(float(x), True) for s, x in enumerate(v)}
            for m, v in zip(methods, cells, strict=True)
        }
        found = judge(claim, exhibit, seen)
        assert found.sides == pytest.approx((expected.confirms[i], expected.refutes[i]))
        differences = ours[i] - rivals[i]
        error = differences.std(axis=1, ddof=1) / 2
        low = (differences.mean(axis=1) - stdtrit(3, 0.975) * error).min()
        high = (differences.mean(axis=1) + stdtrit(3, 1 - 0.025 / 7) * error).min()
        assert (found.interval.low, found.interval.high) == pytest.approx((low, high))


def test_a_recipe_of_true_and_false_claims_seldom_errs_after_holm():
    # ten claims "best of three": six with equal rivals, four with a winner that is there
    many = 1_500
    wrong = 0
    parts = [sides(*numbers(3, 5, off=0.0 if i < 6 else 4.0, seed=i, many=many)) for i in range(10)]
    for row in zip(*(one.confirms for one in parts), *(one.refutes for one in parts), strict=True):
        adjusted = np.array(holm(list(row))).reshape(2, 10) <= LEVEL
        wrong += bool(adjusted[:, :6].any() or adjusted[1, 6:].any())
    assert wrong / many <= LEVEL


def decided(x, n, level):
    """Whether the t test of the first ``n`` of ``x`` [many, seeds] decides at a two-sided level."""
    part = x[:, :n]
    p = sides_of(part.mean(axis=1), part.std(axis=1, ddof=1), n)
    return np.minimum(p.confirms, p.refutes) * 2 <= level


def test_a_plan_that_is_lengthened_pays_for_it():
    x = np.random.default_rng(5).standard_normal((40_000, 20))
    looks = SpendingPlan((5, 13, 20), each=False)
    paid = np.any([decided(x, n, looks.level(n)) for n in looks.ends], axis=0).mean()
    naive = np.any([decided(x, n, LEVEL) for n in looks.ends], axis=0).mean()
    assert paid <= 0.06
    assert naive > 0.09


def test_so_does_a_sequence():
    x = np.random.default_rng(6).standard_normal((20_000, 8))
    looks = SpendingPlan((4, 8))
    paid = np.any([decided(x, n, looks.level(n)) for n in range(2, 9)], axis=0).mean()
    forgotten = np.any(
        [decided(x, n, SpendingPlan((4 if n <= 4 else 8,)).level(n)) for n in range(2, 9)], axis=0
    ).mean()
    assert paid <= 0.06 < forgotten


def test_levels_and_p_values_of_a_lengthened_plan_agree():
    fixed = SpendingPlan((5, 13, 20), each=False)
    assert [fixed.level(n) for n in (5, 13, 20)] == pytest.approx([0.05, 0.008, 0.0016])
    assert fixed.p(0.0016, 20) == pytest.approx(LEVEL)
    each = SpendingPlan((4, 8))
    for n in (3, 4, 6, 8):
        assert each.p(each.level(n), n) == pytest.approx(LEVEL, rel=0.02)
    assert each.level(4) == SpendingPlan((4,)).level(4)


def test_the_least_deviation_by_hand():
    # both on a grid of ten
    assert least_std([20, 20], [10, 10], 10.0) == pytest.approx(10 * 0.5**0.5)
    assert least_std([20, 21], [3, 4], 17.0) == pytest.approx(0.5**0.5)  # a grid of one
    assert least_std([0, 0], [0, 0], 0.0) == pytest.approx(0.5**0.5)
    # four yes of four: t = 2, so nothing above a half is shown
    assert least_std([1, 1, 1, 1], None, 0.5) == 0.5
    assert least_std([0.25, 0.5], [0.1, 0.2], 0.2) == 0  # no whole numbers, and they differ
    assert least_std([0.25, 0.25], [0.125, 0.125], 0.125) == pytest.approx(0.125 * 0.5**0.5)
