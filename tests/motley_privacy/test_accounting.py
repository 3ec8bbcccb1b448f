"""Epsilons that were computed apart from this library, and the traps of dp-accounting 0.6.

K = 1000 clients, cohorts of 100, 200 rounds, delta = 1e-5. Privacy loss distributions agree to 0.5
%, everything else to 0.1 %.
"""

from __future__ import annotations

import builtins
import itertools
import math
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from motley.core.errors import ConfigError
from motley_privacy.accounting import Release, bound, calibrated

dp_accounting = pytest.importorskip("dp_accounting")
from dp_accounting.pld import PLDAccountant  # noqa: E402
from dp_accounting.rdp import RdpAccountant  # noqa: E402

DELTA = 1e-5
PLD = 0.005
EXACT = 0.001


def poisson(z, largest=None):
    return Release("poisson", z, 200, population=1000, rate=0.1, largest=largest)


def fixed(z):
    return Release("without_replacement", z, 200, population=1000, rate=0.1)


def every(z, n=200):
    return Release("gaussian", z, n)


CAPPED = partial(poisson, largest=130)
TABLE = (
    ("`poisson`, hidden, zero-out", poisson, "zero_out", PLD, 9.9713, 1.4217),
    ("the same with `largest = 130`", CAPPED, "zero_out", PLD, 10.5180, 1.4384),
    ("`poisson`, hidden, replace-one", poisson, "replace_one", PLD, 15.8791, 2.9366),
    ("the same with `largest = 130`", CAPPED, "replace_one", PLD, 16.1099, 2.9431),  # computed here
    ("`uniform`, hidden, replace-one", fixed, "replace_one", EXACT, 157.7472, 7.9513),
    ("any rule, seen, all 200 sums, zero-out", every, "zero_out", EXACT, 159.4415, 20.6755),
    (
        "any rule, seen, at most 20 sums, zero-out",
        partial(every, n=20),
        "zero_out",
        EXACT,
        28.3735,
        4.9833,
    ),
    ("the same, replace-one", partial(every, n=20), "replace_one", EXACT, 77.3301, 11.4800),
)
"""The rows of the table in docs/privacy.md#accounts: the release of a multiplier, adjacency,
tolerance, epsilon at z = 1 and z = 4."""


def test_the_table_of_the_page_has_the_golden_epsilons():
    page = (Path(__file__).parents[2] / "docs" / "privacy.md").read_text(encoding="utf-8")
    _, _, after = page.partition(
        "| K = 1000, m = 100, 200 rounds, delta = 1e-5 | z = 1 | z = 4 |\n| --- | --- | --- |\n"
    )
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in after.partition("\n\n")[0].splitlines()
    ]
    assert rows == [
        (label, f"{little:.2f}", f"{much:.2f}") for label, _, _, _, little, much in TABLE
    ]


@pytest.mark.parametrize(
    ("release", "adjacency", "accountant", "epsilon", "within"),
    [
        *[
            (made(4.0), adjacency, "auto", epsilon, within)
            for _, made, adjacency, within, _, epsilon in TABLE
        ],
        *[
            (made(1.0), adjacency, "auto", epsilon, within)
            for _, made, adjacency, within, epsilon, _ in TABLE
            if within == EXACT
        ],
        (poisson(4.0), "add_remove", "auto", 1.4217, PLD),
        (poisson(1.0), "add_remove", "rdp", 11.0631, EXACT),
        (poisson(4.0), "add_remove", "rdp", 1.5568, EXACT),
        (poisson(4.0, 130), "add_remove", "auto", 1.4384, PLD),
        # a tutorial of TensorFlow Federated: 3,383 clients, 120 a round, 100 rounds, z = 1.2 for
        # epsilon 2
        (
            Release("poisson", 1.2, 100, population=3383, rate=120 / 3383),
            "add_remove",
            "rdp",
            1.9861,
            EXACT,
        ),
        (every(1.0), "zero_out", "rdp", 166.0355, EXACT),
        (every(4.0), "zero_out", "rdp", 22.0199, EXACT),
    ],
)
def test_golden_epsilons(release, adjacency, accountant, epsilon, within):
    assert bound((release,), DELTA, adjacency, accountant).epsilon == pytest.approx(
        epsilon, rel=within
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("release", "adjacency", "epsilon"),
    [
        *[
            (made(1.0), adjacency, epsilon)
            for _, made, adjacency, within, epsilon, _ in TABLE
            if within == PLD
        ],
        (poisson(1.0), "add_remove", 9.9713),
        (poisson(1.0, 130), "add_remove", 10.5180),
    ],
)
def test_golden_epsilons_of_little_noise(release, adjacency, epsilon):
    assert bound((release,), DELTA, adjacency).epsilon == pytest.approx(epsilon, rel=PLD)


@pytest.mark.parametrize(
    ("update", "adjacency", "epsilon", "z"),
    [
        (fixed(1.0), "replace_one", 8.0, 3.9842),
        pytest.param(fixed(1.0), "replace_one", 2.0, 12.5818, marks=pytest.mark.slow),
        (every(1.0, 20), "zero_out", 8.0, 2.6844),
        (every(1.0, 20), "zero_out", 2.0, 8.9176),
        (every(1.0), "zero_out", 8.0, 8.4895),
        (every(1.0), "zero_out", 2.0, 28.1968),
    ],
)
def test_golden_noise_multipliers(update, adjacency, epsilon, z):
    assert calibrated(update, (), epsilon, DELTA, adjacency) == pytest.approx(z, rel=EXACT)


@pytest.mark.slow
def test_golden_noise_multiplier_of_poisson_cohorts():
    assert calibrated(poisson(1.0), (), 2.0, DELTA, "add_remove") == pytest.approx(3.0053, rel=PLD)


@pytest.mark.slow
def test_golden_noise_multiplier_of_poisson_cohorts_at_epsilon_8():
    assert calibrated(poisson(1.0), (), 8.0, DELTA, "add_remove") == pytest.approx(1.1307, rel=PLD)


# b = 5 B: b over the half of the interval by which zero-out moves it
LOSSES = Release("laplace", 10.0, 40)


def test_large_hidden_cohorts_of_a_fixed_size_cost_no_more_than_seen_ones():
    large = Release("without_replacement", 1.0, 20, population=100, rate=0.9)
    total = bound((large,), DELTA, "replace_one")
    assert total.epsilon == pytest.approx(77.3301, rel=EXACT)  # 100.0 by the library's divergences
    assert not total.amplified
    assert bound((fixed(4.0),), DELTA, "replace_one").amplified
    z = calibrated(large, (), 8.0, DELTA, "replace_one")
    assert z == calibrated(every(1.0, 20), (), 8.0, DELTA, "replace_one")
    assert bound((replace(large, multiplier=z),), DELTA, "replace_one").epsilon <= 8.0 + 1e-6


@pytest.mark.parametrize(
    ("releases", "zero_out", "replace_one"),
    [((every(4.0, 20), LOSSES), 5.8225, 13.4904), ((LOSSES,), 2.4512, 5.2789)],
)
def test_updates_and_losses_together(releases, zero_out, replace_one):
    assert bound(releases, DELTA, "zero_out").epsilon == pytest.approx(zero_out, rel=PLD)
    assert bound(releases, DELTA, "replace_one").epsilon == pytest.approx(replace_one, rel=PLD)


def test_a_laplace_signal_in_every_round():
    """epsilon_0 = 0.2 under replace-one: b = 5 B, or 10 half widths."""
    assert bound((Release("laplace", 10.0, 200),), DELTA, "replace_one").epsilon == pytest.approx(
        14.6151, rel=PLD
    )


@pytest.mark.parametrize(("adjacency", "moved"), [("replace_one", 2.0), ("zero_out", 1.0)])
def test_a_noisy_histogram_costs_what_the_closed_form_says(adjacency, moved):
    """Shares with Laplace noise of scale b = 1 (multiplier 0.5, width 2) move by ``moved`` in sum.
    With s = moved / b, the mechanism has delta(epsilon) = 1 - exp((epsilon - s) / 2), so
    epsilon(delta) = s + 2 ln(1 - delta)."""
    release = Release("laplace", 2.0 * 0.5)
    for delta in (1e-5, 0.1):
        closed = moved + 2.0 * math.log1p(-delta)
        assert bound((release,), delta, adjacency).epsilon == pytest.approx(closed, rel=EXACT)


@pytest.mark.parametrize("delta", [1e-5, 1e-2, 0.1, 0.3])
def test_one_number_that_moves_by_all_bounds_a_histogram_that_moves_in_two_classes(delta):
    """Replace-one moves one class by -1 and another by +1: two Laplace numbers, at most as dear as
    one that moves by 2."""
    each = PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
    for _ in range(2):
        each.compose(dp_accounting.LaplaceDpEvent(1.0))
    assert each.get_epsilon(delta) <= bound(
        (Release("laplace", 1.0),), delta, "replace_one"
    ).epsilon * (1 + 1e-3)


def test_gumbel_against_noise_on_ones_own_score():
    """eta B = 0.1, m = 100, 200 rounds, replace-one: rho = m (eta B)^2 / 8 a round for Gumbel; the
    Gaussian of the same deviation, pi / (sqrt(6) eta), costs 3 (eta B)^2 / pi^2 for every m."""
    gumbel = Release("gumbel", 2.0 / 0.1, 200, m=100)
    assert bound((gumbel,), DELTA, "replace_one").epsilon == pytest.approx(57.30, rel=EXACT)
    gaussian = Release("gaussian", 2.0 * math.pi / math.sqrt(6.0) / 0.1, 200)
    assert bound((gaussian,), DELTA, "replace_one").epsilon == pytest.approx(4.90, rel=PLD)


def test_a_gaussian_beside_a_cohort_of_coins_is_doubled_once():
    """20 sums that are seen cost 11.48, and coins that are thrown once in ten thousand next to
    nothing: together 28.4 was told, with the sums doubled here and by the library."""
    coins = Release("poisson", 4.0, 1, population=10_000, rate=1e-4)
    together = bound((coins, Release("gaussian", 4.0, 20)), DELTA, "replace_one")
    assert together.accountant == "pld"
    assert together.epsilon == pytest.approx(11.4800, rel=0.01)


def test_half_the_noise_multiplier_stands_for_replace_one():
    """The library's RDP accountant does not double a Gaussian's sensitivity under replace-one, its
    PLD accountant does."""
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    whole = (
        RdpAccountant(neighboring_relation=relation)
        .compose(dp_accounting.GaussianDpEvent(1.0), 200)
        .get_epsilon(DELTA)
    )
    assert whole == pytest.approx(166.0355, rel=EXACT)
    assert bound((every(1.0),), DELTA, "replace_one", "rdp").epsilon == pytest.approx(
        534.8613, rel=EXACT
    )
    assert bound((every(1.0),), DELTA, "replace_one").epsilon == pytest.approx(519.6982, rel=EXACT)


@pytest.mark.parametrize(
    ("accountant", "z"), [("rdp", 0.7248), pytest.param("pld", 0.6329, marks=pytest.mark.slow)]
)
def test_a_published_configuration_of_a_million_clients(accountant, z):
    """pfl-research's CIFAR-10 settings: 1,000 of a million clients, 3,000 rounds, epsilon 2 at
    delta 1e-6."""
    release = Release("poisson", z, 3000, population=10**6, rate=1e-3)
    assert bound((release,), 1e-6, "add_remove", accountant).epsilon == pytest.approx(2.0, rel=PLD)


@pytest.mark.parametrize(("z", "epsilon"), [(1.0, 20.7145), (4.0, 3.3533)])
def test_the_full_multiplier_for_fixed_cohorts_would_claim_too_little(z, epsilon):
    """What Flower's accountant does: z in place of z / 2 gives 3.3533 for z = 4, where 7.9513 is
    right."""
    event = dp_accounting.SampledWithoutReplacementDpEvent(
        1000, 100, dp_accounting.GaussianDpEvent(z)
    )
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    wrong = RdpAccountant(neighboring_relation=relation).compose(event, 200).get_epsilon(DELTA)
    assert wrong == pytest.approx(epsilon, rel=EXACT)
    assert bound((fixed(z),), DELTA, "replace_one").epsilon > 2 * wrong


def test_the_library_ignores_the_count_of_randomised_responses():
    """Which is why no randomized response is composed by count here."""
    bit = dp_accounting.RandomizedResponseDpEvent(2 / (1 + math.e), 2)
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    assert PLDAccountant(relation).compose(bit, 20).get_epsilon(DELTA) == pytest.approx(
        1.0, rel=PLD
    )
    each = PLDAccountant(relation)
    for _ in range(20):
        each.compose(bit)
    assert each.get_epsilon(DELTA) == pytest.approx(19.9947, rel=PLD)


@pytest.mark.parametrize(
    ("releases", "adjacency", "accountant", "said"),
    [
        (
            (fixed(4.0),),
            "replace_one",
            "pld",
            "'pld' cannot add up such releases; write accountant = \"rdp\"",
        ),
        (
            (poisson(4.0),),
            "replace_one",
            "rdp",
            "'rdp' cannot add up such releases; write accountant = \"pld\"",
        ),
        ((Release("gumbel", 20.0, m=4),), "zero_out", "pld", 'write accountant = "rdp"'),
        ((LOSSES,), "zero_out", "closed_form", "closed form is of Gaussians alone"),
        ((fixed(4.0),), "zero_out", "auto", "amplified under replace-one alone"),
        ((every(4.0),), "add_remove", "auto", "roster is public"),
    ],
)
def test_what_cannot_be_added_up_is_said(releases, adjacency, accountant, said):
    with pytest.raises(ConfigError, match=said):
        bound(releases, DELTA, adjacency, accountant)


def test_a_target_that_the_signals_alone_exceed_is_refused():
    with pytest.raises(
        ConfigError, match=r"privacy\.epsilon: got 2, and the signals alone cost 2\.45"
    ):
        calibrated(every(1.0, 20), (LOSSES,), 2.0, DELTA, "zero_out")


def test_the_error_without_the_library_names_the_distribution(monkeypatch):
    real = builtins.__import__

    def without(name, *args, **options):
        if name.startswith("dp_accounting"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(ConfigError, match=r"pip install ./packages/motley-privacy in a checkout"):
        bound.__wrapped__((every(3.0),), DELTA, "zero_out")


@pytest.mark.parametrize(
    ("z", "steps", "trees", "epsilon"),
    [(1.0, 200, 1, 16.513), (1.0, 10, 20, 81.116), (8.0, 10, 20, 5.378)],
)
def test_sums_over_a_tree_cost_a_gaussian_for_each_level(z, steps, trees, epsilon):
    """DP-FTRL, one participation a tree: ceil(log2(steps + 1)) Gaussians, 8 of 200 steps and 4
    of 10. What Motley's accounts of sums would say of as many, with the sensitivity of a
    replacement, is the library's own figure."""
    accountant = RdpAccountant(
        neighboring_relation=dp_accounting.NeighboringRelation.REPLACE_SPECIAL
    )
    accountant.compose(
        dp_accounting.SelfComposedDpEvent(
            dp_accounting.SingleEpochTreeAggregationDpEvent(z, steps), trees
        )
    )
    assert accountant.get_epsilon(DELTA) == pytest.approx(epsilon, rel=EXACT)
    levels = math.ceil(math.log2(steps + 1))
    assert bound(
        (Release("gaussian", z, levels * trees),), DELTA, "zero_out", "rdp"
    ).epsilon == pytest.approx(epsilon, rel=EXACT)


@pytest.mark.parametrize("m", [1, 2, 3, 4])
def test_the_pure_bound_of_gumbel_choices_is_tight(m):
    """Seven candidates, one score moves by eta B = 1: over cohorts without order, the worst ratio
    comes close to m, and stays below.

    Closest where the others score far lower: then not to be among the m costs nearly e in each of
    the m turns."""

    def probability(score, others, cohort):
        weights = [math.exp(score), *(math.exp(others) for _ in range(6))]
        total = 0.0
        for order in itertools.permutations(cohort):
            left = sum(weights)
            one = 1.0
            for k in order:
                one = one * weights[k] / left
                left = left - weights[k]
            total += one
        return total

    worst = max(
        abs(math.log(probability(1.0, others, cohort) / probability(0.0, others, cohort)))
        for others in (0.0, -2.0, -4.0, -6.0, -8.0)
        for cohort in itertools.combinations(range(7), m)
    )
    assert 0.998 * m < worst < m
